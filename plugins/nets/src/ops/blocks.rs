//! Large products of matrices, tile by tile.

use super::matrix::{Matrix, matrix};
use crate::buffer::Buffer;
use crate::optim::Descent;
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
    /// If the product is a gradient: how the weights follow it, which are then the result.
    descent: Option<(Descent, &'a [f32])>,
}

/// Rows of a tile.
const TALL: usize = 6;
/// Rows of a tile of one vector: as many as there are registers for their addresses.
const TALLEST: usize = 10;
/// Vectors of a panel that fit a first-level cache.
const PART: usize = 384;
/// Rows whose unfinished chains leave room for a panel in a cache.
const MANY: usize = 1024;
/// Numbers of rows that a second-level cache holds beside a panel.
const ROWS: usize = 128 * 1024;
/// Numbers of panels that are kept for further rows.
const PANELS: usize = 1024 * 1024;
/// Numbers of the largest tile: six rows of four vectors of sixteen.
const LARGEST_TILE: usize = TALL * 64;
/// Numbers of a row or column of factors up to which all panels are packed before the first tile.
const SHORT: usize = 32;

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
        let (size, rows, columns, to) = if !turned {
            ([m, k, n], a, b, [n, 1])
        } else {
            ([n, k, m], b.transposed(), a.transposed(), [1, n])
        };
        Self {
            size,
            block,
            rows,
            columns,
            out,
            to,
            add,
            descent: None,
        }
    }

    /// Returns whether a number is finished where it is first written, row by row.
    pub fn can_descend(&self) -> bool {
        self.size[1] <= self.block && !self.add && self.to[1] == 1
    }

    /// Computes `weights` after `descent` by the product, in place of the product.
    pub fn descending(self, descent: Descent, weights: &'a [f32]) -> Self {
        Self {
            descent: Some((descent, weights)),
            ..self
        }
    }

    /// Returns the number of vectors of the panel that begins at column `first`.
    #[inline(always)]
    fn vectors<S: Strip>(&self, first: usize) -> usize {
        match (self.size[2] - first).div_ceil(S::WIDTH) {
            4.. if S::SUMS >= 4 * TALL => 4,
            2.. => 2,
            _ => 1,
        }
    }

    /// Computes the tile of packed rows and a packed panel, whose chains are whole.
    #[inline(always)]
    fn short_tile<S: Strip, const V: usize>(
        &mut self,
        strip: S,
        (rows, lines): (Range<usize>, &[f32]),
        (columns, panel): (Range<usize>, &[f32]),
    ) {
        let sums = sums_of_lines::<S, TALL, V>(strip, lines, panel);
        self.finish(strip, &sums, rows, &columns, false);
    }

    /// Computes all of a product of few numbers for each sum: such a product reads and writes more
    /// than it computes, so it goes along its rows, which are long. It begins at the last: the next
    /// pass over them, as over the weights of a layer, begins at the first, which the caches then
    /// still hold.
    #[inline(always)]
    fn short<S: Strip>(&mut self, strip: S) {
        let [m, k, n] = self.size;
        let mut lines = Buffer::filled(k * m.next_multiple_of(TALL), 0.0);
        for (tile, lines) in lines.chunks_exact_mut(k * TALL).enumerate() {
            let first = tile * TALL;
            for (at, to) in lines.chunks_exact_mut(TALL).enumerate() {
                for (to, row) in to.iter_mut().zip(first..m.min(first + TALL)) {
                    *to = self.rows.at(row, at);
                }
            }
        }
        let mut packed = Buffer::any(k * n.next_multiple_of(S::WIDTH));
        let mut first = 0;
        while first < n {
            let wide = self.vectors::<S>(first) * S::WIDTH;
            let columns = first..n.min(first + wide);
            pack(
                &mut packed[k * first..][..k * wide],
                wide,
                &columns,
                &self.columns,
            );
            first += wide;
        }
        for (tile, lines) in lines.chunks_exact(k * TALL).enumerate().rev() {
            let rows = tile * TALL..m.min((tile + 1) * TALL);
            let mut first = 0;
            while first < n {
                let vectors = self.vectors::<S>(first);
                let wide = vectors * S::WIDTH;
                let columns = first..n.min(first + wide);
                let panel = (columns, &packed[k * first..][..k * wide]);
                let lines = (rows.clone(), lines);
                match vectors {
                    4 => self.short_tile::<S, 4>(strip, lines, panel),
                    2 => self.short_tile::<S, 2>(strip, lines, panel),
                    _ => self.short_tile::<S, 1>(strip, lines, panel),
                }
                first += wide;
            }
        }
    }

    /// Computes the columns from `first` on, which `V` vectors hold, of some rows. The first rows
    /// write the panel.
    #[inline(always)]
    fn panel<S: Strip, const V: usize, const R: usize>(
        &mut self,
        strip: S,
        (rows, here): (&Matrix<'_>, Range<usize>),
        (first, panel): (usize, &mut [f32]),
        chains: &mut [f32],
    ) {
        let ([_, k, n], wide) = (self.size, V * S::WIDTH);
        let columns = first..n.min(first + wide);
        if here.start == 0 {
            pack(panel, wide, &columns, &self.columns);
        }
        // a part of a block at a time, whose panel fits a first-level cache; the chains go on
        // (measured: vectors of eight gain nothing by parts, nor do panels of one vector)
        let parts = S::WIDTH > LANES && V > 1;
        let part = if parts { PART / V } else { self.block };
        for block in (0..k).step_by(self.block) {
            let block_end = k.min(block + self.block);
            for from in (block..block_end).step_by(part) {
                let numbers = from..block_end.min(from + part);
                let panel = &panel[numbers.start * wide..numbers.end * wide];
                for (tile_at, row) in here.clone().step_by(R).enumerate() {
                    let here = row..here.end.min(row + R);
                    let mut sums = [[strip.splat(0.0); V]; R];
                    let chains = chains.chunks_exact_mut(R * wide).nth(tile_at);
                    if let Some(chains) = chains.as_deref().filter(|_| from > block) {
                        for r in 0..R {
                            for v in 0..V {
                                sums[r][v] = strip.load(&chains[(r * V + v) * S::WIDTH..]);
                            }
                        }
                    }
                    sums = tile(strip, sums, rows, &here, &numbers, panel);
                    match chains.filter(|_| numbers.end < block_end) {
                        Some(chains) => write(strip, &sums, chains),
                        None => self.finish(strip, &sums, here, &columns, block > 0),
                    }
                }
            }
        }
    }

    /// Writes the sums of a block for some rows and columns, or adds them to those before.
    #[inline(always)]
    fn finish<S: Strip, const V: usize, const R: usize>(
        &mut self,
        strip: S,
        sums: &[[S::Vector; V]; R],
        rows: Range<usize>,
        columns: &Range<usize>,
        follows: bool,
    ) {
        let ([by_row, by_column], add) = (self.to, self.add || follows);
        if by_column == 1 && columns.len() == V * S::WIDTH {
            // counted by constants, so that the sums stay in registers
            for (r, sums) in sums.iter().enumerate() {
                if r == rows.len() {
                    return;
                }
                let at = (rows.start + r) * by_row + columns.start;
                let to = &mut self.out[at..][..V * S::WIDTH];
                for (v, sum) in sums.iter().enumerate() {
                    let to = &mut to[v * S::WIDTH..][..S::WIDTH];
                    let sum = match (self.descent, add) {
                        (Some((descent, weights)), _) => {
                            let weights = strip.load(&weights[at + v * S::WIDTH..]);
                            descent.next_each(strip, weights, *sum)
                        }
                        (None, true) => strip.add_each(strip.load(to), *sum),
                        (None, false) => *sum,
                    };
                    strip.store(sum, to);
                }
            }
            return;
        }
        let mut lines = [0.0; LARGEST_TILE];
        write(strip, sums, &mut lines);
        for (c, column) in columns.clone().enumerate() {
            let to = &mut self.out[rows.start * by_row + column * by_column..];
            let to = to.iter_mut().step_by(by_row);
            let numbers = lines[c..].iter().step_by(V * S::WIDTH).take(rows.len());
            match (self.descent, add) {
                (Some((descent, weights)), _) => {
                    let weights = weights[rows.start * by_row + column * by_column..].iter();
                    let both = to.zip(numbers).zip(weights.step_by(by_row));
                    both.for_each(|((to, x), w)| *to = descent.next(*w, *x));
                }
                (None, true) => to.zip(numbers).for_each(|(to, x)| *to += x),
                (None, false) => to.zip(numbers).for_each(|(to, x)| *to = *x),
            }
        }
    }
}

