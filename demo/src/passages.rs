//! Real text: the passages of this repository's documents and sources.

use std::path::Path;

use anyhow::{Result, ensure};
use tidemill_common::name::AgentName;
use tidemill_common::task::{NewTask, Priority};

/// Shortest passage worth a task, in bytes.
const PASSAGE_BYTES_MIN: usize = 80;

/// `n` tasks, one a passage, over both agents and all priorities in turn.
pub(crate) fn tasks(root: &Path, n: usize) -> Result<Vec<NewTask>> {
    let mut passages = Vec::new();
    for folder in
        [".", "docs", "docs/adr", "common/lua", "common/lua/lib", "common/src", "common/src/store", "worker/src"]
    {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let mut files: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        files.sort();
        for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "md" || e == "lua" || e == "rs")) {
            let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
            for passage in std::fs::read_to_string(file)?.split("\n\n").filter(|p| p.len() >= PASSAGE_BYTES_MIN) {
                passages.push((name.clone(), passage.to_owned()));
            }
        }
    }
    ensure!(!passages.is_empty(), "no documents in {}", root.display());
    let agents: [AgentName; 2] = ["index".parse()?, "digest".parse()?];
    (0..n)
        .map(|i| {
            let (file, text) = &passages[i % passages.len()];
            let payload = serde_json::json!({ "file": file, "text": text }).to_string();
            Ok(NewTask::new(agents[usize::from(i % 4 == 0)].clone(), payload)
                .priority(Priority::ALL[(i % 4) ^ (i / 4 % 4)]))
        })
        .collect()
}

/// From how many documents tasks were made.
pub(crate) fn count(tasks: &[NewTask]) -> usize {
    let files = tasks.iter().filter_map(|t| {
        let payload: serde_json::Value = serde_json::from_slice(&t.payload).ok()?;
        Some(payload.get("file")?.as_str()?.to_owned())
    });
    files.collect::<std::collections::BTreeSet<_>>().len()
}
