//! Products of matrices, whose sums have one order on every processor and card.

use crate::buffer::Buffer;
use crate::simd::{LANES, Machine, Strip, Sweep, Work, run, sweep};

/// A matrix in a slice.
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    by_row: usize,
    by_column: usize,
}

/// Returns a row-major matrix with `by_row` numbers from one row to the next.
pub(super) fn matrix(values: &[f32], by_row: usize) -> Matrix<'_> {
    Matrix {
        values,
        by_row,
        by_column: 1,
    }
}

impl Matrix<'_> {
    pub fn transposed(&self) -> Self {
        Self {
            values: self.values,
            by_row: self.by_column,
            by_column: self.by_row,
        }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.by_row + (columns - 1) * self.by_column < self.values.len()
    }

    fn steps(&self) -> [usize; 2] {
        [self.by_row, self.by_column]
    }

    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> f32 {
        self.values[row * self.by_row + column * self.by_column]
    }
}

/// Returns the number of products of a sum after which another sum begins. (The first digests of fl
/// come from a library that splits the sums of large matrices by the size of this machine's caches,
/// and therefore got no longer ones.)
fn block([m, k, n]: [usize; 3]) -> usize {
    let alike = m.max(n) <= 64 || m.min(n) <= 1;
    let parts = if alike { 1 } else { k.div_ceil(512).max(1) };
    k.div_ceil(parts).max(1)
}

/// The order of summation for one number of a product. A card uses the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Chains of fused multiply-adds from 0, each of this many products; then the sum of the
    /// chains.
    Blocks(usize),
    /// Eight lanes of such chains, folded; each of this many products.
    Lanes(usize),
    /// One or two products, each rounded.
    Outer,
    /// One chain that begins with the present value.
    Column,
    /// Eight vectors of eight lanes.
    Row,
}

/// Returns the order for a product of `m x k` and `k x n`, given the steps from one row, and
/// column, to the next of both.
pub fn order(
    [m, k, n]: [usize; 3],
    [a_row, a_column]: [usize; 2],
    [b_row, b_column]: [usize; 2],
) -> Order {
    let each = block([m, k, n]);
    let along = a_column == 1 && b_row == 1;
    if along && m * n <= 256 {
        return Order::Lanes(each.min(1024));
    }
    if k <= 2 {
        return Order::Outer;
    }
    if n == 1 && a_row == 1 {
        return Order::Column;
    }
    if n == 1 && along {
        return Order::Row;
    }
    if m == 1 && b_column == 1 {
        return Order::Column;
    }
    if m == 1 && along {
        return Order::Row;
    }
    Order::Blocks(each.min(512))
}

/// Computes `out = a b`, or `out += a b`, for `a` of `m x k` and `b` of `k x n`; `out` is
/// row-major.
pub fn product(size: [usize; 3], a: &Matrix<'_>, b: &Matrix<'_>, out: &mut [f32], add: bool) {
    product_as(size[0], size, a, b, out, add);
}

/// As [`product`], with the order of sums of an `a` of `rows` rows.
pub fn product_as(
    rows: usize,
    [m, k, n]: [usize; 3],
    a: &Matrix<'_>,
    b: &Matrix<'_>,
    out: &mut [f32],
    add: bool,
) {
    assert!(
        a.holds(m, k) && b.holds(k, n) && m * n == out.len(),
        "misshapen matrices"
    );
    if k == 0 && !add {
        out.fill(0.0);
    }
    if m * n * k == 0 {
        return;
    }
    let order = order([rows, k, n], a.steps(), b.steps());
    let size = [m, k, n];
    match order {
        Order::Blocks(block) => sweep(Blocks::new(size, block, a, b, out, add)),
        _ => run(Product {
            size,
            order,
            a,
            b,
            out,
            add,
        }),
    }
}

struct Product<'a> {
    size: [usize; 3],
    order: Order,
    a: &'a Matrix<'a>,
    b: &'a Matrix<'a>,
    out: &'a mut [f32],
    add: bool,
}

impl Work for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<M: Machine>(self, machine: M) {
        match self.order {
            Order::Outer => self.outer(),
            Order::Column => self.column(machine),
            Order::Row => self.row(machine),
            Order::Lanes(block) => self.lanes(machine, block),
            Order::Blocks(_) => unreachable!("`Blocks` computes it"),
        }
    }
}

