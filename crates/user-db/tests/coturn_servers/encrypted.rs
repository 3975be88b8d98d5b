//! TLS to real servers: the right certificate alone is accepted.

use std::path::Path;

use test_support::{DatabaseKind, DatabaseServer};
use user_db::server_editor;

use super::{Asked, server, user};

/// A URL that asks for TLS.
fn url(server: &DatabaseServer, host: &str, authority: &Path) -> String {
    let tcp = server.tcp_url().replace("127.0.0.1", host);
    let authority = authority.display().to_string().replace('/', "%2F");
    format!("{tcp}?sslmode=verify-full&sslrootcert={authority}")
}

/// Connections are made to the server with the certificate alone; returns it, encrypted, with a
/// user alice.
pub(super) fn server_is_checked(kind: DatabaseKind) -> Option<DatabaseServer> {
    let mut server = server(kind)?;
    let [authority, other] = server.encrypt();
    let right = url(&server, "127.0.0.1", &authority);
    server_editor(&right).unwrap().add(&user("alice", "p")).unwrap();
    let asked = Asked::of(&right);
    assert!(asked.is_known("alice"));
    for (host, file, reason) in
        [("127.0.0.1", &other, "UnknownIssuer"), ("localhost", &authority, "not valid for name")]
    {
        let wrong = url(&server, host, file);
        let error = server_editor(&wrong).unwrap().realms().unwrap_err().to_string();
        assert!(error.contains(reason), "{kind:?}: {error}");
        assert!(!error.contains("turn-password"), "{kind:?}: {error}");
    }
    Some(server)
}

#[test]
fn postgresql_is_checked() {
    let Some(server) = server_is_checked(DatabaseKind::Postgres) else { return };
    let plain = server.run(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name = 'turnpike' AND NOT ssl",
    );
    assert!(plain.contains(" 0"), "{plain}");
}

#[test]
fn mariadb_is_checked() {
    let Some(server) = server_is_checked(DatabaseKind::Mariadb) else { return };
    // From now on it takes no connection in clear of this user.
    server.run("ALTER USER turn REQUIRE SSL; ALTER USER turn@localhost REQUIRE SSL");
    let clear = server_editor(&format!("{}?sslmode=disable", server.tcp_url()));
    let refused = clear.unwrap().realms().unwrap_err().to_string();
    assert!(refused.contains("Access denied"), "{refused}");
    let authority = server.authority();
    let found = server_editor(&url(&server, "127.0.0.1", &authority)).unwrap().realms();
    assert_eq!(found.unwrap().len(), 1);
}

/// Its port takes TLS alone.
#[test]
fn redis_is_checked() {
    let Some(server) = server_is_checked(DatabaseKind::Redis) else { return };
    let authority = server.authority().display().to_string().replace('/', "%2F");
    let rediss = server.tcp_url().replace("redis://", "rediss://");
    let found = server_editor(&format!("{rediss}?sslrootcert={authority}")).unwrap().realms();
    assert_eq!(found.unwrap().len(), 1);
    assert!(server_editor(&server.tcp_url()).unwrap().realms().is_err());
}
