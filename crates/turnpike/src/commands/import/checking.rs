//! `--check`: the check of a translation, with `--output` of the written file, without it at the
//! lines of coturn's.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coturn_config::{Purpose, Source, import};

use crate::cli::{self, PathOptions};
use crate::commands::check::{self, Checked};
use crate::coturn::{ThisHost, line_of};
use crate::failure::{OrFail as _, Result};
use crate::new_files::{self, NewFile};
use crate::paths;

/// Checks the new configuration, if that is wanted. `file` is the one of coturn.
pub(super) fn checked(
    paths: &PathOptions,
    args: &cli::ImportCoturn,
    (source, file): (Source<'_>, &Path),
) -> Result<ExitCode> {
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let check = cli::Check { file: args.output.clone(), host: false, output: args.format };
    if args.output.is_some() {
        return check::run(paths, &check);
    }
    // Secrets are read from files: they are in a directory of this process alone, and gone with it.
    let directory = Own::new()?;
    let imported = import(source, Purpose::Migration, &directory.0, &ThisHost);
    let own = directory.0.join("turnpike.toml");
    let secrets = imported.secrets.iter();
    let mut files: Vec<NewFile> =
        secrets.map(|(path, secret)| NewFile::secret(Path::new(path), secret)).collect();
    files.push(NewFile::configuration(&own, imported.toml.clone()));
    new_files::write(&files)?;
    let name = format!("the translation of {}", file.display());
    let settings = paths::complete(paths, Some(own));
    let checked = Checked { name, settings, file: Some(file.to_owned()) };
    let whole = settings::Place::File { path: file.to_owned(), line: None };
    let place = |key: &str| line_of(file, &imported, key).or_else(|| Some(whole.clone()));
    check::report(checked, &check, &place)
}

/// A directory for this process alone, removed with the value.
struct Own(PathBuf);

impl Own {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("turnpike-import-{}", std::process::id()));
        // Fails if somebody has made it before.
        DirBuilder::new().mode(0o700).create(&path).or_fail("cannot make a temporary directory")?;
        Ok(Self(path))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It is in the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
