//! TLS to real servers: only the right certificate is accepted.

use std::path::Path;

use test_support::{DatabaseKind, DatabaseServer};
use user_db::{clear_hosts, server_editor};

use super::{Asked, server, user};

/// Returns a URL that demands TLS.
fn url(server: &DatabaseServer, host: &str, authority: &Path) -> String {
    let tcp = server.tcp_url().replace("127.0.0.1", host);
    let authority = authority.display().to_string().replace('/', "%2F");
    format!("{tcp}?sslmode=verify-full&sslrootcert={authority}")
}

/// Checks that connections are made only to the server with the certificate. Returns the server,
/// with TLS and a user alice.
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

/// A name that is not known to be this host is treated as another host, anywhere in the URL. The
/// server receives nothing unencrypted, although it would accept that.
#[test]
fn a_host_in_the_query_is_a_host() {
    let Some(server) = server(DatabaseKind::Postgres) else { return };
    let tcp = server.tcp_url();
    let port = tcp.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    // The resolver of this host resolves the name to 127.0.0.1.
    let named = format!("postgresql://turn@/turn?host=127.1&port={port}");
    let error = server_editor(&named).unwrap().realms().unwrap_err().to_string();
    assert!(error.contains("server does not support TLS"), "{error}");
    assert!(clear_hosts(&named).unwrap().is_empty());
    let clear = format!("{named}&sslmode=disable");
    assert!(server_editor(&clear).unwrap().realms().is_ok());
    assert_eq!(clear_hosts(&clear).unwrap(), ["127.1"]);
    let here = format!("postgresql://turn@127.1:{port}/turn?hostaddr=127.0.0.1");
    assert!(server_editor(&here).unwrap().realms().is_ok(), "the address is this host's");
}

#[test]
fn mariadb_is_checked() {
    let Some(server) = server_is_checked(DatabaseKind::Mariadb) else { return };
    // The server now refuses unencrypted connections of this user.
    server.run("ALTER USER turn REQUIRE SSL; ALTER USER turn@localhost REQUIRE SSL");
    let clear = server_editor(&format!("{}?sslmode=disable", server.tcp_url()));
    let refused = clear.unwrap().realms().unwrap_err().to_string();
    assert!(refused.contains("Access denied"), "{refused}");
    let authority = server.authority();
    let found = server_editor(&url(&server, "127.0.0.1", &authority)).unwrap().realms();
    assert_eq!(found.unwrap().len(), 1);
}

/// The server's port accepts only TLS.
#[test]
fn redis_is_checked() {
    let Some(server) = server_is_checked(DatabaseKind::Redis) else { return };
    let authority = server.authority().display().to_string().replace('/', "%2F");
    let rediss = server.tcp_url().replace("redis://", "rediss://");
    let found = server_editor(&format!("{rediss}?sslrootcert={authority}")).unwrap().realms();
    assert_eq!(found.unwrap().len(), 1);
    assert!(server_editor(&server.tcp_url()).unwrap().realms().is_err());
}
