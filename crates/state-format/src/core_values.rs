//! Serialised form of numbers, texts, times and containers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use turn_types::Secret;

use crate::{Malformed, Reader, Value, Writer};

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Value for $number {
            fn write(&self, out: &mut Writer) {
                out.put(&self.to_le_bytes());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                input.array().map(Self::from_le_bytes)
            }
        })+
    };
}

numbers!(u8, u16, u32, u64, u128);

/// Opaque bytes, possibly with keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// Serialises a value into separate bytes.
    #[must_use]
    pub fn of(value: &impl Value) -> Self {
        let mut out = Writer::new();
        value.write(&mut out);
        Self(out.into_bytes())
    }

    /// Parses the value.
    ///
    /// # Errors
    /// The bytes belong to another type, or more bytes follow.
    pub fn parse<T: Value>(&self) -> Result<T, Malformed> {
        Reader::new(&self.0).last()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Value for Bytes {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(&self.0));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.count()?;
        input.take(len).map(|bytes| Self(bytes.to_vec()))
    }
}

impl Value for bool {
    fn write(&self, out: &mut Writer) {
        u8::from(*self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::NoValue("truth value")),
        }
    }
}

macro_rules! non_zero {
    ($($number:ty),+) => {
        $(impl Value for $number {
            fn write(&self, out: &mut Writer) {
                self.get().write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Self::new(Value::read(input)?).ok_or(Malformed::NoValue("number from 1"))
            }
        })+
    };
}

non_zero!(NonZeroU32, NonZeroU64);

impl Value for Duration {
    fn write(&self, out: &mut Writer) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read(input).map(Self::from_nanos)
    }
}

impl Value for String {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(self.as_bytes()));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        text(input).map(Into::into)
    }
}

impl Value for Arc<str> {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(self.as_bytes()));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        text(input).map(Into::into)
    }
}

fn text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let len = input.count()?;
    core::str::from_utf8(input.take(len)?).map_err(|_| Malformed::NoValue("text in UTF-8"))
}

impl<T: Value> Value for Option<T> {
    fn write(&self, out: &mut Writer) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        if bool::read(input)? { T::read(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Value> Value for Vec<T> {
    fn write(&self, out: &mut Writer) {
        write_list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        // No memory is reserved for the declared count before the values are read.
        (0..input.count()?).map(|_| T::read(input)).collect()
    }
}

impl<K: Value + Ord, V: Value> Value for BTreeMap<K, V> {
    fn write(&self, out: &mut Writer) {
        (self.len() as u32).write(out);
        for (key, value) in self {
            key.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Vec::read(input).map(|all: Vec<(K, V)>| all.into_iter().collect())
    }
}

impl<T: Value> Value for Arc<[T]> {
    fn write(&self, out: &mut Writer) {
        write_list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Vec::read(input).map(Into::into)
    }
}

fn write_list<T: Value>(list: &[T], out: &mut Writer) {
    out.count(list.len());
    list.iter().for_each(|value| value.write(out));
}

impl<T: Value, const LEN: usize> Value for [T; LEN] {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let values: Vec<T> = (0..LEN).map(|_| T::read(input)).collect::<Result<_, _>>()?;
        values.try_into().map_err(|_| Malformed::Truncated)
    }
}

macro_rules! owners {
    ($($owner:ident),+) => {
        $(impl<T: Value> Value for $owner<T> {
            fn write(&self, out: &mut Writer) {
                (**self).write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                T::read(input).map(Self::new)
            }
        })+
    };
}

owners!(Box, Arc);

impl<A: Value, B: Value> Value for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

/// Serialised in clear: anyone with the document can use the keys.
impl<T: Value> Value for Secret<T> {
    fn write(&self, out: &mut Writer) {
        self.expose().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::read(input).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::again;

    type Everything = (Vec<Option<(u16, String)>>, [(u64, bool); 3]);

    proptest! {
        #[test]
        fn values_read_back(value: Everything, nanos: u64, number: NonZeroU32) {
            prop_assert_eq!(again(&value), Ok(value));
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(again(&time), Ok(time));
            prop_assert_eq!(again(&number), Ok(number));
        }

        #[test]
        fn shared_values_read_back(text: String, list: Vec<u16>) {
            let text: Arc<str> = text.into();
            prop_assert_eq!(again(&text), Ok(text));
            let list: Arc<[u16]> = list.into();
            prop_assert_eq!(again(&list), Ok(list));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Reader::new(&bytes).last::<Everything>();
        }
    }

    #[test]
    fn keys_read_back() {
        let read = again(&Secret::new([7_u8; 32])).map(|key| *key.expose());
        assert_eq!(read, Ok([7; 32]));
    }

    #[test]
    fn a_count_is_believed_as_far_as_there_are_bytes() {
        let bytes = [255, 255, 255, 255, 1, 2];
        assert_eq!(Reader::new(&bytes).last::<Vec<u8>>(), Err(Malformed::Truncated));
        let zero = [0; 4];
        let none = Reader::new(&zero).last::<NonZeroU32>();
        assert_eq!(none, Err(Malformed::NoValue("number from 1")));
        assert_eq!(Reader::new(&[2]).last::<bool>(), Err(Malformed::NoValue("truth value")));
        let text = Reader::new(&[1, 0, 0, 0, 0xFF]).last::<String>();
        assert_eq!(text, Err(Malformed::NoValue("text in UTF-8")));
        assert_eq!(text.unwrap_err().to_string(), "no text in UTF-8");
    }
}
