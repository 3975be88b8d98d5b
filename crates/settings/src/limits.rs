//! Every bound of this crate, with its reason. Bounds of single keys stand at the key, in
//! `file.rs`.

/// Shared secrets in bytes: 128 bits, below which a captured credential can be brute-forced.
pub(crate) const SECRET_BYTES_MIN: usize = 16;

/// Shared secrets in bytes: a larger file is the wrong one.
pub(crate) const SECRET_BYTES_MAX: usize = 1024;

/// The configuration file in bytes: a larger file is the wrong one.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// A Unix socket's path in bytes: `sun_path` holds 108 with the final zero.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Entries of one list in the file: each client packet may meet them (rules, secrets), or each
/// costs a socket per worker (addresses).
pub(crate) const LIST_ENTRIES_MAX: usize = 4096;

/// Shared secrets: each is tried in turn for every new credential.
pub(crate) const SECRETS_MAX: usize = 8;

/// Realms beside the server's own: each holds its rules in memory, some kilobytes.
pub(crate) const REALMS_MAX: usize = 4096;

/// Servers of a list that clients are redirected to: each is asked every five seconds whether it
/// answers.
pub(crate) const ALTERNATES_MAX: usize = 64;

/// Listeners for HTTP: an address of each family and a socket, for some networks of an operator's
/// own.
pub(crate) const HTTP_LISTENERS_MAX: usize = 16;

/// Network interfaces of the kernel path: a program is attached to each, and each can be sent out
/// by; hosts that relay have a few.
pub(crate) const INTERFACES_MAX: usize = 64;

/// A network interface's name in bytes: `IFNAMSIZ` is 16 with the final zero.
pub(crate) const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Names of a certificate that is ordered: an authority's limit on names is 100, and each takes a
/// connection of its own.
pub(crate) const ACME_NAMES_MAX: usize = 32;
