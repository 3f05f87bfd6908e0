//! `worker run`: from a configuration to an exit code.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tidemill_common::config::{Loaded, Mistakes, Origin};
use tidemill_common::store::Error as StoreError;
use tidemill_worker::handler::process::Children;
use tidemill_worker::metrics::Metrics;
use tidemill_worker::{Exit, Shutdown, Worker, admin, lone};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::reach::connect;

/// All that ran has ended.
const DRAINED: u8 = 0;
/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(crate) const USAGE: u8 = 2;
/// Redis was not reached at the start.
pub(crate) const UNREACHABLE: u8 = 7;
/// `EX_TEMPFAIL`: unfinished tasks were handed back.
const HANDED_BACK: u8 = 75;
/// Stopped by force, as by an interrupt.
const FORCED: u8 = 130;

/// Why a command failed, with its exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Configuration(#[from] Mistakes),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// What `producer explain` and docs/errors.md explain; the same numbers as the producer's.
    pub(crate) fn explained(&self) -> &'static str {
        match self {
            Self::Configuration(_) => "TM-0205",
            Self::Unreachable(_) => "TM-0301",
            Self::Other(error) => match error.downcast_ref::<StoreError>() {
                Some(StoreError::Unsuitable(_)) => "TM-0306",
                Some(_) => "TM-0302",
                None => "TM-0503",
            },
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Configuration(_) => USAGE,
            Self::Unreachable(_) => UNREACHABLE,
            Self::Other(_) => FAILED,
        })
    }
}

/// Runs a worker until it is told to stop.
pub(crate) async fn run(loaded: Loaded<Config>) -> Result<ExitCode, Failure> {
    let config = &loaded.value;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let children = Children::start().context("cannot start the thread of the children")?;
    let metrics = Arc::new(Metrics::new(config.agent_names()));
    let registry = config.registry(&children)?;
    let worker = Worker::new(config.redis.clone(), registry, config.options())
        .context("this worker cannot be made")?
        .with_payloads(Arc::new(config.payloads.build().map_err(Mistakes)?))
        .with_metrics(Arc::clone(&metrics));
    let handle = worker.handle();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    // A lone child's parent has the address, and has reached Redis.
    if !lone::is_child() {
        let reached = admin::Reached::default();
        if let Some(listener) = listen(&loaded).await? {
            let served = admin::serve(listener, handle.clone(), metrics, Arc::clone(&reached), stop);
            tokio::spawn(async {
                if let Err(error) = served.await {
                    tracing::error!(%error, "the admin listener broke off");
                }
            });
        }
        let Some(store) = shutdown.drain.run_until_cancelled(Box::pin(connect(&loaded))).await else {
            return Ok(ExitCode::from(DRAINED));
        };
        let store = store?;
        config.book.apply(&store).await.context("the book that this worker brings is not applied")?;
        let _ = reached.set(store);
    }
    let (redis, from) = (config.redis.shown_url(), loaded.origin("redis.url"));
    let (agents, concurrency) = (config.agent_names().join(","), config.options().concurrency);
    tracing::info!(worker = %handle.id(), redis, redis_from = %from, agents, concurrency, "starting");
    let exit = worker.run(shutdown).await.context("the worker broke off")?;
    // Its threads may be busy; this one may wait for children to end.
    tokio::task::block_in_place(|| drop(children));
    Ok(ended(exit))
}

fn ended(exit: Exit) -> ExitCode {
    match exit {
        Exit::Drained => {
            tracing::info!("stopped; all that ran has ended");
            ExitCode::from(DRAINED)
        }
        Exit::HandedBack(tasks) => {
            tracing::warn!(tasks, "stopped; what had not ended within the grace was handed back");
            ExitCode::from(HANDED_BACK)
        }
        Exit::Forced => {
            tracing::warn!("stopped by force");
            ExitCode::from(FORCED)
        }
        Exit::LeaseLost => {
            tracing::error!("stopped without settling all; others run the rest once the lease has run out");
            ExitCode::from(FAILED)
        }
    }
}

/// Binds the admin listener, if there is to be one, and prints where it is.
async fn listen(loaded: &Loaded<Config>) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = loaded.value.admin().map_err(|what| Mistakes(vec![what]))? else { return Ok(None) };
    let anybody_chose_it = *loaded.origin("admin.listen") != Origin::Default;
    let listener = admin::bind(address, !anybody_chose_it).await.with_context(|| {
        format!("cannot listen on {address} (admin.listen, from {})", loaded.origin("admin.listen"))
    })?;
    let address = listener.local_addr().context("the admin listener has no address")?;
    crate::say(&format!("admin http://{address}\n"));
    Ok(Some(listener))
}
