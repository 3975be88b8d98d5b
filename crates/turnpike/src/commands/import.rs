//! `turnpike import coturn`: translates a configuration of coturn, and reports on each line.

mod checking;
mod database;
mod losses;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use coturn_config::{
    ConfigurationFile, Fate, Import, Purpose, Source, USUAL_FILES, User, Variables, command_line,
    import, import_with_rows,
};
use serde::Serialize;
use user_db::StoreError;

use crate::cli::{self, PathOptions};
use crate::coturn::{ThisHost, new_user, read};
use crate::failure::{Failure, Result};
use crate::new_files::{self, CONTROL_OF_SERVICE, NewFile};
use crate::output;
use crate::{escape, paths, users};

/// Directory of secrets if no files are written.
const USUAL_DIRECTORY: &str = "/etc/turnpike";

/// Outcome of an import, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    files: Vec<PathBuf>,
    configuration: String,
    lines: Vec<Line>,
    /// Rows of coturn's database, with `--users`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    notes: Vec<String>,
    users: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    line: usize,
    text: String,
    fate: &'static str,
    /// Keys that the line sets, or the reason why it is not used.
    why: String,
}

/// Rows of coturn's database with equal treatment.
#[derive(Debug, Serialize)]
struct Row {
    table: &'static str,
    /// Row without secrets, or the common realm of several rows.
    row: String,
    count: usize,
    fate: &'static str,
    /// Keys that the row sets, or the reason why it is not used.
    why: String,
}

pub(crate) fn run(
    paths: &PathOptions,
    cli::Import::Coturn(args): &cli::Import,
) -> Result<ExitCode> {
    let found = found(&args.file)?;
    let directory = args.output.as_deref().and_then(Path::parent).map_or_else(
        || Path::new(USUAL_DIRECTORY).to_owned(),
        |parent| std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned()),
    );
    // The report numbers the lines of this file.
    let configuration_file = found.files.last().unwrap_or(&args.file).clone();
    let words = [found.words.as_slice(), &args.arguments].concat();
    let source = Source { file: &found.text, arguments: &words };
    let mut imported = import(source, Purpose::Migration, &directory, &ThisHost);
    let mut theirs = Vec::new();
    if let Some(url) = &args.users {
        let copied = database::read(url, &imported)?;
        imported = import_with_rows(source, &copied.rows, &directory, &ThisHost);
        imported.rows.extend(copied.left);
        theirs = copied.users;
    }
    let (added, refused) = match &args.output {
        Some(file) => {
            let (mut lines, refused) = write(paths, file, &imported)?;
            if !theirs.is_empty() {
                lines.extend(database::copy_users(paths, file, &theirs)?);
            }
            (lines, refused)
        }
        None => (Vec::new(), 0),
    };
    let losses = losses::refuse(&configuration_file, &imported, refused);
    let lines: Vec<Line> = imported.lines.iter().map(line).collect();
    let rows: Vec<Row> = imported.rows.iter().map(row).collect();
    if args.format.json {
        let users = imported.users.iter().map(|user| user.name.clone()).collect();
        let (configuration, notes) = (imported.toml, imported.notes);
        output::print_json(&Outcome {
            files: found.files,
            configuration,
            lines,
            rows,
            notes,
            users,
        })?;
        let checked = checking::checked(paths, args, (source, &configuration_file))?;
        return losses.map(|()| checked);
    }
    if found.files.len() > 1 {
        let files: Vec<String> = found.files.iter().map(|one| one.display().to_string()).collect();
        eprintln!("read: {}", escape::line(&files.join(", and before it ")));
    }
    eprintln!("{}", escape::lines(&account(&lines)));
    if !rows.is_empty() {
        eprintln!("{}", escape::lines(&account_of_rows(&rows)));
    }
    if !imported.notes.is_empty() {
        eprintln!("{}", escape::lines(&differences(&imported.notes)));
    }
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
    let checked = checking::checked(paths, args, (source, &configuration_file))?;
    losses.map(|()| checked)
}

/// Text of a configuration, and options with precedence over the text.
struct CoturnInput {
    text: Vec<u8>,
    words: Vec<String>,
    /// Files that were read, the named file first.
    files: Vec<PathBuf>,
}

/// Reads the named file. If the file contains a command line of coturn, reads the configuration
/// that the command line names.
fn found(file: &Path) -> Result<CoturnInput> {
    let text = read(file)?;
    let mut files = vec![file.to_owned()];
    let known = variables(file);
    let Some(line) = command_line(&String::from_utf8_lossy(&text), &known) else {
        return Ok(CoturnInput { text, words: Vec::new(), files });
    };
    let line = line.map_err(|reason| Failure::usage(anyhow!("{}: {reason}", file.display())))?;
    let configuration = match &line.configuration {
        ConfigurationFile::None => None,
        ConfigurationFile::Usual => {
            USUAL_FILES.iter().map(PathBuf::from).find(|usual| usual.exists())
        }
        // The path is relative to the file that contains the command line, as in a Compose file.
        ConfigurationFile::Named(name) => {
            Some(file.parent().map_or_else(|| name.into(), |directory| directory.join(name)))
        }
    };
    let text = configuration.as_deref().map(read).transpose()?.unwrap_or_default();
    files.extend(configuration);
    Ok(CoturnInput { text, words: line.words, files })
}

