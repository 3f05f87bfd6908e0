//! The development server that `worker dev` runs: found by a file in this directory or one above it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where `worker dev` writes its server's URL, below the directory it was started in.
pub(crate) const URL_FILE: &str = ".tidemill/dev/redis.url";
/// A URL fits in it, with room.
const BYTES_MAX: u64 = 4096;

/// The URL file of the nearest directory that has one, and its content.
///
/// Only a file of this user counts: anybody may create one in a shared directory such as `/tmp`, and would be sent our tasks.
pub(crate) fn find(from: &Path) -> Option<(PathBuf, String)> {
    from.ancestors().find_map(|dir| {
        let path = dir.join(URL_FILE);
        let meta = fs::metadata(&path).ok()?;
        let ours = meta.uid() == nix::unistd::geteuid().as_raw();
        let text = (meta.is_file() && ours && meta.len() <= BYTES_MAX).then(|| fs::read_to_string(&path).ok())??;
        let url = text.trim();
        (!url.is_empty()).then(|| (path, url.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_from_below_and_an_empty_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::create_dir_all(dir.path().join(".tidemill/dev")).unwrap();
        let file = dir.path().join(URL_FILE);
        fs::write(&file, "\n").unwrap();
        assert_eq!(find(&below), None);
        fs::write(&file, "redis+unix:///x\n").unwrap();
        assert_eq!(find(&below), Some((file, "redis+unix:///x".to_owned())));
    }
}
