//! Circular imports within a crate: between files, and between folders. Imports run down.
//!
//! A file is a module. Its imports are the paths in it that begin with `crate` or `super`, also
//! inside macros, resolved through re-exports. A parent imports nothing by declaring its children.
//! Tests are left out, and so is the crate's root, which may import everything.
//!
//! A folder is a module with children. At each level, every child is folded with all modules below
//! it into one node; the nodes must import each other in one direction only.

mod graph;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::graph::circles;
use self::imports::{Imports, Module};

/// A circle: its members, and the imports between them, one a line.
struct Circle {
    members: Vec<String>,
    imports: Vec<String>,
}

/// Circles in any crate.
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
        let edges = edges(&crates.join(&name).join("src"))?;
        for (kind, found) in [("files", of_files(&edges)), ("folders", of_folders(&edges))] {
            for Circle { members, imports } in found {
                slips.push(format!("{name}: {kind} {} import each other:", members.join(", ")));
                slips.extend(imports.iter().map(|import| format!("    {import}")));
            }
        }
    }
    Ok(slips)
}

type Edges = BTreeMap<Module, BTreeSet<Module>>;

/// The imports of each module of a crate.
fn edges(source: &Path) -> Result<Edges> {
    let mut modules = BTreeMap::new();
    collect(source, &Module::root(), &mut modules)?;
    let mut edges = Edges::new();
    for (module, imports) in modules.iter().filter(|(module, _)| !module.is_root()) {
        let targets = imports.paths.iter().map(|path| resolve(&modules, path.clone()));
        let others = targets.filter(|target| target != module && !target.is_root());
        edges.insert(module.clone(), others.collect());
    }
    Ok(edges)
}

/// Circles of files, largest first.
fn of_files(edges: &Edges) -> Vec<Circle> {
    circles(edges)
        .into_iter()
        .map(|circle| Circle {
            imports: between(edges, |module| circle.contains(module).then(|| module.clone())),
            members: circle.iter().map(ToString::to_string).collect(),
        })
        .collect()
}

/// Circles of siblings of which at least one is a folder, largest first.
fn of_folders(edges: &Edges) -> Vec<Circle> {
    let folders: BTreeSet<Module> = edges.keys().map(Module::parent).collect();
    let mut found = Vec::new();
    for folder in &folders {
        let mut folded = Edges::new();
        for (module, targets) in edges {
            let Some(node) = module.below(folder) else { continue };
            let targets = targets.iter().filter_map(|target| target.below(folder));
            let targets = targets.filter(|target| *target != node);
            folded.entry(node.clone()).or_default().extend(targets);
        }
        for circle in circles(&folded) {
            if circle.iter().any(|node| folders.contains(node)) {
                let node =
                    |module: &Module| module.below(folder).filter(|node| circle.contains(node));
                let imports = between(edges, node);
                let members = circle.iter().map(ToString::to_string).collect();
                found.push(Circle { members, imports });
            }
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.members.len()));
    found
}

/// The imports that lead from one node to another.
fn between(edges: &Edges, node: impl Fn(&Module) -> Option<Module>) -> Vec<String> {
    let all = edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| {
        node(from).zip(node(to)).is_some_and(|(source, target)| source != target)
    })
    .map(|(from, to)| format!("{from} imports {to}"))
    .collect()
}

/// The module that defines the item a path leads to.
fn resolve(modules: &BTreeMap<Module, Imports>, mut path: Module) -> Module {
    /// Re-exports of re-exports that are followed.
    const FOLLOWED: usize = 8;
    for _ in 0..FOLLOWED {
        let module = path.longest(|candidate| modules.contains_key(candidate));
        let Some(name) = path.after(&module) else { return module };
        match exported(modules, &module, name, FOLLOWED) {
            Some(exported) if exported != path => path = exported,
            _ => return module,
        }
    }
    path.longest(|candidate| modules.contains_key(candidate))
}

/// The path for which a re-exported name of a module stands. `depth` limits the re-exports of all
/// items that are followed.
fn exported(
    modules: &BTreeMap<Module, Imports>,
    module: &Module,
    name: &str,
    depth: usize,
) -> Option<Module> {
    let imports = modules.get(module)?;
    if imports.items.contains(name) || depth == 0 {
        return None;
    }
    imports.exports.get(name).cloned().or_else(|| {
        imports.globs.iter().filter(|glob| *glob != module).find_map(|glob| {
            let own = modules.get(glob)?.items.contains(name).then(|| glob.child(name));
            own.or_else(|| exported(modules, glob, name, depth - 1))
        })
    })
}

