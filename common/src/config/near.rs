//! "Did you mean": the known word that is nearest to a mistyped one.

/// The nearest of `known`, if it is near enough to be meant: a third of the word may differ.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    let measured = known.into_iter().map(|k| (distance(&word, k), k));
    measured.filter(|(d, _)| *d <= allowed).min_by_key(|(d, _)| *d).map(|(_, k)| k)
}

/// What to say of an unknown key.
pub(super) fn unknown(word: &str, known: &[&'static str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None if known.is_empty() => "unknown key; none is expected here".to_owned(),
        None => format!("unknown key; known are {}", known.join(", ")),
    }
}

/// How many letters to insert, drop, exchange or swap with their neighbour (the optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j + 1] + 1).min(row[j] + 1).min(last[j] + usize::from(x != y));
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_slips_are_seen_through_and_other_words_are_not() {
        let known = ["concurrency", "lease", "renew", "url"];
        for (typed, meant) in
            [("concurency", "concurrency"), ("lesae", "lease"), ("URL", "url"), ("uri", "url"), ("renw", "renew")]
        {
            assert_eq!(nearest(typed, known), Some(meant), "{typed}");
        }
        assert_eq!(nearest("threads", known), None);
        assert_eq!(nearest("", known), None);
    }
}
