//! Values of constants, computed from their expressions.

use std::collections::BTreeMap;
use std::time::Duration;

use syn::{BinOp, Expr, ExprCall, Lit};

use super::constants::Constant;

/// Maximum depth of constants in the expressions of others.
const DEPTH_MAX: u8 = 8;

/// Returns the value of the constant `path` for readers: grouped digits, binary units for bytes,
/// or a time.
pub(super) fn text(constants: &BTreeMap<String, Constant>, path: &str, is_bytes: bool) -> String {
    let Some(constant) = constants.get(path) else { return String::new() };
    let scope = Scope { constants, path, depth: 0 };
    if let Some(time) = time(&constant.value) {
        return format!("{time:?}");
    }
    let Some(value) = scope.integer(&constant.value) else {
        return "see its source".to_owned();
    };
    if is_bytes { bytes(value) } else { grouped(value) }
}

/// Formats a number with a comma between groups of three digits.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(value: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if value >= 1 << shift && value.is_multiple_of(1 << shift) {
            return format!("{} {unit}", value >> shift);
        }
    }
    format!("{} bytes", grouped(value))
}

/// Returns the time of `Duration::from_secs(1)` and its like.
fn time(value: &Expr) -> Option<Duration> {
    let Expr::Call(ExprCall { func, args, .. }) = value else { return None };
    let Expr::Path(function) = &**func else { return None };
    let Expr::Lit(argument) = args.first()? else { return None };
    let Lit::Int(number) = &argument.lit else { return None };
    let number: u64 = number.base10_parse().ok()?;
    match function.path.segments.last()?.ident.to_string().as_str() {
        "from_secs" => Some(Duration::from_secs(number)),
        "from_millis" => Some(Duration::from_millis(number)),
        "from_micros" => Some(Duration::from_micros(number)),
        "from_mins" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

/// Module in which an expression is computed.
struct Scope<'a> {
    constants: &'a BTreeMap<String, Constant>,
    /// Path of the constant.
    path: &'a str,
    depth: u8,
}

impl Scope<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the enums of syn may grow")]
    fn integer(&self, value: &Expr) -> Option<u64> {
        match value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => number.base10_parse().ok(),
                _ => None,
            },
            Expr::Paren(inner) => self.integer(&inner.expr),
            Expr::Group(inner) => self.integer(&inner.expr),
            Expr::Cast(cast) => self.integer(&cast.expr),
            Expr::Binary(binary) => {
                let (left, right) = (self.integer(&binary.left)?, self.integer(&binary.right)?);
                match binary.op {
                    BinOp::Add(_) => left.checked_add(right),
                    BinOp::Sub(_) => left.checked_sub(right),
                    BinOp::Mul(_) => left.checked_mul(right),
                    BinOp::Div(_) => left.checked_div(right),
                    BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
                    _ => None,
                }
            }
            Expr::Path(path) => self.named(&path.path.segments.last()?.ident.to_string()),
            _ => None,
        }
    }

    /// Returns the value of another constant: that of the same module, otherwise the only one of
    /// this name.
    fn named(&self, name: &str) -> Option<u64> {
        if self.depth == DEPTH_MAX {
            return None;
        }
        let (module, _) = self.path.rsplit_once("::")?;
        let neighbour = format!("{module}::{name}");
        let suffix = format!("::{name}");
        let mut others = self.constants.keys().filter(|path| path.ends_with(&suffix));
        let path = if self.constants.contains_key(&neighbour) {
            neighbour
        } else {
            others.next().filter(|_| others.next().is_none())?.clone()
        };
        let scope = Scope { constants: self.constants, path: &path, depth: self.depth + 1 };
        scope.integer(&self.constants[&path].value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constants(list: &[(&str, &str)]) -> BTreeMap<String, Constant> {
        let parse = |(path, value): &(&str, &str)| {
            let mut constant = Constant::for_test(path, "");
            constant.value = syn::parse_str(value).unwrap();
            ((*path).to_owned(), constant)
        };
        list.iter().map(parse).collect()
    }

    #[test]
    fn expressions_are_computed() {
        let constants = constants(&[
            ("a::LINES_MAX", "10_000"),
            ("a::BYTES_MAX", "(LINES_MAX as usize + 240) << 10"),
            ("b::HALF", "x::BYTES_MAX as u64 / 2 - 1"),
            ("b::TIME", "Duration::from_millis(1500)"),
            ("b::UNKNOWN", "size_of::<u8>()"),
            ("b::CIRCLE", "CIRCLE + 1"),
        ]);
        let value = |path: &str| text(&constants, path, path.contains("BYTES"));
        assert_eq!(value("a::LINES_MAX"), "10,000");
        assert_eq!(value("a::BYTES_MAX"), "10 MiB");
        assert_eq!(value("b::HALF"), "5,242,879");
        assert_eq!(value("b::TIME"), "1.5s");
        assert_eq!(value("b::UNKNOWN"), "see its source");
        assert_eq!(value("b::CIRCLE"), "see its source");
    }

    #[test]
    fn a_constant_of_the_same_module_counts_before_others() {
        let constants =
            constants(&[("a::X", "1"), ("b::X", "2"), ("b::Y_MAX", "X"), ("c::Y_MAX", "a::X")]);
        assert_eq!(text(&constants, "b::Y_MAX", false), "2");
        assert_eq!(text(&constants, "c::Y_MAX", false), "see its source", "the name is not unique");
    }

    #[test]
    fn digits_are_grouped() {
        let texts = [0, 999, 1000, 12_345_678].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([2048, 1500, 3 << 20].map(bytes), ["2 KiB", "1,500 bytes", "3 MiB"]);
    }
}
