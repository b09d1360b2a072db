//! [`Halves`]: the data of each shadow run.

use fl_core::Stream;

/// Random halves for shadow runs, which come in pairs: each run of a pair has one half.
pub struct Halves {
    stream: Stream,
}

impl Halves {
    /// Draws the halves from this stream.
    pub fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// Returns which of the `n` things of this owner (a client's number) shadow run `run` has.
    pub fn of(&self, run: usize, owner: u64, n: usize) -> Vec<bool> {
        let pair = self.stream.child("pair", run as u64 / 2);
        let order = pair.child("owner", owner).draws().permutation(n);
        // the larger half goes to the first of a pair, so that an owner of one example has it in
        // one of them
        let mut has = vec![run % 2 == 1; n];
        for at in &order[..n.div_ceil(2)] {
            has[*at] = run.is_multiple_of(2);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_everything_is_missing_in_half_of_the_runs() {
        let halves = Halves::new(Stream::root(3));
        for n in [0, 1, 2, 7, 100] {
            let runs: Vec<Vec<bool>> = (0..6).map(|run| halves.of(run, 4, n)).collect();
            for at in 0..n {
                assert_eq!(runs.iter().filter(|run| run[at]).count(), 3);
            }
            assert_eq!(runs[2].iter().filter(|has| **has).count(), n.div_ceil(2));
        }
        assert_ne!(halves.of(0, 4, 100), halves.of(2, 4, 100));
        assert_ne!(halves.of(0, 4, 100), halves.of(0, 5, 100));
    }
}
