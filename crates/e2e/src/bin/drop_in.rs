//! Gives configurations to Debian's coturn and to this server under coturn's name, and prints each
//! difference that is not chosen, with the file: generated ones, or with `--corpus` those of the
//! corpus.
//!
//! ```text
//! drop_in [--seed FIRST] [--count FILES] [--only SEED]
//! drop_in --corpus [--only NAME]
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use e2e::drop_in::{Configuration, Scene, corpus, unexplained};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)
    };
    let only = value("--only");
    let configurations = if words.iter().any(|word| word == "--corpus") {
        let mut all = corpus();
        all.retain(|(name, _)| only.is_none_or(|only| only == name));
        all
    } else {
        let number = |name: &str| value(name)?.parse::<u64>().ok();
        let first = number("--only").or_else(|| number("--seed")).unwrap_or(1);
        let count = if only.is_some() { 1 } else { number("--count").unwrap_or(100) };
        let seeds = first..first + count;
        seeds.map(|seed| (format!("seed {seed}"), Configuration::of(seed))).collect()
    };
    match Scene::new() {
        Ok(scene) => compare(&scene, &configurations, only.is_some()),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(
    scene: &Scene,
    configurations: &[(String, Configuration)],
    shows_output: bool,
) -> ExitCode {
    let (mut lines, mut failed, mut chosen_counts) = (0, 0, BTreeMap::new());
    for (name, configuration) in configurations {
        lines += configuration.text.iter().filter(|byte| **byte == b'\n').count();
        let [theirs, ours] = scene.observe(configuration);
        let mut chosen = Vec::new();
        let differences = unexplained(configuration, [&theirs, &ours], &mut chosen);
        for one in chosen {
            *chosen_counts.entry(one.name).or_insert(0_u32) += 1;
        }
        if !differences.is_empty() {
            failed += 1;
            println!("{name}: {}\n{}", differences.join("; "), configuration.shown());
        }
        if shows_output {
            for (server, seen) in [("coturn", &theirs), ("here", &ours)] {
                let (binding, allocations) = (&seen.binding, &seen.allocations);
                println!(
                    "{server}:\n{}\n{binding:?} {allocations:?} {:?}",
                    seen.output, seen.peers
                );
            }
        } else if !differences.is_empty() && !ours.is_up {
            println!("here:\n{}", ours.output);
        }
    }
    let count = configurations.len();
    println!(
        "{count} files with {lines} lines, {failed} with differences that are not chosen; chosen: {chosen_counts:?}"
    );
    ExitCode::from(u8::from(failed > 0))
}