/// Returns the variables of this process, and those of the file `.env` next to `file`, which
/// Compose reads.
fn variables(file: &Path) -> Variables {
    let beside = file.parent().map(|directory| directory.join(".env"));
    let text = beside.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let unquoted = |value: &str| value.trim().trim_matches(['"', '\'']).to_owned();
    let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), unquoted(value)));
    // Variables of the process take precedence, as in Compose.
    pairs.chain(std::env::vars()).collect()
}

/// Writes the files and adds the users. Existing files are not replaced. Returns lines for the
/// operator, and the number of users that were not added.
fn write(paths: &PathOptions, file: &Path, imported: &Import) -> Result<(Vec<String>, usize)> {
    let mut files: Vec<NewFile> = imported
        .secrets
        .iter()
        .map(|(path, secret)| NewFile::secret(Path::new(path), secret))
        .collect();
    let of_service = if paths::is_of_service(file) { CONTROL_OF_SERVICE } else { "" };
    files.push(NewFile::configuration(file, [&imported.toml, of_service].concat()));
    new_files::write(&files)?;
    let mut lines: Vec<String> =
        imported.secrets.iter().map(|(path, _)| format!("secret: {path}")).collect();
    if imported.users.is_empty() {
        return Ok((lines, 0));
    }
    let (added, refused) = add_users(paths, file, &imported.users)?;
    lines.extend(added);
    Ok((lines, refused))
}

/// Adds users to the database of the new configuration. Returns lines for the operator, and the
/// number of users that were not added.
fn add_users(paths: &PathOptions, file: &Path, users: &[User]) -> Result<(Vec<String>, usize)> {
    let settings =
        paths::complete_without_certificates(paths, file.to_owned()).map_err(|errors| {
            Failure::failed(anyhow!("the new configuration is not valid:\n{errors}"))
                .hint("correct it, and add the users with `turnpike user add`")
        })?;
    let database = settings.database_of_imported();
    let mut store = users::editor(&database).map_err(|error| {
        Failure::failed(error)
            .hint("name the server's data directory with --data; the configuration is written")
    })?;
    let (mut lines, mut refused) = (Vec::new(), 0);
    for user in users {
        let User { name, .. } = user;
        let added = new_user(&settings.realm, user).and_then(|user| store.add(&user));
        lines.push(match added {
            Ok(()) => format!("user {name}: added in realm {}", &*settings.realm),
            Err(StoreError::Exists { .. }) => format!("user {name}: exists, and stays as it is"),
            Err(error) => {
                refused += 1;
                format!("user {name}: NOT added: {error}")
            }
        });
    }
    lines.push(format!("users are in {database}"));
    Ok((lines, refused))
}

/// Describes the differences from coturn.
fn differences(notes: &[String]) -> String {
    format!("differs from coturn here:\n{}", output::list(notes, output::columns()))
}

fn line(line: &coturn_config::Line) -> Line {
    let (fate, why) = in_words(&line.fate);
    Line { line: line.number, text: line.text.clone(), fate, why }
}

fn row(row: &coturn_config::RowLine) -> Row {
    let (fate, why) = in_words(&row.fate);
    Row { table: row.table, row: row.text.clone(), count: row.count, fate, why }
}

fn in_words(fate: &Fate) -> (&'static str, String) {
    match fate {
        Fate::Taken(keys) => ("taken", keys.clone()),
        Fate::SameHere(reason) => ("same here", reason.clone()),
        Fate::Unsupported(reason) => ("not taken", reason.clone()),
        Fate::Unknown => ("unknown", "coturn has no such option, and ignores it".to_owned()),
        Fate::Unreadable(reason) => ("unreadable", reason.clone()),
    }
}

/// Formats a line for each group of rows, and the totals.
fn account_of_rows(rows: &[Row]) -> String {
    let mut text = String::from("rows of coturn's database, besides users\n");
    let mut sums = Vec::new();
    for fate in ["taken", "same here", "unreadable", "not taken"] {
        let of_fate: Vec<&Row> = rows.iter().filter(|row| row.fate == fate).collect();
        if of_fate.is_empty() {
            continue;
        }
        text.push_str(&format!("{fate}:\n"));
        for Row { table, row, count, why, .. } in &of_fate {
            let many = if *count > 1 { &format!(" ({count} rows)") } else { "" };
            text.push_str(&format!("  {table}: {row}{many}\n"));
            text.push_str(&output::wrapped(&format!("-> {why}"), 8, output::columns()));
            text.push('\n');
        }
        sums.push(format!("{} {fate}", of_fate.iter().map(|row| row.count).sum::<usize>()));
    }
    let all: usize = rows.iter().map(|row| row.count).sum();
    text.push_str(&format!("{all} rows: {}", sums.join(", ")));
    text
}

/// Formats a line for each option, and the totals.
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
