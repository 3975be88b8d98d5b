//! Failures between a client and its server, with advice.

use std::error::Error;
use std::fmt;

use linux_net::SocketError;
use turn_client::{Event, Failure, LossReason, RequestError, RequestKind};

/// A failed request, or a lost allocation or channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// The server refused a request.
    Refused {
        /// The request.
        request: RequestKind,
        /// The error code, 300..=699.
        code: u16,
        /// The server's reason phrase.
        reason: String,
    },
    /// A request failed without an authentic answer.
    Failed {
        /// The request.
        request: RequestKind,
        /// The reason.
        failure: Failure,
    },
    /// The allocation was lost.
    AllocationLost(LossReason),
    /// The channel, or its permission, was lost.
    ChannelLost,
    /// The server redirected the client (ALTERNATE-SERVER).
    Redirected,
    /// ICMP: the server is unreachable.
    Unreachable(SocketError),
    /// The connection to the server failed, with the reason.
    Connection(String),
    /// The client refused the request.
    Client(RequestError),
}

impl SessionError {
    /// The error of an event while a client is set up. A failed request is one.
    #[must_use]
    pub fn at_setup(event: Event) -> Option<Self> {
        match event {
            Event::Refused { request, code, reason } => {
                Some(Self::Refused { request, code, reason })
            }
            Event::Failed { request, failure } => Some(Self::Failed { request, failure }),
            Event::Redirected { .. } => Some(Self::Redirected),
            Event::AllocationLost(_) | Event::ChannelLost { .. } | Event::PermissionLost { .. } => {
                Self::at_runtime(&event)
            }
            Event::Bound { .. }
            | Event::Allocated(_)
            | Event::Refreshed { .. }
            | Event::PermissionReady { .. }
            | Event::ChannelReady { .. }
            | Event::Released => None,
        }
    }

    /// The error of an event during a run. A failed request is none yet: the client tries again
    /// while there is time.
    #[must_use]
    pub const fn at_runtime(event: &Event) -> Option<Self> {
        match event {
            Event::AllocationLost(reason) => Some(Self::AllocationLost(*reason)),
            Event::ChannelLost { .. } | Event::PermissionLost { .. } => Some(Self::ChannelLost),
            Event::Bound { .. }
            | Event::Allocated(_)
            | Event::Refreshed { .. }
            | Event::PermissionReady { .. }
            | Event::ChannelReady { .. }
            | Event::Redirected { .. }
            | Event::Refused { .. }
            | Event::Failed { .. }
            | Event::Released => None,
        }
    }

    /// Advice for the operator of the measurement.
    #[must_use]
    pub const fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Refused { request, code, .. } => refusal(*request, *code),
            Self::Failed { failure, .. } => failed(*failure),
            Self::AllocationLost(LossReason::Mismatch) => {
                Some("the server was restarted, or a NAT on the way changed the client's address")
            }
            Self::AllocationLost(LossReason::Expired) | Self::ChannelLost => {
                Some("refreshes got no answer: the server, or the way to it, was overloaded")
            }
            Self::Redirected => Some("measure the other server, or turn redirection off"),
            Self::Unreachable(_) => Some(
                "is the server running, and does it listen on this address? does a firewall \
                 refuse UDP there?",
            ),
            Self::Connection(_) => Some(
                "is the server running, and does it serve this transport at this address and port? \
                 how many connections does it take, of one address too (turnpike: tcp.connections, \
                 tcp.connections_per_address)?",
            ),
            Self::Client(_) => None,
        }
    }
}

