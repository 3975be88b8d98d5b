//! Constants of the product's crates, with the paths of their modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::{Attribute, Expr, Ident, ImplItem, Item, ItemMod, Meta, Type};

/// Words of names that mark a bound of a table, queue or budget.
const WORDS: [&str; 16] = [
    "MAX", "CAPACITY", "WAITING", "QUEUED", "QUEUE", "PER", "KEPT", "PENDING", "LIMIT", "BUDGET",
    "BURST", "BACKLOG", "SLOTS", "SHARE", "ONCE", "ROOM",
];

/// Words of documentation that mark a bound whose name does not.
const DOCUMENTED: [&str; 5] = ["queue", "kept", "wait", "waiting", "remembered"];

/// Module of a crate that contains only limits.
const LIMITS: &str = "limits";

/// Modules whose code runs in the process of an operator's command, by crate and path.
const COMMANDS: [&str; 1] = ["turnpike::commands"];

/// A constant or static.
pub(super) struct Constant {
    name: String,
    /// True within a module `limits`.
    is_limit: bool,
    is_integer: bool,
    documentation: String,
    /// Value as an expression.
    pub(super) value: Expr,
}

impl Constant {
    /// Returns true if the constant looks like a bound of a table, queue or budget.
    pub(super) fn is_bound(&self) -> bool {
        let is_named = self.name.split('_').any(|word| WORDS.contains(&word));
        let mut words = self.documentation.split(|letter: char| !letter.is_ascii_alphabetic());
        let is_documented = words.any(|word| DOCUMENTED.contains(&word));
        self.is_integer && (self.is_limit || is_named || is_documented)
    }

    #[cfg(test)]
    pub(super) fn for_test(name: &str, documentation: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_limit: false,
            is_integer: true,
            documentation: documentation.to_owned(),
            value: syn::parse_str("1").unwrap(),
        }
    }
}

/// Reads the constants of crates, by path: `turn_proto::limits::PENDING_MAX`. Tests and code of
/// commands are left out.
///
/// # Errors
/// A source file is missing or is not Rust.
pub(super) fn read(root: &Path, crates: &[&str]) -> Result<BTreeMap<String, Constant>> {
    let mut reader = Reader::default();
    for name in crates {
        let source = root.join("crates").join(name).join("src");
        let start = ["lib.rs", "main.rs"].map(|file| source.join(file));
        let Some(file) = start.iter().find(|path| path.is_file()) else {
            bail!("{name} has neither lib.rs nor main.rs");
        };
        reader.file(file, &source, &name.replace('-', "_"))?;
    }
    Ok(reader.found)
}

#[derive(Default)]
struct Reader {
    found: BTreeMap<String, Constant>,
}

