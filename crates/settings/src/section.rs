//! The declaration of a table of the configuration.

/// A table that knows which of its keys only a restart changes.
pub(crate) trait Section {
    /// Takes over from `in_force` the keys that a reload does not change.
    fn keep_restart_keys(&mut self, in_force: &Self);
}

/// Declares a table, each key in one place: its text for operators, `live` or `restart` (a reload
/// applies a change, or only a restart does), name, type with bounds, and default.
///
/// From it come reading and checking, the environment variable, the JSON schema, the reference
/// page, the differences between two configurations, and the effect of a reload.
macro_rules! section {
    (
        $(#[$text:meta])*
        $name:ident {
            $($(#[$about:meta])* $applied:ident $key:ident: $type:ty = $default:expr;)*
        }
        $(tables { $($table:ident: $section:ty,)* })?
    ) => {
        $(#[$text])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$about])* #[schemars(extend("x-applied" = stringify!($applied)))] pub $key: $type,)*
            $($(
                #[allow(missing_docs, reason = "the text of a table stands at its type")]
                pub $table: $section,
            )*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($key: $default,)*
                    $($($table: <$section>::default(),)*)?
                }
            }
        }

        impl $crate::section::Section for $name {
            fn keep_restart_keys(&mut self, in_force: &Self) {
                $(if stringify!($applied) == "restart" {
                    self.$key.clone_from(&in_force.$key);
                })*
                $($(self.$table.keep_restart_keys(&in_force.$table);)*)?
            }
        }
    };
}
pub(crate) use section;
