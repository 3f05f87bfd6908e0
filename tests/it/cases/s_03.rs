//! S-03: a poison task that kills its process.

use tidemill_common::state::State;
use tidemill_tests::lab::profile::pick;
use tidemill_tests::lab::{Lab, Mode, Payload};

use super::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_dead_and_its_neighbours_are_not() {
    let lab = Lab::new().await;
    let (poison_after, normal) = (2, pick(40, 100));
    let poison = Payload::of(Mode::Abort, 50).task();
    let mut tasks = lab.tasks(normal, Payload::sleep(pick(150, 400)));
    tasks.insert(normal / 4, poison.clone());
    lab.submit(&tasks).await;

    let mut setup = lab.setup("w").concurrency(8);
    setup.poison_after = poison_after;
    let mut worker = lab.start(setup.clone());
    lab.until("all have ended", PATIENCE * 2, async || {
        // What a supervisor does.
        if worker.ended().is_some() {
            worker = lab.start(setup.clone());
        }
        let ended = lab.counts().await.ended;
        if ended.values().sum::<u64>() - ended.get("reclaimed").unwrap_or(&0) > normal as u64 {
            Ok(())
        } else {
            Err(format!("{ended:?}"))
        }
    })
    .await;

    let status = lab.store().status(&poison.id, None).await.unwrap();
    let losses = 2 + poison_after;
    assert_eq!(status.state, Some(State::Dead));
    assert_eq!(String::from_utf8_lossy(&status.data), format!("poison: worker lost {losses} times"));
    let ledger = lab.ledger();
    let runs = ledger.of(poison.id.as_str());
    // On a machine that is too busy a delivery may be lost before its handler starts.
    assert!((2..=losses as usize).contains(&runs.len()), "{runs:?}");
    assert!(runs.iter().skip(2).all(|run| run.start.lone), "after two losses it runs alone");
    let counts = lab.counts().await;
    assert_eq!((counts.dead, counts.ended.get("done")), (1, Some(&(normal as u64))), "its neighbours are done");
    lab.close_with_invariants().await;
}
