//! Each rule on a tree that breaks it, and on one that does not.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::mask::masks;
use super::{Level, Problem, Tree, check, links};

fn tree(files: &[(&str, &str)]) -> (TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let full = dir.path().join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }
    let tree = Tree::read(dir.path()).unwrap();
    (dir, tree)
}

fn errors(files: &[(&str, &str)]) -> Vec<String> {
    let (_dir, tree) = tree(files);
    let errors = check(&tree).into_iter().filter(|problem| problem.level == Level::Error);
    errors.map(|problem| problem.to_string()).collect()
}

#[track_caller]
fn one_error(files: &[(&str, &str)], parts: &[&str]) {
    let found = errors(files);
    assert_eq!(found.len(), 1, "{found:#?}");
    for part in parts {
        assert!(found[0].contains(part), "{part:?} is missing in {:?}", found[0]);
    }
}

#[track_caller]
fn no_error(files: &[(&str, &str)]) {
    let found = errors(files);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn this_workspace_keeps_its_rules_enough_to_be_read() {
    let tree = Tree::read(&crate::shell::root()).unwrap();
    assert!(tree.file("xtask/src/main.rs").is_some());
    assert!(tree.file("Cargo.toml").is_some());
}

#[test]
fn files_have_a_largest_size() {
    let lines = |n: usize| "x\n".repeat(n);
    one_error(&[("a/big.rs", &lines(501))], &["a/big.rs", "501 lines", "500", "split"]);
    one_error(&[("a/big.lua", &lines(121))], &["121 lines", "120"]);
    no_error(&[("a/fits.rs", &lines(500)), ("a/fits.lua", &lines(120)), ("a/long.md", &lines(900))]);
    let (_dir, tree) = tree(&[("a/soon.rs", &lines(301))]);
    let soon = Problem::warning("a/soon.rs", 0, "301 lines, 300 are the aim; split it before it grows");
    assert!(check(&tree).contains(&soon));
}

#[test]
fn exceptions_are_listed_with_a_reason_and_only_while_needed() {
    let big = "x\n".repeat(501);
    let excused = "#[expect(clippy::too_many_lines, reason = \"one match\")]\nfn long() {}\n";
    let list = "# why\n\nfile-lines a/big.rs generated\nfunction-lines a/f.rs one match over all commands\n";
    no_error(&[("a/big.rs", &big), ("a/f.rs", excused), ("xtask/tidy-baseline.txt", list)]);
    one_error(&[("a/f.rs", excused)], &["a/f.rs:1", "function-lines a/f.rs"]);
    let listed = |line: &str, part: &str| {
        one_error(&[("a/small.rs", ""), ("a/big.rs", &big[..1000]), ("xtask/tidy-baseline.txt", line)], &[part]);
    };
    listed("file-lines a/gone.rs was big", "does not exist; remove the line");
    listed("file-lines a/small.rs was big", "does not need this exception");
    listed("function-lines a/small.rs was long", "does not need this exception");
    listed("no-such a/small.rs x", "there is no rule no-such");
    one_error(&[("a/big.rs", &big), ("xtask/tidy-baseline.txt", "file-lines a/big.rs")], &["needs a reason"]);
}

#[test]
fn the_redis_client_is_known_to_the_store_only() {
    let code = "use fred::prelude::*;\n";
    one_error(&[("worker/src/a.rs", code)], &["worker/src/a.rs:1", "common/src/store only"]);
    no_error(&[("common/src/store/connect.rs", code)]);
    no_error(&[("worker/src/a.rs", "// fred is good\nlet alfred = \"fred::x\"; /* fred */ let fred_like = 1;\n")]);
}

#[test]
fn key_names_live_in_one_file() {
    // Written with an escape, so that this very line keeps the rule.
    let code = "let key = format!(\"tide\u{6d}ill:{{{shard}}}:run\");\n";
    one_error(&[("tests/it/a.rs", code)], &["tests/it/a.rs:1", "common/src/keys.rs only"]);
    no_error(&[("common/src/keys.rs", code)]);
    no_error(&[("worker/src/a.rs", "// \"tide\u{6d}ill:x\"\nlet target = \"tidemill::claim\";\n")]);
}

#[test]
fn some_words_do_not_land() {
    let ignored = "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n";
    one_error(&[("a/src/x.rs", ignored)], &["a/src/x.rs:2", "ignored test"]);
    one_error(&[("a/src/x.rs", "fn a() { todo!() }\n")], &["unfinished"]);
    let sleeps = "std::thread::sleep(second);\n";
    one_error(&[("a/tests/x.rs", sleeps)], &["a test that sleeps"]);
    one_error(&[("a/src/x_tests.rs", sleeps)], &["a test that sleeps"]);
    one_error(&[("a/src/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{sleeps}}}\n"))], &["a/src/x.rs:3"]);
    no_error(&[("a/src/x.rs", sleeps), ("a/src/y.rs", "// todo!() and #[ignore]\nlet s = \"todo!\";\n")]);
}

