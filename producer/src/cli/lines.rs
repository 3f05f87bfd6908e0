//! Lines of a file of tasks: read and parsed on a thread of their own, in chunks, with bounded memory.
//!
//! A read of stdin cannot be given up, so it must not be one that the program waits for at its end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read};
use std::path::Path;

use bytes::Bytes;
use tidemill_producer::{AgentName, NewTask, TaskId};
use tokio::sync::mpsc;

use super::codes::Code;
use super::exit::Failure;
use super::facts::{Facts, ServerClock};

/// What a line may have beside its payload.
const LINE_BYTES_BESIDE: usize = 64 << 10;
/// A chunk goes on its way when it has as many lines, or bytes, as this; or when the input has no more ready.
const CHUNK_LINES: usize = 256;
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks under way: with the two above, what lies in memory.
const CHUNKS: usize = 4;
const BUFFER_BYTES: usize = 256 << 10;

/// How lines are read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The agent of lines that name none.
    pub(crate) agent: Option<AgentName>,
    /// What lines do not say.
    pub(crate) defaults: Facts,
    /// The first line that counts, from 1.
    pub(crate) from_line: u64,
    /// Nothing is read after a bad line.
    pub(crate) strict: bool,
    /// Largest payload, in bytes.
    pub(crate) payload_bytes_max: usize,
    /// For lines that say `at`.
    pub(crate) clock: ServerClock,
}

/// A line, read.
#[derive(Debug)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: u64,
    /// Bytes of the input up to its end.
    pub(crate) end: u64,
    /// The id that was made for a line that has none of its own.
    pub(crate) made_id: Option<TaskId>,
    /// What is wrong with it; else its task is sent.
    pub(crate) wrong: Option<String>,
}

/// What the reader gives.
type Chunk = Vec<(Line, Option<NewTask>)>;

/// The input, and its size in bytes if that is known.
pub(crate) struct Input {
    from: Box<dyn Read + Send>,
    pub(crate) bytes: Option<u64>,
}

