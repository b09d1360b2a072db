//! Cohorts by size.
use fl_core::prelude::*;

// ANCHOR: part
settings! {
    /// A random cohort, drawn one by one without repeats, in which clients with more examples are
    /// more likely.
    pub struct BySize {
        /// Share of clients in the cohort.
        share: f64 = 0.5, in 0.0..=1.0;
    }
}

impl Selector for BySize {
    type Pool = Roster;

    fn poll(&mut self, _: &Round, pool: &Roster) -> Result<Option<ClientStatQuery>> {
        Ok(ClientStatQuery::unknown(ClientStat::Samples, pool))
    }

    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let wanted = ((self.share * pool.len() as f64).round() as usize).max(1);
        let size = |p: usize| pool[p].samples.unwrap_or(0) as f64;
        let mut draws = round.stream.draws();
        let mut left: Vec<usize> = (0..pool.len()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < wanted && !left.is_empty() {
            let total: f64 = left.iter().map(|p| size(*p)).sum();
            let mut at = draws.uniform() * total;
            let passes = |p: &usize| {
                at -= size(*p);
                at < 0.0
            };
            let taken = left.iter().position(passes).unwrap_or(left.len() - 1);
            chosen.push(left.remove(taken));
        }
        chosen.sort_unstable();
        Ok(chosen)
    }
}
plugin!(selector "by-size" => BySize);
// ANCHOR_END: part

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_selector() {
        fl_conformance::random_selector(|| BySize { share: 0.5 });
        fl_conformance::selector(|| BySize { share: 1.0 });
    }

    #[test]
    fn large_clients_are_chosen_more_often() {
        let pool = [10, 10, 80]
            .map(Some)
            .into_iter()
            .zip(0..)
            .map(|(samples, id)| Candidate {
                samples,
                ..Candidate::new(id)
            });
        let pool: Vec<Candidate> = pool.collect();
        let often = (0..1000).filter(|i| {
            let round = Round::first().with_stream(Stream::root(1).child("round", *i));
            BySize { share: 0.3 }.select(&round, &pool).unwrap() == [2]
        });
        let often = often.count();
        assert!((750..850).contains(&often), "{often}");
    }
}
