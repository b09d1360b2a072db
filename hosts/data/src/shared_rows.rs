//! Rows that stand in two places, whatever the files are called and however they are written.

use crate::dataset::Source;
use fl_core::{Inputs, Samples};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};

/// Writes a row as it was decoded into `bytes`: its numbers that are not 0, and their places.
/// Labels and the scale of bytes do not count.
fn encode(inputs: &Inputs, row: usize, (room, bytes): &mut (Vec<f32>, Vec<u8>)) {
    // all of a row at once: a hasher takes longer for many small pieces
    bytes.clear();
    let mut add = |at: usize, value: f32| {
        if value != 0.0 {
            let number = (at as u64) << 32 | u64::from(value.to_bits());
            bytes.extend(number.to_le_bytes());
        }
    };
    match inputs {
        Inputs::Bytes { data, .. } => {
            let width = inputs.width();
            let pixels = &data[row * width..(row + 1) * width];
            let values = pixels.iter().map(|byte| f32::from(*byte) / 255.0);
            values.enumerate().for_each(|(at, value)| add(at, value));
        }
        Inputs::Dense { .. } => {
            room.resize(inputs.width(), 0.0);
            inputs.write_row(row, room);
            let values = room.iter().copied();
            values.enumerate().for_each(|(at, value)| add(at, value));
        }
        Inputs::Sparse {
            starts,
            columns,
            values,
            ..
        } => {
            let of = starts[row]..starts[row + 1];
            let columns = columns[of.clone()].iter();
            columns
                .zip(&values[of])
                .for_each(|(at, value)| add(*at as usize, *value));
        }
    }
}

/// The hash of each row, in order.
pub(crate) fn hashes(samples: &Samples) -> impl Iterator<Item = u64> + '_ {
    let mut room = Default::default();
    let ids = samples.ids().iter();
    ids.map(move |id| {
        encode(samples.inputs(), *id as usize, &mut room);
        let mut hash = DefaultHasher::new();
        hash.write(&room.1);
        hash.finish()
    })
}

/// The SHA-256 of all rows as they were decoded, in any order, in hexadecimal: files with another
/// name, packing, order or format have the same.
pub fn digest_of_rows(samples: &Samples) -> String {
    let mut room = Default::default();
    let mut rows: Vec<[u8; 32]> = Vec::with_capacity(samples.len());
    for id in samples.ids() {
        encode(samples.inputs(), *id as usize, &mut room);
        rows.push(Sha256::digest(&room.1).into());
    }
    rows.sort_unstable();
    let all = rows
        .iter()
        .fold(Sha256::new(), |all, row| all.chain_update(row));
    all.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Is a row of `one` a row of `other` too? Memory grows with the rows of the smaller only.
pub fn share_a_row(one: &Samples, other: &Samples) -> bool {
    let (few, many) = match one.len() < other.len() {
        true => (one, other),
        false => (other, one),
    };
    let few: HashSet<u64> = hashes(few).collect();
    !few.is_empty() && hashes(many).any(|row| few.contains(&row))
}

/// The first two of these sources that have a row in common.
pub fn owned_twice<'a>(train: &Samples, sources: &'a [Source]) -> Option<(&'a str, &'a str)> {
    let owners = sources
        .iter()
        .enumerate()
        .flat_map(|(at, source)| std::iter::repeat_n(at, source.rows));
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let mut both = hashes(train).zip(owners).filter_map(|(row, owner)| {
        let first = *seen.entry(row).or_insert(owner);
        (first != owner).then_some((first, owner))
    });
    let (first, again) = both.next()?;
    Some((&sources[first].name, &sources[again].name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn dense(data: &[f32]) -> Samples {
        Samples::all(Arc::new(Inputs::Dense {
            shape: vec![2],
            data: data.to_vec(),
        }))
    }

    #[test]
    fn a_row_is_the_same_however_it_is_stored() {
        let image = |data: &[u8], mean: f32| {
            let inputs = Inputs::Bytes {
                shape: [1, 1, 2],
                data: data.to_vec(),
                mean: vec![mean],
                std: vec![0.3],
            };
            Samples::all(Arc::new(inputs))
        };
        let sparse = |starts: &[usize], columns: &[u32], values: &[f32]| {
            let inputs = Inputs::Sparse {
                width: 2,
                starts: starts.to_vec(),
                columns: columns.to_vec(),
                values: values.to_vec(),
            };
            Samples::all(Arc::new(inputs))
        };
        let numbers = dense(&[0.0, 1.0, 3.0, 4.0]);
        let all = [
            image(&[9, 9, 0, 255], 0.0),
            image(&[0, 255, 7, 8], 0.5),
            sparse(&[0, 0, 1], &[1], &[1.0]),
            dense(&[5.0, 5.0, -0.0, 1.0]),
        ];
        for one in &all {
            assert!(share_a_row(&numbers, one) && share_a_row(one, &numbers));
            assert!(!share_a_row(one, &dense(&[1.0, 0.0])), "places count");
            // only what a view shows
            assert!(!share_a_row(&numbers.pick(&[1]), one));
        }
        let (both, turned) = (dense(&[0.0, 1.0, 3.0, 4.0]), dense(&[3.0, 4.0, -0.0, 1.0]));
        let other = sparse(&[0, 1, 3], &[1, 0, 1], &[1.0, 3.0, 4.0]);
        assert_eq!(digest_of_rows(&both), digest_of_rows(&turned));
        assert_eq!(digest_of_rows(&both), digest_of_rows(&other));
        // a row more, a row less, a row twice, another number
        for rows in [
            &[0.0, 1.0][..],
            &[0.0, 1.0, 3.0, 4.0, 3.0, 4.0],
            &[0.0, 1.0, 3.0, 5.0],
        ] {
            assert_ne!(digest_of_rows(&both), digest_of_rows(&dense(rows)));
        }
        assert!(!share_a_row(&numbers, &dense(&[])));
    }

    #[test]
    fn a_row_of_two_sources_is_found_and_one_twice_in_a_source_is_not() {
        let sources = |rows: &[usize]| -> Vec<Source> {
            let name = |(at, rows): (usize, &usize)| Source {
                name: at.to_string(),
                rows: *rows,
            };
            rows.iter().enumerate().map(name).collect()
        };
        let rows = dense(&[1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        assert_eq!(owned_twice(&rows, &sources(&[2, 2])), None);
        assert_eq!(owned_twice(&rows, &sources(&[2, 1, 1])), Some(("1", "2")));
        assert_eq!(owned_twice(&rows, &sources(&[1, 3])), Some(("0", "1")));
    }
}
