//! Where the files of one private server lie, and what its configuration file says.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::options::{Options, Storage};
use crate::{Error, socket};

/// A log that is larger than this is emptied at the next start.
const LOG_LIMIT: u64 = 1024 * 1024;
/// How much of the log's end an error shows.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 15;

/// The files of one server. Dropping it removes the temporary ones.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) keep_data: bool,
    /// Holds the data, or only the socket.
    _temporary: Option<TempDir>,
}

impl Layout {
    /// Makes the directories.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let (dir, temporary) = match &options.storage {
            Storage::Memory | Storage::Temporary => {
                let private = socket::private_dir()?;
                (private.path().to_owned(), Some(private))
            }
            Storage::Directory(dir) => (data_dir(dir)?, None),
        };
        let beside = dir.join("redis.sock");
        let (socket, temporary) = match &options.socket {
            Some(path) => (path.clone(), temporary),
            None if temporary.is_some() || socket::check(&beside).is_ok() => (beside, temporary),
            None => {
                let private = socket::private_dir()?;
                (private.path().join("redis.sock"), Some(private))
            }
        };
        socket::check(&socket)?;
        Ok(Layout { dir, socket, keep_data: options.storage != Storage::Memory, _temporary: temporary })
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.dir.join("server.conf")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Writes the configuration file (mode 0600: extra lines may hold passwords).
    pub(crate) fn write_config(&self, port: Option<u16>, lines: &[String]) -> Result<PathBuf, Error> {
        let path = self.config_path();
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(self.config(port, lines).as_bytes())
        };
        write().map_err(|source| Error::Prepare { path: path.clone(), source })?;
        Ok(path)
    }

    fn config(&self, port: Option<u16>, lines: &[String]) -> String {
        let append_only = if self.keep_data { "yes" } else { "no" };
        let mut text = format!(
            "# Written at each start by tidemill-embedded. Changes here are lost.\n\
             daemonize no\n\
             supervised no\n\
             bind 127.0.0.1\n\
             protected-mode yes\n\
             port {port}\n\
             unixsocket {socket}\n\
             unixsocketperm 700\n\
             timeout 0\n\
             dir {dir}\n\
             logfile \"\"\n\
             loglevel notice\n\
             always-show-logo no\n\
             maxmemory-policy noeviction\n\
             save \"\"\n\
             appendonly {append_only}\n\
             appendfsync everysec\n",
            port = port.unwrap_or(0),
            socket = quoted(&self.socket),
            dir = quoted(&self.dir),
        );
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Opens the log for the server to append to, and says at which byte this run's lines start.
    pub(crate) fn open_log(&self) -> Result<(File, u64), Error> {
        let path = self.log_path();
        let open = || {
            let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            let mut len = log.metadata()?.len();
            if len > LOG_LIMIT {
                log.set_len(0)?;
                len = 0;
            }
            Ok((log, len))
        };
        open().map_err(|source| Error::Prepare { path: path.clone(), source })
    }

    /// The last lines of the log after byte `from`, for people.
    pub(crate) fn log_tail(&self, from: u64) -> String {
        let read = || -> io::Result<String> {
            let mut log = File::open(self.log_path())?;
            let len = log.metadata()?.len();
            log.seek(SeekFrom::Start(from.max(len.saturating_sub(TAIL_BYTES))))?;
            let mut bytes = Vec::new();
            log.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

/// Creates the data directory, and resolves it: the server changes into it, so a relative path would mean
/// another place there.
fn data_dir(dir: &Path) -> Result<PathBuf, Error> {
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        dir.canonicalize()
    };
    make().map_err(|source| Error::Prepare { path: dir.to_owned(), source })
}

/// A configuration value in quotes; bytes that could end it or the line are written as `\xHH`.
pub(crate) fn quoted(path: &Path) -> String {
    let mut text = String::from("\"");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}
