//! Plain inputs and outputs of the server. This module does not depend on the server's state.

pub(crate) mod allocate_request;
pub(crate) mod command;
pub(crate) mod event;
pub(crate) mod history;
pub(crate) mod notice;
pub(crate) mod queued_packet;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod responder;
pub(crate) mod route;
pub(crate) mod verdict;
pub(crate) mod worker;

pub(crate) use self::allocate_request::{
    AllocateRequest, AllocationAttributes, RequestedAddresses, without_relay_of,
};
pub(crate) use self::command::{Applicant, Command, TcpCommand, UserQuery};
pub(crate) use self::event::{
    Authorization, ConnectError, Event, IcmpReport, OpenRelayError, UserAnswer,
};
pub(crate) use self::history::{ServedRequests, SessionHistory};
pub(crate) use self::notice::{
    AllocationPeers, AllocationRecord, Budget, EndReason, FAST_PATH_DROPS, ForbiddenPeer, Notice,
    RefusedRequest, ShareHolder, Traffic,
};
pub(crate) use self::queued_packet::QueuedPacket;
pub(crate) use self::refusal::Refusal;
pub(crate) use self::request::{
    Authenticated, Request, SourceAddress, is_request_method, is_understood,
};
pub(crate) use self::responder::{Responder, whole_seconds, write_alternate};
pub(crate) use self::route::{InstalledRoute, Route, RouteId};
pub(crate) use self::verdict::{
    Answer, DropReason, HeaderBuffer, PeerRefusal, ReplyBuffer, Verdict,
};
pub(crate) use self::worker::{
    BindRequest, Fetch, Granted, Promise, Question, RefreshRequest, TicketRefresh, WorkerAnswer,
};
