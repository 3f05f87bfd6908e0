//! A server that is none: it speaks the protocol, and answers as a test says. And a listener that nobody should ever reach.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// What a fake server answers to a command, as it is sent (`+OK\r\n`); none: nothing, ever.
type Answer = dyn Fn(&[String]) -> Option<String> + Send + Sync;

/// A listener on 127.0.0.1, with a thread a connection. It ends with the value.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    met: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// A server that answers so.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn server(answer: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        Self::start(move |stream| {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || converse(&stream, &*answer));
        })
    }

    /// A service that answers each request with this.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn http(response: String) -> Self {
        Self::start(move |mut stream| {
            let mut head = String::new();
            let mut reader = BufReader::new(&stream);
            while reader.read_line(&mut head).is_ok_and(|n| n > 2) {}
            let _ = stream.write_all(response.as_bytes());
        })
    }

    /// One that nobody is to reach: it counts who does.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn canary() -> Self {
        Self::start(drop)
    }

    fn start(met: impl Fn(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                counted.fetch_add(1, Ordering::SeqCst);
                stream.into_iter().for_each(&met);
            }
        });
        Self { address, stop, met: count, thread: Some(thread) }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections there were.
    #[must_use]
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    /// As the address of a Redis.
    #[must_use]
    pub fn redis(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers commands until the other side goes.
fn converse(mut stream: &TcpStream, answer: &Answer) {
    let mut reader = BufReader::new(stream);
    while let Some(command) = command(&mut reader) {
        if let Some(reply) = answer(&command)
            && stream.write_all(reply.as_bytes()).is_err()
        {
            return;
        }
    }
}

/// One command: an array of bulk strings.
fn command(reader: &mut BufReader<&TcpStream>) -> Option<Vec<String>> {
    let number = |mark: char, reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim().strip_prefix(mark)?.parse::<usize>().ok()
    };
    let words = number('*', reader)?;
    (0..words)
        .map(|_| {
            let bytes = number('$', reader)?;
            let mut word = vec![0; bytes + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(bytes);
            Some(String::from_utf8_lossy(&word).into_owned())
        })
        .collect()
}

/// A bulk string, as a server sends it.
#[must_use]
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
