//! How many of a claim's tasks each priority may have: pure arithmetic.
//!
//! Smooth weighted round robin (the scheme of nginx's upstream balancer), one step a task, its state carried from claim to claim:
//! over any 36 tasks each priority gets its weight, evenly spread, whatever the sizes of the claims. A share that a priority does not
//! use goes to whoever has work, in the same claim; so the low priority waits at most for 35 others while it has work.

use tidemill_common::task::Priority;

use crate::options::Order;

const PRIORITIES: usize = Priority::ALL.len();
const WEIGHTS: [i32; PRIORITIES] = {
    let mut weights = [0; PRIORITIES];
    let mut i = 0;
    while i < PRIORITIES {
        weights[i] = Priority::ALL[i].value() as i32;
        i += 1;
    }
    weights
};
const SUM: i32 = WEIGHTS[0] + WEIGHTS[1] + WEIGHTS[2] + WEIGHTS[3];

/// The shares of a worker's claims.
#[derive(Debug)]
pub(crate) struct Shares {
    order: Order,
    /// What each priority has saved up; the sum is always 0.
    carry: [i32; PRIORITIES],
}

impl Shares {
    pub(crate) fn new(order: Order) -> Self {
        Self { order, carry: [0; PRIORITIES] }
    }

    /// The shares of the next claim, for at most `most` tasks: urgent, high, normal, low.
    pub(crate) fn next(&mut self, most: u32) -> [u32; PRIORITIES] {
        if self.order == Order::Strict {
            return [most; PRIORITIES];
        }
        let mut shares = [0; PRIORITIES];
        for _ in 0..most {
            let mut best = 0;
            for (i, weight) in WEIGHTS.iter().enumerate() {
                self.carry[i] += weight;
                if self.carry[i] > self.carry[best] {
                    best = i;
                }
            }
            self.carry[best] -= SUM;
            shares[best] += 1;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_36_tasks_are_shared_by_weight_however_they_are_claimed() {
        for sizes in [vec![36], vec![1; 36], vec![5, 7, 1, 3, 20], vec![12, 12, 12]] {
            let mut shares = Shares::new(Order::Weighted);
            for round in 0..3 {
                let mut sum = [0; PRIORITIES];
                for most in &sizes {
                    let got = shares.next(*most);
                    assert_eq!(got.iter().sum::<u32>(), *most);
                    for (all, one) in sum.iter_mut().zip(got) {
                        *all += one;
                    }
                }
                assert_eq!(sum, [20, 10, 5, 1], "round {round} of {sizes:?}");
            }
        }
    }

    #[test]
    fn nobody_waits_longer_than_one_round() {
        let mut shares = Shares::new(Order::Weighted);
        let mut since = [0_u32; PRIORITIES];
        for _ in 0..10_000 {
            let got = shares.next(1);
            for i in 0..PRIORITIES {
                since[i] = if got[i] == 1 { 0 } else { since[i] + 1 };
            }
            assert!(since[0] < 3 && since[1] < 6 && since[2] < 12 && since[3] < 36, "{since:?}");
        }
    }

    #[test]
    fn strict_lets_the_most_urgent_have_all() {
        assert_eq!(Shares::new(Order::Strict).next(7), [7; PRIORITIES]);
    }
}
