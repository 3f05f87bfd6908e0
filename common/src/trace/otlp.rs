//! Spans that leave the process, by OTLP over HTTP.
//!
//! - *It guarantees* that a process which ends waits for its last spans two seconds at most, and that a collector which is slow or
//!   away holds up nothing else: spans go through a bounded queue to a thread of their own, and what it cannot take is dropped.
//! - *It refuses* everything but the standard's variables as its configuration.

use std::env;
use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, Value};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Where spans go to: either is enough.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// How long the end of a process waits for its last spans.
const PATIENCE: Duration = Duration::from_secs(2);

/// The layer that takes the spans.
pub(crate) type Traces<S> = OpenTelemetryLayer<S, Tracer>;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// A layer that exports, if the environment says where to.
///
/// # Errors
/// Why there can be none.
pub(crate) fn exporter<S>(service: &str) -> Result<Option<Traces<S>>, String>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let said = |name: &str| env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let off = said("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || said("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if off || !ENDPOINTS.iter().any(|name| said(name).is_some()) {
        return Ok(None);
    }
    // An error means that somebody was faster, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build();
    let exporter = exporter.map_err(|error| error.to_string())?;
    let unnamed = resource_name(&Resource::builder().build()).is_none_or(|name| name.starts_with("unknown_service"));
    let resource = Resource::builder();
    let resource = if unnamed { resource.with_service_name(service.to_owned()) } else { resource };
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    let tracer = provider.tracer("tidemill");
    let _ = PROVIDER.set(provider);
    Ok(Some(
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false),
    ))
}

fn resource_name(resource: &Resource) -> Option<String> {
    resource.get(&opentelemetry::Key::from_static_str("service.name")).map(|name: Value| name.to_string())
}

/// Sends what is left.
pub(crate) fn end() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown_with_timeout(PATIENCE)
    {
        tracing::warn!(%error, "the last spans were not sent");
    }
}

pub(super) fn context(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let of = context.span();
    let of = of.span_context();
    of.is_valid().then(|| format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags().to_u8()))
}

pub(super) fn link(span: &Span, traceparent: Option<&str>) {
    if let Some(of) = traceparent.and_then(read) {
        span.add_link(of);
    }
}

pub(super) fn come_from(span: &Span, traceparent: Option<&str>) {
    if let Some(of) = traceparent.and_then(read) {
        // It fails once the span has begun, and here it has not.
        let _ = span.set_parent(Context::new().with_remote_span_context(of));
    }
}

/// Reads W3C's form. Later versions may have more after it.
fn read(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let fits = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    if !fits || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let of = SpanContext::new(trace, span, flags & TraceFlags::SAMPLED, true, TraceState::default());
    of.is_valid().then_some(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_read_as_the_standard_says() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = read(good).unwrap();
        assert_eq!(of.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(of.is_sampled() && of.is_remote());
        assert!(!read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").unwrap().is_sampled());
        assert!(read("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some(), "a later version");
        for bad in [
            "",
            "x",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        ] {
            assert!(read(bad).is_none(), "{bad:?}");
        }
    }
}
