//! Confinement of files, by landlock: no file can be executed, and the readable and writable files
//! are determined at the start.

use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atomic_file::Access;
use control::ConfinementLayer;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use settings::Database;

use crate::failure::{OrFail as _, Result};
use crate::logging::LogTarget;
use crate::paths::{self, Configuration};
use crate::process::PidFile;

/// Newest landlock interface whose rights are known here. An older kernel confines less.
const NEWEST: ABI = ABI::V6;

/// Readable files in addition to the server's own files: devices without hardware, and facts about
/// the host.
const HOST: [&str; 6] =
    ["/dev/urandom", "/dev/random", "/dev/null", "/proc/self", "/proc/sys", "/sys"];

const NOT_OFFERED: &str = "the kernel does not offer it (Linux 5.13 and `landlock` among its security \
                           modules are needed), or the container forbids it";

/// File that SQLite opens for writing if a standard stream is closed.
const NULL: &str = "/dev/null";

/// Files with which the C library resolves the name of a certificate authority or a database. A
/// file that is replaced later is a different inode and becomes unreadable. systemd-resolved
/// replaces its file, so its directory is listed.
const RESOLVER: [&str; 7] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
];

/// Directories that the kernel path writes to: the settings of its look-ups, and the maps that
/// outlive a process.
const KERNEL_PATH: [&str; 3] =
    ["/proc/sys/net/ipv4/conf/lo", "/proc/sys/net/ipv6/conf/lo", "/sys/fs/bpf"];

/// Files and directories that a configuration uses.
#[derive(Debug)]
pub(super) struct Named {
    /// Data directory, which is written to.
    data: PathBuf,
    /// Directories of the control socket and of sockets for monitoring.
    sockets: Vec<PathBuf>,
    /// User database, if it is a file. The file is opened again without capabilities.
    database: Option<PathBuf>,
    /// Directory of the user database, which is written to.
    users: Option<PathBuf>,
    /// Directory of the log file, which is appended to.
    log: Option<PathBuf>,
    /// File of the process id. Its directory is added if the file may be removed from there.
    pid_file: Option<Arc<PidFile>>,
    /// Directories of session records, which are written to.
    records: Vec<PathBuf>,
    /// Files that are read at the start and at each reload.
    read: Vec<PathBuf>,
    /// Certificate files. Programs that renew certificates may recreate the directory.
    certificates: Vec<PathBuf>,
    /// Directories that the operator has listed as readable.
    readable: Vec<PathBuf>,
    /// True if the server resolves host names.
    resolves: bool,
}

