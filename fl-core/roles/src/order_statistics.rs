//! Order statistics and distances over clients, with the same bits for any number of threads and
//! any order of the clients.

use crate::Executor;
use crate::twice;
use std::ops::Range;
use std::sync::OnceLock;

/// Coordinates that are sorted side by side: one cache line.
const LANES: usize = 16;

/// Coordinates of one call of the executor.
const CHUNK: usize = 1024 * LANES;

/// With more clients a sort is faster: the network's extra comparisons outweigh sixteen at once.
const MOST: usize = 1024;

/// Returns the comparisons, each of two rows, that put these ranks of `n` rows into place
/// (Batcher's odd-even merge sort; Knuth, The Art of Computer Programming 3, 5.3.4). Leaves out
/// comparisons that do not affect these ranks.
fn network(n: usize, ranks: &Range<usize>) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let mut p = 1;
    while p < n {
        let mut k = p;
        while k >= 1 {
            for j in (k % p..n.saturating_sub(k)).step_by(2 * k) {
                for i in j..(j + k).min(n - k) {
                    if i / (2 * p) == (i + k) / (2 * p) {
                        all.push((i, i + k));
                    }
                }
            }
            k /= 2;
        }
        p *= 2;
    }
    let mut wanted: Vec<bool> = (0..n).map(|row| ranks.contains(&row)).collect();
    let mut kept: Vec<_> = all.into_iter().rev().collect();
    kept.retain(|(a, b)| {
        let matters = wanted[*a] || wanted[*b];
        (wanted[*a], wanted[*b]) = (wanted[*a] || matters, wanted[*b] || matters);
        matters
    });
    kept.reverse();
    kept
}

twice! {
    /// Moves the smaller numbers of each pair of rows to the first.
    fn exchange[](rows: &mut [[f32; LANES]], network: &[(usize, usize)]) {
        for (a, b) in network {
            let (x, y) = (rows[*a], rows[*b]);
            // without `if`: the compiler would skip unchanged numbers by a masked store, which
            // takes ten times as long
            for lane in 0..LANES {
                rows[*a][lane] = x[lane].min(y[lane]);
                rows[*b][lane] = x[lane].max(y[lane]);
            }
        }
    }
}

/// Computes `out[i] = f(values of these ranks, ascending, of sent[..][i])`. All of `sent` have one
/// length and hold numbers, not NaN; `-0` counts as `0`.
pub(crate) fn by_rank(
    sent: &[&[f32]],
    ranks: Range<usize>,
    exec: &dyn Executor,
    f: &(dyn Fn(&mut [f32]) -> f32 + Sync),
) -> Vec<f32> {
    let mut out = vec![0.0; sent.first().map_or(0, |s| s.len())];
    let network = if sent.len() <= MOST {
        network(sent.len(), &ranks)
    } else {
        Vec::new()
    };
    exec.each_chunk(&mut out, CHUNK, &|chunk, out| {
        let mut rows = vec![[0.0f32; LANES]; sent.len()];
        let mut column = vec![0.0; sent.len()];
        for (block, out) in out.chunks_mut(LANES).enumerate() {
            let from = chunk * CHUNK + block * LANES;
            for (row, sent) in rows.iter_mut().zip(sent) {
                for (number, x) in row.iter_mut().zip(&sent[from..from + out.len()]) {
                    *number = x + 0.0;
                }
            }
            if sent.len() <= MOST {
                exchange(&mut rows, &network);
            }
            for (lane, out) in out.iter_mut().enumerate() {
                for (number, row) in column.iter_mut().zip(&rows) {
                    *number = row[lane];
                }
                if sent.len() > MOST {
                    column.sort_unstable_by(f32::total_cmp);
                }
                *out = f(&mut column[ranks.clone()]);
            }
        }
    });
    out
}

/// Numbers whose differences are summed for all pairs while they are in the second-level cache.
const TILE: usize = 1024;

/// Numbers of one share of the work; each share has its own sums of all pairs.
const SHARE: usize = 32 * TILE;

/// Sums computed side by side. With no more sums than registers, the compiler splits the array.
const SUMS: usize = 64;

twice! {
    /// `sum += |a - b|^2`, within a tile in 32 bits: each of 64 sums has few terms, and a tree adds
    /// them
    fn add_squares[](sum: &mut f64, a: &[f32], b: &[f32]) {
        let mut sums = [0.0f32; SUMS];
        let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
        for (a, b) in a.iter().zip(b) {
            for lane in 0..SUMS {
                let apart = a[lane] - b[lane];
                sums[lane] += apart * apart;
            }
        }
        for (sum, (a, b)) in sums.iter_mut().zip(rest_a.iter().zip(rest_b)) {
            *sum += (a - b) * (a - b);
        }
        let mut half = SUMS / 2;
        while half > 0 {
            for lane in 0..half {
                sums[lane] += sums[lane + half];
            }
            half /= 2;
        }
        *sum += f64::from(sums[0]);
    }
}

/// A smaller mean square may have lost terms that 32 bits cannot hold.
const LEAST: f64 = 1e-30;