/// Writes the vectors one after another.
#[inline(always)]
fn write<S: Strip, const V: usize, const R: usize>(
    strip: S,
    sums: &[[S::Vector; V]; R],
    to: &mut [f32],
) {
    for r in 0..R {
        for v in 0..V {
            strip.store(sums[r][v], &mut to[(r * V + v) * S::WIDTH..]);
        }
    }
}

/// Returns `sums`, continued by these numbers of some rows and of a panel.
#[inline(always)]
fn tile<S: Strip, const V: usize, const R: usize>(
    strip: S,
    mut sums: [[S::Vector; V]; R],
    rows: &Matrix<'_>,
    here: &Range<usize>,
    numbers: &Range<usize>,
    panel: &[f32],
) -> [[S::Vector; V]; R] {
    // a tile of fewer rows computes its last one several times
    let lines: [&[f32]; R] = std::array::from_fn(|r| {
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
        if k <= SHORT.min(self.block) {
            return self.short(widest);
        }
        let turned;
        let rows = match self.rows.by_column {
            1 => self.rows,
            _ => {
                turned = turn(m, k, &self.rows);
                matrix(&turned, k)
            }
        };
        let wide = self.vectors::<W>(0) * W::WIDTH;
        // some rows at a time, which stay in a cache while all panels of a group pass
        let tall = (ROWS / k).clamp(1, MANY).next_multiple_of(TALL * TALLEST);
        let tall = tall.min(m);
        let group = if tall < m {
            (PANELS / (k * wide)).max(1) * wide
        } else {
            wide
        };
        let group = group.min(n.next_multiple_of(W::WIDTH));
        let mut chains = Buffer::any(tall.next_multiple_of(TALL) * wide);
        let mut panels = Buffer::any(k * group + LINE);
        // no vector of a panel lies on two lines of a cache
        let start = panels.as_ptr().align_offset(size_of::<[f32; LINE]>());
        let panels = &mut panels[start.min(LINE)..];
        for start in (0..n).step_by(group) {
            for row in (0..m).step_by(tall) {
                let here = row..m.min(row + tall);
                let mut first = start;
                while first < n.min(start + group) {
                    let (vectors, rows) = (self.vectors::<W>(first), (&rows, here.clone()));
                    let panel = &mut panels[(first - start) * k..][..k * vectors * W::WIDTH];
                    let panel = (first, panel);
                    match vectors {
                        4 => self.panel::<W, 4, TALL>(widest, rows, panel, &mut chains),
                        2 => self.panel::<W, 2, TALL>(widest, rows, panel, &mut chains),
                        _ => self.panel::<W, 1, TALLEST>(widest, rows, panel, &mut chains),
                    }
                    first += vectors * W::WIDTH;
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
    if columns < wide {
        to.fill(0.0);
    }
    for (block, to) in to.chunks_mut(LINE * wide).enumerate() {
        for c in 0..columns {
            let to = to[c..].iter_mut().step_by(wide);
            let column = &values[c * from.by_column + block * LINE * from.by_row..];
            let column = column.iter().step_by(from.by_row);
            to.zip(column).for_each(|(to, x)| *to = *x);
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

/// Numbers of a row that are read together if a panel is one vector: checks of their bounds would
/// take half as long as the products.
const TOGETHER: usize = 8;

/// Returns the sums of some rows and a panel of `V` vectors of columns.
#[inline(always)]
fn sums_of_tile<S: Strip, const R: usize, const V: usize>(
    strip: S,
    mut sums: [[S::Vector; V]; R],
    rows: [&[f32]; R],
    panel: &[f32],
) -> [[S::Vector; V]; R] {
    let (wide, mut from) = (V * S::WIDTH, 0);
    if V == 1 {
        let together = rows.map(
            #[inline(always)]
            |row| row.as_chunks::<TOGETHER>().0,
        );
        let columns = panel.chunks_exact(TOGETHER * wide);
        for (at, columns) in columns.enumerate().take(together[0].len()) {
            let numbers: [&[f32; TOGETHER]; R] = std::array::from_fn(
                #[inline(always)]
                |r| &together[r][at],
            );
            for (at, y) in columns.chunks_exact(wide).enumerate() {
                let numbers = numbers.map(
                    #[inline(always)]
                    |row| row[at],
                );
                add_products(strip, &mut sums, numbers, y);
            }
        }
        from = together[0].len() * TOGETHER;
    }
    let columns = panel[from * wide..].chunks_exact(wide);
    for (at, y) in (from..rows[0].len()).zip(columns) {
        let numbers = rows.map(
            #[inline(always)]
            |row| row[at],
        );
        add_products(strip, &mut sums, numbers, y);
    }
    sums
}

/// Returns the sums of packed rows and a panel of `V` vectors of columns.
#[inline(always)]
fn sums_of_lines<S: Strip, const R: usize, const V: usize>(
    strip: S,
    lines: &[f32],
    panel: &[f32],
) -> [[S::Vector; V]; R] {
    let mut sums = [[strip.splat(0.0); V]; R];
    let lines = lines.as_chunks::<R>().0.iter();
    for (numbers, y) in lines.zip(panel.chunks_exact(V * S::WIDTH)) {
        add_products(strip, &mut sums, *numbers, y);
    }
    sums
}

/// Adds the products of one number of each row and one line of a panel.
#[inline(always)]
fn add_products<S: Strip, const R: usize, const V: usize>(
    strip: S,
    sums: &mut [[S::Vector; V]; R],
    numbers: [f32; R],
    panel: &[f32],
) {
    let y: [S::Vector; V] = std::array::from_fn(
        #[inline(always)]
        |v| strip.load(&panel[v * S::WIDTH..]),
    );
    for r in 0..R {
        let x = strip.splat(numbers[r]);
        for v in 0..V {
            sums[r][v] = strip.fused_each(x, y[v], sums[r][v]);
        }
    }
}
