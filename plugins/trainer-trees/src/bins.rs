//! [`Binned`]: features as bytes, each with at most 256 bins.

use fl_core::{Inputs, Samples};

/// Samples by column, with each value as the number of its bin.
pub struct Binned {
    rows: usize,
    /// Column after column.
    codes: Vec<u8>,
    /// Of each column, ascending: bin `b` holds values above `cuts[b - 1]` and up to `cuts[b]`.
    cuts: Vec<Vec<f32>>,
    /// The first bin of each column among those of all columns; its length is the number of columns
    /// plus 1.
    starts: Vec<usize>,
}

impl Binned {
    /// Splits every column of `x` into at most `bins` (2 to 256).
    pub fn new(x: &Samples, bins: usize) -> Self {
        let (rows, width) = (x.len(), x.width());
        let mut codes = vec![0; rows * width];
        let cuts = match &**x.inputs() {
            _ if rows == 0 => vec![Vec::new(); width],
            Inputs::Dense { data, .. } => dense(x, data, bins, &mut codes),
            Inputs::Bytes { shape, data, .. } => bytes(x, shape, data, bins, &mut codes),
            Inputs::Sparse {
                starts,
                columns,
                values,
                ..
            } => {
                let by_column = Columns::new(x, starts, columns, values);
                sparse(x.len(), &by_column, bins, &mut codes)
            }
        };
        let mut starts = vec![0];
        starts.extend(cuts.iter().scan(0, |end, cuts| {
            *end += cuts.len() + 1;
            Some(*end)
        }));
        Self {
            rows,
            codes,
            cuts,
            starts,
        }
    }

    /// Returns the number of samples.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of features.
    pub fn width(&self) -> usize {
        self.cuts.len()
    }

    /// Returns the bin of every sample.
    pub fn column(&self, feature: usize) -> &[u8] {
        &self.codes[feature * self.rows..(feature + 1) * self.rows]
    }

    /// Returns the number of bins of a feature; 1 if all samples have one value.
    pub fn bins(&self, feature: usize) -> usize {
        self.cuts[feature].len() + 1
    }

    /// Returns the positions of a feature's bins among the bins of all.
    pub fn place(&self, feature: usize) -> std::ops::Range<usize> {
        self.starts[feature]..self.starts[feature + 1]
    }

    /// Returns the number of bins of all features together.
    pub fn all_bins(&self) -> usize {
        self.starts[self.width()]
    }

    /// Returns the largest value in this bin or an earlier one.
    pub fn threshold(&self, feature: usize, bin: usize) -> f32 {
        self.cuts[feature][bin]
    }
}

/// Columns that are read together: a row of these is about one cache line.
const TILE: usize = 16;

fn dense(x: &Samples, data: &[f32], bins: usize, codes: &mut [u8]) -> Vec<Vec<f32>> {
    let (rows, width, mut cuts) = (x.len(), x.width(), Vec::new());
    let mut tile = vec![0.0; rows * TILE.min(width)];
    let mut sorted = Vec::new();
    for codes in codes.chunks_mut(rows * TILE) {
        let columns = codes.len() / rows;
        for (i, id) in x.ids().iter().enumerate() {
            let start = *id as usize * width + cuts.len();
            for (k, value) in data[start..start + columns].iter().enumerate() {
                tile[k * rows + i] = *value;
            }
        }
        for (values, codes) in tile.chunks(rows).zip(codes.chunks_mut(rows)) {
            sorted.clear();
            sorted.extend_from_slice(values);
            sorted.sort_unstable_by(f32::total_cmp);
            let of = cut(&runs(&sorted), bins);
            for (code, value) in codes.iter_mut().zip(values) {
                *code = bin(&of, *value);
            }
            cuts.push(of);
        }
    }
    cuts
}

fn bytes(
    x: &Samples,
    shape: &[usize; 3],
    data: &[u8],
    bins: usize,
    codes: &mut [u8],
) -> Vec<Vec<f32>> {
    let (width, channels) = (x.width(), byte_values(x.inputs()));
    let column = |(f, codes): (usize, &mut [u8])| {
        let byte = |id: &u32| usize::from(data[*id as usize * width + f]);
        let mut counts = [0; 256];
        x.ids().iter().for_each(|id| counts[byte(id)] += 1);
        let values = &channels[f / (shape[1] * shape[2])];
        let all = values.iter().copied().zip(counts);
        let seen: Vec<(f32, usize)> = all.filter(|(_, n)| *n > 0).collect();
        let cuts = cut(&seen, bins);
        let table: Vec<u8> = values.iter().map(|v| bin(&cuts, *v)).collect();
        for (code, id) in codes.iter_mut().zip(x.ids()) {
            *code = table[byte(id)];
        }
        cuts
    };
    codes.chunks_mut(x.len()).enumerate().map(column).collect()
}

