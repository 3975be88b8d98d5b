//! One file per command. Those that talk to a running server do so through [`ask`].

pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod reference;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod user;

use admin::{Client, ClientError};

use crate::cli::Place;
use crate::failure::{Failure, Result};
use crate::place;

/// Connects to the running server and asks it something.
fn ask<T>(
    place: &Place,
    question: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<T> {
    let socket = place::control_socket(place);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime
        .block_on(async {
            let mut client = Client::connect(&socket).await?;
            question(&mut client).await
        })
        .map_err(|error| {
            let hint = error.hint();
            Failure::failed(error).hint(hint)
        })
}
