//! A private server, a store to look with, and workers.

use std::future::Future;
use std::time::Duration;

use tidemill_common::name::{AgentName, TaskId};
use tidemill_common::state::State;
use tidemill_common::store::{RedisOptions, Status, Store};
use tidemill_common::task::NewTask;
use tidemill_embedded::{Server, Tcp};
use tidemill_worker::{Error, Exit, Handle, Options, Registry, Shutdown, Worker};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Longest wait for anything: far above what it takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Lab {
    pub(crate) server: Server,
    pub(crate) store: Store,
}

/// A running worker.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    pub(crate) shutdown: Shutdown,
    pub(crate) run: JoinHandle<Result<Exit, Error>>,
}

/// Short times, as the contract's fast profile but faster.
pub(crate) fn fast() -> Options {
    Options {
        name: "w".into(),
        concurrency: 8,
        lease: Duration::from_millis(1_500),
        renew: Duration::from_millis(300),
        sweep: Duration::from_millis(200),
        grace: Duration::from_secs(10),
        ..Options::default()
    }
}

pub(crate) fn name(agent: &str) -> AgentName {
    agent.parse().unwrap()
}

pub(crate) fn task(agent: &str) -> NewTask {
    NewTask::new(name(agent), "payload")
}

impl Lab {
    pub(crate) async fn new() -> Self {
        // `RUST_LOG=debug` shows what a failing test did.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let server = Server::start(tidemill_embedded::Options::new().tcp(Tcp::Off)).unwrap();
        let store = Store::connect(&redis(&server)).await.unwrap();
        Self { server, store }
    }

    pub(crate) fn redis(&self) -> RedisOptions {
        redis(&self.server)
    }

    pub(crate) fn start(&self, registry: Registry, options: Options) -> Running {
        start(Worker::new(self.redis(), registry, options).unwrap())
    }

    pub(crate) async fn submit(&self, task: &NewTask) {
        self.store.submit(std::slice::from_ref(task), 0).await.unwrap();
    }

    pub(crate) async fn status(&self, id: &TaskId) -> Status {
        self.store.status(id, None).await.unwrap()
    }

    /// Waits until the task is in this state.
    pub(crate) async fn until(&self, id: &TaskId, state: State) -> Status {
        let began = Instant::now();
        loop {
            let status = self.status(id).await;
            if status.state == Some(state) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{id} is not {state:?}: {status:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn redis(server: &Server) -> RedisOptions {
    RedisOptions { url: server.url(), ..RedisOptions::default() }
}

pub(crate) fn start(worker: Worker) -> Running {
    let (handle, shutdown) = (worker.handle(), Shutdown::new());
    Running { handle, run: tokio::spawn(worker.run(shutdown.clone())), shutdown }
}

impl Running {
    pub(crate) async fn drain(self) -> Exit {
        self.shutdown.drain.cancel();
        tokio::time::timeout(PATIENCE, self.run).await.expect("it drains").unwrap().unwrap()
    }
}

/// Waits until it is true.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let began = Instant::now();
    while !check().await {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
