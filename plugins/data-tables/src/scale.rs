//! What is done to the columns of a table of numbers.

use fl_core::Inputs;
use fl_data_kit::Normalise;

fl_core::choices! {
    /// What is done to the columns of a table of numbers.
    pub enum Scale {
        /// Nothing.
        None = "none",
        /// `(value - mean) / std` with the training rows' mean and standard deviation of each
        /// column of numbers.
        Standard = "standard",
    }
}

/// Mean and standard deviation of the first `scaled` columns; the others, and what is constant,
/// stay as they are.
pub(crate) fn standard(train: &Inputs, scaled: usize) -> Normalise {
    let width = train.width();
    let n = train.len().max(1) as f64;
    let (mut sums, mut squares) = (vec![0.0; scaled], vec![0.0; scaled]);
    let mut row = vec![0.0; width];
    let mut each = |add: &mut dyn FnMut(usize, f64)| {
        for at in 0..train.len() {
            train.write_row(at, &mut row);
            row[..scaled]
                .iter()
                .enumerate()
                .for_each(|(c, v)| add(c, f64::from(*v)));
        }
    };
    each(&mut |c, v| sums[c] += v / n);
    each(&mut |c, v| squares[c] += (v - sums[c]) * (v - sums[c]) / n);
    let std = |square: &f64| {
        if *square > 0.0 {
            square.sqrt() as f32
        } else {
            1.0
        }
    };
    let mut normalise = Normalise {
        mean: sums.iter().map(|m| *m as f32).collect(),
        std: squares.iter().map(std).collect(),
    };
    normalise.mean.resize(width, 0.0);
    normalise.std.resize(width, 1.0);
    normalise
}
