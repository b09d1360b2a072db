//! Random draws that a privacy analysis covers.
use fl_core::prelude::*;

settings! {
    /// A uniformly random share of the clients, at least one (FedAvg; McMahan et al. 2017).
    pub struct Uniform {
        /// Share of the clients that take part in a round.
        share: f64 = 1.0, in above_to(0.0, 1.0);
    }
}

/// A number of clients that is off by less than this share of it needs no note.
const CLOSE: f64 = 0.1;

impl Selector for Uniform {
    type Pool = Roster;

    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let exact = self.share * pool.len() as f64;
        let wanted = (exact.round() as usize).max(1);
        if (wanted as f64 - exact).abs() > CLOSE * exact {
            let (share, n) = (self.share, pool.len());
            round.note(format!(
                "`share` {share} of {n} clients is {exact:.2}: {wanted} of them take part"
            ));
        }
        Ok(round.stream.draws().choose(pool.len(), wanted))
    }

    fn draw(&self) -> SamplingScheme {
        if self.share == 1.0 {
            SamplingScheme::Everyone
        } else {
            SamplingScheme::FixedSize
        }
    }
}
plugin!(selector "uniform" => Uniform,
    papers: ["McMahan et al. 2017"]);

settings! {
    /// Each client takes part independently with the same probability (Poisson sampling, McMahan et
    /// al. 2018), as theorems on privacy amplification assume. A round may have no client.
    pub struct Poisson {
        /// Probability that a client takes part in a round.
        rate: f64 = 0.5, in above_to(0.0, 1.0);
    }
}

impl Selector for Poisson {
    type Pool = Roster;

    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let (rate, n) = (self.rate, pool.len());
        let mean = rate * n as f64;
        if mean < 0.5 {
            round.note(format!(
                "`rate` {rate} of {n} clients is {mean:.2}: most rounds have no client"
            ));
        }
        let mut draws = round.stream.draws();
        Ok((0..n).filter(|_| draws.uniform() < self.rate).collect())
    }

    fn draw(&self) -> SamplingScheme {
        SamplingScheme::Poisson { rate: self.rate }
    }
}
plugin!(selector "poisson" => Poisson,
    papers: ["McMahan et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Candidate;

    fn pool(n: u32) -> Vec<Candidate> {
        (0..n).map(Candidate::new).collect()
    }

    #[test]
    fn they_are_selectors() {
        for share in [0.01, 0.5] {
            fl_conformance::random_selector(|| Uniform { share });
        }
        fl_conformance::selector(|| Uniform { share: 1.0 });
        fl_conformance::random_selector(|| Poisson { rate: 0.5 });
        fl_conformance::selector(|| Poisson { rate: 1.0 });
    }

    #[test]
    fn exact_at_least_one_client_is_chosen() {
        let round = Round::first().with_stream(Stream::root(7));
        let chosen = |share| Uniform { share }.select(&round, &pool(10)).unwrap();
        let given = |share| fl_conformance::given(&Uniform { share }).pool(&pool(10));
        let shown = |share| format!("{:?}", chosen(share));
        given(0.001).bind(|| insta::assert_snapshot!(shown(0.001), @"[3]"));
        given(0.4).bind(|| insta::assert_snapshot!(shown(0.4), @"[2, 3, 4, 7]"));
        assert_eq!(chosen(1.0), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_share_that_is_no_number_of_clients_is_noted() {
        let noted = |share| {
            let round = Round::first().with_stream(Stream::root(7));
            Uniform { share }.select(&round, &pool(4)).unwrap();
            format!("{:?}", round.take_log())
        };
        let said = "`share` 0.05 of 4 clients is 0.20: 1 of them take part";
        assert!(noted(0.05).contains(said), "{}", noted(0.05));
        assert!(noted(0.35).contains("is 1.40: 1 of them"));
        assert_eq!((noted(0.5), noted(0.95)), ("[]".into(), "[]".into()));
    }

    #[test]
    fn a_poisson_draw_varies_in_size_and_keeps_its_rate() {
        let sizes: Vec<usize> = (0..2000)
            .map(|i| {
                let round = Round::first().with_stream(Stream::root(1).child("round", i));
                let chosen = Poisson { rate: 0.1 }.select(&round, &pool(20)).unwrap();
                chosen.len()
            })
            .collect();
        assert!(sizes.contains(&0) && sizes.iter().any(|n| *n > 4));
        // 40,000 draws of 0.1: five standard deviations are 300
        let all: usize = sizes.iter().sum();
        assert!((3700..4300).contains(&all), "{all}");
    }
}
