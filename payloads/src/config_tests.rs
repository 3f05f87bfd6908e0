use std::fs;
use std::path::Path;

use tidemill_common::name::TaskId;

use super::*;

/// 32 bytes in base64.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const OTHER: &str = "HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn with_keys(directory: &Path) -> Section {
    Section {
        encrypt: Encrypt::XChaCha20Poly1305,
        keys: directory.to_str().unwrap().to_owned(),
        active_key: "2026-11".to_owned(),
        fingerprint_key: "fingerprint".to_owned(),
        ..Section::default()
    }
}

#[test]
fn the_defaults_change_nothing() {
    assert!(Section::default().build().unwrap().is_plain());
    assert!(Section::default().check().is_empty());
}

#[test]
fn keys_come_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("2026-11"), KEY).unwrap();
    fs::write(dir.path().join("fingerprint"), OTHER).unwrap();
    // As Kubernetes lays out a mounted secret.
    fs::create_dir(dir.path().join("..data")).unwrap();
    fs::write(dir.path().join(".hidden"), "not a key").unwrap();
    let payloads = with_keys(dir.path()).build().unwrap();
    let id = TaskId::generate();
    let kept = payloads.encode_result(&id, "secret".into()).unwrap();
    assert!(!kept.windows(6).any(|w| w == b"secret"));
    let reader = Section { encrypt: Encrypt::Off, active_key: String::new(), ..with_keys(dir.path()) };
    assert_eq!(reader.build().unwrap().decode_result(&id, &kept).unwrap(), "secret", "keys alone decrypt");
}

#[test]
fn all_mistakes_are_told_at_once_and_none_holds_a_key() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short"), "AAEC").unwrap();
    fs::write(dir.path().join("text"), "hush! hush!").unwrap();
    fs::write(dir.path().join("na me"), KEY).unwrap();
    let section = Section {
        compress: Compress::Zstd,
        compress_level: 20,
        bytes_max: 0,
        store: "ftp://x".to_owned(),
        ..with_keys(dir.path())
    };
    let wrong = section.check();
    let all = wrong.join("\n");
    for part in [
        "payloads.compress_level: 1 to 19",
        "payloads.bytes_max: 1 to",
        "short: has 3 bytes in base64; a key has 32",
        "text: is not base64",
        "na me: \"na me\" is no name of a key",
        "payloads.store: is neither",
    ] {
        assert!(all.contains(part), "{part} is missing in:\n{all}");
    }
    assert!(!all.contains("hush") && !all.contains("AAEC"), "{all}");
    fs::remove_file(dir.path().join("short")).unwrap();
    fs::remove_file(dir.path().join("text")).unwrap();
    fs::remove_file(dir.path().join("na me")).unwrap();
    let all = with_keys(dir.path()).check().join("\n");
    assert!(
        all.contains("active_key: there is no key \"2026-11\"") && all.contains("fingerprint_key: there is"),
        "{all}"
    );
    let nothing = Section { encrypt: Encrypt::XChaCha20Poly1305, ..Section::default() };
    assert_eq!(nothing.check().len(), 2, "{:?}", nothing.check());
    fs::write(dir.path().join("2026-11"), KEY).unwrap();
    let one = Section { fingerprint_key: "2026-11".to_owned(), ..with_keys(dir.path()) };
    assert!(one.check().join("\n").contains("must be another key"));
    assert!(Section { keys: "/no/where".to_owned(), ..Section::default() }.check()[0].starts_with("payloads.keys: "));
}

#[test]
fn a_store_is_a_directory_that_is_there_or_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let store = |url: &str| Section { store: url.to_owned(), ..Section::default() };
    assert!(!store(&format!("file://{}", dir.path().display())).build().unwrap().is_plain());
    for wrong in ["file://relative", "file:///no/such/directory", "s3:///x", "bucket"] {
        assert!(store(wrong).check()[0].starts_with("payloads.store: "), "{wrong}");
    }
    assert!(Section { store_name: "a b".to_owned(), ..store("file:///tmp") }.check()[0].contains("store_name"));
    if cfg!(feature = "s3") {
        let half = Section { store_access_key_id: "me".to_owned(), ..store("s3://bucket/prefix") };
        assert!(half.check()[0].contains("give both or neither"));
    }
}
