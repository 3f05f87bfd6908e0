//! Many tasks: batches, several in flight, answers in order, bounded memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream::{self, Stream, StreamExt};
use tidemill_common::name::TaskId;
use tidemill_common::store::{self, Accepted, SUBMIT_TASKS_MAX};
use tidemill_common::task::NewTask;
use tidemill_common::trace;
use tracing::Instrument as _;

use crate::client::{Client, firmly};
use crate::error::Error;
use crate::receipt::Receipt;

/// Payload bytes after which a call takes no more tasks: with the calls in flight it bounds the memory, and the script's time.
const CALL_BYTES: usize = 1 << 20;
/// Fewest tasks a call: below it the round trip is most of the work.
const CALL_TASKS_MIN: usize = 16;
/// Tasks a call at first.
const CALL_TASKS_FIRST: usize = 64;
/// Payloads of one call that are put into a store at once.
const PUTS: usize = 16;
/// A full call answered faster than this lets the next ones grow: the server has room.
const QUICK: Duration = Duration::from_millis(25);
/// A call answered slower than this halves the next ones: others wait behind it.
const SLOW: Duration = Duration::from_millis(100);

/// What became of one task of many.
#[derive(Debug)]
pub struct Submitted {
    /// Its number, counted from 0 in the order of the input.
    pub number: u64,
    /// The id that was sent.
    pub id: TaskId,
    /// The receipt, or why there is none.
    pub result: Result<Receipt, Error>,
}

impl Client {
    /// Hands in the tasks of a stream; gives one answer a task, in their order, and does nothing unless it is polled.
    ///
    /// Tasks go in calls of at most 256 tasks and about 1 MiB, as many as the input has ready at that moment and the server answers
    /// quickly; `options.calls_in_flight` calls are under way at once. Nothing waits for a batch to fill up. Memory is bounded by
    /// that product, however long the input is.
    ///
    /// When a call is not answered at all, or not as it should be, its tasks are [`Error::Unknown`] or [`Error::Failed`], no more is
    /// taken from the input, and the stream ends after the calls under way: what was not taken is still the caller's. Refused tasks
    /// do not stop it.
    ///
    /// Dropping the stream leaves up to `calls_in_flight` calls of unknown outcome.
    ///
    /// ```no_run
    /// # async fn example(client: &tidemill_producer::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::{StreamExt, stream};
    /// use tidemill_producer::NewTask;
    ///
    /// let agent: tidemill_producer::AgentName = "summarize".parse()?;
    /// let tasks = (0..10_000).map(|n| NewTask::new(agent.clone(), format!("{n}")));
    /// let mut answers = client.submit_many(stream::iter(tasks));
    /// while let Some(answer) = answers.next().await {
    ///     answer.result?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit_many<S>(&self, tasks: S) -> impl Stream<Item = Submitted> + Unpin + use<S>
    where
        S: Stream<Item = NewTask>,
    {
        let numbered = tasks.enumerate().map(|(number, task)| ((number as u64, task.id.clone()), Some(task)));
        let answers = self.submit_tagged(numbered);
        // Each of them has a task, and so an answer.
        answers.filter_map(|((number, id), result)| {
            std::future::ready(result.map(|result| Submitted { number, id, result }))
        })
    }

    /// As [`Client::submit_many`], for an iterator.
    pub fn submit_all<I>(&self, tasks: I) -> impl Stream<Item = Submitted> + Unpin + use<I>
    where
        I: IntoIterator<Item = NewTask>,
    {
        self.submit_many(stream::iter(tasks))
    }

    /// As [`Client::submit_many`], with something of the caller's, such as a line number, that comes back with each answer. An
    /// item without a task is not sent; it keeps its place and comes back without an answer.
    pub fn submit_tagged<S, T>(&self, items: S) -> impl Stream<Item = Answer<T>> + Unpin + use<S, T>
    where
        S: Stream<Item = (T, Option<NewTask>)>,
    {
        let client = self.clone();
        let pace = Arc::new(Pace::default());
        let batches = Batches { items: Box::pin(items), pace: Arc::clone(&pace), done: false };
        let calls = batches.map(move |batch| send(client.clone(), Arc::clone(&pace), batch));
        Box::pin(calls.buffered(self.options().calls_in_flight.max(1)).flat_map(stream::iter))
    }
}

/// A tag of the caller's, and what became of its task, if it had one.
type Answer<T> = (T, Option<Result<Receipt, Error>>);

/// How many tasks the next call takes, and whether there is one.
struct Pace {
    tasks: AtomicUsize,
    stopped: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { tasks: AtomicUsize::new(CALL_TASKS_FIRST), stopped: AtomicBool::new(false) }
    }
}

impl Pace {
    fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    fn learn(&self, sent: usize, took: Duration) {
        let now = self.tasks();
        if took > SLOW {
            self.tasks.store((now / 2).max(CALL_TASKS_MIN), Ordering::Relaxed);
        } else if took < QUICK && sent >= now {
            self.tasks.store((now * 2).min(SUBMIT_TASKS_MAX), Ordering::Relaxed);
        }
    }
}

/// Groups what is ready.
struct Batches<S> {
    items: Pin<Box<S>>,
    pace: Arc<Pace>,
    done: bool,
}

