//! Commands in the documentation, checked against the command line: no page names a command or an option that does
//! not exist.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::cli::Cli;

/// Characters that end a command.
const SEPARATORS: [char; 5] = ['|', ';', '&', '(', ')'];

/// The pages: `README.md`, and those of `docs/` and `docs/operate/`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for directory in ["docs", "docs/operate"] {
        let files = std::fs::read_dir(root.join(directory)).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    pages
}

/// A line with commands.
struct Line {
    text: String,
    /// Inside a sentence, where a command may stand without its arguments.
    named: bool,
}

/// Lines of the `sh` blocks, and code inside sentences that begins with the program's name.
fn lines(page: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut block: Option<bool> = None;
    let mut continued = String::new();
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language == "sh"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => match line.strip_suffix('\\') {
                Some(part) => continued.push_str(part),
                None => {
                    found.push(Line { text: std::mem::take(&mut continued) + line, named: false })
                }
            },
            (None, Some(false)) => {}
            (None, None) => {
                let code = line.split('`').skip(1).step_by(2);
                let code = code.filter(|code| code.starts_with("turnpike "));
                found.extend(code.map(|code| Line { text: code.to_owned(), named: true }));
            }
        }
    }
    found
}

/// The commands of a line of the shell, each as its words; redirections, comments and variables are left out.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut redirected = false;
    for c in line.chars().chain(['\n']) {
        if let Some(open) = quote {
            match c == open {
                true => quote = None,
                false => word.get_or_insert_default().push(c),
            }
        } else if c == '#' && word.is_none() {
            break;
        } else if c == '"' || c == '\'' {
            quote = Some(c);
            word.get_or_insert_default();
        } else if c.is_whitespace() || SEPARATORS.contains(&c) || c == '<' || c == '>' {
            let ended = word.take().filter(|_| !(redirected && std::mem::take(&mut redirected)));
            commands.last_mut().unwrap().extend(ended);
            redirected |= c == '<' || c == '>';
            if SEPARATORS.contains(&c) {
                commands.push(Vec::new());
            }
        } else {
            word.get_or_insert_default().push(c);
        }
    }
    commands.last_mut().unwrap().extend(word.filter(|_| !redirected));
    commands
}

/// The words of a command of this program: alone, behind `sudo` and variables, or behind `--` of another program.
fn ours(words: &[String]) -> Option<&[String]> {
    let passed_on = words.iter().position(|word| word == "--").map_or(0, |at| at + 1);
    let words = &words[passed_on..];
    let before = |word: &String| word == "sudo" || word.contains('=');
    let first = words.iter().position(|word| !before(word))?;
    let program = words[first].rsplit('/').next();
    (program == Some("turnpike")).then(|| &words[first..])
}

#[test]
fn every_command_of_the_pages_exists() {
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in lines(&text) {
            for command in commands(&line.text) {
                let Some(words) = ours(&command) else { continue };
                count += 1;
                let Err(error) = Cli::try_parse_from(words) else { continue };
                let asks = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
                let incomplete = [
                    ErrorKind::MissingRequiredArgument,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ];
                let kind = error.kind();
                let fine = asks.contains(&kind) || line.named && incomplete.contains(&kind);
                assert!(fine, "{}: {}\n{error}", page.display(), line.text);
            }
        }
    }
    assert!(count >= 20, "{count} commands were found");
}

#[test]
fn commands_are_found_in_a_line() {
    let found = |line| {
        let commands = commands(line);
        let ours: Vec<String> =
            commands.iter().filter_map(|words| ours(words)).map(|words| words.join(" ")).collect();
        ours
    };
    assert_eq!(
        found("A=b sudo ./target/release/turnpike tune check # all"),
        ["./target/release/turnpike tune check"]
    );
    assert_eq!(
        found("turnpike user add a --password-stdin < file"),
        ["turnpike user add a --password-stdin"]
    );
    assert_eq!(
        found("make && turnpike demo --seconds '5' >log | grep x"),
        ["turnpike demo --seconds 5"]
    );
    assert_eq!(found("kubectl exec pod -- turnpike status"), ["turnpike status"]);
    assert_eq!(found("apt-get install turnpike"), [""; 0]);
}
