use super::*;
use fl_core::settings::read_yaml;
use fl_core::{Task, TaskKind};

fn made_for(yaml: &str, input: &[usize]) -> Result<NoiseNet> {
    let make = BuildContext {
        task: Task {
            input: input.to_vec(),
            kind: TaskKind::Classes(10),
        },
        stream: Stream::root(0),
    };
    NoiseNet::new(read_yaml(yaml)?, &make)
}

#[test]
fn what_makes_any_input_is_a_generator() {
    for net in [
        "affine",
        "mlp",
        "{layers: [{linear: 9}, tanh, {dropout: 0.1}, batch-norm, outputs]}",
    ] {
        let settings: NoiseToInput = read_yaml(&format!("{{net: {net}, noise: 3}}")).unwrap();
        fl_conformance::generator(move |make| NoiseNet::new(settings.clone(), make));
    }
}

#[test]
fn images_grow_from_noise() {
    for (net, input, parameters) in [
        // 100 -> 128x8x8, 2x128, 128->128 3x3, 2x128, 128->64 3x3, 2x64, 64->3 3x3, 2x3
        (
            "upsampling",
            [3, 32, 32],
            827_392 + 256 + 147_584 + 256 + 73_792 + 128 + 1_731,
        ),
        (
            "upsampling-small",
            [1, 28, 28],
            158_368 + 64 + 9_248 + 64 + 4_624 + 32 + 145,
        ),
    ] {
        let mut part = made_for(&format!("{{net: {net}}}"), &input).unwrap();
        assert_eq!(part.parameters(), parameters, "{net}");
        let made = part.sample(4, &Stream::root(1)).unwrap().values();
        let mean = made.mean().unwrap();
        let spread = (made.mapv(|v| v * v).mean().unwrap() - mean * mean).sqrt();
        assert!(
            mean.abs() < 0.1 && (spread - 1.0).abs() < 0.1,
            "{net}: {mean} +- {spread}"
        );
    }
}

#[test]
fn a_network_that_does_not_fit_is_named() {
    let wrong = |yaml: &str, input: &[usize]| format!("{:#}", made_for(yaml, input).err().unwrap());
    let said = wrong("{net: upsampling}", &[1, 30, 30]);
    assert!(said.contains("multiples of 4, not 30x30"), "{said}");
    assert!(wrong("{net: upsampling}", &[7]).contains("not [7]"));
    let said = wrong("{net: {layers: [{linear: 5}]}}", &[7]);
    assert!(
        said.contains("gives [5], 5 numbers, and inputs of [7] have 7"),
        "{said}"
    );
    let said = wrong("{net: affine, schedule: cosine}", &[7]);
    assert!(
        said.contains("schedule: cosine: it has no passes"),
        "{said}"
    );
}

/// Towards a given image: the slope of half the squared distance is the difference.
#[test]
fn it_goes_where_slopes_say() {
    let mut part = made_for(
        "{net: upsampling-small, noise: 4, optimiser: {adam: {lr: 0.01}}}",
        &[1, 8, 8],
    )
    .unwrap();
    let wanted = Array2::from_shape_fn((16, 64), |(_, j)| if j % 8 < 4 { 1.0 } else { -1.0 });
    let mut far = Vec::new();
    for step in 0..60 {
        let made = part.sample(16, &Stream::root(step)).unwrap();
        let off = made.values() - &wanted;
        far.push(off.mapv(|d| d * d).mean().unwrap());
        part.learn(&made, (off / 16.0).view()).unwrap();
    }
    assert!(far[59] < 0.2 * far[0], "{} to {}", far[0], far[59]);
}

#[test]
fn only_what_was_sampled_last_is_learnt_from() {
    let mut part = made_for("{net: mlp, noise: 2}", &[3]).unwrap();
    let first = part.sample(4, &Stream::root(1)).unwrap();
    let second = part.sample(4, &Stream::root(2)).unwrap();
    let ones = Array2::ones((4, 3));
    let state = part.save().unwrap();
    let said = part.learn(&first, ones.view()).unwrap_err().to_string();
    assert_eq!(said, "these inputs are not the last sampled ones");
    assert_eq!(part.save().unwrap(), state, "a refusal changes nothing");
    part.learn(&second, ones.view()).unwrap();
    assert!(
        part.learn(&second, ones.view()).is_err(),
        "it makes others now"
    );
}

#[test]
fn close_slopes_by_noise_are_those_of_what_is_made() {
    let net: NoiseToInput = read_yaml("{net: {layers: [{linear: 16}, {unflatten: [1, 4, 4]}, batch-norm, {upsample: 2}, {conv: {out: 1, kernel: 3, pad: 1}}, tanh]}}").unwrap();
    let network = Network::new(
        &net.net.layers(&[1, 8, 8]).unwrap(),
        (5, &[1, 8, 8]),
        (net.optimiser, net.schedule),
        &Stream::root(2),
    )
    .unwrap();
    let mut draws = Stream::root(3).draws();
    let noise = Array2::from_shape_simple_fn((3, 5), || draws.normal() as f32);
    let slope = Array2::from_shape_simple_fn((3, 64), || draws.normal() as f32);
    let found = network.vjp(noise.view(), slope.view()).unwrap();
    let sum = |noise: &Array2<f32>| {
        let made = network.make(noise.view()).unwrap();
        let each = made.iter().zip(&slope);
        each.map(|(m, s)| f64::from(*m) * f64::from(*s))
            .sum::<f64>()
    };
    for at in [(0, 0), (1, 3), (2, 4)] {
        let [up, down] = [0.01f32, -0.01].map(|by| {
            let mut moved = noise.clone();
            moved[at] += by;
            sum(&moved)
        });
        let wanted = (up - down) / 0.02;
        assert!(
            (f64::from(found[at]) - wanted).abs() < 0.02 * wanted.abs().max(0.1),
            "{at:?}: {} {wanted}",
            found[at]
        );
    }
    // each row is made independently of the others
    let alone = network.make(noise.slice(ndarray::s![1..2, ..])).unwrap();
    assert_eq!(alone.row(0), network.make(noise.view()).unwrap().row(1));
    let wrong = network.vjp(noise.view(), slope.slice(ndarray::s![..2, ..]));
    assert!(format!("{:#}", wrong.unwrap_err()).contains("a slope of (2, 64) for 3 rows of 64"));
}
