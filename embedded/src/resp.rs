//! A very small Redis client: RESP2 over a Unix socket, one command at a time, blocking.
//!
//! It exists so that a server can be asked whether it is up, and tests and admin code can look at it, without
//! the async client of the product (whose mistakes a test must be able to see). It is no client for tasks: no
//! pool, no retry, no RESP3.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// No reply line of a server is longer; a longer one means that the peer does not speak RESP.
const LINE_LIMIT: u64 = 64 * 1024;
/// Redis' own limit of one value (`proto-max-bulk-len`).
const BULK_LIMIT: usize = 512 * 1024 * 1024;
/// Deeper nesting than any command or script of ours answers with; keeps a broken peer from overflowing our
/// stack.
const DEPTH_LIMIT: usize = 64;

/// One RESP2 reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `$-1` or `*-1`: no value.
    Nil,
    /// `:42`.
    Int(i64),
    /// `$5\r\nhello`: bytes, unchanged.
    Bulk(Vec<u8>),
    /// `+OK`.
    Simple(String),
    /// `-ERR …`: the server's refusal, without the dash.
    Error(String),
    /// `*2 …`.
    Array(Vec<Reply>),
}

impl Reply {
    /// The number of an [`Int`](Reply::Int), or of a bulk that is a decimal number.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            Reply::Bulk(_) => self.as_str()?.parse().ok(),
            _ => None,
        }
    }

    /// The bytes of a [`Bulk`](Reply::Bulk) or [`Simple`](Reply::Simple).
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            Reply::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The text of a [`Bulk`](Reply::Bulk) or [`Simple`](Reply::Simple), when it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// The items of an [`Array`](Reply::Array).
    #[must_use]
    pub fn as_array(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of an [`Error`](Reply::Error).
    #[must_use]
    pub fn as_error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is [`Nil`](Reply::Nil).
    #[must_use]
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }
}

/// One connection to a server's Unix socket.
///
/// After an error the connection is in an unknown state (a late reply may still come): drop it and connect
/// again.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects; each later read or write may take `timeout` at most, which must not be zero.
    ///
    /// # Errors
    ///
    /// The operating system's, when nothing listens at `socket` or the path is too long for one.
    pub fn open(socket: &Path, timeout: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Sends one command and waits for its reply. A refusal by the server is an `Ok(Reply::Error(_))`.
    ///
    /// # Errors
    ///
    /// When the connection breaks, a read passes the timeout, or the peer does not speak RESP2. The command
    /// may have run.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.read_reply()
    }

    /// Sends one command without waiting, for pipelines and blocking reads; each needs one
    /// [`read_reply`](Self::read_reply).
    ///
    /// # Errors
    ///
    /// When the connection breaks or the write passes the timeout.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut frame = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            frame.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            frame.extend_from_slice(arg);
            frame.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&frame)
    }

    /// Reads the next reply.
    ///
    /// # Errors
    ///
    /// As for [`command`](Self::command).
    pub fn read_reply(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.stream, DEPTH_LIMIT)
    }
}

/// Parses one reply, nested at most `depth` deep.
pub(crate) fn read_reply(from: &mut impl io::BufRead, depth: usize) -> io::Result<Reply> {
    let line = read_line(from)?;
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(invalid("an empty reply line"));
    };
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(number(rest)?)),
        "$" => read_bulk(from, number(rest)?),
        "*" => read_array(from, number(rest)?, depth),
        _ => Err(invalid("a reply of an unknown kind")),
    }
}

fn read_bulk(from: &mut impl io::BufRead, len: i64) -> io::Result<Reply> {
    if len == -1 {
        return Ok(Reply::Nil);
    }
    let len = usize::try_from(len)
        .ok()
        .filter(|len| *len <= BULK_LIMIT)
        .ok_or_else(|| invalid("a value of impossible length"))?;
    let mut bytes = vec![0; len + 2];
    from.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(invalid("a value without its end"));
    }
    bytes.truncate(len);
    Ok(Reply::Bulk(bytes))
}

fn read_array(from: &mut impl io::BufRead, len: i64, depth: usize) -> io::Result<Reply> {
    if len == -1 {
        return Ok(Reply::Nil);
    }
    let depth = depth.checked_sub(1).ok_or_else(|| invalid("a reply nested too deep"))?;
    let len = usize::try_from(len).map_err(|_| invalid("an array of impossible length"))?;
    // No capacity is taken from the peer's word: the items themselves have to arrive.
    let mut items = Vec::new();
    for _ in 0..len {
        items.push(read_reply(from, depth)?);
    }
    Ok(Reply::Array(items))
}

fn read_line(from: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_LIMIT).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let text = line.strip_suffix(b"\r\n").ok_or_else(|| invalid("a reply line without its end"))?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid("a reply with a broken number"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: the peer does not speak RESP2"))
}