impl Input {
    /// Opens a file, or stdin for `-`.
    ///
    /// # Errors
    /// When it cannot be opened, or stdin is a terminal.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            if io::stdin().is_terminal() {
                return Err(Failure::at_terminal("a JSON object a line is to come", "submit"));
            }
            return Ok(Self { from: Box::new(io::stdin()), bytes: None });
        }
        let failed = |e: io::Error| Failure::cannot_read(&path.display().to_string(), &e);
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(Failure::usage(Code::CannotRead, format!("{} is a directory", path.display())));
        }
        Ok(Self { from: Box::new(file), bytes: meta.is_file().then_some(meta.len()) })
    }

    /// Begins to read. The thread ends with the input, or with the receiver.
    pub(crate) fn read(self, reading: Reading) -> mpsc::Receiver<Chunk> {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        std::thread::spawn(move || {
            let mut reader =
                Reader { from: BufReader::with_capacity(BUFFER_BYTES, self.from), reading, number: 0, end: 0 };
            while let Some(chunk) = reader.chunk() {
                if sender.blocking_send(chunk).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

struct Reader<R> {
    from: BufReader<R>,
    reading: Reading,
    number: u64,
    end: u64,
}

impl<R: Read> Reader<R> {
    /// The next lines; none at the end of the input. Does not wait for more when there is one.
    fn chunk(&mut self) -> Option<Chunk> {
        let (mut chunk, mut bytes) = (Chunk::new(), 0);
        loop {
            let mut text = Vec::new();
            let more = self.line(&mut text);
            let Ok(true) = more else {
                if let Err(error) = more {
                    chunk.push((self.told(Some(format!("cannot be read: {error}"))), None));
                    self.reading.from_line = u64::MAX;
                }
                return Some(chunk).filter(|chunk| !chunk.is_empty());
            };
            bytes += text.len();
            if self.number >= self.reading.from_line && !text.iter().all(u8::is_ascii_whitespace) {
                let (line, task) = self.parse(&text);
                let stop = line.wrong.is_some() && self.reading.strict;
                chunk.push((line, task));
                if stop {
                    self.reading.from_line = u64::MAX;
                    return Some(chunk);
                }
            }
            let full = chunk.len() >= CHUNK_LINES || bytes >= CHUNK_BYTES;
            if !chunk.is_empty() && (full || !self.from.buffer().contains(&b'\n')) {
                return Some(chunk);
            }
        }
    }

    fn most(&self) -> usize {
        self.reading.payload_bytes_max + LINE_BYTES_BESIDE
    }

    /// Reads a line, without holding more of it than a line may have. False at the end.
    fn line(&mut self, text: &mut Vec<u8>) -> io::Result<bool> {
        if self.reading.from_line == u64::MAX {
            return Ok(false);
        }
        let most = self.most();
        let mut seen = 0_u64;
        loop {
            let buffer = match self.from.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let line_end = buffer.iter().position(|byte| *byte == b'\n');
            let part = line_end.map_or(buffer, |at| &buffer[..at]);
            // One byte too many shows that it is too long.
            text.extend_from_slice(&part[..part.len().min((most + 1).saturating_sub(text.len()))]);
            let used = part.len() + usize::from(line_end.is_some());
            self.from.consume(used);
            seen += used as u64;
            if line_end.is_some() || used == 0 {
                break;
            }
        }
        self.end += seen;
        self.number += u64::from(seen > 0);
        Ok(seen > 0)
    }

    fn told(&self, wrong: Option<String>) -> Line {
        Line { number: self.number, end: self.end, made_id: None, wrong }
    }

    fn parse(&self, text: &[u8]) -> (Line, Option<NewTask>) {
        match self.task(text) {
            Ok((task, made_id)) => (Line { made_id, ..self.told(None) }, Some(task)),
            Err(wrong) => (self.told(Some(wrong)), None),
        }
    }

    fn task(&self, text: &[u8]) -> Result<(NewTask, Option<TaskId>), String> {
        let most = self.most();
        if text.len() > most {
            return Err(format!("has more than {most} bytes"));
        }
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.number == 1).unwrap_or(text);
        let mut facts = Facts::read(text)?.or(&self.reading.defaults);
        let agent = facts.agent.take().or_else(|| self.reading.agent.clone());
        let agent = agent.ok_or("names no agent, and neither does the command")?;
        let payload = facts
            .payload
            .take()
            .map_or_else(|| Bytes::from_static(b"null"), |json| Box::<str>::from(json).into_string().into());
        let own_id = facts.id.is_some();
        let task = facts.task(agent, payload, self.reading.clock)?;
        task.check_within(self.reading.payload_bytes_max).map_err(|e| e.to_string())?;
        let made_id = (!own_id).then(|| task.id.clone());
        Ok((task, made_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &'static [u8], strict: bool, from_line: u64) -> Vec<(u64, Option<String>)> {
        let reading = Reading {
            agent: Some("a".parse().unwrap()),
            defaults: Facts::default(),
            from_line,
            strict,
            payload_bytes_max: 10,
            clock: ServerClock::new(0),
        };
        let mut reader = Reader { from: BufReader::with_capacity(16, input), reading, number: 0, end: 0 };
        let lines = std::iter::from_fn(|| reader.chunk()).flatten();
        lines
            .map(|(line, task)| (line.number, line.wrong.or_else(|| task.map(|t| format!("{:?}", t.payload)))))
            .collect()
    }

    #[test]
    fn lines_keep_their_numbers_and_bad_ones_their_reasons() {
        let input =
            b"\xef\xbb\xbf{\"payload\":1}\n\n  \r\n{\"payload\":\"\\u0000\"}\r\n{\"payload\":[1,2,3,4,5,6]}\n{nope\n{}";
        let lines = read(input, false, 1);
        let numbers: Vec<_> = lines.iter().map(|l| l.0).collect();
        assert_eq!(numbers, [1, 4, 5, 6, 7]);
        let texts: Vec<_> = lines.iter().map(|l| l.1.clone().unwrap()).collect();
        assert_eq!(texts[0], "b\"1\"");
        assert_eq!(texts[1], r#"b"\"\\u0000\"""#);
        assert!(texts[2].contains("13 bytes"), "{texts:?}");
        assert!(texts[3].contains("column"), "{texts:?}");
        assert_eq!(texts[4], "b\"null\"");
    }

    #[test]
    fn strict_reads_no_further_and_a_start_skips() {
        assert_eq!(read(b"{}\nnope\n{}\n", true, 1).iter().map(|l| l.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(read(b"nope\n{}\n{}\n", true, 2).iter().map(|l| l.0).collect::<Vec<_>>(), [2, 3]);
        assert!(read(b"", false, 1).is_empty());
        assert!(read(b"{}\n", false, 9).is_empty());
    }

    #[test]
    fn a_line_without_an_end_is_not_held() {
        let endless = io::repeat(b'x').take(50 << 20);
        let reading = Reading {
            agent: None,
            defaults: Facts::default(),
            from_line: 1,
            strict: false,
            payload_bytes_max: 10,
            clock: ServerClock::new(0),
        };
        let mut reader = Reader { from: BufReader::new(endless), reading, number: 0, end: 0 };
        let chunk = reader.chunk().unwrap();
        assert!(chunk[0].0.wrong.as_ref().unwrap().contains("more than"));
        assert_eq!(reader.end, 50 << 20);
        assert!(reader.chunk().is_none());
    }
}
