//! Splits that a paper's authors published as counts. The draw behind them cannot be repeated here
//! (it came from another program's generator), but the counts can: a split takes each class in
//! data-set order by the rule of [`crate::partition::floor_counts`], so the counts say which
//! sample goes where.

use crate::partition::{Partition, by_class, deal};
use anyhow::{Result, ensure};

/// A published table of counts.
#[derive(Debug)]
pub struct Published {
    /// Name of the set that was split.
    pub set: &'static str,
    /// Parameter of the Dirichlet distribution the authors drew from.
    pub alpha: f64,
    /// The number the authors gave the draw.
    pub seed: u64,
    /// Samples of each class in the set that was split.
    pub class_size: usize,
    /// Samples of each class at each client.
    pub counts: &'static [[u16; 10]],
}

/// The known tables: FedKD's splits of the CIFAR-10 training images over 20 clients.
pub static TABLES: [Published; 2] = [
    Published {
        set: "cifar10",
        alpha: 0.1,
        seed: 1,
        class_size: 5000,
        counts: &FEDKD_CIFAR10_01,
    },
    Published {
        set: "cifar10",
        alpha: 1.0,
        seed: 1,
        class_size: 5000,
        counts: &FEDKD_CIFAR10_1,
    },
];

/// The table for this set, `alpha` and seed.
///
/// # Errors
/// If there is none; says which there are.
pub fn find(set: &str, alpha: f64, seed: u64) -> Result<&'static Published> {
    let found = TABLES
        .iter()
        .find(|t| t.set == set && (t.alpha - alpha).abs() < 1e-12 && t.seed == seed);
    found.ok_or_else(|| {
        let known: Vec<String> = TABLES
            .iter()
            .map(|t| format!("{} alpha {} seed {}", t.set, t.alpha, t.seed))
            .collect();
        anyhow::anyhow!(
            "no published split of `{set}` with alpha {alpha} and seed {seed} is known; known: {}",
            known.join(", ")
        )
    })
}

impl Published {
    /// Samples of each client.
    pub fn client_sizes(&self) -> Vec<usize> {
        self.counts
            .iter()
            .map(|row| row.iter().map(|n| usize::from(*n)).sum())
            .collect()
    }

    /// Is it over this many clients?
    pub(crate) fn check(&self, clients: usize) -> Result<()> {
        let rows = self.counts.len();
        ensure!(
            clients == rows,
            "the published split of `{}` is over {rows} clients, not {clients}",
            self.set
        );
        Ok(())
    }

    /// Deals out `labels` by this table. Where a class is smaller or larger than it was for the
    /// authors, each count is scaled and rounded down, and the last client gets the rest.
    ///
    /// # Errors
    /// If `clients` is not the number of clients of the table, or a label is none of its classes.
    pub fn deal(&self, labels: &[usize], clients: usize) -> Result<Partition> {
        self.check(clients)?;
        let rows = self.counts.len();
        let groups = by_class(labels, self.counts[0].len())?;
        let counts = |(class, group): (usize, &Vec<usize>)| {
            let scaled = |row: &[u16; 10]| usize::from(row[class]) * group.len() / self.class_size;
            let mut counts: Vec<usize> = self.counts.iter().map(scaled).collect();
            counts[rows - 1] = group.len() - counts[..rows - 1].iter().sum::<usize>();
            counts
        };
        let counts: Vec<Vec<usize>> = groups.iter().enumerate().map(counts).collect();
        Ok(deal(&groups, &counts, rows))
    }
}

