//! Kernels with one fault each. Each is refused, or gives other bits than the processor.

use crate::cuda::driver::{Card, Position, Queue};
use crate::cuda::linear::{Matrix, product};
use crate::cuda::{self, conv, modules};
use fl_core::{Result, Stream};
use fl_nets::ops::ConvShape;
use std::sync::Arc;

/// Replaces `from` once in the text of one kernel.
fn changed(kernel: &str, from: &str, to: &str) -> Vec<String> {
    rewritten(kernel, |body| {
        assert!(body.contains(from), "`{kernel}` has no `{from}`");
        body.replacen(from, to, 1)
    })
}

/// Returns all modules, with the text of one kernel changed by `f`.
fn rewritten(kernel: &str, f: impl Fn(&str) -> String) -> Vec<String> {
    let entry = format!(".visible .entry {kernel}(");
    let one = |text: &str| match text.split_once(&entry) {
        None => text.to_string(),
        Some((before, rest)) => {
            let end = rest.find("\n}").unwrap() + 2;
            format!("{before}{entry}{}{}", f(&rest[..end]), &rest[end..])
        }
    };
    modules().unwrap().iter().map(|text| one(text)).collect()
}

/// Returns the results of a convolution forward and backward, and of a product of long sums.
fn work(modules: &[String]) -> Result<Vec<f32>> {
    let queue = Queue::new(Arc::new(Card::with_kernels(0, modules)?), None)?;
    let draws = &mut Stream::root(3).draws();
    let shape = ConvShape {
        channels: 2,
        height: 9,
        width: 7,
        out: 3,
        kernel: 3,
        stride: 1,
        pad: 1,
    };
    let n = shape.out * shape.taps();
    let upload = |n: usize, draws: &mut fl_core::Draws| queue.upload(&super::numbers(n, draws));
    let mut record = cuda::Record::new(true);
    let gradient = Arc::new(queue.room(n + 3)?);
    let weights = cuda::Weights {
        data: Arc::new(upload(n + 3, draws)?),
        gradient: Some(gradient.clone()),
    };
    let key = Some(record.key());
    let x = cuda::Value {
        data: Arc::new(upload(5 * 126, draws)?),
        rows: 5,
        shape: vec![2, 9, 7],
        key,
    };
    let tensors = (0..n, Some(n..n + 3));
    let y = conv::conv2d(&queue, &mut record, &x, &weights, &shape, tensors, false)?;
    let slope = upload(y.data.len(), draws)?;
    let back = record
        .backward(&queue, &y, slope, key)?
        .expect("a gradient");
    let mut products = Vec::new();
    for [m, k, n] in [[70, 600, 66], [20, 600, 30]] {
        let (a, b, c) = (
            upload(m * k, draws)?,
            upload(k * n, draws)?,
            queue.room(m * n)?,
        );
        let both = [
            Matrix::new(Position(&a, 0), k),
            Matrix::new(Position(&b, 0), n),
        ];
        product(&queue, [m, k, n], both, None, false, Position(&c, 0), None)?;
        products.extend(queue.download(&c, 0, m * n)?);
    }
    let mut all = products;
    for buffer in [&*y.data, &back, &gradient] {
        all.extend(queue.download(buffer, 0, buffer.len())?);
    }
    Ok(all)
}

/// Returns the results of the unchanged kernels; the operations' own tests compare them with the
/// processor.
fn right() -> Vec<f32> {
    work(&modules().unwrap()).unwrap()
}

/// Checks that a mutant is refused.
fn refused(modules: &[String], wanted: &str) {
    let why = format!("{:#}", work(modules).unwrap_err());
    assert!(why.contains(wanted), "{why}");
}

#[test]
fn an_atomic_addition_is_refused() {
    let modules = changed("conv_back_weight", "st.global.f32", "red.global.add.f32");
    refused(&modules, "kernel `conv_back_weight`: an atomic instruction");
}

#[test]
fn a_sum_that_may_be_contracted_is_refused() {
    let modules = changed("conv_forward", "add.rn.f32", "add.f32");
    refused(
        &modules,
        "kernel `conv_forward`: arithmetic that may be contracted",
    );
}

#[test]
fn a_missing_barrier_is_refused() {
    let barrier = "bar.sync \t0;";
    for kernel in ["product_blocks", "product_wide"] {
        let linear = &modules().unwrap()[1];
        let original = linear.split_once(&format!(".entry {kernel}(")).unwrap().1;
        let all = original[..original.find("\n}").unwrap()]
            .matches(barrier)
            .count();
        assert_eq!(all, 2, "{kernel}");
        for which in 0..all {
            let modules = rewritten(kernel, |body| {
                let mut parts = body.split(barrier);
                let first = parts.next().unwrap().to_string();
                parts.enumerate().fold(first, |text, (at, part)| {
                    let kept = if at == which { "" } else { barrier };
                    text + kept + part
                })
            });
            refused(&modules, &format!("kernel `{kernel}`: "));
        }
    }
}

