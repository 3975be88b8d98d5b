//! Coturn's collections in MongoDB. Debian's coturn lacks MongoDB, so the tests write documents in
//! the form of coturn's source.

use mongodb::bson::{Document, doc};
use test_support::{DatabaseKind, DatabaseServer, eventually};
use user_db::{Answer, StoreError, Table, server_editor, server_tables};

use super::{
    Asked, REALM, edited, encrypted, outages, row, rows_are_as_they_were_put, server, user,
};

/// Adds documents as another program does.
fn write(server: &DatabaseServer, collection: &str, documents: &[Document]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(server.tcp_url()).await.unwrap();
        let collection = client.default_database().unwrap().collection::<Document>(collection);
        collection.insert_many(documents).await.unwrap();
    });
}

#[test]
fn mongodb_has_users_of_both_and_may_fail() {
    let Some(mut server) = server(DatabaseKind::Mongo) else { return };
    let mut editor = server_editor(&server.url()).unwrap();
    let asked = Asked::of(&server.url());
    assert!(asked.is_unknown("gorst"));
    assert!(editor.realms().unwrap().is_empty());
    editor.add(&user("alice", "correct-horse")).unwrap();
    assert!(matches!(editor.add(&user("alice", "x")), Err(StoreError::Exists { .. })));

    // Key in coturn's form.
    let key = "7da2270ccfa49786e0115366d3a3d14d";
    write(&server, "turnusers_lt", &[doc! { "name": "gorst", "realm": REALM, "hmackey": key }]);
    eventually("a user of another program is known", || asked.is_known("gorst"));
    let Answer::Known(gorst) = asked.ask("gorst") else { panic!("he is known") };
    assert_eq!(gorst.keys.md5.expose().first(), Some(&0x7d));
    assert!(editor.delete(REALM, "gorst").unwrap());
    eventually("a deleted user is gone", || asked.is_unknown("gorst"));
    edited(&mut *editor);
    outages(&mut server);
}

/// A realm is one document, with arrays.
#[test]
fn mongodb_has_rows_of_both() {
    let Some(server) = server(DatabaseKind::Mongo) else { return };
    let tables = server_tables(&server.url()).unwrap();
    rows_are_as_they_were_put(&tables);

    let peers = ["172.17.13.200", "172.17.13.201"];
    let options = doc! { "max-bps": 500_000.0, "user-quota": 10_000 };
    let realm = doc! { "realm": "north.gov", "options": options, "allowed_peer_ip": peers };
    write(&server, "realm", &[realm]);
    let rows = tables.rows(Table::AllowedPeers, 9).unwrap();
    assert_eq!(rows[2..], [row(&["north.gov", peers[0]]), row(&["north.gov", peers[1]])]);
    let rows = tables.rows(Table::Options, 9).unwrap();
    assert!(rows.contains(&row(&["north.gov", "max-bps", "500000"])), "{rows:?}");

    // An origin has one realm.
    tables.put(Table::Origins, row(&["http://a:80", "north.gov"])).unwrap();
    let rows = tables.rows(Table::Origins, 9).unwrap();
    assert_eq!(rows, [row(&["http://a:80", "north.gov"]), row(&["http://b:80", "r"])]);
    tables.remove(Table::Origins, row(&["http://a:80"])).unwrap();
    tables.remove(Table::AllowedPeers, row(&["north.gov"])).unwrap();
    assert_eq!(tables.rows(Table::Origins, 9).unwrap().len(), 1);
    assert_eq!(tables.rows(Table::AllowedPeers, 9).unwrap().len(), 2);
}

#[test]
fn mongodb_is_checked() {
    let Some(server) = encrypted::server_is_checked(DatabaseKind::Mongo) else { return };
    let clear = server_editor(&server.tcp_url()).unwrap().realms();
    assert!(clear.is_err(), "its port takes TLS alone");
}
