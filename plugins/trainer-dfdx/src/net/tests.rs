use super::*;
use fl_core::TaskKind;
use fl_core::settings::read_yaml;

fn task(input: &[usize], classes: usize) -> Task {
    Task {
        input: input.to_vec(),
        kind: TaskKind::Classes(classes),
    }
}

fn net(yaml: &str, input: &[usize], classes: usize) -> Result<Net> {
    Net::new(&read_yaml(yaml)?, &task(input, classes))
}

fn error(yaml: &str, input: &[usize]) -> String {
    format!("{:#}", net(yaml, input, 10).unwrap_err())
}

/// FedKT's and FedKD's counts are the published ones (`bandwidth.json`); the others follow from the papers' layers.
#[test]
fn exact_numbers_of_parameters() {
    for (name, input, classes, count) in [
        ("lenet", [1, 28, 28], 10, 44_426),
        ("lenet", [3, 32, 32], 10, 62_006),
        ("resnet-8", [3, 32, 32], 10, 78_042),
        ("resnet-8", [3, 32, 32], 100, 83_892),
        ("resnet-8-wide", [3, 32, 32], 10, 4_911_754),
        ("resnet-8-wide", [3, 32, 32], 100, 5_096_164),
        ("vgg-9", [3, 32, 32], 10, 3_491_530),
        ("selective-fd-a", [1, 28, 28], 10, 21_840),
        ("selective-fd-b", [1, 28, 28], 10, 128_778),
        ("selective-fd-c", [1, 28, 28], 10, 48_874),
        ("selective-fd-d", [1, 28, 28], 10, 1_462_538),
        ("selective-fd-e", [1, 28, 28], 10, 1_863_690),
        ("mlp", [1, 28, 28], 10, 1_462_538),
        ("mlp-wide", [1, 28, 28], 10, 1_863_690),
        ("logistic", [1, 28, 28], 10, 7_850),
    ] {
        assert_eq!(
            net(name, &input, classes).unwrap().weights(),
            count,
            "{name}"
        );
    }
    assert_eq!(
        net("resnet-8-wide", &[3, 32, 32], 10)
            .unwrap()
            .features_width(),
        2048,
        "FedKD's classifier"
    );
    assert!(
        presets::NAMES
            .iter()
            .all(|(name, _)| presets::layers(name).is_some())
    );
}

#[test]
fn a_list_is_the_network_it_spells() {
    let list = "[{conv: {out: 6, kernel: 5}}, relu, {pool: 2}, {conv: {out: 16, kernel: 5}}, relu, {max-pool: {kernel: 2, stride: 2}}, \
                flatten, linear: 120, relu, linear: 84, relu, linear: 10]";
    let (spelt, named) = (
        net(list, &[1, 28, 28], 10).unwrap(),
        net("lenet", &[1, 28, 28], 10).unwrap(),
    );
    assert_eq!(spelt.weights(), named.weights());
    let names = |n: &Net| {
        n.entries()
            .iter()
            .map(|e| format!("{} {:?}", e.name, e.shape))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&named)[..3],
        [
            "0.weight [6, 1, 5, 5]",
            "0.bias [6]",
            "3.weight [16, 6, 5, 5]"
        ]
    );
    assert_eq!(names(&spelt).last().unwrap(), "11.bias [10]");
    let resnet = names(&net("resnet-8", &[3, 32, 32], 10).unwrap());
    assert_eq!(
        resnet[..5].join(", "),
        "0.weight [16, 3, 3, 3], 1.weight [16], 1.bias [16], 1.running_mean [16], 1.running_var [16]"
    );
    assert!(
        resnet.contains(&"4.shortcut.0.weight [32, 16, 1, 1]".to_string()),
        "{resnet:?}"
    );
}