/// Rows and columns of dot products that are computed together.
const DOTS: usize = 3;

impl Product<'_> {
    #[inline(always)]
    fn outer(self) {
        let [_, k, n] = self.size;
        for (i, out) in self.out.chunks_exact_mut(n).enumerate() {
            for (j, out) in out.iter_mut().enumerate() {
                let first = self.a.at(i, 0) * self.b.at(0, j);
                let one = if self.add { first + *out } else { first };
                *out = match k {
                    1 => one,
                    _ => self.a.at(i, 1) * self.b.at(1, j) + one,
                };
            }
        }
    }

    /// One of both is a vector, and the other is read a row, or column, at a time.
    #[inline(always)]
    fn column<M: Machine>(self, machine: M) {
        let [m, k, n] = self.size;
        for at in 0..k {
            let (x, line) = match n {
                1 => (self.b.at(at, 0), &self.a.values[at * self.a.by_column..]),
                _ => (self.a.at(0, at), &self.b.values[at * self.b.by_row..]),
            };
            let line = &line[..m * n];
            match at == 0 && !self.add {
                true => self
                    .out
                    .iter_mut()
                    .zip(line)
                    .for_each(|(out, y)| *out = x * y),
                false => {
                    for (out, y) in self.out.iter_mut().zip(line) {
                        *out = machine.fused(x, *y, *out);
                    }
                }
            }
        }
    }

    /// One of both is a vector; each number is a dot product of neighbours.
    #[inline(always)]
    fn row<M: Machine>(self, machine: M) {
        let [_, k, n] = self.size;
        for (at, out) in self.out.iter_mut().enumerate() {
            let (i, j) = (at / n, at % n);
            let a = &self.a.values[i * self.a.by_row..][..k];
            let b = &self.b.values[j * self.b.by_column..][..k];
            let (a_wide, a_rest) = a.as_chunks::<{ 8 * LANES }>();
            let (b_wide, b_rest) = b.as_chunks::<{ 8 * LANES }>();
            let mut sums = [machine.splat(0.0); 8];
            for (x, y) in a_wide.iter().zip(b_wide) {
                for v in 0..8 {
                    let (x, y) = (&x[v * LANES..], &y[v * LANES..]);
                    sums[v] = machine.fused_each(machine.load(x), machine.load(y), sums[v]);
                }
            }
            for step in [1, 2, 4] {
                for v in (0..8).step_by(2 * step) {
                    sums[v] = machine.add_each(sums[v], sums[v + step]);
                }
            }
            let (a_eights, a_rest) = a_rest.as_chunks::<LANES>();
            let (b_eights, b_rest) = b_rest.as_chunks::<LANES>();
            for (x, y) in a_eights.iter().zip(b_eights) {
                sums[0] = machine.fused_each(machine.load(x), machine.load(y), sums[0]);
            }
            let mut lanes = [0.0; LANES];
            machine.store(sums[0], &mut lanes);
            let mut sum = lanes[1..].iter().fold(lanes[0], |sum, x| sum + x);
            for (x, y) in a_rest.iter().zip(b_rest) {
                sum = machine.fused(*x, *y, sum);
            }
            *out = if self.add { sum + *out } else { sum };
        }
    }

    /// Rows of `a` times columns of `b`, each with its numbers side by side.
    #[inline(always)]
    fn lanes<M: Machine>(self, machine: M, block: usize) {
        let [m, k, n] = self.size;
        for from in (0..k).step_by(block) {
            let count = block.min(k - from);
            let width = count.next_multiple_of(LANES);
            let rows = padded(m, width, count, |i| {
                &self.a.values[i * self.a.by_row + from..]
            });
            let columns = padded(n, width, count, |j| {
                &self.b.values[j * self.b.by_column + from..]
            });
            let add = self.add || from > 0;
            for i in (0..m).step_by(DOTS) {
                for j in (0..n).step_by(DOTS) {
                    let (x, y) = (&rows[i * width..], &columns[j * width..]);
                    let sums = dots(machine, x, y, width);
                    for (r, sums) in sums.iter().enumerate().take(m - i) {
                        for (c, sum) in sums.iter().enumerate().take(n - j) {
                            let out = &mut self.out[(i + r) * n + j + c];
                            *out = if add { *out + sum } else { *sum };
                        }
                    }
                }
            }
        }
    }
}

