//! Words, windows of words, and the largest number over a text.

use super::*;

#[test]
fn an_embedding_looks_rows_up_and_sums_their_gradients() {
    let words = Value {
        key: None,
        ..value(vec![2.0, 0.0, 5.0, 2.0, 1.0, 0.0], &[3])
    };
    let w = random(5 * 4 + 1, 2);
    let weights = Weights {
        data: Arc::new(w.clone()),
        key: None,
    };
    let y = embedding(&mut Record::off(), &words, &weights, 1..21, 4).unwrap();
    assert_eq!((y.rows, &y.shape[..]), (2, &[3, 4][..]));
    for (at, n) in words.data.iter().enumerate() {
        let due = match *n as usize {
            0 => [0.0; 4].to_vec(),
            n => w[1 + (n - 1) * 4..][..4].to_vec(),
        };
        assert_eq!(y.data[at * 4..][..4], due);
    }
    // words have no slope, so a value with a slope is added
    let x = value(random(24, 3), &[3, 4]);
    check("embedding", &x, w[1..].to_vec(), 2e-3, |r, x, w| {
        let rows = embedding(r, &words, w, 0..20, 4).unwrap();
        add(r, &rows, x, false)
    });
}

#[test]
fn a_convolution_along_words_is_the_plain_loop_and_its_derivative_the_difference() {
    for [words, channels, out, kernel] in [
        [1usize, 1, 1, 1],
        [5, 3, 4, 2],
        [7, 2, 5, 7],
        [12, 9, 17, 3],
        [9, 4, 2, 1],
    ] {
        let windows = words + 1 - kernel;
        let counts = vec![windows, 1, windows.div_ceil(2)];
        let n = out * kernel * channels;
        let x = value(random(3 * words * channels, 1), &[words, channels]);
        let w = random(n + out, 2);
        let weights = Weights {
            data: Arc::new(w.clone()),
            key: None,
        };
        let run = |r: &mut Record, x: &Value, w: &Weights| {
            conv1d(r, x, w, [0..n, n..n + out], kernel, counts.clone())
        };
        let y = run(&mut Record::off(), &x, &weights);
        assert_eq!((y.rows, &y.shape[..]), (3, &[windows, out][..]));
        for (at, found) in y.data.iter().enumerate() {
            let (sample, window, o) = (at / (windows * out), at / out % windows, at % out);
            let tap = |i: usize| {
                let from = (sample * words + window) * channels + i;
                f64::from(x.data[from]) * f64::from(w[o * kernel * channels + i])
            };
            let sum = (0..kernel * channels).map(tap).sum::<f64>() + f64::from(w[n + o]);
            let due = if window < counts[sample] { sum } else { 0.0 };
            assert!(
                (f64::from(*found) - due).abs() < 1e-5,
                "{at}: {found}, the loop says {due}"
            );
        }
        let name = format!("conv1d of {words} words");
        check(&name, &x, w, 2e-3, run);
    }
}

#[test]
fn the_largest_over_a_text_is_the_plain_loop_and_its_derivative_the_difference() {
    let x = value(spaced(3 * 6 * 4, 1), &[6, 4]);
    let counts = [6, 1, 4];
    let y = max_over_time(&mut Record::off(), &x, &counts);
    assert_eq!((y.rows, &y.shape[..]), (3, &[4][..]));
    for (at, found) in y.data.iter().enumerate() {
        let (sample, c) = (at / 4, at % 4);
        let numbers = (0..counts[sample]).map(|p| x.data[(sample * 6 + p) * 4 + c]);
        assert_eq!(*found, numbers.fold(f32::MIN, f32::max));
    }
    check("max over time", &x, vec![], 2e-3, |r, x, _| {
        max_over_time(r, x, &counts)
    });
}

#[test]
fn over_a_text_the_first_of_equals_wins_and_a_nan_shows() {
    let x = value(vec![1.0, f32::NAN, 3.0, 2.0, 3.0, 7.0, 9.0, 9.0], &[4, 2]);
    let mut record = Record::on();
    let y = max_over_time(&mut record, &x, &[3]);
    assert!(y.data[0] == 3.0 && y.data[1].is_nan());
    let back = record.backward(&y, vec![5.0, 6.0], x.key.as_ref().unwrap(), Vec::new());
    assert_eq!(back.unwrap(), [0.0, 6.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
