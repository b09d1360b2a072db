//! Convolutions.

use super::*;

fn naive_conv(x: &[f32], w: &[f32], b: &[f32], s: &ConvShape) -> Vec<f32> {
    let mut out = Vec::new();
    for sample in x.chunks(s.channels * s.height * s.width) {
        for (o, bias) in b.iter().enumerate() {
            for oy in 0..s.out_height() {
                for ox in 0..s.out_width() {
                    let mut sum = f64::from(*bias);
                    for c in 0..s.channels {
                        for ky in 0..s.kernel {
                            for kx in 0..s.kernel {
                                let (y, x) = (oy * s.stride + ky, ox * s.stride + kx);
                                if y < s.pad
                                    || x < s.pad
                                    || y - s.pad >= s.height
                                    || x - s.pad >= s.width
                                {
                                    continue;
                                }
                                let at = (c * s.height + y - s.pad) * s.width + x - s.pad;
                                let tap = ((o * s.channels + c) * s.kernel + ky) * s.kernel + kx;
                                sum += f64::from(sample[at]) * f64::from(w[tap]);
                            }
                        }
                    }
                    out.push(sum as f32);
                }
            }
        }
    }
    out
}

/// Channels, height, width, out, kernel, stride, pad. They cover every residue of the inner loops'
/// blocks, strides with and without a remainder, and kernels below and above the stride.
const CONVS: [[usize; 7]; 12] = [
    [1, 5, 5, 1, 1, 1, 0],
    [3, 8, 8, 5, 3, 1, 1],
    [2, 9, 8, 4, 3, 2, 1],
    [2, 8, 9, 3, 3, 2, 0],
    [4, 7, 7, 6, 1, 2, 0],
    [1, 12, 12, 6, 5, 1, 0],
    [2, 6, 7, 7, 5, 1, 1],
    [2, 6, 6, 2, 5, 1, 4],
    [1, 10, 11, 3, 2, 3, 0],
    [2, 11, 10, 3, 4, 3, 2],
    [1, 4, 4, 2, 4, 1, 0],
    [1, 9, 33, 2, 3, 1, 1],
];

#[test]
fn a_convolution_is_the_plain_loop_and_its_derivative_the_difference() {
    for [channels, height, width, out, kernel, stride, pad] in CONVS {
        let s = ConvShape {
            channels,
            height,
            width,
            out,
            kernel,
            stride,
            pad,
        };
        let n = s.out * s.taps();
        let x = value(
            random(3 * channels * height * width, 1),
            &[channels, height, width],
        );
        let w = random(n + out, 2);
        let weights = Weights {
            data: Arc::new(w.clone()),
            key: None,
        };
        let y = conv2d(
            &mut Record::off(),
            &x,
            &weights,
            &s,
            0..n,
            Some(n..n + out),
            false,
        );
        assert_eq!(
            (y.rows, &y.shape[..]),
            (3, &[out, s.out_height(), s.out_width()][..])
        );
        for (i, (a, b)) in y
            .data
            .iter()
            .zip(naive_conv(&x.data, &w[..n], &w[n..], &s))
            .enumerate()
        {
            assert!(
                (a - b).abs() < 1e-5 * (1.0 + b.abs()),
                "{s:?}: {i} is {a}, the loop says {b}"
            );
        }
        check(&format!("{s:?}"), &x, w, 2e-3, |r, x, w| {
            conv2d(r, x, w, &s, 0..n, Some(n..n + out), false)
        });
        check(
            &format!("no bias {s:?}"),
            &x,
            random(n, 3),
            2e-3,
            |r, x, w| conv2d(r, x, w, &s, 0..n, None, false),
        );
    }
}

#[test]
fn many_samples_are_worked_on_in_groups() {
    let s = ConvShape {
        channels: 3,
        height: 32,
        width: 32,
        out: 8,
        kernel: 3,
        stride: 1,
        pad: 1,
    };
    let (n, rows) = (s.out * s.taps(), 9);
    let x = value(random(rows * 3 * 1024, 4), &[3, 32, 32]);
    let all = Weights {
        data: Arc::new(random(n, 5)),
        key: Some(Key::new()),
    };
    let slope = random(rows * 8 * 1024, 6);
    let gradient = |x: &Value, slope: &[f32]| {
        let mut record = Record::on();
        let y = conv2d(&mut record, x, &all, &s, 0..n, None, false);
        record
            .backward(&y, slope.to_vec(), all.key.as_ref().unwrap(), vec![0.0; n])
            .unwrap()
    };
    let mut sum = vec![0.0; n];
    for (sample, slope) in x.data.chunks(3 * 1024).zip(slope.chunks(8 * 1024)) {
        gradient(&value(sample.to_vec(), &[3, 32, 32]), slope)
            .iter()
            .zip(&mut sum)
            .for_each(|(g, s)| *s += g);
    }
    for (a, b) in gradient(&x, &slope).iter().zip(&sum) {
        assert!((a - b).abs() < 1e-3 * (1.0 + b.abs()), "{a} {b}");
    }
}
