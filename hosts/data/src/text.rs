//! Sentences as numbers: hashed bags of words.

use fl_core::Inputs;

/// Values in a row unless a spec says otherwise.
pub const WIDTH: usize = 2048;

/// More than this is a slip of the pen.
pub const MAX_WIDTH: usize = 16_777_216;

/// One row per text: how often each word occurs, scaled to length 1. A text without words is a row of zeros.
///
/// A word is a run of letters and digits in lower case; its column is its FNV-1a hash (64 bits) modulo the width.
pub fn bags<'a>(texts: impl Iterator<Item = &'a str>, width: usize) -> Inputs {
    let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
    for text in texts {
        for (column, value) in bag(text, width) {
            columns.push(column);
            values.push(value);
        }
        starts.push(columns.len());
    }
    Inputs::Sparse {
        width,
        starts,
        columns,
        values,
    }
}

/// One row of [`bags`]: columns below `width` (at least 1), ascending, and their values.
pub fn bag(text: &str, width: usize) -> impl Iterator<Item = (u32, f32)> {
    let mut hashes: Vec<u32> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| (fnv1a(word) % width.max(1) as u64) as u32)
        .collect();
    hashes.sort_unstable();
    let counts: Vec<(u32, f32)> = hashes
        .chunk_by(|a, b| a == b)
        .map(|c| (c[0], c.len() as f32))
        .collect();
    let length = counts.iter().map(|(_, n)| n * n).sum::<f32>().sqrt();
    counts
        .into_iter()
        .map(move |(column, n)| (column, n / length))
}

fn fnv1a(word: &str) -> u64 {
    let lower = word.chars().flat_map(char::to_lowercase);
    let mut bytes = [0; 4];
    lower.fold(0xcbf2_9ce4_8422_2325, |hash, c| {
        c.encode_utf8(&mut bytes)
            .bytes()
            .fold(hash, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_and_rows_have_length_one() {
        let texts = ["The cat, the CAT!", "", "...", "cat"];
        let got = bags(texts.into_iter(), 1 << 20);
        let Inputs::Sparse {
            starts,
            columns,
            values,
            ..
        } = got
        else {
            panic!("bags are sparse")
        };
        assert_eq!(starts, [0, 2, 2, 2, 3]);
        assert!(columns[0] < columns[1] && columns.contains(&columns[2]));
        assert!(values[..2].iter().all(|v| (v - 0.5f32.sqrt()).abs() < 1e-6));
        assert!((values[2] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn exact_the_hash_is_the_published_one() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("FOOBAR"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn everything_may_share_one_column() {
        let got = bags(["a b c"].into_iter(), 1);
        assert_eq!(
            got,
            Inputs::Sparse {
                width: 1,
                starts: vec![0, 1],
                columns: vec![0],
                values: vec![1.0]
            }
        );
    }
}
