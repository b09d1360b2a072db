//! Rows that stand in two places, whatever the files are called and however they are written.

use fl_core::{Inputs, Samples};
use fl_data_kit::dataset::Source;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The hash of a row.
pub type RowHash = [u8; 32];

/// Calls `add` with each number of a row that is not 0, and its place: 32 bits each. Labels and the
/// scale of bytes do not count. `room` is for the numbers.
fn numbers(inputs: &Inputs, row: usize, room: &mut Vec<f32>, mut add: impl FnMut(u64)) {
    let mut add = |at: usize, value: f32| {
        if value != 0.0 {
            add((at as u64) << 32 | u64::from(value.to_bits()));
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

/// The hash of each row, in order. It is fast, and not one that is safe against a forger.
pub(crate) fn hashes(samples: &Samples) -> impl Iterator<Item = u64> + '_ {
    let mut room = Vec::new();
    let ids = samples.ids().iter();
    ids.map(move |id| {
        let mut hash = 0x243f_6a88_85a3_08d3_u64;
        numbers(samples.inputs(), *id as usize, &mut room, |number| {
            let wide = u128::from(hash.rotate_left(29) ^ number) * 0x9e37_79b9_7f4a_7c15;
            hash = (wide as u64) ^ (wide >> 64) as u64;
        });
        hash
    })
}

/// The SHA-256 of each row as it was decoded, in order: rows of files with another name, packing or
/// format have the same.
pub fn row_hashes(samples: &Samples) -> Vec<RowHash> {
    let (mut room, mut bytes) = (Vec::new(), Vec::new());
    let ids = samples.ids().iter();
    ids.map(|id| {
        // all of a row at once: a hasher takes longer for many small pieces
        bytes.clear();
        numbers(samples.inputs(), *id as usize, &mut room, |number| {
            bytes.extend(number.to_le_bytes());
        });
        Sha256::digest(&bytes).into()
    })
    .collect()
}

/// The SHA-256 of rows by their hashes, in any order.
pub fn digest_of_rows(mut rows: Vec<RowHash>) -> [u8; 32] {
    rows.sort_unstable();
    let all = rows
        .iter()
        .fold(Sha256::new(), |all, row| all.chain_update(row));
    all.finalize().into()
}

/// How many rows of `rows` are rows of `others` too.
pub fn shared_rows(rows: &Samples, others: &Samples) -> usize {
    RowSet::of(hashes(others)).count(hashes(rows))
}

/// Rows by their hashes, in order.
#[derive(Clone, Debug)]
pub(crate) struct RowSet(Vec<u64>);

impl RowSet {
    pub(crate) fn of(rows: impl Iterator<Item = u64>) -> Self {
        let mut rows: Vec<u64> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        Self(rows)
    }

    /// How many of `rows` are in the set.
    pub(crate) fn count(&self, rows: impl Iterator<Item = u64>) -> usize {
        rows.filter(|row| self.0.binary_search(row).is_ok()).count()
    }
}

/// Says which rows stand in two places, by the hashes of the test and the public rows and of the
/// clients' own, each with its source; `None` if none do. `twice` is what [`owned_twice`] says.
pub(crate) fn overlaps(
    (own, sources): (&[u64], &[usize]),
    tested: &[u64],
    public: &[u64],
    twice: Option<&String>,
) -> Option<String> {
    let [of_own, of_tests] = [own, tested].map(|rows| RowSet::of(rows.iter().copied()));
    let count = |rows: &[u64], what: &str, of: &RowSet, others: &str| {
        let shared = of.count(rows.iter().copied());
        (shared > 0).then(|| format!("{shared} of {} {what} rows are {others} too", rows.len()))
    };
    let all = [
        count(tested, "test", &of_own, "rows of the clients"),
        count(public, "public", &of_own, "rows of the clients"),
        count(public, "public", &of_tests, "test rows"),
    ];
    let mut all: Vec<String> = all.into_iter().flatten().collect();
    all.extend(twice.cloned());
    let mut once: Vec<(u64, usize)> = own.iter().copied().zip(sources.iter().copied()).collect();
    once.sort_unstable();
    once.dedup();
    let (rows, repeated) = (own.len(), own.len() - once.len());
    if !all.is_empty() && 10 * repeated > rows {
        all.push(format!(
            "{repeated} of the clients' {rows} rows repeat another, so rows may be equal by chance"
        ));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// Says which rows are in two of these sources, by the hashes of all rows; `None` if none are.
pub(crate) fn owned_twice(rows: &[u64], sources: &[Source]) -> Option<String> {
    if sources.len() < 2 {
        return None;
    }
    let owners = sources
        .iter()
        .enumerate()
        .flat_map(|(at, source)| std::iter::repeat_n(at, source.rows));
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let mut pairs: HashMap<(usize, usize), usize> = HashMap::new();
    for (row, owner) in rows.iter().zip(owners) {
        let first = *seen.entry(*row).or_insert(owner);
        if first != owner {
            *pairs.entry((first, owner)).or_default() += 1;
        }
    }
    let ((first, again), shared) = pairs.iter().min()?;
    let [first, again] = [first, again].map(|at| &sources[*at].name);
    let all: usize = pairs.values().sum();
    let more = match pairs.len() {
        1 => String::new(),
        _ => format!("; {all} rows in all are of more than one client"),
    };
    let rows = match shared {
        1 => format!("1 row of {again} is a row"),
        _ => format!("{shared} rows of {again} are rows"),
    };
    Some(format!("{rows} of {first} as well{more}"))
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
            assert!(shared_rows(&numbers, one) == 1 && shared_rows(one, &numbers) == 1);
            assert_eq!(shared_rows(one, &dense(&[1.0, 0.0])), 0, "places count");
            // only what a view shows
            assert_eq!(shared_rows(&numbers.pick(&[1]), one), 0);
        }
        let (both, turned) = (dense(&[0.0, 1.0, 3.0, 4.0]), dense(&[3.0, 4.0, -0.0, 1.0]));
        let other = sparse(&[0, 1, 3], &[1, 0, 1], &[1.0, 3.0, 4.0]);
        let digest = |rows: &Samples| digest_of_rows(row_hashes(rows));
        assert_eq!(digest(&both), digest(&turned));
        assert_eq!(digest(&both), digest(&other));
        // a row more, a row less, a row twice, another number
        for rows in [
            &[0.0, 1.0][..],
            &[0.0, 1.0, 3.0, 4.0, 3.0, 4.0],
            &[0.0, 1.0, 3.0, 5.0],
        ] {
            assert_ne!(digest(&both), digest(&dense(rows)));
        }
        assert_eq!(shared_rows(&numbers, &dense(&[])), 0);
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
        let rows: Vec<u64> = hashes(&rows).collect();
        let twice = |of: &[usize]| owned_twice(&rows, &sources(of)).unwrap_or_default();
        assert_eq!(twice(&[2, 2]), "");
        assert_eq!(twice(&[2, 1, 1]), "1 row of 2 is a row of 1 as well");
        assert_eq!(twice(&[1, 3]), "1 row of 1 is a row of 0 as well");
        assert_eq!(
            twice(&[1, 1, 1, 1]),
            "1 row of 1 is a row of 0 as well; 2 rows in all are of more than one client"
        );
    }

    #[test]
    fn rows_in_two_places_are_counted_and_chance_is_named() {
        let own = (&[1, 2, 3][..], &[0; 3][..]);
        assert_eq!(overlaps(own, &[4, 5], &[6], None), None);
        assert_eq!(
            overlaps(own, &[3, 3, 5], &[5, 2], None).unwrap(),
            "2 of 3 test rows are rows of the clients too; 1 of 2 public rows are rows of the clients too; \
             1 of 2 public rows are test rows too"
        );
        let discrete = (&[1, 1, 2, 2][..], &[0; 4][..]);
        let said = overlaps(discrete, &[1], &[], None).unwrap();
        assert!(
            said.ends_with(
                "2 of the clients' 4 rows repeat another, so rows may be equal by chance"
            )
        );
        // a file and its copy are no chance
        let copies = (&[1, 2, 1, 2][..], &[0, 0, 1, 1][..]);
        let twice = String::from("all are");
        assert_eq!(
            overlaps(copies, &[1], &[], Some(&twice)).unwrap(),
            "1 of 1 test rows are rows of the clients too; all are"
        );
    }
}
