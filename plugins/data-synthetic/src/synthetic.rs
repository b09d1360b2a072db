//! What the sets that the program makes itself share. They need no files; they come from a seed of
//! their own and from `+ - * / sqrt` alone, so their bits are the same on every machine and in
//! every version of the standard library.

use fl_core::Draws;

/// No part of a made set holds more values than this: a slip of the pen in a spec is an error, not
/// a full memory.
const MAX_VALUES: usize = 1 << 30;

/// Refuses more rows (or classes) of `width` values than fit in [`MAX_VALUES`].
pub fn check_rows(rows: &[usize], width: usize) -> Result<(), String> {
    let most = MAX_VALUES / width.max(1);
    match rows.iter().find(|rows| **rows > most) {
        Some(rows) => Err(format!(
            "{rows} rows of {width} values are too many; at most {most} fit"
        )),
        None => Ok(()),
    }
}

/// Nearly normal, mean 0 and variance 1: a sum of `n` uniform numbers. A true normal draw needs
/// `exp` and `ln`, whose last bits differ between platforms.
pub fn bell(draws: &mut Draws, n: u32) -> f64 {
    let n_f = f64::from(n);
    let sum: f64 = (0..n).map(|_| draws.uniform()).sum();
    (sum - n_f / 2.0) * (12.0 / n_f).sqrt()
}

/// Uniform between two numbers.
pub fn between(draws: &mut Draws, low: f64, high: f64) -> f64 {
    low + (high - low) * draws.uniform()
}

/// FNV-1a, 64 bits: to pin what a set holds.
#[cfg(test)]
pub fn hash(bytes: impl IntoIterator<Item = u8>) -> String {
    let hash = bytes.into_iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The parts of a set as its tests look at them.
#[cfg(test)]
pub trait Make: fl_data_kit::DataSet {
    fn make(&self) -> anyhow::Result<[(fl_core::Inputs, fl_core::Labels); 2]> {
        let nowhere = fl_data_kit::Folder::new("", self.facts(), std::path::Path::new(""));
        let rows = self.load(&nowhere)?;
        Ok([rows.train, rows.test].map(|(inputs, labels)| {
            (
                std::sync::Arc::unwrap_or_clone(inputs),
                std::sync::Arc::unwrap_or_clone(labels),
            )
        }))
    }
}

#[cfg(test)]
impl<T: fl_data_kit::DataSet> Make for T {}
