//! Sets that fl makes: how their rows are shared out.

use fl_core::settings::read_yaml;
use fl_core::{Examples, Stream};
use fl_data::split::{Groups, split};
use fl_data::{DataSpec, build};
use std::path::Path;

#[test]
fn a_laboratory_is_a_client() {
    let spec: DataSpec =
        read_yaml("{set: {cells: {train: 30, test: 9}}, clients: 3, public: {from: {share: 0.2}}}")
            .unwrap();
    let data = build(&spec, Path::new("."), &Stream::root(1)).unwrap();
    let sizes: Vec<usize> = data.clients.iter().map(Examples::len).collect();
    assert_eq!(
        sizes.iter().sum::<usize>() + data.public.unwrap().samples.len(),
        30
    );
    for (k, own) in data.clients.iter().enumerate() {
        let ids = own.samples.ids();
        assert!(ids.iter().all(|id| *id as usize / 10 == k), "{k}: {ids:?}");
        assert_eq!(own.class_counts(), [own.len() as u32; 2]);
    }
    for (wrong, said) in [
        ("clients: 4", "by-file"),
        (
            "clients: 3, split: {dirichlet: {alpha: 0.5}}",
            "every pixel has a class",
        ),
        ("clients: 3, domains: {turned: [0, 90]}", "not turned"),
        (
            "clients: 3, class-order: [1, 0]",
            "no single class for each row",
        ),
    ] {
        let yaml = format!("{{set: {{cells: {{train: 30, test: 9}}}}, {wrong}}}");
        let mut read: DataSpec = read_yaml(&yaml).unwrap();
        let refused = format!("{:?}", read.resolve(Path::new(".")));
        assert!(refused.contains(said), "{wrong}: {refused}");
    }
    for bad in ["{domains: 3, train: 2}", "{side: 8}", "{domains: 4}"] {
        let yaml = format!("{{set: {{cells: {bad}}}, clients: 3}}");
        assert!(read_yaml::<DataSpec>(&yaml).is_err(), "{bad}");
    }
}

#[test]
fn findings_are_grouped_by_the_rarest() {
    let spec: DataSpec = read_yaml("{set: multi-label, clients: 1, split: iid}").unwrap();
    let data = build(&spec, Path::new("."), &Stream::root(1)).unwrap();
    let all = &data.clients[0];
    let groups = Groups::of(all);
    assert_eq!((groups.count, groups.of.len()), (6, 4000));
    let findings = all.multi_label().unwrap();
    for (row, group) in findings.rows().into_iter().zip(&groups.of) {
        assert_eq!(*group == 5, row.iter().all(|l| *l != 1));
    }
    let got = split(
        &groups,
        &read_yaml("{dirichlet: {alpha: 0.1, reading: floor}}").unwrap(),
        5,
        "multi-label",
        &Stream::root(1),
    )
    .unwrap();
    assert_eq!(got.sizes().iter().sum::<usize>(), 4000);
}