impl Named {
    /// Collects the files of a configuration. Creates the directories that are written to, because
    /// only existing directories can be permitted.
    ///
    /// # Errors
    /// A directory cannot be created.
    pub(super) fn of(configuration: &Configuration) -> Result<Self> {
        let settings = &configuration.settings;
        let data = settings.data.directory.clone();
        let mut sockets = vec![directory(&settings.control_socket())];
        sockets.extend(settings.http_sockets().map(directory));
        let database = settings.user_database().file().map(Path::to_owned);
        let users = database.as_deref().map(directory);
        let spool = settings.accounting.webhook.is_some().then(|| settings.webhook_spool());
        let files = settings.accounting_file().map(|file| directory(&file));
        let records: Vec<_> = files.into_iter().chain(spool).collect();
        for directory in sockets.iter().chain(&records) {
            make(directory)?;
        }
        let own = iter::once(&data).chain(&users).try_for_each(|directory| make(directory));
        let (data, database, users) = match own {
            Ok(()) => (data, database, users),
            // Without users no file must be written there.
            Err(_) if !settings.needs_users() => (sockets[0].clone(), None, None),
            Err(failure) => return Err(failure),
        };
        let file = configuration.file.as_deref();
        let mut read = settings::named_files(file, &paths::environment());
        read.extend(configuration.coturn.clone());
        let certificates = settings.certificates().into_iter();
        let certificates = certificates.flat_map(|one| [one.chain, one.key].into_iter()).collect();
        let mut readable = settings.readable_directories();
        let mut resolves = settings.acme_challenge.is_some()
            || settings.authorizer.url.is_some()
            || settings.signed_tokens.keys_url.is_some()
            || settings.accounting.webhook.is_some()
            || !settings.relay.external_stun.is_empty();
        let of_users = match settings.user_database() {
            Database::Server(url) => Some(url),
            Database::Sqlite(_) | Database::CoturnSqlite(_) => None,
        };
        for url in of_users.into_iter().chain(settings.statistics()) {
            resolves = true;
            let files = user_db::authority_files(url.expose());
            let real = files.iter().filter_map(|file| fs::canonicalize(file).ok());
            readable.extend(files.iter().cloned().chain(real).map(|file| directory(&file)));
        }
        let log = match &configuration.process.log {
            LogTarget::File(file) => Some(directory(file.path())),
            LogTarget::Stderr | LogTarget::Stdout | LogTarget::Syslog { .. } => None,
        };
        let pid_file = configuration.process.pid_file.clone();
        Ok(Self {
            data,
            sockets,
            database,
            users,
            records,
            log,
            pid_file,
            read,
            certificates,
            readable,
            resolves,
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let own = iter::once(&self.data)
            .chain(&self.sockets)
            .chain(&self.users)
            .chain(&self.records)
            .chain(&self.database);
        own.chain(&self.read).map(PathBuf::as_path)
    }

    /// Returns the directories to read. For each file, these directories are the parent of the
    /// named path, and the parent of the path after resolving symbolic links. A rule about a
    /// directory also covers renewed files, which are new inodes.
    fn directories(&self) -> Vec<PathBuf> {
        let mut all = self.readable.clone();
        for file in &self.read {
            all.push(directory(file));
            let real = fs::canonicalize(file).ok();
            all.extend(real.and_then(|real| real.parent().map(Path::to_owned)));
        }
        for file in &self.certificates {
            let named = std::path::absolute(directory(file)).ok();
            let real = fs::canonicalize(file).ok().map(|real| directory(&real));
            all.extend([named, real].into_iter().flatten().filter_map(|one| above(&one)));
        }
        all.sort();
        all.dedup();
        all
    }
}

/// Creates a directory of the server, accessible only to the server's user.
fn make(directory: &Path) -> Result<()> {
    let made = atomic_file::make_missing_directory(directory, Access::PRIVATE_DIRECTORY);
    made.or_fail("cannot make a directory of the server's own").map_err(|failure| {
        failure.hint(format!(
            "{}: name a directory that belongs to you with --data, --socket, users.database or http.listen",
            directory.display()
        ))
    })
}

/// Returns the directory part of a path.
fn directory(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new(".")).to_owned()
}

/// Returns the parent of a certificate's directory, such as `/etc/letsencrypt/live`. A rule applies
/// to the directory that exists at the start, and `certbot delete` and `certonly` create a new
/// directory. Returns `None` if the parent is a directory of the system or a home directory, which
/// contains more than certificates.
fn above(directory: &Path) -> Option<PathBuf> {
    let above = directory.parent()?;
    let is_shared = |parent| SHARED.iter().any(|shared| parent == Path::new(shared));
    above.parent().is_some_and(|parent| !is_shared(parent)).then(|| above.to_owned())
}

/// Directories whose subdirectories belong to the system or to a user.
const SHARED: [&str; 5] = ["/", "/home", "/usr", "/var", "/run"];

/// Permitted files of a confined process.
#[derive(Debug)]
pub(super) struct Files {
    /// Readable paths, including everything below them. No path is a symbolic link. A path that
    /// later leads to another file is not readable.
    readable: Vec<(PathBuf, Inode)>,
    partly: bool,
    _held: FilesGuard,
}

/// Identity of a file, valid while a rule about the file is held.
#[derive(Debug, PartialEq, Eq)]
struct Inode(u64, u64);

impl Inode {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }
}

impl Files {
    pub(super) fn layer(&self) -> ConfinementLayer {
        let why = if self.partly { "in part: the kernel is older than Linux 6.12" } else { "" };
        ConfinementLayer { on: true, why: why.to_owned() }
    }

    /// Returns true if a file may be read, after resolving symbolic links. A missing file is judged
    /// by its directory. If the directory is missing as well, returns true.
    pub(super) fn allows(&self, file: &Path) -> bool {
        let parent = || fs::canonicalize(file.parent()?).ok();
        let real = fs::canonicalize(file).ok().or_else(parent);
        let is_readable = |real: &Path| {
            let mut above = self.readable.iter().filter(|(path, _)| real.starts_with(path));
            above.any(|(path, before)| Inode::of(path).as_ref() == Some(before))
        };
        real.is_none_or(|real| is_readable(&real))
    }
}

