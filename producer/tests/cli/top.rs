//! `producer top` on a terminal of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Worker, producer, read_all, run, server};

/// How a terminal is told to show the other screen, and the first one again.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// The program on a terminal; gives the terminal's other side.
fn on_terminal(mut command: Command) -> (Child, File) {
    let size = nix::pty::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = nix::pty::openpty(Some(&size), None).unwrap();
    command.env("TERM", "xterm").stdin(Stdio::from(terminal.slave.try_clone().unwrap()));
    command.stdout(Stdio::from(terminal.slave));
    let child = command.spawn().unwrap();
    (child, File::from(terminal.master))
}

/// Reads until this was shown.
fn until(terminal: &mut File, part: &str) -> String {
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(part) {
            return text;
        }
        let mut waits = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waits, 30_000_u16), Ok(1), "{part:?} was not shown: {text}");
        match terminal.read(&mut bytes) {
            Ok(read @ 1..) => all.extend_from_slice(&bytes[..read]),
            end => panic!("{end:?}, and {part:?} was not shown: {text}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_draws_pauses_what_is_selected_and_leaves_the_terminal_as_it_was() {
    let server = server();
    let url = server.url();
    let _worker = Worker::start(&url, "a").await;
    run(&url, &["submit", "a", "1", "--queue", "slow"]).assert_code(0);
    let (mut child, mut terminal) = on_terminal(producer(&url, &["top"]));
    let shown = until(&mut terminal, "q quit");
    assert!(shown.contains(ENTER) && shown.contains("slow"), "{shown}");
    terminal.write_all(b"p").unwrap();
    until(&mut terminal, "y: yes");
    terminal.write_all(b"y").unwrap();
    // Only cells that change are drawn, so that the server is what tells.
    let paused = || run(&url, &["pause", "--list"]).assert_code(0).json()[0]["name"] == "slow";
    assert!((0..100).any(|_| paused()), "it was not paused");
    terminal.write_all(b"q").unwrap();
    assert!(read_all(terminal).contains(LEAVE));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let server = server();
    let (mut child, mut terminal) = on_terminal(producer(&server.url(), &["top"]));
    until(&mut terminal, "q quit");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(read_all(terminal).contains(LEAVE));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let server = server();
    let none = run(&server.url(), &["top"]).assert_code(2);
    assert!(none.err.contains("TM-0214") && none.err.contains("queue --watch"), "{none:?}");
}
