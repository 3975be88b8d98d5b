//! The page of all reasons.

use std::fmt::Write as _;

use control::reasons::{Subject, of};

const HEAD: &str = "\
# Reasons

Every refusal, drop and end has one reason. Its name is the same in the log (`reason=`), in the metrics (label
`reason`, see [Metrics](metrics.md)), in `turnpike status` and in its JSON. Where no advice is given nothing is to be
done.
";

/// The page of all reasons, for `docs/operate/reasons.md`.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for &subject in Subject::ALL {
        // A string takes everything.
        let _ = write!(page, "\n## {}\n\n", heading(subject));
        let coded = subject == Subject::Request;
        page.push_str(if coded {
            "| reason | STUN code | meaning | advice |\n|---|---|---|---|\n"
        } else {
            "| reason | meaning | advice |\n|---|---|---|\n"
        });
        for reason in of(subject) {
            let code =
                reason.code.filter(|_| coded).map_or_else(String::new, |code| format!(" {code} |"));
            let _ = writeln!(
                page,
                "| `{}` |{code} {} | {} |",
                reason.name, reason.meaning, reason.advice
            );
        }
    }
    page
}

const fn heading(subject: Subject) -> &'static str {
    match subject {
        Subject::Request => "Refused requests (`turnpike_refusals_total`)",
        Subject::Packet => "Dropped packets (`turnpike_drops_total`)",
        Subject::Allocation => "Ended allocations (`turnpike_allocations_ended_total`)",
        Subject::ConnectionRefused => {
            "Connections of clients not accepted (`turnpike_connections_refused_total`)"
        }
        Subject::Connection => "Ended connections of clients (`turnpike_connections_ended_total`)",
        Subject::SessionRefused => {
            "DTLS sessions that did not begin (`turnpike_dtls_sessions_refused_total`)"
        }
        Subject::Session => "Ended DTLS sessions (`turnpike_dtls_sessions_ended_total`)",
        Subject::Peer => {
            "Connections of peers not accepted (`turnpike_peer_connections_refused_total`)"
        }
    }
}
