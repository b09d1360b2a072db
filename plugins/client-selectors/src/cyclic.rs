//! Clients in cyclic order.
use fl_core::prelude::*;

settings! {
    /// The next clients in order, round after round, from the first again after the last (cyclic
    /// participation, round robin; Cho et al. 2023).
    pub struct CyclicSettings {
        /// Number of clients in a round; all if there are fewer.
        size: usize = 1, in 1..;
    }
}

/// The selector. Its state is the client whose turn is next.
#[derive(Debug)]
pub struct Cyclic {
    settings: CyclicSettings,
    next: ClientId,
}

impl Selector for Cyclic {
    type Pool = Roster;

    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let (n, size) = (pool.len(), self.settings.size);
        let wanted = size.min(n);
        crate::note_too_many(round, "size", size, n);
        let first = pool.iter().position(|c| c.id >= self.next).unwrap_or(0);
        let mut chosen: Vec<usize> = (first..first + wanted).map(|at| at % n).collect();
        self.next = chosen.last().map_or(0, |last| pool[*last].id + 1);
        chosen.sort_unstable();
        Ok(chosen)
    }

    fn save(&self) -> Vec<u8> {
        self.next.to_le_bytes().to_vec()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let next = state.try_into().ok().context("a state has 4 bytes")?;
        self.next = ClientId::from_le_bytes(next);
        Ok(())
    }
}
plugin!(selector "cyclic" => CyclicSettings as Cyclic { next },
    papers: ["Cho et al. 2023"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_selector() {
        fl_conformance::selector(|| Cyclic::from(CyclicSettings { size: 3 }));
    }

    #[test]
    fn more_clients_than_there_are_are_noted() {
        let pool: Vec<Candidate> = (0..3).map(Candidate::new).collect();
        let noted = |size| {
            let round = Round::first();
            let mut cyclic = Cyclic::from(CyclicSettings { size });
            cyclic.select(&round, &pool).unwrap();
            format!("{:?}", round.take_log())
        };
        let said = "`size` is 10, and there are 3 clients: it means all of them";
        assert!(noted(10).contains(said), "{}", noted(10));
        assert_eq!(noted(3), "[]");
    }

    #[test]
    fn exact_everybody_has_a_turn() {
        let pool: Vec<Candidate> = [2, 3, 5, 7, 11].map(Candidate::new).to_vec();
        let mut cyclic = Cyclic::from(CyclicSettings { size: 2 });
        fl_conformance::given(&cyclic).pool(&pool).bind(|| {
            let turns: Vec<_> = (0..5)
                .map(|_| cyclic.select(&Round::first(), &pool).unwrap())
                .collect();
            insta::assert_snapshot!(format!("{turns:?}"), @"[[0, 1], [2, 3], [0, 4], [1, 2], [3, 4]]");
        });
    }
}
