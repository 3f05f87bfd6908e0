//! There and back, and everything that must not come back.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_common::envelope;
use tidemill_common::name::TaskId;
use tidemill_common::task::{Mode, NewTask, Task};

use super::*;

fn ring(names: &[&str]) -> KeyRing {
    let key = |name: &str| {
        let mut key = [0; KEY_BYTES];
        key[..name.len()].copy_from_slice(name.as_bytes());
        key
    };
    names.iter().fold(KeyRing::new(), |ring, name| ring.with(name, key(name)).unwrap())
}

fn cipher(names: &[&str], active: &str) -> Arc<XChaCha20> {
    Arc::new(XChaCha20::new(ring(names), active))
}

fn encrypting(names: &[&str], active: &str) -> Payloads {
    Payloads::new().encode(Arc::new(Zstd::default())).encode(cipher(names, active)).fingerprint([1; 32]).results(true)
}

fn task(payload: impl Into<Bytes>) -> NewTask {
    NewTask::new("summarize".parse().unwrap(), payload).tenant("acme")
}

/// As a worker gets it: sealed, stored, claimed, opened.
fn arrived(task: &NewTask) -> Task {
    let sealed = envelope::seal(task).unwrap();
    let head =
        [&[envelope::VERSION][..], &[0; 28], &u16::try_from(sealed.header.len()).unwrap().to_be_bytes()].concat();
    let whole: Bytes = [&head[..], &sealed.header, &sealed.body].concat().into();
    let mut back = envelope::open(task.id.clone(), &whole).unwrap();
    if back.payload_apart {
        back.payload = sealed.apart;
    }
    back
}

/// A plain task as a worker gets it.
pub(crate) fn stored_task(payload: &'static str) -> Task {
    arrived(&task(payload))
}

async fn read(payloads: &Payloads, mut task: Task) -> Result<Bytes, Error> {
    payloads.decode_task(&mut task).await?;
    assert!(!Payloads::is_encoded(&task), "what is decoded says so");
    Ok(task.payload)
}

/// A small generator, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Random bytes, or few different ones, which can be packed.
    fn bytes(&mut self) -> Bytes {
        let (length, few) = (self.next() % 70_000, self.next().is_multiple_of(2));
        let length = if self.next().is_multiple_of(3) { length % 100 } else { length };
        (0..length)
            .map(|_| if few { b'a' + u8::try_from(self.next() % 3).unwrap() } else { self.next() as u8 })
            .collect()
    }
}

#[tokio::test]
async fn whatever_goes_in_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = || Store::directory("main", dir.path()).unwrap();
    let chains = [
        Payloads::new(),
        Payloads::new().encode(Arc::new(Zstd::new(19))).results(true),
        Payloads::new().encode(cipher(&["k"], "k")).results(true),
        encrypting(&["k"], "k"),
        encrypting(&["k"], "k").put_above(1_000, store()),
        Payloads::new().put_above(0, store()),
    ];
    let mut random = Random(0x5EED_1234_5678_9ABC);
    for round in 0..40 {
        let plain = random.bytes();
        for (number, chain) in chains.iter().enumerate() {
            let mut new = task(plain.clone());
            if round % 2 == 0 {
                new = new.replacing("key");
            }
            let id = new.id.clone();
            let coded = chain.encode_task(new).await.unwrap();
            assert!(coded.payload.len() <= plain.len() + 64, "chain {number}: {}", coded.payload.len());
            assert_eq!(read(chain, arrived(&coded)).await.unwrap(), plain, "chain {number}, round {round}");
            let kept = chain.encode_result(&id, plain.clone()).unwrap();
            assert_eq!(chain.decode_result(&id, &kept).unwrap(), plain, "chain {number}, round {round}");
        }
    }
}

#[tokio::test]
async fn a_task_without_codecs_is_handed_in_as_before_and_old_ones_are_read_by_everybody() {
    let plain = task("x").key("k");
    assert_eq!(Payloads::new().encode_task(plain.clone()).await.unwrap(), plain);
    assert_eq!(read(&encrypting(&["k"], "k"), arrived(&plain)).await.unwrap(), "x");
    let id = TaskId::generate();
    assert_eq!(Payloads::new().encode_result(&id, "{}".into()).unwrap(), "{}");
    assert_eq!(encrypting(&["k"], "k").decode_result(&id, &"{}".into()).unwrap(), "{}");
    let like_a_frame = Bytes::from_static(b"\0TMf\x01\x04zstd");
    let kept = Payloads::new().encode_result(&id, like_a_frame.clone()).unwrap();
    assert_eq!(Payloads::new().decode_result(&id, &kept).unwrap(), like_a_frame);
}

#[tokio::test]
async fn compression_is_used_when_it_saves_and_read_without_configuration() {
    let zstd = Payloads::new().encode(Arc::new(Zstd::default()));
    let large = zstd.encode_task(task("ab".repeat(5_000))).await.unwrap();
    assert!(large.payload.len() < 100 && large.meta.codec == ["zstd"]);
    assert_eq!(read(&Payloads::new(), arrived(&large)).await.unwrap().len(), 10_000);
    for plain in ["", "short"] {
        assert!(zstd.encode_task(task(plain)).await.unwrap().meta.codec.is_empty());
    }
}

