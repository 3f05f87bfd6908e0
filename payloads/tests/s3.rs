//! A bucket, as S3's protocol has it: a service in this process, which keeps what it is given and can be told to fail.
#![expect(clippy::unwrap_used, reason = "a panic with its line is a test's report, in its helpers too")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tidemill_common::task::NewTask;
use tidemill_payloads::config::{Secret, Section};
use tidemill_payloads::{Error, Fault};

/// What is kept, and what every request is answered with unless it is 0.
#[derive(Default)]
struct Bucket {
    objects: Mutex<HashMap<String, Bytes>>,
    says: AtomicU16,
}

async fn serve(
    State(bucket): State<Arc<Bucket>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let signed = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !signed.starts_with("AWS4-HMAC-SHA256 Credential=me/") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let says = bucket.says.load(Ordering::Relaxed);
    if says != 0 {
        return StatusCode::from_u16(says).unwrap().into_response();
    }
    let head = [("etag", "\"1\""), ("last-modified", "Mon, 30 Nov 2026 00:00:00 GMT")];
    let mut objects = bucket.objects.lock().unwrap();
    match method {
        Method::PUT => {
            objects.insert(uri.path().to_owned(), body);
            (head, "").into_response()
        }
        Method::GET => objects
            .get(uri.path())
            .map_or_else(|| StatusCode::NOT_FOUND.into_response(), |body| (head, body.clone()).into_response()),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_goes_through_a_bucket() {
    let bucket = Arc::new(Bucket::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(serve).with_state(Arc::clone(&bucket));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let section = Section {
        store: "s3://tasks/below/here".to_owned(),
        store_endpoint: format!("http://{address}"),
        store_access_key_id: "me".to_owned(),
        store_secret_access_key: Secret("hush".to_owned()),
        above_bytes: 10,
        ..Section::default()
    };
    let payloads = section.build().unwrap();
    assert!(!format!("{payloads:?} {section:?}").contains("hush"));
    let reference = || async { payloads.encode_task(NewTask::new("a".parse().unwrap(), "a large payload")).await };
    let at = reference().await.unwrap().meta.at.unwrap();
    let path = format!("/tasks/below/here/{}/{}", &at.sha256[..2], at.sha256);
    assert_eq!(bucket.objects.lock().unwrap()[&path], "a large payload");

    let store = || {
        let mut section = section.clone();
        section.store_name.clone_from(&at.store);
        section.build().unwrap()
    };
    assert_eq!(fetched(&store(), &at).await.unwrap(), "a large payload");
    bucket.objects.lock().unwrap().insert(path.clone(), "a LARGE payload".into());
    assert!(matches!(fetched(&store(), &at).await, Err(Error::Differs { .. })));
    bucket.objects.lock().unwrap().remove(&path);
    assert!(matches!(fetched(&store(), &at).await, Err(Error::Gone { .. })));
    // Not let in: for an operator to put right, and no fault of the task's.
    bucket.says.store(403, Ordering::Relaxed);
    assert_eq!(fetched(&store(), &at).await.unwrap_err().fault(), Fault::Away);
    assert_eq!(reference().await.unwrap_err().fault(), Fault::Away);
}

async fn fetched(
    payloads: &tidemill_payloads::Payloads,
    at: &tidemill_common::task::Reference,
) -> Result<Bytes, Error> {
    let new = NewTask::new("a".parse().unwrap(), "");
    let sealed = tidemill_common::envelope::seal(&NewTask { meta: meta(at), ..new.clone() }).unwrap();
    let length = u16::try_from(sealed.header.len()).unwrap().to_be_bytes();
    let whole = [&[1][..], &[0; 28], &length, &sealed.header, &sealed.body].concat();
    let mut task = tidemill_common::envelope::open(new.id, &whole.into()).unwrap();
    payloads.decode_task(&mut task).await?;
    Ok(task.payload)
}

fn meta(at: &tidemill_common::task::Reference) -> tidemill_common::task::Meta {
    tidemill_common::task::Meta { at: Some(at.clone()), ..Default::default() }
}
