//! The files that the rules look at, read once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{baseline, mask};

/// Directories that hold nothing of ours.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// Kinds of files that a rule looks at.
const KINDS: &[&str] = &["rs", "lua", "md", "toml"];

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// For Rust: the text with comments and the insides of strings as spaces; the same lines. Else empty.
    pub(crate) code: String,
    /// For Rust: the text with only comments as spaces. Else empty.
    pub(crate) uncommented: String,
}

/// A tree of files.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    /// The text of the list of exceptions; empty when there is none.
    pub(crate) baseline: String,
}

impl Tree {
    /// Reads all files of the kinds that the rules look at, except in hidden and built directories.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let baseline = fs::read_to_string(root.join(baseline::PATH)).unwrap_or_default();
        let mut tree = Tree { root: root.to_owned(), files: Vec::new(), baseline };
        tree.read_dir(root)?;
        tree.files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(tree)
    }

    fn read_dir(&mut self, dir: &Path) -> Result<()> {
        let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let kind = entry.file_type().with_context(|| format!("cannot read {}", path.display()))?;
            if kind.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                    self.read_dir(&path)?;
                }
            } else if path.extension().is_some_and(|extension| KINDS.iter().any(|kind| extension == *kind)) {
                self.read_file(&path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, full: &Path) -> Result<()> {
        let bytes = fs::read(full).with_context(|| format!("cannot read {}", full.display()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let path = full.strip_prefix(&self.root).unwrap_or(full).to_string_lossy().replace('\\', "/");
        let rust = path.ends_with(".rs");
        let (code, uncommented) = if rust { mask::masks(&text) } else { Default::default() };
        self.files.push(File { path, text, code, uncommented });
        Ok(())
    }

    /// The file at this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().and_then(|at| self.files.get(at))
    }

    /// Whether anything, of any kind, is at this path from the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The files whose names end so.
    pub(crate) fn ending<'tree>(&'tree self, end: &'static str) -> impl Iterator<Item = &'tree File> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }
}

impl File {
    /// Whether it is test code by its place: a `tests` directory or package, or a `tests.rs` or `*_tests.rs`
    /// beside code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
    }
}
