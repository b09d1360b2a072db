//! Test rows on another scale than the clients' rows, such as bytes beside numbers from 0 to 1.

use fl_core::{Inputs, Samples};

/// The least ratio of mean sizes that is no difference between rows of one scale. Pixels from 0 to
/// 255 are 255 times those from 0 to 1, and about 50 to 150 times normalised ones.
const RATIO: f64 = 20.0;

/// Returns the mean size (absolute value) of all numbers, as models get them. 0 without numbers.
fn size(rows: &Samples) -> f64 {
    let inputs = rows.inputs();
    let mut row = vec![0.0; inputs.width()];
    let mut sum = 0.0;
    for id in rows.ids().iter() {
        inputs.write_row(*id as usize, &mut row);
        sum += row.iter().map(|n| f64::from(n.abs())).sum::<f64>();
    }
    sum / (rows.len() * row.len()).max(1) as f64
}

/// Says that test rows are on another scale than the clients' rows; `None` if they are not. Looks at
/// numbers of files: images of bytes are on one scale.
pub(crate) fn other_scale(own: &Samples, tests: &Samples) -> Option<String> {
    let dense = |rows: &Samples| matches!(&**rows.inputs(), Inputs::Dense { .. });
    if !dense(own) && !dense(tests) {
        return None;
    }
    let (own, tests) = (size(own), size(tests));
    let (ratio, compared) = match own > tests {
        true => (own / tests, "smaller"),
        false => (tests / own, "larger"),
    };
    (ratio.is_finite() && ratio >= RATIO).then(|| {
        format!(
            "the numbers of the test rows are {ratio:.0} times {compared} on average than those of the clients' rows: scale both alike"
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
        let told = other_scale(&pixels, &shares).unwrap();
        assert!(
            told.contains("test rows are 255 times smaller on"),
            "{told}"
        );
        let told = other_scale(&shares, &pixels).unwrap();
        assert!(told.contains("test rows are 255 times larger on"), "{told}");
        // bytes are numbers from 0 to 1, as models get them
        let bytes = Samples::all(Arc::new(Inputs::Bytes {
            shape: [1, 1, 2],
            data: vec![0, 255, 51, 102],
            mean: vec![0.0],
            std: vec![1.0],
        }));
        assert!(other_scale(&bytes, &shares).is_none());
        assert!(other_scale(&bytes, &pixels).is_some());
        // a few times is not another scale, and of zeros nothing is known
        assert!(other_scale(&shares, &rows(&[8.0, 7.0])).is_none());
        assert!(other_scale(&shares, &rows(&[0.0, 0.0])).is_none());
        assert!(other_scale(&shares.pick(&[]), &pixels).is_none());
    }
}
