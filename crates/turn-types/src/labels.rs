//! Enums with an operator-facing name for each value.

/// Defines a public enum with a label and an index for each value. The label is the name in metrics
/// and logs, and the index is the position in a table of counters. Generates `ALL`, `label`,
/// `meaning` and `index`.
#[macro_export]
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident => $label:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $doc])* $variant,)+ }

        impl $name {
            /// All values, sorted by index.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the metric label, which is also the name in logs: stable, lower case.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }

            /// Returns the meaning: the text of the value's documentation.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),*).trim_ascii_start(),)+ }
            }

            /// Returns the position in [`Self::ALL`], for tables of counters.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public enums; here nobody can see one")]
mod tests {
    labels! {
        /// Enum for the test.
        Colour {
            /// As blood.
            Red => "red",
            /// As the sky.
            Blue => "blue",
        }
    }

    #[test]
    fn labels_and_indexes_follow_the_list() {
        assert_eq!(Colour::ALL, [Colour::Red, Colour::Blue]);
        assert_eq!(Colour::Blue.label(), "blue");
        assert_eq!(Colour::Blue.meaning(), "As the sky.");
        assert_eq!(Colour::ALL[Colour::Blue.index()], Colour::Blue);
    }
}
