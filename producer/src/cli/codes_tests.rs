//! The table of codes is in order, and is what the document says.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

#[test]
fn codes_are_in_order_and_found_by_their_names() {
    assert!(ALL.windows(2).all(|pair| (pair[0].code as u16) < pair[1].code as u16));
    for entry in ALL {
        let found: &Entry = entry.code.to_string().to_lowercase().parse::<&Entry>().unwrap();
        assert_eq!(found.code, entry.code);
        assert!(looks_like_one(&entry.code.to_string()));
    }
    assert!("TM-9999".parse::<&Entry>().is_err());
    assert!(!looks_like_one("TM-12") && !looks_like_one("é-0102") && !looks_like_one("nap"));
}

fn document() -> String {
    let mut text = "# Errors\n\nEvery failure that `producer` prints begins with a code: `error[TM-0102]: …`. A code keeps its \
         meaning;\n`producer explain TM-0102` prints its section. Exit codes are in `producer --help`.\n\nThis page is made from \
         `producer/src/cli/codes_table.rs`; a test compares the two, and writes it when `TIDEMILL_WRITE_DOCS` is set.\n"
        .to_owned();
    for Entry { code, title, means, todo } in ALL {
        let _ = write!(text, "\n## {code}: {title}\n\n{}\n\n*What to do*: {todo}\n", means);
    }
    text
}

#[test]
fn the_document_of_errors_and_the_table_agree() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    let wanted = document();
    if std::env::var_os("TIDEMILL_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let said = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(said == wanted, "docs/errors.md is not what codes_table.rs says; TIDEMILL_WRITE_DOCS=1 writes it");
}