#[test]
fn what_does_not_fit_is_named_with_its_place() {
    let image = [1, 8, 8];
    for (yaml, input, wanted) in [
        (
            "[{conv: {out: 4, kernel: 3}}, {pool: 2}, {conv: {out: 4, kernel: 5}}, outputs]",
            &image[..],
            "net: layer 2: conv: a kernel of 5x5 does not fit 3x3 with padding 0",
        ),
        (
            "[{conv: {out: 4, kernel: 3}}, outputs]",
            &[9],
            "net: layer 0: conv: wants an image [channels, height, width], got [9]",
        ),
        (
            "[linear: 3, {pool: 2}, outputs]",
            &image,
            "net: layer 1: pool: wants an image [channels, height, width], got [3]",
        ),
        (
            "[{pool: 9}, outputs]",
            &image,
            "net: layer 0: pool: a window of 9x9 does not fit 8x8",
        ),
        (
            "[{conv: {out: 4, kernel: 3, pad: 3}}, outputs]",
            &image,
            "net: layer 0: `conv.pad` must be less than kernel (3), got 3",
        ),
        (
            "[{dropout: 1.0}, outputs]",
            &image,
            "net: layer 0: `dropout` must be in 0.0..1.0, got 1.0",
        ),
        (
            "[linear: 7]",
            &image,
            "net: layer 0 (linear): the task has 10 outputs, but the last layer has 7",
        ),
        (
            "[linear: 10, relu]",
            &image,
            "net: layer 1: the last layer must be `outputs` or `linear: 10`",
        ),
        (
            "[]",
            &image,
            "net: a network needs at least one layer, such as `outputs`",
        ),
        (
            "[{residual: {body: [{conv: {out: 2, kernel: 3, pad: 1}}]}}, outputs]",
            &image,
            "net: layer 0: residual: the body gives [2, 8, 8], the shortcut [1, 8, 8]; both must be the same",
        ),
        (
            "[{residual: {body: [relu, {pool: 9}]}}, outputs]",
            &image,
            "net: layer 0: layer 0.body.1: pool: a window of 9x9 does not fit 8x8",
        ),
        (
            "lenet",
            &[784],
            "net `lenet`: layer 0: conv: wants an image [channels, height, width], got [784]",
        ),
    ] {
        assert_eq!(error(yaml, input), wanted);
    }
    let misspelt = error("lennet", &image);
    assert!(
        misspelt.starts_with(
            "no network is called `lennet`; did you mean `lenet`? known: lenet, selective-fd-a"
        ),
        "{misspelt}"
    );
    assert!(error("[rely]", &image).contains("did you mean `relu`?"));
}

#[test]
fn first_weights_are_pytorchs_and_depend_on_their_name_alone() {
    let stream = Stream::root(5);
    let small = net("[linear: 50, relu, outputs]", &[200], 10).unwrap();
    let (weights, _) = small.start(&stream);
    let first = &weights[..10_050];
    let reach = 1.0 / 200f32.sqrt();
    assert!(first.iter().all(|w| w.abs() <= reach) && first.iter().any(|w| w.abs() > 0.99 * reach));
    let variance = first.iter().map(|w| w * w).sum::<f32>() / first.len() as f32;
    assert!(
        (variance / (reach * reach / 3.0) - 1.0).abs() < 0.05,
        "a uniform variable has a third of its squared reach"
    );
    let other = net("[linear: 50, relu, linear: 7, outputs]", &[200], 10).unwrap();
    assert_eq!(other.start(&stream).0[..10_050], *first);
    let (w, b) = net(
        "[{conv: {out: 2, kernel: 1}}, batch-norm, outputs]",
        &[1, 2, 2],
        2,
    )
    .unwrap()
    .start(&stream);
    assert_eq!(
        (&w[4..8], &b[..]),
        (&[1.0, 1.0, 0.0, 0.0][..], &[0.0, 0.0, 1.0, 1.0][..])
    );
}

/// The whole of a small residual network with everything in it, by finite differences in the input and in every weight.
#[test]
fn a_whole_network_has_the_derivative_that_differences_say() {
    use crate::tape::Key;
    let yaml = "[{conv: {out: 3, kernel: 3, pad: 1, bias: false}}, batch-norm, tanh, \
                {residual: {body: [{conv: {out: 4, kernel: 3, stride: 2, pad: 1}}, tanh], shortcut: [{conv: {out: 4, kernel: 1, stride: 2}}]}}, \
                {upsample: 2}, {average-pool: 2}, {leaky-relu: 0.1}, standardise, linear: 8, sigmoid, {unflatten: [2, 2, 2]}, \
                {transposed-conv: {out: 2, kernel: 3, stride: 2, pad: 1}}, outputs]";
    let net = net(yaml, &[2, 6, 6], 3).unwrap();
    let (start, buffers) = net.start(&Stream::root(4));
    let mut draws = Stream::root(9).draws();
    let x: Vec<f32> = (0..4 * 72).map(|_| draws.normal() as f32).collect();
    let c: Vec<f32> = (0..12).map(|_| draws.normal() as f32).collect();
    let run = |record: &mut Record, x: &[f32], w: &[f32], keys: [Option<&Key>; 2]| {
        let weights = Weights {
            data: Arc::new(w.to_vec()),
            key: keys[1].cloned(),
        };
        let (mut buffers, stream) = (buffers.clone(), Stream::root(0));
        let x = batch(x.to_vec().into(), &[2, 6, 6], keys[0].cloned()).unwrap();
        net.forward(record, x, &weights, &mut Mode::Train(&mut buffers, &stream))
            .unwrap()
    };
    let score = |x: &[f32], w: &[f32]| -> f64 {
        let y = run(&mut Record::off(), x, w, [None, None]);
        y.data.iter().zip(&c).map(|(y, c)| f64::from(y * c)).sum()
    };
    let slope = |by_input: bool| {
        let (key, mut record) = (Key::new(), Record::on());
        let keys = if by_input {
            [Some(&key), None]
        } else {
            [None, Some(&key)]
        };
        let y = run(&mut record, &x, &start, keys);
        let room = if by_input {
            vec![]
        } else {
            vec![f32::NAN; start.len()]
        };
        record.backward(&y, c.clone(), &key, room).unwrap()
    };
    let compare = |what: &str, exact: &[f32], values: &[f32], score: &dyn Fn(&[f32]) -> f64| {
        let mut off = 0;
        for (i, e) in exact.iter().enumerate() {
            let moved = |d: f32| {
                let mut v = values.to_vec();
                v[i] += d;
                score(&v)
            };
            let n = (moved(5e-3) - moved(-5e-3)) / 1e-2;
            // the relu at the end of the block bends for some inputs; there the difference is between the two slopes
            off += usize::from((n - f64::from(*e)).abs() > 2e-3 * (1.0 + n.abs()));
        }
        assert!(
            off * 50 <= exact.len(),
            "{what}: {off} of {} differ",
            exact.len()
        );
    };
    compare("input", &slope(true), &x, &|x| score(x, &start));
    compare("weights", &slope(false), &start, &|w| score(&x, w));
}