impl<S: Stream<Item = (T, Option<NewTask>)>, T> Stream for Batches<S> {
    type Item = Vec<(T, Option<NewTask>)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done || self.pace.stopped.load(Ordering::Relaxed) {
            return Poll::Ready(None);
        }
        let most = self.pace.tasks();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < most && bytes < CALL_BYTES {
            match self.items.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => {
                    bytes += item.1.as_ref().map_or(0, |task| task.payload.len());
                    batch.push(item);
                }
                Poll::Ready(None) => {
                    self.done = true;
                    break;
                }
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready((!batch.is_empty()).then_some(batch))
    }
}

/// One call. Items without a task, and tasks that are not well formed, stay out of it and keep their place among the answers.
async fn send<T>(client: Client, pace: Arc<Pace>, batch: Vec<(T, Option<NewTask>)>) -> Vec<Answer<T>> {
    let mut good = Vec::with_capacity(batch.len());
    let mut answers: Vec<(T, Answered)> = Vec::with_capacity(batch.len());
    let encoded = stream::iter(batch.into_iter().map(|(tag, task)| prepare(&client, tag, task)));
    // Several are put into a store at once, if they go into one.
    let encoded: Vec<_> = encoded.buffered(PUTS).collect().await;
    for (tag, task) in encoded {
        let answered = match task.map(|task| task.map(|task| good.push(task))) {
            None => Answered::NoTask,
            Some(Err(error)) => Answered::Wrong(error),
            Some(Ok(())) => Answered::Sent,
        };
        answers.push((tag, answered));
    }
    let span = trace::submit(&good);
    trace::stamp(&span, &mut good);
    let mut sent = call(&client, &pace, &good).instrument(span).await.into_iter();
    let mut told = |answered| match answered {
        Answered::NoTask => None,
        Answered::Wrong(error) => Some(Err(error)),
        Answered::Sent => sent.next(),
    };
    answers.into_iter().map(|(tag, answered)| (tag, told(answered))).collect()
}

/// Checks and encodes.
async fn prepare<T>(client: &Client, tag: T, task: Option<NewTask>) -> (T, Option<Result<NewTask, Error>>) {
    let Some(task) = task else { return (tag, None) };
    let ready = match client.check(&task) {
        Ok(()) => client.encode(task).await,
        Err(error) => Err(error),
    };
    (tag, Some(ready))
}

/// Where a task's answer comes from.
enum Answered {
    NoTask,
    Wrong(Error),
    Sent,
}

/// Sends tasks that are well formed; one result each.
async fn call(client: &Client, pace: &Pace, tasks: &[NewTask]) -> Vec<Result<Receipt, Error>> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let began = Instant::now();
    let answers = firmly(|| client.store().submit(tasks, client.options().waiting_max)).await;
    pace.learn(tasks.len(), began.elapsed());
    match answers {
        Ok(answers) => {
            let answered = Instant::now();
            let mut results = Vec::with_capacity(tasks.len());
            for (task, answer) in tasks.iter().zip(answers) {
                // Urgent and high tasks wait for room, those of a call together; what came after them may pass them then.
                let patience = client.patience(task).saturating_sub(answered.elapsed());
                let waits = matches!(answer, Accepted::Full { .. }) && !patience.is_zero();
                let result =
                    if waits { client.submit_within(task, patience).await } else { client.receipt(task, answer) };
                results.push(result);
            }
            results
        }
        Err(error) => {
            let error = Arc::new(error);
            // Memory may come back; a server that does not answer, or not as it should, is not asked more.
            pace.stopped.fetch_or(!matches!(*error, store::Error::Full), Ordering::Relaxed);
            tasks.iter().map(|task| Err(Error::submit(&task.id, &error))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_server_gets_larger_calls_and_a_slow_one_smaller() {
        let pace = Pace::default();
        for _ in 0..10 {
            pace.learn(pace.tasks(), Duration::from_millis(1));
        }
        assert_eq!(pace.tasks(), SUBMIT_TASKS_MAX);
        pace.learn(1, Duration::from_millis(1));
        assert_eq!(pace.tasks(), SUBMIT_TASKS_MAX);
        for _ in 0..10 {
            pace.learn(pace.tasks(), Duration::from_secs(1));
        }
        assert_eq!(pace.tasks(), CALL_TASKS_MIN);
        pace.learn(3, Duration::from_millis(1));
        assert_eq!(pace.tasks(), CALL_TASKS_MIN, "a call that was not full says nothing");
    }

    #[tokio::test]
    async fn batches_take_what_is_ready_and_wait_for_nothing() {
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let task = |bytes: usize| ((), Some(NewTask::new("a".parse().unwrap(), vec![b'1'; bytes])));
        let mut batches = Batches { items: Box::pin(receiver), pace: Arc::new(Pace::default()), done: false };
        for _ in 0..3 {
            sender.unbounded_send(task(1)).unwrap();
        }
        assert_eq!(batches.next().await.map(|batch| batch.len()), Some(3));
        for _ in 0..100 {
            sender.unbounded_send(task(CALL_BYTES / 2)).unwrap();
        }
        assert_eq!(batches.next().await.map(|batch| batch.len()), Some(2), "bounded by bytes");
        drop(sender);
        let rest: Vec<_> = batches.by_ref().map(|batch| batch.len()).collect().await;
        assert_eq!(rest.iter().sum::<usize>(), 98);
    }
}
