//! Authorizer of `[authorizer]`: a web service that is queried about each Allocate request. Workers
//! submit questions without waiting for the answers. Each question in flight is a separate task,
//! and the number of tasks is bounded.

use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use control::{AuthorizationRequest, Authorizer, NoAuthorizer, Request, Workers};
use linux_net::Clock;
use outgoing_http::{Bounds, Client, HttpError, Roots, Url};
use settings::Settings;
use settings::file::WhenSilent;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use turn_proto::{Applicant, Authorization};

use crate::failure::{Failure, OrFail as _, Result};

mod answer;
mod kept;
mod known;
mod late;
mod outage;
mod owed;
mod questions;
mod settling;

pub(crate) use self::answer::Limits;
use self::answer::NoAnswer;
use self::kept::KeptAnswers;
use self::known::KnownClients;
use self::outage::Outage;
use self::owed::{Added, OwedAnswer, OwedAnswers};
use self::questions::{DroppedQuestion, OpenQuestion, Questions};

/// Additional wait for a response after the deadline, unless the question is lost. The question
/// retains its slot during this wait, because the service may still process it. For example, 128
/// questions of 0.9 s each take as long if processed one by one. A late response shows that the
/// service is alive.
const LATE_FOR: Duration = Duration::from_secs(120);

/// Divisor of `answer_within` that defines a prompt answer. A question that is open for longer,
/// without any answer since, triggers questions about known clients.
const PROMPTLY: u32 = 3;

/// Divisor of `answer_within` that defines the pause between unanswered questions about known
/// clients. With this pause the last question can be answered before the deadline of the first.
const NEXT_AFTER: u32 = 8;

/// Interval of checks for questions that have waited too long, or that may be opened because the
/// preceding questions hang.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Status of a service that receives too many questions (RFC 6585 §4).
const TOO_MANY_REQUESTS: u16 = 429;

/// Statuses of a failing service, or of a failing load balancer before the service (RFC 9110
/// §15.6).
const SERVER_ERRORS: RangeInclusive<u16> = 500..=599;

/// Maximum body of an answer, in bytes. An answer has only a few limits.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Service's answer, or the reason for its absence.
type Response = std::result::Result<Authorization, NoAnswer>;

/// Creates the authorizer of a configuration. Must be called within the runtime that will run the
/// questions.
///
/// # Errors
/// A certificate file cannot be read, or the client cannot be built.
pub(crate) fn start(
    settings: &Settings,
    workers: &Workers,
) -> Result<(Arc<dyn Authorizer>, WhenSilentInForce)> {
    let wanted = &settings.authorizer;
    let when_silent = WhenSilentInForce::default();
    when_silent.put_in_force(settings);
    let Some(url) = &wanted.url else { return Ok((Arc::new(NoAuthorizer), when_silent)) };
    let roots = match settings.authorizer_authorities() {
        None => Roots::public(),
        Some(file) => Roots::read(&file).map_err(|error| {
            Failure::failed(anyhow!("authorizer.authorities: {error}"))
                .hint("name a PEM file with the certificates of the authorities")
        })?,
    };
    let header = settings.authorization.as_ref();
    let header = header.map(|text| String::from_utf8_lossy(text.expose()).into_owned());
    let authorizer = WebService {
        handle: Handle::current(),
        asking: Arc::new(Asking {
            client: Client::new(&roots).or_fail("cannot ask the authorizer")?,
            url: Url::parse(url.as_str()).or_fail("authorizer.url")?,
            header,
            answer_within: wanted.answer_within.get(),
            questions: Questions::new(),
            is_watched: AtomicBool::new(false),
            keep_for: wanted.keep_for.get(),
            kept: Mutex::new(KeptAnswers::new()),
            outage: Outage::default(),
            known: KnownClients::default(),
            owed: OwedAnswers::new(),
            is_settling: AtomicBool::new(false),
            when_silent: when_silent.clone(),
            ending: tokio::sync::Mutex::new(()),
            workers: workers.clone(),
        }),
    };
    Ok((Arc::new(authorizer), when_silent))
}

/// True while `authorizer.when_silent` is `serve`. A reload may change the value.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhenSilentInForce(Arc<AtomicBool>);

impl WhenSilentInForce {
    pub(crate) fn put_in_force(&self, settings: &Settings) {
        let serves = settings.authorizer.when_silent == WhenSilent::Serve;
        self.0.store(serves, Ordering::Relaxed);
    }

