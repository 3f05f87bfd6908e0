//! The program `worker`. What it does is in the library; here are its command line, its configuration and its exit codes.

mod cli;
mod config;
mod dev;
mod health;
mod reach;
mod run;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tidemill_common::config::Loaded;
use tidemill_common::telemetry;

use cli::{Cli, Command};
use run::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    telemetry::init("tidemill-worker");
    let ended = command(cli.command);
    telemetry::end();
    match ended {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("worker: error[{}]: {failure}", failure.explained());
            failure.code()
        }
    }
}

fn command(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(settings) => runtime()?.block_on(run::run(load(&settings)?)),
        Command::Dev(dev) => runtime()?.block_on(dev::run(dev)),
        Command::Health(health) => Ok(ask(&health)?),
        Command::Config(cli::Config::Defaults) => {
            say(config::DEFAULTS);
            Ok(ExitCode::SUCCESS)
        }
        Command::Config(cli::Config::Show { origins, settings }) => {
            say(&load(&settings)?.show(origins));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes to standard output. That nobody reads it (`… | head`) is no reason to fail.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn load(settings: &cli::Settings) -> Result<Loaded<config::Config>, Failure> {
    let home = tidemill_embedded::home_dir();
    Ok(config::load(settings.add_to(config::loader(home.as_deref())))?)
}

fn ask(health: &cli::Health) -> Result<ExitCode, Failure> {
    let url = match &health.url {
        Some(url) => url.clone(),
        None => match load(&health.settings)?.value.admin() {
            Ok(Some(listen)) => format!("http://{}", health::reachable(listen)),
            _ => return Err(anyhow::anyhow!("admin.listen is off: there is nobody to ask").into()),
        },
    };
    match health::ask(&url) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(anyhow::Error::msg(why).into()),
    }
}

/// For the admin listener and signals; the worker has threads of its own.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    Ok(built.context("cannot start a runtime")?)
}
