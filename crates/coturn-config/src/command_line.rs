//! The command line of coturn in a unit of systemd, a Compose file, a Dockerfile, a `docker run`
//! command or a script.

mod compose;
mod dockerfile;
mod run;
mod script;
mod unit;
mod words;

use std::collections::BTreeMap;

use crate::syntax;

/// Options of coturn, found in another program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The words behind the program's name.
    pub words: Vec<String>,
    /// The file that coturn reads before them.
    pub configuration: ConfigurationFile,
    /// True in a container: its files are not this host's.
    pub is_container: bool,
}

/// Configuration file of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigurationFile {
    /// `-n`, or a container without one.
    None,
    /// The first that coturn finds: [`USUAL_FILES`].
    #[default]
    Usual,
    /// `-c`: this one. Of a container the host's file that is mounted there.
    Named(String),
}

/// Places where coturn looks for its configuration, of those that packages use.
pub const USUAL_FILES: [&str; 4] = [
    "/etc/turnserver.conf",
    "/etc/turnserver/turnserver.conf",
    "/etc/coturn/turnserver.conf",
    "/usr/local/etc/turnserver.conf",
];

/// Values of variables.
pub type Variables = BTreeMap<String, String>;

/// Reads the command line in a file; `None` if the file has no command of coturn. `known` are
/// variables with their values, for names without a value in the file.
///
/// # Errors
/// There is no command of coturn in a unit or Compose file, or a variable has no value.
#[must_use]
pub fn command_line(text: &str, known: &Variables) -> Option<Result<CommandLine, String>> {
    let found = find(text, known)?;
    Some(found.map_err(|reason| match line_of_variable(text, &reason) {
        Some(line) => format!("line {line}: {reason}"),
        None => reason,
    }))
}

/// Line of the variable that an error is about.
fn line_of_variable(text: &str, reason: &str) -> Option<usize> {
    let name = reason.split_once("the value of $")?.1.split(' ').next()?;
    let is_of =
        |line: &str| line.contains(&format!("${name}")) || line.contains(&format!("${{{name}"));
    text.lines().position(is_of).map(|index| index + 1)
}

fn find(text: &str, known: &Variables) -> Option<Result<CommandLine, String>> {
    let begins = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let first = first.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    let program = first.rsplit('/').next().unwrap_or_default();
    if begins("ExecStart=") {
        Some(unit::read(text, known))
    } else if begins("FROM ") {
        dockerfile::read(text, known)
    } else if begins("services:") || begins("image:") || begins("- image:") {
        Some(compose::read(text, known))
    } else if matches!(program, "docker" | "podman") {
        Some(words::split(text).and_then(|words| run::read(&words, known)))
    } else if program == "turnserver" {
        Some(words::split(text).and_then(|words| of_program(&words[1..], known)))
    } else {
        script::read(text, known)
    }
}

/// The command line of the program itself.
fn of_program(words: &[String], variables: &Variables) -> Result<CommandLine, String> {
    let expanded: Result<Vec<_>, _> =
        words.iter().map(|word| words::expanded(word, variables)).collect();
    let words = expanded?;
    let configuration = configuration_file(&words);
    Ok(CommandLine { words, configuration, is_container: false })
}

/// The configuration file that words of coturn's command line name.
#[must_use]
pub fn configuration_file(words: &[String]) -> ConfigurationFile {
    let mut file = ConfigurationFile::Usual;
    for written in syntax::arguments(words) {
        match written.name.as_str() {
            "no-config" => return ConfigurationFile::None,
            "config" => file = ConfigurationFile::Named(written.value),
            _ => {}
        }
    }
    file
}

/// The command line in a container: a configuration that is mounted there is one of the host.
fn of_container(
    words: &[String],
    variables: &Variables,
    mounts: &[(String, String)],
) -> Result<CommandLine, String> {
    let is_program = |word: &&String| !word.starts_with('-');
    let words = &words[usize::from(words.first().filter(is_program).is_some())..];
    let mut line = of_program(words, variables)?;
    line.is_container = true;
    // The start script of coturn's image adds the option.
    const DETECTED: &str = "--external-ip=$(detect-external-ip)";
    let detects = |name| variables.get(name).is_some_and(|value| !value.is_empty());
    let is_written = line.words.iter().any(|word| word == DETECTED);
    if ["DETECT_EXTERNAL_IP", "DETECT_EXTERNAL_IPV6"].into_iter().any(detects) && !is_written {
        line.words.push(DETECTED.to_owned());
    }
    let mounted = |file: &str| {
        let is = |(_, target): &&(String, String)| target == file;
        mounts.iter().find(is).map(|(source, _)| ConfigurationFile::Named(source.clone()))
    };
    line.configuration = match line.configuration {
        ConfigurationFile::None => ConfigurationFile::None,
        ConfigurationFile::Usual => {
            USUAL_FILES.into_iter().find_map(mounted).unwrap_or(ConfigurationFile::None)
        }
        ConfigurationFile::Named(file) => mounted(&file).ok_or_else(|| {
            format!("{file} is a file of the container: import a copy of it, with the options behind `--`")
        })?,
    };
    Ok(line)
}

/// A mount in its short form, `SOURCE:TARGET[:OPTIONS]`.
fn mount(text: &str) -> Option<(String, String)> {
    let (source, rest) = text.split_once(':')?;
    Some((source.to_owned(), rest.split(':').next().unwrap_or_default().to_owned()))
}
