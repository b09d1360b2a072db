use fl_core::Inputs;
use fl_core::settings::read_yaml;
use fl_data_kit::{Normalise, Set, SetSpec, load};
use std::path::Path;

fn named(yaml: &str) -> SetSpec {
    read_yaml(yaml).unwrap()
}

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn error(set: &SetSpec, dir: &Path) -> String {
    format!("{:#}", load(set, dir, None).unwrap_err())
}

#[test]
fn titles_count_where_the_training_rows_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let news = named("{ag-news: {width: 65536}}");
    let row = |set: &Set| match &**set.test.samples.inputs() {
        Inputs::Sparse { columns, .. } => columns.len(),
        _ => panic!("words are sparse"),
    };
    write(
        dir.path(),
        "agnews/test.csv",
        b"\"4\",\"one two\",\"three\"\n",
    );
    write(dir.path(), "agnews/train-subset.csv", b"\"1\",\"\",\"x\"\n");
    assert_eq!(row(&load(&news, dir.path(), None).unwrap()), 1);
    write(dir.path(), "agnews/train.csv", b"\"1\",\"t\",\"x\"\n");
    assert_eq!(row(&load(&news, dir.path(), None).unwrap()), 3);
    write(
        dir.path(),
        "agnews/test.csv",
        b"\"5\",\"one two\",\"three\"\n",
    );
    assert!(error(&news, dir.path()).contains("line 1: the class is `5`; it must be in 1..=4"));
}

#[test]
fn texts_of_two_sets_have_the_same_word_numbers() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "agnews/train.csv",
        b"\"1\",\"A film\",\"of note\"\n",
    );
    write(dir.path(), "agnews/test.csv", b"\"2\",\"\",\"x\"\n");
    write(
        dir.path(),
        "sst2/train.tsv",
        b"sentence\tlabel\na film of many words\t1\n",
    );
    write(dir.path(), "sst2/dev.tsv", b"sentence\tlabel\n\t0\n");
    let [news, films] = ["ag-news", "sst2"].map(|name| {
        let set = named(&format!("{{{name}: {{width: 8192, words: 3}}}}"));
        assert_eq!(set.task().unwrap().input, [3]);
        let scaled = Normalise {
            mean: vec![0.0; 3],
            std: vec![1.0; 3],
        };
        let error = load(&set, dir.path(), Some(&scaled)).unwrap_err();
        assert!(format!("{error:#}").contains("numbers of words"));
        load(&set, dir.path(), None).unwrap()
    });
    let row = news.train.samples.values();
    assert_eq!(row, films.train.samples.values());
    assert!(
        row.iter()
            .all(|n| n.fract() == 0.0 && (1.0..=8192.0).contains(n))
    );
    assert_eq!(films.test.samples.values().sum(), 0.0);
}
