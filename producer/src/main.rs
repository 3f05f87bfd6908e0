//! The program `producer`. All of it is in [`cli`]; `producer --help` says what it does.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
