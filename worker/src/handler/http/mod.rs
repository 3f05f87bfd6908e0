//! Agents behind HTTP: each task is a POST to a service, and its status says what becomes of the task.
//!
//! Request, answers and an example service are in `docs/http-agents.md`.
//!
//! - *It guarantees* that a run which is cut short has no request behind it: dropping the future closes the connection. That a call
//!   takes no longer than the task has, whatever the service does. That nothing of an answer is kept but a success' body, and of a
//!   failure a printable excerpt.
//! - *It refuses* to connect to an address that is not public, unless it was allowed ([`HttpOptions::allow_private`]): the address,
//!   and not the name, is looked at, in the moment of the connect. It follows no redirect, and asks no proxy.
//! - *On a crash* of the worker the service may have done the work, and nobody knows: the next run sends the same
//!   `Idempotency-Key` and a larger fence.

mod answer;
mod guard;
mod request;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_guard;

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Url, redirect, retry};

use super::{Context, Handler, Outcome, Running};
use guard::{Guard, LookUp, Resolver};

/// Longest wait for a connection, unless the configuration says otherwise.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Largest response that is taken, in bytes: what is kept of a result.
pub const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// How long an unused connection is kept: less than the 5 s after which common servers close theirs, since a call that meets that
/// moment fails.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// How to call an agent service.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// Where tasks are sent: `http` or `https`, without user and password.
    pub url: String,
    /// Headers of each request; for secrets too, so they are never shown.
    pub headers: BTreeMap<String, String>,
    /// Longest wait for a connection, look-up and TLS included.
    pub connect_timeout: Duration,
    /// Longest call, from look-up to the last byte; none: as long as the task has. Never longer than that.
    pub call_timeout: Option<Duration>,
    /// Largest response, in bytes; a task whose response is larger is dead. At most [`RESPONSE_BYTES_MAX`].
    pub response_bytes_max: usize,
    /// What may be reached although it is not public: networks (`10.1.0.0/16`, `::1`), or the URL's own `host:port`, wherever that
    /// is.
    pub allow_private: Vec<String>,
}

impl std::fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why an agent cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// All mistakes of the options; each begins with the name of its field.
    #[error("the agent's options are wrong: {}", .0.join("; "))]
    Options(Vec<String>),
    /// There can be no client here; for `https`, perhaps since this machine has no root certificates.
    #[error("no HTTP client can be made: {0}")]
    Client(String),
}

impl HttpOptions {
    /// Defaults for a service: five seconds to connect, as long as the task has to answer, no private address.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: BTreeMap::new(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: None,
            response_bytes_max: RESPONSE_BYTES_MAX,
            allow_private: Vec::new(),
        }
    }

    /// All that is wrong, and that would fail each task: the field's name, and what it is. Looks nothing up.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut wrong = self.plan().err().unwrap_or_default();
        for (key, time) in [("connect_timeout", Some(self.connect_timeout)), ("call_timeout", self.call_timeout)] {
            if time == Some(Duration::ZERO) {
                wrong.push(format!("{key}: must be above zero"));
            }
        }
        if let Some(call) = self.call_timeout.filter(|call| self.connect_timeout > *call) {
            let connect = self.connect_timeout;
            wrong.push(format!(
                "connect_timeout: {connect:?} is more than call_timeout, {call:?}, of which it is a part"
            ));
        }
        if !(1..=RESPONSE_BYTES_MAX).contains(&self.response_bytes_max) {
            wrong.push(format!("response_bytes_max: must be 1 to {RESPONSE_BYTES_MAX}"));
        }
        wrong
    }

    fn plan(&self) -> Result<Plan, Vec<String>> {
        let mut wrong = Vec::new();
        let url = read_url(&self.url).map_err(|what| wrong.push(format!("url: {what}"))).ok();
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            match request::fixed(name, value) {
                Ok((name, value)) => drop(headers.insert(name, value)),
                Err(what) => wrong.push(what),
            }
        }
        let guard = Guard::new(&self.allow_private, url.as_ref()).map_err(|what| wrong.extend(what)).ok();
        if let (Some(url), Some(guard)) = (&url, &guard)
            && let Err(refused) = guard.judge_url(url)
        {
            wrong.push(format!("url: {refused}"));
        }
        match (url, guard) {
            (Some(url), Some(guard)) if wrong.is_empty() => Ok(Plan { url, headers, guard }),
            _ => Err(wrong),
        }
    }
}

fn read_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("begins with {}:, and only http: and https: are called", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or password; give a header, for instance Authorization".to_owned());
    }
    Ok(url)
}

/// Options that were read.
struct Plan {
    url: Url,
    headers: HeaderMap,
    guard: Guard,
}

/// A handler that sends each task to a service. It has one client: connections are kept for a few seconds and used again.
#[derive(Debug)]
pub struct HttpAgent {
    client: Client,
    url: Url,
    headers: HeaderMap,
    call_timeout: Option<Duration>,
    response_bytes_max: usize,
}

impl HttpAgent {
    /// An agent with these options. Nothing is connected or looked up yet.
    ///
    /// For TLS, the process' default cryptography of rustls becomes `ring`, if nobody has set another.
    ///
    /// # Errors
    /// [`HttpError::Options`] with all mistakes, or [`HttpError::Client`].
    pub fn new(options: &HttpOptions) -> Result<Self, HttpError> {
        let wrong = options.check();
        if !wrong.is_empty() {
            return Err(HttpError::Options(wrong));
        }
        Self::build(options, options.plan().map_err(HttpError::Options)?, guard::system())
    }

    fn build(options: &HttpOptions, plan: Plan, look_up: LookUp) -> Result<Self, HttpError> {
        // An error means that somebody was faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .user_agent(concat!("tidemill-worker/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .connect_timeout(options.connect_timeout)
            .pool_idle_timeout(IDLE_FOR)
            .dns_resolver(Resolver { guard: plan.guard, look_up });
        if plan.url.scheme() == "http" {
            // No certificate is ever looked at, so a machine without any will do.
            client = client.tls_certs_only([]);
        }
        Ok(Self {
            client: client.build().map_err(|error| HttpError::Client(said(&error)))?,
            url: plan.url,
            headers: plan.headers,
            call_timeout: options.call_timeout,
            response_bytes_max: options.response_bytes_max,
        })
    }

    async fn call(&self, context: &Context, limit: Duration) -> Outcome {
        let headers = request::headers(&self.headers, context, limit);
        let request = self.client.post(self.url.clone()).headers(headers).body(context.payload().clone());
        match request.send().await {
            Ok(response) => {
                if let Some(used) = answer::used(response.headers()) {
                    context.spend(used);
                }
                answer::outcome(response, self.response_bytes_max).await
            }
            Err(error) => answer::failed(&error),
        }
    }
}

/// An error with its causes.
fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Handler for HttpAgent {
    /// Does not look at [`Context::cancelled`]: in the moment that it has left the answer may still come, and count.
    fn run(&self, context: Context) -> Running<'_> {
        Box::pin(async move {
            let left = context.remaining();
            let limit = Duration::from_millis(
                u64::try_from(self.call_timeout.map_or(left, |most| most.min(left)).as_millis()).unwrap_or(u64::MAX),
            );
            if limit.is_zero() {
                return Outcome::retry("no time is left for a call");
            }
            match tokio::time::timeout(limit, self.call(&context, limit)).await {
                Ok(outcome) => outcome,
                Err(_) => Outcome::retry(format!("no answer within {limit:?}")),
            }
        })
    }
}
