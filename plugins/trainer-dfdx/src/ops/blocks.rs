//! Large products of matrices, tile by tile.

use super::product::{Matrix, matrix};
use crate::buffer::Buffer;
use crate::simd::{LANES, Machine, Strip, Sweep, copy_row};
use std::ops::Range;

/// A product whose sums are [`Order::Blocks`](super::Order::Blocks).
///
/// A tile has some rows of one matrix, whose numbers lie side by side, and a panel of columns of the
/// other, copied so that the columns lie side by side. Each number is a chain of its own, so either
/// matrix may give the panels: the tile of `b^T a^T` is that of `a b`, turned.
pub(super) struct Blocks<'a> {
    size: [usize; 3],
    block: usize,
    rows: Matrix<'a>,
    columns: Matrix<'a>,
    out: &'a mut [f32],
    /// Step from one row to the next, and from one column.
    to: [usize; 2],
    add: bool,
}

/// Rows of a tile.
const TALL: usize = 6;
/// Vectors of a panel that fit a first-level cache.
const PART: usize = 384;
/// Rows whose unfinished chains leave room for a panel in a cache.
const MANY: usize = 1024;
/// Numbers of rows that a second-level cache holds beside a panel.
const ROWS: usize = 128 * 1024;
/// Numbers of panels that are kept for further rows.
const PANELS: usize = 1024 * 1024;
/// Columns of the widest tile: four vectors of sixteen.
const WIDEST_TILE: usize = 64;

impl<'a> Blocks<'a> {
    /// Plans `out = a b`, or `out += a b`, in blocks of this many products.
    pub fn new(
        [m, k, n]: [usize; 3],
        block: usize,
        a: Matrix<'a>,
        b: Matrix<'a>,
        out: &'a mut [f32],
        add: bool,
    ) -> Self {
        // numbers that are copied one by one; vectors are copied sixteen times as fast
        let alone = |step: usize, numbers: usize| if step == 1 { numbers / 16 } else { numbers };
        let turn = |numbers: usize, step: usize| if step == 1 { 0 } else { numbers };
        let straight = alone(b.by_column, k * n) + turn(m * k, a.by_column);
        let turned = alone(a.by_row, m * k) + turn(k * n, b.by_row) + m * n;
        let (block, turned) = (block.min(k), turned < straight);
        let (size, rows, columns, to) = match turned {
            false => ([m, k, n], a, b, [n, 1]),
            true => ([n, k, m], b.transposed(), a.transposed(), [1, n]),
        };
        Self {
            size,
            block,
            rows,
            columns,
            out,
            to,
            add,
        }
    }

    /// Computes the columns from `first` on, which `V` vectors hold, of some rows. The first rows
    /// write the panel.
    #[inline(always)]
    fn panel<S: Strip, const V: usize>(
        &mut self,
        strip: S,
        rows: &Matrix<'_>,
        here: Range<usize>,
        panel: &mut [f32],
        first: usize,
        chains: &mut [f32],
    ) {
        let ([_, k, n], wide) = (self.size, V * S::WIDTH);
        let columns = first..n.min(first + wide);
        let panel = &mut panel[..k * wide];
        if here.start == 0 {
            pack(panel, wide, &columns, &self.columns);
        }
        // a part of a block at a time, whose panel fits a first-level cache; the chains go on
        // (measured: vectors of eight gain nothing by parts)
        let parts = S::WIDTH > LANES;
        let part = if parts { PART / V } else { self.block };
        for block in (0..k).step_by(self.block) {
            let block_end = k.min(block + self.block);
            for from in (block..block_end).step_by(part) {
                let numbers = from..block_end.min(from + part);
                let panel = &panel[numbers.start * wide..numbers.end * wide];
                let chains = chains.chunks_exact_mut(TALL * wide);
                for (row, chains) in here.clone().step_by(TALL).zip(chains) {
                    let here = row..here.end.min(row + TALL);
                    let mut sums = [[strip.splat(0.0); V]; TALL];
                    if from > block {
                        for r in 0..TALL {
                            for v in 0..V {
                                sums[r][v] = strip.load(&chains[(r * V + v) * S::WIDTH..]);
                            }
                        }
                    }
                    sums = tile(strip, sums, rows, &here, &numbers, panel);
                    match numbers.end < block_end {
                        true => write(strip, &sums, chains),
                        false => self.finish(strip, &sums, here, &columns, block > 0),
                    }
                }
            }
        }
    }

