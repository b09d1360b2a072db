use fl_core::settings::read_yaml;
use fl_core::{Examples, Result, Stream};
use fl_data::{Assembled, DataSpec, build_identified};
use std::path::Path;

fn made(yaml: &str) -> Result<Assembled> {
    let spec: DataSpec = read_yaml(yaml)?;
    build_identified(&spec, Path::new("."), &Stream::root(1))
}

fn ids(of: &[Examples]) -> Vec<u32> {
    let mut ids: Vec<u32> = of
        .iter()
        .flat_map(|view| view.samples.ids().to_vec())
        .collect();
    ids.sort_unstable();
    ids
}

fn values(of: &[Examples]) -> Vec<Vec<u32>> {
    let rows = of.iter().flat_map(|view| {
        let values = view.samples.values();
        let rows = values.rows().into_iter();
        rows.map(|row| row.iter().map(|v| v.to_bits()).collect())
            .collect::<Vec<Vec<u32>>>()
    });
    let mut rows: Vec<Vec<u32>> = rows.collect();
    rows.sort_unstable();
    rows
}

const SETS: [&str; 4] = [
    "{blobs: {train: 90, test: 30}}",
    "{glyphs: {train: 90, test: 30}}",
    "{multi-label: {findings: 3, train: 90, test: 30}}",
    "{cells: {train: 90, test: 30}}",
];

#[test]
fn exact_each_training_row_is_trained_with_or_tested_with_by_one_client() {
    for set in SETS {
        for by_class in [true, false] {
            let own = format!("own: 0.25, by-class: {by_class}");
            let got = made(&format!(
                "{{set: {set}, clients: 4, split: iid, test: {{{own}}}}}"
            ));
            let got = got.unwrap();
            assert_eq!(got.test.len(), 30, "{set}");
            let both = [&got.clients[..], &got.client_tests].concat();
            assert_eq!(ids(&both), (0..90).collect::<Vec<_>>(), "{set}");
            for (own, test) in got.clients.iter().zip(&got.client_tests) {
                assert_eq!(test.len(), (own.len() + test.len()) / 4, "{set}");
            }
        }
    }
}

#[test]
fn exact_training_and_test_rows_are_shared_out_together() {
    for set in SETS {
        let plain = made(&format!("{{set: {set}, clients: 4, split: iid}}")).unwrap();
        let pooled = format!("{{set: {set}, clients: 4, split: iid, test: {{own: 0.5, of: all}}}}");
        let got = made(&pooled).unwrap();
        let both = [&got.clients[..], &got.client_tests].concat();
        assert_eq!(ids(&both), (0..120).collect::<Vec<_>>(), "{set}");
        let before = [&plain.clients[..], &[plain.test]].concat();
        assert_eq!(values(&both), values(&before), "{set}");
        let classes = |of: &[Examples]| -> Vec<u32> {
            let counts: Vec<Vec<u32>> = of.iter().map(Examples::class_counts).collect();
            let sum = |class| counts.iter().map(|of| of[class]).sum();
            (0..counts[0].len()).map(sum).collect()
        };
        assert_eq!(classes(&both), classes(&before), "{set}");
        // the common test rows are those of all clients
        assert_eq!(ids(&[got.test]), ids(&got.client_tests), "{set}");
        let identity = got.identity.unwrap();
        assert_eq!(identity.clients.concat().len(), 120, "{set}");
    }
}

#[test]
fn exact_rows_of_every_class_are_tested_with_in_proportion() {
    let own = "test: {own: 0.5, of: all}";
    let got = made(&format!(
        "{{set: {{blobs: {{classes: 3, train: 90, test: 30}}}}, clients: 2, split: {{classes: 2}}, {own}}}"
    ))
    .unwrap();
    for (own, test) in got.clients.iter().zip(&got.client_tests) {
        for (own, test) in own.class_counts().iter().zip(test.class_counts()) {
            assert!(own.abs_diff(test) <= 1, "{own} {test}");
        }
    }
}