#[rustfmt::skip]
const FEDKD_CIFAR10_01: [[u16; 10]; 20] = [
    [20, 0, 2, 39, 19, 19, 0, 107, 0, 10],
    [8, 144, 1420, 27, 0, 0, 0, 0, 1772, 657],
    [0, 2, 40, 0, 1334, 184, 0, 18, 2, 0],
    [270, 1165, 0, 781, 1633, 9, 0, 0, 154, 15],
    [237, 0, 10, 0, 0, 0, 2627, 1, 0, 0],
    [0, 1, 6, 0, 397, 0, 0, 491, 25, 0],
    [0, 799, 2577, 0, 0, 3441, 28, 0, 0, 8],
    [5, 205, 7, 0, 0, 0, 0, 0, 0, 1145],
    [30, 5, 0, 1316, 0, 764, 1627, 0, 2045, 0],
    [0, 0, 0, 0, 0, 0, 0, 12, 0, 1622],
    [0, 2119, 62, 125, 0, 278, 0, 0, 0, 1208],
    [0, 242, 0, 338, 12, 0, 186, 0, 0, 0],
    [0, 0, 516, 0, 1, 0, 309, 49, 67, 70],
    [2, 0, 0, 0, 1039, 38, 5, 10, 850, 138],
    [298, 0, 266, 1415, 50, 89, 157, 4305, 0, 0],
    [859, 4, 2, 699, 0, 6, 0, 0, 0, 0],
    [0, 0, 0, 40, 510, 44, 56, 0, 0, 12],
    [1004, 128, 0, 0, 0, 33, 0, 0, 2, 0],
    [2173, 50, 85, 214, 0, 87, 0, 0, 70, 0],
    [94, 136, 7, 6, 5, 8, 5, 7, 13, 115],
];

#[rustfmt::skip]
const FEDKD_CIFAR10_1: [[u16; 10]; 20] = [
    [117, 32, 155, 188, 189, 478, 20, 209, 12, 256],
    [130, 96, 274, 299, 206, 86, 369, 190, 586, 16],
    [87, 8, 138, 96, 238, 91, 212, 206, 87, 439],
    [52, 572, 4, 494, 54, 90, 36, 216, 365, 205],
    [54, 63, 429, 318, 497, 1147, 64, 80, 379, 178],
    [89, 299, 158, 232, 160, 108, 87, 201, 395, 307],
    [303, 79, 1245, 222, 157, 372, 405, 68, 105, 1264],
    [169, 87, 319, 56, 281, 74, 111, 28, 104, 51],
    [244, 27, 262, 93, 375, 377, 526, 695, 204, 823],
    [133, 768, 135, 24, 189, 645, 74, 183, 179, 332],
    [16, 520, 11, 716, 21, 10, 131, 721, 32, 84],
    [153, 109, 399, 154, 417, 149, 602, 79, 393, 61],
    [86, 337, 196, 326, 82, 55, 140, 154, 15, 56],
    [90, 250, 239, 1, 408, 331, 128, 132, 202, 333],
    [612, 400, 278, 628, 292, 213, 1276, 20, 736, 22],
    [156, 195, 242, 14, 281, 152, 148, 269, 217, 35],
    [144, 773, 31, 218, 468, 162, 155, 401, 373, 97],
    [820, 66, 221, 551, 71, 28, 304, 496, 279, 194],
    [802, 53, 64, 105, 244, 326, 36, 132, 182, 184],
    [743, 266, 200, 265, 370, 106, 176, 520, 155, 63],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_given_away_whole() {
        for table in &TABLES {
            for class in 0..10 {
                let sum: usize = table.counts.iter().map(|row| usize::from(row[class])).sum();
                assert_eq!(sum, table.class_size);
            }
        }
    }

    #[test]
    fn dealing_gives_the_published_counts_and_scales_to_other_sizes() {
        for table in &TABLES {
            let labels: Vec<usize> = (0..50_000).map(|i| i * 7 % 10).collect();
            let counts = table.deal(&labels, 20).unwrap().class_counts(&labels, 10);
            for (got, published) in counts.iter().zip(table.counts) {
                assert!(
                    got.iter()
                        .zip(published)
                        .all(|(g, p)| *g == usize::from(*p))
                );
            }
            let fewer = &labels[..20_000];
            let got = table.deal(fewer, 20).unwrap();
            assert_eq!(got.sizes().iter().sum::<usize>(), 20_000);
            assert_eq!(
                got.class_counts(fewer, 10)[1][0],
                usize::from(table.counts[1][0]) * 2 / 5
            );
        }
    }

    #[test]
    fn what_is_not_known_says_what_is() {
        let error = find("mnist", 0.1, 1).unwrap_err().to_string();
        assert!(
            error.contains("known: cifar10 alpha 0.1 seed 1, cifar10 alpha 1 seed 1"),
            "{error}"
        );
        assert!(
            TABLES[0]
                .deal(&[0], 10)
                .unwrap_err()
                .to_string()
                .contains("over 20 clients, not 10")
        );
        assert!(TABLES[0].deal(&[10], 20).is_err());
    }
}
