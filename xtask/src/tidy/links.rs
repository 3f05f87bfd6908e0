//! Links between documents: each relative one leads to a file that exists, and to a heading in it.

use std::collections::HashMap;

use super::tree::File;
use super::{Problem, Tree};

/// Looks at every Markdown file, not only those in `docs/`.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".md").flat_map(|file| in_file(tree, file)).collect()
}

fn in_file(tree: &Tree, file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, target) in targets(&file.text) {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let full = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
        let Some(full) = full.filter(|full| tree.has(full)) else {
            let message = format!("the link {target} leads nowhere; name a file relative to this one");
            problems.push(Problem::error(&file.path, line, message));
            continue;
        };
        if let Some(other) = tree.file(&full).filter(|_| !anchor.is_empty() && full.ends_with(".md"))
            && !anchors(&other.text).iter().any(|known| known == anchor)
        {
            let message = format!("{full} has no heading for #{anchor}; it has: {}", anchors(&other.text).join(", "));
            problems.push(Problem::error(&file.path, line, message));
        }
    }
    problems
}

/// The relative targets of `[text](target)` and `[name]: target`, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let named = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        let all = inline.chain(named).map(|target| target.trim_matches(['<', '>']));
        found.extend(all.filter(|target| is_relative(target)).map(|target| (line, target)));
    }
    found
}

/// The lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

fn is_relative(target: &str) -> bool {
    !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
}

/// `target` as seen from the document at `from`; `None` when it leaves the tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

/// The anchors that a forge makes of headings: lower case, spaces as dashes, no punctuation, `-1` and so on for
/// repeats.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then_some(title.trim())
    });
    let slugs = headings.map(|title| {
        let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect::<String>().to_lowercase()
    });
    slugs
        .map(|slug| {
            let times = seen.entry(slug.clone()).and_modify(|times| *times += 1).or_default();
            if *times == 0 { slug } else { format!("{slug}-{times}") }
        })
        .collect()
}
