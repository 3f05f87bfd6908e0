//! What every script must be, read from its text: it is not met by running it, since a mistake on a rare path shows only there.

use std::collections::BTreeSet;

use tidemill_common::store::{all_texts, script_of};

/// What Lua and Redis give to a script.
const GLOBALS: &[&str] = &[
    "ARGV", "KEYS", "cmsgpack", "error", "ipairs", "math", "next", "pairs", "pcall", "redis", "string", "struct",
    "table", "tonumber", "type", "unpack",
];
const WORDS: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
    "repeat", "return", "then", "true", "until", "while",
];
/// Commands that take as long as the shard is large, or that no cluster allows.
const REFUSED: &[&str] = &["'KEYS'", "'SCAN'", "'HGETALL'", "'FLUSHALL'", "'HKEYS'", "'HVALS'", "'SORT'"];

/// Names and signs; comments and texts in quotes are left out.
fn tokens(text: &str) -> Vec<String> {
    let (mut all, mut chars) = (Vec::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '-' if chars.peek() == Some(&'-') => while chars.next().is_some_and(|c| c != '\n') {},
            '\'' | '"' => {
                while let Some(d) = chars.next().filter(|d| *d != c) {
                    if d == '\\' {
                        chars.next();
                    }
                }
                all.push("''".to_owned());
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = c.to_string();
                while let Some(d) = chars.next_if(|d| d.is_ascii_alphanumeric() || *d == '_') {
                    name.push(d);
                }
                all.push(name);
            }
            c if c.is_ascii_digit() => {
                while chars.next_if(|d| d.is_ascii_alphanumeric() || *d == '.').is_some() {}
                all.push("0".to_owned());
            }
            c if c.is_whitespace() => {}
            c => all.push(c.to_string()),
        }
    }
    all
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !WORDS.contains(&token)
}

/// Names that are declared anywhere: by `local`, as parameters, by `for`.
fn declared(tokens: &[String]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (i, token) in tokens.iter().enumerate() {
        let rest = &tokens[i + 1..];
        let list: &mut dyn Iterator<Item = &String> = match token.as_str() {
            "local" if rest.first().is_some_and(|t| t == "function") => &mut rest[1..2].iter(),
            "local" | "for" => &mut rest.iter(),
            "function" => {
                let open = rest.iter().position(|t| t == "(").expect("a parameter list");
                &mut rest[open + 1..].iter()
            }
            _ => continue,
        };
        while let Some(name) = list.next().filter(|t| is_name(t)) {
            names.insert(name.as_str());
            if list.next().is_none_or(|t| t != ",") {
                break;
            }
        }
    }
    names
}

/// Names that nothing declares.
fn unknown(text: &str) -> BTreeSet<String> {
    let tokens = tokens(text);
    let declared = declared(&tokens);
    let mut unknown = BTreeSet::new();
    for (i, token) in tokens.iter().enumerate().filter(|(_, t)| is_name(t)) {
        let (before, after) =
            (tokens.get(i.wrapping_sub(1)).map(String::as_str), tokens.get(i + 1).map(String::as_str));
        let member = matches!(before, Some("." | ":"));
        let field = matches!(before, Some("{" | ",")) && after == Some("=");
        if !member && !field && !declared.contains(token.as_str()) && !GLOBALS.contains(&token.as_str()) {
            unknown.insert(token.clone());
        }
    }
    unknown
}

#[test]
fn every_name_in_a_script_is_declared_or_known() {
    assert_eq!(
        unknown("local a = 1\nlocal function f(b, c) return a + b.x + { c = c }.c end\nf(d)\n"),
        ["d".to_owned()].into()
    );
    for (name, text) in all_texts() {
        let code = text.split_once('\n').expect("more than a first line").1;
        assert_eq!(unknown(code), BTreeSet::new(), "{name}");
    }
}

#[test]
fn every_script_says_what_it_may_and_asks_nothing_that_grows() {
    let texts = all_texts();
    assert!(texts.len() > 10);
    for (name, text) in &texts {
        // What frees memory, or must go on when it is full, may run then; only taking new tasks in may not.
        let first = if ["submit", "fire"].contains(name) { "#!lua" } else { "#!lua flags=allow-oom" };
        assert_eq!(text.lines().next(), Some(first), "{name}");
        // The counters are as many as there are queues and priorities, which are bounded; so are pauses, by pause.lua.
        let bounded = text.replace("'HGETALL', N", "").replace("'HGETALL', PAUSED", "");
        let bounded = bounded.replace("'HGETALL', B .. ':tune'", "");
        // A page of keys a call.
        let bounded = bounded.replace("call('SCAN', cursor, 'MATCH'", "");
        for refused in REFUSED {
            assert!(!bounded.contains(refused), "{name} has {refused}");
        }
        assert!(!text.contains("KEYS[2]"), "{name}: every key comes from the base");
    }
    assert_eq!(script_of("0000000000000000000000000000000000000000"), None);
}