#[test]
fn crates_depend_one_way() {
    let on = |other: &str| format!("[package]\nname = \"x\"\n[dependencies]\n{other}.workspace = true\n");
    one_error(
        &[("worker/Cargo.toml", &on("tidemill-producer"))],
        &["worker/Cargo.toml:4", "may not depend on producer"],
    );
    one_error(&[("common/Cargo.toml", &on("tidemill-embedded"))], &["allowed: none"]);
    one_error(&[("producer/Cargo.toml", &on("tidemill-tests"))], &["may not depend on tests"]);
    one_error(&[("tests/Cargo.toml", &on("xtask"))], &["may not depend on xtask"]);
    one_error(&[("worker/Cargo.toml", &on("fred"))], &["only common depends on fred"]);
    one_error(&[("stray/Cargo.toml", &on("anyhow"))], &["stray is not in the table"]);
    one_error(&[("worker/Cargo.toml", "[dependencies")], &["is not TOML"]);
    let dev = "[target.'cfg(unix)'.dev-dependencies]\ntidemill-producer.workspace = true\n";
    one_error(&[("worker/Cargo.toml", dev)], &["may not depend on producer"]);
    no_error(&[("worker/Cargo.toml", &on("tidemill-common")), ("common/Cargo.toml", &on("fred"))]);
}

#[test]
fn the_test_clock_is_not_released() {
    let clock = "tidemill-common = { workspace = true, features = [\"test-clock\"] }\n";
    let with = |section: &str| format!("[{section}]\n{clock}");
    one_error(&[("worker/Cargo.toml", &with("dependencies"))], &["released worker"]);
    one_error(&[("Cargo.toml", &with("workspace.dependencies"))], &["for all members"]);
    one_error(
        &[("Cargo.toml", "[workspace]\ndefault-members = [\"worker\", \"tests\"]\n")],
        &["tests among default-members"],
    );
    let default = "[features]\ndefault = [\"test-clock\"]\ntest-clock = []\n";
    one_error(&[("common/Cargo.toml", default)], &["the feature default turns on test-clock"]);
    let hidden = "[features]\nfast = [\"tidemill-common/test-clock\"]\n";
    one_error(&[("worker/Cargo.toml", hidden)], &["the feature fast turns on test-clock"]);
    let declared = "[features]\ntest-clock = []\n";
    no_error(&[("tests/Cargo.toml", &with("dependencies")), ("common/Cargo.toml", declared)]);
    no_error(&[("worker/Cargo.toml", &with("dev-dependencies"))]);
}