/// Reads the modules of a directory.
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
            // Separate programs.
            if stem != "bin" {
                collect(&path, &parent.child(stem), modules)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") && stem != "tests" {
            let is_root = matches!(stem, "lib" | "main") && parent.is_root();
            let is_folder = stem == "mod" && !parent.is_root();
            let module = if is_root || is_folder { parent.clone() } else { parent.child(stem) };
            let text = fs::read_to_string(&path)?;
            let imports = Imports::of(&module, &text)
                .with_context(|| format!("cannot parse {}", path.display()))?;
            // A library and a program in one folder have the same root.
            modules.entry(module).or_default().extend(imports);
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
    fn a_circle_of_folders_is_reported_with_its_imports() -> Result<()> {
        let root = std::env::temp_dir().join(format!("xtask-circles-{}", std::process::id()));
        let files = [
            ("lib.rs", "mod tx; mod rx; mod host;"),
            ("tx.rs", "mod types; mod flush;"),
            ("tx/types.rs", "pub struct Part;"),
            ("tx/flush.rs", "use crate::rx::batch::Batch; use super::types::Part;"),
            ("rx.rs", "mod batch; mod parse;"),
            ("rx/batch.rs", "use crate::host::Clock;"),
            ("rx/parse.rs", "use crate::tx::types::Part; use super::batch::Batch;"),
            ("host.rs", "pub struct Clock;"),
        ];
        for directory in ["tx", "rx"] {
            fs::create_dir_all(root.join(directory))?;
        }
        for (name, text) in files {
            fs::write(root.join(name), text)?;
        }
        let edges = edges(&root)?;
        fs::remove_dir_all(&root)?;
        assert!(of_files(&edges).is_empty(), "no two files import each other");
        let [circle] = &of_folders(&edges)[..] else { panic!("one circle of folders") };
        assert_eq!(circle.members, ["rx", "tx"]);
        assert_eq!(circle.imports, ["rx::parse imports tx::types", "tx::flush imports rx::batch"]);
        Ok(())
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
    fn an_export_of_all_items_leads_to_where_they_are_from() {
        let modules = modules(&[
            ("a", "mod b; pub use b::*; pub struct Own;"),
            ("a::b", "pub use self::c::*; pub struct Thing;"),
            ("a::b::c", "pub enum Deep {} pub fn shadowed() {} pub use super::*;"),
            ("d", "use crate::a::{Thing, Deep, Own, Missing};"),
        ]);
        let target = |name: &str| {
            let path = Module::root().child("a").child(name);
            resolve(&modules, path).to_string()
        };
        assert_eq!(["Thing", "Deep", "Own"].map(target), ["a::b", "a::b::c", "a"]);
        assert_eq!(target("Missing"), "a");
    }

    #[test]
    fn a_library_and_a_program_export_together_and_mod_files_are_folders() -> Result<()> {
        let root = std::env::temp_dir().join(format!("xtask-roots-{}", std::process::id()));
        fs::create_dir_all(root.join("a"))?;
        let files = [
            ("lib.rs", "pub use a::Thing;"),
            ("main.rs", "use b::Other;"),
            ("a/mod.rs", "pub struct Thing; use crate::Other;"),
            ("b.rs", "pub struct Other; use crate::Thing;"),
        ];
        for (name, text) in files {
            fs::write(root.join(name), text)?;
        }
        let edges = edges(&root)?;
        fs::remove_dir_all(&root)?;
        let [circle] = &of_files(&edges)[..] else { panic!("one circle of files: {edges:?}") };
        assert_eq!(circle.members, ["a", "b"]);
        Ok(())
    }

    #[test]
    fn paths_inside_macros_are_imports() {
        let modules = modules(&[
            ("a", "fn f() { println!(\"{} {}\", crate::b::g(), vec![super::c::h()].len()); }"),
            ("d", "macro_rules! own { ($x:expr) => { $crate::b::g($x, self::i(), crate::e) }; }"),
            ("e", "own! { use crate::{b::{g, B as D}, c}; } fn f() { assert!(super::b::g()); }"),
            (
                "f",
                "#[cfg(test)] own! { use crate::b; } fn f() { own!(b::g(), \"crate::b\", Self::b) }",
            ),
        ]);
        let paths = |name: &str| -> Vec<String> {
            modules[&Module::root().child(name)].paths.iter().map(ToString::to_string).collect()
        };
        assert_eq!(paths("a"), ["b::g", "c::h"]);
        assert_eq!(paths("d"), ["b::g", "e"]);
        assert_eq!(paths("e"), ["b::B", "b::g", "c"]);
        assert_eq!(paths("f"), [""; 0]);
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
