//! Times `density-ratio`'s estimator and prints JSON lines: what `tests/bench/kulsif_numpy.py`
//! compares with.
//!
//! `kulsif mnist IMAGES(u8 rows, 6,270 x 784) N_U REPEATS`: fit to the first 270 images, score the
//! other 6,000; uniform points in the box of Selective-FD's demo, sigma 5. Writes the ratios to
//! IMAGES.w (f64), for comparison, and the uniform points to IMAGES.u (f32).
//!
//! `kulsif landmarks FEATURES N_U M REPEATS`: exact and landmark fits on made-up features; seconds,
//! Spearman, AUROC.

use anyhow::{Context, Result, bail, ensure};
use fl_core::metrics::auc;
use fl_core::{Inputs, Samples, Stream};
use fl_plugin_sample_selectors::{Method, Ratios};
use ndarray::{Array2, s};
use std::io::Write;
use std::time::Instant;

/// Selective-FD's box: MNIST's pixels, normalised with mean 0.1307 and standard deviation 0.3081.
const BOX: (f32, f32) = (-0.4242, 2.82157);

fn uniform(n: usize, width: usize, (low, high): (f32, f32), stream: &Stream) -> Array2<f32> {
    let mut draws = stream.draws();
    Array2::from_shape_simple_fn((n, width), || low + (high - low) * draws.uniform() as f32)
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed().as_secs_f64()))
}

fn mnist(path: &str, n: usize, repeats: usize) -> Result<()> {
    let data = std::fs::read(path).with_context(|| path.to_string())?;
    ensure!(
        data.len() == 6_270 * 784,
        "6,270 images of 784 bytes are needed"
    );
    let inputs = Inputs::Bytes {
        shape: [1, 28, 28],
        data,
        mean: vec![0.1307],
        std: vec![0.3081],
    };
    let images = Samples::all(inputs.into()).values();
    let (own, proxy) = (images.slice(s![..270, ..]), images.slice(s![270.., ..]));
    let u = uniform(n, 784, BOX, &Stream::root(1));
    for repeat in 0..repeats {
        let beta = libm::pow(n as f64, -0.5);
        let (ratios, fit) = timed(|| Ratios::fit(u.view(), &[own], 5.0, beta, Method::Exact))?;
        let (w, score) = timed(|| ratios.of(proxy))?;
        writeln!(
            std::io::stdout(),
            r#"{{"n_u": {n}, "fit": {fit}, "score": {score}}}"#
        )?;
        if repeat == 0 {
            let bytes: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
            std::fs::write(format!("{path}.w"), bytes)?;
            let bytes: Vec<u8> = u.iter().flat_map(|u| u.to_le_bytes()).collect();
            std::fs::write(format!("{path}.u"), bytes)?;
        }
    }
    Ok(())
}

/// Rank of each value, mean rank on ties.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let first = order.iter().position(|at| *at == tied[0]).unwrap_or(0) as f64;
        tied.iter()
            .for_each(|at| ranks[*at] = first + (tied.len() - 1) as f64 / 2.0);
    }
    ranks
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let cov = |x: &[f64], y: &[f64], mx, my| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    cov(a, b, ma, mb) / (cov(a, a, ma, ma) * cov(b, b, mb, mb)).sqrt()
}

/// Two classes of features, each two lumps; the client has one class, and the pool has both.
fn landmarks(width: usize, n: usize, m: usize, repeats: usize) -> Result<()> {
    for repeat in 0..repeats {
        let stream = Stream::root(repeat as u64);
        let mut draws = stream.child("data", 0).draws();
        let mut class = |class: usize, rows: usize| {
            Array2::from_shape_fn((rows, width), |(i, j)| {
                let lump = 2 * class + i % 2;
                let centre = if (j + lump) % 4 < 2 { 1.0 } else { -0.5 };
                (centre * if lump == 3 { 0.6 } else { 1.0 } + draws.normal()) as f32
            })
        };
        let (own, mine, other) = (class(0, 270), class(0, 1500), class(1, 1500));
        let u = uniform(n, width, (-4.0, 4.0), &stream.child("uniform", 0));
        let pool = ndarray::concatenate(ndarray::Axis(0), &[mine.view(), other.view()])?;
        let sigma = 1.5 * (width as f64).sqrt();
        let beta = libm::pow(n as f64, -0.5);
        let run = |method| timed(|| Ratios::fit(u.view(), &[own.view()], sigma, beta, method));
        let (exact, slow) = run(Method::Exact)?;
        let choice = stream.child("landmarks", 0);
        let (short, fast) = run(Method::Landmarks(m, &choice))?;
        let w = |ratios: &Ratios| {
            Ok::<_, anyhow::Error>(ratios.of(pool.view())?.into_raw_vec_and_offset().0)
        };
        let ((a, slow_score), (b, fast_score)) = (timed(|| w(&exact))?, timed(|| w(&short))?);
        let spearman = correlation(&ranks(&a), &ranks(&b));
        let of_pool = || (0..pool.nrows()).map(|i| i8::from(i < mine.nrows()));
        let area = |w: &[f64]| {
            auc(w.iter().map(|w| *w as f32), of_pool()).context("both classes are there")
        };
        writeln!(
            std::io::stdout(),
            r#"{{"features": {width}, "n_u": {n}, "landmarks": {m}, "exact": {slow}, "fast": {fast}, "ratio": {:.1}, "score exact": {slow_score}, "score fast": {fast_score}, "spearman": {spearman:.5}, "auroc exact": {:.4}, "auroc fast": {:.4}}}"#,
            slow / fast,
            area(&a)?,
            area(&b)?
        )?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["mnist", path, n, repeats] => mnist(path, n.parse()?, repeats.parse()?),
        ["landmarks", width, n, m, repeats] => {
            landmarks(width.parse()?, n.parse()?, m.parse()?, repeats.parse()?)
        }
        _ => bail!("kulsif mnist IMAGES N_U REPEATS | kulsif landmarks FEATURES N_U M REPEATS"),
    }
}
