//! What an agent service is sent.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::de::IgnoredAny;

use super::Context;
use crate::handler::text::encoded;

/// Headers that say what only we can say: they cannot be configured.
const OURS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
];
/// What the names of our own begin with.
const PREFIX: &str = "tidemill-";

/// Reads a configured header. Its value is never shown.
///
/// # Errors
/// What is wrong with it.
pub(super) fn fixed(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed: HeaderName = name.parse().map_err(|_| format!("headers: {name:?} is no name of a header"))?;
    if OURS.contains(&parsed.as_str()) || parsed.as_str().starts_with(PREFIX) {
        return Err(format!("headers.{name}: is set by the worker itself"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("headers.{name}: its value has characters that a header cannot have"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// All headers of a call that may take so long.
pub(super) fn headers(fixed: &HeaderMap, context: &Context, limit: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, text: String| {
        // Each is of visible ASCII letters alone, which any header can have.
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    let task = context.task();
    put("idempotency-key", encoded(context.idempotency_key()));
    put("tidemill-task", encoded(context.id().as_str()));
    put("tidemill-agent", task.agent.as_str().to_owned());
    put("tidemill-attempt", context.attempt().to_string());
    put("tidemill-fence", context.fence().0.to_string());
    put("tidemill-deadline-ms", limit.as_millis().to_string());
    if !task.tenant.is_empty() {
        put("tidemill-tenant", encoded(&task.tenant));
    }
    if let Some(trace) = context.traceparent().filter(|trace| trace.bytes().all(|b| b.is_ascii_graphic())) {
        put("traceparent", trace.to_owned());
    }
    let json = serde_json::from_slice::<IgnoredAny>(context.payload()).is_ok();
    put("content-type", if json { "application/json" } else { "application/octet-stream" }.to_owned());
    for (name, value) in fixed {
        headers.insert(name, value.clone());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_ours_and_of_the_protocol_cannot_be_configured() {
        for name in ["Host", "content-length", "Tidemill-Fence", "Idempotency-Key", "Transfer-Encoding"] {
            assert!(fixed(name, "x").unwrap_err().contains("by the worker itself"), "{name}");
        }
        assert!(fixed("a b", "x").unwrap_err().contains("no name"));
        let wrong = fixed("authorization", "se\ncret").unwrap_err();
        assert!(wrong.contains("characters") && !wrong.contains("cret"), "{wrong}");
    }
}
