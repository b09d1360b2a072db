//! [`Bits`]: samples whose features have at most one value besides 0, a bit for each.

use crate::model::{Grown, Next};
use fl_core::{Inputs, Samples};

/// Words of a column that lie together: two cache lines.
const WORDS: usize = 16;
/// Rows of a block.
pub const ROWS: usize = WORDS * 64;
/// The most leaves that a byte can name.
pub const LEAVES: usize = 256;
/// Samples of more bits than this are not laid out.
const MOST: usize = 1 << 27;

type Words = [u64; WORDS];

/// A table of two values a column, as one-hot tables are.
pub struct Bits {
    /// Block after block, column after column: which rows have the column's value.
    words: Vec<Words>,
    /// The value of each column besides 0.
    ones: Vec<f32>,
}

impl Bits {
    /// Lays samples out; `None` if they are not sparse, too many, or of more values.
    pub fn new(x: &Samples) -> Option<Self> {
        let Inputs::Sparse {
            width,
            starts,
            columns,
            values,
        } = &**x.inputs()
        else {
            return None;
        };
        let cells = x.len().div_ceil(ROWS).checked_mul(ROWS * width)?;
        if cells > MOST {
            return None;
        }
        let mut words = vec![[0; WORDS]; cells / ROWS];
        // 0 until a row has one
        let mut ones = vec![0.0f32; *width];
        for (chunk, ids) in x.ids().chunks(64).enumerate() {
            x.inputs().preload(ids.iter().map(|id| *id as usize));
            let block = &mut words[chunk / WORDS * width..][..*width];
            for (bit, id) in ids.iter().enumerate() {
                let range = starts[*id as usize]..starts[*id as usize + 1];
                for (column, value) in columns[range.clone()].iter().zip(&values[range]) {
                    let (word, one) = (
                        &mut block[*column as usize][chunk % WORDS],
                        &mut ones[*column as usize],
                    );
                    if *value == 0.0 {
                        *word &= !(1 << bit);
                        continue;
                    }
                    if *one == 0.0 {
                        *one = *value;
                    }
                    if one.to_bits() != value.to_bits() {
                        return None;
                    }
                    *word |= 1 << bit;
                }
            }
        }
        Some(Self { words, ones })
    }

    /// Writes the leaf of each row of a block; `out` is [`ROWS`] long, and what it has beyond the
    /// last row means nothing. The tree has at most [`LEAVES`] leaves.
    pub fn leaves(&self, tree: &Grown, block: usize, out: &mut [u8]) {
        let width = self.ones.len();
        let mut walk = Walk {
            tree,
            bits: self,
            block: &self.words[block * width..(block + 1) * width],
            planes: [[0; WORDS]; 8],
            named: 0,
        };
        if !tree.splits.is_empty() {
            walk.node(Next::split(0), &[u64::MAX; WORDS]);
        }
        let used = (usize::BITS - walk.named.leading_zeros()) as usize;
        for (at, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            // eight rows: a byte of each plane
            let (word, shift) = (at / 8, at % 8 * 8);
            let planes = walk.planes[..used].iter().enumerate();
            let eight = planes.fold(0, |eight, (k, plane)| {
                eight | SPREAD[usize::from((plane[word] >> shift) as u8)] << k
            });
            *out = u64::to_le_bytes(eight);
        }
    }
}

/// Bit `i` of a byte as byte `i`.
const SPREAD: [u64; 256] = {
    let (mut spread, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            spread[byte] |= (byte as u64 >> bit & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    spread
};

/// All rows of a block on their way through a tree.
struct Walk<'a> {
    tree: &'a Grown,
    bits: &'a Bits,
    block: &'a [Words],
    /// The bits of each row's leaf.
    planes: [Words; 8],
    /// The bits that a leaf has.
    named: usize,
}

impl Walk<'_> {
    /// Takes the rows of a node to their leaves.
    fn node(&mut self, next: Next, here: &Words) {
        let at = next.at();
        if next.is_leaf() {
            self.named |= at;
            for (k, plane) in self.planes.iter_mut().enumerate() {
                if at >> k & 1 == 1 {
                    plane.iter_mut().zip(here).for_each(|(p, h)| *p |= h);
                }
            }
            return;
        }
        let split = &self.tree.splits[at];
        let feature = split.feature as usize;
        // do rows with 0, and those with the other value, go right?
        let [zero, one] = [0.0, self.bits.ones[feature]].map(|value| value > split.threshold);
        let (differ, zero) = (mask(zero != one), mask(zero));
        let right = self.block[feature].map(|word| word & differ ^ zero);
        let sides: [Words; 2] =
            [false, true].map(|side| std::array::from_fn(|i| here[i] & (right[i] ^ mask(!side))));
        for (next, rows) in [split.left, split.right].into_iter().zip(&sides) {
            if rows.iter().any(|word| *word != 0) {
                self.node(next, rows);
            }
        }
    }
}

/// Returns 64 times this bit.
fn mask(bit: bool) -> u64 {
    u64::from(bit).wrapping_neg()
}
