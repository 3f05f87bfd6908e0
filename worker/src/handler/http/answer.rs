//! What an agent service's answer means. The table is in `docs/http-agents.md`.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use tidemill_common::spend::{Spend, parse_usd};

use super::Outcome;
use super::guard::Refused;
use crate::handler::text::{self, EXCERPT_BYTES_MAX};

/// How long a task waits when it is told "not now" and not until when.
const THROTTLED_DEFAULT: Duration = Duration::from_secs(1);
/// The shortest wait, whatever a service says: `Retry-After: 0` would make a busy loop of two machines.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// How long the body of an error may take: the status stands, its text is an extra.
const EXCERPT_WITHIN: Duration = Duration::from_secs(1);

/// Reads an answer to its end, of a success at most `most` bytes.
pub(super) async fn outcome(response: Response, most: usize) -> Outcome {
    let status = response.status();
    if status.is_success() {
        return match body(response, most).await {
            Ok(body) => Outcome::Done(body),
            Err(outcome) => outcome,
        };
    }
    let wait = wait(response.headers(), SystemTime::now()).map(|wait| wait.max(WAIT_MIN));
    if status.is_redirection() {
        return Outcome::dead(format!("{}: redirects are not followed", name(status)));
    }
    let said = excerpt_of(response).await;
    let error = if said.is_empty() { name(status) } else { format!("{}: {said}", name(status)) };
    match (status, wait) {
        (StatusCode::TOO_MANY_REQUESTS, wait) => Outcome::Throttled { error, until: wait.unwrap_or(THROTTLED_DEFAULT) },
        (StatusCode::SERVICE_UNAVAILABLE, Some(until)) => Outcome::Throttled { error, until },
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY, after) => Outcome::Retry { error, after },
        (status, after) if status.is_server_error() => Outcome::Retry { error, after },
        _ => Outcome::Dead { reason: error },
    }
}

/// What a call means that brought no answer: a refusal is for good, and all else may be better the next time.
pub(super) fn failed(error: &reqwest::Error) -> Outcome {
    let causes = || std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<Refused>()) {
        return Outcome::dead(refused.to_string());
    }
    let what = if error.is_connect() { "cannot connect" } else { "the call broke off" };
    // The first says nothing but "error sending request" and the URL, which may hold a secret.
    let causes: Vec<String> = causes().skip(1).map(ToString::to_string).collect();
    Outcome::retry(format!("{what}: {}", text::beginning(causes.join(": ").as_bytes())))
}

fn name(status: StatusCode) -> String {
    // Not the reason that was sent: that is a stranger's text.
    format!("HTTP {} {}", status.as_u16(), status.canonical_reason().unwrap_or_default()).trim_end().to_owned()
}

async fn body(mut response: Response, most: usize) -> Result<Bytes, Outcome> {
    let too_large = || Outcome::dead(format!("the response is too large: more than {most} bytes"));
    let declared = response.content_length().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if declared > most {
        return Err(too_large());
    }
    let mut body = BytesMut::with_capacity(declared);
    while let Some(part) = response.chunk().await.map_err(|error| failed(&error))? {
        if body.len() + part.len() > most {
            return Err(too_large());
        }
        body.extend_from_slice(&part);
    }
    Ok(body.freeze())
}

async fn excerpt_of(mut response: Response) -> String {
    let mut start = Vec::new();
    let read = async {
        while start.len() <= EXCERPT_BYTES_MAX
            && let Ok(Some(part)) = response.chunk().await
        {
            start.extend_from_slice(&part[..part.len().min(4 * EXCERPT_BYTES_MAX)]);
        }
    };
    let _ = tokio::time::timeout(EXCERPT_WITHIN, read).await;
    text::beginning(&start)
}

/// What the call has used, whatever came of it: `Tidemill-Tokens` and `Tidemill-Cost-Usd`. What is no amount is passed over, with a
/// warning: the answer itself stands.
pub(super) fn used(headers: &HeaderMap) -> Option<Spend> {
    let line = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let read = |name: &str, parse: fn(&str) -> Result<u64, String>| {
        let parsed = line(name).map(parse)?;
        parsed.inspect_err(|error| tracing::warn!(header = name, %error, "what the call used is not counted")).ok()
    };
    let tokens = read("tidemill-tokens", |text| text.parse().map_err(|_| format!("{text:?} is no number of tokens")));
    let micro_usd = read("tidemill-cost-usd", parse_usd);
    let used = Spend { tokens: tokens.unwrap_or(0), micro_usd: micro_usd.unwrap_or(0) };
    (tokens.is_some() || micro_usd.is_some()).then(|| Spend::default().and(used))
}

/// `retry-after-ms`, or `Retry-After` in seconds or as a date. A date is compared with the answer's own `Date`, so that two clocks
/// that differ do no harm.
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let line = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = line("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(ms));
    }
    let after = line(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(after).ok()?;
    let now = line(DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_in_all_their_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |lines: &[(&'static str, &'static str)]| {
            wait(&lines.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect(), now)
        };
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("retry-after", "120")]), seconds(120));
        assert_eq!(read(&[("retry-after", "0")]), seconds(0));
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]), seconds(10));
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")]), seconds(0), "past");
        let own = [("retry-after", "Sun, 06 Nov 1994 09:49:40 GMT"), ("date", "Sun, 06 Nov 1994 09:49:37 GMT")];
        assert_eq!(read(&own), seconds(3), "their clock is an hour ahead");
        assert_eq!(read(&[("retry-after-ms", "250"), ("retry-after", "9")]), Some(Duration::from_millis(250)));
        assert_eq!(read(&[("retry-after-ms", "soon"), ("retry-after", "9")]), seconds(9));
        assert_eq!(read(&[("retry-after", "-5")]), None);
        assert_eq!(read(&[("retry-after", "tomorrow")]), None);
    }
}
