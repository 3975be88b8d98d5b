//! Checked values, for the rest of the program.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turn_proto::{AlternateServers, DiscoverySockets, NonceKey, Origin, SharedSecret, TokenKey};
use turn_types::Secret;

use crate::database_rules::DatabaseRules;
use crate::error::Place;
use crate::file::{AcmeChallenge, DatabaseTable, File, RealmEntry, Tls};
use crate::places::Places;
use crate::redirects::Redirects;
use crate::value::{Database, External, HttpListen, RelayPair};

/// Name of the control socket in the data directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// Name of the file of tokens in the data directory.
const API_TOKENS: &str = "api-tokens.json";

/// Name of the file of revoked credentials in the data directory.
const REVOKED: &str = "revoked.json";

/// A configuration that has been checked: its keys (by dereference, as `settings.tcp.enabled`), and
/// values that were made of several. Two of them are compared by [`diff`](crate::diff()), and one
/// becomes the rules of the server by [`Settings::policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) file: File,
    /// Directory of the configuration file, which paths in it are relative to.
    pub(crate) directory: PathBuf,
    pub(crate) places: Places,
    /// The user database of `users.database_file`.
    pub(crate) database_of_file: Option<Database>,
    /// The Redis server of `accounting.redis_file`.
    pub(crate) statistics_of_file: Option<Database>,
    /// Rules of the database, beside those of the configuration.
    pub(crate) of_database: DatabaseRules,
    /// Public addresses that were found, where `relay.external` is `"auto"`.
    pub(crate) found: Vec<RelayPair>,
    /// Shared secrets of `auth`; names and secrets differ.
    pub secrets: Vec<SharedSecret>,
    /// Values of the entries of `realms`, in their order.
    pub tenants: Vec<Tenant>,
    /// Keys of access tokens; names differ.
    pub token_keys: Vec<TokenKey>,
    /// Key of nonces that is shared with other servers; `None` without a file of it.
    pub nonce_key: Option<NonceKey>,
    /// The secret of signed tokens, from `signed_tokens.secret_file`.
    pub signed_secret: Option<Secret<Arc<[u8]>>>,
    /// The header of questions to the authorizer, from `authorizer.authorization_file`.
    pub authorization: Option<Secret<Arc<[u8]>>>,
    /// Key of pseudonyms in the log; `None` without a file of it.
    pub address_key: Option<Secret<Arc<[u8]>>>,
    /// Listeners for TLS and DTLS besides `listen`; none without a certificate.
    pub tls_listen: Vec<SocketAddr>,
    /// Listeners of NAT behaviour discovery: at most one entry per family.
    pub discovery_sockets: Vec<DiscoverySockets>,
    /// Variables of the environment that begin like those of keys, and are none.
    pub unused_variables: Vec<String>,
    /// Means by which a certificate authority verifies `acme.names`; `None` without names.
    pub acme_challenge: Option<AcmeChallenge>,
}

impl Deref for Settings {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Values of an entry of `realms` that were made of several, or read from files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Origins of web pages that choose it.
    pub origins: Vec<Origin>,
    /// Names of this server that choose it, in lower case.
    pub server_names: Vec<String>,
    /// Listeners that choose it.
    pub listeners: Vec<SocketAddr>,
    /// Its shared secrets.
    pub secrets: Vec<SharedSecret>,
    /// Keys of its access tokens.
    pub token_keys: Vec<TokenKey>,
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, as PEM.
    pub chain: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
    /// The password of an encrypted key.
    pub password: Option<PathBuf>,
}

impl Settings {
    /// Place of a key: its line, its variable, or the file where it was left out.
    #[must_use]
    pub fn place(&self, key: &str) -> Place {
        self.places.of(key)
    }

    /// Place of an entry of a list.
    #[must_use]
    pub fn entry_place(&self, key: &str, index: usize) -> Place {
        self.places.of_entry(key, index)
    }

