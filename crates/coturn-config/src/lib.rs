//! coturn's configuration, in a file or on a command line, and its translation into one of
//! Turnpike.
//!
//! [`import`] reads every option that coturn 4.5 to 4.17 knows, and accounts for each line: taken,
//! the same here without a key, or not supported, with the reason. It reads no file but the text it
//! is given, and asks a [`Host`] for names.

mod command_line;
mod installations;
pub mod inventory;
mod options;
mod peers;
mod process;
mod reference;
mod syntax;
mod toml;
mod translation;

pub use command_line::{
    CommandLine, ConfigurationFile, USUAL_FILES, Variables, command_line, configuration_file,
};
pub use installations::{INSTALLATIONS, import_any, installations_markdown, left_out};
pub use options::{Counterpart, OPTIONS, option_for};
pub use peers::networks;
pub use process::{Log, Process, process};
pub use reference::reference_markdown;
pub use translation::{
    AnyHost, Fate, Host, Import, Line, Purpose, Row, RowLine, Source, User, UserKey, database_url,
    import, import_with_rows,
};
