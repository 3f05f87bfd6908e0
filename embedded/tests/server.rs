//! Real servers, started and ended in every way there is. Each test needs a Redis or Valkey on the machine
//! (`cargo xtask setup`).

// It looks into /proc, and only Linux ends children with their parent.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidemill_embedded::child::{ParentDeath, die_with_parent, spawn_from_keeper_thread};
use tidemill_embedded::{Error, Options, Reply, Server, Storage, Tcp, find_server, running_socket};

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn is_alive(pid: u32) -> bool {
    // A zombie has a directory in /proc too, and an empty command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !happened() {
        assert!(Instant::now() < deadline, "{what} did not happen within 10 s");
        std::thread::yield_now();
    }
}

#[test]
fn a_server_answers_on_its_socket_and_leaves_nothing_behind() {
    let server = Server::start(Options::new()).unwrap();
    let (pid, socket) = (server.pid().unwrap(), server.socket_path().to_owned());
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Simple("PONG".to_owned()));
    assert_eq!(server.command(&[b"SET".as_slice(), b"k", b"\0\xff\r\n"]).unwrap(), ok());
    assert_eq!(server.command(&["GET", "k"]).unwrap(), Reply::Bulk(b"\0\xff\r\n".to_vec()));
    assert!(server.command(&["NOSUCH"]).unwrap().as_error().is_some());
    assert_eq!(server.url(), format!("redis+unix://{}", socket.display()));
    assert_eq!((server.port(), server.tcp_url()), (None, None));

    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).unwrap();
    assert_eq!(policy.as_array().unwrap()[1].as_str(), Some("noeviction"));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    assert_eq!(mode(&socket.with_file_name("server.conf")), 0o600);
    assert_eq!(mode(&socket), 0o700);

    drop(server);
    assert!(!is_alive(pid));
    assert!(!socket.parent().unwrap().exists());
}

#[test]
fn two_servers_at_once_share_nothing() {
    let one = Server::start(Options::new()).unwrap();
    let two = Server::start(Options::new()).unwrap();
    assert_ne!(one.socket_path(), two.socket_path());
    one.command(&["SET", "k", "one"]).unwrap();
    assert!(two.command(&["GET", "k"]).unwrap().is_nil());
}

#[test]
fn memory_is_empty_after_a_restart_at_the_same_place() {
    let mut server = Server::start(Options::new().tcp(Tcp::Free)).unwrap();
    let (url, tcp_url, pid) = (server.url(), server.tcp_url().unwrap(), server.pid());
    server.command(&["SET", "k", "v"]).unwrap();
    server.restart().unwrap();
    assert_eq!((server.url(), server.tcp_url().unwrap()), (url, tcp_url));
    assert_ne!(server.pid(), pid);
    assert!(server.command(&["GET", "k"]).unwrap().is_nil());
}

#[test]
fn the_tcp_port_is_open_on_loopback_only_when_asked_for() {
    let server = Server::start(Options::new().tcp(Tcp::Free)).unwrap();
    let port = server.port().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let taken = Server::start(Options::new().tcp(Tcp::Port(port))).unwrap_err();
    assert!(matches!(&taken, Error::Exited { .. }), "{taken}");
    assert!(taken.to_string().contains("Address already in use"), "{taken}");
}

#[test]
fn an_append_only_file_survives_stop_and_kill() {
    let mut server = Server::start(Options::new().storage(Storage::Temporary)).unwrap();
    server.command(&["SET", "a", "1"]).unwrap();
    server.restart().unwrap();
    assert_eq!(server.command(&["INCR", "a"]).unwrap(), Reply::Int(2));
    server.kill().unwrap();
    assert!(matches!(server.command(&["PING"]), Err(Error::NotRunning)));
    assert_eq!((server.pid(), server.is_running()), (None, false));
    server.kill().unwrap();
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!(server.command(&["GET", "a"]).unwrap().as_int(), Some(2));
}

#[test]
fn a_data_directory_keeps_its_data_and_takes_one_server_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a/data");
    let options = || Options::new().storage(Storage::Directory(data.clone()));
    assert_eq!(running_socket(&data), None);

    let server = Server::start(options()).unwrap();
    server.command(&["SET", "k", "v"]).unwrap();
    assert_eq!(running_socket(&data).as_deref(), Some(server.socket_path()));
    let refused = Server::start(options()).unwrap_err();
    assert!(matches!(&refused, Error::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("process {}", server.pid().unwrap())), "{refused}");
    drop(server);

    assert_eq!(running_socket(&data), None);
    let server = Server::start(options()).unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap().as_str(), Some("v"));
}

#[test]
fn the_lock_of_a_data_directory_lives_as_long_as_the_server_process() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().storage(Storage::Directory(dir.path().to_owned()));
    let server = Server::start(options()).unwrap();
    let pid = server.pid().unwrap();
    // Our own handle on the lock file is not what holds it: the server has it as its standard input.
    let stdin = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    assert_eq!(stdin, dir.path().canonicalize().unwrap().join("tidemill.lock"));
    drop(server);
    Server::start(options()).unwrap();
}

#[test]
fn a_data_directory_whose_path_is_no_socket_path_gets_its_socket_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join(format!("with space/{}", "x".repeat(120)));
    let server = Server::start(Options::new().storage(Storage::Directory(data.clone()))).unwrap();
    assert!(!server.socket_path().starts_with(&data));
    assert_eq!(running_socket(&data).as_deref(), Some(server.socket_path()));
    let socket = server.socket_path().to_owned();
    drop(server);
    assert!(!socket.parent().unwrap().exists());
    assert!(data.join("server.log").exists());
}

