//! What must not be reached is not, however it is written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::super::testing::context;
use super::super::{Handler as _, Outcome};
use super::guard::{self, Guard, LookUp};
use super::tests::{Saw, answer, service};
use super::{HttpAgent, HttpOptions};

fn options(url: &str, allowed: &[&str]) -> HttpOptions {
    HttpOptions { allow_private: allowed.iter().map(ToString::to_string).collect(), ..HttpOptions::new(url) }
}

/// An agent whose URL was not looked at, so that its names meet the resolver.
fn unlooked(url: &str, allowed: &[&str], look_up: LookUp) -> HttpAgent {
    let options = options(url, allowed);
    let url = super::read_url(url).unwrap();
    let guard = Guard::new(&options.allow_private, Some(&url)).unwrap();
    HttpAgent::build(&options, super::Plan { url, headers: Default::default(), guard }, look_up).unwrap()
}

/// Each look-up answers with the next of these addresses.
fn answers(addresses: &[&str]) -> LookUp {
    let addresses: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
    let next = AtomicU16::new(0);
    Arc::new(move |_| {
        let at = usize::from(next.fetch_add(1, Ordering::Relaxed));
        let found = vec![addresses[at % addresses.len()]];
        Box::pin(async move { Ok(found) })
    })
}

#[test]
fn an_address_in_the_url_is_refused_at_the_start_however_it_is_written() {
    for (host, kind) in [
        ("127.0.0.1", "loopback"),
        ("127.1", "loopback"),
        ("2130706433", "loopback"),
        ("0x7f000001", "loopback"),
        ("0x7f.0.0.1", "loopback"),
        ("0177.0.0.1", "loopback"),
        ("127.0.0.1.", "loopback"),
        ("%31%32%37.0.0.1", "loopback"),
        ("１２７.0.0.1", "loopback"),
        ("[::1]", "loopback"),
        ("[0:0:0:0:0:0:0:1]", "loopback"),
        ("[::ffff:127.0.0.1]", "loopback"),
        ("[::ffff:7f00:1]", "loopback"),
        ("localhost", "loopback"),
        ("LOCALHOST.", "loopback"),
        ("a.localhost", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0", "unspecified"),
        ("[::]", "unspecified"),
        ("169.254.169.254", "metadata"),
        ("0xa9fea9fe", "metadata"),
        ("[::ffff:169.254.169.254]", "metadata"),
        ("[64:ff9b::169.254.169.254]", "metadata"),
        ("169.254.1.1", "link-local"),
        ("[fe80::1]", "link-local"),
        ("10.0.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("[fd00:ec2::254]", "private"),
        ("100.64.0.1", "shared"),
        ("224.0.0.1", "multicast"),
        ("[ff02::1]", "multicast"),
        ("255.255.255.255", "reserved"),
        ("[::127.0.0.1]", "reserved"),
        ("[2002:7f00:1::]", "reserved"),
        ("[2001:0:7f00:1::]", "reserved"),
        ("[64:ff9b:1::1]", "reserved"),
    ] {
        let wrong = options(&format!("http://{host}:8080/"), &[]).check().join("\n");
        assert!(wrong.starts_with("url: refused: ") && wrong.contains(kind), "{host}: {wrong:?}");
    }
    for host in
        ["agents.example", "8.8.8.8", "172.32.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]", "localhost.example"]
    {
        assert_eq!(options(&format!("https://{host}/"), &[]).check(), Vec::<String>::new(), "{host}");
    }
}

#[test]
fn only_http_is_called_and_no_secret_stands_in_the_url() {
    for (url, part) in [
        ("file:///etc/passwd", "begins with file:"),
        ("redis://db:6379", "begins with redis:"),
        ("gopher://db:70/_x", "begins with gopher:"),
        ("ftp://host/", "begins with ftp:"),
        ("agents.example/run", "is no URL"),
        ("http://", "is no URL"),
        ("", "is no URL"),
        ("http://me:hush@agents.example/", "holds a user or password"),
        ("http://me@agents.example/", "holds a user or password"),
    ] {
        let wrong = options(url, &[]).check().join("\n");
        assert!(wrong.starts_with("url: ") && wrong.contains(part) && !wrong.contains("hush"), "{url}: {wrong}");
    }
}

#[test]
fn what_was_allowed_may_be_reached_and_nothing_beside_it() {
    for (url, allowed, reached) in [
        ("http://10.1.2.3/", "10.1.0.0/16", true),
        ("http://10.2.2.3/", "10.1.0.0/16", false),
        ("http://[::ffff:10.1.2.3]/", "10.1.0.0/16", true),
        ("http://10.1.2.3/", "10.1.2.3", true),
        ("http://[fd00::7]/", "fd00::/8", true),
        ("http://localhost:81/", "127.0.0.0/8", true),
        ("http://localhost:81/", "::1", true),
        ("http://localhost:81/", "localhost:81", true),
        ("http://LocalHost.:81/", "localhost:81", true),
        ("http://localhost:82/", "localhost:81", false),
        ("http://localhost/", "localhost:80", true),
        ("https://[::1]/", "[::1]:443", true),
        ("http://127.0.0.1:81/", "localhost:81", false),
    ] {
        assert_eq!(options(url, &[allowed]).check().is_empty(), reached, "{url} {allowed}");
    }
    for entry in ["agents.internal", "10.0.0.0/33", "host:99999", "http://host:80", "a/b:80", "me@host:80", ""] {
        let wrong = options("http://agents.example/", &[entry]).check().join("\n");
        assert!(wrong.starts_with("allow_private: "), "{entry}: {wrong:?}");
    }
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_refused_at_the_connect() {
    let (port, mut saw) = service(answer("200 OK", "", "secret")).await;
    for (url, look_up) in [
        (format!("http://localhost:{port}/"), guard::system()),
        (format!("http://agents.example:{port}/"), answers(&["127.0.0.1"])),
        (format!("http://agents.example:{port}/"), answers(&["::ffff:127.0.0.1"])),
    ] {
        let Outcome::Dead { reason } = unlooked(&url, &[], look_up).run(context("", 1)).await else { panic!() };
        assert!(reason.starts_with("refused: ") && reason.contains("loopback"), "{reason}");
    }
    assert!(saw.try_recv().is_err(), "nothing was sent");
    for allowed in ["127.0.0.0/8".to_owned(), format!("agents.example:{port}")] {
        let agent = unlooked(&format!("http://agents.example:{port}/"), &[&allowed], answers(&["127.0.0.1"]));
        assert_eq!(agent.run(context("", 1)).await, Outcome::done("secret"), "{allowed}");
    }
    assert!(matches!(saw.recv().await, Some(Saw::Request(..))));
}

#[tokio::test]
async fn a_name_that_changes_gains_nothing() {
    // The first answer is allowed, but nobody is there; the second is where the attacker wants to be.
    let nobody = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap().port();
    let agent =
        unlooked(&format!("http://rebinds.example:{nobody}/"), &["127.0.0.2"], answers(&["127.0.0.2", "127.0.0.1"]));
    let Outcome::Retry { .. } = agent.run(context("", 1)).await else { panic!() };
    let Outcome::Dead { reason } = agent.run(context("", 2)).await else { panic!() };
    assert!(reason.contains("rebinds.example is at 127.0.0.1, a loopback address"), "{reason}");
}

#[test]
fn of_several_addresses_only_the_public_are_used() {
    let guard = Guard::new(&[], None).unwrap();
    let at = |ips: &[&str]| ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect::<Vec<_>>();
    let mixed = at(&["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1111"]);
    assert_eq!(guard.open("x", mixed.into_iter()), Ok(at(&["1.1.1.1", "2606:4700::1111"])));
    let refused = guard.open("x", at(&["168.63.129.16", "::1"]).into_iter()).unwrap_err().to_string();
    assert_eq!(refused, "refused: x is at 168.63.129.16, a metadata address and not in allow_private");
    assert_eq!(guard.open("x", std::iter::empty()), Ok(Vec::new()), "the client says that there is no address");
}