/// Open files of rules, held while the process runs. A rule applies to an inode, and the kernel
/// creates new inodes for files in /proc after dropping unused inodes.
#[derive(Debug)]
pub(crate) struct FilesGuard(#[expect(dead_code, reason = "held")] Vec<PathFd>);

/// Denies the calling thread and its children every file except this program, which a panic needs
/// to name functions.
///
/// # Errors
/// The kernel does not support landlock, or the container forbids landlock.
pub(super) fn confine_to_none() -> Result<FilesGuard, String> {
    let own = std::env::current_exe().into_iter();
    let read = own.map(|path| (path, AccessFs::ReadFile.into())).collect();
    let (held, status) = restrict(read).map_err(|error| error.to_string())?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(NOT_OFFERED.to_owned());
    }
    Ok(FilesGuard(held))
}

/// Confines the calling thread and its children to the named files.
///
/// # Errors
/// The kernel does not support landlock, or the container forbids landlock.
pub(super) fn confine(named: &Named, kernel_path: bool) -> Result<Files, String> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile;
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = Vec::new();
    let own = std::env::current_exe().into_iter(); // for the names of functions in a panic
    rules.extend(HOST.iter().map(PathBuf::from).chain(own).map(|path| (path, read)));
    if named.resolves {
        rules.extend(RESOLVER.iter().map(|path| (path.into(), read)));
    }
    rules.push((NULL.into(), AccessFs::ReadFile | AccessFs::WriteFile));
    rules.extend(named.directories().into_iter().map(|path| (path, read)));
    rules.push((named.data.clone(), write));
    let written = named.users.iter().chain(&named.records);
    rules.extend(written.map(|directory| (directory.clone(), write)));
    let append = AccessFs::WriteFile | AccessFs::MakeReg;
    rules.extend(named.log.iter().map(|directory| (directory.clone(), append)));
    if let Some(pid_file) = &named.pid_file {
        rules.push((pid_file.path().to_owned(), AccessFs::WriteFile | AccessFs::Truncate));
        let own = pid_file.own_directory();
        rules.extend(own.map(|directory| (directory.to_owned(), AccessFs::RemoveFile.into())));
    }
    // Sockets are bound under a temporary name and renamed. They are removed when the server exits.
    let bind = AccessFs::ReadDir | AccessFs::MakeSock | AccessFs::RemoveFile;
    rules.extend(named.sockets.iter().map(|directory| (directory.clone(), bind)));
    if kernel_path {
        let more = write | AccessFs::MakeDir | AccessFs::RemoveDir;
        rules.extend(KERNEL_PATH.iter().map(|path| (path.into(), more)));
    }
    let mut readable: Vec<PathBuf> = rules
        .iter()
        .filter(|(_, access)| access.contains(AccessFs::ReadFile))
        .filter_map(|(path, _)| fs::canonicalize(path).ok())
        .collect();
    readable.dedup();
    let inode = |path: PathBuf| Inode::of(&path).map(|inode| (path, inode));
    let readable = readable.into_iter().filter_map(inode).collect();
    let (held, status) = restrict(rules).map_err(|error| error.to_string())?;
    let partly = match status.ruleset {
        RulesetStatus::FullyEnforced => false,
        RulesetStatus::PartiallyEnforced => true,
        RulesetStatus::NotEnforced => {
            return Err(NOT_OFFERED.to_owned());
        }
    };
    Ok(Files { readable, partly, _held: FilesGuard(held) })
}

fn restrict(
    rules: Vec<(PathBuf, BitFlags<AccessFs>)>,
) -> Result<(Vec<PathFd>, RestrictionStatus), landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let mut held = Vec::new();
    for (path, access) in rules {
        // A missing file cannot be opened later, either.
        let Ok(open) = PathFd::new(&path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        ruleset = ruleset.add_rule(PathBeneath::new(&open, access))?;
        held.push(open);
    }
    let status = ruleset.restrict_self()?;
    Ok((held, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_above_certificates_is_readable_where_it_is_theirs() {
        let above = |directory: &str| above(Path::new(directory));
        assert_eq!(above("/etc/letsencrypt/live/a.example"), Some("/etc/letsencrypt/live".into()));
        for shared in ["/", "/etc", "/etc/turnpike", "/home/bob/certs", "/var/lib/acme", "/opt/x"] {
            assert_eq!(above(shared), None, "{shared}");
        }
    }
}
