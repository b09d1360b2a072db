use fl_core::settings::{Setting, Settings, read_value, read_yaml, show_path};
use fl_core::{Task, TaskKind};
use fl_data::DataSpec;
use fl_data_kit::linked_sets;
use fl_registry::DataSection;
use std::path::Path;

/// What is wrong with a data section, with the place of each mistake.
pub fn errors(yaml: &str) -> String {
    let mut spec = match read_yaml::<DataSpec>(yaml) {
        Ok(spec) => spec,
        Err(error) => return error.to_string(),
    };
    let wrong = spec.resolve(Path::new(""));
    let wrong = wrong
        .iter()
        .map(|(path, text)| format!("{}: {text}", show_path(path)));
    wrong.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_written_reads_back() {
    let all = "
        set: {multi-label: {findings: 3, train: 100, test: 20}}
        clients: 3
        split: {dirichlet: {alpha: 0.5, reading: balanced, min-size: 2}}
        public: {from: {set: {multi-label: {findings: 3}}}, labelled: true, size: 50}
        normalise: {mean: [0.1], std: [0.2]}
        limit: {train: 60}
        validation: 0.05
        test: {own: 0.2, of: all, by-class: false}";
    let splits = [
        "{classes: 2}",
        "{size: {power: 1.5}}",
        "{size: {shares: [1, 2]}}",
        "{dirichlet: {alpha: 0.1}}",
        "iid",
    ];
    let origins = [
        "{share: 0.1}",
        "{count: 50}",
        "half-of-test",
        "tabular",
        "{set: multi-label}",
    ];
    let mut specs = vec![all.to_string()];
    specs.extend(splits.map(|split| format!("{{set: cod-rna, clients: 2, split: {split}}}")));
    specs.extend(origins.map(|from| format!("{{set: mnist, public: {{from: {from}}}}}")));
    let named = linked_sets()
        .into_iter()
        .filter(|set| !["files", "made"].contains(&set.name));
    specs.extend(named.map(|set| format!("{{set: {}}}", set.name)));
    specs.push("{set: adult, class-order: [1, 0]}".into());
    specs.push("{set: cifar10, clients: 20, split: {published: {alpha: 0.1}}}".into());
    for yaml in specs {
        let spec: DataSpec = read_yaml(&yaml).unwrap_or_else(|e| panic!("{yaml}: {e}"));
        assert_eq!(read_value::<DataSpec>(&spec.write()).unwrap(), spec);
    }
}

#[test]
fn what_is_not_given_is_resolved() {
    let spec: DataSpec = read_yaml(
        "{set: cod-rna, split: {dirichlet: {alpha: 1e-4}}, public: {from: {share: 0.1}}}",
    )
    .unwrap();
    insta::assert_snapshot!(serde_yaml::to_string(&spec.write()).unwrap(), @"
    set:
      cod-rna:
        scale: none
    clients: null
    class-order: null
    split:
      dirichlet:
        alpha: 0.0001
        reading: plain
        min-size: null
    label-groups: null
    public:
      from:
        share: 0.1
      labelled: false
      size: null
      queries: null
      classes: null
      mix: null
    normalise: null
    limit:
      train: null
      test: null
    validation: 0.0
    test: null
    domains: null
    feature-noise: null
    undersampled: null
    features: null
    ");
}

#[test]
fn all_mistakes_come_at_once_with_their_paths() {
    let bad = "
        set: {blobs: {classes: 0, spred: 1}}
        clients: 0
        split: {dirichlet: {alpha: 0, reading: round, min-size: -1}}
        public: {from: {share: 1}, labelled: perhaps, queries: 1.5}
        normalise: {mean: [.nan]}
        limit: {train: 0}
        validation: 1
        seed: 1";
    insta::assert_snapshot!(errors(bad), @"
    set.blobs.classes: must be in 1..=10000, got 0
    set.blobs.spred: no such setting; did you mean `spread`? known: classes, features, train, test, spread, seed
    clients: must be in 1..=1000000, got 0
    split.dirichlet.alpha: must be in 0.0001..=1000000.0, got 0.0
    split.dirichlet.reading: must be one of plain, floor, balanced; got `round`
    split.dirichlet.min-size: must be at least 0, got -1
    public.from.share: must be above 0.0 and below 1.0, got 1.0
    public.labelled: must be true or false, got `perhaps`
    public.queries: must be in 0.0..=1.0, got 1.5
    normalise.mean[0]: must be a finite number, got .nan
    normalise.std: is missing (list of: number, above 0.0)
    limit.train: must be at least 1, got 0
    validation: must be in 0.0..1.0, got 1.0
    seed: no such setting; did you mean `set`? known: set, clients, class-order, split, label-groups, public, normalise, limit, validation, test, domains, feature-noise, undersampled, features
    ");
    let also = "
        set: [mnist]
        split: dirichlet
        public: {from: {set: minst}, size: 5, queries: 0.1}";
    insta::assert_snapshot!(errors(also), @"
    set: must be one of adult, {adult-raw: ..}, {ag-news: ..}, {blobs: ..}, {cells: ..}, cifar10, cifar100, {cod-rna: ..}, fashion-mnist, {files: ..}, {friedman: ..}, {glyphs: ..}, {made: ..}, mnist, {multi-label: ..}, {phrases: ..}, pneumoniamnist, {sst2: ..}; got a list of 1
    split.dirichlet.alpha: is missing (number, in 0.0001..=1000000.0)
    public.from.set: must be one of adult, {adult-raw: ..}, {ag-news: ..}, {blobs: ..}, {cells: ..}, cifar10, cifar100, {cod-rna: ..}, fashion-mnist, {files: ..}, {friedman: ..}, {glyphs: ..}, {made: ..}, mnist, {multi-label: ..}, {phrases: ..}, pneumoniamnist, {sst2: ..}; got `minst`; did you mean `mnist`?
    ");
    insta::assert_snapshot!(errors("{set: mnits, split: {size: {shares: [1, -1]}}, public: {from: {count: 0}}}"), @"
    set: must be one of adult, {adult-raw: ..}, {ag-news: ..}, {blobs: ..}, {cells: ..}, cifar10, cifar100, {cod-rna: ..}, fashion-mnist, {files: ..}, {friedman: ..}, {glyphs: ..}, {made: ..}, mnist, {multi-label: ..}, {phrases: ..}, pneumoniamnist, {sst2: ..}; got `mnits`; did you mean `mnist`?
    split.size.shares: must be at least 0.0, got -1.0
    public.from.count: must be at least 1, got 0
    ");
}

#[test]
fn settings_must_go_together() {
    let several = "
        set: glyphs
        split: {size: {shares: [1, 2]}}
        normalise: {mean: [0, 0, 0], std: [1, 1, 1]}
        public: {from: {set: cifar10}}";
    insta::assert_snapshot!(errors(several), @"
    split: 2 shares for 10 clients; there must be one for each
    normalise: 3 means and 3 standard deviations; there must be 1 of each, one per channel or column
    public: rows of `cifar10` have shape [3, 32, 32], the private ones [1, 28, 28]; they must be equal
    ");
    for (yaml, part) in [
        (
            "{set: adult, normalise: {mean: [0], std: [1]}}",
            "leave `normalise` out",
        ),
        (
            "{set: mnist, clients: 4, split: {classes: 2}}",
            "leave some classes to no client",
        ),
        ("{set: adult, split: {classes: 3}}", "must be in 1..=2"),
        (
            "{set: mnist, clients: 20, split: {published: {alpha: 0.1}}}",
            "no published split of `mnist`",
        ),
        (
            "{set: cifar10, split: {published: {alpha: 0.1}}}",
            "is over 20 clients, not 10",
        ),
        (
            "{set: adult, clients: 2, split: {size: {shares: [0, 0]}}}",
            "not all be 0",
        ),
        (
            "{set: glyphs, public: {from: {set: multi-label}, labelled: true}}",
            "are of another task",
        ),
        (
            "{set: glyphs, public: {from: {share: 0.1}, size: 5, queries: 0.1}}",
            "give one of them",
        ),
        (
            "{set: adult, class-order: [1, 1]}",
            "class-order: [1, 1]; it must name each of the classes 0 to 1 of `adult` once",
        ),
        (
            "{set: mnist, class-order: [1, 0]}",
            "class-order: [1, 0]; it must name each of the classes 0 to 9 of `mnist` once",
        ),
        (
            "{set: multi-label, class-order: [1, 0]}",
            "class-order: `multi-label` has no single class for each row",
        ),
        (
            "{set: cifar10, clients: 20, split: {published: {alpha: 0.1}}, class-order: [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]}",
            "class-order: a published split lists row numbers of the files",
        ),
        (
            "{set: {blobs: {train: 300}}, clients: 6, split: {dirichlet: {alpha: 1, min-size: 51}}}",
            "split: 6 clients with at least 51 samples each need more than the 300 samples there are; take fewer clients or a smaller min-size",
        ),
        (
            "{set: {blobs: {train: 300}}, limit: {train: 99}, split: {size: {dirichlet: 1}}}",
            "split: 10 clients with at least 10 samples each need more than the 99",
        ),
        (
            "{set: {blobs: {features: 100000, train: 100000}}}",
            "are too many",
        ),
    ] {
        assert!(errors(yaml).contains(part), "{}", errors(yaml));
    }
    // one group more: those without a finding
    assert_eq!(errors("{set: multi-label, split: {classes: 6}}"), "");
}

#[test]
fn the_task_is_known_before_data_are() {
    let of = |set: &str| {
        let spec: DataSpec = read_yaml(&format!("{{set: {set}}}")).unwrap();
        spec.task().unwrap()
    };
    let task = |input: &[usize], kind| Task {
        input: input.to_vec(),
        kind,
    };
    assert_eq!(of("cifar10"), task(&[3, 32, 32], TaskKind::Classes(10)));
    assert_eq!(of("{sst2: {width: 9}}"), task(&[9], TaskKind::Classes(2)));
    assert_eq!(
        of("{multi-label: {findings: 3}}"),
        task(&[1, 28, 28], TaskKind::MultiLabel(3))
    );
    let blobs = of("{blobs: {classes: 3, features: 5}}");
    assert_eq!(blobs, task(&[5], TaskKind::Classes(3)));
}

#[test]
fn the_description_has_ranges_and_the_names_of_sets() {
    let fields = DataSpec::fields();
    assert_eq!(fields[1].accepts.range().as_deref(), Some("in 1..=1000000"));
    let set = fields[0].accepts.kind();
    assert!(set.contains("{blobs: ..}"), "{set}");
}
