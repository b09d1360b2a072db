//! Rows on another scale than others, such as bytes beside numbers from 0 to 1: test rows, public
//! rows and those of one client.

use fl_core::{Inputs, Samples, first_names};
use fl_data_kit::dataset::Source;

/// The least ratio of mean sizes that is no difference between rows of one scale. Pixels from 0 to
/// 255 are 255 times those from 0 to 1, and about 50 to 150 times normalised ones.
const RATIO: f64 = 20.0;

/// Returns the sum of the sizes (absolute values) of a row's numbers, for each row, as models get
/// them.
fn sizes(rows: &Samples) -> impl Iterator<Item = f64> {
    let inputs = rows.inputs();
    let mut row = vec![0.0; inputs.width()];
    rows.ids().iter().map(move |id| {
        inputs.write_row(*id as usize, &mut row);
        row.iter().map(|n| f64::from(n.abs())).sum()
    })
}

/// Returns the mean size of all numbers. 0 without numbers.
fn size(rows: &Samples) -> f64 {
    let numbers = rows.len() * rows.inputs().width();
    sizes(rows).sum::<f64>() / numbers.max(1) as f64
}

fn is_dense(rows: &Samples) -> bool {
    matches!(&**rows.inputs(), Inputs::Dense { .. })
}

/// Says that `rows` (`what` is their name) are on another scale than the clients' rows; `None` if
/// they are not. Looks at numbers of files: images of bytes are on one scale.
pub(crate) fn other_scale(own: &Samples, (what, rows): (&str, &Samples)) -> Option<String> {
    if !is_dense(own) && !is_dense(rows) {
        return None;
    }
    let (own, rows) = (size(own), size(rows));
    let (ratio, compared) = if own > rows {
        (own / rows, "smaller")
    } else {
        (rows / own, "larger")
    };
    (ratio.is_finite() && ratio >= RATIO).then(|| {
        format!(
            "the numbers of the {what} are {ratio:.0} times {compared} on average than those of the clients' rows: scale both alike"
        )
    })
}

/// Names the sources whose rows are on another scale than the median source; `None` if there are
/// none, or fewer than three to compare. `of` has the source of each row.
pub(crate) fn sources_of_other_scale(
    own: &Samples,
    of: &[usize],
    sources: &[Source],
) -> Option<String> {
    // rows of one file have no sources
    if sources.len() < 3 || !is_dense(own) {
        return None;
    }
    let mut sums = vec![(0.0, 0); sources.len()];
    for (size, source) in sizes(own).zip(of) {
        sums[*source].0 += size;
        sums[*source].1 += 1;
    }
    let means = sums.iter().enumerate().filter(|(_, (sum, _))| *sum > 0.0);
    let means: Vec<(usize, f64)> = means
        .map(|(at, (sum, rows))| (at, sum / f64::from(*rows)))
        .collect();
    if means.len() < 3 {
        return None;
    }
    let mut sorted: Vec<f64> = means.iter().map(|(_, mean)| *mean).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let far = |mean: f64| mean / median >= RATIO || median / mean >= RATIO;
    let other = means.iter().filter(|(_, mean)| far(*mean));
    let names: Vec<String> = other.map(|(at, _)| sources[*at].name.clone()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the numbers of {} of {} clients are {RATIO} times larger or smaller on average than those of a client in the middle, or more: {}; scale all alike",
            names.len(),
            sources.len(),
            first_names(&names, 3)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn rows(data: &[f32]) -> Samples {
        Samples::all(Arc::new(Inputs::Dense {
            shape: vec![2],
            data: data.to_vec(),
        }))
    }

    #[test]
    fn another_scale_is_told_in_either_direction() {
        let pixels = rows(&[0.0, 255.0, -51.0, 102.0]);
        let shares = rows(&[0.0, 1.0, -0.2, 0.4]);
        let told = other_scale(&pixels, ("test rows", &shares)).unwrap();
        assert!(
            told.contains("test rows are 255 times smaller on"),
            "{told}"
        );
        let told = other_scale(&shares, ("test rows", &pixels)).unwrap();
        assert!(told.contains("test rows are 255 times larger on"), "{told}");
        // bytes are numbers from 0 to 1, as models get them
        let bytes = Samples::all(Arc::new(Inputs::Bytes {
            shape: [1, 1, 2],
            data: vec![0, 255, 51, 102],
            mean: vec![0.0],
            std: vec![1.0],
        }));
        assert!(other_scale(&bytes, ("test rows", &shares)).is_none());
        assert!(other_scale(&bytes, ("test rows", &pixels)).is_some());
        // a few times is not another scale, and of zeros nothing is known
        assert!(other_scale(&shares, ("test rows", &rows(&[8.0, 7.0]))).is_none());
        assert!(other_scale(&shares, ("test rows", &rows(&[0.0, 0.0]))).is_none());
        assert!(other_scale(&shares.pick(&[]), ("test rows", &pixels)).is_none());
    }
    #[test]
    fn a_client_on_another_scale_is_named() {
        let told = |own: &[&[f32]]| {
            let of = own.iter().enumerate();
            let of: Vec<usize> = of.flat_map(|(at, own)| vec![at; own.len() / 2]).collect();
            let source = |at: usize| Source {
                name: format!("{at}.csv"),
                rows: own[at].len() / 2,
            };
            let sources: Vec<Source> = (0..own.len()).map(source).collect();
            sources_of_other_scale(&rows(&own.concat()), &of, &sources)
        };
        let (pixels, shares) = ([0.0, 255.0, 51.0, 102.0], [0.0, 1.0, -0.2, 0.4]);
        assert_eq!(
            told(&[&shares, &pixels, &shares[..2], &[]]).unwrap(),
            "the numbers of 1 of 4 clients are 20 times larger or smaller on average than those of a client in the middle, or more: 1.csv; scale all alike"
        );
        let small = told(&[&shares, &pixels, &pixels]).unwrap();
        assert!(small.contains("or more: 0.csv;"), "{small}");
        assert_eq!(told(&[&shares, &shares[..2], &[7.0, 8.0]]), None);
        // of two, either may be the right one
        assert_eq!(told(&[&shares, &pixels]), None);
    }
}
