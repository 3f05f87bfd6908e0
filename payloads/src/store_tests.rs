use std::fs;
use std::path::PathBuf;

use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutOptions,
    PutPayload, PutResult,
};

use super::*;
use crate::{Fault, Payloads};

const MAX: usize = 1 << 20;

fn place(dir: &tempfile::TempDir, reference: &Reference) -> PathBuf {
    dir.path().join(&reference.sha256[..2]).join(&reference.sha256)
}

#[tokio::test]
async fn an_object_lies_under_its_hash_and_is_shared() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::directory("main", dir.path()).unwrap();
    let (one, two) = (store.put("abc".into()).await.unwrap(), store.put("abc".into()).await.unwrap());
    assert_eq!(one, two);
    assert_eq!(one.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!((one.bytes, one.store.as_str()), (3, "main"));
    assert_eq!(fs::read(place(&dir, &one)).unwrap(), b"abc");
    assert_eq!(store.get(&one, 3).await.unwrap(), "abc");
    assert!(matches!(store.get(&one, 2).await, Err(Error::TooLarge { .. })));
}

#[tokio::test]
async fn an_object_that_is_another_or_gone_is_no_payload() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::directory("main", dir.path()).unwrap();
    let reference = store.put("abc".into()).await.unwrap();
    let refused = async |reference: &Reference| {
        let error = store.get(reference, MAX).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Payload);
        error
    };
    for other in ["abd", "abcd", ""] {
        fs::write(place(&dir, &reference), other).unwrap();
        assert!(matches!(refused(&reference).await, Error::Differs { .. }), "{other:?}");
    }
    fs::remove_file(place(&dir, &reference)).unwrap();
    assert!(matches!(refused(&reference).await, Error::Gone { .. }));
}

#[tokio::test]
async fn a_reference_names_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("objects");
    fs::create_dir(&inside).unwrap();
    fs::write(dir.path().join("secret"), "s").unwrap();
    let store = Store::directory("main", &inside).unwrap();
    for sha256 in
        ["../secret", "..", "", "é", "/etc/passwd", &"A".repeat(64), &format!("{}/../../secret", "a".repeat(50))]
    {
        let reference = Reference { store: "main".to_owned(), bytes: 1, sha256: sha256.to_owned() };
        assert!(matches!(store.get(&reference, MAX).await, Err(Error::Differs { .. })), "{sha256:?}");
    }
    assert!(Store::directory("main", &dir.path().join("nowhere")).is_err());
}

#[tokio::test]
async fn a_store_that_fails_or_hangs_is_away() {
    for hangs in [false, true] {
        let store = Store::of("far", Arc::new(Away { hangs }), Path::default()).patience(Duration::from_millis(50));
        let reference = Reference { store: "far".to_owned(), bytes: 1, sha256: "a".repeat(64) };
        for error in [store.get(&reference, MAX).await.unwrap_err(), store.put("x".into()).await.unwrap_err()] {
            assert_eq!(error.fault(), Fault::Away);
            assert!(error.told().starts_with(r#"store "far" cannot be used: "#), "{}", error.told());
        }
    }
    let nowhere = Payloads::new();
    let mut task = crate::tests::stored_task("x");
    task.meta.at = Some(Reference { store: "other".to_owned(), bytes: 1, sha256: "a".repeat(64) });
    assert_eq!(nowhere.decode_task(&mut task).await.unwrap_err().fault(), Fault::Lacking);
}

/// A store that answers nothing, or nothing good.
#[derive(Debug)]
struct Away {
    hangs: bool,
}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("away")
    }
}

impl Away {
    async fn answer<T>(&self) -> object_store::Result<T> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(Said::Generic { store: "away", source: "503".into() })
    }
}

#[async_trait::async_trait]
impl ObjectStore for Away {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
        self.answer().await
    }
    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.answer().await
    }
    async fn get_opts(&self, _: &Path, _: GetOptions) -> object_store::Result<GetResult> {
        self.answer().await
    }
    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        Box::pin(futures::stream::empty())
    }
    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        Box::pin(futures::stream::empty())
    }
    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        self.answer().await
    }
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        self.answer().await
    }
}
