//! A small generator, so that a seed means the same history in every build (`splitmix64`).

/// Pseudo-random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// From a seed; near seeds give unrelated numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed);
        rng.next();
        rng
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `n` − 1; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// One of them; none when there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.index(from.len());
        from.get(at)
    }
}
