//! The numbers that Go's `math/rand` gives for a seed.
//!
//! Calico's nodes choose where in a pool to begin by such a number, so the same node begins at the
//! same block whether Calico or we ask. The generator is an additive lagged Fibonacci one,
//! `s[n] = s[n - 607] + s[n - 273]`. Go starts it from the state that it has after 7.8 million
//! million steps from a fixed seed; that state is not kept here as a table but computed, by
//! stepping with the power of a polynomial instead of one by one.

use std::sync::OnceLock;

const LENGTH: usize = 607;
const TAP: usize = 273;
/// Where the feed of the generator stands at first, counted from the start of the state.
const FEED: usize = LENGTH - TAP;
const STEPS_TO_COOK: u64 = 7_800_000_000_000;

/// A generator, as `rand.New(rand.NewSource(seed))` makes it.
pub(crate) struct GoRandom {
    state: Vec<u64>,
    tap: usize,
    feed: usize,
}

impl GoRandom {
    pub(crate) fn new(seed: i64) -> Self {
        let mixed = lehmer(seed, [40, 20, 0]);
        let state = mixed.zip(cooked()).map(|(fresh, cooked)| fresh ^ cooked).collect();
        Self { state, tap: 0, feed: FEED }
    }

    fn next(&mut self) -> u64 {
        self.tap = (self.tap + LENGTH - 1) % LENGTH;
        self.feed = (self.feed + LENGTH - 1) % LENGTH;
        let sum = self.state[self.feed].wrapping_add(self.state[self.tap]);
        self.state[self.feed] = sum;
        sum
    }

    /// The next 32 bits: Go takes them from the upper half of 63.
    fn next_half(&mut self) -> u64 {
        self.next() << 1 >> 32
    }

    /// A number below the limit, as Go's arbitrary precision integers draw it; 0 below 0 or 1.
    pub(crate) fn below(&mut self, limit: u128) -> u128 {
        let Some(width) = limit.checked_ilog2() else { return 0 };
        let mask = u128::MAX >> (127 - width);
        loop {
            let low = u128::from(self.next_half() | self.next_half() << 32);
            let high = match width {
                ..64 => 0,
                _ => u128::from(self.next_half() | self.next_half() << 32),
            };
            let drawn = (low | high << 64) & mask;
            if drawn < limit {
                return drawn;
            }
        }
    }
}

/// The values that a seed gives: three steps of Lehmer's generator for each, shifted and mixed.
fn lehmer(seed: i64, shifts: [u32; 3]) -> impl Iterator<Item = u64> {
    const MODULUS: i64 = (1 << 31) - 1;
    let seed = match seed.rem_euclid(MODULUS) {
        0 => 89_482_311,
        seed => seed,
    };
    let mut x = seed.unsigned_abs();
    let mut step = move || {
        x = x * 48_271 % MODULUS.unsigned_abs();
        x
    };
    for _ in 0..20 {
        step();
    }
    std::iter::repeat_with(move || shifts.iter().fold(0, |mixed, shift| mixed ^ step() << shift))
        .take(LENGTH)
}

fn cooked() -> &'static [u64] {
    static COOKED: OnceLock<Vec<u64>> = OnceLock::new();
    COOKED.get_or_init(cook)
}

/// The state after [`STEPS_TO_COOK`] steps.
///
/// The state is read downwards from the feed, so place `i` of it holds the number at
/// `FEED - 1 - i` of the sequence, taken round.
fn cook() -> Vec<u64> {
    let first: Vec<u64> = lehmer(1, [20, 10, 0]).collect();
    let place = |index: usize| (FEED - 1 + LENGTH - index % LENGTH) % LENGTH;
    let mut sequence: Vec<u64> = (0..LENGTH).map(|index| first[place(index)]).collect();
    for index in 0..LENGTH {
        sequence.push(sequence[index].wrapping_add(sequence[index + FEED]));
    }
    let weights = power_of_x(STEPS_TO_COOK);
    let done = usize::try_from(STEPS_TO_COOK % LENGTH as u64).expect("less than 607");
    let mut state = vec![0; LENGTH];
    for index in 0..LENGTH {
        let terms = weights.iter().zip(&sequence[index..]);
        let sum = terms
            .fold(0_u64, |sum, (weight, number)| sum.wrapping_add(weight.wrapping_mul(*number)));
        state[place(done + index)] = sum;
    }
    state
}

/// `x` to the power, where `x^607 = x^334 + 1`, with coefficients of 64 bits.
fn power_of_x(exponent: u64) -> Vec<u64> {
    let mut power = vec![0_u64; LENGTH];
    power[0] = 1;
    for bit in (0..64 - exponent.leading_zeros()).rev() {
        let mut product = vec![0_u64; 2 * LENGTH];
        let shift = usize::from(exponent >> bit & 1 == 1);
        for (at, factor) in power.iter().enumerate() {
            let row = product[at + shift..].iter_mut().zip(&power);
            row.for_each(|(sum, other)| *sum = sum.wrapping_add(factor.wrapping_mul(*other)));
        }
        for at in (LENGTH..2 * LENGTH).rev() {
            let high = product[at];
            product[at - LENGTH] = product[at - LENGTH].wrapping_add(high);
            product[at - LENGTH + FEED] = product[at - LENGTH + FEED].wrapping_add(high);
        }
        product.truncate(LENGTH);
        power = product;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_steps_by_power_are_the_same_as_one_by_one() {
        for steps in [0, 1, 606, 607, 5_000] {
            let mut sequence: Vec<u64> = lehmer(7, [20, 10, 0]).collect();
            while sequence.len() <= steps {
                let at = sequence.len() - LENGTH;
                sequence.push(sequence[at].wrapping_add(sequence[at + FEED]));
            }
            let weights = power_of_x(steps as u64);
            let sum = weights.iter().zip(&sequence).fold(0_u64, |sum, (weight, number)| {
                sum.wrapping_add(weight.wrapping_mul(*number))
            });
            assert_eq!(sum, sequence[steps], "{steps} steps");
        }
    }

    #[test]
    fn the_first_numbers_are_those_of_go() {
        // rand.New(rand.NewSource(1)).Int63()
        let mut random = GoRandom::new(1);
        assert_eq!(random.next() << 1 >> 1, 5_577_006_791_947_779_410);
        assert_eq!(random.next() << 1 >> 1, 8_674_665_223_082_153_551);
    }
}
