//! Calls to real sockets. The services here are bare: what they say, and when they break off, is told them byte by byte.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::sync::mpsc::UnboundedReceiver as Receiver;

use tidemill_common::spend::Spend;

use super::super::testing::context;
use super::super::{Handler as _, Outcome};
use super::{HttpAgent, HttpError, HttpOptions};

/// What a service does with a request.
#[derive(Debug, Clone)]
pub(super) enum Does {
    /// Says this, and reads on.
    Answer(String),
    /// Says this, and closes the connection.
    Cut(String),
    /// Says this and no more.
    Stop(String),
}

/// What a service has seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Saw {
    /// A request on this connection (from 1), with its head in lower case, and its body.
    Request(usize, String, Vec<u8>),
    /// The other side has closed this connection.
    Closed(usize),
}

/// Listens on a free port of this machine, and does the same with each request.
pub(super) async fn service(does: Does) -> (u16, Receiver<Saw>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, (tell, saw)) = (listener.local_addr().unwrap().port(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (tell, does) = (tell.clone(), does.clone());
            tokio::spawn(async move {
                let _ = serve(stream, number, &does, &tell).await;
                let _ = tell.send(Saw::Closed(number));
            });
        }
    });
    (port, saw)
}

async fn serve(
    stream: TcpStream,
    number: usize,
    does: &Does,
    tell: &mpsc::UnboundedSender<Saw>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if let Some(given) = line.to_lowercase().strip_prefix("content-length:") {
                length = given.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let _ = tell.send(Saw::Request(number, head.to_lowercase(), body));
        match does {
            Does::Answer(text) => stream.write_all(text.as_bytes()).await?,
            Does::Cut(text) => return stream.write_all(text.as_bytes()).await,
            Does::Stop(text) => stream.write_all(text.as_bytes()).await?,
        }
    }
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> Does {
    Does::Answer(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// An agent that may call this machine.
fn agent(port: u16, change: impl FnOnce(&mut HttpOptions)) -> HttpAgent {
    let mut options = HttpOptions::new(format!("http://127.0.0.1:{port}/run?x=1"));
    options.allow_private = vec!["127.0.0.0/8".into()];
    change(&mut options);
    HttpAgent::new(&options).unwrap()
}

async fn call(does: Does) -> Outcome {
    let (port, _saw) = service(does).await;
    agent(port, |_| {}).run(context("{}", 1)).await
}

/// Also a refusal may have cost something; what is no amount is passed over.
#[tokio::test]
async fn what_a_call_has_used_is_said_by_headers() {
    for (headers, used) in [
        ("", None),
        ("Tidemill-Tokens: 812\r\nTidemill-Cost-Usd: 0.004\r\n", Some(Spend { tokens: 812, micro_usd: 4_000 })),
        ("Tidemill-Cost-Usd: 2\r\nTidemill-Tokens: many\r\n", Some(Spend::micro_usd(2_000_000))),
        ("Tidemill-Tokens: -1\r\n", None),
    ] {
        for status in ["200 OK", "429 x", "500 x"] {
            let (port, _saw) = service(answer(status, headers, "said")).await;
            let context = context("{}", 1);
            agent(port, |_| {}).run(context.clone()).await;
            assert_eq!(context.used.said(), used, "{status} {headers}");
        }
    }
}

#[tokio::test]
async fn each_status_means_what_the_table_says() {
    let ms = Duration::from_millis;
    let retry = |error: &str, after| Outcome::Retry { error: error.into(), after };
    let throttled = |error: &str, until| Outcome::Throttled { error: error.into(), until };
    for (status, headers, expected) in [
        ("200 OK", "", Outcome::done("said")),
        ("202 Accepted", "", Outcome::done("said")),
        ("408 Request Timeout", "", retry("HTTP 408 Request Timeout: said", None)),
        ("425 Too Early", "Retry-After: 2\r\n", retry("HTTP 425 Too Early: said", Some(ms(2_000)))),
        ("500 Oops", "", retry("HTTP 500 Internal Server Error: said", None)),
        ("502 x", "retry-after-ms: 150\r\n", retry("HTTP 502 Bad Gateway: said", Some(ms(150)))),
        ("503 x", "", retry("HTTP 503 Service Unavailable: said", None)),
        ("503 x", "Retry-After: 7\r\n", throttled("HTTP 503 Service Unavailable: said", ms(7_000))),
        ("429 x", "", throttled("HTTP 429 Too Many Requests: said", ms(1_000))),
        ("429 x", "retry-after-ms: 250\r\n", throttled("HTTP 429 Too Many Requests: said", ms(250))),
        ("429 x", "Retry-After: 0\r\n", throttled("HTTP 429 Too Many Requests: said", ms(100))),
        ("400 x", "", Outcome::dead("HTTP 400 Bad Request: said")),
        ("404 x", "", Outcome::dead("HTTP 404 Not Found: said")),
        ("499 x", "", Outcome::dead("HTTP 499: said")),
        (
            "302 Found",
            "Location: http://169.254.169.254/\r\n",
            Outcome::dead("HTTP 302 Found: redirects are not followed"),
        ),
    ] {
        assert_eq!(call(answer(status, headers, "said")).await, expected, "{status} {headers}");
    }
    assert_eq!(call(Does::Answer("HTTP/1.1 204 No Content\r\n\r\n".into())).await, Outcome::done(""));
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:40 GMT\r\n";
    let Outcome::Throttled { until, .. } = call(answer("429 x", date, "")).await else { panic!() };
    assert_eq!(until, ms(3_000));
}

#[tokio::test]
async fn of_an_error_only_a_printable_excerpt_is_kept() {
    let body = format!("line\r\n\u{1b}[31mred\u{202e} {}", "é".repeat(2_000));
    let Outcome::Dead { reason } = call(answer("422 x", "", &body)).await else { panic!() };
    let text = reason.strip_prefix("HTTP 422 Unprocessable Entity: ").unwrap();
    assert!(text.starts_with("line [31mred é") && text.len() <= 512, "{text}");
    // An error whose body never ends is told all the same.
    let slow = Does::Stop("HTTP/1.1 400 x\r\nContent-Length: 9\r\n\r\nhalf".into());
    assert_eq!(call(slow).await, Outcome::dead("HTTP 400 Bad Request: half"));
}

#[tokio::test]
async fn a_request_says_which_run_it_is_of() {
    let (port, mut saw) = service(answer("200 OK", "", "")).await;
    let agent = agent(port, |o| {
        o.headers.insert("Authorization".into(), "Bearer secret".into());
        o.call_timeout = Some(Duration::from_secs(20));
    });
    assert!(!format!("{agent:?}").contains("secret"));
    let mut of = context(r#"{"a":1}"#, 2);
    let task = Arc::get_mut(&mut of.task).unwrap();
    (task.tenant, task.key) = ("acmé, inc\r\nX: y".into(), Some("k 1".into()));
    task.meta.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let id = task.id.clone();
    agent.run(of).await;
    let Some(Saw::Request(1, head, body)) = saw.recv().await else { panic!() };
    assert_eq!(body, br#"{"a":1}"#);
    let lines: Vec<&str> = head.lines().collect();
    for line in [
        "post /run?x=1 http/1.1",
        "content-type: application/json",
        "authorization: bearer secret",
        "idempotency-key: k%201",
        &format!("tidemill-task: {id}"),
        "tidemill-agent: test",
        "tidemill-attempt: 2",
        "tidemill-fence: 7",
        "tidemill-deadline-ms: 20000",
        "tidemill-tenant: acm%c3%a9,%20inc%0d%0ax:%20y",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "content-length: 7",
    ] {
        assert!(lines.contains(&line), "{line} is missing in {head}");
    }
    agent.run(context(vec![0xff, 0, b'\n'], 1)).await;
    let Some(Saw::Request(1, head, body)) = saw.recv().await else { panic!("the connection is used again") };
    assert_eq!(body, [0xff, 0, b'\n']);
    assert!(head.contains("content-type: application/octet-stream"), "{head}");
    assert!(!head.contains("tidemill-tenant") && !head.contains("traceparent"), "{head}");
}

#[tokio::test]
async fn a_response_has_a_largest_size_said_or_not() {
    let small = |o: &mut HttpOptions| o.response_bytes_max = 8;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (does, fits) in [
        (answer("200 OK", "", "12345678"), true),
        (answer("200 OK", "", "123456789"), false),
        // Only what is said of its length is read, and not the body.
        (Does::Stop("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n".into()), false),
        (Does::Answer(format!("{chunked}4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n")), true),
        (Does::Stop(format!("{chunked}4\r\n1234\r\n5\r\n56789\r\n")), false),
    ] {
        let (port, _saw) = service(does.clone()).await;
        let expected = if fits {
            Outcome::done("12345678")
        } else {
            Outcome::dead("the response is too large: more than 8 bytes")
        };
        assert_eq!(agent(port, small).run(context("", 1)).await, expected, "{does:?}");
    }
}

#[tokio::test]
async fn what_breaks_off_is_tried_again() {
    let retried = async |does: Does, part: &str| match call(does.clone()).await {
        Outcome::Retry { error, after: None } => assert!(error.contains(part), "{does:?}: {error}"),
        other => panic!("{does:?}: {other:?}"),
    };
    retried(Does::Cut(String::new()), "the call broke off").await;
    retried(Does::Cut("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".into()), "the call broke off").await;
    let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    retried(Does::Cut(chunk.into()), "the call broke off").await;
    retried(Does::Answer("SSH-2.0-x\r\n\r\n".into()), "the call broke off").await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let Outcome::Retry { error, .. } = agent(nobody, |_| {}).run(context("", 1)).await else { panic!() };
    assert!(error.starts_with("cannot connect") && error.contains("refused") && !error.contains("x=1"), "{error}");
}

#[tokio::test]
async fn a_call_ends_with_its_own_time_or_the_tasks() {
    let short = Duration::from_millis(600);
    let ends = async |says: &str, own: bool| {
        let (port, mut saw) = service(Does::Stop(says.into())).await;
        let mut of = context("", 1);
        let outcome = if own {
            agent(port, |o| (o.connect_timeout, o.call_timeout) = (short, Some(short))).run(of).await
        } else {
            of.deadline = tokio::time::Instant::now() + short;
            agent(port, |_| {}).run(of).await
        };
        let Outcome::Retry { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.starts_with("no answer within "), "{error}");
        assert!(matches!(saw.recv().await, Some(Saw::Request(1, ..))));
        assert_eq!(saw.recv().await, Some(Saw::Closed(1)), "the service sees that nobody waits");
    };
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    tokio::join!(ends("", true), ends("", false), ends(half, true), ends(half, false));
    let (port, mut saw) = service(answer("200 OK", "", "")).await;
    let mut late = context("", 1);
    late.deadline = tokio::time::Instant::now();
    assert_eq!(agent(port, |_| {}).run(late).await, Outcome::retry("no time is left for a call"));
    assert!(saw.try_recv().is_err(), "it was not called");
}

#[tokio::test]
async fn a_dropped_run_closes_its_connection() {
    let (port, mut saw) = service(Does::Stop(String::new())).await;
    let agent = agent(port, |_| {});
    tokio::select! {
        outcome = agent.run(context("", 1)) => panic!("{outcome:?}"),
        Some(Saw::Request(1, ..)) = saw.recv() => {}
    }
    assert_eq!(saw.recv().await, Some(Saw::Closed(1)));
}

#[tokio::test]
async fn a_service_that_does_not_speak_tls_is_no_answer() {
    let (port, mut saw) = service(answer("200 OK", "", "")).await;
    let mut options = HttpOptions::new(format!("https://127.0.0.1:{port}/"));
    options.allow_private = vec!["127.0.0.1".into()];
    match HttpAgent::new(&options) {
        Ok(agent) => {
            let Outcome::Retry { error, .. } = agent.run(context("", 1)).await else { panic!() };
            assert!(error.starts_with("cannot connect"), "{error}");
            assert_eq!(saw.recv().await, Some(Saw::Closed(1)), "no request was sent in the clear");
        }
        // A machine without root certificates says so at the start.
        Err(error) => assert!(matches!(error, HttpError::Client(_)), "{error}"),
    }
}

#[tokio::test]
async fn calls_run_at_once_each_on_its_connection() {
    let (port, mut saw) = service(Does::Stop(String::new())).await;
    let agent = agent(port, |_| {});
    let mut waiting: FuturesUnordered<_> = (0..4).map(|_| agent.run(context("", 1))).collect();
    let mut connections = Vec::new();
    while connections.len() < 4 {
        tokio::select! {
            outcome = waiting.next() => panic!("{outcome:?}"),
            Some(Saw::Request(number, ..)) = saw.recv() => connections.push(number),
        }
    }
    connections.sort_unstable();
    assert_eq!(connections, [1, 2, 3, 4]);
}
