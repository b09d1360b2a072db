//! Rules that select clients whose answers lie close together: Krum, Multi-Krum, Bulyan.
use crate::by_numbers;
use fl_core::prelude::*;

settings! {
    /// The answer of the client with the nearest neighbours (Krum; Blanchard et al. 2017). With `n`
    /// clients it withstands `f` bad ones if `n >= 2 f + 3`; needs all answers at once.
    pub struct Krum {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.2, in 0.0..0.5;
    }
}

settings! {
    /// The mean of the clients with the nearest neighbours (Multi-Krum; Blanchard et al. 2017). As
    /// `krum`; needs all answers at once.
    pub struct MultiKrum {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.2, in 0.0..0.5;
        /// Number of clients in the mean; all but `f` if not given.
        keep: Option<usize> = None, in 1..;
    }
}

settings! {
    /// For each number, the mean of the values nearest to their median, among the clients that Krum
    /// chooses one after the other (Bulyan; El Mhamdi et al. 2018). With `n` clients it withstands
    /// `f` bad ones if `n >= 4 f + 3`; needs all answers at once.
    pub struct Bulyan {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.1, in 0.0..0.25;
    }
}

/// All answers, and their distances.
struct Points<'a> {
    sent: &'a Inbox<Params>,
    /// Squared distances, `n x n`.
    apart: Vec<Vec<f64>>,
}

impl<'a> Points<'a> {
    fn new(sent: &'a Inbox<Params>, round: &Round) -> Self {
        let apart = sent.squared_distances(&*round.exec);
        Self { sent, apart }
    }

    /// Returns the sum of the squared distances to the nearest `near` others among `all`.
    fn score(&self, of: usize, all: &[usize], near: usize) -> f64 {
        let others = all.iter().filter(|other| **other != of);
        let mut apart: Vec<f64> = others.map(|other| self.apart[of][*other]).collect();
        apart.sort_by(f64::total_cmp);
        apart.iter().take(near).sum()
    }

    /// Returns `all`, first those whose `all.len() - f - 2` nearest neighbours (at least one) are
    /// nearest. On a tie the smaller numbers come first, so that the order of clients does not
    /// matter.
    fn ranked(&self, all: &[usize], f: usize) -> Vec<usize> {
        let near = all.len().saturating_sub(f + 2).max(1);
        let score = |of: &usize| (self.score(*of, all, near), *of);
        let mut ranked: Vec<(f64, usize)> = all.iter().map(score).collect();
        ranked.sort_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| by_numbers(self.sent, a.1, b.1))
        });
        ranked.into_iter().map(|(_, of)| of).collect()
    }

    fn everyone(&self) -> Vec<usize> {
        (0..self.sent.len()).collect()
    }
}

/// Returns how many answers it takes to withstand this share of bad clients.
fn robustness(share: f64, per_bad: usize) -> Option<Robustness> {
    (share > 0.0).then(|| Robustness::of_share(share, per_bad, 3))
}

impl From<Krum> for MultiKrum {
    fn from(Krum { byzantine_share }: Krum) -> Self {
        Self {
            byzantine_share,
            keep: Some(1),
        }
    }
}
plugin!(aggregator "krum" => Krum as MultiKrum,
    papers: ["Blanchard et al. 2017"]);

impl Aggregator for MultiKrum {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let points = Points::new(inbox, round);
        let f = floor_share(self.byzantine_share, inbox.len());
        let mut kept = points.ranked(&points.everyone(), f);
        let due = inbox.len() - f;
        if let Some(keep) = self.keep.filter(|keep| *keep > due) {
            round.note(format!(
                "`keep` {keep} of {} leaves bad clients in the mean: with {f} bad ones it should be at most {due}",
                inbox.len()
            ));
        }
        kept.truncate(self.keep.unwrap_or(due));
        round.record("left-out", (inbox.len() - kept.len()) as f64);
        let weight = |at| f64::from(u8::from(kept.contains(&at)));
        let weights: Vec<f64> = (0..inbox.len()).map(weight).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }
    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
    }
    fn robustness(&self) -> Option<Robustness> {
        robustness(self.byzantine_share, 2)
    }
}
plugin!(aggregator "multi-krum" => MultiKrum,
    papers: ["Blanchard et al. 2017"]);

/// Returns the mean of the `keep` values nearest to the median; on a tie the smaller.
fn around_median(values: &mut [f32], keep: usize) -> f32 {
    values.sort_by(f32::total_cmp);
    let mid = values.len() / 2;
    let median = match values.len() % 2 {
        1 => f64::from(values[mid]),
        _ => (f64::from(values[mid - 1]) + f64::from(values[mid])) / 2.0,
    };
    let away = |v: &f32| (f64::from(*v) - median).abs();
    values.sort_by(|a, b| away(a).total_cmp(&away(b)));
    (values[..keep].iter().map(|v| f64::from(*v)).sum::<f64>() / keep as f64) as f32
}

impl Aggregator for Bulyan {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let points = Points::new(inbox, round);
        let f = floor_share(self.byzantine_share, inbox.len());
        let (mut left, mut chosen) = (points.everyone(), Vec::new());
        while chosen.len() < inbox.len() - 2 * f {
            let next = points.ranked(&left, f)[0];
            left.retain(|at| *at != next);
            chosen.push(next);
        }
        let some = inbox.iter().enumerate();
        let some = some.filter(|(at, _)| chosen.contains(at));
        let some = Inbox::new(
            some.map(|(_, mail)| fl_core::ClientMessage {
                weight: 1.0,
                ..mail.clone()
            })
            .collect(),
        )?;
        // `byzantine-share` is below a quarter, so something is always left
        let keep = chosen.len() - 2 * f;
        Ok(some.per_rank(0..some.len(), &*round.exec, |values| {
            around_median(values, keep)
        }))
    }
    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
    }
    fn robustness(&self) -> Option<Robustness> {
        robustness(self.byzantine_share, 4)
    }
}
plugin!(aggregator "bulyan" => Bulyan,
    papers: ["El Mhamdi et al. 2018"]);
