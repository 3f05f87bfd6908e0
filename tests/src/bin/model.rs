//! `cargo xtask model`: the model test for as long as one likes, or its own test by mutants (`--mutants [--only PART]`).

use std::process::ExitCode;
use std::time::Instant;

use tidemill_tests::model::{Done, Host, Sort, history, mutants};

fn number(args: &[String], name: &str, default: u64) -> u64 {
    let at = args.iter().position(|a| a == name);
    at.and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (seed, many, checks) =
        (number(&args, "--seed", 1), number(&args, "--histories", 10_000), number(&args, "--checks", 10));
    let began = Instant::now();
    if args.iter().any(|a| a == "--mutants") {
        let mut missed = 0;
        let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1));
        for mutant in mutants::MUTANTS.iter().filter(|m| only.is_none_or(|part| m.name.contains(part.as_str()))) {
            let began = Instant::now();
            if let Some(found) = mutants::find(mutant, seed, many.min(400), 30) {
                println!("{:<62} found after {:>4} histories, {:.1?}", mutant.name, found.after, began.elapsed());
            } else {
                missed += 1;
                println!("{:<62} NOT FOUND, {:.1?}", mutant.name, began.elapsed());
            }
        }
        return if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut host = Host::start(&[]);
    let mut all = Done::default();
    for seed in seed..seed.saturating_add(many) {
        match history(&mut host, Sort::Strict, seed, checks, true) {
            Ok(done) => {
                all.histories += 1;
                all.calls += done.calls;
                all.checks += done.checks;
                all.tasks += done.tasks;
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        if all.histories.is_multiple_of(1_000) {
            println!("{all:?} {:.0?}", began.elapsed());
        }
    }
    println!("{all:?} {:.0?}", began.elapsed());
    ExitCode::SUCCESS
}
