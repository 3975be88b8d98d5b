//! `turnpike keep`: retains the calls of a server for its successor after a crash.

use admin::{AccessError, Other, UnixSocket};
use tracing::level_filters::LevelFilter;

use crate::cli::PathOptions;
use crate::confinement;
use crate::failure::{Failure, Result};
use crate::logging::{self, LogFormat, LogTarget};
use crate::{handover, paths};

pub(crate) fn run(paths: &PathOptions) -> Result<()> {
    // The keeper needs the same number of descriptors as the server. If copies of sockets exceed
    // the limit, the failure is reported later.
    let _ = linux_net::raise_open_files();
    let socket = handover::keeper_socket(&paths::control_socket(paths).path);
    let bound = UnixSocket::waiting(&socket, Other::Stays).map_err(|error| {
        let is_there = matches!(error, AccessError::InUse(_));
        let advice =
            "run it as the user that the server runs as, with the same --config and --data";
        Failure::failed(error).hint(if is_there { "another keeper is there" } else { advice })
    })?;
    // The socket's file is removed when the process exits.
    let (listener, _file) = bound;
    let (warnings, _files) = confinement::confine_keeper()?;
    // The thread that writes log lines must start before the process drops its capabilities.
    let _level = confinement::without_capabilities(|| {
        logging::start(LogFormat::Text, LevelFilter::INFO, &LogTarget::default())
    })?
    .map_err(Failure::failed)?;
    confinement::give_up_all_capabilities()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!("waiting for a server at {}", socket.display());
    handover::keep(&listener);
    Ok(())
}