#[test]
fn a_limit_public_rows_and_domains_go_with_rows_of_a_clients_own() {
    let limits = "limit: {train: 40, test: 20}, public: {from: {count: 10}}";
    let got = made(&format!(
        "{{set: {}, clients: 2, {limits}, test: {{own: 0.1, of: all}}}}",
        SETS[0]
    ))
    .unwrap();
    let both = [&got.clients[..], &got.client_tests].concat();
    let public = got.public.unwrap().samples;
    let mut all = [ids(&both), public.ids().to_vec()].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!((ids(&both).len(), all.len()), (50, 60));
    let turned = "domains: {turned: [0, 180]}";
    let [plain, turned] = ["", turned].map(|domains| {
        let set = SETS[1];
        made(&format!(
            "{{set: {set}, clients: 2, test: {{own: 0.5}}, {domains}}}"
        ))
        .unwrap()
    });
    let first = |of: &Examples| of.samples.pick(&[0]).values().into_raw_vec_and_offset().0;
    let mut backwards = first(&plain.client_tests[1]);
    backwards.reverse();
    assert_eq!(first(&turned.client_tests[1]), backwards);
    assert_eq!(
        first(&turned.client_tests[0]),
        first(&plain.client_tests[0])
    );
    assert_eq!(turned.test.len(), 60);
}

#[test]
fn rows_of_the_smallest_and_the_largest_share_leave_one_row_on_either_side() {
    for share in ["1e-300", "0.001", "0.999", "0.9999999999999999"] {
        let set = "{blobs: {train: 8, test: 4}}";
        let got = made(&format!(
            "{{set: {set}, clients: 4, test: {{own: {share}}}}}"
        ))
        .unwrap();
        let sizes = |of: &[Examples]| of.iter().map(Examples::len).collect::<Vec<_>>();
        assert_eq!(sizes(&got.clients), [1; 4], "{share}");
        assert_eq!(sizes(&got.client_tests), [1; 4], "{share}");
    }
}

#[test]
fn what_has_no_rows_of_a_clients_own_is_refused() {
    let refused = |rest: &str| made(&format!("{{{rest}}}")).unwrap_err().to_string();
    let few = refused("set: {blobs: {train: 5, test: 4}}, clients: 4, test: {own: 0.5}");
    assert!(
        few.contains("client 1 owns 1 of the rows, and needs two"),
        "{few}"
    );
    for (rest, why) in [
        ("test: {own: 0}", "own"),
        ("test: {own: 1}", "own"),
        ("test: {own: .nan}", "own"),
        ("test: {of: all}", "own"),
        (
            "test: {own: 0.5, of: all}, public: {from: half-of-test}",
            "`public` cannot divide them",
        ),
        (
            "test: {own: 0.5, of: all}, public: {from: tabular}",
            "`public` cannot divide them",
        ),
    ] {
        let text = refused(&format!("set: blobs, clients: 4, {rest}"));
        assert!(text.contains(why), "{rest}: {text}");
    }
    let domains = "domains: {turned: [0, 90]}, test: {own: 0.5, of: all}";
    assert!(refused(&format!("set: glyphs, {domains}")).contains("take `of: train`"));
    let files = "set: cells, clients: 3, split: by-file, test: {own: 0.5, of: all}";
    assert!(refused(files).contains("who owns the training rows"));
}

#[test]
fn exact_each_client_tests_with_the_test_rows_of_its_file() {
    let set = "{cells: {domains: 3, train: 7, test: 5}}";
    let got = made(&format!("{{set: {set}, test: {{own: files}}}}")).unwrap();
    let plain = made(&format!("{{set: {set}}}")).unwrap();
    assert!(got.own_tests && !plain.own_tests);
    assert_eq!(ids(&got.client_tests), (0..5).collect::<Vec<_>>());
    assert_eq!(values(&got.clients), values(&plain.clients));
    assert_eq!(values(&[got.test]), values(&got.client_tests));
    let sizes = |of: &[Examples]| of.iter().map(Examples::len).collect::<Vec<_>>();
    assert_eq!(sizes(&got.client_tests), [1, 2, 2]);
    // test rows are rows of the clients, and no public ones
    let identity = got.identity.unwrap();
    let rows: Vec<usize> = identity.clients.iter().map(Vec::len).collect();
    let both = sizes(&got.clients).into_iter().zip([1, 2, 2]);
    assert_eq!(
        rows,
        both.map(|(own, tests)| own + tests).collect::<Vec<_>>()
    );
    assert!(identity.public.is_empty());
    let few = format!("{{set: {set}, limit: {{test: 2}}, test: {{own: files}}}}");
    let error = made(&few).unwrap_err().to_string();
    assert!(error.contains("clients have no test rows: "), "{error}");
}
