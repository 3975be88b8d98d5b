//! Gives generated configurations to Debian's coturn and to this server under coturn's name, and
//! prints each difference that is not chosen, with the file.
//!
//! ```text
//! drop_in [--seed FIRST] [--count FILES] [--only SEED]
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use e2e::drop_in::{Configuration, Scene, unexplained};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    };
    let only = number("--only");
    let first = only.or_else(|| number("--seed")).unwrap_or(1);
    let count = if only.is_some() { 1 } else { number("--count").unwrap_or(100) };
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let (mut lines, mut failed, mut chosen_counts) = (0, 0, BTreeMap::new());
    for seed in first..first + count {
        let configuration = Configuration::of(seed);
        lines += configuration.text.iter().filter(|byte| **byte == b'\n').count();
        let [theirs, ours] = scene.observe(&configuration);
        let mut chosen = Vec::new();
        let differences = unexplained(&configuration, [&theirs, &ours], &mut chosen);
        for one in chosen {
            *chosen_counts.entry(one.name).or_insert(0_u32) += 1;
        }
        if !differences.is_empty() {
            failed += 1;
            println!("seed {seed}: {}\n{}", differences.join("; "), configuration.shown());
            if only.is_some() {
                println!("coturn:\n{}\nhere:\n{}", theirs.output, ours.output);
            } else if !ours.is_up {
                println!("here:\n{}", ours.output);
            }
        }
    }
    println!(
        "{count} files with {lines} lines, {failed} with differences that are not chosen; chosen: {chosen_counts:?}"
    );
    ExitCode::from(u8::from(failed > 0))
}