/// By the definition: every input pixel adds the kernel, times itself, to what it reaches.
#[test]
fn a_transposed_convolution_is_pytorchs() {
    let net = net(
        "[{transposed-conv: {out: 2, kernel: 4, stride: 2, pad: 1}}]",
        &[3, 3, 4],
        2 * 6 * 8,
    );
    // such an end is a generator's
    assert!(net.unwrap_err().to_string().contains("net"));
    let list: Vec<Layer> = read_yaml(
        "[{unflatten: [3, 3, 4]}, {transposed-conv: {out: 2, kernel: 4, stride: 2, pad: 1}}]",
    )
    .unwrap();
    let net = Net::maker(&list, 36, &[2, 6, 8]).unwrap();
    let names: Vec<&str> = net.entries().iter().map(|e| &*e.name).collect();
    assert_eq!(names, ["1.weight", "1.bias"]);
    let (weights, buffers) = net.start(&Stream::root(3));
    let mut draws = Stream::root(4).draws();
    let x: Vec<f32> = (0..36).map(|_| draws.normal() as f32).collect();
    let frozen = Weights {
        data: Arc::new(weights.clone()),
        key: None,
    };
    let input = batch(x.clone().into(), &[36], None).unwrap();
    let mut mode = Mode::Evaluate(&buffers);
    let made = net.forward(&mut Record::off(), input, &frozen, &mut mode);
    let mut wanted = vec![0.0f32; 96];
    for (o, plane) in wanted.chunks_mut(48).enumerate() {
        plane.fill(weights[2 * 3 * 16 + o]);
        for (i, y, at) in (0..36).map(|n| (n / 12, n / 4 % 3, n % 4)) {
            for (ky, kx) in (0..16).map(|k| (k / 4, k % 4)) {
                let (row, column) = (2 * y + ky, 2 * at + kx);
                if (1..7).contains(&row) && (1..9).contains(&column) {
                    let turned = weights[((o * 3 + i) * 4 + 3 - ky) * 4 + 3 - kx];
                    plane[(row - 1) * 8 + column - 1] += turned * x[(i * 3 + y) * 4 + at];
                }
            }
        }
    }
    for (a, b) in made.unwrap().data.iter().zip(&wanted) {
        assert!((a - b).abs() < 1e-5, "{a}, by definition {b}");
    }
}

/// One score for each patch: the scores are a convolution's.
#[test]
fn a_network_may_end_in_a_convolution() {
    let patches = "[{conv: {out: 4, kernel: 4, stride: 2, pad: 1}}, {leaky-relu: 0.2}, {conv: {out: 1, kernel: 3, pad: 1}}]";
    let found = net(patches, &[1, 8, 8], 16).unwrap();
    assert_eq!(found.features_width(), 64);
    let wrong = format!("{:#}", net(patches, &[1, 8, 8], 10).unwrap_err());
    assert_eq!(
        wrong,
        "net: layer 2: the last layer gives [1, 4, 4], 16 numbers, and the task has 10 outputs"
    );
}

#[test]
fn a_network_that_is_too_large_is_refused_before_any_memory_is_taken() {
    for huge in [
        "[{linear: 1000000000000}, relu, outputs]",
        "[{upsample: 4000000000}, flatten, outputs]",
        "[{conv: {out: 18446744073709551615, kernel: 1}}, outputs]",
        "[{conv: {out: 1, kernel: 18446744073709551615, pad: 18446744073709551614}}, outputs]",
    ] {
        let error = error(huge, &[1, 4, 4]);
        assert!(error.contains("268435456"), "{huge}: {error}");
    }
}
