//! Files of tests. Integration tests in a file that no test program includes never run. A module
//! `tests` of a library must be compiled for tests only, because other checks exempt it by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Expr, Item, ItemMod, Lit, Meta};

use super::files;

/// Text of the Rust files below a crate's `tests`, by path in the crate.
type Files = BTreeMap<PathBuf, String>;

/// Name of folders with test data. Rust files in them are not modules.
const DATA: &str = "fixtures";

/// Returns the files below the `tests` of each crate that no test program includes, and the modules
/// `tests` that are part of a library or a program.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut crates: BTreeMap<PathBuf, Files> = BTreeMap::new();
    let mut modules = Vec::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let parts: Vec<_> = name.iter().collect();
        if name.ends_with("tests.rs") || name.ends_with("tests/mod.rs") {
            modules.push(path.clone());
        }
        let Some(depth) = parts.iter().position(|part| *part == "tests") else { continue };
        // `src/…/tests/…` contains modules of a library.
        let own: PathBuf = parts[..depth].iter().collect();
        let is_crate = root.join(&own).join("Cargo.toml").is_file();
        let is_module = name.extension().is_some_and(|ending| ending == "rs");
        if is_crate && is_module && !parts.iter().any(|part| *part == DATA) {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", name.display()))?;
            let inside = parts[depth..].iter().collect();
            crates.entry(own).or_default().insert(inside, text);
        }
    }
    let mut slips = in_products(root, &modules)?;
    for (own, files) in crates {
        let manifest = fs::read_to_string(root.join(&own).join("Cargo.toml"))?;
        let left = forgotten(&manifest, &files).with_context(|| format!("in {}", own.display()))?;
        slips.extend(left.iter().map(|file| {
            format!(
                "{}: never runs: declare it with `mod` in its parent file, or as a [[test]] in Cargo.toml",
                own.join(file).display()
            )
        }));
    }
    Ok(slips)
}

/// Returns the modules `tests` in `src` that no parent declares with `#[cfg(test)]`.
fn in_products(root: &Path, modules: &[PathBuf]) -> Result<Vec<String>> {
    let mut slips = Vec::new();
    for path in modules {
        let name = path.strip_prefix(root).unwrap_or(path);
        if !name.iter().any(|part| part == "src") {
            continue;
        }
        let parent = folder(if path.ends_with("mod.rs") { folder(path) } else { path });
        let files = [
            parent.with_extension("rs"),
            parent.join("mod.rs"),
            parent.join("lib.rs"),
            parent.join("main.rs"),
        ];
        let mut declared = false;
        for file in files.iter().filter(|file| file.is_file()) {
            declared |= declares_tests(&fs::read_to_string(file)?)
                .with_context(|| format!("cannot parse {}", file.display()))?;
        }
        if !declared {
            let name = name.display();
            slips.push(format!("{name}: declare it with #[cfg(test)], or give it another name"));
        }
    }
    Ok(slips)
}

/// Returns true if the file declares `#[cfg(test)] mod tests;`.
fn declares_tests(text: &str) -> Result<bool> {
    let is_for_tests = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    Ok(syn::parse_file(text)?.items.iter().any(|item| {
        let Item::Mod(module) = item else { return false };
        module.ident == "tests" && module.attrs.iter().any(is_for_tests)
    }))
}

/// Returns the files that no test program includes.
///
/// # Errors
/// The manifest or a file cannot be parsed.
fn forgotten<'a>(manifest: &str, files: &'a Files) -> Result<Vec<&'a Path>> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<(PathBuf, PathBuf)> = Vec::new();
    for program in programs(manifest, files)? {
        let children = folder(&program).to_owned();
        left.push((program, children));
    }
    while let Some((file, children)) = left.pop() {
        let Some(text) = files.get(&file) else { continue };
        if reached.insert(file.clone()) {
            let parsed = syn::parse_file(text)
                .with_context(|| format!("cannot parse {}", file.display()))?;
            declared(&parsed.items, folder(&file), &children, &mut left);
        }
    }
    Ok(files.keys().filter(|file| !reached.contains(*file)).map(PathBuf::as_path).collect())
}