    /// The configuration file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.places.file.as_deref()
    }

    /// Files of shared secrets, token keys and the key of pseudonyms, each with its key and its
    /// place.
    #[must_use]
    pub fn secret_files(&self) -> Vec<(&'static str, Place, PathBuf)> {
        let auth = &self.auth;
        let one = auth
            .secret_file
            .iter()
            .map(|file| ("auth.secret_file", self.place("auth.secret_file"), self.beside(file)));
        let mut all: Vec<_> = one.collect();
        let key = "users.database_file";
        let database = self.users.database_file.iter();
        all.extend(database.map(|file| (key, self.place(key), self.beside(file))));
        let key = "accounting.redis_file";
        let statistics = self.accounting.redis_file.iter();
        all.extend(statistics.map(|file| (key, self.place(key), self.beside(file))));
        let secrets = auth.secrets.iter().map(|entry| entry.secret_file.as_ref());
        let keys = auth.token_keys.iter().map(|entry| entry.key_file.as_ref());
        let mut of = |key, files: Vec<Option<&PathBuf>>| {
            for (index, file) in files.into_iter().enumerate() {
                all.extend(file.map(|file| (key, self.entry_place(key, index), self.beside(file))));
            }
        };
        of("auth.secrets", secrets.collect());
        of("auth.token_keys", keys.collect());
        let key = "auth.nonce_key_file";
        let nonces = self.auth.nonce_key_file.iter();
        all.extend(nonces.map(|file| (key, self.place(key), self.beside(file))));
        let key = "signed_tokens.secret_file";
        let signed = self.signed_tokens.secret_file.iter();
        all.extend(signed.map(|file| (key, self.place(key), self.beside(file))));
        let key = "authorizer.authorization_file";
        let header = self.authorizer.authorization_file.iter();
        all.extend(header.map(|file| (key, self.place(key), self.beside(file))));
        let key = "log.address_key_file";
        let pseudonyms = self.log.address_key_file.iter();
        all.extend(pseudonyms.map(|file| (key, self.place(key), self.beside(file))));
        for (index, realm) in self.realms.iter().enumerate() {
            let keys = realm.token_keys.iter().filter_map(|entry| entry.key_file.as_ref());
            let files = realm.secrets.iter().filter_map(|entry| entry.secret_file.as_ref());
            let files = files.chain(keys);
            all.extend(
                files.map(|file| ("realms", self.entry_place("realms", index), self.beside(file))),
            );
        }
        all
    }

    /// Returns whether the configuration itself holds a secret, rather than the name of its file.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        let auth = &self.auth;
        self.users.database.as_ref().is_some_and(Database::holds_secret)
            || self.accounting.redis.as_ref().is_some_and(Database::holds_secret)
            || auth.secret.is_some()
            || auth.secrets.iter().any(|entry| entry.secret.is_some())
            || self.realms.iter().any(|realm| realm.secrets.iter().any(|one| one.secret.is_some()))
            || auth
                .token_keys
                .iter()
                .chain(self.realms.iter().flat_map(|realm| &realm.token_keys))
                .any(|entry| entry.key.is_some())
    }

    /// Addresses of `listen`.
    pub fn listen(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().map(|endpoint| endpoint.0)
    }

    /// All listeners: `listen`, and listeners of NAT behaviour discovery that it does not cover.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.listen().collect();
        let discovery =
            self.discovery_sockets.iter().flat_map(|sockets| sockets.local.as_flattened());
        for socket in discovery {
            let covers = |listener: &SocketAddr| {
                listener == socket
                    || listener.ip().is_unspecified()
                        && listener.is_ipv4() == socket.is_ipv4()
                        && listener.port() == socket.port()
            };
            if !all.iter().any(covers) {
                all.push(*socket);
            }
        }
        all
    }

    /// The control socket: as configured, or in the data directory.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        let configured = self.control.socket.clone();
        configured.unwrap_or_else(|| self.data.directory.join(CONTROL_SOCKET))
    }

    /// Unix sockets of `http.listen`.
    pub fn http_sockets(&self) -> impl Iterator<Item = &Path> {
        self.http.listen.iter().filter_map(|listen| match listen {
            HttpListen::Unix(path) => Some(path.as_path()),
            HttpListen::Tcp(_) => None,
        })
    }

    /// Authorities one of which has to have signed the certificate of each client of `api.listen`
    /// over TLS.
    #[must_use]
    pub fn api_client_authorities(&self) -> Option<PathBuf> {
        self.api.client_authorities.as_deref().map(|path| self.beside(path))
    }

    /// The file of the tokens of `turnpike token`.
    #[must_use]
    pub fn api_tokens(&self) -> PathBuf {
        self.data.directory.join(API_TOKENS)
    }

    /// The file of revoked credentials.
    #[must_use]
    pub fn revoked(&self) -> PathBuf {
        self.data.directory.join(REVOKED)
    }

    /// The user database: as configured, or in the data directory.
    #[must_use]
    pub fn user_database(&self) -> Database {
        match self.users.database.as_ref().or(self.database_of_file.as_ref()) {
            Some(database) => database.beside(&self.directory),
            None => Database::in_directory(&self.data.directory),
        }
    }

    /// Database with precedence over [`user_database`](Self::user_database); `None` without local
    /// users.
    #[must_use]
    pub fn local_users(&self) -> Option<Database> {
        let has_another = self.users.local && self.user_database().has_coturn_layout();
        has_another.then(|| Database::in_directory(&self.data.directory))
    }

    /// Database for users of a configuration of coturn.
    #[must_use]
    pub fn database_of_imported(&self) -> Database {
        self.local_users().unwrap_or_else(|| self.user_database())
    }

    /// URL of the Redis server for statistics.
    #[must_use]
    pub fn statistics(&self) -> Option<Secret<String>> {
        let server = self.accounting.redis.as_ref().or(self.statistics_of_file.as_ref());
        server.map(Database::coturn_url)
    }

    /// Files of each certificate.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateFiles> {
        let both = |entry: &crate::file::CertificateEntry| {
            let (chain, key) =
                (self.beside(entry.chain.as_ref()?), self.beside(entry.key.as_ref()?));
            let password = entry.password_file.as_ref().map(|path| self.beside(path));
            Some(CertificateFiles { chain, key, password })
        };
        self.tls.certificates.iter().filter_map(both).collect()
    }

    /// True if there are certificates, or one is ordered.
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        !self.tls.certificates.is_empty() || !self.acme.names.is_empty()
    }

    /// Authorities that sign the certificate of the ACME authority's web server; `None`: the ones
    /// that browsers trust.
    #[must_use]
    pub fn acme_authorities(&self) -> Option<PathBuf> {
        self.acme.authorities.as_deref().map(|path| self.beside(path))
    }

    /// The file of the issuer's public keys.
    #[must_use]
    pub fn issuer_keys(&self) -> Option<PathBuf> {
        self.signed_tokens.keys_file.as_deref().map(|path| self.beside(path))
    }

    /// Authorities that sign the certificate of `signed_tokens.keys_url`; `None`: the ones that
    /// browsers trust.
    #[must_use]
    pub fn issuer_authorities(&self) -> Option<PathBuf> {
        self.signed_tokens.authorities.as_deref().map(|path| self.beside(path))
    }

    /// Authorities that sign the certificate of the authorizer; `None`: the ones that browsers
    /// trust.
    #[must_use]
    pub fn authorizer_authorities(&self) -> Option<PathBuf> {
        self.authorizer.authorities.as_deref().map(|path| self.beside(path))
    }

    /// The file of the records of sessions, if they are kept.
    #[must_use]
    pub fn accounting_file(&self) -> Option<PathBuf> {
        self.accounting.file.as_ref().map(|path| self.data.directory.join(path))
    }

    /// Directory of the records that wait for the web service.
    #[must_use]
    pub fn webhook_spool(&self) -> PathBuf {
        self.data.directory.join("webhook")
    }

    /// File with the Authorization header for the web service that gets records.
    #[must_use]
    pub fn webhook_authorization(&self) -> Option<PathBuf> {
        self.accounting.webhook_authorization_file.as_deref().map(|path| self.beside(path))
    }

    /// Authorities that sign the certificate of the web service that gets records; `None`: the ones
    /// that browsers trust.
    #[must_use]
    pub fn webhook_authorities(&self) -> Option<PathBuf> {
        self.accounting.webhook_authorities.as_deref().map(|path| self.beside(path))
    }

    /// Authorities one of which has to have signed each client's certificate; `None`: clients need
    /// none.
    #[must_use]
    pub fn client_authorities(&self) -> Option<PathBuf> {
        self.tls.client_authorities.as_deref().map(|path| self.beside(path))
    }

    /// Directories that the confined server may read, besides the ones of its own files.
    #[must_use]
    pub fn readable_directories(&self) -> Vec<PathBuf> {
        self.confinement.readable.iter().map(|path| self.beside(&**path)).collect()
    }

    /// Returns whether DTLS is served once there is a certificate: not where TLS requires client
    /// certificates, which DTLS could not request.
    #[must_use]
    pub fn serves_dtls(&self) -> bool {
        self.dtls.enabled && self.tls.client_authorities.is_none()
    }

    /// Returns whether public addresses are to be found.
    #[must_use]
    pub fn is_external_auto(&self) -> bool {
        self.relay.enabled && self.relay.external.as_ref().is_some_and(External::is_auto)
    }

    /// Public addresses that were found, where they are to be.
    #[must_use]
    pub fn found_external(&self) -> &[RelayPair] {
        &self.found
    }

    /// Puts found public addresses in force.
    pub fn put_found_external(&mut self, found: Vec<RelayPair>) {
        self.found = found;
    }

    /// Returns whether users of the database may relay, so that a server needs it.
    #[must_use]
    pub fn needs_users(&self) -> bool {
        self.auth.users && self.relay.enabled
    }

    /// Tables of the database that are read beside its users; none without coturn's layout.
    #[must_use]
    pub fn database_tables(&self) -> Vec<DatabaseTable> {
        if !self.relay.enabled || !self.user_database().has_coturn_layout() {
            return Vec::new();
        }
        self.users.database_tables.clone()
    }

    /// Returns whether clients may log in with secrets or tokens, of the configuration or the
    /// database.
    #[must_use]
    pub fn takes_secrets_or_tokens(&self) -> bool {
        let of_database = |table| matches!(table, DatabaseTable::Secrets | DatabaseTable::Tokens);
        !self.secrets.is_empty()
            || !self.token_keys.is_empty()
            || self.database_tables().into_iter().any(of_database)
    }

    /// Returns whether `tls.listen` is set and not used, for want of a certificate.
    #[must_use]
    pub fn tls_listen_is_unused(&self) -> bool {
        let Tls { listen, certificates, .. } = &self.tls;
        certificates.is_empty()
            && self.acme.names.is_empty()
            && !listen.is_empty()
            && *listen != Tls::default().listen
    }

    /// The servers that clients are redirected to.
    #[must_use]
    pub fn alternate_servers(&self) -> AlternateServers {
        Redirects::of_all(&self.redirect).alternate_servers()
    }

    /// The servers that clients of all realms are redirected to.
    #[must_use]
    pub fn all_alternate_servers(&self) -> Vec<AlternateServers> {
        let realms = self.realms.iter().map(RealmEntry::alternate_servers);
        std::iter::once(self.alternate_servers()).chain(realms).collect()
    }

    /// Notes that a key has its value from this option of the command line.
    pub fn note_option(&mut self, key: &'static str, option: &'static str) {
        self.places.put(key, option);
    }

    /// Overrides `data.directory`, for the command line.
    pub fn set_data_directory(&mut self, directory: PathBuf) {
        self.file.data.directory = directory;
    }

    /// Overrides `control.socket`, for the command line.
    pub fn set_control_socket(&mut self, socket: PathBuf) {
        self.file.control.socket = Some(socket);
    }

    /// Listens at any free ports. A configuration file cannot do so, since no client would find the
    /// server.
    pub fn listen_at_any_port(&mut self) {
        self.file.listen.iter_mut().for_each(|endpoint| endpoint.0.set_port(0));
    }

    fn beside(&self, path: impl AsRef<Path>) -> PathBuf {
        self.directory.join(path)
    }
}