impl Reader {
    /// Reads a file and its child modules, whose files are in `folder`.
    fn file(&mut self, file: &Path, folder: &Path, path: &str) -> Result<()> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{name} is not Rust"))?;
        self.items(&parsed.items, folder, path)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the enum of syn may grow")]
    fn items(&mut self, items: &[Item], folder: &Path, path: &str) -> Result<()> {
        for item in items {
            match item {
                Item::Const(item) => {
                    self.add(path, &item.ident, &item.attrs, (&item.ty, &item.expr));
                }
                Item::Static(item) => {
                    self.add(path, &item.ident, &item.attrs, (&item.ty, &item.expr));
                }
                Item::Impl(item) => {
                    for item in &item.items {
                        if let ImplItem::Const(item) = item {
                            self.add(path, &item.ident, &item.attrs, (&item.ty, &item.expr));
                        }
                    }
                }
                Item::Mod(module) => self.module(module, folder, path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn module(&mut self, module: &ItemMod, folder: &Path, path: &str) -> Result<()> {
        let name = module.ident.to_string();
        let path = format!("{path}::{name}");
        if is_test(&module.attrs) || COMMANDS.contains(&path.as_str()) {
            return Ok(());
        }
        let folder = folder.join(&name);
        if let Some((_, items)) = &module.content {
            return self.items(items, &folder, &path);
        }
        let files = [folder.with_extension("rs"), folder.join("mod.rs")];
        let file = files.iter().find(|file| file.is_file());
        self.file(file.with_context(|| format!("{path} has no file"))?, &folder, &path)
    }

    fn add(
        &mut self,
        path: &str,
        name: &Ident,
        attributes: &[Attribute],
        (kind, value): (&Type, &Expr),
    ) {
        if is_test(attributes) || name == "_" {
            return;
        }
        let name = name.to_string();
        let constant = Constant {
            is_limit: path.ends_with(&format!("::{LIMITS}")),
            is_integer: is_integer(kind),
            documentation: documentation(attributes),
            value: value.clone(),
            name: name.clone(),
        };
        self.found.insert(format!("{path}::{name}"), constant);
    }
}

fn is_integer(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    let name = last.ident.to_string();
    ["u8", "u16", "u32", "u64", "usize"].contains(&name.as_str()) || name.starts_with("NonZero")
}

/// Returns true for `#[cfg(test)]` and combinations with it.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let tokens = list.tokens.to_string();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        !tokens.contains("not")
            && tokens.split(|letter| !is_word(letter)).any(|word| word == "test")
    })
}

fn documentation(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else { continue };
        if let (true, Expr::Lit(literal)) = (meta.path.is_ident("doc"), &meta.value)
            && let syn::Lit::Str(line) = &literal.lit
        {
            text.push_str(&line.value());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> BTreeMap<String, Constant> {
        let mut reader = Reader::default();
        let file = syn::parse_file(source).unwrap();
        reader.items(&file.items, Path::new("nowhere"), "a").unwrap();
        reader.found
    }

    fn bounds(source: &str) -> Vec<String> {
        let bound = |(path, constant): (_, Constant)| constant.is_bound().then_some(path);
        read(source).into_iter().filter_map(bound).collect()
    }

    #[test]
    fn bounds_are_found_by_name_module_or_documentation() {
        let source = "
            const ENTRIES_MAX: u32 = 1;
            pub mod limits { pub const ENTRIES: usize = 1; }
            /// Lines that wait to be written.
            static LINES: u16 = 1;
            impl A { const SLOTS: NonZeroU32 = B; }";
        let found = ["a::ENTRIES_MAX", "a::LINES", "a::SLOTS", "a::limits::ENTRIES"];
        assert_eq!(bounds(source), found);
    }

    #[test]
    fn other_constants_are_no_bounds() {
        let source = "
            /// Length of a header, before awaited bytes.
            const HEADER: usize = 1;
            const MAXIMA: u32 = 1;
            const WAIT_MAX: Duration = Duration::ZERO;
            const _: () = assert!(true);";
        assert_eq!(bounds(source), [""; 0]);
        assert!(read(source).contains_key("a::WAIT_MAX"), "a row may name it");
    }

    #[test]
    fn tests_are_left_out() {
        let source = "
            #[cfg(test)] mod tests { const A_MAX: u32 = 1; }
            #[cfg(all(test, unix))] const B_MAX: u32 = 1;
            #[cfg(not(test))] const C_MAX: u32 = 1;
            #[cfg(feature = \"latest\")] const D_MAX: u32 = 1;";
        assert_eq!(bounds(source), ["a::C_MAX", "a::D_MAX"]);
    }

    #[test]
    fn constants_of_files_have_the_paths_of_their_modules() {
        let found = super::read(&crate::root(), &["turn-proto", "turnpike"]).unwrap();
        assert!(found.contains_key("turn_proto::limits::PENDING_MAX"));
        assert!(found.contains_key("turnpike::authorizer::kept::KEPT_MAX"));
        assert!(!found.keys().any(|path| path.starts_with("turnpike::commands")));
    }
}
