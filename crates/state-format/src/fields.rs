//! Serialised form of structs as records of their fields, and of enums.

use crate::{Malformed, Reader, Value};

/// Implements [`Value`] for a struct, as a record with a tag for each field.
///
/// A field added in a later version needs a default, which applies to documents without the field.
/// After a semicolon follow the fields that are meaningless in another process. They are not
/// written, and get the declared value when read.
///
/// ```
/// # use state_format::{fields, Reader, Value, Writer};
/// #[derive(Debug, PartialEq)]
/// struct Point { x: u32, y: u32, label: u8 }
/// fields!(Point { 1 => x, 2 => y, 3 => label or 7 });
///
/// let mut out = Writer::new();
/// Point { x: 1, y: 2, label: 3 }.write(&mut out);
/// let bytes = out.into_bytes();
/// assert_eq!(Reader::new(&bytes).last(), Ok(Point { x: 1, y: 2, label: 3 }));
/// ```
#[macro_export]
macro_rules! fields {
    ($name:ident {
        $($tag:literal => $field:ident $(or $default:expr)?),+ $(,)?
        $(; $($here:ident: $there:expr),+ $(,)?)?
    }) => {
        impl $crate::Value for $name {
            fn write(&self, out: &mut $crate::Writer) {
                // The pattern names all fields, so a new field cannot be forgotten.
                let Self { $($field,)+ $($($here: _,)+)? } = self;
                out.sized(|out| { $(out.field($tag, $field);)+ });
            }

            fn read(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                let mut fields = input.sized()?;
                $(let mut $field = None;)+
                while let Some((tag, value)) = fields.field()? {
                    match tag {
                        $($tag => $crate::once(&mut $field, tag, value)?,)+
                        other => return Err($crate::Malformed::UnknownField(other)),
                    }
                }
                Ok(Self {
                    $($field: $crate::fields!(@value $field $tag $($default)?),)+
                    $($($here: $there,)+)?
                })
            }
        }
    };
    (@value $field:ident $tag:literal) => { $crate::required($field, $tag)? };
    (@value $field:ident $tag:literal $default:expr) => { $field.unwrap_or($default) };
}

/// Implements [`Value`] for an enum: the variant's number, followed by the variant's
/// values. A number must never be reused for another variant.
///
/// ```
/// # use state_format::{variants, Reader, Value, Writer};
/// #[derive(Debug, PartialEq)]
/// enum Shape { Point, Box(u32, u32) }
/// variants!(Shape, "shape" { 1 => Point, 2 => Box(width, height) });
///
/// let mut out = Writer::new();
/// Shape::Box(3, 4).write(&mut out);
/// assert_eq!(Reader::new(&out.into_bytes()).last(), Ok(Shape::Box(3, 4)));
/// ```
#[macro_export]
macro_rules! variants {
    ($name:ident, $what:literal {
        $($number:literal => $variant:ident $(($($value:ident),+))?),+ $(,)?
    }) => {
        impl $crate::Value for $name {
            fn write(&self, out: &mut $crate::Writer) {
                match self {
                    $(Self::$variant $(($($value),+))? => {
                        <u8 as $crate::Value>::write(&$number, out);
                        $($($crate::Value::write($value, out);)+)?
                    })+
                }
            }

            fn read(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                match <u8 as $crate::Value>::read(input)? {
                    $($number => {
                        $($(let $value = $crate::Value::read(input)?;)+)?
                        Ok(Self::$variant $(($($value),+))?)
                    })+
                    _ => Err($crate::Malformed::NoValue($what)),
                }
            }
        }
    };
}

/// Implements [`Value`] for an enum of [`labels!`](turn_types::labels), with the
/// labels as the serialised form. Labels are stable.
#[macro_export]
macro_rules! labelled {
    ($name:ident, $what:literal) => {
        impl $crate::Value for $name {
            fn write(&self, out: &mut $crate::Writer) {
                out.sized(|out| out.put(self.label().as_bytes()));
            }

            fn read(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                let len = input.count()?;
                let label = input.take(len)?;
                let found = Self::ALL.iter().copied().find(|one| one.label().as_bytes() == label);
                found.ok_or($crate::Malformed::NoValue($what))
            }
        }
    };
}

/// Parses the value of a field that must not be repeated.
///
/// # Errors
/// The field has been read before, or the value does not belong to the type.
pub fn once<T: Value>(field: &mut Option<T>, tag: u8, value: Reader<'_>) -> Result<(), Malformed> {
    if field.is_some() {
        return Err(Malformed::FieldTwice(tag));
    }
    *field = Some(value.last()?);
    Ok(())
}

/// Returns the value of a field without default.
///
/// # Errors
/// The field is missing.
pub fn required<T>(field: Option<T>, tag: u8) -> Result<T, Malformed> {
    field.ok_or(Malformed::MissingField(tag))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::Writer;

    #[derive(Debug, PartialEq)]
    struct Before {
        a: u16,
    }
    fields!(Before { 1 => a });

    #[derive(Debug, PartialEq)]
    struct Now {
        a: u16,
        b: Vec<Before>,
    }
    fields!(Now { 1 => a, 2 => b or Vec::new() });

    fn bytes(value: &impl Value) -> Vec<u8> {
        let mut out = Writer::new();
        value.write(&mut out);
        out.into_bytes()
    }

    fn read<T: Value>(bytes: &[u8]) -> Result<T, Malformed> {
        Reader::new(bytes).last()
    }

    #[test]
    fn a_struct_reads_back_and_an_older_one_gets_defaults() {
        let now = Now { a: 258, b: [Before { a: 3 }].into() };
        assert_eq!(read(&bytes(&now)), Ok(now));
        assert_eq!(read(&bytes(&Before { a: 7 })), Ok(Now { a: 7, b: Vec::new() }));
        assert_eq!(bytes(&Before { a: 258 }), [7, 0, 0, 0, 1, 2, 0, 0, 0, 2, 1]);
    }

    #[test]
    fn what_is_no_such_struct_is_refused() {
        let twice = [14, 0, 0, 0, 1, 2, 0, 0, 0, 2, 1, 1, 2, 0, 0, 0, 2, 1];
        let cases: [(&[u8], Malformed); 6] = [
            (&[7, 0, 0, 0, 9, 2, 0, 0, 0, 2, 1], Malformed::UnknownField(9)),
            (&[0, 0, 0, 0], Malformed::MissingField(1)),
            (&twice, Malformed::FieldTwice(1)),
            (&[8, 0, 0, 0, 1, 3, 0, 0, 0, 2, 1, 0], Malformed::Trailing),
            (&[7, 0, 0, 0, 1, 2, 0, 0, 0, 2, 1, 5], Malformed::Trailing),
            (&[7, 0, 0, 0, 1, 9, 0, 0, 0, 2, 1], Malformed::Truncated),
        ];
        for (bytes, error) in cases {
            assert_eq!(read::<Before>(bytes), Err(error), "{bytes:?}");
        }
        let whole = bytes(&Now { a: 1, b: [Before { a: 3 }].into() });
        for len in 0..whole.len() {
            assert!(read::<Now>(&whole[..len]).is_err(), "{len} bytes");
        }
    }
}