    fn serves(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Web service that is queried on the control plane's threads.
#[derive(Debug)]
struct WebService {
    handle: Handle,
    asking: Arc<Asking>,
}

#[derive(Debug)]
struct Asking {
    client: Client,
    url: Url,
    /// Value of the `Authorization` header.
    header: Option<String>,
    answer_within: Duration,
    questions: Questions,
    /// True while a task watches the waiting questions.
    is_watched: AtomicBool,
    keep_for: Duration,
    kept: Mutex<KeptAnswers>,
    outage: Outage,
    /// Clients about which the service has answered.
    known: KnownClients,
    /// Clients that were served without an answer.
    owed: OwedAnswers,
    /// True while a task repeats the questions about the clients in `owed`.
    is_settling: AtomicBool,
    /// Value of `authorizer.when_silent` in effect.
    when_silent: WhenSilentInForce,
    /// Held while sessions are closed.
    ending: tokio::sync::Mutex<()>,
    workers: Workers,
}

impl Authorizer for WebService {
    fn ask(&self, request: AuthorizationRequest) -> Option<Authorization> {
        if let Some(kept) = self.asking.kept(&request.applicant) {
            return Some(kept);
        }
        let dropped = self.asking.questions.push(request, Instant::now());
        if let Some(dropped) = dropped {
            self.asking.refuse(dropped);
        }
        let asking = Arc::clone(&self.asking);
        self.handle.spawn(async move {
            asking.open_waiting();
            asking.watch().await;
        });
        None
    }
}

impl Asking {
    /// Returns the stored answer about a client. Workers must not wait for a lock: while the lock
    /// is held, this function returns `None`.
    fn kept(&self, applicant: &Applicant) -> Option<Authorization> {
        if self.keep_for.is_zero() {
            return None;
        }
        match self.kept.try_lock() {
            Ok(kept) => kept.get(applicant, Instant::now()),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }

    /// Starts a task for each waiting question that may be opened.
    fn open_waiting(self: &Arc<Self>) {
        while let Some(next) = self.questions.take(Instant::now()) {
            match next {
                Ok(question) => drop(tokio::spawn(Arc::clone(self).put(question))),
                Err(dropped) => self.refuse(dropped),
            }
        }
    }

    /// Opens waiting questions at intervals until the queue is empty. A client whose question waits
    /// too long gets a response even if no slot becomes free.
    async fn watch(self: &Arc<Self>) {
        while self.questions.has_waiting() && !self.is_watched.swap(true, Ordering::AcqRel) {
            while self.questions.has_waiting() {
                tokio::time::sleep(self.watch_after()).await;
                self.open_waiting();
            }
            self.is_watched.store(false, Ordering::Release);
        }
    }

    /// Returns the time until the next check. With a pace limit the next question follows after a
    /// gap.
    fn watch_after(&self) -> Duration {
        let wait = self.questions.wait(Instant::now());
        if wait.is_zero() { WATCH_EVERY } else { wait.min(WATCH_EVERY) }
    }

    /// Queries the service, posts the answer to the worker, and passes the slot to the next
    /// question.
    async fn put(self: Arc<Self>, question: OpenQuestion) {
        let applicant = question.request.applicant.clone();
        // The service may have answered another question about this client in the meantime.
        if let Some(kept) = self.kept(&applicant) {
            let request = self.questions.withdraw(question);
            self.post(&request, kept);
            return self.open_waiting();
        }
        let opened = Clock::instant();
        let mut response = pin!(self.ask(&applicant));
        let response_in_time = self.wait(&applicant, response.as_mut()).await;
        if matches!(response_in_time, Some(Err(NoAnswer::Failed(_) | NoAnswer::Busy))) {
            self.ask_about_known();
        }
        match response_in_time {
            Some(Err(failure @ (NoAnswer::Failed(_) | NoAnswer::Busy))) if !self.is_silent() => {
                return self.put_back(question, failure).await;
            }
            Some(response) => {
                let answer = self.judge(&applicant, response);
                let request = self.questions.close(question, Instant::now());
                self.post_in_place(&request, answer, opened);
                return self.open_waiting();
            }
            None => {}
        }
        let silence = NoAnswer::Silent(HttpError::TooSlow.to_string());
        let answer = self.judge(&applicant, Err(silence));
        let may_be_served = answer == Authorization::Unavailable;
        let (request, late, lost) = self.questions.miss(question, Instant::now());
        self.post_in_place(&request, answer, opened);
        self.open_waiting();
        let answer = tokio::select! {
            response = response => response.ok(),
            _ = lost => None,
        };
        if let Some(answer) = answer {
            self.outage.answered_late();
            self.owed.settle(&applicant);
            // Stored for the client's next request.
            let answer = self.judge(&applicant, Ok(answer));
            if may_be_served {
                // The question retains its slot until then, which bounds the number of searches.
                self.act_late(&applicant, opened, &answer).await;
            }
        }
        self.questions.close_late(late);
        self.open_waiting();
    }

    /// Waits for a response until the deadline.
    async fn wait(
        self: &Arc<Self>,
        applicant: &Applicant,
        mut response: Pin<&mut impl Future<Output = Response>>,
    ) -> Option<Response> {
        let promptly = self.answer_within / PROMPTLY;
        if let Ok(response) = tokio::time::timeout(promptly, &mut response).await {
            if response.is_ok() {
                self.known.note(applicant);
            }
            return Some(response);
        }
        // The service may have recovered without answering the first repetition.
        let deadline = tokio::time::Instant::now() + (self.answer_within - promptly);
        while tokio::time::Instant::now() < deadline {
            self.ask_about_known();
            let next = deadline.min(tokio::time::Instant::now() + known::interval(promptly));
            if let Ok(response) = tokio::time::timeout_at(next, &mut response).await {
                return Some(response);
            }
        }
        None
    }

    /// Repeats questions about known clients, outside the window of open questions, if no recent
    /// answer exists. An answer shows that the service is silent only for particular clients.
    fn ask_about_known(self: &Arc<Self>) {
        let promptly = self.answer_within / PROMPTLY;
        // An older answer would have expired by the deadline of the open question.
        let is_answered = move |asking: &Self| asking.outage.has_answered_within(promptly / 2);
        if is_answered(self) {
            return;
        }
        let Some((clients, pause)) = self.known.take(Instant::now(), promptly) else { return };
        let asking = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            if !is_answered(&asking) {
                let mut open = JoinSet::new();
                for client in clients {
                    open.spawn(Arc::clone(&asking).ask_about(client));
                    // The service may process questions one by one, and lack time for more.
                    let pause = asking.answer_within / NEXT_AFTER;
                    let answered = tokio::time::timeout(pause, open.join_next()).await;
                    if matches!(answered, Ok(Some(Ok(true)))) || is_answered(&asking) {
                        break;
                    }
                }
                while !is_answered(&asking) && open.join_next().await.is_some() {}
                open.detach_all();
            }
            asking.known.end();
        });
    }

    /// Repeats the question about a known client. Returns true if the service answered in time.
    async fn ask_about(self: Arc<Self>, applicant: Applicant) -> bool {
        match tokio::time::timeout(self.answer_within, self.ask(&applicant)).await {
            Ok(Ok(answer)) => {
                drop(self.judge(&applicant, Ok(answer)));
                true
            }
            // The service is not silent: for example, it has deleted the account.
            Ok(Err(NoAnswer::Unusable(_))) => {
                self.outage.answered();
                true
            }
            // Clients remain known in an outage.
            Ok(Err(_)) => false,
            Err(_) => {
                if self.outage.has_answered_within(self.answer_within) {
                    self.known.forget(&applicant);
                }
                false
            }
        }
    }

    /// Repeats a question after a failure, when other waiting questions have been asked.
    async fn put_back(self: &Arc<Self>, question: OpenQuestion, failure: NoAnswer) {
        let (pause, dropped) = self.questions.put_back(question, failure, Instant::now());
        if let Some(dropped) = dropped {
            self.refuse(dropped);
        }
        tokio::time::sleep(pause).await;
        self.open_waiting();
        // Other questions may have taken its slot.
        self.watch().await;
    }

    /// Returns true in an outage: the service fails, and has made no decision within the deadline.
    fn is_silent(&self) -> bool {
        self.outage.is_silent_for(self.answer_within)
    }

    /// Responds to the client of a question that was removed from the queue.
    fn refuse(self: &Arc<Self>, dropped: DroppedQuestion) {
        match dropped {
            DroppedQuestion::Late(request, failure) => {
                let answer = self.judge(&request.applicant, Err(failure));
                self.post_in_place(&request, answer, Clock::instant());
            }
            DroppedQuestion::Crowded(request) => {
                self.outage.overloaded();
                self.post(&request, Authorization::Overloaded);
            }
        }
    }

    /// Posts a decision made without an answer. The questions about a client that is served by this
    /// decision are repeated until the service answers. If the table of such clients is full, the
    /// client is refused.
    fn post_in_place(
        self: &Arc<Self>,
        request: &AuthorizationRequest,
        answer: Authorization,
        opened: turn_types::Instant,
    ) {
        if answer != Authorization::Unavailable || !self.when_silent.serves() {
            return self.post(request, answer);
        }
        let applicant = request.applicant.clone();
        let added = self.owed.add(OwedAnswer { applicant, opened, lost: 0 }, Instant::now());
        if matches!(added, Added::Full) {
            self.outage.overloaded();
            return self.post(request, Authorization::Overloaded);
        }
        self.post(request, answer);
        let asking = Arc::clone(self);
        tokio::spawn(async move {
            if let Added::InPlaceOf(dropped) = added {
                asking.end_sessions(&dropped.applicant, dropped.opened).await;
            }
            asking.start_settling();
        });
    }

    fn post(&self, request: &AuthorizationRequest, answer: Authorization) {
        let AuthorizationRequest { worker, pending, .. } = *request;
        let mailbox = self.workers.mailbox(worker);
        let posted = mailbox.map(|mailbox| mailbox.post(Request::Authorized { pending, answer }));
        if let Some(Err(error)) = posted {
            tracing::debug!(worker = worker.0, %error, "the authorizer answered in vain");
        }
    }

    /// Returns the decision for a response, or for the absence of a response.
    fn judge(&self, applicant: &Applicant, response: Response) -> Authorization {
        let is_alive = || self.outage.has_answered_within(self.answer_within);
        match response {
            Ok(answer) => {
                self.outage.answered();
                if !self.keep_for.is_zero()
                    && let Ok(mut kept) = self.kept.lock()
                {
                    let now = Instant::now();
                    kept.put(applicant, answer.clone(), now, now + self.keep_for);
                }
                answer
            }
            Err(NoAnswer::Unsent) if self.is_silent() && !self.outage.is_slow() => {
                Authorization::Unavailable
            }
            // The service has answered other questions, or answers late: it has more questions than
            // it can answer in time.
            Err(NoAnswer::Silent(why)) if is_alive() || self.outage.is_slow() => {
                self.outage.late(&why);
                Authorization::Overloaded
            }
            Err(NoAnswer::Busy) => {
                self.outage.busy();
                Authorization::Overloaded
            }
            Err(NoAnswer::Unsent) => {
                self.outage.overloaded();
                Authorization::Overloaded
            }
            Err(NoAnswer::Silent(why) | NoAnswer::Failed(why)) if !is_alive() => {
                self.outage.failed(&why);
                Authorization::Unavailable
            }
            // A service with unusable answers, or with occasional failures, serves no client.
            Err(NoAnswer::Unusable(why) | NoAnswer::Silent(why) | NoAnswer::Failed(why)) => {
                self.outage.unusable(&why);
                Authorization::Unusable
            }
        }
    }

    async fn ask(&self, applicant: &Applicant) -> Response {
        let headers: Vec<_> =
            self.header.iter().map(|value| ("authorization", value.as_str())).collect();
        let body = answer::question(applicant);
        let bounds = Bounds { deadline: self.answer_within + LATE_FOR, body: ANSWER_BYTES_MAX };
        let posted = self.client.post_json(&self.url, &headers, body, bounds).await;
        let response = posted.map_err(|error| {
            let reason = match error {
                HttpError::TooSlow => NoAnswer::Silent,
                HttpError::Unreachable(_) | HttpError::BrokenOff(_) => NoAnswer::Failed,
                HttpError::TooLarge(_)
                | HttpError::Status(_)
                | HttpError::Header(_)
                | HttpError::Tls(_) => NoAnswer::Unusable,
            };
            reason(error.to_string())
        })?;
        answer::read(response.status, &response.body).map_err(|why| match response.status {
            TOO_MANY_REQUESTS => NoAnswer::Busy,
            status if SERVER_ERRORS.contains(&status) => NoAnswer::Failed(why),
            _ => NoAnswer::Unusable(why),
        })
    }
}

#[cfg(test)]
mod tests;
