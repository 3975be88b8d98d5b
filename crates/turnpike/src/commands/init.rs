//! `turnpike init`: creates a configuration from five answers, or from flags.

mod answers;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linux_net::random_bytes;

use self::answers::{Answers, Auth, Question, Wrong};
use crate::cli::{self, PathOptions};
use crate::failure::{Failure, OrFail as _, Result};
use crate::new_files::{self, NewFile};
use crate::{output, paths};

/// File name of the secret, next to the configuration.
const SECRET: &str = "secret";

pub(crate) fn run(paths: &PathOptions, args: &cli::Init) -> Result<()> {
    let named = args.output.as_deref().or(paths.config.as_deref());
    let file = std::path::absolute(named.unwrap_or_else(|| Path::new(paths::CONFIG)))
        .or_fail("cannot tell the directory")?;
    refuse_existing(&file)?;
    let answers = answer(args, paths::is_of_service(&file))?;
    let secret = file.with_file_name(SECRET);
    let configuration = NewFile::configuration(&file, answers.toml(&secret));
    let mut written = vec![&file];
    if answers.auth == Auth::Secret {
        let value = STANDARD.encode(random_bytes::<32>());
        new_files::write(&[NewFile::secret(&secret, value.as_bytes()), configuration])?;
        written.push(&secret);
    } else {
        new_files::write(&[configuration])?;
    }
    let written: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    output::print(&format!("written: {}\n{}", written.join(", "), next(&answers, &file)))
}

/// Refuses an existing file before the first question, to spare the operator the answers.
fn refuse_existing(file: &Path) -> Result<()> {
    if file.symlink_metadata().is_err() {
        return Ok(());
    }
    let hint = if file == Path::new(paths::CONFIG) {
        "a package has installed it, or you have written it: edit it, move it away, or name another file with \
         --output; nothing was written"
    } else {
        "move it away, or name another file with --output; nothing was written"
    };
    Err(Failure::usage(anyhow!("{} exists", file.display())).hint(hint))
}

/// Returns the answers from the command line, and from the operator on a terminal.
fn answer(args: &cli::Init, for_service: bool) -> Result<Answers> {
    let asks = !args.yes && io::stdin().is_terminal() && io::stdout().is_terminal();
    let given = |question| match question {
        Question::Realm => &args.realm,
        Question::Name => &args.name,
        Question::External => &args.external,
        Question::Auth => &args.auth,
        Question::Certificate => &args.certificate,
    };
    if !asks {
        refuse_missing(&given)?;
    }
    let mut answers = Answers { for_service, ..Answers::default() };
    // Flags are checked first, to report an invalid flag before the first question.
    for question in Question::ALL {
        if let Some(text) = given(question) {
            answers.take(question, text).map_err(|wrong| {
                Failure::usage(anyhow!("{}: {}", question.flag(), wrong.what)).hint(wrong.help)
            })?;
        }
    }
    for question in Question::ALL.into_iter().filter(|_| asks) {
        if given(question).is_none() {
            ask(question, &mut answers)?;
        }
    }
    if asks {
        output::print("")?;
    }
    Ok(answers)
}

fn refuse_missing<'a>(given: &impl Fn(Question) -> &'a Option<String>) -> Result<()> {
    let needed = [Question::Realm, Question::Auth];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|question| given(*question).is_none())
        .map(Question::flag)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(anyhow!("{} missing, and no question was asked", missing.join(" and ")))
        .hint("for example: turnpike init --realm example.org --auth secret; on a terminal, without --yes, it asks"))
}

/// Repeats a question until the answer is valid.
fn ask(question: Question, answers: &mut Answers) -> Result<()> {
    let text = output::wrapped(question.text(), 0, output::columns());
    output::print(&format!("\n{text}"))?;
    loop {
        print!("{}> ", question.preset().map(|preset| format!("[{preset}] ")).unwrap_or_default());
        io::stdout().flush().or_fail("cannot ask")?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).or_fail("cannot read the answer")? == 0 {
            return Err(Failure::failed(anyhow!("the input ended; nothing was written")));
        }
        let text = match (line.trim(), question.preset()) {
            ("", Some(preset)) => preset,
            (text, _) => text,
        };
        match answers.take(question, text) {
            Ok(()) => return Ok(()),
            Err(Wrong { what, help }) => {
                output::print(&format!("{what}\n  hint: {help}"))?;
            }
        }
    }
}

/// Describes the commands to run next.
fn next(answers: &Answers, file: &Path) -> String {
    let usual = file == Path::new(paths::CONFIG);
    let config = if usual { String::new() } else { format!(" --config {}", file.display()) };
    let start = if answers.for_service && usual {
        "systemctl restart turnpike".to_owned()
    } else {
        format!("turnpike run{config}")
    };
    let credential = match answers.auth {
        Auth::Secret => format!("turnpike credentials --user alice{config}"),
        Auth::Users => format!("turnpike user add alice{config}"),
    };
    let mut lines = vec![format!("turnpike check {} --host", file.display()), start, credential];
    if let Some(name) = &answers.name {
        lines.push(format!("turnpike probe turn:{name} --username NAME --password PASSWORD"));
    }
    format!("next:\n  {}", lines.join("\n  "))
}
