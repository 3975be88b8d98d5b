//! The authorizer of `[authorizer]`: a web service that is asked about each Allocate. Workers put
//! questions and go on; each is a task of its own, and their number is bounded.

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
/// keeps its slot: the service may still work on it, and 128 questions of 0.9 s each take as long.
/// A late response shows that the service is alive.
const LATE_FOR: Duration = Duration::from_secs(120);

/// Part of the time for an answer in which the service answers promptly, as a divisor. A question
/// that is older, without any answer since, is a reason to ask about known clients.
const PROMPTLY: u32 = 3;

/// Pause between questions about known clients without an answer so far, as a part of the time for
/// an answer: the last one has time for its answer before the deadline of the first question.
const NEXT_AFTER: u32 = 8;

/// Interval of the search for questions that have waited too long, or that may be open because
/// those before them hang.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// Status of a service that gets too many questions (RFC 6585 §4).
const TOO_MANY_REQUESTS: u16 = 429;

/// Statuses of a service, or a load balancer before it, that fails (RFC 9110 §15.6).
const SERVER_ERRORS: RangeInclusive<u16> = 500..=599;

/// Largest body of an answer, in bytes: a few limits.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Decision of the service, or its absence.
type Response = std::result::Result<Authorization, NoAnswer>;

/// The authorizer of a configuration. Called within the runtime on which it will ask.
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

/// True while `authorizer.when_silent` serves clients: a reload may change it.
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

/// A web service, asked on the control plane's threads.
#[derive(Debug)]
struct WebService {
    handle: Handle,
    asking: Arc<Asking>,
}

#[derive(Debug)]
struct Asking {
    client: Client,
    url: Url,
    /// The value of `Authorization`.
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
    /// True while a task asks about them.
    is_settling: AtomicBool,
    /// The value of `authorizer.when_silent`.
    when_silent: WhenSilentInForce,
    /// Held while sessions are ended.
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
    /// The kept answer about a client. A worker waits for no lock: while it is taken there is none.
    fn kept(&self, applicant: &Applicant) -> Option<Authorization> {
        if self.keep_for.is_zero() {
            return None;
        }
        match self.kept.try_lock() {
            Ok(kept) => kept.get(applicant, Instant::now()),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }

    /// Starts a task for each waiting question that may be open.
    fn open_waiting(self: &Arc<Self>) {
        while let Some(next) = self.questions.take(Instant::now()) {
            match next {
                Ok(question) => drop(tokio::spawn(Arc::clone(self).put(question))),
                Err(dropped) => self.refuse(dropped),
            }
        }
    }

    /// Watches the waiting questions until the queue is empty: a client whose question waits too
    /// long gets a response even if no slot becomes free.
    async fn watch(self: &Arc<Self>) {
        while self.questions.has_waiting() && !self.is_watched.swap(true, Ordering::AcqRel) {
            while self.questions.has_waiting() {
                tokio::time::sleep(self.watch_after()).await;
                self.open_waiting();
            }
            self.is_watched.store(false, Ordering::Release);
        }
    }

    /// Time of the next search: in a pace the next question follows after a gap.
    fn watch_after(&self) -> Duration {
        let wait = self.questions.wait(Instant::now());
        if wait.is_zero() { WATCH_EVERY } else { wait.min(WATCH_EVERY) }
    }

    /// Asks the service, posts the answer, and passes the slot on.
    async fn put(self: Arc<Self>, question: OpenQuestion) {
        let applicant = question.request.applicant.clone();
        // Another question about the same client may have a response by now.
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
            // For the client's next request.
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
        // The service may be back after a moment, and has not answered the first repetition.
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

    /// Repeats questions about known clients, outside the window, without a recent answer: an
    /// answer shows that the service is silent for single clients only.
    fn ask_about_known(self: &Arc<Self>) {
        let promptly = self.answer_within / PROMPTLY;
        // An older answer would be too old at the deadline of the open question.
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
                    // The service may be serial, and have no time for more.
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

    /// Repeats the question about a known client. Returns true with an answer in time.
    async fn ask_about(self: Arc<Self>, applicant: Applicant) -> bool {
        match tokio::time::timeout(self.answer_within, self.ask(&applicant)).await {
            Ok(Ok(answer)) => {
                drop(self.judge(&applicant, Ok(answer)));
                true
            }
            // It is not silent, as a web server that knows an account no more.
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

    /// Repeats a question after a failure, when the questions of others had their turn.
    async fn put_back(self: &Arc<Self>, question: OpenQuestion, failure: NoAnswer) {
        let (pause, dropped) = self.questions.put_back(question, failure, Instant::now());
        if let Some(dropped) = dropped {
            self.refuse(dropped);
        }
        tokio::time::sleep(pause).await;
        self.open_waiting();
        // Others may have been taken in its place.
        self.watch().await;
    }

    /// Returns true in an outage: the service fails, without a decision within the deadline.
    fn is_silent(&self) -> bool {
        self.outage.is_silent_for(self.answer_within)
    }

    /// Responds to the client of a question removed from the queue.
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

    /// Posts a decision in place of an answer. A client that is served thereby is asked about again
    /// until there is an answer, or refused if there is no space for it.
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

    /// Decision of a response to a question, or of its absence.
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
            // The service has answered other questions, or answers late: it has more than it serves
            // in time.
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
            // A service that is misunderstood, or fails at times, serves no client.
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