    /// Writes the sums of a block for some rows and columns, or adds them to those before.
    #[inline(always)]
    fn finish<S: Strip, const V: usize>(
        &mut self,
        strip: S,
        sums: &[[S::Vector; V]; TALL],
        rows: Range<usize>,
        columns: &Range<usize>,
        follows: bool,
    ) {
        let ([by_row, by_column], add) = (self.to, self.add || follows);
        if by_column == 1 && columns.len() == V * S::WIDTH {
            for (row, sums) in rows.zip(sums) {
                let to = &mut self.out[row * by_row..][columns.clone()];
                for (to, sum) in to.chunks_exact_mut(S::WIDTH).zip(sums) {
                    let sum = match add {
                        true => strip.add_each(strip.load(to), *sum),
                        false => *sum,
                    };
                    strip.store(sum, to);
                }
            }
            return;
        }
        let mut lines = [0.0; TALL * WIDEST_TILE];
        write(strip, sums, &mut lines);
        for (c, column) in columns.clone().enumerate() {
            let to = &mut self.out[rows.start * by_row + column * by_column..];
            let to = to.iter_mut().step_by(by_row);
            let numbers = lines[c..].iter().step_by(V * S::WIDTH).take(rows.len());
            match add {
                true => to.zip(numbers).for_each(|(to, x)| *to += x),
                false => to.zip(numbers).for_each(|(to, x)| *to = *x),
            }
        }
    }
}

/// Writes the vectors one after another.
#[inline(always)]
fn write<S: Strip, const V: usize>(strip: S, sums: &[[S::Vector; V]; TALL], to: &mut [f32]) {
    for r in 0..TALL {
        for v in 0..V {
            strip.store(sums[r][v], &mut to[(r * V + v) * S::WIDTH..]);
        }
    }
}

/// Returns `sums`, continued by these numbers of some rows and of a panel.
#[inline(always)]
fn tile<S: Strip, const V: usize>(
    strip: S,
    mut sums: [[S::Vector; V]; TALL],
    rows: &Matrix<'_>,
    here: &Range<usize>,
    numbers: &Range<usize>,
    panel: &[f32],
) -> [[S::Vector; V]; TALL] {
    // a tile of fewer rows computes its last one several times
    let lines: [&[f32]; TALL] = std::array::from_fn(|r| {
        &rows.values[(here.start + r.min(here.len() - 1)) * rows.by_row..][numbers.clone()]
    });
    if here.len() > 2 {
        return sums_of_tile(strip, sums, lines, panel);
    }
    let few = sums_of_tile(strip, [sums[0], sums[1]], [lines[0], lines[1]], panel);
    sums[..2].copy_from_slice(&few);
    sums
}