/// Copies `count` numbers each of `lines` slices, padded with zeros to `width`, and zeros for
/// further lines up to a multiple of [`DOTS`].
#[inline(always)]
fn padded<'a>(
    lines: usize,
    width: usize,
    count: usize,
    line: impl Fn(usize) -> &'a [f32],
) -> Vec<f32> {
    let mut all = vec![0.0; lines.next_multiple_of(DOTS) * width];
    for (at, to) in all.chunks_exact_mut(width).enumerate().take(lines) {
        to[..count].copy_from_slice(&line(at)[..count]);
    }
    all
}

#[inline(always)]
fn lines(of: &[f32], width: usize) -> [&[[f32; LANES]]; DOTS] {
    std::array::from_fn(|r| of[r * width..][..width].as_chunks().0)
}

/// Returns the dot products of three lines of `a` with three of `b`.
#[inline(always)]
fn dots<M: Machine>(machine: M, a: &[f32], b: &[f32], width: usize) -> [[f32; DOTS]; DOTS] {
    let (a, b) = (lines(a, width), lines(b, width));
    let mut sums = [[machine.splat(0.0); DOTS]; DOTS];
    for at in 0..width / LANES {
        let y: [M::Vector; DOTS] = std::array::from_fn(
            #[inline(always)]
            |c| machine.load(&b[c][at]),
        );
        for r in 0..DOTS {
            let x = machine.load(&a[r][at]);
            for c in 0..DOTS {
                sums[r][c] = machine.fused_each(x, y[c], sums[r][c]);
            }
        }
    }
    sums.map(|sums| sums.map(|sum| machine.sum(sum)))
}

/// A product whose sums are [`Order::Blocks`].
///
/// A tile has some rows of one matrix, whose numbers lie side by side, and a panel of columns of the
/// other, copied so that the columns lie side by side. Each number is a chain of its own, so either
/// matrix may give the panels: the tile of `b^T a^T` is that of `a b`, turned.
struct Blocks<'a> {
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
/// Vectors of unfinished chains of a panel that are too many to be kept.
const MANY: usize = 4096;
/// Columns of the widest tile: four vectors of sixteen.
const WIDEST_TILE: usize = 64;

