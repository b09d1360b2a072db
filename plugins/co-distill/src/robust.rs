//! Robust means, which a few bad clients cannot move far.
use fl_core::ceil_share;
use fl_core::message::SoftLabels;
use fl_core::prelude::*;
use fl_linalg::{Svd, svd};
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;

choices! {
    /// The robust rule of the mean.
    pub enum Rule {
        /// Drop the clients that differ most along the direction of largest variance, twice
        /// (Cronus, Chang et al. 2019): the share of bad clients to withstand.
        Spectral(f64, in 0.0..=1.0) = "spectral",
        /// The median of each class.
        Median = "median",
        /// The mean of each class without this share of the values at either end.
        Trimmed(f64, in 0.0..0.5) = "trimmed",
    }
}

settings! {
    /// For each sample a robust mean over the clients that label it (Cronus, Chang et al. 2019).
    /// The results of `median` and `trimmed` need not add up to 1.
    pub struct RobustLabels {
        /// The robust rule.
        rule: Rule = Rule::Spectral(0.2);
    }
}

fn mean(points: &[Vec<f64>], kept: &[usize]) -> Vec<f64> {
    let mut mean = vec![0.0; points[0].len()];
    for at in kept {
        mean.iter_mut().zip(&points[*at]).for_each(|(m, x)| *m += x);
    }
    mean.iter_mut().for_each(|m| *m /= kept.len() as f64);
    mean
}

/// Returns the leading eigenvalue and eigenvector of the covariance (divided by the number of
/// points).
///
/// The eigenvector is the leading right singular vector of the centred points, `n x classes`. It is
/// also that of the covariance, which is the smaller matrix if there are more points than classes.
fn leading(points: &[Vec<f64>], kept: &[usize], mean: &[f64]) -> Result<(f64, Array1<f64>)> {
    let n = kept.len();
    let away = Array2::from_shape_fn((n, mean.len()), |(i, j)| points[kept[i]][j] - mean[j]);
    let few = n <= mean.len();
    let matrix = if few {
        away
    } else {
        Array2::from_shape_fn((mean.len(), mean.len()), |(i, j)| {
            let products = away.column(i).into_iter().zip(away.column(j));
            products.map(|(x, y)| x * y).sum::<f64>() / n as f64
        })
    };
    let Svd { values, right } = svd(matrix)?;
    let Some(&value) = values.first() else {
        return Ok((0.0, Array1::zeros(0)));
    };
    let value = if few { value * value / n as f64 } else { value };
    Ok((value, right.row(0).to_owned()))
}

