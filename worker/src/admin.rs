//! The admin listener: `/metrics`, `/livez`, `/readyz`, `/v1/scale`.
//!
//! It has no authentication and changes nothing; it is bound to this machine alone unless the configuration says otherwise.
//! `/livez` never asks Redis: a worker that is alive must not be killed because Redis is away.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tidemill_common::store::{Counts, Store};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Handle;
use crate::metrics::Metrics;

/// How long what Redis said counts as fresh: however many ask, Redis is asked once.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long Redis may take: a scrape waits ten seconds as a rule, and should get the rest then.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

/// What Redis said last, or why it did not.
type Asked = Option<(Instant, Result<Counts, String>)>;

struct Admin {
    handle: Handle,
    metrics: Arc<Metrics>,
    store: Reached,
    asked: Mutex<Asked>,
}

/// The store, once there is one: whoever asks whether the worker lives is answered before Redis is reached.
pub type Reached = Arc<OnceLock<Store>>;

/// Binds the listener.
///
/// With `or_any`, a port that is taken is replaced by a free one: a second worker on one machine should not fail for an address that
/// nobody chose.
///
/// # Errors
/// When the address cannot be had.
pub async fn bind(address: SocketAddr, or_any: bool) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if or_any && error.kind() == io::ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((address.ip(), 0)).await?;
            tracing::warn!(%address, "the admin address is taken; another port is used");
            Ok(listener)
        }
        bound => bound,
    }
}

/// Answers until `stop` is cancelled, also while there is no store yet.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    handle: Handle,
    metrics: Arc<Metrics>,
    store: Reached,
    stop: CancellationToken,
) -> io::Result<()> {
    let admin = Arc::new(Admin { handle, metrics, store, asked: Mutex::new(None) });
    let routes = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/v1/scale", get(scale))
        .fallback(elsewhere)
        .with_state(admin);
    // Not a graceful end: a scraper that keeps its connection open must not keep the process.
    tokio::select! {
        served = axum::serve(listener, routes) => served,
        () = stop.cancelled() => Ok(()),
    }
}

impl Admin {
    /// What Redis says of the whole, at most a second old.
    async fn counts(&self) -> Result<Counts, String> {
        let mut asked = self.asked.lock().await;
        if let Some((_, answer)) = asked.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return answer.clone();
        }
        let Some(store) = self.store.get() else { return Err("Redis is not reached yet".to_owned()) };
        let answer = match tokio::time::timeout(PATIENCE, store.counts()).await {
            Ok(Ok(counts)) => Ok(counts),
            Ok(Err(error)) => {
                self.metrics.redis_error("counts", error.reason().as_str());
                Err(error.to_string())
            }
            Err(_) => {
                self.metrics.redis_error("counts", "timeout");
                Err("Redis does not answer (counts)".to_owned())
            }
        };
        *asked = Some((Instant::now(), answer.clone()));
        answer
    }
}

async fn show_metrics(State(admin): State<Arc<Admin>>) -> Response {
    let counts = admin.counts().await.ok();
    ([(CONTENT_TYPE, TEXT)], admin.metrics.text(counts.as_ref())).into_response()
}

async fn livez(State(admin): State<Arc<Admin>>) -> Response {
    if admin.handle.live() {
        (StatusCode::OK, "live\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the control thread stands still\n").into_response()
    }
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let (handle, not) = (&admin.handle, StatusCode::SERVICE_UNAVAILABLE);
    if !handle.live() {
        (not, "the control thread stands still\n").into_response()
    } else if !handle.ready() {
        (not, "not consuming: starting, stopping, or Redis does not answer\n").into_response()
    } else {
        (StatusCode::OK, "ready\n").into_response()
    }
}

/// For autoscalers: `waiting` is what more workers would speed up, so neither what is not due nor what is held at a gate.
async fn scale(State(admin): State<Arc<Admin>>) -> Response {
    match admin.counts().await {
        Ok(counts) => {
            let all: u64 = counts.waiting.values().sum();
            let body = serde_json::json!({
                "waiting": all.saturating_sub(counts.scheduled).saturating_sub(counts.parked),
                "running": counts.running,
                "scheduled": counts.scheduled,
                "parked": counts.parked,
                "dead": counts.dead,
                "workers": counts.workers,
            });
            ([(CONTENT_TYPE, JSON)], format!("{body}\n")).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn elsewhere(uri: Uri) -> Response {
    (StatusCode::NOT_FOUND, format!("nothing is at {}; there are /metrics, /livez, /readyz, /v1/scale\n", uri.path()))
        .into_response()
}