#[tokio::test]
async fn a_bomb_is_refused_before_it_is_unpacked() {
    // 64 MiB of zeros in some 2 KiB; then a frame with others behind it, and one that states no size.
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    let honest = NewTask { meta: meta(&["zstd"]), ..task(bomb) };
    assert!(matches!(read(&Payloads::new(), arrived(&honest)).await, Err(Error::TooLarge { .. })));
    let one = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
    let many = NewTask { meta: meta(&["zstd"]), ..task(one.repeat(16)) };
    assert!(matches!(read(&Payloads::new(), arrived(&many)).await, Err(Error::Damaged { .. })));
    let mut stream = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    for _ in 0..2 {
        stream.write_all(&[0; 1_000]).unwrap();
        stream.flush().unwrap();
    }
    let silent = NewTask { meta: meta(&["zstd"]), ..task(stream.finish().unwrap()) };
    assert!(matches!(read(&Payloads::new(), arrived(&silent)).await, Err(Error::Damaged { .. })));
    let mut nested = zstd::bulk::compress(&[0; 1_000], 3).unwrap();
    nested = zstd::bulk::compress(&nested, 3).unwrap();
    let nine = NewTask { meta: meta(&["zstd"; 9]), ..task(nested) };
    assert!(matches!(read(&Payloads::new(), arrived(&nine)).await, Err(Error::TooManyCodecs)));
}

fn meta(codecs: &[&str]) -> tidemill_common::task::Meta {
    tidemill_common::task::Meta { codec: codecs.iter().map(|c| (*c).to_owned()).collect(), ..Default::default() }
}

#[tokio::test]
async fn a_ciphertext_is_of_no_use_anywhere_else() {
    let payloads = encrypting(&["k"], "k");
    let coded = payloads.encode_task(task("a".repeat(1_000)).key("mine")).await.unwrap();
    assert_eq!(coded.meta.codec, ["zstd", "xchacha20poly1305:k"]);
    let good = || arrived(&coded);
    assert!(read(&payloads, good()).await.is_ok());
    let damaged = async |what: &str, task: Task| {
        let refused = read(&payloads, task).await;
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{what}: {refused:?}");
        assert_eq!(refused.unwrap_err().fault(), Fault::Payload);
    };
    damaged("another task", Task { id: TaskId::generate(), ..good() }).await;
    damaged("another agent", Task { agent: "shell".parse().unwrap(), ..good() }).await;
    damaged("another tenant", Task { tenant: "evil".to_owned(), ..good() }).await;
    damaged("as if it had not been packed", Task { meta: meta(&["xchacha20poly1305:k"]), ..good() }).await;
    let mut bytes = coded.payload.to_vec();
    for at in [0, 1, 25, bytes.len() - 1] {
        bytes[at] ^= 1;
        damaged("a changed bit", Task { payload: bytes.clone().into(), ..good() }).await;
        bytes[at] ^= 1;
    }
    for length in [0, 1, 24, 40] {
        damaged("cut", Task { payload: coded.payload.slice(..length), ..good() }).await;
    }
    let as_result = tidemill_common::frame::wrap(&coded.meta.codec, coded.payload.clone());
    assert!(matches!(payloads.decode_result(&coded.id, &as_result), Err(Error::Damaged { .. })));
    let result = payloads.encode_result(&coded.id, "r".repeat(100).into()).unwrap();
    assert!(matches!(payloads.decode_result(&TaskId::generate(), &result), Err(Error::Damaged { .. })));
}

#[tokio::test]
async fn what_replaces_lies_under_another_id_and_is_bound_to_its_key() {
    let payloads = encrypting(&["k"], "k");
    for mode in [Mode::Replace, Mode::Debounce] {
        let coded = payloads.encode_task(NewTask { mode, ..task("new content").key("mine") }).await.unwrap();
        let first = Task { id: TaskId::generate(), ..arrived(&coded) };
        assert_eq!(read(&payloads, first.clone()).await.unwrap(), "new content");
        for key in [Some("yours".to_owned()), None] {
            let moved = Task { key, ..first.clone() };
            assert!(matches!(read(&payloads, moved).await, Err(Error::Damaged { .. })));
        }
    }
}

