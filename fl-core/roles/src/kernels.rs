//! Sums over clients: in f64, in client order, with `+ - * /` only, so that every machine gives the
//! same bits.

use crate::message::Params;
use crate::{ClientMessage, Executor, Fold, Problem, Result};
use anyhow::ensure;
use ndarray::{ArrayD, Dimension, IxDyn};
use std::collections::BTreeMap;

/// Numbers of one block. Its f64 sums (512 KiB) stay in the second-level cache while the clients'
/// blocks stream past. With shorter blocks the hardware stops prefetching too often (4,096: 77 % of
/// the memory's speed, 65,536: over 90 %).
const BLOCK: usize = 65_536;

/// Numbers of one call of the executor.
const CHUNK: usize = 4 * BLOCK;

/// Returns `out[i] = sum_k weights[k] * sent[k][i] / sum_k weights[k]`, summed in f64 in this
/// order: the mean of [`Inbox`](crate::Inbox), for hosts in other languages. All of `sent` have one
/// length.
pub fn weighted_mean(sent: &[&[f32]], weights: &[f64], exec: &dyn Executor) -> Vec<f32> {
    let total: f64 = weights.iter().sum();
    let mut out = room(sent.first().map_or(0, |s| s.len()));
    exec.each_chunk(&mut out, CHUNK, &|chunk, out| {
        // start at a multiple of 32 bytes: an unaligned start cost a third of a mean of 10 x 1,000
        let n = BLOCK.min(out.len());
        let mut sums = vec![0.0f64; n + 3];
        let skip = sums.as_ptr().align_offset(32).min(3);
        let sums = &mut sums[skip..skip + n];
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let from = chunk * CHUNK + i * BLOCK;
            let sums = &mut sums[..out.len()];
            sums.fill(0.0);
            add_all(sums, sent, weights, from);
            divide(sums, total, out);
        }
    });
    out
}

/// Adds the numbers of all clients from `from` on. Several clients at once: the sums are loaded and
/// stored once for all of them.
fn add_all(sums: &mut [f64], sent: &[&[f32]], weights: &[f64], from: usize) {
    let rest = abreast::<8>(sums, sent, weights, from);
    let rest = rest + abreast::<4>(sums, &sent[rest..], &weights[rest..], from);
    let rest = rest + abreast::<2>(sums, &sent[rest..], &weights[rest..], from);
    abreast::<1>(sums, &sent[rest..], &weights[rest..], from);
}

/// Adds as many whole groups of `K` clients as there are. Returns the number of clients added.
fn abreast<const K: usize>(
    sums: &mut [f64],
    sent: &[&[f32]],
    weights: &[f64],
    from: usize,
) -> usize {
    let groups = sent
        .as_chunks::<K>()
        .0
        .iter()
        .zip(weights.as_chunks::<K>().0);
    groups
        .map(|(sent, weights)| add_group(sums, sent.map(|s| &s[from..from + sums.len()]), *weights))
        .count()
        * K
}

/// Allocates zeros for a result, in huge pages in a library or program without
/// [`HugePages`](crate::HugePages), too.
fn room<T: Copy + Default>(n: usize) -> Vec<T> {
    let mut out = vec![T::default(); n];
    crate::huge_pages::request(out.as_mut_ptr().cast(), size_of::<T>() * n);
    out
}

/// Returns `sum_k weights[k] * sent[k][i] / sum_k weights[k]` without rounding to `f32`: the loop
/// behind every weighted mean of parameters, for checks closer than `f32` allows.
pub fn weighted_mean_f64(sent: &[&[f64]], weights: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; sent.first().map_or(0, |s| s.len())];
    for (sent, weight) in sent.iter().zip(weights) {
        add_scaled(&mut sums, sent, *weight);
    }
    let total: f64 = weights.iter().sum();
    sums.iter().map(|sum| sum / total).collect()
}

/// Answers that a fold buffers before it adds them. Its sums are too long for any cache, and this
/// way they are loaded and stored once for all buffered answers.
const WAITING: usize = 8;

/// As [`WAITING`], of models with more numbers than [`LARGE`]: a buffered answer takes a model's
/// memory.
const WAITING_LARGE: usize = 4;

/// 64 MiB of numbers.
const LARGE: usize = 1 << 24;

/// A fold that adds parameters to a weighted mean, used by aggregators that are means. It has the
/// bits of [`weighted_mean`], and uses the memory of ten models for any number of answers; of six
/// models if one is larger than 64 MiB.
#[derive(Default)]
pub struct MeanOfParams {
    waiting: Vec<ClientMessage<Params>>,
    /// Shape and sums of each tensor; no sums before the buffer was full once.
    sums: BTreeMap<String, (IxDyn, Vec<f64>)>,
    total: f64,
}