const fn refusal(request: RequestKind, code: u16) -> Option<&'static str> {
    match (request, code) {
        (_, 401 | 441) => Some(
            "user or password is wrong; with --secret: the secret is not the server's, or the \
             clocks of the two hosts differ",
        ),
        (RequestKind::ChannelBind(..) | RequestKind::CreatePermission(_), 403) => Some(
            "the server's rules forbid the peer's address: allow it (turnpike: peers.allow; \
             coturn: allowed-peer-ip, and allow-loopback-peers for 127.0.0.1)",
        ),
        (_, 403) => Some("the server's rules forbid this user or this client to relay"),
        (_, 437) => Some("the server still holds an allocation of an earlier client of this port"),
        (_, 440) => Some(
            "the server relays for no address of the peer's family (turnpike: relay.addresses; \
             coturn: relay-ip)",
        ),
        (_, 443) => Some("the allocation is not of the peer's family"),
        (_, 486) => Some(
            "a quota is full: raise it (turnpike: quotas.allocations_per_user; coturn: user-quota \
             and total-quota), or give each client a user of its own (a % in --user)",
        ),
        (_, 508) => Some(
            "the server has no more ports or descriptors: widen its relay ports (turnpike: \
             relay.ports; coturn: min-port and max-port), raise its limit of open files, or ask \
             for fewer sessions",
        ),
        _ => None,
    }
}

const fn failed(failure: Failure) -> Option<&'static str> {
    match failure {
        Failure::TimedOut => Some(
            "is the address right? does a firewall drop UDP? with many clients at a time the \
             server may answer too few of them: lower --in-flight, and see whether it limits \
             unauthenticated responses (turnpike: quotas.unauthenticated_responses_per_second)",
        ),
        Failure::IntegrityViolated | Failure::Credentials => {
            Some("user or password is wrong, or cannot be used")
        }
        Failure::BidDown
        | Failure::NoAlgorithm
        | Failure::TooManyChallenges
        | Failure::Redirect
        | Failure::Malformed => Some("the server's log may tell more"),
    }
}

/// One line, short enough to count failures by.
impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { request, code, reason } => {
                write!(f, "{}: {code} {reason}", name(*request))
            }
            Self::Failed { request, failure } => {
                write!(f, "{}: {}", name(*request), describe(*failure))
            }
            Self::AllocationLost(_) => f.write_str("the allocation was lost"),
            Self::ChannelLost => f.write_str("the channel was lost"),
            Self::Redirected => f.write_str("sent to another server"),
            Self::Unreachable(error) => {
                let reason = std::io::Error::from_raw_os_error(error.errno);
                write!(f, "{} is unreachable: {reason}", error.peer)
            }
            Self::Connection(why) => write!(f, "the connection: {why}"),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl Error for SessionError {}

impl From<RequestError> for SessionError {
    fn from(error: RequestError) -> Self {
        Self::Client(error)
    }
}

const fn name(request: RequestKind) -> &'static str {
    match request {
        RequestKind::Binding => "Binding",
        RequestKind::Allocate => "Allocate",
        RequestKind::Refresh => "Refresh",
        RequestKind::CreatePermission(_) => "CreatePermission",
        RequestKind::ChannelBind(..) => "ChannelBind",
    }
}

const fn describe(failure: Failure) -> &'static str {
    match failure {
        Failure::TimedOut => "no answer",
        Failure::IntegrityViolated => "answers that are not the server's, or a wrong password",
        Failure::BidDown => "a nonce that promises password algorithms, and none of them",
        Failure::NoAlgorithm => "no password algorithm that we have",
        Failure::Credentials => "credentials that cannot be used",
        Failure::TooManyChallenges => "one challenge after the other",
        Failure::Redirect => "sent to another server in vain",
        Failure::Malformed => "an answer that cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_the_servers_words_and_what_to_do() {
        let event = Event::Refused {
            request: RequestKind::Allocate,
            code: 486,
            reason: "Allocation Quota Reached".to_owned(),
        };
        let error = SessionError::at_setup(event).unwrap();
        assert_eq!(error.to_string(), "Allocate: 486 Allocation Quota Reached");
        assert!(error.advice().unwrap().contains("quotas.allocations_per_user"));
    }

    #[test]
    fn a_refused_refresh_is_no_error_before_the_allocation_is_gone() {
        let refused = Event::Refused {
            request: RequestKind::Refresh,
            code: 500,
            reason: "Server Error".to_owned(),
        };
        assert_eq!(SessionError::at_runtime(&refused), None);
        let lost = Event::AllocationLost(LossReason::Expired);
        assert!(SessionError::at_runtime(&lost).is_some());
    }
}
