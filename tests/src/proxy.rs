//! A bad network: a TCP proxy between a program under test and its server, that can delay, hold back, lose and reset.
//!
//! It runs on a thread of its own, so that a test which blocks does not hold it up, and listens on 127.0.0.1; the
//! server is reached by its Unix socket. What is done to one direction leaves the other alone:
//!
//! ```no_run
//! use tidemill_tests::proxy::{Flow, Proxy, Toward};
//! use tidemill_tests::server;
//!
//! let server = server::start();
//! let proxy = Proxy::start(&server);
//! // The program gets proxy.url(); then its replies no longer arrive, although all it sends does:
//! proxy.set(Toward::Client, Flow::Held);
//! # // …
//! proxy.resume();
//! ```
//!
//! TCP loses no bytes, it only takes longer; so what is [`Flow::Held`] arrives, in order, once the flow is open again.
//! [`Flow::Dropped`] stands for a connection that dies with replies on their way: a connection that has lost bytes
//! is reset when the flow changes, since no peer would ever go on reading behind a hole.
//!
//! It ends with the value. It knows nothing of Redis: a chunk is whatever one read returned.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_embedded::Server;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most bytes of one read.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks that wait in one direction of one connection; then the sender's own buffer fills up, as on a real network.
const CHUNKS_MAX: usize = 64;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// Commands, on their way to the server.
    Server,
    /// Replies, on their way to the client.
    Client,
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// They arrive.
    #[default]
    Open,
    /// They arrive this much later, in order.
    Delayed(Duration),
    /// They do not arrive as long as this lasts, and then all of them do: a hole in the network that TCP bridges.
    Held,
    /// They are gone. The connection is reset once this ends.
    Dropped,
}

/// What has come by so far, over all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that were made.
    pub made: u64,
    /// Connections that are there now.
    pub open: u64,
    /// Bytes that have arrived at the server, and at clients.
    pub arrived: [u64; 2],
    /// Bytes on their way to the server, and to clients: held or delayed.
    pub waiting: [u64; 2],
    /// Bytes toward the server, and toward clients, that were dropped.
    pub lost: [u64; 2],
}

#[derive(Debug, Default)]
struct Tally {
    made: AtomicU64,
    open: AtomicU64,
    arrived: [AtomicU64; 2],
    waiting: [AtomicU64; 2],
    lost: [AtomicU64; 2],
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    flows: [watch::Sender<Flow>; 2],
    resets: watch::Sender<u64>,
    tally: Arc<Tally>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What every connection needs to know.
#[derive(Clone)]
struct Road {
    server: PathBuf,
    flows: [watch::Receiver<Flow>; 2],
    resets: watch::Receiver<u64>,
    tally: Arc<Tally>,
}

impl Proxy {
    /// Starts a proxy in front of this server; all flows are open. The server may restart, at the same socket.
    ///
    /// # Panics
    ///
    /// When there is no port or thread for it.
    #[must_use]
    pub fn start(server: &Server) -> Self {
        Self::to(server.socket_path())
    }

