//! Rows on another scale than others, such as bytes beside numbers from 0 to 1: test rows, public
//! rows and those of one client.

use fl_core::{Inputs, Samples, first_names};
use fl_data_kit::dataset::Source;

/// The least ratio of mean sizes that is no difference between rows of one scale. Pixels from 0 to
/// 255 are 255 times those from 0 to 1, and about 50 to 150 times normalised ones.
const RATIO: f64 = 20.0;

/// The least such ratio of one input that is worth a note: months beside years are 12.
const RATIO_OF_INPUT: f64 = 10.0;
/// An input with fewer numbers that are not 0 tells nothing.
const LEAST: f64 = 30.0;
/// Rows with more inputs are images or bags of words, whose inputs have no scales of their own.
const MOST_INPUTS: usize = 500;
/// No more means than this are compared, one for each input of each client.
const MOST_MEANS: usize = 10_000_000;

/// Returns for each group of rows and each input the mean size of its numbers that are not 0, where
/// there are enough; `of` has the group of a row.
fn inputs(rows: &Samples, groups: usize, of: impl Fn(usize) -> usize) -> Vec<Vec<Option<f64>>> {
    let inputs = rows.inputs();
    let mut row = vec![0.0; inputs.width()];
    let mut all = vec![vec![(0.0, 0.0); inputs.width()]; groups];
    for (at, id) in rows.ids().iter().enumerate() {
        inputs.write_row(*id as usize, &mut row);
        let sums = all[of(at)].iter_mut().zip(&row);
        for ((sum, n), number) in sums.filter(|(_, number)| **number != 0.0) {
            (*sum, *n) = (*sum + f64::from(number.abs()), *n + 1.0);
        }
    }
    let mean = |(sum, n): (f64, f64)| (n >= LEAST).then(|| sum / n);
    let means = |sums: Vec<_>| sums.into_iter().map(mean).collect();
    all.into_iter().map(means).collect()
}

/// Whether rows have inputs with scales of their own.
fn has_scales(rows: &Samples) -> bool {
    is_dense(rows) && rows.inputs().width() <= MOST_INPUTS
}

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
    let (ratio, compared) = times(size(own), size(rows));
    if ratio.is_finite() && ratio >= RATIO {
        return Some(format!(
            "the numbers of the {what} are {ratio:.0} times {compared} on average than those of the clients' rows: scale both alike"
        ));
    }
    if !has_scales(own) || !has_scales(rows) {
        return None;
    }
    let width = own.inputs().width();
    let (own, rows) = (inputs(own, 1, |_| 0), inputs(rows, 1, |_| 0));
    let all = own[0].iter().zip(&rows[0]).enumerate();
    let far = all.filter_map(|(at, (own, rows))| far(at, width, (*own)?, (*rows)?, ""));
    let far: Vec<String> = far.collect();
    (!far.is_empty()).then(|| {
        format!(
            "some numbers of the {what} have another size on average than those of the clients' rows: {}; scale both alike",
            first_names(&far, 3)
        )
    })
}

/// Names this input of `width` `of` some rows if its numbers there, `rows` on average, are on
/// another scale than `own`.
fn far(input: usize, width: usize, own: f64, rows: f64, of: &str) -> Option<String> {
    let (ratio, compared) = times(own, rows);
    let text = || {
        format!(
            "input {} of {width}{of} ({ratio:.0} times {compared})",
            input + 1
        )
    };
    (ratio >= RATIO_OF_INPUT).then(text)
}

/// How many times `rows` is larger or smaller than `own`.
fn times(own: f64, rows: f64) -> (f64, &'static str) {
    if own > rows {
        (own / rows, "smaller")
    } else {
        (rows / own, "larger")
    }
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
    if names.is_empty() {
        return inputs_of_other_scale(own, of, sources);
    }
    Some(format!(
        "the numbers of {} of {} clients are {RATIO} times larger or smaller on average than those of a client in the middle, or more: {}; scale all alike",
        names.len(),
        sources.len(),
        first_names(&names, 3)
    ))
}

/// As [`sources_of_other_scale`], of single inputs.
fn inputs_of_other_scale(own: &Samples, of: &[usize], sources: &[Source]) -> Option<String> {
    if !has_scales(own) || sources.len() * own.inputs().width() > MOST_MEANS {
        return None;
    }
    let each = inputs(own, sources.len(), |row| of[row]);
    let width = own.inputs().width();
    let mut found = Vec::new();
    for input in 0..width {
        let known = each.iter().enumerate();
        let known = known.filter_map(|(at, means)| Some((at, means[input]?)));
        let mut known: Vec<(usize, f64)> = known.collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some((_, median)) = known.get(known.len() / 2).filter(|_| known.len() >= 3) else {
            continue;
        };
        found.extend(known.iter().filter_map(|(at, mean)| {
            let of = format!(" of {}", sources[*at].name);
            far(input, width, *median, *mean, &of)
        }));
    }
    (!found.is_empty()).then(|| {
        format!(
            "some numbers of a client have another size on average than those of a client in the middle: {}; scale all alike",
            first_names(&found, 3)
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
    fn one_input_on_another_scale_is_named() {
        // months in place of years, beside a column of large numbers
        let table = |times: f32| -> Vec<f32> {
            (1..=40)
                .flat_map(|k| [k as f32 * times, 1000.0 + k as f32])
                .collect()
        };
        let (years, months) = (rows(&table(1.0)), rows(&table(12.0)));
        let told = other_scale(&years, ("test rows", &months)).unwrap();
        assert!(
            told.contains("clients' rows: input 1 of 2 (12 times larger); scale"),
            "{told}"
        );
        assert_eq!(other_scale(&years, ("test rows", &rows(&table(4.0)))), None);
        // too few numbers tell nothing
        assert_eq!(
            other_scale(&years, ("test rows", &rows(&table(12.0)[..12]))),
            None
        );
        let own = [table(1.0), table(12.0), table(1.0)].concat();
        let of: Vec<usize> = (0..120).map(|row| row / 40).collect();
        let sources = ["a", "b", "c"].map(|name| Source {
            name: name.into(),
            rows: 40,
        });
        let told = sources_of_other_scale(&rows(&own), &of, &sources).unwrap();
        assert!(
            told.contains("in the middle: input 1 of 2 of b (12 times larger); scale"),
            "{told}"
        );
        assert_eq!(
            sources_of_other_scale(&rows(&own), &of, &sources[..2]),
            None
        );
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
