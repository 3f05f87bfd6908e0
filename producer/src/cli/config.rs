//! The program's configuration: defaults < development server found < file < environment < flags.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidemill_common::config::{Loaded, Loader, Mistakes, duration};
use tidemill_producer::{Options, RedisOptions, payloads};

/// The defaults, which are the documentation.
const DEFAULTS: &str = include_str!("../../../deploy/config/producer.toml");

/// All of it, as the file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) redis: RedisOptions,
    pub(crate) submit: Submit,
    pub(crate) wait: Wait,
    pub(crate) payloads: payloads::config::Section,
}

/// What a submit is held to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submit {
    /// Most waiting tasks of one queue and priority; 0: no bound.
    pub(crate) waiting_max: u64,
    /// How long urgent and high tasks wait for room.
    #[serde(with = "duration")]
    pub(crate) room_within: Duration,
    /// Largest payload, in bytes.
    pub(crate) payload_bytes_max: usize,
    /// Calls under way at once in a bulk submit.
    pub(crate) calls_in_flight: usize,
}

/// How long to wait.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// How long `wait` and `submit --wait` do, unless told.
    #[serde(with = "duration")]
    pub(crate) timeout: Duration,
}

/// What the layers are read from, so that a test can give its own.
#[derive(Debug, Default)]
pub(crate) struct Sources<'a> {
    pub(crate) dir: Option<&'a Path>,
    pub(crate) file: Option<&'a Path>,
    /// None: the process's.
    pub(crate) env: Option<Vec<(String, String)>>,
    pub(crate) redis_flag: Option<String>,
}

/// Loads it.
///
/// # Errors
/// All mistakes at once, each with the place that made it.
pub(crate) fn load(sources: Sources<'_>) -> Result<Loaded<Config>, Mistakes> {
    let mut loader =
        Loader::new(DEFAULTS).secret("redis.url", shown).secret(payloads::config::SECRET, |_| "***".to_owned());
    if let Some((path, url)) = sources.dir.and_then(super::dev::find) {
        loader = loader.found(path, "redis.url", &url);
    }
    if let Some(path) = sources.file {
        loader = loader.file(path);
    }
    let loader = match sources.env {
        Some(pairs) => loader.env(pairs),
        None => loader.env_of_process(),
    };
    loader.flag("--redis", "redis.url", sources.redis_flag).load(Config::wrong)
}

fn shown(url: &str) -> String {
    RedisOptions { url: url.to_owned(), ..RedisOptions::default() }.shown_url()
}

impl Config {
    /// What does not fit together.
    fn wrong(&self) -> Vec<String> {
        const PAYLOAD_BYTES_LIMIT: usize = 64 << 20;
        let mut wrong = Vec::new();
        if self.redis.command_timeout_ms == 0 || self.redis.connect_timeout_ms == 0 {
            wrong.push(
                "redis.command_timeout_ms, redis.connect_timeout_ms: at least 1, so that nothing waits for ever"
                    .to_owned(),
            );
        }
        if !(1..=64).contains(&self.submit.calls_in_flight) {
            wrong.push("submit.calls_in_flight: 1 to 64".to_owned());
        }
        if !(1..=PAYLOAD_BYTES_LIMIT).contains(&self.submit.payload_bytes_max) {
            wrong.push(format!("submit.payload_bytes_max: 1 to {PAYLOAD_BYTES_LIMIT}"));
        }
        match self.payloads.build() {
            Ok(built) if !built.is_plain() && self.payloads.bytes_max < self.submit.payload_bytes_max => wrong.push(
                "payloads.bytes_max: must be at least submit.payload_bytes_max, or workers are handed what none decodes"
                    .to_owned(),
            ),
            Ok(_) => {}
            Err(mistakes) => wrong.extend(mistakes),
        }
        wrong
    }

    /// The client's options.
    pub(crate) fn options(&self) -> Options {
        Options {
            redis: self.redis.clone(),
            waiting_max: self.submit.waiting_max,
            room_within: self.submit.room_within,
            payload_bytes_max: self.submit.payload_bytes_max,
            calls_in_flight: self.submit.calls_in_flight,
            // Checked when it was loaded.
            payloads: self.payloads.build().ok().map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_common::config::Origin;

    use super::*;

    #[test]
    fn the_defaults_file_is_right_and_agrees_with_the_library() {
        let loaded = load(Sources { env: Some(Vec::new()), ..Sources::default() }).unwrap();
        let library = Options::default();
        let options = loaded.value.options();
        assert_eq!(options.redis.url, library.redis.url);
        assert_eq!(options.waiting_max, library.waiting_max);
        assert_eq!(options.room_within, library.room_within);
        assert_eq!(options.payload_bytes_max, library.payload_bytes_max);
        assert_eq!(options.calls_in_flight, library.calls_in_flight);
        assert_eq!(loaded.value.payloads, payloads::config::Section::default());
        assert_eq!(loaded.origin("redis.url"), &Origin::Default);
    }

    #[test]
    fn layers_win_in_their_order_and_mistakes_come_together() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".tidemill/dev")).unwrap();
        std::fs::write(dir.path().join(super::super::dev::URL_FILE), "redis+unix:///dev").unwrap();
        let url = |sources| load(sources).unwrap().value.redis.url;
        let env = || Some(vec![("TIDEMILL__REDIS__URL".to_owned(), "redis://env".to_owned())]);
        assert_eq!(
            url(Sources { dir: Some(dir.path()), env: Some(Vec::new()), ..Sources::default() }),
            "redis+unix:///dev"
        );
        assert_eq!(url(Sources { dir: Some(dir.path()), env: env(), ..Sources::default() }), "redis://env");
        let flag = Some("redis://flag".to_owned());
        assert_eq!(url(Sources { dir: Some(dir.path()), env: env(), redis_flag: flag, file: None }), "redis://flag");

        let env = [
            ("TIDEMILL__SUBMIT__WAITING_MAXX", "1"),
            ("TIDEMILL__WAIT__TIMEOUT", "soon"),
            ("TIDEMILL__SUBMIT__CALLS_IN_FLIGHT", "0"),
        ];
        let env = Some(env.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec());
        let mistakes = load(Sources { env, ..Sources::default() }).unwrap_err();
        assert_eq!(mistakes.0.len(), 3, "{mistakes}");
    }
}