#[test]
fn an_index_out_of_range_is_refused() {
    // the last thread of the last block
    let modules = changed("conv_forward", "setp.ge.s32", "setp.gt.s32");
    refused(
        &modules,
        "kernel `conv_forward`: an access outside the buffers",
    );
    let modules = changed("conv_back_input", "setp.ge.s32", "setp.gt.s32");
    refused(
        &modules,
        "kernel `conv_back_input`: an access outside the buffers",
    );
}

/// Returns the registers of an instruction, if it has this name.
fn registers<'a>(line: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let list = line.trim().strip_prefix(name)?.trim_end_matches(';');
    Some(list.split(',').map(str::trim).collect())
}

/// Returns all modules, with each instruction of this name in one kernel rewritten by `f` from its
/// registers.
fn each(kernel: &str, name: &str, f: impl Fn(&[&str]) -> String) -> Vec<String> {
    rewritten(kernel, |body| {
        let line = |line: &str| match registers(line, name) {
            Some(found) => f(&found),
            None => line.to_string(),
        };
        let lines: Vec<String> = body.lines().map(line).collect();
        lines.join("\n")
    })
}

/// Checks that a mutant runs and gives other bits than the unchanged kernels.
fn found(modules: &[String]) {
    assert!(super::differ(&right(), &work(modules).unwrap()).is_some());
}

#[test]
fn a_product_that_is_rounded_before_its_sum_is_found() {
    for kernel in [
        "conv_forward",
        "conv_back_input",
        "conv_back_weight_lanes",
        "product_blocks",
        "product_wide",
    ] {
        let modules = each(kernel, "fma.rn.f32", |r| {
            let product = format!("mul.rn.f32 %mutant0, {}, {};", r[1], r[2]);
            format!("{product} add.rn.f32 {}, %mutant0, {};", r[0], r[3])
        });
        let modules: Vec<String> = modules
            .iter()
            .map(|text| text.replace(".reg .f32 ", ".reg .f32 %mutant<1>;\n.reg .f32 "))
            .collect();
        found(&modules);
    }
}

#[test]
fn a_product_that_is_rounded_with_its_sum_is_found() {
    // a + b as fma(a, 1 + 2^-23, b)
    found(&each("conv_back_weight", "add.rn.f32", |r| {
        format!("fma.rn.f32 {}, {}, 0f3F800001, {};", r[0], r[1], r[2])
    }));
}

#[test]
fn a_sum_in_another_order_is_found() {
    // of two sums a + b and c + d in sequence: a + d and c + b
    found(&rewritten("conv_back_weight", |body| {
        let mut lines: Vec<String> = body.lines().map(String::from).collect();
        let mut before = None::<usize>;
        for at in 0..lines.len() {
            let Some(second) = registers(&lines[at].clone(), "add.rn.f32").map(owned) else {
                continue;
            };
            let Some(one) = before.take() else {
                before = Some(at);
                continue;
            };
            let first = registers(&lines[one], "add.rn.f32").map(owned).unwrap();
            if second.contains(&first[0]) {
                continue;
            }
            let sum = |to: &str, a: &str, b: &str| format!("add.rn.f32 {to}, {a}, {b};");
            let both = [
                sum(&first[0], &first[1], &second[2]),
                sum(&second[0], &second[1], &first[2]),
            ];
            lines[one] = String::new();
            lines[at] = both.join(" ");
        }
        lines.join("\n")
    }));
}

fn owned(list: Vec<&str>) -> Vec<String> {
    list.into_iter().map(String::from).collect()
}

#[test]
fn the_first_use_of_a_card_finds_a_kernel_with_other_bits() {
    let original = Arc::new(Card::with_kernels(0, &modules().unwrap()).unwrap());
    original.checked().unwrap();
    let fused = |kernel| {
        each(kernel, "add.rn.f32", |r| {
            format!("fma.rn.f32 {}, {}, 0f3F800001, {};", r[0], r[1], r[2])
        })
    };
    for kernel in [
        "conv_back_weight",
        "activate",
        "adam",
        "embedding_back",
        "upsample_back",
    ] {
        let card = Arc::new(Card::with_kernels(0, &fused(kernel)).unwrap());
        let why = format!("{:#}", card.checked().unwrap_err());
        let card = "device: cuda: PTX interpreter (compute capability 7.0, driver for CUDA 12.1) ";
        assert!(why.starts_with(card), "{why}");
        assert!(why.contains(&format!("kernel `{kernel}`: ")), "{why}");
    }
}
