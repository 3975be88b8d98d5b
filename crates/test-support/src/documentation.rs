//! Commands in the documentation, so that tests can hold them against the command line.

use std::path::{Path, PathBuf};

/// Characters that end a command.
const SEPARATORS: [char; 5] = ['|', ';', '&', '(', ')'];

/// Directories with pages, below the root of the repository.
const DIRECTORIES: [&str; 4] = [".", "docs", "docs/operate", "docs/performance"];

/// Pages about other versions.
const HISTORY: [&str; 2] = ["CHANGELOG.md", "log.md"];

/// A command of a page.
#[derive(Debug)]
pub struct DocumentedCommand {
    /// The page.
    pub page: PathBuf,
    /// Its words, the program's name first.
    pub words: Vec<String>,
    /// Named inside a sentence, or with variables of the shell: arguments may be missing or stand
    /// for others (`NAME`).
    pub named: bool,
}

/// The commands of a program: in `sh` blocks, behind the prompt of `console` blocks, and in code
/// inside sentences that begins with the program's name.
///
/// # Panics
/// A page cannot be read.
#[must_use]
pub fn documented_commands(program: &str) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for (line, named) in lines(&text, program) {
            for words in commands(&line) {
                if let Some(words) = of_program(&words, program) {
                    let named = named || words.iter().any(|word| word.contains('$'));
                    found.push(DocumentedCommand { page: page.clone(), words, named });
                }
            }
        }
    }
    found
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    for directory in DIRECTORIES {
        let files = std::fs::read_dir(root.join(directory)).expect("a directory of pages");
        let files = files.map(|entry| entry.expect("an entry").path());
        let is_page = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".md") && !HISTORY.contains(&&*name)
        };
        pages.extend(files.filter(is_page));
    }
    pages
}

/// Language of a block of code, as far as it matters.
#[derive(Clone, Copy)]
enum Block {
    Sh,
    Console,
    Other,
}

/// The lines with commands; true for those inside sentences.
fn lines(page: &str, program: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut block = None;
    let mut continued = String::new();
    for line in page.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, block) {
            (Some("sh"), None) => block = Some(Block::Sh),
            (Some("console"), None) => block = Some(Block::Console),
            (Some(_), None) => block = Some(Block::Other),
            (Some(_), Some(_)) => block = None,
            (None, Some(Block::Sh)) => match line.strip_suffix('\\') {
                Some(part) => continued.push_str(part),
                None => found.push((std::mem::take(&mut continued) + line, false)),
            },
            (None, Some(Block::Console)) => {
                found.extend(line.strip_prefix("$ ").map(|line| (line.to_owned(), false)));
            }
            (None, Some(Block::Other)) => {}
            (None, None) => {
                let code = line.split('`').skip(1).step_by(2);
                let code = code.filter(|code| code.starts_with(&format!("{program} ")));
                // What may be left out stands in brackets.
                found.extend(code.map(|code| (code.replace(['[', ']'], ""), true)));
            }
        }
    }
    found
}

/// The commands of a line of the shell, each as its words; redirections and comments are left out.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut command: Vec<String> = Vec::new();
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
            let ended = word.take().filter(|_| !std::mem::take(&mut redirected));
            command.extend(ended);
            redirected |= c == '<' || c == '>';
            if SEPARATORS.contains(&c) {
                commands.push(std::mem::take(&mut command));
            }
        } else {
            word.get_or_insert_default().push(c);
        }
    }
    commands.push(command);
    commands
}

/// The words of a command of a program: alone, behind `sudo` and variables, or behind `--` of
/// another program.
fn of_program(words: &[String], program: &str) -> Option<Vec<String>> {
    let passed_on = words.iter().position(|word| word == "--").map_or(0, |at| at + 1);
    let words = &words[passed_on..];
    let before = |word: &String| word == "sudo" || word.contains('=');
    let first = words.iter().position(|word| !before(word))?;
    (words[first].rsplit('/').next() == Some(program)).then(|| words[first..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let commands = commands(line);
        let ours = commands.iter().filter_map(|words| of_program(words, "turnpike"));
        ours.map(|words| words.join(" ")).collect()
    }

    #[test]
    fn commands_are_found_in_a_line() {
        for (line, expected) in [
            (
                "A=b sudo ./target/release/turnpike tune check # all",
                "./target/release/turnpike tune check",
            ),
            ("turnpike user add a --password-stdin < file", "turnpike user add a --password-stdin"),
            ("make && turnpike demo --seconds '5' >log | grep x", "turnpike demo --seconds 5"),
            ("kubectl exec pod -- turnpike status", "turnpike status"),
        ] {
            assert_eq!(found(line), [expected]);
        }
        assert_eq!(found("apt-get install turnpike"), [""; 0]);
    }

    #[test]
    fn lines_are_found_in_a_page() {
        let page = "By `turnpike user add NAME [--json]`, `other`:\n```sh\nturnpike \\\n  status\n```\n\
                    ```toml\nturnpike = 1\n```\n```console\n$ turnpike why\nno refusals\n```\n";
        let found: Vec<(String, bool)> = lines(page, "turnpike");
        let expected = [
            ("turnpike user add NAME --json", true),
            ("turnpike   status", false),
            ("turnpike why", false),
        ];
        assert_eq!(found, expected.map(|(line, named)| (line.to_owned(), named)));
    }
}
