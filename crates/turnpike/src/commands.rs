//! Commands of the program, with one module each. [`ask`] queries a running server.

pub(crate) mod check;
pub(crate) mod credentials;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod keep;
pub(crate) mod log_level;
pub(crate) mod manual;
pub(crate) mod probe;
pub(crate) mod reference;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod tune;
pub(crate) mod turnadmin;
pub(crate) mod turnserver;
pub(crate) mod upgrade;
pub(crate) mod user;
pub(crate) mod why;

use std::path::Path;

use admin::{Client, ClientError};
use settings::SettingsErrors;

use crate::cli::PathOptions;
use crate::failure::{Failure, Result};
use crate::paths;

/// Connects to the running server and sends a query.
fn ask<T>(
    paths: &PathOptions,
    question: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<T> {
    let socket = paths::control_socket(paths);
    ask_at(&socket.path, question)?.map_err(|error| failed(error, socket.unread))
}

/// Queries the server if it runs. Returns `None` if no server is running.
fn ask_if_running<T>(
    paths: &PathOptions,
    question: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<Option<T>> {
    let socket = paths::control_socket(paths);
    match ask_at(&socket.path, question)? {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::NotRunning(_)) => Ok(None),
        Err(error) => Err(failed(error, socket.unread)),
    }
}

fn ask_at<T>(
    socket: &Path,
    question: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<Result<T, ClientError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let mut client = Client::connect(socket).await?;
        question(&mut client).await
    }))
}

/// Adds advice to an error of a query. An unreadable configuration is a likely reason why no server
/// is found.
fn failed(error: ClientError, unread: Option<SettingsErrors>) -> Failure {
    let hint = error.hint();
    match (&error, unread) {
        (ClientError::NotRunning(_), Some(unread)) => Failure::failed(error).hint(format!(
            "the configuration could not be read, so this is where the server is by default; \
             mend it, or name the socket with --socket or the directory with --data:\n{unread}"
        )),
        (ClientError::NotRunning(_), None) => match &*others() {
            "" => Failure::failed(error).hint(hint),
            others => {
                Failure::failed(error).hint(format!("{hint}; a server of this host is at {others}"))
            }
        },
        (_, _) => Failure::failed(error).hint(hint),
    }
}

/// Returns the control sockets of this host's servers as text.
fn others() -> String {
    let sockets = admin::control_sockets_of_host(settings::CONTROL_SOCKET);
    let sockets: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
    sockets.join(" or ")
}