    /// As [`start`](Self::start), in front of whatever listens at this Unix socket.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn to(socket: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime for the proxy");
        // Not by the runtime: a test may be in another one.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port for the proxy");
        listener.set_nonblocking(true).expect("a listener for the proxy");
        let address = listener.local_addr().expect("the proxy's own address");
        let flows = [watch::Sender::new(Flow::Open), watch::Sender::new(Flow::Open)];
        let (resets, tally, stop) = (watch::Sender::new(0), Arc::new(Tally::default()), CancellationToken::new());
        let road = Road {
            server: socket.to_owned(),
            flows: flows.each_ref().map(watch::Sender::subscribe),
            resets: resets.subscribe(),
            tally: Arc::clone(&tally),
        };
        let stopped = stop.clone();
        let serve = move || {
            let serving = async { accept(TcpListener::from_std(listener).expect("the proxy's listener"), road).await };
            runtime.block_on(stopped.run_until_cancelled(serving));
        };
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(serve).expect("a thread for the proxy");
        Self { address, flows, resets, tally, stop, thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL by way of this proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From here on, what happens to the bytes of one direction, of all connections, new ones too.
    pub fn set(&self, toward: Toward, flow: Flow) {
        self.flows[toward as usize].send_replace(flow);
    }

    /// Opens both directions.
    pub fn resume(&self) {
        self.set(Toward::Server, Flow::Open);
        self.set(Toward::Client, Flow::Open);
    }

    /// Resets all connections that are there now. New ones may be made at once.
    pub fn reset_all(&self) {
        self.resets.send_modify(|n| *n += 1);
    }

    /// What has come by so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let tally = &self.tally;
        let read = |all: &[AtomicU64; 2]| all.each_ref().map(|n| n.load(Ordering::SeqCst));
        Counts {
            made: tally.made.load(Ordering::SeqCst),
            open: tally.open.load(Ordering::SeqCst),
            arrived: read(&tally.arrived),
            waiting: read(&tally.waiting),
            lost: read(&tally.lost),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, road: Road) {
    let connections = TaskTracker::new();
    loop {
        // No file handles left, say: that passes, and the client tries again.
        let Ok((client, _)) = listener.accept().await else { continue };
        let road = road.clone();
        road.tally.made.fetch_add(1, Ordering::SeqCst);
        connections.spawn(async move {
            road.tally.open.fetch_add(1, Ordering::SeqCst);
            connection(client, &road).await;
            road.tally.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// One connection to its end, which is a reset unless both sides have closed it.
async fn connection(mut client: TcpStream, road: &Road) {
    let _ = client.set_nodelay(true);
    let mut resets = road.resets.clone();
    resets.mark_unchanged();
    let mut closed = false;
    if let Ok(mut server) = UnixStream::connect(&road.server).await {
        let ((client_in, client_out), (server_in, server_out)) = (client.split(), server.split());
        let commands = pump(client_in, server_out, Toward::Server, road);
        let replies = pump(server_in, client_out, Toward::Client, road);
        closed = tokio::select! {
            both = async { tokio::try_join!(commands, replies) } => both.is_ok(),
            _ = resets.changed() => false,
        };
    }
    if !closed {
        // Now its end is a reset.
        let _ = client.set_zero_linger();
    }
}

/// The connection is to be reset.
struct Broken;

/// What one read returned.
struct Chunk {
    at: Instant,
    bytes: Vec<u8>,
    toward: Toward,
    tally: Arc<Tally>,
}

impl Chunk {
    fn count(&self, where_to: &[AtomicU64; 2]) {
        where_to[self.toward as usize].fetch_add(self.bytes.len() as u64, Ordering::SeqCst);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.tally.waiting[self.toward as usize].fetch_sub(self.bytes.len() as u64, Ordering::SeqCst);
    }
}

/// Passes the bytes of one direction on, and then the end of the stream.
async fn pump(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    toward: Toward,
    road: &Road,
) -> Result<(), Broken> {
    let (queue, chunks) = mpsc::channel(CHUNKS_MAX);
    let flow = road.flows[toward as usize].clone();
    tokio::try_join!(take_in(from, queue, toward, &road.tally), pass_on(chunks, to, flow)).map(|_| ())
}

async fn take_in(
    mut from: impl AsyncRead + Unpin,
    queue: mpsc::Sender<Chunk>,
    toward: Toward,
    tally: &Arc<Tally>,
) -> Result<(), Broken> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let n = from.read(&mut buffer).await.map_err(|_| Broken)?;
        if n == 0 {
            return Ok(());
        }
        let chunk = Chunk { at: Instant::now(), bytes: buffer[..n].to_vec(), toward, tally: Arc::clone(tally) };
        chunk.count(&tally.waiting);
        queue.send(chunk).await.map_err(|_| Broken)?;
    }
}

async fn pass_on(
    mut chunks: mpsc::Receiver<Chunk>,
    mut to: impl AsyncWrite + Unpin,
    mut flow: watch::Receiver<Flow>,
) -> Result<(), Broken> {
    let mut holed = false;
    loop {
        let next = tokio::select! {
            next = chunks.recv() => next,
            // A connection with a hole does not live on.
            _ = flow.wait_for(|flow| *flow != Flow::Dropped), if holed => return Err(Broken),
        };
        let passes = may_pass(&mut flow, next.as_ref().map(|chunk| chunk.at)).await;
        match next {
            Some(chunk) if passes && !holed => {
                to.write_all(&chunk.bytes).await.map_err(|_| Broken)?;
                chunk.count(&chunk.tally.arrived);
            }
            Some(chunk) if !passes => {
                chunk.count(&chunk.tally.lost);
                holed = true;
            }
            None if passes && !holed => return to.shutdown().await.map_err(|_| Broken),
            None if !passes => {
                // Its end is lost as well, so it stands as it is until the flow changes.
                let _ = flow.wait_for(|flow| *flow != Flow::Dropped).await;
                return Err(Broken);
            }
            _ => return Err(Broken),
        }
    }
}

/// Waits until what was read then may pass. False: it is lost.
async fn may_pass(flow: &mut watch::Receiver<Flow>, read_at: Option<Instant>) -> bool {
    loop {
        let now = *flow.borrow_and_update();
        let until = match now {
            Flow::Open => return true,
            Flow::Dropped => return false,
            Flow::Delayed(by) => Some(read_at.unwrap_or_else(Instant::now) + by),
            Flow::Held => None,
        };
        tokio::select! {
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return true,
            changed = flow.changed() => if changed.is_err() { return true },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;
    use crate::server;

    const PING: &[u8] = b"PING\r\n";
    const PONG: &[u8] = b"+PONG\r\n";
    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(100);

    fn dial(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn pong(stream: &mut TcpStream) -> std::io::Result<()> {
        let mut answer = [0; PONG.len()];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer, PONG);
        Ok(())
    }

    /// Waits for what the proxy's own thread is about to count.
    fn until(proxy: &Proxy, right: impl Fn(Counts) -> bool) {
        let began = Instant::now();
        while !right(proxy.counts()) {
            assert!(began.elapsed() < LONG, "{:?}", proxy.counts());
            std::thread::yield_now();
        }
    }

    #[test]
    fn bytes_arrive_late_or_not_at_all_as_it_is_told() {
        let server = server::start();
        let proxy = Proxy::start(&server);
        let mut stream = dial(&proxy);
        stream.write_all(PING).unwrap();
        pong(&mut stream).unwrap();

        let began = Instant::now();
        proxy.set(Toward::Client, Flow::Delayed(SHORT));
        stream.write_all(PING).unwrap();
        pong(&mut stream).unwrap();
        assert!(began.elapsed() >= SHORT);

        // Held replies come later; the command itself has long arrived.
        proxy.set(Toward::Client, Flow::Held);
        stream.write_all(PING).unwrap();
        until(&proxy, |counts| counts.waiting == [0, PONG.len() as u64]);
        stream.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(pong(&mut stream).unwrap_err().kind(), ErrorKind::WouldBlock);
        stream.set_read_timeout(Some(LONG)).unwrap();
        proxy.resume();
        pong(&mut stream).unwrap();

        // Held commands do not arrive.
        proxy.set(Toward::Server, Flow::Held);
        stream.write_all(PING).unwrap();
        until(&proxy, |counts| counts.waiting == [PING.len() as u64, 0]);
        proxy.resume();
        pong(&mut stream).unwrap();
        let bytes = |one: &[u8]| one.len() as u64 * 4;
        until(&proxy, |counts| counts.arrived == [bytes(PING), bytes(PONG)] && counts.lost == [0, 0]);
    }

    #[test]
    fn a_connection_with_a_hole_is_reset_and_the_next_one_is_well() {
        let server = server::start();
        let proxy = Proxy::start(&server);
        let (mut holed, mut silent) = (dial(&proxy), dial(&proxy));
        until(&proxy, |counts| counts.made == 2 && counts.open == 2);
        proxy.set(Toward::Client, Flow::Dropped);
        holed.write_all(PING).unwrap();
        until(&proxy, |counts| counts.lost == [0, PONG.len() as u64]);
        proxy.resume();
        assert_eq!(pong(&mut holed).unwrap_err().kind(), ErrorKind::ConnectionReset);
        // Nothing of this one was lost.
        silent.write_all(PING).unwrap();
        pong(&mut silent).unwrap();

        proxy.reset_all();
        assert_eq!(pong(&mut silent).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let mut next = dial(&proxy);
        next.write_all(PING).unwrap();
        pong(&mut next).unwrap();
        drop((holed, silent, next));
        until(&proxy, |counts| counts.made == 3 && counts.open == 0 && counts.waiting == [0, 0]);
    }

    #[test]
    fn the_end_of_a_server_is_seen() {
        let mut server = server::start();
        let proxy = Proxy::start(&server);
        let mut stream = dial(&proxy);
        stream.write_all(PING).unwrap();
        pong(&mut stream).unwrap();
        server.kill().unwrap();
        assert!(pong(&mut stream).is_err());
        server.restart().unwrap();
        let mut stream = dial(&proxy);
        stream.write_all(PING).unwrap();
        pong(&mut stream).unwrap();
    }
}
