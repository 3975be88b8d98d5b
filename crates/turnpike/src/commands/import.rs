//! `turnpike import coturn`: a configuration of coturn, translated and accounted for line by line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use coturn_config::{
    ConfigurationFile, Fate, Import, USUAL_FILES, User, UserKey, command_line, import,
};
use serde::Serialize;
use turn_types::Secret;
use user_db::{NewUser, Page, Position, StoreError, UserQuery};

use crate::cli::{self, PathOptions};
use crate::coturn::read;
use crate::failure::{Failure, Result};
use crate::new_files::{self, NewFile};
use crate::output;
use crate::{escape, paths, users};

/// Directory of secrets when nothing is written.
const USUAL_DIRECTORY: &str = "/etc/turnpike";

/// The outcome, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    files: Vec<PathBuf>,
    configuration: String,
    lines: Vec<Line>,
    notes: Vec<String>,
    users: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    line: usize,
    text: String,
    fate: &'static str,
    /// Keys, or the reason.
    why: String,
}

pub(crate) fn run(
    paths: &PathOptions,
    cli::Import::Coturn(args): &cli::Import,
) -> Result<ExitCode> {
    let source = source(&args.file)?;
    let directory = args.output.as_deref().and_then(Path::parent).map_or_else(
        || Path::new(USUAL_DIRECTORY).to_owned(),
        |parent| std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned()),
    );
    let words = [source.words.as_slice(), &args.arguments].concat();
    let imported = import(&source.text, &words, &directory);
    let theirs = match &args.users {
        Some(url) => users_of(url, &imported)?,
        None => Vec::new(),
    };
    let added = match &args.output {
        Some(file) => {
            let mut lines = write(paths, file, &imported)?;
            if !theirs.is_empty() {
                lines.push(copy_users(paths, file, &theirs)?);
            }
            lines
        }
        None => Vec::new(),
    };
    let lines: Vec<Line> = imported.lines.iter().map(line).collect();
    if args.format.json {
        let users = imported.users.iter().map(|user| user.name.clone()).collect();
        let (configuration, notes) = (imported.toml, imported.notes);
        output::print_json(&Outcome { files: source.files, configuration, lines, notes, users })?;
        return checked(paths, args);
    }
    if source.files.len() > 1 {
        let files: Vec<String> = source.files.iter().map(|one| one.display().to_string()).collect();
        eprintln!("read: {}", escape::line(&files.join(", and before it ")));
    }
    eprintln!("{}", escape::lines(&account(&lines)));
    for line in added {
        eprintln!("{}", escape::line(&line));
    }
    match &args.output {
        None => output::print(imported.toml.trim_end())?,
        Some(file) if args.check => output::print(&format!("{} is written", file.display()))?,
        Some(file) => output::print(&format!(
            "{} is written; next: turnpike check {}",
            file.display(),
            file.display()
        ))?,
    }
    checked(paths, args)
}

/// Checks the new configuration, if that is wanted.
fn checked(paths: &PathOptions, args: &cli::ImportCoturn) -> Result<ExitCode> {
    let Some(file) = args.output.clone().filter(|_| args.check) else {
        return Ok(ExitCode::SUCCESS);
    };
    let check = cli::Check { file: Some(file), host: false, output: args.format };
    super::check::run(paths, &check)
}

/// The text of a configuration, and options that coturn reads behind it.
struct Source {
    text: String,
    words: Vec<String>,
    /// The files that were read, the named one first.
    files: Vec<PathBuf>,
}

/// Reads the named file and, if it has a command line, the configuration that this names.
fn source(file: &Path) -> Result<Source> {
    let text = read(file)?;
    let mut files = vec![file.to_owned()];
    let Some(line) = command_line(&text) else {
        return Ok(Source { text, words: Vec::new(), files });
    };
    let line = line.map_err(|reason| Failure::usage(anyhow!("{}: {reason}", file.display())))?;
    let configuration = match &line.configuration {
        ConfigurationFile::None => None,
        ConfigurationFile::Usual => {
            USUAL_FILES.iter().map(PathBuf::from).find(|usual| usual.exists())
        }
        // Relative to the file that names it, as in a Compose file.
        ConfigurationFile::Named(name) => {
            Some(file.parent().map_or_else(|| name.into(), |directory| directory.join(name)))
        }
    };
    let text = configuration.as_deref().map(read).transpose()?.unwrap_or_default();
    files.extend(configuration);
    Ok(Source { text, words: line.words, files })
}

/// Writes the files and adds the users. Returns lines for the operator. Nothing that exists is replaced.
fn write(paths: &PathOptions, file: &Path, imported: &Import) -> Result<Vec<String>> {
    let mut files: Vec<NewFile> = imported
        .secrets
        .iter()
        .map(|(path, secret)| NewFile::secret(Path::new(path), secret))
        .collect();
    files.push(NewFile::configuration(file, imported.toml.clone()));
    new_files::write(&files)?;
    let mut lines: Vec<String> =
        imported.secrets.iter().map(|(path, _)| format!("secret: {path}")).collect();
    if !imported.users.is_empty() {
        lines.extend(add_users(paths, file, &imported.users)?);
    }
    Ok(lines)
}

