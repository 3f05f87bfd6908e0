//! The path of a server's Unix socket: short enough for the kernel, plain enough for a URL.

use std::env;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Error;

/// `sun_path` holds 108 bytes on Linux and 104 on macOS and BSD, with a zero at the end.
const LONGEST: usize = 103;

/// Refuses a path that the kernel would not take, or that would not survive in a `redis+unix://` URL: fred
/// takes the URL's path as it is and does not undo percent-encoding, so only characters that need none can be
/// used.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~+@:,=".contains(byte);
    let refuse = |reason: String| Err(Error::SocketPath { path: path.to_owned(), reason });
    if !path.is_absolute() {
        refuse("it must be absolute".to_owned())
    } else if bytes.len() > LONGEST {
        refuse(format!("it is {} bytes long, and {LONGEST} are allowed; use a shorter directory", bytes.len()))
    } else if !bytes.iter().all(plain) || has_dots(path) {
        refuse("only ASCII letters, digits and /._-~+@:,= survive in its URL, and no `..`".to_owned())
    } else {
        Ok(())
    }
}

/// URL parsers resolve `.` and `..` by text, which the kernel does not.
fn has_dots(path: &Path) -> bool {
    path.as_os_str().as_bytes().split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..")
}

/// The URL that fred 10 understands: scheme `redis+unix`, no host, the path as it is.
pub(crate) fn url(path: &Path) -> String {
    format!("redis+unix://{}", path.display())
}

/// A new directory that only this user may enter, at a path that leaves room for a socket's name.
pub(crate) fn private_dir() -> Result<TempDir, Error> {
    // Without this the directory follows the umask, which usually lets everybody in.
    let only_us = Permissions::from_mode(0o700);
    let make = |parent: &Path| tempfile::Builder::new().prefix("tidemill-").permissions(only_us).tempdir_in(parent);
    let usual = env::temp_dir();
    let usable = check(&usual.join("tidemill-XXXXXX").join("redis.sock")).is_ok();
    let parent = if usable { usual } else { PathBuf::from("/tmp") };
    make(&parent).map_err(|source| Error::Prepare { path: parent, source })
}