fn sparse(rows: usize, by_column: &Columns, bins: usize, codes: &mut [u8]) -> Vec<Vec<f32>> {
    let column = |(f, codes): (usize, &mut [u8])| {
        let (at, values) = by_column.of(f);
        let mut sorted = values.to_vec();
        // half the columns of the usual tables have one value besides 0
        let one = values
            .first()
            .filter(|one| values.iter().all(|v| v.to_bits() == one.to_bits()));
        if one.is_none() {
            sorted.sort_unstable_by(f32::total_cmp);
        }
        let cuts = cut(&with_zeros(runs(&sorted), rows - values.len()), bins);
        codes.fill(bin(&cuts, 0.0));
        match one.map(|one| bin(&cuts, *one)) {
            Some(code) => at.iter().for_each(|row| codes[*row as usize] = code),
            None => {
                for (row, value) in at.iter().zip(values) {
                    codes[*row as usize] = bin(&cuts, *value);
                }
            }
        }
        cuts
    };
    codes.chunks_mut(rows).enumerate().map(column).collect()
}

/// Returns the number of each byte, by channel, with the arithmetic of [`Inputs::write_row`].
fn byte_values(inputs: &Inputs) -> Vec<Vec<f32>> {
    let Inputs::Bytes { mean, std, .. } = inputs else {
        return Vec::new();
    };
    let channel = |c: usize| {
        (0..=255)
            .map(|b| {
                let one = Inputs::Bytes {
                    shape: [1, 1, 1],
                    data: vec![b],
                    mean: vec![mean[c]],
                    std: vec![std[c]],
                };
                let mut value = [0.0];
                one.write_row(0, &mut value);
                value[0]
            })
            .collect()
    };
    (0..mean.len().min(std.len())).map(channel).collect()
}

/// Returns the bin of a value. A tree compares a value with the same cut in the same way when it
/// predicts.
fn bin(cuts: &[f32], value: f32) -> u8 {
    // a column has at most 255 cuts
    cuts.partition_point(|cut| *cut < value) as u8
}

/// Returns the distinct values of `sorted` and their counts.
fn runs(sorted: &[f32]) -> Vec<(f32, usize)> {
    // by `==` and not by bits: -0.0 and 0.0 are one value
    sorted
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], run.len()))
        .collect()
}

/// Adds `zeros` zeros.
fn with_zeros(mut runs: Vec<(f32, usize)>, zeros: usize) -> Vec<(f32, usize)> {
    let at = runs.partition_point(|(v, _)| *v < 0.0);
    match runs.get_mut(at) {
        Some((v, n)) if *v == 0.0 => *n += zeros,
        _ if zeros > 0 => runs.insert(at, (0.0, zeros)),
        _ => {}
    }
    runs
}

/// Returns cuts between values so that at most `bins` bins hold about the same number of samples.
/// If there are no more distinct values than bins, it cuts between every two.
fn cut(runs: &[(f32, usize)], bins: usize) -> Vec<f32> {
    let all = runs.len() <= bins;
    let mut left: usize = runs.iter().map(|(_, n)| n).sum();
    let (mut held, mut cuts) = (0, Vec::new());
    for pair in runs.windows(2) {
        held += pair[0].1;
        // the rest is shared among the remaining bins, so a value that fills several bins costs
        // only one
        let bins_left = bins - cuts.len();
        if all || (bins_left > 1 && held * bins_left >= left) {
            cuts.push(between(pair[0].0, pair[1].0));
            left -= held;
            held = 0;
        }
    }
    cuts
}

/// Returns the middle of two values `low < high`, at least `low` and below `high`.
fn between(low: f32, high: f32) -> f32 {
    let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
    if middle < high { middle } else { low }
}

/// Sparse rows as columns.
struct Columns {
    starts: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f32>,
}

impl Columns {
    fn new(x: &Samples, row_starts: &[usize], columns: &[u32], given: &[f32]) -> Self {
        let width = x.width();
        let range = |id: &u32| row_starts[*id as usize]..row_starts[*id as usize + 1];
        let mut starts = vec![0; width + 1];
        for ids in x.ids().chunks(64) {
            x.inputs().preload(ids.iter().map(|id| *id as usize));
            for column in ids.iter().flat_map(|id| &columns[range(id)]) {
                starts[*column as usize + 1] += 1;
            }
        }
        for f in 0..width {
            starts[f + 1] += starts[f];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; starts[width]];
        let mut values = vec![0.0; starts[width]];
        for (row, id) in x.ids().iter().enumerate() {
            for (column, value) in columns[range(id)].iter().zip(&given[range(id)]) {
                let at = &mut next[*column as usize];
                (rows[*at], values[*at]) = (row as u32, *value);
                *at += 1;
            }
        }
        Self {
            starts,
            rows,
            values,
        }
    }

    fn of(&self, column: usize) -> (&[u32], &[f32]) {
        let range = self.starts[column]..self.starts[column + 1];
        (&self.rows[range.clone()], &self.values[range])
    }
}
