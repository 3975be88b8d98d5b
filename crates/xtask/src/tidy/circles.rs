//! Files of a crate that import each other: whoever reads one of them has to read all. Imports run down.
//!
//! A file is a module; its imports are the paths in it that begin with `crate` or `super`, followed through
//! what a module exports of another. A parent that declares its children imports nothing by that. Tests are left
//! out, and so is the root of a crate, which may know all.

mod graph;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::graph::circles;
use self::imports::{Imports, Module};

/// Circles that are still to be opened, by their crates: how many files each has. The list only gets shorter.
const OPEN: [(&str, &[usize]); 4] = [
    ("dataplane", &[11]),
    ("turn-bench", &[5, 4, 3, 3, 2]),
    ("turn-proto", &[25]),
    ("turnpike", &[3]),
];

/// Every circle that is not known, and every one that is known and not there any more.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut slips = Vec::new();
    let crates = root.join("crates");
    let mut names: Vec<_> = crates
        .read_dir()
        .context("cannot list the crates")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names {
        let found = of_crate(&crates.join(&name).join("src"))?;
        let sizes: Vec<usize> = found.iter().map(Vec::len).collect();
        let open = OPEN.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, sizes)| sizes);
        if sizes == open {
            continue;
        }
        slips.push(format!("{name}: {open:?} files in circles are known, there are {sizes:?}"));
        slips.extend(
            found.iter().map(|circle| format!("{name}: {} import each other", circle.join(", "))),
        );
    }
    Ok(slips)
}

/// The circles of a crate, largest first: the modules of each.
fn of_crate(source: &Path) -> Result<Vec<Vec<String>>> {
    let mut modules = BTreeMap::new();
    collect(source, &Module::root(), &mut modules)?;
    let mut edges: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, imports) in &modules {
        if module.is_root() {
            continue;
        }
        let targets = imports.paths.iter().map(|path| resolve(&modules, path.clone()));
        let others = targets.filter(|target| target != module && !target.is_root());
        edges.insert(module, others.collect());
    }
    Ok(circles(&edges))
}

/// The module that what a path names is in.
fn resolve(modules: &BTreeMap<Module, Imports>, mut path: Module) -> Module {
    /// Exports of exports of exports.
    const FOLLOWED: usize = 8;
    for _ in 0..FOLLOWED {
        let module = path.longest(|candidate| modules.contains_key(candidate));
        let Some(name) = path.after(&module) else { return module };
        let exported = modules.get(&module).and_then(|imports| imports.exports.get(name));
        match exported {
            Some(exported) if *exported != path => path = exported.clone(),
            _ => return module,
        }
    }
    path.longest(|candidate| modules.contains_key(candidate))
}

/// Reads the modules in a directory.
fn collect(
    directory: &Path,
    parent: &Module,
    modules: &mut BTreeMap<Module, Imports>,
) -> Result<()> {
    let Ok(entries) = directory.read_dir() else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if path.is_dir() {
            // Programs of their own.
            if stem != "bin" {
                collect(&path, &parent.child(stem), modules)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") && stem != "tests" {
            let is_root = matches!(stem, "lib" | "main") && parent.is_root();
            let module = if is_root { Module::root() } else { parent.child(stem) };
            let text = fs::read_to_string(&path)?;
            let imports = Imports::of(&module, &text);
            modules.insert(
                module,
                imports.with_context(|| format!("cannot parse {}", path.display()))?,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(texts: &[(&str, &str)]) -> BTreeMap<Module, Imports> {
        let read = |(name, text): &(&str, &str)| {
            let module = name
                .split("::")
                .filter(|part| !part.is_empty())
                .fold(Module::root(), |module, part| module.child(part));
            let imports = Imports::of(&module, text).unwrap();
            (module, imports)
        };
        texts.iter().map(read).collect()
    }

    #[test]
    fn an_export_leads_to_where_it_is_from() {
        let modules = modules(&[
            ("", "mod a; pub use a::Thing;"),
            ("a", "mod b; pub(crate) use self::b::{Thing, Other as Else};"),
            ("a::b", "pub struct Thing;"),
            ("c", "use crate::{Thing, a::Else}; fn f() { super::a::g(); }"),
        ]);
        let c = Module::root().child("c");
        let targets: BTreeSet<String> = modules[&c]
            .paths
            .iter()
            .map(|path| resolve(&modules, path.clone()).to_string())
            .collect();
        assert_eq!(targets, BTreeSet::from(["a".to_owned(), "a::b".to_owned()]));
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let modules = modules(&[
            ("a", "//! crate::b\n#[cfg(test)] mod tests { use crate::b::C; }"),
            ("b", "pub struct C;"),
        ]);
        assert!(modules[&Module::root().child("a")].paths.is_empty());
    }
}
