use super::needs::{Allows, Subject};
use super::*;

const BOOK: &str = r#"
revision = 7
tiers = ["free", "pro"]

[tenants]
acme = "pro"
"a/b" = "free"

[[limit]]
match = { agent = "gpt4" }
per = ["tenant"]
slots = { free = 1, pro = 5 }
rate = { minute = 60, second = 10, "5m" = 200, burst = 10 }

[[limit]]
slots = 100

[[limit]]
match = { agent = "gpt4", tenant = "a/b" }
slots = 2

[[limit]]
match = { agent = "gpt4", tier = "free" }
per = ["tenant", "queue"]
rate = { hour = 9 }
"#;

#[track_caller]
fn says(wrong: &[Mistake], line: usize, part: &str) {
    let found = wrong.iter().any(|m| m.line == line && m.what.contains(part));
    assert!(found, "line {line}: {part} is not said in:{}", Mistake::lines(wrong));
}

fn gates(book: &Book, tenant: &str) -> Vec<String> {
    let subject = Subject { queue: "q", agent: "gpt4", tenant };
    book.needs(subject).into_iter().map(|need| need.gate).collect()
}

#[test]
fn the_most_specific_rule_of_a_kind_wins_and_a_cap_on_everything_stays() {
    let book = Book::parse(BOOK).unwrap();
    assert_eq!(gates(&book, "acme"), ["s/*/", "s/a+t/gpt4/acme", "r/a+t/gpt4/acme"]);
    assert_eq!(gates(&book, "a/b"), ["s/*/", "s/at/gpt4/a/b", "r/ar+qt/q/gpt4/a/b"]);
    // Nobody knows its tier: it counts as the lowest.
    assert_eq!(gates(&book, "new"), ["s/*/", "s/a+t/gpt4/new", "r/ar+qt/q/gpt4/new"]);
    let slots = |tenant| match &book.needs(Subject { queue: "q", agent: "gpt4", tenant })[1].allows {
        Allows::Slots(n) => *n,
        other => panic!("{other:?}"),
    };
    assert_eq!((slots("acme"), slots("new"), slots("a/b")), (5, 1, 2));
    assert!(book.needs(Subject { queue: "q", agent: "other", tenant: "" }).len() == 1);
}

#[test]
fn a_book_compiles_to_masks_parts_and_fields() {
    let book = Book::parse(BOOK).unwrap();
    let c = book.compile();
    assert_eq!((c.masks.as_str(), c.parts.as_str(), c.tiers.as_str()), ("ar,at,a,*", "qart", "free,pro"));
    let fields: Vec<&str> = c.fields.iter().map(|(f, _)| f.as_str()).collect();
    assert_eq!(fields, ["*/", "a/gpt4", "ar/gpt4/free", "at/gpt4/a/b"]);
    assert_eq!(c.tenants.len(), 2);
    // Its own text says the same.
    let again = Book::parse(&c.text).unwrap();
    assert_eq!(again, book);
    assert_eq!(again.compile(), c);
    assert_ne!(Book { tiers: Vec::new(), tenants: BTreeMap::new(), ..book.clone() }.compile().print, c.print);
    assert_eq!(Book { revision: 8, ..book }.compile().print, c.print, "the content alone counts");
}

#[test]
fn windows_are_read_by_name_or_length_and_sorted() {
    let book = Book::parse(BOOK).unwrap();
    let rate = book.limits[0].rate.as_ref().unwrap();
    let windows: Vec<_> = rate.windows.iter().map(|w| (w.ms, w.limit)).collect();
    assert_eq!(windows, [(1_000, 10), (60_000, 60), (300_000, 200)]);
    assert_eq!(rate.burst, Some(10));
    assert_eq!(rate.windows[2].to_string(), "200 per 5m");
}