#[test]
fn a_given_socket_is_used_and_never_stolen() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let first = Server::start(Options::new().socket(&socket)).unwrap();
    assert_eq!(first.socket_path(), socket);
    let refused = Server::start(Options::new().socket(&socket)).unwrap_err();
    assert!(refused.to_string().contains("another server answers on it"), "{refused}");
    assert!(Server::start(Options::new().socket("relative")).is_err());
}

#[test]
fn extra_lines_win_and_a_bad_one_fails_with_the_words_of_the_server() {
    let server = Server::start(Options::new().config_line("maxmemory 8mb").config_line("requirepass secret")).unwrap();
    assert!(server.command(&["PING"]).unwrap().as_error().unwrap().contains("NOAUTH"));
    let mut connection = server.connect().unwrap();
    assert_eq!(connection.command(&["AUTH", "secret"]).unwrap(), ok());
    let limit = connection.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(limit.as_array().unwrap()[1].as_int(), Some(8 * 1024 * 1024));

    let failed = Server::start(Options::new().config_line("no-such-option yes")).unwrap_err();
    assert!(matches!(&failed, Error::Exited { .. }), "{failed}");
    assert!(failed.to_string().contains("no-such-option"), "{failed}");
}

#[test]
fn a_frozen_server_keeps_its_connections_and_can_be_stopped() {
    let mut server = Server::start(Options::new()).unwrap();
    let mut connection = tidemill_embedded::Connection::open(server.socket_path(), Duration::from_millis(50)).unwrap();
    assert_eq!(connection.command(&["SET", "k", "v"]).unwrap(), ok());
    server.freeze().unwrap();
    assert!(connection.command(&["GET", "k"]).is_err());
    assert!(server.is_running());
    server.thaw().unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap().as_str(), Some("v"));
    server.freeze().unwrap();
    server.stop().unwrap();
    assert!(!server.is_running());
}

#[test]
fn a_server_that_never_answers_is_reported_and_killed() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let fake = dir.path().join("fake-server");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'Redis server v=7.2.0 sha=0'; exit; fi\n\
         echo $$ > {}\necho 'I am stuck'\nexec sleep 60\n",
        pid_file.display()
    );
    std::fs::write(&fake, script).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o700)).unwrap();
    let binary = tidemill_embedded::ServerBinary::at(&fake).unwrap();
    let failed = Server::start(Options::new().binary(binary).ready_within(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(&failed, Error::NotReady { .. }), "{failed}");
    assert!(failed.to_string().contains("I am stuck"), "{failed}");
    let pid: u32 = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    assert!(!is_alive(pid));
}

#[test]
fn a_server_started_from_a_thread_that_ends_lives_on() {
    let start = || Server::start(Options::new()).unwrap();
    let mut server = std::thread::spawn(start).join().unwrap();
    // The kernel would have sent its signal when the thread ended, which was before `join` returned.
    assert_eq!(server.command(&["PING"]).unwrap(), Reply::Simple("PONG".to_owned()));
    assert!(server.is_running());
}

#[test]
fn the_trap_of_the_module_docs_is_real_and_the_keeper_thread_avoids_it() {
    let sleeper = || {
        let mut cmd = Command::new("sleep");
        cmd.arg("60").stdin(Stdio::null());
        die_with_parent(&mut cmd, ParentDeath::Kill);
        cmd
    };
    let mut direct = std::thread::spawn(move || sleeper().spawn().unwrap()).join().unwrap();
    assert!(!direct.wait().unwrap().success());

    let mut kept = std::thread::spawn(move || spawn_from_keeper_thread(sleeper()).unwrap()).join().unwrap();
    assert!(kept.try_wait().unwrap().is_none());
    kept.kill().unwrap();
    kept.wait().unwrap();
}

/// Runs this test binary again as another process that starts a server, says its pid, and is then killed.
#[test]
fn the_server_dies_with_a_killed_parent() {
    const ROLE: &str = "TIDEMILL_EMBEDDED_TEST_DATA";
    if let Some(data) = std::env::var_os(ROLE) {
        let storage = if data.is_empty() { Storage::Memory } else { Storage::Directory(data.into()) };
        let server = Server::start(Options::new().storage(storage)).unwrap();
        server.command(&["SET", "k", "v"]).unwrap();
        println!("\npid {} dir {}", server.pid().unwrap(), server.socket_path().parent().unwrap().display());
        loop {
            std::thread::park();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    for data in ["", dir.path().to_str().unwrap()] {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["the_server_dies_with_a_killed_parent", "--exact", "--nocapture"])
            .env(ROLE, data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = std::io::BufRead::lines(std::io::BufReader::new(parent.stdout.take().unwrap()))
            .map(Result::unwrap)
            .find(|line| line.starts_with("pid "))
            .unwrap();
        let words: Vec<&str> = said.split(' ').collect();
        let pid: u32 = words[1].parse().unwrap();
        assert!(is_alive(pid));
        parent.kill().unwrap();
        parent.wait().unwrap();
        soon("the end of the server", || !is_alive(pid));
        if data.is_empty() {
            std::fs::remove_dir_all(words[3]).unwrap();
        }
    }
    let server = Server::start(Options::new().storage(Storage::Directory(dir.path().to_owned()))).unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap().as_str(), Some("v"));
}

#[test]
fn the_found_server_is_new_enough_and_says_what_it_is() {
    let found = find_server().unwrap();
    assert!(found.version().major >= 7, "{found}");
    assert!(found.to_string().contains(&found.path().display().to_string()));
}
