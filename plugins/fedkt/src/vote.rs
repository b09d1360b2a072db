//! Counting of votes.
use fl_core::message::{Counts, Votes};
use fl_core::prelude::*;
use fl_core::{ClientId, Problem};
use ndarray::{Array2, ArrayView2};
use std::collections::BTreeMap;

/// Counts every vote: `rows x classes`. One table of `rows x voters` per sender.
pub fn plain_counts(votes: &[ArrayView2<'_, u32>], classes: usize) -> Array2<f64> {
    let rows = votes.first().map_or(0, |v| v.nrows());
    let mut counts = Array2::zeros((rows, classes));
    for table in votes {
        for ((row, _), label) in table.indexed_iter() {
            counts[[row, *label as usize]] += 1.0;
        }
    }
    counts
}

/// Consistent voting (FedKT section 3.2): a sender whose `s` voters all agree adds `s` votes, any
/// other sender none.
pub fn consistent_counts(votes: &[ArrayView2<'_, u32>], classes: usize) -> Array2<f64> {
    let rows = votes.first().map_or(0, |v| v.nrows());
    let mut counts = Array2::zeros((rows, classes));
    for table in votes {
        for (row, labels) in table.rows().into_iter().enumerate() {
            if labels.iter().all(|label| *label == labels[0]) {
                counts[[row, labels[0] as usize]] += labels.len() as f64;
            }
        }
    }
    counts
}

/// Counts all rows that a sender labels, ascending. Senders with the same rows are counted
/// together.
fn count(
    inbox: &Inbox<Votes>,
    of: impl Fn(&[ArrayView2<'_, u32>], usize) -> Array2<f64>,
) -> Result<Counts> {
    let mut alike: BTreeMap<&[u32], Vec<ArrayView2<'_, u32>>> = BTreeMap::new();
    let mut classes: Option<(ClientId, usize)> = None;
    for mail in inbox.iter() {
        let (first, n) = *classes.get_or_insert((mail.from, mail.body.classes()));
        Problem::shape_unless(n == mail.body.classes(), || {
            format!(
                "client {first} votes for {n} classes, client {} for {}",
                mail.from,
                mail.body.classes()
            )
        })?;
        alike
            .entry(&mail.body.rows)
            .or_default()
            .push(mail.body.labels.view());
    }
    let classes = classes.map_or(0, |(_, n)| n);
    // as a rule all senders label the same samples
    if let (1, Some((rows, votes))) = (alike.len(), alike.first_key_value())
        && rows.is_sorted_by(|a, b| a < b)
    {
        return Ok(Counts::new(rows.to_vec(), of(votes, classes)));
    }
    let mut sums: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (rows, votes) in alike {
        for (id, counts) in rows.iter().zip(of(&votes, classes).rows()) {
            let sum = sums.entry(*id).or_insert_with(|| vec![0.0; classes]);
            sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
        }
    }
    let rows: Vec<u32> = sums.keys().copied().collect();
    let values = sums.into_values().flatten().collect();
    Ok(Counts::new(
        rows.clone(),
        Array2::from_shape_vec((rows.len(), classes), values)?,
    ))
}

settings! {
    /// Every voter of every sender has one vote (PATE, Papernot et al. 2017; FedKT's first tier,
    /// and its second without consistent voting, Li et al. 2021).
    pub struct MajorityVote {}
}

const CLAIMS: Properties = Properties {
    weight_free: true,
    ..Properties::SCALE_FREE
};

impl Aggregator for MajorityVote {
    type In = Votes;
    type Out = Counts;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Votes>) -> Result<Counts> {
        count(inbox, plain_counts)
    }

    fn claims(&self) -> Properties {
        CLAIMS
    }
}
plugin!(aggregator "majority-vote" => MajorityVote,
    papers: ["Papernot et al. 2017", "Li et al. 2021"]);

choices! {
    /// The counts of a sample for which no sender is consistent.
    pub enum NoneConsistent {
        /// No votes at all, so class 0 wins (as written in the paper).
        Class0 = "class-0",
        /// Every vote counts.
        Plain = "plain",
    }
}

settings! {
    /// A party counts only if all its students agree, and then with the votes of all of them
    /// (FedKT, section 3.2; Li et al. 2021).
    pub struct ConsistentVote {
        /// The counts of a sample for which no party is consistent.
        if_none_consistent: NoneConsistent = NoneConsistent::Class0;
    }
}

impl Aggregator for ConsistentVote {
    type In = Votes;
    type Out = Counts;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Votes>) -> Result<Counts> {
        let mut counts = count(inbox, consistent_counts)?;
        if self.if_none_consistent == NoneConsistent::Plain {
            let plain = count(inbox, plain_counts)?;
            for (mut row, plain) in counts
                .values
                .rows_mut()
                .into_iter()
                .zip(plain.values.rows())
            {
                if row.iter().all(|n| *n == 0.0) {
                    row.assign(&plain);
                }
            }
        }
        let voters = inbox.iter().map(|mail| mail.body.voters());
        let together = match self.if_none_consistent {
            NoneConsistent::Class0 => voters.max(),
            // one party that becomes consistent removes the votes of all others: [20, 10] becomes
            // [0, 3]
            NoneConsistent::Plain => Some(voters.sum()),
        };
        Ok(counts.in_blocks(together.unwrap_or(1)))
    }

    fn claims(&self) -> Properties {
        CLAIMS
    }
}
plugin!(aggregator "consistent-vote" => ConsistentVote,
    papers: ["Li et al. 2021"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn consistent(nobody_consistent: NoneConsistent) -> ConsistentVote {
        ConsistentVote {
            if_none_consistent: nobody_consistent,
        }
    }

    fn inbox(votes: &[Array2<u32>], classes: usize) -> Inbox<Votes> {
        let mail = |(k, labels): (usize, &Array2<u32>)| {
            let rows = (0..labels.nrows() as u32).collect();
            ClientMessage::new(k as u32, 1.0, Votes::new(rows, labels.clone(), classes))
        };
        Inbox::new(votes.iter().enumerate().map(mail).collect()).unwrap()
    }

    #[test]
    fn they_are_aggregators() {
        fl_conformance::aggregator(|| MajorityVote {});
        fl_conformance::aggregator(|| consistent(NoneConsistent::Class0));
        fl_conformance::aggregator(|| consistent(NoneConsistent::Plain));
    }

    #[test]
    fn exact_a_divided_party_does_not_count() {
        let votes = inbox(
            &[
                array![[0, 0], [0, 1]],
                array![[2, 2], [1, 2]],
                array![[0, 1], [2, 0]],
            ],
            3,
        );
        let round = Round::first();
        let plain = MajorityVote {}.aggregate(&round, &votes).unwrap();
        assert_eq!(plain.values, array![[3.0, 1.0, 2.0], [2.0, 2.0, 2.0]]);
        assert_eq!(plain.block(), 1);
        let counts = consistent(NoneConsistent::Class0)
            .aggregate(&round, &votes)
            .unwrap();
        assert_eq!(counts.values, array![[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]]);
        assert_eq!((counts.block(), counts.winners()), (2, vec![0, 0]));
        let counts = consistent(NoneConsistent::Plain)
            .aggregate(&round, &votes)
            .unwrap();
        assert_eq!(counts.values, array![[2.0, 0.0, 2.0], [2.0, 2.0, 2.0]]);
        assert_eq!(counts.block(), 6, "any one party decides over all votes");
    }

    #[test]
    fn exact_senders_may_speak_about_different_rows() {
        let mail = |from, rows: Vec<u32>, label| {
            let n = rows.len();
            ClientMessage::new(
                from,
                1.0,
                Votes::new(rows, Array2::from_elem((n, 1), label), 2),
            )
        };
        let votes = Inbox::new(vec![mail(0, vec![3, 5], 0), mail(1, vec![5, 9], 1)]).unwrap();
        let counts = MajorityVote {}.aggregate(&Round::first(), &votes).unwrap();
        assert_eq!(counts.rows, [3, 5, 9]);
        assert_eq!(counts.values, array![[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]);
    }

    #[test]
    fn different_numbers_of_classes_are_refused() {
        let one = |from, classes| {
            ClientMessage::new(from, 1.0, Votes::new(vec![0], array![[0]], classes))
        };
        let votes = Inbox::new(vec![one(0, 2), one(4, 3)]).unwrap();
        let error = MajorityVote {}
            .aggregate(&Round::first(), &votes)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "client 0 votes for 2 classes, client 4 for 3"
        );
    }

    /// For two classes and s = 2 a divided party adds one vote to each class, which changes no
    /// winner. Checks every way in which up to six parties can vote.
    #[test]
    fn exact_with_two_students_and_two_classes_consistency_cannot_matter() {
        for parties in 1..=6u32 {
            for ways in 0..4u32.pow(parties) {
                let votes: Vec<Array2<u32>> = (0..parties)
                    .map(|k| ways >> (2 * k))
                    .map(|v| array![[v & 1, (v >> 1) & 1]])
                    .collect();
                let votes: Vec<_> = votes.iter().map(|v| v.view()).collect();
                let rows = vec![0];
                let winner = |counts| Counts::new(rows.clone(), counts).winners();
                assert_eq!(
                    winner(plain_counts(&votes, 2)),
                    winner(consistent_counts(&votes, 2)),
                    "{parties} parties, {ways:b}"
                );
            }
        }
    }
}
