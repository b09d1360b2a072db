//! Sums over clients: in f64, in client order, with `+ - * /` only, so that their bits are the same everywhere.

use crate::Executor;

/// Numbers of one block. Its f64 sums (32 KiB) stay in the cache while the clients' blocks stream by; shorter blocks would
/// stop the hardware from fetching ahead.
const BLOCK: usize = 4096;

/// Clients that are added in one go: the sums are loaded and stored once for all of them.
const ABREAST: usize = 4;

/// Numbers that one call of the executor gets.
const CHUNK: usize = 64 * BLOCK;

/// `out[i] = sum_k weights[k] * sent[k][i] / sum_k weights[k]`.
pub(crate) fn weighted_mean(
    sent: &[&[f32]],
    weights: &[f64],
    out: &mut [f32],
    exec: &dyn Executor,
) {
    let total: f64 = weights.iter().sum();
    exec.chunks(out, CHUNK, &|chunk, out| {
        let mut sums = [0.0; BLOCK];
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let from = chunk * CHUNK + i * BLOCK;
            let sums = &mut sums[..out.len()];
            sums.fill(0.0);
            let (mut sent, mut weights) = (sent, weights);
            while let (Some((four, others)), Some((w, rest))) = (sent.split_first_chunk::<ABREAST>(), weights.split_first_chunk()) {
                add_four(sums, four.map(|s| &s[from..from + out.len()]), *w);
                (sent, weights) = (others, rest);
            }
            for (sent, weight) in sent.iter().zip(weights) {
                add_scaled(sums, &sent[from..from + out.len()], *weight);
            }
            divide(sums, total, out);
        }
    });
}

/// `sum_k weights[k] * sent[k][i] / sum_k weights[k]` of numbers that are not rounded to `f32`: the loop behind every
/// weighted mean of parameters, for checking it more closely than `f32` allows.
pub fn weighted_mean_f64(sent: &[&[f64]], weights: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; sent.first().map_or(0, |s| s.len())];
    for (sent, weight) in sent.iter().zip(weights) {
        add_scaled(&mut sums, sent, *weight);
    }
    let total: f64 = weights.iter().sum();
    sums.iter().map(|sum| sum / total).collect()
}

/// A weighted mean in progress: the same bits as [`weighted_mean`], one sender at a time.
#[derive(Debug, Default)]
pub(crate) struct RunningMean {
    sums: Vec<f64>,
    total: f64,
}

impl RunningMean {
    pub(crate) fn add(&mut self, sent: &[f32], weight: f64) {
        if self.sums.is_empty() {
            self.sums = vec![0.0; sent.len()];
        }
        self.total += weight;
        add_scaled(&mut self.sums, sent, weight);
    }

    pub(crate) fn finish(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.sums.len()];
        divide(&self.sums, self.total, &mut out);
        out
    }
}

/// Declares a loop that is compiled twice, plainly and for AVX2, and chosen at run time. The compiler never fuses a
/// multiplication with an addition by itself, so both give the same bits.
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
                    // SAFETY: the processor has just said that it has AVX2, the only demand of `avx2`.
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
    /// `sums += w[0] * sent[0]`, then `+= w[1] * sent[1]` and so on: the bits of one after the other
    fn add_four[](sums: &mut [f64], sent: [&[f32]; ABREAST], w: [f64; ABREAST]) {
        let [a, b, c, d] = sent;
        for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let ab = (*sum + w[0] * f64::from(*a)) + w[1] * f64::from(*b);
            *sum = (ab + w[2] * f64::from(*c)) + w[3] * f64::from(*d);
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
        let sent: Vec<Vec<f32>> = (0..7)
            .map(|_| (0..n).map(|_| draws.normal() as f32).collect())
            .collect();
        let weights = [3.0, 1.0, 0.0, 20.5, 7.25, 1e-3, 11.0];
        let views: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        let mut out = vec![0.0; n];
        weighted_mean(&views, &weights, &mut out, &Serial);
        let mut running = RunningMean::default();
        for (s, w) in sent.iter().zip(weights) {
            running.add(s, w);
        }
        let folded = running.finish();
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
}
