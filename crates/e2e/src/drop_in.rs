//! Configurations of coturn, generated ones and those of a corpus, given to Debian's coturn and to
//! this server under coturn's name: both start or neither does, with the same responses.
//!
//! ```text
//! configuration   a file from a seed, with the credentials that it may have
//! corpus          files in the shapes that installers write
//! scene           two hosts with the same addresses, and a server in each
//! observation     answers of a server
//! differences     those that are chosen, with their reasons
//! ```

mod configuration;
mod corpus;
mod differences;
mod observation;
mod random;
mod scene;

pub use configuration::{Configuration, Credential};
pub use corpus::corpus;
pub use differences::{CHOSEN, ChosenDifference, unexplained};
pub use observation::{Observation, Outcome};
pub use scene::Scene;
