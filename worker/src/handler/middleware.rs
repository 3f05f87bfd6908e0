//! Middleware: what is done around the runs of all agents, or of one.
//!
//! ```text
//! Registry::new().with_middleware(a).with_middleware(b):   context ─► a ─► b ─► handler
//!                                                          outcome ◄─ a ◄─ b ◄────┘
//! ```
//!
//! - *It guarantees* an order: the first one added is the outermost. It sees the context before all others, and the outcome after them,
//!   which is the one that counts. It is around all agents of the registry, also those that are added later.
//! - *It refuses* to run a handler twice in one run: [`Next`] is used up. A run that is to be tried again is a retry, with an attempt of
//!   its own.
//! - A panic in a middleware is a panic of the run: it is caught, and counts as a failed attempt. When a run is cut short, the whole
//!   stack of futures is dropped at the await where it is, and what comes after `next.run(…).await` is not reached: what must happen
//!   all the same belongs into a guard's `Drop`.
//!
//! Times all runs:
//!
//! ```
//! use std::time::Instant;
//! use tidemill_worker::handler::{Middleware, Next, Running};
//! use tidemill_worker::Context;
//!
//! struct Timed;
//!
//! impl Middleware for Timed {
//!     fn run<'a>(&'a self, context: Context, next: Next<'a>) -> Running<'a> {
//!         Box::pin(async move {
//!             let (agent, began) = (context.task().agent.clone(), Instant::now());
//!             let outcome = next.run(context).await;
//!             println!("{agent}: {outcome:?} after {:?}", began.elapsed());
//!             outcome
//!         })
//!     }
//! }
//! ```

use std::sync::Arc;

use super::{Context, Handler, Outcome, Running};

/// Something around a handler. `fn f<'a>(context: Context, next: Next<'a>) -> Running<'a>` is one too.
pub trait Middleware: Send + Sync + 'static {
    /// One run: calls [`Next::run`] once, or answers without it. May be dropped at any await.
    fn run<'a>(&'a self, context: Context, next: Next<'a>) -> Running<'a>;
}

impl<F> Middleware for F
where
    F: for<'a> Fn(Context, Next<'a>) -> Running<'a> + Send + Sync + 'static,
{
    fn run<'a>(&'a self, context: Context, next: Next<'a>) -> Running<'a> {
        self(context, next)
    }
}

/// What is further in: other middleware, and at last the handler.
pub struct Next<'a>(&'a dyn Handler);

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Next")
    }
}

impl<'a> Next<'a> {
    /// Runs it. Dropping the future cuts the run short.
    pub async fn run(self, context: Context) -> Outcome {
        self.0.run(context).await
    }
}

/// Middleware around the handler of one agent.
pub fn wrap(middleware: impl Middleware, handler: impl Handler) -> impl Handler {
    Wrapped { middleware: Arc::new(middleware), handler: Arc::new(handler) }
}

/// All of them around a handler, the first outermost.
pub(super) fn wrap_all(middleware: &[Arc<dyn Middleware>], handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
    middleware
        .iter()
        .rev()
        .fold(handler, |handler, middleware| Arc::new(Wrapped { middleware: Arc::clone(middleware), handler }))
}

struct Wrapped {
    middleware: Arc<dyn Middleware>,
    handler: Arc<dyn Handler>,
}

impl Handler for Wrapped {
    fn run(&self, context: Context) -> Running<'_> {
        self.middleware.run(context, Next(&*self.handler))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::testing::context;
    use super::super::{Agent, Registry, TIMEOUT_DEFAULT};
    use super::*;

    type Log = Arc<Mutex<Vec<String>>>;

    /// Writes down when it begins and how it ended.
    struct Says(&'static str, Log);

    impl Middleware for Says {
        fn run<'a>(&'a self, context: Context, next: Next<'a>) -> Running<'a> {
            Box::pin(async move {
                let say = |what: String| self.1.lock().unwrap().push(format!("{} {what}", self.0));
                say(format!("begins attempt {}", context.attempt()));
                let outcome = next.run(context).await;
                say(format!("{outcome:?}"));
                outcome
            })
        }
    }

    /// Knows only one tenant; a plain function.
    fn refuses<'a>(context: Context, next: Next<'a>) -> Running<'a> {
        Box::pin(async move {
            if context.task().tenant == "acme" { next.run(context).await } else { Outcome::dead("an unknown tenant") }
        })
    }

    async fn run(registry: &Registry, of: Context) -> Outcome {
        let agent = registry.get(&"test".parse().unwrap()).unwrap();
        registry.around(agent).run(of).await
    }

    fn of(tenant: &str) -> Context {
        let mut of = context("", 2);
        Arc::get_mut(&mut of.task).unwrap().tenant = tenant.into();
        of
    }

    #[tokio::test]
    async fn the_first_is_outermost_and_one_that_answers_hides_what_is_further_in() {
        let log = Log::default();
        let inner = Arc::clone(&log);
        let handler = move |_: Context| {
            inner.lock().unwrap().push("handler".into());
            async { Outcome::done("x") }
        };
        let registry = Registry::new()
            .with_middleware(Says("first", Arc::clone(&log)))
            .with("test".parse().unwrap(), handler)
            .with_middleware(Says("second", Arc::clone(&log)))
            .with_middleware(refuses);
        assert_eq!(run(&registry, of("acme")).await, Outcome::done("x"));
        let said = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(
            said,
            [
                "first begins attempt 2",
                "second begins attempt 2",
                "handler",
                "second Done(b\"x\")",
                "first Done(b\"x\")"
            ]
        );
        assert_eq!(run(&registry, of("evil")).await, Outcome::dead("an unknown tenant"));
        assert!(!log.lock().unwrap().iter().any(|said| said == "handler"));
    }

    #[tokio::test]
    async fn an_outcome_can_be_changed_and_one_agent_alone_be_wrapped() {
        fn gives_up<'a>(context: Context, next: Next<'a>) -> Running<'a> {
            Box::pin(async move {
                match next.run(context).await {
                    Outcome::Retry { error, .. } => Outcome::dead(error),
                    other => other,
                }
            })
        }
        let fails = |_: Context| async { Outcome::retry("no") };
        assert_eq!(wrap(gives_up, fails).run(context("", 1)).await, Outcome::dead("no"));
        assert_eq!(wrap(refuses, wrap(gives_up, fails)).run(of("acme")).await, Outcome::dead("no"));
    }

    #[tokio::test]
    async fn a_dropped_run_drops_the_whole_stack() {
        struct Guard(Log);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped".into());
            }
        }
        let log = Log::default();
        let kept = Arc::clone(&log);
        let hangs = move |_: Context| {
            let guard = Guard(Arc::clone(&kept));
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        };
        let agent = Agent { handler: Arc::new(hangs), concurrency: None, timeout: TIMEOUT_DEFAULT };
        let registry =
            Registry::new().with_agent("test".parse().unwrap(), agent).with_middleware(Says("outer", Arc::clone(&log)));
        let mut running = Box::pin(run(&registry, of("")));
        assert!(futures::poll!(&mut running).is_pending());
        drop(running);
        assert_eq!(*log.lock().unwrap(), ["outer begins attempt 2", "dropped"]);
    }
}
