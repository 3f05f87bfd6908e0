//! Spans reach a collector, and belong together over processes. The collector is a tiny one, in this process.
#![expect(clippy::unwrap_used, reason = "a panic with its line is a test's report, in its helpers too")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tidemill_tests::server;

/// A span, with the name of its service.
type Told = (String, Span);

/// Takes what is exported; the address that it is exported to.
fn collector(tell: Sender<Told>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || take(&stream, &tell));
        }
    });
    format!("http://{address}")
}

/// One connection: requests until it is closed.
fn take(stream: &TcpStream, tell: &Sender<Told>) {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if path.is_empty() {
                path.clone_from(&line);
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        assert!(path.starts_with("POST /v1/traces "), "{path}");
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
        for of in request.resource_spans {
            let named = of.resource.iter().flat_map(|r| &r.attributes).find(|a| a.key == "service.name");
            let service = text(named.and_then(|a| a.value.clone()?.value));
            for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let _ = tell.send((service.clone(), span));
            }
        }
        let mut answer = stream;
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

fn text(value: Option<Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(n)) => n.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attributes(span: &Span) -> HashMap<String, String> {
    span.attributes.iter().map(|a| (a.key.clone(), text(a.value.clone().unwrap().value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn start(what: &str, url: &str, collector: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_traced"));
    command.args([what, url]).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).env("OTEL_BSP_SCHEDULE_DELAY", "100");
    if what == "submit" {
        command.env("OTEL_SERVICE_NAME", "a-shop");
    }
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_submit_its_run_and_that_of_its_follow_up_are_one_trace() {
    let (server, (tell, told)) = (server::start(), mpsc::channel());
    let collector = collector(tell);
    let mut worker = start("work", &server.url(), &collector);
    let submitted = start("submit", &server.url(), &collector).wait_with_output().unwrap();
    assert!(submitted.status.success());
    let handler_was_told = String::from_utf8(submitted.stdout).unwrap().trim().to_owned();
    kill(Pid::from_raw(worker.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(worker.wait().unwrap().success());

    // All have ended, so all were told or are on their way.
    let mut spans: Vec<Told> = Vec::new();
    let until = Instant::now() + Duration::from_secs(10);
    let all = |spans: &[Told]| {
        let with = |name: &str, n| spans.iter().filter(|(_, span)| span.name == name).count() >= n;
        with("submit default", 1) && with("run default", 2) && with("claim", 1) && with("settle", 1)
    };
    while !all(&spans) {
        let left = until.saturating_duration_since(Instant::now());
        spans.push(told.recv_timeout(left).unwrap_or_else(|_| panic!("not all came: {spans:#?}")));
    }
    let named = |name: &'static str| spans.iter().filter(move |(_, span)| span.name == name);
    let (service, submit) = named("submit default").next().unwrap();
    assert_eq!((service.as_str(), submit.kind, submit.parent_span_id.len()), ("a-shop", 4, 0));
    let run_of = |agent: &str| {
        let of = |span: &Span| attributes(span).get("tidemill.agent").is_some_and(|a| a == agent);
        named("run default").find(|(_, span)| of(span)).unwrap()
    };
    let ((service, first), (_, second)) = (run_of("first"), run_of("second"));
    assert_eq!((service.as_str(), first.kind), ("tidemill-traced", 5));
    assert_eq!((&first.trace_id, &second.trace_id), (&submit.trace_id, &submit.trace_id));
    assert_eq!((&first.parent_span_id, &second.parent_span_id), (&submit.span_id, &first.span_id));
    assert_eq!(first.links[0].span_id, submit.span_id, "as the conventions ask, besides");
    let said = attributes(first);
    for (name, value) in [
        ("messaging.system", "tidemill"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "default"),
        ("tidemill.attempt", "1"),
        ("tidemill.outcome", "done"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(handler_was_told, format!("00-{}-{}-01", hex(&submit.trace_id), hex(&second.span_id)));
    for (name, of) in [("claim", submit), ("settle", first)] {
        let mut links = named(name).flat_map(|(_, span)| &span.links);
        assert!(links.any(|link| link.span_id == of.span_id), "{name} has no link");
    }
}

#[test]
fn a_collector_that_is_away_or_slow_holds_up_nothing() {
    let server = server::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut worker = start("work", &server.url(), &url);
    let began = Instant::now();
    let submitted = start("submit", &server.url(), &url).wait_with_output().unwrap();
    assert!(submitted.status.success() && began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    kill(Pid::from_raw(worker.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(worker.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}