impl Sweep for Blocks<'_> {
    #[inline(always)]
    fn sweep<E: Machine, W: Strip>(mut self, _: E, widest: W) {
        let [m, k, n] = self.size;
        let turned;
        let rows = match self.rows.by_column {
            1 => self.rows,
            _ => {
                turned = turn(m, k, &self.rows);
                matrix(&turned, k)
            }
        };
        let many = W::SUMS >= 4 * TALL;
        let wide = W::WIDTH * if many { 4 } else { 2 };
        // some rows at a time, which stay in a cache while all panels of a group pass
        let tall = (ROWS / k).clamp(1, MANY).next_multiple_of(TALL).min(m);
        let group = match tall < m {
            true => (PANELS / (k * wide)).max(1) * wide,
            false => wide,
        };
        let group = group.min(n.next_multiple_of(W::WIDTH));
        let mut chains = Buffer::any(tall.next_multiple_of(TALL) * wide);
        let mut panels = Buffer::any(k * group + LINE);
        // no vector of a panel lies on two lines of a cache
        let start = panels.as_ptr().align_offset(size_of::<[f32; LINE]>());
        let panels = &mut panels[start.min(LINE)..];
        for first in (0..n).step_by(group) {
            let end = n.min(first + group);
            for row in (0..m).step_by(tall) {
                let here = row..m.min(row + tall);
                let mut at = first;
                while at < end {
                    let panel = &mut panels[(at - first) * k..];
                    let (rows, here, chains) = (&rows, here.clone(), &mut chains[..]);
                    at += W::WIDTH
                        * match (end - at).div_ceil(W::WIDTH) {
                            4.. if many => {
                                self.panel::<W, 4>(widest, rows, here, panel, at, chains);
                                4
                            }
                            2.. => {
                                self.panel::<W, 2>(widest, rows, here, panel, at, chains);
                                2
                            }
                            _ => {
                                self.panel::<W, 1>(widest, rows, here, panel, at, chains);
                                1
                            }
                        };
                }
            }
        }
    }
}

/// Numbers that are copied together when rows become columns: a line of a cache.
const LINE: usize = 16;

/// Copies some columns: number by number, the columns side by side, and zeros up to `wide`.
#[inline(always)]
fn pack(to: &mut [f32], wide: usize, columns: &Range<usize>, from: &Matrix<'_>) {
    let values = &from.values[columns.start * from.by_column..];
    let columns = columns.len();
    if from.by_column == 1 {
        for (at, to) in to.chunks_exact_mut(wide).enumerate() {
            let row = &values[at * from.by_row..][..columns];
            let (to, rest) = to.split_at_mut(columns);
            copy_row(to, row);
            rest.iter_mut().for_each(|to| *to = 0.0);
        }
        return;
    }
    for (block, to) in to.chunks_mut(LINE * wide).enumerate() {
        for c in 0..wide {
            let to = to[c..].iter_mut().step_by(wide);
            match c < columns {
                true => {
                    let column = &values[c * from.by_column + block * LINE * from.by_row..];
                    let column = column.iter().step_by(from.by_row);
                    to.zip(column).for_each(|(to, x)| *to = *x);
                }
                false => to.for_each(|to| *to = 0.0),
            }
        }
    }
}

/// Returns a matrix of `m x k` row by row.
#[inline(always)]
fn turn(m: usize, k: usize, from: &Matrix<'_>) -> Buffer {
    let mut all = Buffer::any(m * k);
    for (block, to) in all.chunks_mut(LINE * k).enumerate() {
        let count = to.len() / k;
        for at in 0..k {
            let column = &from.values[block * LINE * from.by_row + at * from.by_column..];
            let column = column.iter().step_by(from.by_row).take(count);
            let to = to[at..].iter_mut().step_by(k);
            to.zip(column).for_each(|(to, x)| *to = *x);
        }
    }
    all
}

/// Returns the sums of some rows and a panel of `V` vectors of columns.
#[inline(always)]
fn sums_of_tile<S: Strip, const R: usize, const V: usize>(
    strip: S,
    mut sums: [[S::Vector; V]; R],
    rows: [&[f32]; R],
    panel: &[f32],
) -> [[S::Vector; V]; R] {
    let columns = panel.chunks_exact(V * S::WIDTH);
    for (at, y) in columns.enumerate().take(rows[0].len()) {
        let y: [S::Vector; V] = std::array::from_fn(
            #[inline(always)]
            |v| strip.load(&y[v * S::WIDTH..]),
        );
        for r in 0..R {
            let x = strip.splat(rows[r][at]);
            for v in 0..V {
                sums[r][v] = strip.fused_each(x, y[v], sums[r][v]);
            }
        }
    }
    sums
}
