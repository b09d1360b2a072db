use anyhow::Result;
use fl_core::settings::defaults;
use fl_core::{Examples, Inputs, Samples, Stream, TaskKind};
use fl_data::split_spec::{Dirichlet, Reading};
use fl_data::{Assembled, DataSpec, Limit, Public, PublicFrom, Split, build};
use fl_data_kit::{Normalise, SetSpec};
use fl_plugin_data_synthetic::{Blobs, Glyphs, MultiLabel};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn blobs() -> SetSpec {
    SetSpec::of(Blobs {
        train: 400,
        test: 101,
        ..defaults()
    })
    .unwrap()
}

fn made(spec: &DataSpec) -> Result<Assembled> {
    build(spec, Path::new("nowhere"), &Stream::root(1))
}

fn error(spec: &DataSpec) -> String {
    format!("{:#}", made(spec).unwrap_err())
}

fn ids<'a>(views: impl IntoIterator<Item = &'a Samples>) -> Vec<u32> {
    let mut all: Vec<u32> = views
        .into_iter()
        .flat_map(|v| v.ids().iter().copied())
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn everybody_shares_one_storage() {
    let got = made(&DataSpec::iid(blobs(), 7)).unwrap();
    let storage = got.clients[0].samples.inputs();
    assert!(
        got.clients
            .iter()
            .all(|k| Arc::ptr_eq(k.samples.inputs(), storage))
    );
    assert_eq!(
        ids(got.clients.iter().map(|k| &k.samples)),
        (0..400).collect::<Vec<_>>()
    );
    assert_eq!(
        (got.test.len(), got.task.kind, got.task.input),
        (101, TaskKind::Classes(4), vec![8])
    );
    assert!(got.public.is_none() && got.client_validation.is_empty() && got.validation.is_none());
}

#[test]
fn a_public_set_that_is_the_clients_own_is_seen() {
    let set = |text: &str| fl_core::settings::read_yaml::<SetSpec>(text).unwrap();
    for (set, shared) in [
        (blobs(), true),
        // more rows of the same draw
        (set("blobs"), true),
        (set("{blobs: {seed: 9}}"), false),
    ] {
        let public = Some(Public::from(PublicFrom::Set(set)));
        let got = made(&DataSpec {
            public,
            ..DataSpec::iid(blobs(), 7)
        })
        .unwrap();
        let said = got.inferred.join("; ");
        assert_eq!(said.contains("public as well"), shared, "{said}");
    }
}

#[test]
fn a_public_share_is_of_every_class_and_nobodys_own() {
    let public = Some(Public {
        labelled: true,
        ..Public::from(PublicFrom::Share(0.1))
    });
    let got = made(&DataSpec {
        public,
        ..DataSpec::iid(blobs(), 3)
    })
    .unwrap();
    let public = got.public.unwrap();
    assert_eq!(public.labelled.unwrap().class_counts(), [10; 4]);
    let views = got
        .clients
        .iter()
        .map(|k| &k.samples)
        .chain([&public.samples]);
    assert_eq!(ids(views), (0..400).collect::<Vec<_>>());
    let count = Some(Public::from(PublicFrom::Count(50)));
    let got = made(&DataSpec {
        public: count,
        ..DataSpec::iid(blobs(), 3)
    })
    .unwrap();
    assert_eq!(got.public.unwrap().samples.len(), 50);
    assert_eq!(ids(got.clients.iter().map(|k| &k.samples)).len(), 350);
    for (count, part) in [
        (400, "no samples are left for the clients"),
        (401, "public rows: 401 samples of 400"),
    ] {
        let public = Some(Public::from(PublicFrom::Count(count)));
        let spec = DataSpec {
            public,
            ..DataSpec::iid(blobs(), 3)
        };
        assert!(error(&spec).contains(part), "{}", error(&spec));
    }
    for bad in [0.0, 1.0, f64::NAN, 1e-9] {
        let public = Some(Public::from(PublicFrom::Share(bad)));
        assert!(
            error(&DataSpec {
                public,
                ..DataSpec::iid(blobs(), 3)
            })
            .contains("share")
        );
    }
}

#[test]
fn classes_are_numbered_anew_before_anything_is_split() {
    let public = Some(Public {
        labelled: true,
        ..Public::from(PublicFrom::Share(0.1))
    });
    let spec = DataSpec {
        public,
        split: Some(Split::Classes(1)),
        ..DataSpec::iid(blobs(), 4)
    };
    let order = vec![2, 0, 3, 1];
    let (old, new) = (
        made(&spec).unwrap(),
        made(&DataSpec {
            class_order: Some(order.clone()),
            ..spec
        })
        .unwrap(),
    );
    // client k has the rows of what is now class k
    for (k, was) in order.iter().enumerate() {
        assert!(
            new.clients[k]
                .classes()
                .unwrap()
                .iter()
                .all(|c| *c == k as u32)
        );
        let rows = |all: &Assembled, k: usize| {
            all.clients[k]
                .samples
                .ids()
                .iter()
                .copied()
                .collect::<BTreeSet<_>>()
        };
        let (then, now) = (rows(&old, *was), rows(&new, k));
        // which rows are public is drawn class by class, so not quite the same are left
        assert!(now.intersection(&then).count() * 10 > then.len() * 7);
    }
    let called = |examples: &Examples| -> Vec<usize> {
        let classes = examples.classes().unwrap();
        classes.into_iter().map(|c| order[c as usize]).collect()
    };
    let was = |examples: &Examples| -> Vec<usize> {
        let classes = examples.classes().unwrap();
        classes.into_iter().map(|c| c as usize).collect()
    };
    assert_eq!(called(&new.test), was(&old.test));
    let public = |all: &Assembled| all.public.clone().unwrap().labelled.unwrap();
    let mut sorted = [called(&public(&new)), was(&public(&old))];
    sorted.iter_mut().for_each(|s| s.sort_unstable());
    assert_eq!(sorted[0], sorted[1]);
    let error = error(&DataSpec {
        class_order: Some(vec![0, 1]),
        ..DataSpec::iid(blobs(), 3)
    });
    assert!(
        error.contains("it must name each of the classes 0 to 3 of `blobs` once"),
        "{error}"
    );
}

#[test]
fn half_of_the_test_rows() {
    let public = Some(Public::from(PublicFrom::HalfOfTest));
    let got = made(&DataSpec {
        public,
        ..DataSpec::iid(blobs(), 3)
    })
    .unwrap();
    let public = got.public.unwrap();
    assert_eq!(
        (
            public.samples.len(),
            got.test.len(),
            public.labelled.is_none()
        ),
        (50, 51, true)
    );
    assert_eq!(
        ids([&public.samples, &got.test.samples]),
        (0..101).collect::<Vec<_>>()
    );
    assert_eq!(ids(got.clients.iter().map(|k| &k.samples)).len(), 400);
}

#[test]
fn a_table_is_split_in_three_and_queries_count_the_pool() {
    let public = Some(Public {
        queries: Some(0.25),
        ..Public::from(PublicFrom::Tabular)
    });
    let got = made(&DataSpec {
        public,
        ..DataSpec::iid(blobs(), 3)
    })
    .unwrap();
    assert_eq!(
        (got.public.unwrap().samples.len(), got.test.len()),
        (25, 50)
    );
    assert_eq!(ids(got.clients.iter().map(|k| &k.samples)).len(), 300);
    let public = Some(Public {
        queries: Some(2.0),
        ..Public::from(PublicFrom::Tabular)
    });
    assert!(
        error(&DataSpec {
            public,
            ..DataSpec::iid(blobs(), 3)
        })
        .contains("data: public.queries: must be in 0.0..=1.0, got 2.0")
    );
    let public = Some(Public {
        queries: Some(0.005),
        ..Public::from(PublicFrom::Tabular)
    });
    let error = error(&DataSpec {
        public,
        ..DataSpec::iid(blobs(), 3)
    });
    assert!(
        error.contains(
            "a share of 0.005 (`public.queries`) of 100 public and test samples is less than one"
        ),
        "{error}"
    );
}

#[test]
fn another_set_must_fit_and_is_normalised_like_the_private_one() {
    let glyphs = SetSpec::of(Glyphs {
        train: 30,
        test: 10,
        ..defaults()
    })
    .unwrap();
    let findings = SetSpec::of(MultiLabel {
        train: 40,
        test: 10,
        ..defaults()
    })
    .unwrap();
    let from = |set, size| {
        Some(Public {
            size,
            ..Public::from(PublicFrom::Set(set))
        })
    };
    let of = |public| DataSpec {
        public,
        ..DataSpec::iid(glyphs.clone(), 2)
    };
    let got = made(&of(from(findings.clone(), Some(15)))).unwrap();
    let public = got.public.unwrap().samples;
    let statistics = |inputs: &Inputs| match inputs {
        Inputs::Bytes { mean, std, .. } => (mean[0], std[0]),
        _ => panic!("images"),
    };
    assert_eq!(public.len(), 15);
    assert_eq!(
        statistics(public.inputs()),
        statistics(got.clients[0].samples.inputs())
    );

    assert!(
        error(&of(from(findings.clone(), Some(41))))
            .contains("a size of 41, but there are only 40 samples")
    );
    assert!(error(&of(from(blobs(), None))).contains("shape [8], the private ones [1, 28, 28]"));
    let private = DataSpec {
        public: from(glyphs.clone(), None),
        ..DataSpec::iid(blobs(), 2)
    };
    assert!(error(&private).contains("shape [1, 28, 28], the private ones [8]"));
    let mut labelled = of(from(findings, None));
    labelled.public.as_mut().unwrap().labelled = true;
    assert!(error(&labelled).contains(
        "labels of `multi-label` are of another task (5 labels, any number of them at once) than the private ones (10 classes)"
    ));
}

#[test]
fn public_rows_of_a_known_set_are_scaled_as_private_files_are_and_those_are_not() {
    use fl_plugin_data_files as _;
    use fl_plugin_data_images as _;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::create_dir(dir.join("mnist")).unwrap();
    let idx = |sides: &[u32], bytes: Vec<u8>| {
        let sides = sides.iter().flat_map(|side| side.to_be_bytes());
        let magic = [0, 0, 8, if bytes.len() > 100 { 3 } else { 1 }];
        magic
            .into_iter()
            .chain(sides)
            .chain(bytes)
            .collect::<Vec<u8>>()
    };
    let pixels = |rows: usize| (0..rows * 784).map(|at| (at % 251) as u8).collect();
    let classes = |rows: usize| (0..rows).map(|row| (row % 10) as u8).collect();
    for (part, rows) in [("train", 20), ("t10k", 10)] {
        let file = |kind: &str| dir.join(format!("mnist/{part}-{kind}-ubyte"));
        let images = idx(&[rows as u32, 28, 28], pixels(rows));
        std::fs::write(file("images-idx3"), images).unwrap();
        std::fs::write(file("labels-idx1"), idx(&[rows as u32], classes(rows))).unwrap();
    }
    let set = "{inputs: mnist/PART-images-idx3-ubyte, labels: mnist/PART-labels-idx1-ubyte}";
    let [train, test] = ["train", "t10k"].map(|part| set.replace("PART", part));
    for public in [
        "from: {set: mnist}",
        "from: {share: 0.5}, mix: {set: mnist, share: 1}",
    ] {
        let mut spec: DataSpec = fl_core::settings::read_yaml(&format!(
            "{{set: {{files: {{format: idx, train: {train}, test: {test}}}}}, clients: 1, split: iid, public: {{{public}}}}}"
        ))
        .unwrap();
        assert_eq!(spec.resolve(dir), []);
        let got = build(&spec, dir, &Stream::root(1)).unwrap();
        let largest = |of: &Samples| of.values().iter().copied().fold(0.0, f32::max);
        let public = largest(&got.public.unwrap().samples);
        assert_eq!(public, largest(&got.test.samples));
    }
}

#[test]
fn limits_keep_the_proportions_of_the_classes() {
    let spec = DataSpec {
        limit: Limit {
            train: Some(40),
            test: Some(8),
        },
        ..DataSpec::iid(blobs(), 1)
    };
    let got = made(&spec).unwrap();
    assert_eq!(got.clients[0].class_counts(), [10; 4]);
    assert_eq!(got.test.class_counts(), [2; 4]);
    assert_eq!(ids([&got.test.samples]), (0..8).collect::<Vec<_>>());
    assert!(got.hidden_notes.is_empty());
    let spec = DataSpec {
        limit: Limit {
            train: Some(1 << 40),
            test: None,
        },
        ..DataSpec::iid(blobs(), 1)
    };
    let rows = made(&DataSpec::iid(blobs(), 1)).unwrap().clients[0].len();
    let told = format!(
        "data.limit.train is {}, and there are {rows} train rows: all are used",
        1u64 << 40
    );
    assert_eq!(made(&spec).unwrap().hidden_notes, [told]);
    let spec = DataSpec {
        limit: Limit {
            train: Some(0),
            test: None,
        },
        ..DataSpec::iid(blobs(), 1)
    };
    assert!(error(&spec).contains("data: limit.train: must be at least 1, got 0"));
    let spec = DataSpec {
        limit: Limit {
            train: Some(1 << 40),
            test: Some(0),
        },
        ..DataSpec::iid(blobs(), 1)
    };
    assert!(error(&spec).contains("data: limit.test: must be at least 1, got 0"));
}

#[test]
fn validation_is_taken_from_each_client() {
    let spec = DataSpec {
        validation: 0.05,
        ..DataSpec::iid(blobs(), 4)
    };
    let got = made(&spec).unwrap();
    assert!(
        got.client_validation.iter().all(|v| v.len() == 5)
            && got.clients.iter().all(|k| k.len() == 95)
    );
    let views = got
        .clients
        .iter()
        .chain(&got.client_validation)
        .map(|k| &k.samples);
    assert_eq!(ids(views), (0..400).collect::<Vec<_>>());
    // no guarantee for an example stands beside that
    let told = "a client's validation rows depend on its number of rows";
    assert_eq!(got.inferred, [told]);
    for bad in [-0.1, 1.0, f64::NAN] {
        assert!(
            error(&DataSpec {
                validation: bad,
                ..spec.clone()
            })
            .contains("data: validation: must be")
        );
    }
}

#[test]
fn the_same_stream_gives_the_same_data_and_another_does_not() {
    let split = Split::Dirichlet(Dirichlet {
        alpha: 0.5,
        reading: Reading::Balanced,
        min_size: None,
    });
    let public = Some(Public::from(PublicFrom::Share(0.2)));
    let spec = DataSpec {
        split: Some(split),
        public,
        validation: 0.1,
        ..DataSpec::iid(blobs(), 5)
    };
    let of = |seed| {
        let got = build(&spec, Path::new("nowhere"), &Stream::root(seed)).unwrap();
        let clients: Vec<Vec<u32>> = got
            .clients
            .iter()
            .map(|k| k.samples.ids().to_vec())
            .collect();
        (clients, got.public.unwrap().samples.ids().to_vec())
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).0, of(2).0);
    assert_ne!(of(1).1, of(2).1);
}

