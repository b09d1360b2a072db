use fl_core::Examples;
use fl_core::settings::{Setting, read_value, read_yaml};
use fl_data_kit::{Set, SetSpec, data_dir, linked_sets, list, load};
use std::path::Path;

fn named(yaml: &str) -> SetSpec {
    read_yaml(yaml).unwrap()
}

fn error(set: &SetSpec, dir: &Path) -> String {
    format!("{:#}", load(set, dir, None).unwrap_err())
}

#[test]
fn every_set_reads_back_and_knows_its_task() {
    let mut with_defaults = 0;
    for decl in linked_sets() {
        let Ok(set) = SetSpec::named(decl.name) else {
            continue;
        };
        assert_eq!(set.name(), decl.name);
        assert_eq!(read_value::<SetSpec>(&set.write()).unwrap(), set);
        assert!(set.task().is_some(), "{}", decl.name);
        let facts = set.facts();
        assert_eq!(facts.files.is_empty(), facts.folder.is_empty());
        with_defaults += 1;
    }
    assert_eq!(with_defaults, 16);
    let text = format!("{:#}", SetSpec::named("minst").unwrap_err());
    assert!(text.contains("did you mean `mnist`?"), "{text}");
}

#[test]
fn a_set_that_is_not_there_says_where_it_should_be_and_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let sets = linked_sets()
        .into_iter()
        .filter_map(|decl| SetSpec::named(decl.name).ok());
    for set in sets.filter(|set| !set.facts().files.is_empty()) {
        let text = error(&set, dir.path());
        let known = set.facts();
        let wanted = dir.path().join(known.folder).join(known.files[0][0]);
        for part in [
            &wanted.display().to_string(),
            known.source,
            "--data-dir",
            "FL_DATA_DIR",
            "blobs, cells, friedman, glyphs, multi-label, phrases",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

#[test]
fn sets_are_listed_with_what_is_there() {
    let dir = Path::new("nowhere");
    let entry = |name| list(dir).into_iter().find(|e| e.name == name).unwrap();
    assert!(entry("blobs").present() && !entry("sst2").present());
    assert_eq!(entry("blobs").rows, Some((1000, 500)));
    assert_eq!(entry("sst2").files[0].wanted, dir.join("sst2/train.tsv"));
}

#[test]
fn the_data_directory_is_what_was_given_first() {
    assert_eq!(data_dir(Some(Path::new("here"))), Path::new("here"));
    assert!(!data_dir(None).as_os_str().is_empty());
}

/// Rows, test rows and training rows per class of every stored set; these need the files.
#[test]
fn real_files_hold_what_is_published() {
    let Some(dir) = std::env::var_os("FL_DATA_DIR") else {
        eprintln!("skipped: FL_DATA_DIR is not set, so there are no real files to read");
        return;
    };
    let check = |name: &str, train: &[u32], test: usize, width: usize| -> Set {
        let set = load(&SetSpec::named(name).unwrap(), Path::new(&dir), None).unwrap();
        assert_eq!(set.train.class_counts(), train, "{name}");
        assert_eq!(
            (
                set.test.len(),
                set.train.samples.width(),
                set.test.samples.width()
            ),
            (test, width, width),
            "{name}"
        );
        set
    };
    check(
        "mnist",
        &[5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        10_000,
        784,
    );
    check("fashion-mnist", &[6000; 10], 10_000, 784);
    check("pneumoniamnist", &[1214, 3494], 624, 784);
    check("adult", &[24_720, 7841], 16_281, 123);
    check("cod-rna", &[39_690, 19_845], 271_617, 8);
    check("sst2", &[29_780, 37_569], 872, 2048);
    let raw = check("adult-raw", &[24_720, 7841], 16_281, 105);
    let adult = load(&named("adult"), Path::new(&dir), None).unwrap();
    assert_eq!(
        raw.train.classes(),
        adult.train.classes(),
        "both forms of Adult are in the same order"
    );
    assert_eq!(raw.test.class_counts(), [12_435, 3846]);

    let per_class = |set: &Examples, low: u32, high: u32| {
        set.class_counts().iter().all(|n| (low..=high).contains(n))
    };
    let news = load(&SetSpec::named("ag-news").unwrap(), Path::new(&dir), None).unwrap();
    assert_eq!(news.test.class_counts(), [1900; 4]);
    assert!(per_class(&news.train, 2456, 30_000));
    // the canonical batches hold 1,000 of each class, a stored subset 400
    let cifar = load(&named("cifar10"), Path::new(&dir), None).unwrap();
    assert!(per_class(&cifar.train, 2000, 5000) && per_class(&cifar.test, 1000, 1000));
    let pneumonia = load(&named("pneumoniamnist"), Path::new(&dir), None).unwrap();
    assert_eq!(pneumonia.validation.unwrap().class_counts(), [135, 389]);
    for entry in list(Path::new(&dir))
        .iter()
        .filter(|e| e.name.ends_with("mnist"))
    {
        let set = load(&SetSpec::named(entry.name).unwrap(), Path::new(&dir), None).unwrap();
        assert_eq!(entry.rows, Some((set.train.len(), set.test.len())));
    }
}
