//! One private server for each test, and the programs under test.
//!
//! A test starts its own server and shares no state with any other, so tests may run in any order and at the
//! same time:
//!
//! ```no_run
//! use std::process::Command;
//! use tidemill_tests::server;
//!
//! let server = server::start();
//! let worker = Command::new(server::bin("worker")).env("TIDEMILL__REDIS__URL", server.url()).spawn()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The server ends with the value, and with the test process when that is killed. Its methods block for
//! milliseconds; a test may call them between its own awaits. `TIDEMILL_TEST_SERVER=/path/to/server` runs the
//! whole suite on another server.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;
use std::{env, fs};

pub use tidemill_embedded::{Connection, Flavor, Options, Reply, Server, ServerBinary, Storage, Tcp, Version};

/// Names the server binary that the tests start; without it, they take what
/// [`tidemill_embedded::find_server`] finds.
pub const ENV_TEST_SERVER: &str = "TIDEMILL_TEST_SERVER";

/// Starts a server in memory, on a Unix socket only.
///
/// # Panics
///
/// When there is no server binary, or it does not start.
#[must_use]
pub fn start() -> Server {
    start_with(Options::new())
}

/// Starts a server with these options; the binary is always [`binary`].
///
/// # Panics
///
/// As [`start`].
#[must_use]
pub fn start_with(options: Options) -> Server {
    Server::start(options.binary(binary().clone())).unwrap_or_else(|error| panic!("no server for this test: {error}"))
}

/// The server binary of this test run, looked for once.
///
/// # Panics
///
/// When there is none; the message names three ways to get one.
pub fn binary() -> &'static ServerBinary {
    static BINARY: OnceLock<ServerBinary> = OnceLock::new();

    BINARY.get_or_init(|| {
        let named = env::var_os(ENV_TEST_SERVER).filter(|value| !value.is_empty());
        let found = named.map_or_else(tidemill_embedded::find_server, ServerBinary::at);
        found.unwrap_or_else(|error| panic!("the tests need a server: {error}"))
    })
}

/// The program `name` (`worker` or `producer`) of the profile that this test was built with.
///
/// Cargo gives a test only the programs of its own package, so these are looked for beside the test binary,
/// and have to be built before: `cargo xtask test` does it.
///
/// # Panics
///
/// When it is not built, or one of its sources was changed after it was built.
#[must_use]
pub fn bin(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap_or_else(|error| panic!("this test does not know its own path: {error}"));
    // target/<profile>/deps/it-<hash>
    let profile = test.ancestors().nth(2).unwrap_or_else(|| panic!("{} is in no target directory", test.display()));
    let program = profile.join(name).with_extension(env::consts::EXE_EXTENSION);
    let built = modified(&program)
        .unwrap_or_else(|| panic!("{} is not built; run `cargo build --workspace --bins`", program.display()));
    if let Some(source) = sources(&profile.join(format!("{name}.d"))).find(|source| modified(source) > Some(built)) {
        panic!("{name} is older than {}; run `cargo build --workspace --bins`", source.display());
    }
    program
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

/// The files that cargo built a program from, by its dep-info file `program: source source …`, where `\ ` is
/// a space in a name.
fn sources(dep_info: &Path) -> impl Iterator<Item = PathBuf> {
    let text = fs::read_to_string(dep_info).unwrap_or_default();
    let list = text.split_once(": ").map(|(_, list)| list.replace("\\ ", "\0")).unwrap_or_default();
    let files: Vec<PathBuf> = list.split_whitespace().map(|file| file.replace('\0', " ").into()).collect();
    files.into_iter()
}