/// Drops points twice: of the `n` remaining points the `ceil(eps / 2 * n)` farthest from the mean
/// along the leading eigenvector of their covariance (of equally far ones the later first). Stops
/// if all points are equal or none would remain. Returns the mean of the rest and their positions.
///
/// # Errors
/// If a point is not finite.
pub fn spectral(points: &[Vec<f64>], eps: f64) -> Result<(Vec<f64>, Vec<usize>)> {
    const PASSES: usize = 2;
    const FLAT: f64 = 1e-12;
    let mut kept: Vec<usize> = (0..points.len()).collect();
    for _ in 0..PASSES {
        let drop = ceil_share(eps / 2.0, kept.len());
        if drop == 0 || drop >= kept.len() {
            break;
        }
        let mean = mean(points, &kept);
        let (value, vector) = leading(points, &kept, &mean)?;
        if value <= FLAT {
            break;
        }
        let far = |at: usize| {
            let along = points[at].iter().zip(&mean).zip(&vector);
            along.map(|((x, m), v)| v * (x - m)).sum::<f64>().abs()
        };
        let mut order: Vec<(f64, usize)> = kept.iter().map(|at| (far(*at), *at)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        order.truncate(kept.len() - drop);
        kept = order.into_iter().map(|(_, at)| at).collect();
        kept.sort_unstable();
    }
    Ok((mean(points, &kept), kept))
}

fn by_place(points: &[Vec<f64>], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let column = |c: usize| {
        let mut column: Vec<f64> = points.iter().map(|p| p[c]).collect();
        column.sort_by(f64::total_cmp);
        f(&column)
    };
    (0..points[0].len()).map(column).collect()
}

/// Returns the median of each coordinate; the mean of the two in the middle for an even number.
pub fn median(points: &[Vec<f64>]) -> Vec<f64> {
    by_place(points, |sorted| {
        let mid = sorted.len() / 2;
        match sorted.len() % 2 {
            1 => sorted[mid],
            _ => (sorted[mid - 1] + sorted[mid]) / 2.0,
        }
    })
}

/// Returns the mean of each coordinate without the `floor(share * n)` smallest and largest values.
pub fn trimmed(points: &[Vec<f64>], share: f64) -> Vec<f64> {
    by_place(points, |sorted| {
        let drop = floor_share(share, sorted.len()).min((sorted.len() - 1) / 2);
        let kept = &sorted[drop..sorted.len() - drop];
        kept.iter().sum::<f64>() / kept.len() as f64
    })
}

impl Aggregator for RobustLabels {
    type In = SoftLabels;
    type Out = SoftLabels;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<SoftLabels>) -> Result<SoftLabels> {
        let mut points_of: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
        let mut classes = 0;
        for mail in inbox.iter() {
            classes = mail.body.values.ncols();
            for (id, row) in mail.body.rows.iter().zip(mail.body.values.rows()) {
                let row = row.iter().map(|v| f64::from(*v)).collect();
                points_of.entry(*id).or_default().push(row);
            }
        }
        let mut out = Vec::with_capacity(points_of.len() * classes);
        for points in points_of.values() {
            let row = match &self.rule {
                Rule::Spectral(eps) => spectral(points, *eps)?.0,
                Rule::Median => median(points),
                Rule::Trimmed(share) => trimmed(points, *share),
            };
            out.extend(row.into_iter().map(|v| v as f32));
        }
        let rows: Vec<u32> = points_of.into_keys().collect();
        let table = Array2::from_shape_vec((rows.len(), classes), out)?;
        Ok(SoftLabels::new(rows, table))
    }

    fn claims(&self) -> Properties {
        Properties {
            // of equally far points the later is dropped first, so the order of the clients may
            // matter
            order_free: !matches!(self.rule, Rule::Spectral(_)),
            ..Properties::UNWEIGHTED
        }
    }

    fn robustness(&self) -> Option<Robustness> {
        match self.rule {
            Rule::Spectral(share) => (share > 0.0).then(|| Robustness::at_least(3)),
            Rule::Median => Some(Robustness::at_least(3)),
            Rule::Trimmed(share) => (share > 0.0).then(|| Robustness::of_share(share, 2, 1)),
        }
    }
}
plugin!(aggregator "robust-labels" => RobustLabels,
    papers: ["Chang et al. 2019"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_claims() {
        for rule in [
            Rule::Spectral(0.2),
            Rule::Spectral(0.9),
            Rule::Median,
            Rule::Trimmed(0.25),
        ] {
            fl_conformance::aggregator(|| RobustLabels { rule: rule.clone() });
        }
    }

    #[test]
    fn close_the_leading_direction_is_the_eigenvector_of_the_covariance() {
        // more points than coordinates, and fewer: u u' for one direction, plus a little across it
        for (n, width) in [(40, 4), (3, 12)] {
            let axis: Vec<f64> = (1..=width).map(f64::from).collect();
            let size = axis.iter().map(|a| a * a).sum::<f64>().sqrt();
            let points: Vec<Vec<f64>> = (0..n)
                .map(|i| {
                    let along = f64::from(i) - f64::from(n - 1) / 2.0;
                    axis.iter().map(|a| 7.0 + along * a / size).collect()
                })
                .collect();
            let kept: Vec<usize> = (0..points.len()).collect();
            let (value, vector) = leading(&points, &kept, &mean(&points, &kept)).unwrap();
            let spread = f64::from(n * n - 1) / 12.0;
            assert!((value - spread).abs() < 1e-12 * spread, "{value}");
            let cosine: f64 = vector.iter().zip(&axis).map(|(v, a)| v * a / size).sum();
            assert!((cosine.abs() - 1.0).abs() < 1e-12, "{cosine}");
        }
        let same = vec![vec![0.5; 3]; 4];
        assert_eq!(leading(&same, &[0, 1, 2, 3], &[0.5; 3]).unwrap().0, 0.0);
    }

    #[test]
    fn two_liars_of_ten_do_not_move_it() {
        let honest = |k: usize| vec![0.7 + 0.002 * k as f64, 0.2 - 0.002 * k as f64, 0.1];
        let mut points: Vec<Vec<f64>> = (0..8).map(honest).collect();
        points.extend([vec![0.0, 0.0, 1.0], vec![0.0, 1.0, 0.0]]);
        let (mean, kept) = spectral(&points, 0.2).unwrap();
        assert_eq!(kept, (0..8).collect::<Vec<_>>());
        assert!((mean[0] - 0.707).abs() < 1e-12);
    }
}