#[test]
fn who_is_public_does_not_decide_how_many_clients_there_can_be() {
    let spec = DataSpec::iid(
        SetSpec::of(Blobs {
            train: 5,
            ..defaults()
        })
        .unwrap(),
        8,
    );
    let got = made(&spec).unwrap();
    assert_eq!(
        got.clients.iter().map(Examples::len).collect::<Vec<_>>(),
        [1, 1, 1, 1, 1, 0, 0, 0]
    );
    assert!(
        error(&DataSpec {
            clients: Some(0),
            ..spec
        })
        .contains("data: clients: must be in 1..=1000000, got 0")
    );
}

#[test]
fn findings_are_built_too() {
    let split = Split::Dirichlet(Dirichlet {
        alpha: 0.3,
        reading: Reading::Floor,
        min_size: None,
    });
    let public = Some(Public {
        labelled: true,
        ..Public::from(PublicFrom::Share(0.1))
    });
    let set = SetSpec::of(MultiLabel {
        train: 300,
        test: 50,
        ..defaults()
    })
    .unwrap();
    let got = made(&DataSpec {
        split: Some(split),
        public,
        ..DataSpec::iid(set, 5)
    })
    .unwrap();
    assert_eq!(got.task.kind, TaskKind::MultiLabel(5));
    let public = got.public.unwrap();
    assert_eq!(
        public.labelled.unwrap().multi_label().unwrap().dim(),
        (30, 5)
    );
    let all: BTreeSet<u32> = ids(got
        .clients
        .iter()
        .map(|k| &k.samples)
        .chain([&public.samples]))
    .into_iter()
    .collect();
    assert_eq!(all.len(), 300);
}

