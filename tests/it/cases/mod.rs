//! Failures of comparable systems in the real world, as tests: each in the module of its id in the list of cases.
//!
//! Each runs scaled in the suite, and in full by `cargo xtask cases --full`; each ends with the standing invariants of
//! [`tidemill_tests::lab`]. They run one at a time: their subject is time.

mod b_01;
mod b_02;
mod b_03;
mod b_04;
mod budget;
mod cancel;
mod d_01;
mod d_02;
mod g_01;
mod g_02;
mod kill;
mod l_01;
mod l_02;
mod m_01;
mod m_02;
mod p_01;
mod p_02;
mod p_03;
mod q_01;
mod q_02;
mod q_03;
mod r_01;
mod r_02;
mod r_03;
mod r_04;
mod r_05;
mod r_07;
mod s_01;
mod s_02;
mod s_03;
mod s_04;
mod t_01;
mod x_02;
mod x_03;

use std::time::Duration;

/// What a busy machine may add to any bound before a case fails.
const SLACK: Duration = Duration::from_millis(250);
/// For what has no bound of its own, and only must not hang.
const PATIENCE: Duration = Duration::from_secs(30);

fn as_ms(t: Duration) -> u64 {
    u64::try_from(t.as_millis()).unwrap_or(u64::MAX)
}
