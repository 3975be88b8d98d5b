//! One file per command. Those that talk to a running server do so through [`ask`].

pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod probe;
pub(crate) mod reference;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod tune;
pub(crate) mod user;

use admin::{Client, ClientError};
use settings::SettingsErrors;

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
            let mut client = Client::connect(&socket.path).await?;
            question(&mut client).await
        })
        .map_err(|error| failed(error, socket.unread))
}

/// A configuration that could not be read is as likely a reason for finding nobody as any.
fn failed(error: ClientError, unread: Option<SettingsErrors>) -> Failure {
    let hint = error.hint();
    match (&error, unread) {
        (ClientError::NotRunning(_), Some(unread)) => Failure::failed(error).hint(format!(
            "the configuration could not be read, so this is where the server is by default; \
             mend it, or name the socket with --socket or the directory with --data:\n{unread}"
        )),
        (_, _) => Failure::failed(error).hint(hint),
    }
}
