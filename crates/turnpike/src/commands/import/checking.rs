//! `--check`: checks a translation. With `--output` the written file is checked. Otherwise errors
//! refer to the lines of coturn's file.

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

/// Checks the new configuration, if requested. `file` is coturn's file.
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
    // Secrets are read from files, so the check writes them to a private temporary directory.
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

/// Private temporary directory of this process, removed when dropped.
struct Own(PathBuf);

impl Own {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("turnpike-import-{}", std::process::id()));
        // Fails if another process has created the directory before.
        DirBuilder::new().mode(0o700).create(&path).or_fail("cannot make a temporary directory")?;
        Ok(Self(path))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // The system also cleans the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