#[test]
fn links_lead_somewhere() {
    let page = "# One page\n\n## What it's *for*: `all`\n\n## Twice\n## Twice\n";
    let good = "[a](page.md) [b](../README.md#top) [c](page.md#what-its-for-all) [d](page.md#twice-1) [e](#here) [f](adr/)\n\
                [g](https://x.example/y) [h](mailto:a@b.example)\n\n[ref]: page.md\n\n# Here\n\n```\n[no](nowhere.md)\n```\n";
    let known: &[(&str, &str)] = &[("docs/page.md", page), ("README.md", "# Top\n"), ("docs/adr/0001.md", "")];
    let with = |text| [known, &[("docs/a.md", text)]].concat();
    no_error(&with(good));
    one_error(&with("\n[x](nowhere.md)\n"), &["docs/a.md:2", "nowhere.md leads nowhere"]);
    one_error(&with("[x](../../etc/passwd)\n"), &["leads nowhere"]);
    one_error(&with("[x]: gone.md\n"), &["leads nowhere"]);
    one_error(&with("[x](page.md#other)\n"), &["no heading for #other", "one-page"]);
    assert_eq!(links::anchors(page), ["one-page", "what-its-for-all", "twice", "twice-1"]);
}

#[test]
fn the_chart_names_the_scripts_that_there_are() {
    let lua: &[(&str, &str)] =
        &[("common/lua/claim.lua", ""), ("common/lua/settle.lua", ""), ("common/lua/lib/x.lua", "")];
    let with = |text| [lua, &[("docs/state-machine.md", text)]].concat();
    no_error(&with("| running | `claim.lua` |\nuses common/lua/settle.lua. and lib/x.lua\n"));
    one_error(&with("\nclaim.lua settle.lua admit.lua\n"), &["docs/state-machine.md:2", "names admit.lua"]);
    one_error(&with("claim.lua\n"), &["common/lua/settle.lua", "is not named"]);
    no_error(lua);
}

#[test]
fn the_key_document_lists_the_declared_keys() {
    let code = "pub const KEYS: &[KeyKind] = &[\n    // (\"old\", 0)\n    (\"j:<id>\", \"string\", 1, \"a (b)\"),\n    (\n        \
                \"run\",\n        \"hash\",\n    ),\n];\nconst X: (&str, u8) = (\"other\", 1);\n";
    let with = |text| [("common/src/keys.rs", code), ("docs/redis-keys.md", text)];
    let head = "| key | type |\n|---|---|\n";
    let same = format!("{head}| `B:j:<id>` | string |\n| `run` | hash |\n");
    no_error(&with(&same));
    let less = format!("{head}| `j:<id>` | string |\n");
    one_error(&with(&less), &["no row for `run`"]);
    let more = format!("{head}| `j:<id>` | s |\n| `run` | h |\n| `gone` | h |\n");
    one_error(&with(&more), &["docs/redis-keys.md:5", "`gone` is not in KEYS"]);
    no_error(&[("docs/redis-keys.md", "| `x` |\n")]);
}

#[test]
fn masks_hide_comments_and_texts_and_keep_lines() {
    let source = "let a = \"x // y\"; // z\nlet b = r#\"q\"w\"#; /* c /* d */ e */ f('\"', '\\'', 'a');\nfn g<'l>(r#type: &'l str) {}";
    let (code, uncommented) = masks(source);
    assert_eq!(
        code,
        "let a = \"      \";     \nlet b = r#\"   \"#;                   f(' ', '  ', ' ');\nfn g<'l>(r#type: &'l str) {}"
    );
    assert_eq!(uncommented.lines().next().unwrap().trim_end(), "let a = \"x // y\";");
    for broken in ["\"open", "/* open", "r#\"open", "'", "'\\", "b\"x\\"] {
        let (code, _) = masks(broken);
        assert_eq!(code.chars().count(), broken.chars().count(), "{broken}");
    }
}

#[test]
fn only_files_of_ours_are_read() {
    let big = "x\n".repeat(501);
    no_error(&[("target/debug/a.rs", &big), (".tidemill/a.rs", &big), ("ui/node_modules/a.rs", &big)]);
    assert!(Tree::read(Path::new("/nowhere/at/all")).is_err());
}