/// Users that are read at once.
const PAGE: u32 = 1000;

/// Users of coturn's database, of all realms, with their keys.
fn users_of(url: &str, imported: &Import) -> Result<Vec<NewUser>> {
    if imported.toml.contains("\ndatabase_file = ") {
        let both = anyhow!(
            "the configuration goes on with coturn's database, and --users copies users out of it"
        );
        return Err(Failure::usage(both).hint(
            "leave --users out, or put # in front of the database's option in a copy of the file",
        ));
    }
    let mut read = String::new();
    if url == "-" {
        io::stdin().read_line(&mut read).map_err(Failure::failed)?;
    }
    let url = if url == "-" { read.trim() } else { url };
    let mut store = user_db::server_editor(url)?;
    let (mut users, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&Page { realm: None, after: after.take(), limit: PAGE })?;
        let Some(last) = page.last() else { return Ok(users) };
        after = Some(Position { realm: last.realm.clone(), name: last.name.clone() });
        for user in page {
            // One that was deleted meanwhile is left out.
            if let Some(record) =
                store.user(&user.realm, &UserQuery::Name(user.name.as_str().into()))?
            {
                users.push(NewUser::with_md5(&user.realm, &user.name, record.keys.md5, None)?);
            }
        }
    }
}

/// Copies users into the database of the new configuration. Users that exist stay as they are.
fn copy_users(paths: &PathOptions, file: &Path, users: &[NewUser]) -> Result<String> {
    let settings = paths::complete(paths, Some(file.to_owned())).map_err(|errors| {
        Failure::failed(anyhow!("the new configuration is not valid:\n{errors}"))
    })?;
    let mut store = users::editor(&settings.user_database())?;
    let (mut added, mut known) = (0, 0);
    for user in users {
        match store.add(user) {
            Ok(()) => added += 1,
            Err(StoreError::Exists { .. }) => known += 1,
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    Ok(format!("users of coturn's database: {added} added, {known} exist and stay as they are"))
}

/// Adds users to the database of the new configuration.
fn add_users(paths: &PathOptions, file: &Path, users: &[User]) -> Result<Vec<String>> {
    let settings = paths::complete(paths, Some(file.to_owned())).map_err(|errors| {
        Failure::failed(anyhow!("the new configuration is not valid:\n{errors}"))
            .hint("correct it, and add the users with `turnpike user add`")
    })?;
    let database = settings.user_database();
    let mut store = users::editor(&database).map_err(|error| {
        Failure::failed(error)
            .hint("name the server's data directory with --data; the configuration is written")
    })?;
    let mut lines = Vec::new();
    for User { name, key } in users {
        let user = match key {
            UserKey::Password(password) => {
                NewUser::new(&settings.realm, name, &Secret::new(password.clone()), None)
            }
            UserKey::Md5(key) => NewUser::with_md5(&settings.realm, name, Secret::new(*key), None),
        };
        let added = user.and_then(|user| store.add(&user));
        lines.push(match added {
            Ok(()) => format!("user {name}: added in realm {}", &*settings.realm),
            Err(StoreError::Exists { .. }) => format!("user {name}: exists, and stays as it is"),
            Err(error) => format!("user {name}: NOT added: {error}"),
        });
    }
    lines.push(format!("users are in {database}"));
    Ok(lines)
}

fn line(line: &coturn_config::Line) -> Line {
    let (fate, why) = match &line.fate {
        Fate::Taken(keys) => ("taken", keys.clone()),
        Fate::SameHere(reason) => ("same here", reason.clone()),
        Fate::Unsupported(reason) => ("not taken", reason.clone()),
        Fate::Unknown => ("unknown", "coturn has no such option, and ignores it".to_owned()),
        Fate::Unreadable(reason) => ("unreadable", reason.clone()),
    };
    Line { line: line.number, text: line.text.clone(), fate, why }
}

/// A line for each option, and a sum.
fn account(lines: &[Line]) -> String {
    let count = |fate: &str| lines.iter().filter(|line| line.fate == fate).count();
    let mut text = String::new();
    for fate in ["taken", "same here", "unknown", "unreadable", "not taken"] {
        let mut of_fate = lines.iter().filter(|line| line.fate == fate).peekable();
        if of_fate.peek().is_none() {
            continue;
        }
        text.push_str(&format!("{fate}:\n"));
        for Line { line, text: written, why, .. } in of_fate {
            text.push_str(&format!("  {line:>4}  {written}\n"));
            text.push_str(&output::wrapped(&format!("-> {why}"), 8, output::columns()));
            text.push('\n');
        }
    }
    let sums: Vec<String> = ["taken", "same here", "not taken", "unknown", "unreadable"]
        .into_iter()
        .filter(|fate| count(fate) > 0)
        .map(|fate| format!("{} {fate}", count(fate)))
        .collect();
    text.push_str(&format!("{} options: {}", lines.len(), sums.join(", ")));
    text
}
