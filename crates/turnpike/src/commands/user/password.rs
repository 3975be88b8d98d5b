//! Passwords that an operator chooses, or that are generated.

use std::io::Read as _;

use anyhow::anyhow;
use turn_types::Secret;
use user_db::Credentials;

use crate::cli;
use crate::failure::{Failure, OrFail as _, Result};
use crate::users;

/// Maximum number of bytes read as a password: the maximum length, a line break, and one more byte
/// that reveals a longer password.
const PASSWORD_READ_MAX: u64 = user_db::PASSWORD_BYTES_MAX as u64 + 3;

/// Password, and a copy for display if the password was generated.
pub(super) struct Password {
    pub(super) secret: Secret<String>,
    pub(super) generated: Option<String>,
}

impl Password {
    pub(super) fn of(options: cli::Password) -> Result<Self> {
        if let Some(password) = options.password {
            return Ok(Self { secret: chosen(password)?, generated: None });
        }
        if options.password_stdin {
            return Ok(Self { secret: chosen(read_password()?)?, generated: None });
        }
        let made = Credentials::generate()
            .map_err(|error| Failure::failed(anyhow!("no random numbers: {error}")))?;
        let generated = Some(made.password.expose().clone());
        Ok(Self { secret: made.password, generated })
    }
}

/// Checks a password that an operator has chosen. An empty password is refused together with the
/// name, not here.
pub(super) fn chosen(password: String) -> Result<Secret<String>> {
    let password = Secret::new(password);
    users::check_chosen(&password).map_err(|reason| {
        Failure::usage(anyhow!(reason)).hint(
            "leave it out, and one is made; whoever sees a client's packets can try short ones",
        )
    })?;
    Ok(password)
}

fn read_password() -> Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .take(PASSWORD_READ_MAX)
        .read_to_string(&mut text)
        .or_fail("cannot read the password from standard input")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
