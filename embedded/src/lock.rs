//! One server for each data directory, and how others find it.
//!
//! Two servers that append to one file destroy it. The lock file is locked by the operating system (`flock`),
//! and the server process gets the locked file as its standard input, which it does not use otherwise. So the
//! lock ends with the *last* of the two processes: a server that is still saving after its parent was killed
//! keeps the directory, and nothing has to be cleaned up after a crash.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::{Connection, Error, Reply};

const LOCK_FILE: &str = "tidemill.lock";
/// The file holds a process id and a path.
const CONTENT_LIMIT: u64 = 4096;
/// A live server on this machine answers in well under a millisecond, a busy one in tens.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The locked file of a data directory.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks `dir`, without waiting.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK_FILE);
        let prepare = |source| Error::Prepare { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(prepare)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { file, path }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse { path: dir.to_owned(), owner: owner(&path) }),
            Err(TryLockError::Error(source)) => Err(prepare(source)),
        }
    }

    /// The same lock, for the server process to hold.
    pub(crate) fn share(&self) -> Result<Stdio, Error> {
        self.file.try_clone().map(Stdio::from).map_err(|source| Error::Prepare { path: self.path.clone(), source })
    }

    /// Writes down who holds it and where it answers.
    pub(crate) fn sign(&mut self, pid: u32, socket: &Path) -> Result<(), Error> {
        let mut write = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(format!("{pid}\n{}\n", socket.display()).as_bytes())
        };
        write().map_err(|source| Error::Prepare { path: self.path.clone(), source })
    }
}

/// The Unix socket of the server that runs on this data directory now, when there is one and it answers. This
/// is how a program in another terminal finds the development server. May block for 2 s when the server
/// hangs.
#[must_use]
pub fn running_socket(data_dir: &Path) -> Option<PathBuf> {
    let content = read(&data_dir.join(LOCK_FILE)).ok()?;
    let socket = PathBuf::from(content.lines().nth(1)?);
    ask(&socket).is_ok().then_some(socket)
}

/// One PING.
pub(crate) fn ask(socket: &Path) -> io::Result<Reply> {
    Connection::open(socket, ASK_LIMIT)?.command(&["PING"])
}

fn owner(path: &Path) -> String {
    match read(path).ok().as_deref().and_then(|content| content.lines().next()) {
        Some(pid) => format!("process {pid}"),
        None => "process unknown".to_owned(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    File::open(path)?.take(CONTENT_LIMIT).read_to_string(&mut content)?;
    Ok(content)
}
