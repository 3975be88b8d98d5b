//! Encrypted connections of database servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DatabaseKind, DatabaseServer};

impl DatabaseServer {
    /// Has it encrypt its connections over TCP, with a certificate for 127.0.0.1, and take no
    /// others but from a PostgreSQL or MariaDB; returns the file of the authority that signed it,
    /// and that of another one.
    ///
    /// # Panics
    /// It does not start again.
    pub fn encrypt(&mut self) -> [PathBuf; 2] {
        const MAKE: &str = "set -e
key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
for name in ca other; do
    openssl req -x509 $key -keyout $name.key -out $name.pem -days 2 -subj /CN=$name
done
openssl req $key -keyout server.key -out server.csr -subj /CN=db -addext subjectAltName=IP:127.0.0.1
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.crt -days 2 -copy_extensions copy
chmod 600 server.key
chown --reference=. server.key server.crt";
        let made = Command::new("sh").args(["-c", MAKE]).current_dir(&self.directory).output();
        let made = made.expect("a shell");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.stop();
        self.is_encrypted = true;
        self.start_again();
        [self.authority(), self.directory.join("other.pem")]
    }

    /// File of the authority that signed the certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }
}

/// Words of a server's command line for the files of [`DatabaseServer::encrypt`].
pub(super) fn words(kind: DatabaseKind, directory: &Path) -> Vec<String> {
    let at = |name: &str| directory.join(name).display().to_string();
    let (key, certificate, authority) = (at("server.key"), at("server.crt"), at("ca.pem"));
    match kind {
        DatabaseKind::Postgres => ["ssl=on".to_owned(), format!("ssl_key_file={key}")]
            .into_iter()
            .chain([format!("ssl_cert_file={certificate}")])
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect(),
        DatabaseKind::Mariadb => {
            vec![format!("--ssl-key={key}"), format!("--ssl-cert={certificate}")]
        }
        DatabaseKind::Redis => [
            ("--tls-key-file", key),
            ("--tls-cert-file", certificate),
            ("--tls-ca-cert-file", authority),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect(),
        DatabaseKind::Mongo => vec![key, certificate],
        DatabaseKind::Sqlite => Vec::new(),
    }
}
