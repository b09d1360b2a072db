//! Files of a user's own, as spec and data.

use fl_core::settings::read_yaml;
use fl_core::{Examples, Stream, TaskKind};
use fl_data::{Assembled, DataSpec, build, fingerprints};
use fl_data_kit::dataset::Problem;
use fl_plugin_data_files::Files;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

mod columns;
mod formats;
mod images;
mod labels;
mod leaf;
mod mistakes;
mod overlap;
mod paired_images;

/// A folder of files and a spec beside them.
struct Case(tempfile::TempDir);

impl Case {
    fn new(files: &[(&str, &str)]) -> Self {
        let case = Self(tempfile::tempdir().unwrap());
        files
            .iter()
            .for_each(|(name, text)| case.write(name, text.as_bytes()));
        case
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// What `fl check` would say, or the resolved section.
    fn spec(&self, files: &str, more: &str) -> Result<DataSpec, Vec<String>> {
        let yaml = format!("{{set: {{files: {files}}}{more}}}");
        let mut spec: DataSpec = read_yaml(&yaml).map_err(|error| vec![error.to_string()])?;
        let place = self.0.path().display().to_string();
        let shown = |(path, text): Problem| {
            let path = fl_core::settings::show_path(&path);
            format!("{path}: {}", text.replace(&format!("{place}/"), ""))
        };
        match spec.resolve(self.0.path()) {
            problems if problems.is_empty() => Ok(spec),
            problems => Err(problems.into_iter().map(shown).collect()),
        }
    }

    fn data(&self, files: &str, more: &str) -> Assembled {
        let mut data = self.data_with_notes(files, more);
        // most cases have few test rows
        data.hidden_notes.retain(|note| !note.contains(FEW));
        data
    }

    fn data_with_notes(&self, files: &str, more: &str) -> Assembled {
        let spec = self.spec(files, more).unwrap_or_else(|e| panic!("{e:?}"));
        build(&spec, Path::new("nowhere"), &Stream::root(1)).unwrap()
    }

    fn error(&self, files: &str) -> String {
        self.spec(files, "").unwrap_err().join("\n")
    }
}

const FEW: &str = "one row has a weight of";

const PEOPLE: &str = "age,job,income\n20,nurse,low\n30,cook,high\n40,nurse,high\n50,?,low\n";
const TEST: &str = "age,job,income\n60,pilot,high\n";

fn people() -> Case {
    Case::new(&[("people.csv", PEOPLE), ("test.csv", TEST)])
}

fn csv(more: &str) -> String {
    format!("{{format: csv, train: people.csv, test: test.csv, label: income{more}}}")
}

/// All rows of all clients.
fn rows(data: &Assembled) -> Vec<Vec<f32>> {
    let mut all: Vec<(u32, Vec<f32>)> = Vec::new();
    for own in &data.clients {
        let values = own.samples.values();
        let rows = values.rows().into_iter().map(|row| row.to_vec());
        all.extend(own.samples.ids().iter().copied().zip(rows));
    }
    all.sort_by_key(|(id, _)| *id);
    all.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn a_file_each_is_a_client_each() {
    let case = Case::new(&[
        ("h/a.csv", "x,y\n1,0\n2,1\n3,0\n"),
        ("h/b.csv", "y,x\n1,4\n0,5\n"), // the order of columns may differ
        ("h/notes.txt", "not a table"),
        ("t.csv", "x,y\n9,1\n"),
        ("deep/one/p.csv", "x,y\n1,0\n"),
        ("deep/one/q.csv", "x,y\n2,1\n"),
        ("deep/two/p.csv", "x,y\n3,1\n"),
    ]);
    let sizes = |train: &str, more: &str| {
        let data = case.data(
            &format!("{{format: csv, train: {train}, test: t.csv, label: y}}"),
            more,
        );
        (
            data.clients.iter().map(|own| own.len()).collect::<Vec<_>>(),
            rows(&data),
        )
    };
    let (list, values) = sizes("[h/a.csv, h/b.csv]", "");
    assert_eq!(
        (list, values),
        (vec![3, 2], (1..=5).map(|x| vec![x as f32]).collect())
    );
    assert_eq!(sizes("h", "").0, [3, 2], "a folder of tables");
    assert_eq!(sizes("'h/*.csv'", "").0, [3, 2], "a pattern");
    assert_eq!(sizes("[deep/one, deep/two]", "").0, [2, 1], "a folder each");
    assert_eq!(
        sizes("'deep/*'", "").0,
        [2, 1],
        "what a pattern matches may be folders"
    );
    let [alone, listed] = ["'h/*.csv'", "['h/*.csv']"].map(|train| {
        let files = format!("{{format: csv, train: {train}, test: t.csv, label: y}}");
        case.data(&files, "").notes.join("\n")
    });
    let said = "`train` is a list with one entry, so its 2 files are one whole; without the brackets each file is a client's";
    assert!(!alone.contains(said) && listed.contains(said), "{listed}");
    assert_eq!(
        sizes("[h/a.csv, h/b.csv]", ", split: iid, clients: 5").0,
        [1; 5],
        "one set in two files"
    );
    for one in ["[h/a.csv]", "'h/a*.csv'"] {
        assert_eq!(sizes(one, "").0, [3], "{one} is one client's");
        let files = format!("{{format: csv, train: {one}, test: t.csv, label: y}}");
        let error = case.spec(&files, ", clients: 3").unwrap_err();
        let says = "there are 1 training files for 3 clients; leave `clients` out";
        assert!(error[0].contains(says), "{error:?}");
        assert_eq!(sizes(one, ", split: iid, clients: 3").0, [1; 3], "{one}");
    }
    let error = case
        .spec(
            "{format: csv, train: h, test: t.csv, label: y}",
            ", clients: 3",
        )
        .unwrap_err();
    assert!(
        error[0].contains("there are 2 training files for 3 clients"),
        "{error:?}"
    );
    let error = case
        .spec(
            "{format: csv, train: h/a.csv, test: t.csv, label: y}",
            ", split: by-file",
        )
        .unwrap_err();
    assert!(error[0].contains("by-file is for sets"), "{error:?}");
    // held out from every file, and public rows belong to no client
    let held = "{format: csv, train: h, holdout: 0.34, label: y}";
    let data = case.data(held, "");
    assert_eq!(
        (
            data.clients[0].len(),
            data.clients[1].len(),
            data.test.len()
        ),
        (2, 1, 2)
    );
    let owners: Vec<&str> = data
        .owners
        .iter()
        .map(|path| path.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(owners, ["a.csv", "b.csv"]);
}

#[test]
fn a_resolved_spec_reads_back_from_anywhere_and_its_files_have_hashes() {
    let case = people();
    let spec = case.spec(&csv(""), "").unwrap();
    let mut again: DataSpec =
        fl_core::settings::read_value(&fl_core::settings::Setting::write(&spec)).unwrap();
    assert_eq!(again.resolve(Path::new("elsewhere")), []);
    assert_eq!(again, spec);
    let hashes = fingerprints(&spec, Path::new("nowhere")).unwrap();
    assert_eq!(hashes.len(), 2);
    assert!(hashes[0].0.ends_with("people.csv") && hashes[0].1.len() == 64);
    case.write("people.csv", b"age,job,income\n1,a,low\n2,b,high\n");
    assert_ne!(
        fingerprints(&spec, Path::new("nowhere")).unwrap()[0],
        hashes[0]
    );
}

fn npy(kind: &str, shape: &str, content: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(content);
    bytes
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn the_folder_of_a_spec_is_no_pattern() {
    let table = |x: u32| format!("x,y\n{x},a\n{x},b\n{x},a\n");
    let case = Case::new(&[
        ("run [2]/h/a.csv", &table(1)),
        ("run 2/h/a.csv", &table(2)),
        ("run 2/b.csv", &table(2)),
    ]);
    let files = |train: &str| format!("{{format: csv, train: {train}, label: y, holdout: 0.4}}");
    let spec = |train: &str| {
        let yaml = format!("{{set: {{files: {}}}, clients: 1}}", files(train));
        let mut spec: DataSpec = read_yaml(&yaml).unwrap();
        let problems = spec.resolve(&case.0.path().join("run [2]"));
        (spec, problems)
    };
    for train in ["\"h/*.csv\"", "\"h/[ab].csv\"", "h/a.csv", "h"] {
        let (spec, problems) = spec(train);
        assert_eq!(problems, [], "{train}");
        let data = build(&spec, Path::new("nowhere"), &Stream::root(1)).unwrap();
        assert_eq!(rows(&data)[0], [1.0], "{train}");
    }
    let (_, problems) = spec("b.csv");
    assert_eq!(problems.len(), 1, "that of another folder is not there");
}