/// Returns the squared Euclidean distance of two lists of numbers. Sums eight at a time in 64 bits,
/// so that both orders of the arguments give the same result.
pub fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0f64; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            let apart = f64::from(*a) - f64::from(*b);
            *sum += apart * apart;
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        let apart = f64::from(*a) - f64::from(*b);
        *sum += apart * apart;
    }
    sums.iter().sum()
}

/// Returns the squared Euclidean distances of all pairs, `[i][j]`, to a millionth: the same for
/// both orders of a pair. All of `sent` have one length.
pub(crate) fn squared_distances(sent: &[&[f32]], exec: &dyn Executor) -> Vec<Vec<f64>> {
    let (n, numbers) = (sent.len(), sent.first().map_or(0, |s| s.len()));
    let shares: Vec<OnceLock<Vec<f64>>> = vec![OnceLock::new(); numbers.div_ceil(SHARE)];
    // the executor distributes positions of a list: here one for each share
    exec.each_chunk(&mut vec![0.0; shares.len()], 1, &|share, _| {
        let mut sums = vec![0.0; n * n.saturating_sub(1) / 2];
        let end = numbers.min((share + 1) * SHARE);
        for from in (share * SHARE..end).step_by(TILE) {
            let tile = from..end.min(from + TILE);
            let mut sums = sums.iter_mut();
            for (i, a) in sent.iter().enumerate() {
                for (b, sum) in sent[..i].iter().zip(&mut sums) {
                    add_squares(sum, &a[tile.clone()], &b[tile.clone()]);
                }
            }
        }
        let _ = shares[share].set(sums);
    });
    let shares = shares.iter().filter_map(OnceLock::get);
    let mut pairs = shares.fold(vec![0.0; n * n.saturating_sub(1) / 2], |mut sums, share| {
        sums.iter_mut().zip(share).for_each(|(sum, x)| *sum += x);
        sums
    });
    let (mut all, least) = (vec![vec![0.0; n]; n], LEAST * numbers as f64);
    let mut next = pairs.iter_mut();
    for (i, a) in sent.iter().enumerate() {
        for ((j, b), sum) in sent[..i].iter().enumerate().zip(&mut next) {
            if !sum.is_finite() || (*sum < least && a != b) {
                *sum = squared_distance(a, b);
            }
            (all[i][j], all[j][i]) = (*sum, *sum);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Serial, Stream};

    fn sent(clients: usize, numbers: usize) -> Vec<Vec<f32>> {
        let mut draws = Stream::root(clients as u64).draws();
        let mut one = || (draws.normal() * 3.0).round() as f32 / 2.0;
        (0..clients)
            .map(|_| (0..numbers).map(|_| one()).collect())
            .collect()
    }

    fn slices(sent: &[Vec<f32>]) -> Vec<&[f32]> {
        sent.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn every_rank_is_that_of_a_sort() {
        for clients in (1..=20).chain([50, 64, 65, MOST + 1]) {
            let sent = sent(clients, 37);
            let wanted = [
                0..1,
                clients - 1..clients,
                clients / 2..clients / 2 + 1,
                clients / 4..clients,
                0..clients,
            ];
            for ranks in wanted {
                let first_and_last =
                    |some: &mut [f32]| some[0] + 1000.0 * some[some.len() - 1] + some.len() as f32;
                let found = by_rank(&slices(&sent), ranks.clone(), &Serial, &first_and_last);
                for (at, found) in found.iter().enumerate() {
                    let mut column: Vec<f32> = sent.iter().map(|s| s[at] + 0.0).collect();
                    column.sort_by(f32::total_cmp);
                    let due = first_and_last(&mut column[ranks.clone()]);
                    assert_eq!(*found, due, "{ranks:?} of {clients} clients, place {at}");
                }
            }
        }
    }

    #[test]
    fn a_zero_has_one_sign_whoever_comes_first() {
        for sent in [[&[-0.0f32][..], &[0.0]], [&[0.0], &[-0.0]]] {
            let first = by_rank(&sent, 0..1, &Serial, &|some| some[0]);
            assert_eq!(first[0].to_bits(), 0.0f32.to_bits());
        }
    }

    #[test]
    fn what_no_wanted_rank_depends_on_is_left_out() {
        let (whole, median) = (network(50, &(0..50)).len(), network(50, &(24..26)).len());
        assert!(median < whole * 9 / 10, "{median} of {whole}");
        assert_eq!(network(50, &(0..1)).len(), 49);
        assert!(network(1, &(0..1)).is_empty());
    }

    #[test]
    fn distances_are_those_of_the_definition_and_the_same_both_ways() {
        for (clients, numbers) in [
            (0, 0),
            (1, 5),
            (2, 0),
            (3, 7),
            (4, TILE + 3),
            (3, SHARE + 40),
        ] {
            let sent = sent(clients, numbers);
            let all = squared_distances(&slices(&sent), &Serial);
            for i in 0..clients {
                for j in 0..clients {
                    let both = sent[i].iter().zip(&sent[j]);
                    let due: f64 = both.map(|(a, b)| f64::from(a - b).powi(2)).sum();
                    assert!((all[i][j] - due).abs() <= 1e-6 * due, "{i} {j}");
                    assert_eq!(all[i][j], all[j][i]);
                }
            }
        }
    }
}
