//! Rates through edits of the book, step by step: random histories seldom spread their admissions over a window.

use tidemill_common::store::Edit;
use tidemill_common::task::NewTask;
use tidemill_tests::timed::Timed;

/// What to do at a moment, in ms from the beginning.
enum Step {
    /// Hand in one task of so many units, and claim as many as there are.
    Claim { at: u64, cost: u32, expect: usize },
    /// Another limit for each second.
    Limit { at: u64, limit: u64 },
}

/// How many tasks each claim got.
async fn play(edits: &[Edit], steps: &[Step]) -> Vec<usize> {
    let mut t = Timed::edited(&["a"], edits).await;
    let mut got = Vec::new();
    for step in steps {
        match step {
            Step::Limit { at, limit } => {
                t.set_ms(*at);
                t.book(&format!("[[limit]]\nmatch = {{ agent = \"a\" }}\nrate = {{ second = {limit} }}\n")).await;
            }
            Step::Claim { at, cost, .. } => {
                t.set_ms(*at);
                t.submit(&[NewTask { cost: *cost, ..NewTask::new("a".parse().unwrap(), "1") }]).await;
                got.push(t.claim(9).await.deliveries.len());
            }
        }
    }
    got
}

fn expected(steps: &[Step]) -> Vec<usize> {
    let of = |step: &Step| if let Step::Claim { expect, .. } = step { Some(*expect) } else { None };
    steps.iter().filter_map(of).collect()
}

/// Four have passed, one after the other; with two a second from now on, the newest of them count for as long as they are in the
/// window.
#[tokio::test]
async fn a_smaller_limit_forgets_nothing_that_has_passed() {
    let steps = [
        Step::Limit { at: 0, limit: 4 },
        Step::Claim { at: 0, cost: 1, expect: 1 },
        Step::Claim { at: 100, cost: 1, expect: 1 },
        Step::Claim { at: 200, cost: 1, expect: 1 },
        Step::Claim { at: 300, cost: 1, expect: 1 },
        Step::Limit { at: 400, limit: 2 },
        Step::Claim { at: 450, cost: 1, expect: 0 },
        // In the window are those of 200 and 300.
        Step::Claim { at: 1_150, cost: 1, expect: 0 },
        // That of 300 is; one of those that wait may go.
        Step::Claim { at: 1_250, cost: 1, expect: 1 },
        // That of 1,250 alone.
        Step::Claim { at: 1_350, cost: 1, expect: 1 },
        Step::Claim { at: 2_300, cost: 1, expect: 1 },
    ];
    assert_eq!(play(&[], &steps).await, expected(&steps));
    let forgetful = Edit { from: "r.size = math.max(r.limit, units)", to: "r.size = r.limit" };
    assert_ne!(play(&[forgetful], &steps).await, expected(&steps), "the test does not see what it is for");
}

/// Above 512 units a rate is kept in buckets of a sixtieth. An edit leaves them what they are.
#[tokio::test]
async fn edits_of_a_large_limit_do_not_keep_units_longer() {
    let mut steps = vec![Step::Limit { at: 0, limit: 600 }, Step::Claim { at: 5, cost: 600, expect: 1 }];
    steps.extend((1..30).map(|n| Step::Limit { at: n * 20, limit: 600 + n }));
    steps.push(Step::Claim { at: 990, cost: 600, expect: 0 });
    steps.push(Step::Claim { at: 1_030, cost: 600, expect: 1 });
    assert_eq!(play(&[], &steps).await, expected(&steps));
    let dragging = Edit { from: "same and e[3] and math.min(e[3], r.cursor) or", to: "" };
    assert_ne!(play(&[dragging], &steps).await, expected(&steps), "the test does not see what it is for");
}