#[test]
fn a_normalisation_of_ones_own() {
    let normalise = Some(Normalise {
        mean: vec![0.5; 8],
        std: vec![2.0; 8],
    });
    let spec = DataSpec {
        normalise,
        ..DataSpec::iid(blobs(), 1)
    };
    let (own, raw) = (
        made(&spec).unwrap(),
        made(&DataSpec::iid(blobs(), 1)).unwrap(),
    );
    let (own, raw) = (own.test.samples.values(), raw.test.samples.values());
    assert!(
        own.iter()
            .zip(&raw)
            .all(|(o, r)| (o - (r - 0.5) / 2.0).abs() < 1e-6)
    );
    let bad = |mean: Vec<f32>, std| {
        error(&DataSpec {
            normalise: Some(Normalise { mean, std }),
            ..spec.clone()
        })
    };
    assert!(bad(vec![0.0], vec![1.0]).contains("there must be 8 of each"));
    assert!(bad(vec![0.0; 8], vec![0.0; 8]).contains("above 0"));
    assert!(bad(vec![f32::NAN; 8], vec![1.0; 8]).contains("finite"));
}

#[test]
fn class_weights_and_rows_of_another_set_make_public_data_drift() {
    let read = |public: &str| DataSpec {
        public: Some(fl_core::settings::read_yaml(public).unwrap()),
        ..DataSpec::iid(blobs(), 3)
    };
    let public = |public: &str| made(&read(public)).unwrap().public.unwrap();
    // 50 of every class; the weights are relative
    let weighted =
        public("{from: {share: 0.5}, labelled: true, classes: [4, 2, 0, 0.125]}").labelled;
    assert_eq!(weighted.unwrap().class_counts(), [50, 25, 0, 1]);
    let rest = made(&read("{from: {share: 0.5}, classes: [1, 0, 0, 0]}")).unwrap();
    assert_eq!(ids(rest.clients.iter().map(|k| &k.samples)).len(), 200);

    let values = |samples: &Samples| -> Vec<Vec<f32>> {
        let of = |id: &u32| {
            let mut room = vec![0.0; samples.inputs().width()];
            samples.inputs().write_row(*id as usize, &mut room);
            room
        };
        samples.ids().iter().map(of).collect()
    };
    let own = values(&public("{from: {share: 0.5}}").samples);
    for share in [0.0, 0.25, 1.0] {
        let text = format!(
            "{{from: {{share: 0.5}}, size: 80, mix: {{set: {{blobs: {{seed: 9}}}}, share: {share}}}}}"
        );
        let mixed = public(&text);
        assert_eq!(mixed.truth.is_some(), share == 0.0);
        let rows = values(&mixed.samples);
        let found = rows.iter().filter(|row| own.contains(row)).count();
        assert_eq!((rows.len(), found), (80, 80 - (share * 80.0) as usize));
    }
    // the same rows in the clients' set are seen, whichever part of the public data they are
    let shared = made(&read(
        "{from: {set: {blobs: {seed: 9}}}, mix: {set: blobs, share: 0.5}}",
    ));
    let said = shared.unwrap().inferred.join("; ");
    assert!(said.contains("public as well"), "{said}");

    for (public, part) in [
        (
            "{from: {share: 0.5}, classes: [1, 1]}",
            "`classes` has 2 weights; there must be 4",
        ),
        (
            "{from: {share: 0.5}, size: 300, mix: {set: {blobs: {seed: 9, train: 10}}, share: 0.5}}",
            "public.mix: 150 samples of `blobs`, which has only 10",
        ),
        (
            "{from: {share: 0.5}, mix: {set: {glyphs: {}}, share: 0.5}}",
            "they must be equal",
        ),
    ] {
        let found = error(&read(public));
        assert!(found.contains(part), "{found}");
    }
    for (public, part) in [
        ("{from: {share: 0.5}, classes: [1, -1, 1, 1]}", "at least 0"),
        (
            "{from: {share: 0.5}, classes: [0, 0, 0, 0]}",
            "must be above 0",
        ),
        (
            "{from: {share: 0.5}, labelled: true, mix: {set: blobs, share: 0.5}}",
            "leave `labelled` out",
        ),
    ] {
        let found = fl_core::settings::read_yaml::<Public>(public).unwrap_err();
        assert!(format!("{found:#}").contains(part), "{found:#}");
    }
}