/// Root files of the crate's programs: named in the manifest, and discovered by Cargo if
/// `autotests` is not false.
fn programs(manifest: &str, files: &Files) -> Result<Vec<PathBuf>> {
    let manifest: toml::Table = manifest.parse().context("cannot parse Cargo.toml")?;
    let mut programs = Vec::new();
    let package = manifest.get("package");
    let discovery = package.and_then(|package| package.get("autotests"));
    if discovery.and_then(toml::Value::as_bool) != Some(false) {
        let is_root = |file: &&PathBuf| match file.iter().count() {
            2 => true,
            3 => file.ends_with("main.rs"),
            _ => false,
        };
        programs.extend(files.keys().filter(is_root).cloned());
    }
    for kind in ["test", "bench", "bin", "example"] {
        for target in manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
            let text = |key: &str| target.get(key).and_then(toml::Value::as_str);
            match (text("path"), text("name")) {
                (Some(path), _) => programs.push(normal(Path::new(path))),
                (None, Some(name)) if kind == "test" => {
                    programs.push(format!("tests/{name}.rs").into());
                    programs.push(format!("tests/{name}/main.rs").into());
                }
                (None, _) => {}
            }
        }
    }
    Ok(programs)
}

/// Adds each file declared by a module in `items`, and the folder of that file's modules. `parent`
/// contains the declaring file, `children` the files of the declared modules.
fn declared(items: &[Item], parent: &Path, children: &Path, left: &mut Vec<(PathBuf, PathBuf)>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let below = children.join(&name);
        if let Some((_, items)) = &module.content {
            declared(items, &below, &below, left);
        } else if let Some(path) = written_path(module) {
            let file = normal(&parent.join(path));
            let children = folder(&file).to_owned();
            left.push((file, children));
        } else {
            left.push((children.join(format!("{name}.rs")), below.clone()));
            left.push((below.join("mod.rs"), below));
        }
    }
}

/// The value of `#[path = "…"]`.
fn written_path(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        pair.path.is_ident("path").then(|| text.value())
    })
}

/// Folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            Component::ParentDir
            | Component::Normal(_)
            | Component::RootDir
            | Component::Prefix(_) => normal.push(part),
        }
        normal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| (name.into(), (*text).to_owned())).collect();
        forgotten(manifest, &files).unwrap().iter().map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn a_module_of_tests_is_not_part_of_the_product() {
        assert!(declares_tests("mod a;\n#[cfg(test)]\nmod tests;\n").unwrap());
        for text in ["mod tests;", "#[cfg(unix)] mod tests;", "#[cfg(test)] mod other;"] {
            assert!(!declares_tests(text).unwrap(), "{text}");
        }
        let root = std::env::temp_dir().join(format!("xtask-tests-{}", std::process::id()));
        let file = root.join("src/a/tests.rs");
        fs::create_dir_all(folder(&file)).unwrap();
        fs::write(&file, "").unwrap();
        fs::write(root.join("src/a.rs"), "mod tests;").unwrap();
        let slips = in_products(&root, &[file]);
        fs::remove_dir_all(&root).unwrap();
        let slip = "src/a/tests.rs: declare it with #[cfg(test)], or give it another name";
        assert_eq!(slips.unwrap(), [slip]);
    }

    #[test]
    fn files_that_cargo_discovers_run() {
        let files = [
            ("tests/a.rs", "mod support; #[path = \"other/x.rs\"] mod y;"),
            ("tests/b/main.rs", "mod c; mod d;"),
            ("tests/b/c.rs", "mod e; mod f { mod g; #[path = \"h.rs\"] mod i; }"),
            ("tests/b/c/e.rs", ""),
            ("tests/b/c/f/g.rs", ""),
            ("tests/b/c/f/h.rs", ""),
            ("tests/b/d/mod.rs", "#[path = \"../../shared.rs\"] mod shared;"),
            ("tests/b/lost.rs", ""),
            ("tests/b/d/lost.rs", ""),
            ("tests/other/x.rs", "mod z;"),
            ("tests/other/z.rs", ""),
            ("tests/support/mod.rs", "// mod lost;"),
            ("tests/support/lost.rs", ""),
        ];
        let found = left("[package]\nname = \"a\"\n", &files);
        assert_eq!(found, ["tests/b/d/lost.rs", "tests/b/lost.rs", "tests/support/lost.rs"]);
    }

    #[test]
    fn without_discovery_only_named_programs_run() {
        let files = [
            ("tests/a.rs", ""),
            ("tests/b.rs", ""),
            ("tests/c/main.rs", ""),
            ("tests/d.rs", ""),
            ("tests/main.rs", "mod a;"),
        ];
        let manifest = "[package]\nautotests = false\n";
        assert_eq!(left(manifest, &files).len(), 5);
        let one = format!("{manifest}[[test]]\nname = \"all\"\npath = \"tests/main.rs\"\n");
        assert_eq!(left(&one, &files), ["tests/b.rs", "tests/c/main.rs", "tests/d.rs"]);
        let three = format!("{one}[[test]]\nname = \"b\"\n[[test]]\nname = \"c\"\n");
        assert_eq!(left(&three, &files), ["tests/d.rs"]);
    }
}