#[tokio::test]
async fn a_key_is_changed_without_a_gap() {
    let before = encrypting(&["old"], "old");
    let old = before.encode_task(task("secret").key("k")).await.unwrap();
    let result = before.encode_result(&old.id, "answer".into()).unwrap();
    let during = encrypting(&["new", "old"], "new");
    let new = during.encode_task(task("secret").key("k")).await.unwrap();
    assert_eq!(
        (old.meta.codec[0].as_str(), new.meta.codec[0].as_str()),
        ("xchacha20poly1305:old", "xchacha20poly1305:new")
    );
    assert_eq!(old.fingerprint, new.fingerprint, "a repeat is no conflict");
    for coded in [&old, &new] {
        assert_eq!(read(&during, arrived(coded)).await.unwrap(), "secret");
    }
    assert_eq!(during.decode_result(&old.id, &result).unwrap(), "answer");
    let after = encrypting(&["new"], "new");
    assert_eq!(read(&after, arrived(&new)).await.unwrap(), "secret");
    let mut left = arrived(&old);
    let missing = after.decode_task(&mut left).await.unwrap_err();
    assert!(missing.to_string().contains(r#"no key named "old""#) && missing.fault() == Fault::Lacking, "{missing}");
    assert_eq!(left, arrived(&old), "as it was: it can be read once the key is back");
    assert!(after.decode_result(&old.id, &result).unwrap_err().to_string().contains(r#"no key named "old""#));
}

#[tokio::test]
async fn fingerprints_are_of_the_plain_payload_and_tell_nothing() {
    let (zstd, secret) = (Payloads::new().encode(Arc::new(Zstd::default())), encrypting(&["k"], "k"));
    let of = async |payloads: &Payloads, payload: &str| {
        let coded = payloads.encode_task(task(payload.repeat(100)).key("k")).await.unwrap();
        envelope::seal(&coded).unwrap().fingerprint
    };
    let plain = envelope::seal(&task("a".repeat(100)).key("k")).unwrap().fingerprint;
    assert_eq!(of(&zstd, "a").await, plain, "compression may be switched on");
    assert_eq!(of(&secret, "a").await, of(&secret, "a").await);
    assert_ne!(of(&secret, "a").await, of(&secret, "b").await);
    assert_ne!(of(&secret, "a").await, plain);
    assert_ne!(of(&secret.clone().fingerprint([2; 32]), "a").await, of(&secret, "a").await);
    assert_eq!(plain.len(), of(&secret, "a").await.len());
    assert_eq!(secret.encode_task(task("x")).await.unwrap().fingerprint, None);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let payloads = encrypting(&["k"], "k");
    let error = async |codec: &str| {
        let task = NewTask { meta: meta(&[codec]), ..task("x") };
        let error = read(&payloads, arrived(&task)).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Lacking);
        error.to_string()
    };
    assert!(error("rot13").await.contains(r#"no codec named "rot13""#));
    assert!(error("xchacha20poly1305:2031\n").await.contains(r#"no key named "2031\n""#));
    assert!(error("xchacha20poly1305").await.contains(r#"no key named """#));
}

#[tokio::test]
async fn sizes_are_bounded_before_and_after() {
    let small = Payloads::new().encode(Arc::new(Zstd::default())).bytes_max(1_000);
    let large = small.encode_task(task("a".repeat(1_001))).await;
    assert!(matches!(large, Err(Error::TooLarge { .. })));
    let stored = NewTask { meta: meta(&["zstd"]), ..task(zstd::bulk::compress(&[0; 1_001], 3).unwrap()) };
    assert!(matches!(read(&small, arrived(&stored)).await, Err(Error::TooLarge { .. })));
    assert!(matches!(read(&small, arrived(&task("a".repeat(1_001)))).await, Err(Error::TooLarge { .. })));
}

/// Needs a service, which may be away.
#[derive(Debug)]
struct Served(Option<Fault>);

impl Codec for Served {
    fn name(&self) -> &str {
        "served"
    }
    fn encode(&self, plain: Bytes, _: &Facts<'_>) -> Result<Encoded, Error> {
        Ok(Encoded::Other { bytes: plain.iter().rev().copied().collect(), label: "v2".to_owned() })
    }
    fn decode(&self, coded: Bytes, label: &str, _: &Facts<'_>, _: usize) -> Result<Bytes, Error> {
        assert_eq!(label, "v2");
        match self.0 {
            None => Ok(coded.iter().rev().copied().collect()),
            Some(fault) => Err(Error::Codec { name: "served".to_owned(), fault, source: "503".into() }),
        }
    }
}

#[tokio::test]
async fn a_codec_of_ones_own_stands_among_the_others_and_says_whose_fault_it_is() {
    let with = |fault| encrypting(&["k"], "k").encode(Arc::new(Served(fault)));
    let coded = with(None).encode_task(task("a".repeat(100))).await.unwrap();
    assert_eq!(coded.meta.codec, ["zstd", "xchacha20poly1305:k", "served:v2"]);
    assert_eq!(read(&with(None), arrived(&coded)).await.unwrap(), "a".repeat(100));
    for fault in [Fault::Away, Fault::Lacking, Fault::Payload] {
        let error = read(&with(Some(fault)), arrived(&coded)).await.unwrap_err();
        assert_eq!((error.fault(), error.told().as_str()), (fault, "codec served failed: 503"));
    }
}

#[test]
fn keys_are_not_shown() {
    let payloads = encrypting(&["hush"], "hush").fingerprint(*b"hush-hush-hush-hush-hush-hush-32");
    let shown = format!("{payloads:?} {:?}", config::Secret("hush".to_owned()));
    // The name is; the bytes, as numbers or as text, are not.
    assert!(shown.contains("Key(***)") && !shown.contains("104, 117") && !shown.contains("hush-hush"), "{shown}");
}
