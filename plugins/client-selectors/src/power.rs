//! Clients with the largest losses.
use fl_core::prelude::*;

settings! {
    /// Of a random set of candidates, the clients on whose examples the global model has the
    /// largest loss (power of choice; Cho et al. 2020).
    #[check(PowerOfChoiceSettings::enough)]
    pub struct PowerOfChoiceSettings {
        /// Number of clients in a round.
        size: usize = 1, in 1..;
        /// Number of clients that get a request for their loss (the paper's `d`), drawn in
        /// proportion to their examples.
        candidates: usize = 2, in 1..;
    }
}

impl PowerOfChoiceSettings {
    fn enough(&self) -> Result<(), String> {
        if self.candidates >= self.size {
            Ok(())
        } else {
            Err(format!(
                "`candidates` must be at least `size`, which is {}",
                self.size
            ))
        }
    }
}

/// The selector. Its state is the clients' numbers of examples.
pub struct PowerOfChoice {
    settings: PowerOfChoiceSettings,
    sizes: Vec<(ClientId, u64)>,
}

impl PowerOfChoice {
    fn size(&self, of: &Candidate) -> Option<u64> {
        let known = |id| self.sizes.binary_search_by_key(&id, |(id, _)| *id).ok();
        of.samples
            .or_else(|| known(of.id).map(|at| self.sizes[at].1))
    }

    /// Draws `candidates` positions without repeats, one after the other in proportion to the
    /// remaining weights.
    fn candidates(&self, round: &Round, pool: &Roster) -> Vec<usize> {
        let mut left: Vec<(usize, f64)> = pool
            .iter()
            .enumerate()
            .filter_map(|(at, c)| Some((at, self.size(c)? as f64)))
            .collect();
        let (mut draws, mut chosen) = (round.stream.draws(), Vec::new());
        while chosen.len() < self.settings.candidates && !left.is_empty() {
            let total: f64 = left.iter().map(|(_, size)| size).sum();
            let mut point = draws.uniform() * total;
            let passes = |(_, size): &(usize, f64)| {
                point -= size;
                point < 0.0
            };
            let taken = left.iter().position(passes).unwrap_or(left.len() - 1);
            chosen.push(left.remove(taken).0);
        }
        chosen.sort_unstable();
        chosen
    }
}

impl Selector for PowerOfChoice {
    type Pool = Roster;

    fn poll(&mut self, round: &Round, pool: &Roster) -> Result<Option<ClientStatQuery>> {
        crate::note_too_many(round, "candidates", self.settings.candidates, pool.len());
        let unknown = |at: &usize| self.size(&pool[*at]).is_none();
        let of: Vec<usize> = (0..pool.len()).filter(unknown).collect();
        if !of.is_empty() && pool.iter().all(|c| c.samples.is_none()) {
            let wanted = ClientStat::Samples;
            return Ok(Some(ClientStatQuery { wanted, of }));
        }
        let told = pool.iter().filter_map(|c| Some((c.id, self.size(c)?)));
        self.sizes = told.collect();
        let wanted = ClientStat::Loss;
        let of = self.candidates(round, pool);
        let asked = pool.iter().any(|c| c.loss.is_some());
        Ok((!asked && !of.is_empty()).then_some(ClientStatQuery { wanted, of }))
    }

    fn select(&mut self, _: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let mut by_loss: Vec<(usize, f64)> = pool
            .iter()
            .enumerate()
            .filter_map(|(at, c)| Some((at, c.loss?)))
            .collect();
        ensure!(!by_loss.is_empty(), "no candidate has sent its loss");
        by_loss.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        by_loss.truncate(self.settings.size);
        let mut chosen: Vec<usize> = by_loss.into_iter().map(|(at, _)| at).collect();
        chosen.sort_unstable();
        Ok(chosen)
    }

    fn save(&self) -> Vec<u8> {
        let pair = |(id, n): &(ClientId, u64)| [&id.to_le_bytes()[..], &n.to_le_bytes()].concat();
        self.sizes.iter().flat_map(pair).collect()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let (pairs, rest) = state.as_chunks::<12>();
        ensure!(rest.is_empty(), "a state has 12 bytes for each client");
        let pair = |p: &[u8; 12]| {
            let (id, n) = p.split_at(4);
            let id = id.try_into().map(ClientId::from_le_bytes);
            id.ok().zip(n.try_into().map(u64::from_le_bytes).ok())
        };
        self.sizes = pairs.iter().filter_map(pair).collect();
        Ok(())
    }
}
plugin!(selector "power-of-choice" => PowerOfChoiceSettings as PowerOfChoice { sizes },
    papers: ["Cho et al. 2020"]);

#[cfg(test)]
mod tests {
    use super::*;

    fn part(size: usize, candidates: usize) -> PowerOfChoice {
        PowerOfChoice::from(PowerOfChoiceSettings { size, candidates })
    }

    /// Selects among clients whose loss is their number, as a server does.
    fn chosen(
        part: &mut PowerOfChoice,
        round: u64,
        sizes: &[u64],
    ) -> (Vec<usize>, Vec<ClientStatQuery>) {
        let round = Round::first().with_stream(Stream::root(3).child("round", round));
        let mut pool: Vec<_> = (0..sizes.len() as ClientId).map(Candidate::new).collect();
        let mut polls = Vec::new();
        while let Some(poll) = part.poll(&round, &pool).unwrap() {
            for at in &poll.of {
                match poll.wanted {
                    ClientStat::Samples => pool[*at].samples = Some(sizes[*at]),
                    ClientStat::Loss => pool[*at].loss = Some(*at as f64),
                }
            }
            polls.push(poll);
        }
        (part.select(&round, &pool).unwrap(), polls)
    }

    #[test]
    fn exact_the_highest_losses_of_the_candidates() {
        let mut part = part(2, 4);
        let (first, polls) = chosen(&mut part, 1, &[10; 8]);
        let wanted: Vec<ClientStat> = polls.iter().map(|p| p.wanted).collect();
        assert_eq!(wanted, [ClientStat::Samples, ClientStat::Loss]);
        assert_eq!(first, polls[1].of[2..]);
        let (_, polls) = chosen(&mut part, 2, &[10; 8]);
        assert_eq!(polls.len(), 1, "sizes are asked once");
    }

    #[test]
    fn larger_clients_are_candidates_more_often() {
        let mut part = part(1, 1);
        let often = (0..1000).filter(|i| chosen(&mut part, *i, &[80, 10, 10]).0 == [0]);
        let often = often.count();
        assert!((750..850).contains(&often), "{often}");
    }

    #[test]
    fn a_state_is_taken_back() {
        let mut told = part(1, 2);
        chosen(&mut told, 1, &[5, 6, 7]);
        let mut again = part(1, 2);
        again.load(&told.save()).unwrap();
        assert_eq!(again.sizes, told.sizes);
        assert!(again.load(&[1, 2, 3]).is_err());
    }
}
