//! Sentences as numbers: hashed bags of words, or words in their order.
//!
//! A word is a run of letters and digits in lower case; its column is its FNV-1a hash (64 bits)
//! modulo the width. So there is no vocabulary that would have to be learnt from private text, and
//! different words may share a column.

use fl_core::Inputs;

/// Values in a row unless a spec says otherwise.
pub const WIDTH: usize = 2048;

/// More than this is a slip of the pen, and the number of a word would not be exact as `f32`.
pub const MAX_WIDTH: usize = 16_777_216;

/// More words of a text than this are a slip of the pen.
pub const MAX_WORDS: usize = 4096;

/// One row per text: its first `words` words as [`sequences`] has them, or without `words` all of
/// them as [`bags`].
pub fn rows<'a>(
    texts: impl Iterator<Item = &'a str>,
    width: usize,
    words: Option<usize>,
) -> Inputs {
    match words {
        None => bags(texts, width),
        Some(words) => sequences(texts, width, words),
    }
}

/// One row of `words` numbers per text: its first words in their order, each 1 and its column, so
/// from 1 to `width`; then zeros, where there is no word.
pub fn sequences<'a>(texts: impl Iterator<Item = &'a str>, width: usize, words: usize) -> Inputs {
    let mut data = Vec::new();
    for text in texts {
        let end = data.len() + words;
        data.extend(sequence(text, width).take(words));
        data.resize(end, 0.0);
    }
    Inputs::Dense {
        shape: vec![words],
        data,
    }
}

/// The number of each word: 1 and its column, from 1 to `width` (at least 1).
pub fn sequence(text: &str, width: usize) -> impl Iterator<Item = f32> {
    columns(text, width).map(|column| (column + 1) as f32)
}

/// One row per text: how often each word occurs, scaled to length 1. A text without words is a row
/// of zeros.
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
    let mut hashes: Vec<u32> = columns(text, width).collect();
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

/// The column of each word, in the order of the text.
fn columns(text: &str, width: usize) -> impl Iterator<Item = u32> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(move |word| (fnv1a(word) % width.max(1) as u64) as u32)
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

    /// The same hash as in a bag, and 0 for nothing only.
    #[test]
    fn words_keep_their_order_and_what_is_missing_is_0() {
        let texts = ["The cat, the CAT sat!", "", "cat"];
        let width = 1 << 20;
        let [the, cat, sat] = ["the", "cat", "sat"].map(|word| {
            let column = bag(word, width).next().unwrap().0;
            (column + 1) as f32
        });
        let Inputs::Dense { shape, data } = rows(texts.into_iter(), width, Some(4)) else {
            panic!("sequences are dense")
        };
        assert_eq!(shape, [4]);
        assert_eq!(data[..4], [the, cat, the, cat]);
        assert_eq!(data[4..], [0.0, 0.0, 0.0, 0.0, cat, 0.0, 0.0, 0.0]);
        assert!(sequence(texts[0], width).last() == Some(sat));
        assert!(sequence("a b c", 1).all(|number| number == 1.0));
        assert_eq!((MAX_WIDTH as f32) as usize, MAX_WIDTH);
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