/// Every mistake is named at once, each with its line.
#[test]
fn all_mistakes_are_named_at_once() {
    let text = r#"revision = 0
surprise = 1
[[limit]]
[[limit]]
slots = 0
[[limit]]
match = { agent = "a" }
rate = { minute = 10, burst = 11, "3 parsecs" = 1 }
[[limit]]
match = { agent = "a" }
slots = -1
[[limit]]
match = { tier = "gold" }
rate = { minute = 10, hour = 5, "1ms" = 1 }
[[limit]]
slots = 1
[[limit]]
match = { queue = "a:b" }
slots = 1
[[limit]]
match = { agent = "a" }
per = ["agent"]
slots = { free = 1 }
[[limit]]
match = { agent = "b" }
rate = { minute = 10, burst = 11 }
"#;
    let wrong = Book::parse(text).unwrap_err();
    let said: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let has = |line: usize, part: &str| says(&wrong, line, part);
    has(0, "revision must be at least 1");
    has(2, "surprise");
    has(3, "limits nothing");
    has(4, "slots must be 1");
    has(8, "3 parsecs");
    has(11, "slots are a number");
    has(12, "gold");
    has(12, "can never be reached");
    has(12, "a window lasts");
    has(18, "contains ':'");
    has(20, "of which it matches one only");
    has(20, "slots by tier belong to a tenant");
    has(24, "burst must be 1 to the limit");
    assert!(said.iter().any(|m| m.contains("ties with the rule of line 4")), "{said:#?}");
    let broken = Book::parse("revision = 1\n[[limit]\nslots = 1\n").unwrap_err();
    assert_eq!(broken[0].line, 2, "{broken:?}");
}

#[test]
fn all_mistakes_of_budgets_are_named_at_once() {
    let text = r#"revision = 1
[[agent]]
name = "a"
estimate_usd = -0.5
[[agent]]
name = "a"
estimate_tokens = 1
[[limit]]
match = { agent = "a" }
tokens = { minute = 0, day = 5, zone = "Europe/Nowhere" }
[[limit]]
match = { agent = "b" }
cost_usd = { day = 0.0000001 }
[[limit]]
match = { agent = "c" }
cost_usd = { hour = 5, zone = "UTC" }
tokens = {}
[[limit]]
match = { agent = "d" }
tokens = { minute = 1.5 }
[[limit]]
slots = 1
on_lost = "refund"
[[limit]]
match = { agent = "e" }
cost_usd = { day = 5.00, month = 4.00 }
[[limit]]
match = { agent = "f" }
tokens = { fortnight = 1 }
"#;
    let wrong = Book::parse(text).unwrap_err();
    let has = |line: usize, part: &str| says(&wrong, line, part);
    has(2, "estimate_usd");
    has(5, "the agent a is there twice");
    has(8, "more than nothing");
    has(8, "no time zone");
    has(13, "no amount of US dollars");
    has(14, "there is neither");
    has(14, "tokens has no window");
    has(20, "tokens are a whole number");
    has(21, "`on_lost` belongs to a budget");
    has(24, "$5.00 per day can never be reached with $4.00 per month");
    has(29, "fortnight");
    let ok = "revision = 1\n[[limit]]\ncost_usd = { day = 0.29, month = \"100.000001\", zone = \"UTC\" }\n";
    let book = Book::parse(ok).unwrap();
    let budget = book.limits[0].cost_usd.as_ref().unwrap();
    assert_eq!(budget.windows.iter().map(|w| w.limit).collect::<Vec<_>>(), [290_000, 100_000_001]);
    assert_eq!(Book::parse(&book.to_text()).unwrap(), book);
}

#[test]
fn pacing_finer_than_wake_ups_is_warned_of() {
    let book = |text: &str| Book::parse(text).unwrap().warnings();
    assert_eq!(book("revision = 1\n[[limit]]\nrate = { second = 1000, burst = 10 }\n").len(), 1);
    assert_eq!(book("revision = 1\n[[limit]]\nrate = { second = 1000, burst = 50 }\n"), Vec::<String>::new());
}
