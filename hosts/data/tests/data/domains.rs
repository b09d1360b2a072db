use crate::section::errors;
use fl_core::settings::read_yaml;
use fl_core::{Examples, Stream};
use fl_data::{DataSpec, build};
use std::path::Path;

#[test]
fn every_client_is_tested_in_its_domain() {
    let spec: DataSpec = read_yaml(
        "{set: {glyphs: {train: 60, test: 20}}, clients: 5, domains: {turned: [0, 180]}}",
    )
    .unwrap();
    let plain = DataSpec {
        domains: None,
        ..spec.clone()
    };
    let stream = Stream::root(1);
    let [some, none] = [&spec, &plain].map(|spec| build(spec, Path::new("."), &stream).unwrap());
    assert_eq!((some.test.len(), some.client_tests.len()), (40, 5));
    assert!(none.client_tests.is_empty());
    let first = |e: &Examples| e.samples.pick(&[0]).values().into_raw_vec_and_offset().0;
    let backwards = |e: &Examples| first(e).into_iter().rev().collect::<Vec<_>>();
    assert_eq!(first(&some.clients[2]), first(&none.clients[2]));
    assert_eq!(first(&some.clients[3]), backwards(&none.clients[3]));
    assert_eq!(first(&some.client_tests[3]), backwards(&none.test));
    assert_eq!(some.client_tests[3].classes(), none.test.classes());
    let rows = errors("{set: blobs, domains: {turned: [0, 180]}}");
    assert!(rows.contains("only square images"), "{rows}");
}

#[test]
fn feature_noise_grows_from_client_to_client_and_spares_common_tests() {
    let of = |more: &str| {
        let set = "set: {blobs: {features: 50, train: 400, test: 40}}, clients: 4, split: iid";
        let spec: DataSpec = read_yaml(&format!("{{{set}, {more}}}")).unwrap();
        build(&spec, Path::new("."), &Stream::root(1)).unwrap()
    };
    let plain = of("validation: 0.1");
    let noisy = of("validation: 0.1, feature-noise: {variance: 0.4}");
    assert_eq!(plain.test.samples.values(), noisy.test.samples.values());
    for k in 0..4 {
        let due = 0.1 * (k + 1) as f64;
        for (a, b) in [
            (&plain.clients[k], &noisy.clients[k]),
            (&plain.client_validation[k], &noisy.client_validation[k]),
        ] {
            assert_eq!(a.classes().unwrap(), b.classes().unwrap());
            let change = &b.samples.values() - &a.samples.values();
            let squares = change.mapv(|x| f64::from(x) * f64::from(x));
            let found = squares.mean().unwrap();
            // 500 and 4,500 numbers
            assert!((found - due).abs() < 0.25 * due, "{k}: {found}");
        }
    }
    // test rows of a client's domain are common ones too
    let turned = |more: &str| {
        let set = "set: {glyphs: {train: 60, test: 20}}, clients: 2, split: iid, domains: {turned: [0, 180]}";
        let spec: DataSpec = read_yaml(&format!("{{{set}{more}}}")).unwrap();
        build(&spec, Path::new("."), &Stream::root(1)).unwrap()
    };
    let [still, blurred] = ["", ", feature-noise: {variance: 0.4}"].map(turned);
    for k in 0..2 {
        let values = |of: &[Examples]| of[k].samples.values();
        assert_eq!(values(&still.client_tests), values(&blurred.client_tests));
        assert_ne!(values(&still.clients), values(&blurred.clients));
    }
    // the rows of all clients together have the noise of each
    let pooled = of("feature-noise: {variance: 4}, test: {own: 0.3, of: all}");
    let own = pooled
        .client_tests
        .iter()
        .flat_map(|own| own.samples.values());
    let all: Vec<f32> = pooled.test.samples.values().into_iter().collect();
    assert_eq!(all, own.collect::<Vec<f32>>());
    let own = pooled
        .client_tests
        .iter()
        .flat_map(|own| own.classes().unwrap());
    assert_eq!(pooled.test.classes().unwrap(), own.collect::<Vec<u32>>());
    // a crop knows black of bytes only
    let said =
        |all: &fl_data::Assembled| all.no_black.join("; ").contains("the mean, and not black");
    assert!(said(&turned(", feature-noise: {variance: 0.4}")) && !said(&turned("")));
    assert!(!said(&noisy));
    // by the code the first client has none; a row's noise is its own, however many rows there are
    let code = of("feature-noise: {deviation: 0.3}");
    let first = code.clients[0].samples.values();
    assert_eq!(first, of("test: null").clients[0].samples.values());
    let sparse = errors("{set: cod-rna, feature-noise: {variance: 0}}");
    assert!(sparse.contains("must be above 0"), "{sparse}");
    let one = errors("{set: blobs, clients: 1, feature-noise: {deviation: 1}}");
    assert!(one.contains("there is one client"), "{one}");
    let cells = errors("{set: cells, feature-noise: {variance: 1}}");
    assert!(cells.contains("have classes or values get none"), "{cells}");
    let less = errors("{set: glyphs, undersampled: {}, feature-noise: {variance: 1}}");
    assert!(less.contains("leave `feature-noise` out"), "{less}");
}