impl<'a> Blocks<'a> {
    fn new(
        [m, k, n]: [usize; 3],
        block: usize,
        a: &Matrix<'a>,
        b: &Matrix<'a>,
        out: &'a mut [f32],
        add: bool,
    ) -> Self {
        // numbers that are copied one by one; vectors are copied sixteen times as fast
        let alone = |step: usize, numbers: usize| if step == 1 { numbers / 16 } else { numbers };
        let turn = |numbers: usize, step: usize| if step == 1 { 0 } else { numbers };
        let straight = alone(b.by_column, k * n) + turn(m * k, a.by_column);
        let turned = alone(a.by_row, m * k) + turn(k * n, b.by_row) + m * n;
        let (block, turned) = (block.min(k), turned < straight);
        let matrices = (Matrix { ..*a }, Matrix { ..*b });
        let (size, rows, columns, to) = match turned {
            false => ([m, k, n], matrices.0, matrices.1, [n, 1]),
            true => (
                [n, k, m],
                matrices.1.transposed(),
                matrices.0.transposed(),
                [1, n],
            ),
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

    /// Computes the columns from `first` on, which `V` vectors hold.
    #[inline(always)]
    fn panel<S: Strip, const V: usize>(
        &mut self,
        strip: S,
        rows: &Matrix<'_>,
        panel: &mut [f32],
        first: usize,
    ) {
        let ([m, k, n], wide) = (self.size, V * S::WIDTH);
        let columns = wide.min(n - first);
        pack(&mut panel[..k * wide], wide, columns, &self.columns, first);
        let [by_row, by_column] = self.to;
        let whole = columns == wide && by_column == 1;
        let mut tile = [[0.0; WIDEST_TILE]; TALL];
        // a part of a block at a time, whose panel fits a first-level cache; the chains go on, and
        // those of many rows would fill the cache in its place
        let part = if V * m <= MANY { PART / V } else { self.block };
        let longest = self.block.min(k);
        let unfinished = if longest > part {
            m.next_multiple_of(TALL) * wide
        } else {
            0
        };
        let mut chains = Buffer::any(unfinished);
        for block in (0..k).step_by(self.block) {
            let block_end = k.min(block + self.block);
            for from in (block..block_end).step_by(part) {
                let length = part.min(block_end - from);
                let panel = &panel[from * wide..][..length * wide];
                let last = from + length == block_end;
                for row in (0..m).step_by(TALL) {
                    let count = TALL.min(m - row);
                    let mut sums = [[strip.splat(0.0); V]; TALL];
                    if from > block {
                        let chains = &chains[row * wide..][..TALL * wide];
                        for r in 0..TALL {
                            for v in 0..V {
                                sums[r][v] = strip.load(&chains[r * wide + v * S::WIDTH..]);
                            }
                        }
                    }
                    // a tile of fewer rows computes its last one several times
                    let lines: [&[f32]; TALL] = std::array::from_fn(|r| {
                        &rows.values[(row + r.min(count - 1)) * rows.by_row + from..][..length]
                    });
                    match count {
                        ..=2 => {
                            let few = [sums[0], sums[1]];
                            let few = sums_of_tile(strip, few, [lines[0], lines[1]], panel);
                            sums[..2].copy_from_slice(&few);
                        }
                        _ => sums = sums_of_tile(strip, sums, lines, panel),
                    }
                    if !last {
                        let chains = &mut chains[row * wide..][..TALL * wide];
                        for r in 0..TALL {
                            for v in 0..V {
                                strip.store(sums[r][v], &mut chains[r * wide + v * S::WIDTH..]);
                            }
                        }
                        continue;
                    }
                    let add = self.add || block > 0;
                    if whole {
                        for r in 0..count {
                            let to = &mut self.out[(row + r) * by_row + first..][..wide];
                            for v in 0..V {
                                let to = &mut to[v * S::WIDTH..];
                                let sum = match add {
                                    true => strip.add_each(strip.load(to), sums[r][v]),
                                    false => sums[r][v],
                                };
                                strip.store(sum, to);
                            }
                        }
                        continue;
                    }
                    for (line, sums) in tile.iter_mut().zip(&sums) {
                        for v in 0..V {
                            strip.store(sums[v], &mut line[v * S::WIDTH..]);
                        }
                    }
                    for c in 0..columns {
                        let to = &mut self.out[row * by_row + (first + c) * by_column..];
                        let to = to.iter_mut().step_by(by_row);
                        let numbers = tile.iter().map(|line| line[c]).take(count);
                        match add {
                            true => to.zip(numbers).for_each(|(to, x)| *to += x),
                            false => to.zip(numbers).for_each(|(to, x)| *to = x),
                        }
                    }
                }
            }
        }
    }
}

impl Sweep for Blocks<'_> {
    #[inline(always)]
    fn sweep<E: Machine, W: Strip>(mut self, _: E, widest: W) {
        let [m, k, n] = self.size;
        let turned;
        let rows = match self.rows.by_column {
            1 => Matrix { ..self.rows },
            _ => {
                turned = turn(m, k, &self.rows);
                matrix(&turned, k)
            }
        };
        let many = W::SUMS >= 4 * TALL;
        let mut panel = Buffer::any(k * W::WIDTH * if many { 4 } else { 2 });
        let mut first = 0;
        while first < n {
            first += W::WIDTH
                * match (n - first).div_ceil(W::WIDTH) {
                    4.. if many => {
                        self.panel::<W, 4>(widest, &rows, &mut panel, first);
                        4
                    }
                    2.. => {
                        self.panel::<W, 2>(widest, &rows, &mut panel, first);
                        2
                    }
                    _ => {
                        self.panel::<W, 1>(widest, &rows, &mut panel, first);
                        1
                    }
                };
        }
    }
}

/// Numbers that are copied together when rows become columns: a line of a cache.
const LINE: usize = 16;

/// Copies `columns` columns from `first` on: number by number, the columns side by side, and zeros
/// up to `wide`.
#[inline(always)]
fn pack(to: &mut [f32], wide: usize, columns: usize, from: &Matrix<'_>, first: usize) {
    let values = &from.values[first * from.by_column..];
    if from.by_column == 1 {
        for (at, to) in to.chunks_exact_mut(wide).enumerate() {
            let row = &values[at * from.by_row..][..columns];
            let (to, rest) = to.split_at_mut(columns);
            let (to_blocks, to_rest) = to.as_chunks_mut::<LANES>();
            let (blocks, row_rest) = row.as_chunks::<LANES>();
            to_blocks
                .iter_mut()
                .zip(blocks)
                .for_each(|(to, x)| *to = *x);
            to_rest
                .iter_mut()
                .zip(row_rest)
                .for_each(|(to, x)| *to = *x);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Plain, sweep_eights};
    use fl_core::Stream;
    use std::collections::BTreeSet;

    /// Every order, with and without the instructions of this machine, and beside sums in 64 bits.
    #[test]
    fn exact_products_on_every_processor() {
        let mut draws = Stream::root(2).draws();
        let mut sizes = vec![
            [1, 700, 300],
            [300, 90, 1],
            [300, 1, 5],
            [16, 1400, 10],
            [3, 1300, 70],
            [70, 1300, 9],
            [65, 513, 65],
            [2, 1, 200],
            [20, 3, 20],
            [1, 600, 70],
        ];
        let sides = [1, 2, 3, 5, 6, 7, 12, 16, 17, 31, 66];
        for _ in 0..300 {
            sizes.push([(); 3].map(|()| sides[draws.below(sides.len())]));
        }
        let mut seen = BTreeSet::new();
        for [m, k, n] in sizes {
            let numbers = (m * k).max(k * n).max(m * n);
            let mut some = || {
                (0..numbers)
                    .map(|_| draws.normal() as f32)
                    .collect::<Vec<_>>()
            };
            let (x, y, before) = (some(), some(), some());
            for turned in 0..4 {
                let a = match turned & 1 {
                    0 => matrix(&x, k),
                    _ => matrix(&x, m).transposed(),
                };
                let b = match turned & 2 {
                    0 => matrix(&y, n),
                    _ => matrix(&y, k).transposed(),
                };
                let order = order([m, k, n], a.steps(), b.steps());
                for add in [false, true] {
                    let mut fast = before[..m * n].to_vec();
                    let mut plain = fast.clone();
                    product([m, k, n], &a, &b, &mut fast, add);
                    match order {
                        Order::Blocks(block) => {
                            let mut eights = plain.clone();
                            let size = [m, k, n];
                            sweep_eights(Blocks::new(size, block, &a, &b, &mut eights, add));
                            Blocks::new(size, block, &a, &b, &mut plain, add).sweep(Plain, Plain);
                            let same = plain.iter().zip(&eights);
                            assert!(same.clone().all(|(x, y)| x.to_bits() == y.to_bits()));
                        }
                        _ => Product {
                            size: [m, k, n],
                            a: &a,
                            b: &b,
                            out: &mut plain,
                            add,
                            order,
                        }
                        .run(Plain),
                    }
                    let case = format!("{m} x {k} times {k} x {n}, {order:?}, add {add}");
                    assert!(
                        fast.iter()
                            .zip(&plain)
                            .all(|(x, y)| x.to_bits() == y.to_bits()),
                        "{case}"
                    );
                    for (at, found) in fast.iter().enumerate() {
                        let start = if add { f64::from(before[at]) } else { 0.0 };
                        let each =
                            (0..k).map(|i| f64::from(a.at(at / n, i)) * f64::from(b.at(i, at % n)));
                        let exact = start + each.sum::<f64>();
                        assert!(
                            (f64::from(*found) - exact).abs() < 1e-3,
                            "{case}: number {at}"
                        );
                    }
                }
                seen.insert(format!("{order:?}").split('(').next().unwrap().to_string());
            }
        }
        let all: Vec<_> = seen.iter().map(String::as_str).collect();
        assert_eq!(all, ["Blocks", "Column", "Lanes", "Outer", "Row"]);
        // an empty sum is 0, and adding it changes nothing
        let mut none = vec![1.0; 4];
        let empty = |by_row| matrix(&[], by_row);
        product([2, 0, 2], &empty(0), &empty(2), &mut none, true);
        assert_eq!(none, [1.0; 4]);
        product([2, 0, 2], &empty(0), &empty(2), &mut none, false);
        assert_eq!(none, [0.0; 4]);
        product([0, 2, 2], &empty(2), &matrix(&none, 2), &mut [], true);
    }
}
