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
    let rows = read_yaml::<DataSpec>("{set: blobs, domains: {turned: [0, 180]}}").unwrap_err();
    assert!(rows.to_string().contains("only square images"), "{rows}");
}
