//! Files that are created, replaced or appended to in a directory which another user may write to,
//! and regular files that are read.
//!
//! All steps of a change use names relative to an open directory, follow no symbolic link, and set
//! mode and owner through the descriptor. On the way to that directory, root follows no link that
//! another user could have made. Other processes see a file only with the final content,
//! mode and owner.

mod append;
mod directory;
mod identity;
mod new_file;
mod path;
mod planted;
mod privilege;
mod read;
mod sweep;

pub use append::{append_to, open_private, rewrite};
pub use directory::{Access, Owner, make_directory, make_missing_directory};
pub use identity::{ActingAsOwner, FileOwner, others_may_name_files};
pub use new_file::{NewFile, RenamedIn, create, replace};
pub use read::{open, read, read_state, read_state_to_string, read_to_string};