impl MeanOfParams {
    /// Adds the buffered answers to the sums.
    fn flush(&mut self) {
        let weights = self.weigh();
        for (name, (dim, sums)) in &mut self.sums {
            if sums.is_empty() {
                *sums = room(dim.size());
            }
            let sent: Vec<_> = (self.waiting.iter())
                .map(|m| m.body.0[name].as_standard_layout())
                .collect();
            let sent: Vec<&[f32]> = (sent.iter())
                .map(|t| t.as_slice().expect("standard layout"))
                .collect();
            for (i, sums) in sums.chunks_mut(BLOCK).enumerate() {
                add_all(sums, &sent, &weights, i * BLOCK);
            }
        }
        self.waiting.clear();
    }

    /// Returns the weights of the buffered answers, and adds them to their total.
    fn weigh(&mut self) -> Vec<f64> {
        let weights: Vec<f64> = self.waiting.iter().map(|m| m.weight).collect();
        self.total = weights.iter().fold(self.total, |total, w| total + w);
        weights
    }
}

impl Fold<Params, Params> for MeanOfParams {
    fn add(&mut self, mail: ClientMessage<Params>) -> Result<()> {
        let shapes = mail.body.0.iter();
        if self.waiting.is_empty() && self.sums.is_empty() {
            let shapes = shapes.map(|(name, t)| (name.clone(), (t.raw_dim(), Vec::new())));
            self.sums = shapes.collect();
        } else {
            let due = self.sums.iter().map(|(name, (dim, _))| (name, dim));
            Problem::shape_unless(
                shapes
                    .map(|(name, t)| (name, t.raw_dim()))
                    .eq(due.map(|(name, dim)| (name, dim.clone()))),
                || "names or shapes of parameters differ from those of the messages before".into(),
            )?;
        }
        let most = if mail.body.0.values().map(ArrayD::len).sum::<usize>() > LARGE {
            WAITING_LARGE
        } else {
            WAITING
        };
        self.waiting.push(mail);
        if self.waiting.len() == most {
            self.flush();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Params> {
        ensure!(
            !(self.waiting.is_empty() && self.sums.is_empty()),
            Problem::NoAnswer(String::new())
        );
        let weights = self.weigh();
        let (total, mut waiting) = (self.total, self.waiting);
        let mut block = vec![0.0f64; BLOCK];
        let means = self.sums.into_iter().map(|(name, (dim, sums))| {
            // the last answers are added where the sums are divided, so that these are not stored
            // once more, and the first of them gives its memory to the mean
            let mut last = (waiting.iter_mut())
                .map(|m| m.body.0.remove(&name).expect("every answer has this shape"))
                .map(standard);
            let mut out = last.next().unwrap_or_else(|| room(dim.size()));
            let last: Vec<Vec<f32>> = last.collect();
            for (i, out) in out.chunks_mut(BLOCK).enumerate() {
                let at = i * BLOCK..i * BLOCK + out.len();
                let block = &mut block[..out.len()];
                match sums.get(at.clone()) {
                    Some(sums) => block.copy_from_slice(sums),
                    None => block.fill(0.0),
                }
                if !weights.is_empty() {
                    let rest = last.iter().map(|sent| &sent[at.clone()]);
                    let sent: Vec<&[f32]> = std::iter::once(&*out).chain(rest).collect();
                    add_all(block, &sent, &weights, 0);
                }
                divide(block, total, out);
            }
            Ok((name, ArrayD::from_shape_vec(dim, out)?))
        });
        means.collect()
    }
}

/// Returns the numbers of a tensor, row after row; its own memory if they are that.
fn standard(tensor: ArrayD<f32>) -> Vec<f32> {
    let size = tensor.len();
    if !tensor.is_standard_layout() {
        return tensor.iter().copied().collect();
    }
    let (numbers, from) = tensor.into_raw_vec_and_offset();
    match (from.unwrap_or(0), numbers.len() == size) {
        (0, true) => numbers,
        (from, _) => numbers[from..from + size].to_vec(),
    }
}

/// Declares a loop that is compiled twice, for the baseline and for AVX2, and chosen at run time.
/// The compiler never fuses a multiplication with an addition by itself, so both give the same
/// bits.
#[doc(hidden)]
#[macro_export]
macro_rules! twice {
    ($(#[$doc:meta])* fn $name:ident[$($generic:tt)*]($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$doc])*
        fn $name<$($generic)*>($($arg: $ty),*) {
            #[inline(always)]
            fn plain<$($generic)*>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2<$($generic)*>($($arg: $ty),*) { plain($($arg),*) }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the runtime check above found AVX2, the only requirement of `avx2`.
                    #[allow(unsafe_code, reason = "measured: 85 % of memory bandwidth with AVX2, 65 % with SSE2")]
                    return unsafe { avx2($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}
twice! {
    /// `sums += weight * sent`
    fn add_scaled[T: Copy + Into<f64>](sums: &mut [f64], sent: &[T], weight: f64) {
        for (sum, x) in sums.iter_mut().zip(sent) {
            *sum += weight * (*x).into();
        }
    }
}

twice! {
    /// `sums += w[0] * sent[0]`, then `+= w[1] * sent[1]` and so on, with the bits of sequential
    /// addition
    fn add_group[const K: usize](sums: &mut [f64], sent: [&[f32]; K], w: [f64; K]) {
        let n = sums.len();
        let sent = sent.map(|s| &s[..n]); // so that the compiler needs no further checks
        for (i, sum) in sums.iter_mut().enumerate() {
            for k in 0..K {
                *sum += w[k] * f64::from(sent[k][i]);
            }
        }
    }
}

twice! {
    /// `out = sums / total`
    fn divide[](sums: &[f64], total: f64, out: &mut [f32]) {
        for (o, sum) in out.iter_mut().zip(sums) {
            *o = (*sum / total) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Serial, Stream};

    #[test]
    fn exact_blocks_folds_and_the_plain_formula_agree() {
        let mut draws = Stream::root(3).draws();
        let n = 2 * CHUNK + 3 * BLOCK + 17; // a ragged end of every kind
        let sent: Vec<Vec<f32>> =
            (0..11) // a group of eight, one of two, and one alone
                .map(|_| (0..n).map(|_| draws.normal() as f32).collect())
                .collect();
        let weights = [3.0, 1.0, 0.0, 20.5, 7.25, 1e-3, 11.0, 2.0, 9.5, 0.1, 4.0];
        let views: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        let out = weighted_mean(&views, &weights, &Serial);
        let mut running = Box::<MeanOfParams>::default();
        for (client, (s, w)) in sent.iter().zip(weights).enumerate() {
            let sent = Params([("w".into(), ndarray::arr1(s).into_dyn())].into());
            running
                .add(ClientMessage::new(client as u32, w, sent))
                .unwrap();
        }
        let folded = running.finish().unwrap();
        let folded = folded.0["w"].as_slice().unwrap();
        let wide: Vec<Vec<f64>> = sent
            .iter()
            .map(|s| s.iter().map(|x| f64::from(*x)).collect())
            .collect();
        let wide: Vec<&[f64]> = wide.iter().map(Vec::as_slice).collect();
        let wide = weighted_mean_f64(&wide, &weights);
        for i in 0..n {
            let mut sum = 0.0f64;
            let mut total = 0.0f64;
            for (s, w) in sent.iter().zip(weights) {
                sum += w * f64::from(s[i]);
                total += w;
            }
            let plain = (sum / total) as f32;
            assert_eq!(
                out[i].to_bits(),
                plain.to_bits(),
                "block kernel, number {i}"
            );
            assert_eq!(folded[i].to_bits(), plain.to_bits(), "fold, number {i}");
            assert_eq!(wide[i], sum / total, "in f64, number {i}");
        }
    }

    #[test]
    fn exact_a_fold_of_any_number_of_answers_is_the_mean() {
        let sent = |k: usize| {
            let of = |shape: &[usize], add: f32| {
                let number = |at: IxDyn| add + (k as f32 + 0.1) * (1.0 + at[0] as f32);
                ArrayD::from_shape_fn(IxDyn(shape), number)
            };
            // the second is not in the order of its memory, the third is a part of its memory
            let turned = of(&[5, 3], 0.5).reversed_axes();
            let part = of(&[9], -1.0).slice_move(ndarray::s![2..6]).into_dyn();
            let tensors = [("a", of(&[7, 2], 0.0)), ("b", turned), ("c", part)];
            Params(tensors.map(|(name, t)| (name.to_string(), t)).into())
        };
        for n in 1..=2 * WAITING + 3 {
            let mail = |k: usize| ClientMessage::new(k as u32, 0.3 + k as f64, sent(k));
            let mut fold = Box::<MeanOfParams>::default();
            (0..n).for_each(|k| fold.add(mail(k)).unwrap());
            let inbox = crate::Inbox::new((0..n).map(mail).collect()).unwrap();
            let weights: Vec<f64> = inbox.iter().map(|m| m.weight).collect();
            let due = inbox.weighted_mean(&weights, &Serial);
            assert_eq!(fold.finish().unwrap(), due, "{n} answers");
        }
    }

    #[test]
    fn a_fold_takes_what_is_of_one_shape() {
        let sent = |n: usize| Params([("w".into(), ArrayD::zeros(IxDyn(&[n])))].into());
        let mut fold = MeanOfParams::default();
        fold.add(ClientMessage::new(0, 1.0, sent(2))).unwrap();
        let error = fold.add(ClientMessage::new(1, 1.0, sent(3))).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("names or shapes of parameters differ"),
            "{error}"
        );
        assert!(Box::<MeanOfParams>::default().finish().is_err());
    }
}
