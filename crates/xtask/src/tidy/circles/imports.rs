//! Imports of a file, and its exports of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Result;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemFn, ItemImpl, ItemMacro, ItemMod, ItemUse, Macro, UseTree};

/// A path within a crate, of a module or of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Module(Vec<String>);

impl Module {
    /// The root of the crate.
    pub(super) const fn root() -> Self {
        Self(Vec::new())
    }

    pub(super) const fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn child(&self, name: &str) -> Self {
        let mut path = self.clone();
        path.0.push(name.to_owned());
        path
    }

    /// The longest prefix of the path for which `is_so` holds, at least the root.
    pub(super) fn longest(&self, is_so: impl Fn(&Self) -> bool) -> Self {
        let mut path = self.clone();
        while !path.is_root() && !is_so(&path) {
            path.0.pop();
        }
        path
    }

    /// The name after a prefix of the path.
    pub(super) fn after(&self, beginning: &Self) -> Option<&str> {
        self.0.get(beginning.0.len()).map(String::as_str)
    }

    /// Resolves a path written in this module; `None`: it leads to another crate.
    fn lead(&self, names: &[String]) -> Option<Self> {
        let mut module = match names.first()?.as_str() {
            "crate" => Self::root(),
            "self" => self.clone(),
            "super" => self.parent(),
            _ => return None,
        };
        for name in &names[1..] {
            module = if name == "super" { module.parent() } else { module.child(name) };
        }
        Some(module)
    }

    /// The child of `ancestor` that this module is, or is below; `None` outside of it.
    pub(super) fn below(&self, ancestor: &Self) -> Option<Self> {
        let name = self.0.strip_prefix(&ancestor.0[..])?.first()?;
        Some(ancestor.child(name))
    }

    pub(super) fn parent(&self) -> Self {
        let mut path = self.clone();
        path.0.pop();
        path
    }
}

impl fmt::Display for Module {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("::"))
    }
}

/// The imports of a module.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// Paths of this crate used in the module.
    pub(super) paths: BTreeSet<Module>,
    /// Re-exported names, with the paths they stand for.
    pub(super) exports: BTreeMap<String, Module>,
    /// Modules whose items are all re-exported.
    pub(super) globs: BTreeSet<Module>,
    /// Names of the module's own items.
    pub(super) items: BTreeSet<String>,
}

impl Imports {
    /// Parses a file.
    ///
    /// # Errors
    /// The text is not Rust.
    pub(super) fn of(module: &Module, text: &str) -> Result<Self> {
        let file = syn::parse_file(text)?;
        let mut reader = Reader { module, imports: Self::default() };
        reader.visit_file(&file);
        reader.imports.items = file.items.iter().filter_map(name_of).collect();
        Ok(reader.imports)
    }

    /// Adds the imports of another root of the same crate.
    pub(super) fn extend(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.globs.extend(other.globs);
        self.items.extend(other.items);
        for (name, path) in other.exports {
            self.exports.entry(name).or_insert(path);
        }
    }
}

struct Reader<'a> {
    module: &'a Module,
    imports: Imports,
}

impl Reader<'_> {
    /// The paths of a `use` below `names`.
    fn tree(&mut self, names: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                names.push(path.ident.to_string());
                self.tree(names, &path.tree);
                names.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|one| self.tree(names, one)),
            UseTree::Name(name) => self.named(names, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                self.named(names, &rename.ident.to_string(), Some(rename.rename.to_string()));
            }
            UseTree::Glob(_) => {
                self.path(names);
                self.imports.globs.extend(self.lead_or_child(names));
            }
        }
    }

    fn named(&mut self, names: &[String], name: &str, here: Option<String>) {
        let mut whole = names.to_vec();
        if name != "self" {
            whole.push(name.to_owned());
        }
        self.path(&whole);
        let here = here.or_else(|| whole.last().cloned()).unwrap_or_default();
        if let Some(led) = self.lead_or_child(&whole) {
            self.imports.exports.insert(here, led);
        }
    }

    /// Resolves a path. Children are named without `self::` as well.
    fn lead_or_child(&self, names: &[String]) -> Option<Module> {
        self.module.lead(names).or_else(|| {
            let mut below = vec!["self".to_owned()];
            below.extend_from_slice(names);
            self.module.lead(&below)
        })
    }

    fn path(&mut self, names: &[String]) {
        // Items of its own children are no imports.
        let upwards = names.first().is_some_and(|first| first == "crate" || first == "super");
        if let Some(led) = self.module.lead(names).filter(|_| upwards) {
            self.imports.paths.insert(led);
        }
    }
}

/// Paths among the tokens of a macro.
impl Reader<'_> {
    /// Reads the paths in all groups. `prefix` is the path before the braces of a `use`, and empty
    /// elsewhere in the tokens.
    fn tokens(&mut self, prefix: &[String], tokens: TokenStream) {
        let mut path = prefix.to_vec();
        let mut continues = !prefix.is_empty();
        let mut after_colon = false;
        for token in tokens {
            let colon_before = std::mem::take(&mut after_colon);
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    continues = colon_before && !path.is_empty();
                    after_colon = mark.spacing() == Spacing::Joint;
                }
                TokenTree::Ident(name) if continues => {
                    if name != "self" {
                        path.push(name.to_string());
                    }
                    continues = false;
                }
                TokenTree::Group(group) if continues && group.delimiter() == Delimiter::Brace => {
                    self.tokens(&path, group.stream());
                    path.clear();
                    continues = false;
                }
                TokenTree::Ident(name) => {
                    self.path_of_tokens(&path);
                    path = vec![name.to_string()];
                }
                TokenTree::Group(group) => {
                    self.path_of_tokens(&path);
                    path.clear();
                    continues = false;
                    self.tokens(&[], group.stream());
                }
                TokenTree::Punct(mark) if mark.as_char() == ',' => {
                    self.path_of_tokens(&path);
                    path = prefix.to_vec();
                    continues = !prefix.is_empty();
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.path_of_tokens(&path);
                    path.clear();
                    continues = false;
                }
            }
        }
        self.path_of_tokens(&path);
    }

    /// A single `crate` or `super` is a visibility.
    fn path_of_tokens(&mut self, names: &[String]) {
        if names.len() > 1 {
            self.path(names);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(is_for_tests) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_macro(self, item);
        }
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.tokens(&[], invocation.tokens.clone());
        visit::visit_macro(self, invocation);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&names);
        visit::visit_path(self, path);
    }
}

/// Name of an item, except of an import.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::ExternCrate(_)
        | Item::ForeignMod(_)
        | Item::Impl(_)
        | Item::TraitAlias(_)
        | Item::Use(_)
        | Item::Verbatim(_)
        | _ => return None,
    };
    Some(name.to_string())
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}
