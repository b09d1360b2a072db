//! Products of matrices, whose sums have one order on every processor and card.

use super::blocks::Blocks;
use super::matrix::Matrix;
use crate::optim::Descent;
use crate::simd::{LANES, Machine, Work, run, sweep};

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

/// Computes the weights that follow `weights` by `descent`, whose gradient is `a b`.
pub fn descended(
    size: [usize; 3],
    [a, b]: [&Matrix<'_>; 2],
    out: &mut [f32],
    descent: Descent,
    weights: &[f32],
) {
    if let Order::Blocks(block) = order(size, a.steps(), b.steps()) {
        let blocks = Blocks::new(size, block, *a, *b, out, false);
        if blocks.can_descend() {
            return sweep(blocks.descending(descent, weights));
        }
    }
    product(size, a, b, out, false);
    descent.replace(out, weights);
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
        Order::Blocks(block) => sweep(Blocks::new(size, block, *a, *b, out, add)),
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
            if at == 0 && !self.add {
                self.out
                    .iter_mut()
                    .zip(line)
                    .for_each(|(out, y)| *out = x * y)
            } else {
                for (out, y) in self.out.iter_mut().zip(line) {
                    *out = machine.fused(x, *y, *out);
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

#[cfg(test)]
mod tests {
    use super::super::matrix::matrix;
    use super::*;
    use crate::simd::{Plain, Sweep, sweep_eights, sweep_sixteens};
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
            // rows in several parts, and columns in several groups
            [300, 1400, 40],
            [1030, 20, 70],
            [8, 20_000, 70],
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
                            let [mut eights, mut sixteens] = [plain.clone(), plain.clone()];
                            let size = [m, k, n];
                            sweep_eights(Blocks::new(size, block, a, b, &mut eights, add));
                            sweep_sixteens(Blocks::new(size, block, a, b, &mut sixteens, add));
                            Blocks::new(size, block, a, b, &mut plain, add).sweep(Plain, Plain);
                            for found in [eights, sixteens] {
                                let mut both = plain.iter().zip(&found);
                                assert!(both.all(|(x, y)| x.to_bits() == y.to_bits()));
                            }
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
