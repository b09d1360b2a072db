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

mod leaf;
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

#[test]
fn few_test_rows_are_counted() {
    let rows = |n: usize| "x,y\n".to_string() + &"1,a\n2,b\n".repeat(n / 2);
    let told = |tests: usize| {
        let case = Case::new(&[("a.csv", &rows(20)[..]), ("t.csv", &rows(tests))]);
        let files = "{format: csv, train: a.csv, test: t.csv, label: y}";
        let notes = case.data_with_notes(files, "").hidden_notes;
        notes.into_iter().find(|note| note.contains(FEW))
    };
    let due = "there are 8 test rows: one row has a weight of 12 % in each measure";
    assert_eq!((told(8).as_deref(), told(10)), (Some(due), None));
}

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

/// However a file is named a second time: a guarantee relies on each example having one
/// client.
#[test]
fn a_clients_file_that_is_used_twice_is_seen() {
    let case = Case::new(&[
        ("a.csv", PEOPLE),
        ("b.csv", "age,job,income\n1,nurse,low\n2,cook,high\n"),
        ("copy.csv", PEOPLE),
        ("test.csv", TEST),
        ("deep/c.csv", "age,job,income\n3,nurse,low\n4,cook,high\n"),
    ]);
    #[cfg(unix)]
    std::os::unix::fs::symlink(case.0.path().join("a.csv"), case.0.path().join("link.csv"))
        .unwrap();
    let known = "label: income, classes: [low, high], columns: {age: {number: {range: [0, 99]}}, job: skip}";
    let found = |train: &str, test: &str, more: &str| {
        let files = format!("{{format: csv, train: {train}, test: {test}, {known}}}");
        let found = case.data(&files, more).inferred.join("; ");
        found.replace(&format!("{}/", case.0.path().display()), "")
    };
    let often = "more than once";
    for (train, test, why) in [
        ("[a.csv, b.csv]", "test.csv", ""),
        ("[a.csv, ./a.csv]", "test.csv", often),
        ("['[ab].csv', a.csv]", "test.csv", often),
        ("[deep, deep/c.csv]", "test.csv", often),
        ("[a.csv, copy.csv]", "test.csv", often),
        ("[a.csv, b.csv]", "deep/../b.csv", "test rows as well"),
        ("[a.csv, b.csv]", "copy.csv", "test rows as well"),
        #[cfg(unix)]
        ("[a.csv, link.csv]", "test.csv", often),
        #[cfg(unix)]
        ("[a.csv, b.csv]", "link.csv", "test rows as well"),
    ] {
        let found = found(train, test, ", clients: 2");
        let right = match why {
            "" => found.is_empty(),
            why => found.contains(why),
        };
        assert!(right, "{train}, {test}: {found}");
    }
    // public samples that are a client's
    for (from, shared) in [("test.csv", false), ("a.csv", true), ("copy.csv", true)] {
        let set = format!("{{files: {{format: csv, train: {from}, test: test.csv, {known}}}}}");
        let public = format!(", clients: 2, public: {{from: {{set: {set}}}}}");
        let found = found("[a.csv, b.csv]", "test.csv", &public);
        assert_eq!(
            found.contains("the clients' and public as well"),
            shared,
            "{from}: {found}"
        );
    }
}

/// A copy has other bytes once it is packed, sorted, added to or written in another format.
#[test]
fn rows_that_are_used_twice_are_seen_whatever_file_holds_them() {
    let case = Case::new(&[
        ("a.csv", PEOPLE),
        ("b.csv", "age,job,income\n1,nurse,low\n2,cook,high\n"),
        (
            "sorted.csv",
            "age,job,income\n50,?,low\n40,nurse,high\n30,cook,high\n20,nurse,low\n",
        ),
        ("more.csv", &format!("{PEOPLE}70,cook,low\n")),
        ("one.csv", "age,job,income\n71,cook,low\n30,nurse,low\n"),
        (
            "a.jsonl",
            "{\"age\": 20, \"job\": \"nurse\", \"income\": \"low\"}\n",
        ),
        ("test.csv", TEST),
        ("none.csv", "age,job,income\n"),
    ]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(PEOPLE.as_bytes()).unwrap();
    case.write("packed.csv.gz", &packed.finish().unwrap());
    let known = "label: income, classes: [low, high], columns: {age: {number: {range: [0, 99]}}, job: skip}";
    let files = |format: &str, train: &str, test: &str| {
        format!("{{format: {format}, train: {train}, test: {test}, {known}}}")
    };
    let shared = "rows of the clients' files are test rows as well";
    for (test, count) in [
        ("packed.csv.gz", "4 of 4"),
        ("sorted.csv", "4 of 4"),
        ("more.csv", "4 of 5"),
        ("one.csv", "1 of 2"),
    ] {
        let data = case.data(&files("csv", "[a.csv, b.csv]", test), "");
        assert_eq!(data.inferred, [shared], "{test}");
        let counted = format!("{count} test rows are rows of the clients too");
        assert_eq!(data.hidden_notes, [counted], "{test}");
        // of one file that is dealt too
        let data = case.data(&files("csv", "a.csv", test), ", clients: 2");
        assert_eq!(data.inferred, [shared], "{test}");
        // one client's and another's
        let own = format!("[b.csv, a.csv, {test}]");
        let data = case.data(&files("csv", &own, "test.csv"), "");
        let twice = data.twice.unwrap();
        assert!(
            data.inferred.is_empty() && twice.contains("a.csv"),
            "{twice}"
        );
        assert!(
            data.hidden_notes[0].contains(&twice),
            "{:?}",
            data.hidden_notes
        );
    }
    for (format, public) in [
        ("csv", "packed.csv.gz"),
        ("csv", "sorted.csv"),
        ("csv", "more.csv"),
        ("jsonl", "a.jsonl"),
    ] {
        let public = format!("{{format: {format}, train: {public}, {known}}}");
        let more = format!(", public: {{from: {{set: {{files: {public}}}}}}}");
        let data = case.data(&files("csv", "[a.csv, b.csv]", "test.csv"), &more);
        let told = ["rows of `files` are the clients' and public as well"];
        assert_eq!(data.inferred, told, "{public}");
        let note = data.hidden_notes.join("; ");
        assert!(
            note.contains("public rows are rows of the clients too"),
            "{note}"
        );
    }
    // other rows are no one else's, and neither are those of a client that has none
    let data = case.data(&files("csv", "[a.csv, none.csv, b.csv]", "test.csv"), "");
    assert!(data.inferred.is_empty() && data.twice.is_none());
    let sizes: Vec<usize> = data.clients.iter().map(|own| own.len()).collect();
    assert_eq!(sizes, [4, 0, 2]);
}

/// Which rows of a user's one file are public, and which are used, follows all of them.
#[test]
fn public_rows_out_of_a_file_of_the_clients_are_told() {
    let case = people();
    let columns = ", classes: [low, high], columns: {age: {number: {range: [0, 99]}}, job: skip}";
    for (more, told) in [
        ("", None),
        (", public: {from: {share: 0.5}}", Some("public samples")),
        (", public: {from: {count: 2}}", Some("public samples")),
        (", limit: {train: 2}", Some("`limit`")),
    ] {
        let data = case.data(&csv(columns), &format!(", clients: 1{more}"));
        let found = data.inferred.join("; ");
        let right = told.map_or(found.is_empty(), |told| found.contains(told));
        assert!(right, "{more}: {found}");
    }
}

#[test]
fn a_table_is_read_as_it_looks_and_says_what_was_inferred() {
    let data = people().data(&csv(""), ", clients: 2");
    // a number, and the categories cook and nurse; `?` and what no training row has are 0
    assert_eq!(
        rows(&data),
        [
            [20.0, 0.0, 1.0],
            [30.0, 1.0, 0.0],
            [40.0, 0.0, 1.0],
            [50.0, 0.0, 0.0]
        ]
    );
    assert_eq!(data.test.samples.values().row(0).to_vec(), [60.0, 0.0, 0.0]);
    assert_eq!(
        (data.classes, data.test.classes().unwrap()),
        (vec!["high".into(), "low".into()], vec![0])
    );
    let columns: Vec<String> = data
        .columns
        .iter()
        .map(|(a, b)| format!("{a}: {b}"))
        .collect();
    assert_eq!(
        columns,
        [
            "age: a number, not scaled (inferred)",
            "job: one of 2 categories: cook, nurse (inferred)",
            "income: the class"
        ]
    );
    assert_eq!(data.notes.len(), 4, "{:?}", data.notes);
    let kinds =
        "clients' rows: age (numbers), job (categories); column `job` is missing in 1 of 4 rows";
    assert!(data.notes[1].contains(kinds), "{:?}", data.notes);
}

#[test]
fn a_column_that_looks_like_something_else_is_named() {
    let row = |k: usize| {
        let floor = if k % 4 == 1 {
            k.to_string()
        } else {
            format!("{k}{}", ["a", "b", "c"][k % 3])
        };
        let (job, income) = (["cook", "nurse"][k % 2], ["low", "high"][k / 2 % 2]);
        format!(
            "patient {k},{floor},{job},{},{income}\n",
            ["?", "x"][k.min(1)]
        )
    };
    let table = "id,floor,job,mark,income\n".to_string() + &(0..20).map(row).collect::<String>();
    let case = Case::new(&[
        ("people.csv", &table[..]),
        (
            "test.csv",
            "id,floor,job,mark,income\npatient 1,5,cook,x,low\n",
        ),
    ]);
    let found = case.data(&csv(""), "").inferred.join("; ");
    for said in [
        "column `id` has 20 different texts in 20 rows: say `columns: {id: skip}` if it is an id",
        "column `floor` has categories, though 5 of 20 fields are numbers; others are `0a` (1), `10b` (1), `11c` (1) and 12 more",
        "column `mark` is missing in 1 of 20 rows",
    ] {
        assert!(found.contains(said), "{found}");
    }
    assert!(!found.contains("column `job`"), "{found}");
    let job = |k: usize| ["cook", "Cook", "ward nurse", "ward\u{a0}nurse", "a", "A"][k % 6];
    let row = |k: usize| format!("{},0x{k:x}1,{}\n", job(k), ["low", "high"][k / 2 % 2]);
    let table = "job,hex,income\n".to_string() + &(0..120).map(|k| row(k / 2)).collect::<String>();
    let case = Case::new(&[("people.csv", &table[..]), ("test.csv", &table)]);
    let found = case.data(&csv(""), "").inferred.join("; ");
    for said in [
        "only capital letters tell `A` and `a`, `Cook` and `cook` apart",
        "only hidden characters tell `ward nurse` and `ward\\u{a0}nurse` apart",
        "column `hex` has 60 categories, each with a digit, such as `0x01`: write plain numbers",
    ] {
        assert!(found.contains(said), "{found}");
    }
}

/// A field that is no number would make a column of numbers one of categories.
#[test]
fn a_column_of_numbers_with_a_field_that_is_none_is_a_mistake() {
    let table = |cells: &[&str]| {
        let rows = cells.iter().enumerate();
        rows.fold("b,y\n".to_string(), |all, (at, cell)| {
            format!("{all}\"{cell}\",{}\n", at % 2)
        })
    };
    let numbers = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let with = |cell: &'static str| [&numbers[..2], &[cell], &numbers[3..]].concat();
    let ways = "write plain numbers (`1234.5`, without unit or `,`), or add texts that mean a missing number to `missing`, \
                or say `columns: {b: category}`";
    let many: Vec<String> = (0..12).map(|k| format!("{k} kg")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (a, b, said) in [
        (
            with("6x"),
            vec![],
            "a.csv:4: column `b`: 7 of 8 values are numbers, and `6x` is not; write",
        ),
        (
            with("1,200"),
            vec![],
            "a.csv:4: column `b`: 7 of 8 values are numbers, and `1,200` is not",
        ),
        (
            with("6 kg"),
            vec![],
            "a.csv:4: column `b`: 7 of 8 values are numbers, and `6 kg` is not",
        ),
        (
            with("nan"),
            vec![],
            "a.csv:4: column `b`: 7 of 8 values are numbers, and `nan` is not",
        ),
        // at one site
        (
            vec!["1", "2"],
            vec!["6 kg", "7 kg", "8 kg"],
            "b.csv:2: column `b`: 2 of 5 values are numbers, and `6 kg` is not; others are `6 kg` (1), `7 kg` (1), `8 kg` (1); \
             in a.csv all are",
        ),
        // everywhere
        (
            vec!["1,200", "2,300"],
            vec![],
            "a.csv:2: column `b`: 0 of 2 values are numbers, and `1,200` is not",
        ),
        (
            vec!["12,5", "8"],
            vec![],
            "column `b`: 1 of 2 values are numbers, and `12,5` is not",
        ),
        (
            many,
            vec![],
            "column `b`: 0 of 12 values are numbers, and `0 kg` is not",
        ),
    ] {
        let case = Case::new(&[("a.csv", &table(&a)), ("b.csv", &table(&b))]);
        let train = if b.is_empty() {
            "a.csv"
        } else {
            "[a.csv, b.csv]"
        };
        let files =
            |more: &str| format!("{{format: csv, train: {train}, holdout: 0.5, label: y{more}}}");
        let error = case.error(&files(""));
        assert!(error.contains(said) && error.contains(ways), "{error}");
        case.data(&files(", columns: {b: category}"), "");
    }
    // texts that stand for a missing number
    let case = Case::new(&[("a.csv", &table(&with("n/a")))]);
    let files = "{format: csv, train: a.csv, holdout: 0.5, label: y, missing: [n/a], columns: {b: {number: {missing: 0}}}}";
    case.data(files, "");
    // categories that begin with a digit
    let ages = [
        "18-25", "26-35", "36-45", "18-25", "2 rooms", "3 rooms", "3 rooms", "1st",
    ];
    let case = Case::new(&[("a.csv", &table(&ages))]);
    case.data("{format: csv, train: a.csv, holdout: 0.5, label: y}", "");
}

#[test]
fn test_rows_of_categories_that_no_training_row_has_are_counted() {
    let data = people().data(&csv(""), ", clients: 2");
    let said = "test rows have categories that no row of a client has, and no value stands for them: `job` in 1 of 1 (`pilot`)";
    assert!(data.notes.contains(&said.into()), "{:?}", data.notes);
    let case = people();
    case.write("test.csv", b"age,job,income\n60,?,high\n");
    let data = case.data(&csv(""), ", clients: 2");
    assert!(
        !data.notes.iter().any(|note| note.contains("test rows")),
        "{:?}",
        data.notes
    );
}

/// Whatever program wrote the labels: by site, in the test rows, in the spec, in any format.
#[test]
fn labels_that_are_equal_as_numbers_or_truth_values_are_one_class() {
    let table = |labels: &[&str]| {
        let row = |(at, label): (usize, &&str)| format!("{at},{label}\n");
        "x,y\n".to_string() + &labels.iter().enumerate().map(row).collect::<String>()
    };
    let found = |a: &[&str], b: &[&str], test: &[&str], more: &str| {
        let case = Case::new(&[
            ("a.csv", &table(a)),
            ("b.csv", &table(b)),
            ("t.csv", &table(test)),
        ]);
        let files = format!("{{format: csv, train: [a.csv, b.csv], test: t.csv, label: y{more}}}");
        let data = case.data(&files, "");
        let all = data.clients.iter().chain([&data.test]);
        let of: Vec<u32> = all.flat_map(|own| own.classes().unwrap()).collect();
        let notes = [data.notes, data.hidden_notes].concat().join("\n");
        (data.classes.join(" "), of, notes)
    };
    let of = vec![1, 0, 1, 0, 1, 0];
    for (a, b, test, names, reads) in [
        (
            ["1", "0"],
            ["1.0", "0.0"],
            ["1", "0"],
            "0 1",
            "`0.0` as `0`, `1.0` as `1`",
        ),
        (
            ["1", "-0"],
            ["01", "0"],
            ["1e0", "0.0"],
            "0 1",
            "`-0` and `0.0` as `0`, `01` and `1e0` as `1`",
        ),
        (
            ["True", "False"],
            ["1", "0"],
            ["true", "FALSE"],
            "0 1",
            "`FALSE` and `False` as `0`, `True` and `true` as `1`",
        ),
        (
            ["True", "False"],
            ["true", "false"],
            ["TRUE", "FALSE"],
            "false true",
            "`FALSE` and `False` as `false`, `TRUE` and `True` as `true`",
        ),
        // the spelling that all have stays
        (["02", "01"], ["02", "01"], ["02", "01"], "01 02", ""),
        (
            ["dog", "cat"],
            ["dog", "cat"],
            ["dog", "cat"],
            "cat dog",
            "",
        ),
    ] {
        let (classes, labels, notes) = found(&a, &b, &test, "");
        assert_eq!((&classes[..], &labels), (names, &of), "{notes}");
        let said = format!(
            "classes in the clients' 4 rows: {}",
            names.replace(' ', ", ")
        );
        let right = match reads {
            "" => !notes.contains("it reads"),
            reads => notes.contains(&format!("{said}; it reads {reads}")),
        };
        assert!(notes.contains(&said) && right, "{notes}");
        // with classes that the spec states, and for whom it is private how rows spell them
        let stated = format!(", classes: ['{}']", names.replace(' ', "', '"));
        let (classes, labels, notes) = found(&a, &b, &test, &stated);
        assert_eq!((&classes[..], &labels), (names, &of), "{notes}");
        assert_eq!(
            notes.contains("of the `classes`"),
            !reads.is_empty(),
            "{notes}"
        );
    }
    let case = people();
    for (classes, said) in [
        (
            "['1', '1.0']",
            "`classes` names `1` and `1.0`, which are equal",
        ),
        (
            "[true, 1]",
            "`classes` names `true` and `1`, which are equal",
        ),
    ] {
        let error = case.error(&csv(&format!(", classes: {classes}")));
        assert!(error.contains(said), "{error}");
    }
    // evidence of what may be a slip
    let rare = [&["yes"; 24][..], &["no"; 24], &["Yes", "Yes", "yse"]].concat();
    let (_, _, notes) = found(&rare, &["no"], &["no"], "");
    assert!(
        notes.contains("of one row only: `yse`; only capital letters tell `Yes` and `yes` apart"),
        "{notes}"
    );
    // other formats
    let case = Case::new(&[
        ("a", "1 1:1\n0.0 1:2\n"),
        (
            "l.json",
            r#"{"users": ["u", "v"], "num_samples": [2, 2], "user_data": {"u": {"x": [[1], [2]], "y": ["1.0", 0]}, "v": {"x": [[3], [4]], "y": [1, "0"]}}}"#,
        ),
        ("f.csv", "x,a\n1,1.0\n2,False\n"),
    ]);
    case.write("x.npy", &npy("<f4", "(2, 1)", &floats(&[1.0, 2.0])));
    let texts: Vec<u8> = "1.01  "
        .chars()
        .flat_map(|c| u32::from(c).to_le_bytes())
        .collect();
    case.write("y.npy", &npy("<U3", "(2,)", &texts));
    case.write("z.npy", &npy("|b1", "(2,)", &[1, 0]));
    let large = [(1i64 << 53) + 1, 1 << 53].map(i64::to_le_bytes).concat();
    case.write("n.npy", &npy("<i8", "(2,)", &large));
    let row = "{inputs: x.npy, labels: n.npy}";
    let error = case.error(&format!("{{format: npy, train: {row}, test: {row}}}"));
    assert!(
        error.contains("whole numbers that are read alike"),
        "{error}"
    );
    for files in [
        "{format: libsvm, train: a, test: a, classes: [false, true]}",
        "{format: leaf, train: l.json, test: l.json}",
        "{format: npy, train: [{inputs: x.npy, labels: y.npy}, {inputs: x.npy, labels: z.npy}], test: {inputs: x.npy, labels: z.npy}}",
        "{format: csv, train: f.csv, test: f.csv, findings: [a]}",
    ] {
        let data = case.data(files, ", clients: 2");
        let kinds = [TaskKind::Classes(2), TaskKind::MultiLabel(1)];
        assert!(
            kinds.contains(&data.task.kind),
            "{files}: {:?}",
            data.classes
        );
    }
}

#[test]
fn numbers_to_be_predicted_are_no_classes() {
    let table = |rows: usize, label: &dyn Fn(usize) -> String| {
        let rows = (0..rows).map(|at| format!("{},{}\n", at % 7, label(at)));
        "x,price\n".to_string() + &rows.collect::<String>()
    };
    let price: &dyn Fn(usize) -> String = &|at| format!("{}.25", at % 198);
    let said = |table: &str, more: &str| {
        let case = Case::new(&[("a.csv", table)]);
        let files = format!("{{format: csv, train: a.csv, holdout: 0.2, label: price{more}}}");
        match case.spec(&files, "") {
            Ok(_) => case.data(&files, "").notes.join("\n"),
            Err(errors) => format!("refused: {}", errors.join("\n")),
        }
    };
    assert_eq!(
        said(&table(200, price), ""),
        "refused: set.files.label: `price` has 198 values in 200 rows, such as `0.25`: a class needs several rows each; if \
         they are numbers to predict, say `label: { column: price, kind: number }`, and if they are classes, list them in `classes`"
    );
    // many rows of each, numbers without decimals, texts
    let quarters: &dyn Fn(usize) -> String = &|at| format!("{}", (at % 30) as f64 / 4.0);
    assert!(
        said(&table(3000, quarters), "")
            .starts_with("refused: set.files.label: `price` has 30 values in 3000")
    );
    assert!(said(&table(40, &|at| at.to_string()), "").starts_with("refused"));
    assert!(said(&table(40, &|at| format!("id {at}")), "").starts_with("refused"));
    // ratings, ages, and what the spec says are classes
    let stars: &dyn Fn(usize) -> String = &|at| format!("{}", (at % 9) as f64 / 2.0 + 1.0);
    assert!(
        said(&table(200, stars), "")
            .contains("fl found the 9 classes in the clients' 200 rows: 1, 1.5, 2")
    );
    let ages = said(&table(200, &|at| (at % 70).to_string()), "");
    assert!(
        ages.contains(
            "if `price` is a number to predict, say `label: { column: price, kind: number }`"
        ),
        "{ages}"
    );
    let stated: Vec<String> = (0..198).map(price).collect();
    let stated = said(
        &table(200, price),
        &format!(", classes: [{}]", stated.join(", ")),
    );
    assert!(!stated.starts_with("refused"), "{stated}");
}

#[test]
fn exact_a_label_can_be_a_number() {
    let rows = "x,price\n0,10\n1,30\n2,20\n3,40.5\n";
    let case = Case::new(&[
        ("a.csv", rows),
        ("t.csv", "x,price\n9,30\n"),
        ("wrong.csv", "x,price\n1,ten\n2,\n3,inf\n"),
        ("a.svm", "10 1:2\n30.5 2:1\n"),
    ]);
    let csv = |train: &str, kind: &str| {
        format!(
            "{{format: csv, train: {train}, test: t.csv, label: {{column: price, kind: {kind}}}}}"
        )
    };
    let stated = "{number: {centre: 20, spread: 10, loss: mae}}";
    let data = case.data(&csv("a.csv", stated), ", clients: 1");
    // all rows of the set, in the order of the file
    let of = |examples: &Examples| match &**examples.labels() {
        fl_core::Labels::Numbers(numbers) => numbers.of().iter().copied().collect(),
        other => panic!("{other:?}"),
    };
    let (own, tested): (Vec<f32>, Vec<f32>) = (of(&data.clients[0]), of(&data.test));
    assert_eq!((own, tested), (vec![-1.0, 1.0, 0.0, 2.05], vec![1.0]));
    let (outputs, loss) = (1, fl_core::Loss::Mae);
    assert_eq!(data.task.kind, TaskKind::Numbers { outputs, loss });
    assert!(
        data.columns
            .contains(&("price".into(), "the number to predict".into()))
    );
    let found = |data: &Assembled| {
        data.inferred
            .iter()
            .any(|text| text.contains("scales `price`"))
    };
    assert!(!found(&data));
    // what follows from the clients' rows is said, and counts as seen
    let estimated = case.data(&csv("a.csv", "number"), ", clients: 1");
    assert!(found(&estimated), "{:?}", estimated.inferred);
    let own: Vec<f32> = of(&estimated.clients[0]);
    assert!(own.iter().sum::<f32>().abs() < 1e-6);
    let test: Vec<f32> = of(&estimated.test);
    assert_eq!(test[0], own[1]);
    assert_eq!(
        case.error(&csv("wrong.csv", stated)),
        "set.files.label.column: wrong.csv:2: column `price`: `ten` is not a number; wrong.csv:3: column `price`: the number to predict \
         is missing; wrong.csv:4: column `price`: `inf` is not a number"
    );
    let svm = "{format: libsvm, train: a.svm, holdout: 0.5, label: {kind: {number: {centre: 10, spread: 1}}}}";
    let data = case.data(svm, ", clients: 1");
    assert_eq!(data.task.input, [2]);
    assert!(data.clients[0].numbers().is_some());
    // and a class is written as before
    let spec = case.spec(
        "{format: csv, train: a.csv, test: t.csv, label: {column: price}}",
        "",
    );
    let spec = fl_core::settings::Setting::write(&spec.unwrap());
    assert_eq!(spec["set"]["files"]["label"].as_str(), Some("price"));
}

#[test]
fn what_the_spec_says_is_not_inferred() {
    let all = ", classes: [low, high], columns: {age: {number: {range: [20, 60]}}, job: {category: {of: [nurse, cook, pilot]}}}";
    let data = people().data(&csv(all), ", clients: 1");
    assert_eq!(rows(&data)[1], [0.25, 0.0, 1.0, 0.0]);
    assert_eq!(
        (data.test.classes().unwrap(), data.notes),
        (vec![1], vec![])
    );
    let data = people().data(&csv(", columns: {age: skip, job: {text: {width: 16}}}"), "");
    assert_eq!(data.task.input, [16]);
}

#[test]
fn text_may_keep_its_order() {
    let case = Case::new(&[
        (
            "a.csv",
            "say,who,mood\nyes no yes,me,good\n,you,bad\nno,me,bad\n",
        ),
        ("b.csv", "say,who,mood\nNO no no no,me,bad\n"),
    ]);
    let set = "{format: csv, train: a.csv, test: b.csv, label: mood, classes: [bad, good], \
               columns: {say: {text: {width: 4096, words: 3}}, who: skip}}";
    let data = case.data(set, ", clients: 1");
    let [yes, no] =
        ["yes", "no"].map(|word| fl_data_kit::text::sequence(word, 4096).next().unwrap());
    assert!(yes != no && yes >= 1.0);
    assert_eq!(
        rows(&data),
        [[yes, no, yes], [0.0, 0.0, 0.0], [no, 0.0, 0.0]]
    );
    assert_eq!(data.test.samples.values().row(0).to_vec(), [no; 3]);
    assert_eq!(
        data.columns[0].1,
        "text: its first 3 words, numbers of 4096 hashed"
    );
}

#[test]
fn mistakes_say_file_line_and_column() {
    let case = people();
    for (name, text, part) in [
        (
            "age",
            "age,job,income\n1,a,low\nabc,b,high\n",
            "people.csv:3: column `age`: `abc` is not a number",
        ),
        (
            "empty",
            "age,job,income\n1,a,low\n,b,high\n",
            "people.csv:3: column `age`: is missing",
        ),
        (
            "short",
            "age,job,income\n1,a,low\n2,high\n",
            "people.csv:3: 2 fields; the header has 3 columns",
        ),
        (
            "class",
            "age,job,income\n1,a,low\n2,b,\n",
            "people.csv:3: column `income`: the class is missing",
        ),
        (
            "one class",
            "age,job,income\n1,a,high\n",
            "all training rows are of one class",
        ),
        (
            "twice",
            "age,age,income\n1,a,low\n",
            "people.csv:1: two columns are called `age`",
        ),
        (
            "unnamed",
            ",age,income\n1,a,low\n",
            "people.csv:1: column 1 has no name",
        ),
        (
            "header",
            "years,job,income\n1,a,low\n",
            "there is no column `age`",
        ),
        (
            "two rows",
            "age,job,income\nold,a,low\n1e400,b,high\n3,c,\n",
            "people.csv:2: column `age`: `old` is not a number; people.csv:3: column `age`: `1e400` is larger than a 32-bit \
             number can be; people.csv:4: column `income`: the class is missing",
        ),
        (
            "many rows",
            "age,job,income\n1,a\n2,b\n3\n4\n5\n6\n7\n",
            "people.csv:2: 2 fields; the header has 3 columns (and in 1 more row); people.csv:4: 1 fields; the header has 3 \
             columns (and in 4 more rows)",
        ),
        (
            "quote",
            "age,job,income\n1,\"a,low\n2,b,high\n",
            "people.csv:2: 2 fields; the header has 3 columns; a field goes over several lines: is its closing `\"` missing?",
        ),
        (
            "separator",
            "age;job;income\n1;a;low\n",
            "the header has one column, `age;job;income`: if ';' separates its columns, say `format: { csv: { separator: ';' } }`",
        ),
        (
            "separator and decimal commas",
            "age;job;income\n1,5;a;low\n2,5;b;high\n",
            "people.csv:2: 2 fields; the header has 1 column, `age;job;income`: if ';' separates its columns, say",
        ),
        ("nothing", "", "people.csv: the file is empty"),
        ("no rows", "age,job,income\n", "people.csv: holds no rows"),
    ] {
        case.write("people.csv", text.as_bytes());
        let error = case.error(&csv(", columns: {age: number}"));
        assert!(
            error.starts_with("set.files") && error.contains(part),
            "{name}: {error}"
        );
    }
    case.write("people.csv", b"age,job,income\n1,\xff,low\n");
    assert!(
        case.error(&csv(""))
            .contains("(line 2) is 0xff; save the file as UTF-8")
    );
    let wide: Vec<u8> = PEOPLE.encode_utf16().flat_map(u16::to_le_bytes).collect();
    case.write("people.csv", &wide);
    assert!(
        case.error(&csv(""))
            .contains("people.csv: the file looks like UTF-16; save it as UTF-8")
    );
    let case = people();
    let wrong = |more: &str, part: &str| {
        let error = case.error(&csv(more));
        assert!(error.contains(part), "{error}");
    };
    wrong(
        ", columns: {aeg: number}",
        "there is no column `aeg`; did you mean `age`?",
    );
    wrong(
        ", columns: {age: {number: {range: [0, 45]}}}",
        "people.csv:5: column `age`: 50 is not in the range 0 to 45",
    );
    wrong(
        ", columns: {job: {category: {of: [nurse]}}}",
        "people.csv:3: column `job`: `cook` is none of its categories: nurse",
    );
    wrong(
        ", columns: {age: {category: {of: [50, 20]}}}",
        "people.csv:3: column `age`: `30` is none of its categories: 50, 20",
    );
    wrong(
        ", classes: [low, mid]",
        "people.csv:3: column `income`: `high` is none of the classes of the spec",
    );
    wrong(", max-bytes: 20", "`max-bytes`");
    case.write("test.csv", b"age,income\n1,low\n");
    wrong(
        "",
        "test.csv:1: there is no column `job`, which people.csv has",
    );
    case.write("test.csv", b"age,job,income\n1,cook,mid\n");
    wrong(
        "",
        "test.csv:2: column `income`: `mid` is none of the classes of the training rows: high, low",
    );
}

#[test]
fn what_is_missing_is_said_where_it_stands() {
    let case = people();
    let error =
        case.error("{format: csv, train: [people.csv, other.csv], test: tset.csv, label: income}");
    assert_eq!(
        error,
        "set.files.train[1]: there is no file other.csv\nset.files.test: there is no file tset.csv"
    );
    let error = case.error("{format: csv, train: 'b-*.csv', holdout: 0.5, label: income}");
    assert_eq!(error, "set.files.train: no file matches `b-*.csv`");
    // the folder of the spec is no pattern
    let folder = case.0.path().join("run [2]");
    fs::create_dir(&folder).unwrap();
    for (path, due) in [
        ("b.csv", "there is no file F/b.csv"),
        ("b-*.csv", "no file matches `F/b-*.csv`"),
    ] {
        let yaml =
            format!("{{set: {{files: {{format: csv, train: {path}, holdout: 0.5, label: y}}}}}}");
        let problems = read_yaml::<DataSpec>(&yaml).unwrap().resolve(&folder);
        let said = problems[0].1.replace(&folder.display().to_string(), "F");
        assert_eq!(said, due);
    }
    fs::create_dir(case.0.path().join("empty")).unwrap();
    let error = case.error("{format: csv, train: empty, holdout: 0.5, label: income}");
    assert!(
        error.starts_with("set.files.train: the folder empty holds no file"),
        "{error}"
    );
    let error = case.error("{format: idx, train: {inputs: x, labels: y}, holdout: 0.5}");
    assert!(
        error.starts_with("set.files.train.inputs: there is no file x"),
        "{error}"
    );
    if cfg!(unix) {
        let error = case.error("{format: csv, train: /dev/zero, holdout: 0.5, label: x}");
        assert!(error.contains("no ordinary file"), "{error}");
    }
}

#[test]
fn settings_that_make_no_sense_together_are_mistakes() {
    let case = people();
    for (files, part) in [
        (
            "{format: csv, train: a, label: x}",
            "give `test`, or `holdout`",
        ),
        (
            "{format: csv, train: a, label: x, test: b, holdout: 0.1}",
            "and not both",
        ),
        (
            "{format: csv, train: a, holdout: 0.1}",
            "`label` is missing",
        ),
        (
            "{format: libsvm, train: a, holdout: 0.1, label: x}",
            "leave it out",
        ),
        ("{format: idx, train: a, holdout: 0.1}", "two files"),
        ("{format: npy, train: a, holdout: 0.1}", "needs `label`"),
        (
            "{format: csv, train: a, label: {kind: number}, holdout: 0.1}",
            "`label` must name the `column` with the number",
        ),
        (
            "{format: csv, train: a, label: {column: y, kind: number}, classes: [a, b], holdout: 0.1}",
            "`classes` are for labels that are classes",
        ),
        (
            "{format: pairs, train: {inputs: a, labels: b}, label: {kind: number}, holdout: 0.1}",
            "no numbers to predict",
        ),
        (
            "{format: images, train: a, label: age, holdout: 0.1}",
            "or the column `label` of a table: `train: {inputs: FOLDER, labels: TABLE.csv}`",
        ),
        (
            "{format: images, train: {inputs: a, labels: b.csv}, label: {kind: number}, holdout: 0.1}",
            "labels of `images` are the names of their folders, or the column `label`",
        ),
        (
            "{format: images, train: {inputs: a, labels: b.csv}, label: age, test: c}",
            "and so for `test`",
        ),
        (
            "{format: csv, train: a, label: {kind: class}, holdout: 0.1}",
            "must name a `column`",
        ),
        (
            "{format: csv, train: a, label: {column: y, kind: {number: {centre: 3}}}, holdout: 0.1}",
            "give both `centre` and `spread`",
        ),
        (
            "{format: csv, train: {inputs: a, labels: b}, holdout: 0.1, label: x}",
            "only `idx`, `npy`, `images`, `masks` and `pairs`",
        ),
        (
            "{format: npy, train: a, label: 1, holdout: 0.1, columns: {a: skip}}",
            "`columns` is for tables",
        ),
        (
            "{format: {csv: {separator: ab}}, train: a, label: x, holdout: 0.1}",
            "`separator` must be one",
        ),
        (
            "{format: csv, train: a, label: x, holdout: 0.1, classes: [1, 1]}",
            "names `1` twice",
        ),
        (
            "{format: csv, train: [], label: x, holdout: 0.1}",
            "got an empty list",
        ),
        (
            "{format: csv, train: a, label: x, holdout: 0.1, columns: {a: {number: {range: [1, 1]}}}}",
            "the lower one first",
        ),
        (
            "{format: cvs, train: a, label: x, holdout: 0.1}",
            "must be one of {csv: ..}",
        ),
    ] {
        let error = case.error(files);
        assert!(error.contains(part), "{files}: {error}");
    }
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
fn public_rows_need_neither_labels_nor_rows_to_test_with() {
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, 2, 1);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[7, 200]).unwrap();
    writer.finish().unwrap();
    let npy = |shape: &str, bytes: &[u8]| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
        let padded = format!("{header:<117}\n");
        [&b"\x93NUMPY\x01\x00\x76\x00"[..], padded.as_bytes(), bytes].concat()
    };
    let case = people();
    case.write("others.csv", b"age,job\n25,cook\n35,nurse\n45,cook\n");
    case.write("seen/a.png", &png);
    case.write("seen/b.png", &png);
    case.write("rows.npy", &npy("(3, 1, 2)", &[1, 2, 3, 4, 5, 6]));
    let idx = [
        &[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2][..],
        &[1, 2, 3, 4, 5, 6],
    ]
    .concat();
    case.write("rows.idx", &idx);
    case.write("of.idx", &[0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 0]);
    let columns = "columns: {job: {category: {of: [nurse, cook]}}}, missing: ['', '?', pilot]";
    let own = csv(&format!(", {columns}"));
    let with = |public: &str| format!(", public: {{from: {{set: {{files: {public}}}}}}}");

    let data = case.data(
        &own,
        &with(&format!("{{format: csv, train: others.csv, {columns}}}")),
    );
    let public = data.public.unwrap();
    assert_eq!(public.samples.len(), 3);
    assert!(public.labelled.is_none() && public.truth.is_none());
    assert_eq!(
        data.inferred
            .iter()
            .filter(|what| what.contains("public"))
            .count(),
        0
    );

    let images = "{format: idx, train: {inputs: rows.idx, labels: of.idx}, test: {inputs: rows.idx, labels: of.idx}}";
    for (public, rows) in [
        ("{format: images, train: seen}", 2),
        ("{format: npy, train: rows.npy}", 3),
        ("{format: idx, train: rows.idx}", 3),
    ] {
        let data = case.data(images, &with(public));
        assert_eq!(data.public.unwrap().samples.len(), rows, "{public}");
    }

    let error = case.spec(&own, &with("{format: csv, train: others.csv}"));
    let error = error.unwrap_err().join("\n");
    assert_eq!(
        error,
        "public: column `job` is one of 2 categories: cook, nurse (inferred), and the clients' is one of 2 categories: nurse, cook; \
        give both the same kind in `columns`"
    );
    let labelled = with(&format!("{{format: csv, train: others.csv, {columns}}}"))
        .replace("}}}}", "}}}, labelled: true}");
    let error = case.spec(&own, &labelled).unwrap_err().join("\n");
    assert!(
        error.starts_with("public.from.set.files: `label` is missing"),
        "{error}"
    );
    // the same columns in another order, and classes of other names
    case.write("turned.csv", b"job,age\ncook,25\nnurse,35\n");
    let turned = with(&format!("{{format: csv, train: turned.csv, {columns}}}"));
    let error = case.spec(&own, &turned).unwrap_err().join("\n");
    assert!(error.contains("column `job` stands where"), "{error}");
    case.write("rich.csv", b"age,job,income\n25,cook,rich\n35,nurse,poor\n");
    let rich = with(&format!(
        "{{format: csv, train: rich.csv, label: income, {columns}}}"
    ))
    .replace("}}}}", "}}}, labelled: true}");
    let error = case.spec(&own, &rich).unwrap_err().join("\n");
    assert!(
        error.contains("classes are poor, rich, and the clients' high, low"),
        "{error}"
    );

    let error = case.error("{format: images, train: seen, test: seen}");
    assert!(
        error.contains("all training rows are of one class"),
        "{error}"
    );
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

#[test]
fn test_rows_of_one_class_are_told() {
    let rows = |n: usize, of: &dyn Fn(usize) -> usize| {
        let row = |k: usize| format!("{k}.5,{}\n", ["low", "high"][of(k)]);
        "x,y\n".to_string() + &(0..n).map(row).collect::<String>()
    };
    let told = |tests: String| {
        let case = Case::new(&[("a.csv", &rows(20, &|k| k % 2)[..]), ("t.csv", &tests[..])]);
        let files = "{format: csv, train: a.csv, test: t.csv, label: y}";
        let notes = case.data(files, "").hidden_notes;
        let about = |note: &String| note.contains("test rows are of the class");
        notes.into_iter().find(about).unwrap_or_default()
    };
    let said = "all 12 test rows are of the class `low`: how well a model tells the 2 classes apart is not measured, and `auc` is missing";
    assert_eq!(told(rows(12, &|_| 0)), said);
    assert_eq!(told(rows(12, &|k| usize::from(k == 7))), "");
    assert_eq!(told(rows(3, &|_| 0)), "");
}

#[test]
fn labels_that_no_test_row_tells_apart_are_named() {
    let own = "x,a,b,c\n1,0,1,0\n2,1,0,1\n3,0,1,1\n";
    let told = |tests: &str| {
        let case = Case::new(&[("a.csv", own), ("t.csv", &format!("x,a,b,c\n{tests}")[..])]);
        let files = "{format: csv, train: a.csv, test: t.csv, findings: [a, b, c]}";
        let notes = case.data(files, "").hidden_notes;
        let about = |note: &String| note.contains("`mauc`");
        notes.into_iter().find(about).unwrap_or_default()
    };
    let said = "2 of 3 labels are the same in all test rows that have them, so `mauc` is a mean over the others: `b`, `c`";
    assert_eq!(told("5,0,0,-1\n6,1,0,1\n"), said);
    assert_eq!(told("5,0,0,0\n6,1,1,1\n"), "");
}

#[test]
fn a_field_that_a_row_has_twice_is_a_mistake() {
    let case = Case::new(&[(
        "a.jsonl",
        "{\"x\": 1, \"y\": 0}\n{\"x\": 1, \"y\": 1, \"x\": 2}\n",
    )]);
    let error = case.error("{format: jsonl, train: a.jsonl, holdout: 0.5, label: y}");
    assert!(
        error.contains("a.jsonl:2: two fields of one row are called `x`"),
        "{error}"
    );
}

#[test]
fn tables_in_other_dress() {
    let case = Case::new(&[
        ("a.tsv", "x\ty\n1\t0\n2\t1\n"),
        ("b.csv", "1;no\n2;yes\n"),
        (
            "c.jsonl",
            "{\"x\": 1, \"y\": false}\n\n{\"y\": true, \"x\": 2.5}\n",
        ),
        ("d.jsonl", "{\"x\": [1], \"y\": 1}\n"),
        ("e.jsonl", "{\"x\": 1, \"y\": 1}\n{\"x\": 1, \"y\": 1"),
    ]);
    let held = "holdout: 0.3";
    for files in [
        format!("{{format: csv, train: a.tsv, label: y, {held}}}"),
        format!(
            "{{format: {{csv: {{separator: ';', header: false}}}}, train: b.csv, label: 2, {held}}}"
        ),
        format!("{{format: jsonl, train: c.jsonl, label: y, {held}}}"),
    ] {
        let data = case.data(&files, ", clients: 1");
        assert_eq!(
            (data.task.input, data.task.kind),
            (vec![1], TaskKind::Classes(2)),
            "{files}"
        );
    }
    let error = case.error(&format!(
        "{{format: jsonl, train: d.jsonl, label: y, {held}}}"
    ));
    assert!(
        error.contains("d.jsonl:1: column `x`: must be a number"),
        "{error}"
    );
    let error = case.error(&format!(
        "{{format: jsonl, train: e.jsonl, label: y, {held}}}"
    ));
    assert!(error.contains("e.jsonl:2: not JSON"), "{error}");
    let error = case.error(&format!(
        "{{format: parquet, train: b.csv, label: y, {held}}}"
    ));
    assert!(error.contains("b.csv"), "{error}");
}

/// A table of four rows in Apache's column format, as other programs write it with this codec.
fn column_file(codec: parquet::basic::Compression) -> Vec<u8> {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    let schema = "message rows { required double x; required int64 n; required binary y (UTF8); }";
    let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
    let how = parquet::file::properties::WriterProperties::builder().set_compression(codec);
    let (schema, how) = (Arc::new(schema), Arc::new(how.build()));
    let mut bytes = Vec::new();
    let mut file =
        parquet::file::writer::SerializedFileWriter::new(&mut bytes, schema, how).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let x = column.typed::<DoubleType>();
    x.write_batch(&[0.5, 1.5, -2.0, 3.0], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let n = column.typed::<Int64Type>();
    n.write_batch(&[4, 3, 2, 1], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let y = column.typed::<ByteArrayType>();
    let labels = ["no", "yes", "no", "yes"].map(ByteArray::from);
    y.write_batch(&labels, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    bytes
}

#[test]
fn exact_column_files_with_every_codec() {
    use parquet::basic::{Compression, GzipLevel, ZstdLevel};
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
    ] {
        let case = Case::new(&[]);
        case.write("a.parquet", &column_file(codec));
        case.write("b.parquet", &column_file(codec));
        let files = "{format: parquet, train: a.parquet, test: b.parquet, label: y}";
        let data = case.data(files, ", clients: 1");
        assert_eq!(data.classes, ["no", "yes"], "{codec}");
        assert_eq!(data.task.input, [2], "{codec}");
        assert_eq!(data.test.classes().unwrap(), [0, 1, 0, 1], "{codec}");
        let due = [[0.5, 4.0], [1.5, 3.0], [-2.0, 2.0], [3.0, 1.0]];
        assert_eq!(rows(&data), due, "{codec}");
    }
}

#[test]
fn libsvm_with_any_classes_and_any_width() {
    let case = Case::new(&[
        ("a", "3 1:1 2:1 3:2\n1.0 1:1 2:2 3:1\n"),
        ("b", "+2 1:1 2:3 4:1\n"),
        ("sparse", "1 70:1\n2 1:1\n1 9:1\n"),
    ]);
    let data = case.data("{format: libsvm, train: [a, b], test: a}", ", clients: 2");
    assert_eq!(
        (data.task.input.clone(), data.classes.clone()),
        (vec![4], vec!["1".into(), "2".into(), "3".into()])
    );
    assert_eq!(rows(&data)[2], [1.0, 3.0, 0.0, 1.0]);
    let width = "the largest index in the clients' rows, 4, says how many features there are; say `width` where they are private";
    assert!(
        data.notes.iter().any(|note| note == width),
        "{:?}",
        data.notes
    );
    // a test row that goes further adds features that no client can learn
    case.write("c", b"1 4:2\n3 2:1\n");
    let data = case.data("{format: libsvm, train: a, test: c}", "");
    assert_eq!(data.task.input, [4]);
    let more = "clients' rows, 3, says how many features there are; say `width` where they are private; but test rows go up to 4, so there are 4 features, of which the last 1 are 0 in all rows of clients";
    assert!(
        data.notes.iter().any(|note| note.ends_with(more)),
        "{:?}",
        data.notes
    );
    let data = case.data(
        "{format: {libsvm: {width: 80}}, train: sparse, holdout: 0.3}",
        "",
    );
    assert_eq!(data.task.input, [80]);
    assert!(!data.notes.iter().any(|note| note.contains("features")));
    let error = case.error("{format: {libsvm: {width: 3}}, train: [a, b], test: a}");
    assert!(error.contains("above the `width` 3"), "{error}");
    case.write("a", b"1 1:1\nx 1:1\n");
    assert!(
        case.error("{format: libsvm, train: a, holdout: 0.3}")
            .contains("a: line 2: the label is `x`")
    );
}

/// Whole numbers above 2^24 become equal to their neighbours.
#[test]
fn whole_numbers_that_lose_digits_are_told() {
    let table = |first: u64| {
        let row = |k: u64| format!("{},{}.25,{}\n", first + k, k, k % 2);
        "time,x,y\n".to_string() + &(0..20).map(row).collect::<String>()
    };
    let told = |first: u64, columns: &str| {
        let case = Case::new(&[("a.csv", &table(first)[..])]);
        let files = format!("{{format: csv, train: a.csv, holdout: 0.5, label: y{columns}}}");
        case.data(&files, "").hidden_notes.join("; ")
    };
    for columns in ["", ", columns: {time: {number: {range: [0, 2000000000]}}}"] {
        let said = told(1_700_000_000, columns);
        let due = "column `time`: 19 whole numbers lose digits as 32-bit numbers, such as 1700000001, which becomes 1700000000; subtract a constant, or divide";
        assert!(said.starts_with(due), "{said}");
    }
    let nanoseconds = told(1_700_000_000_000_000_000, "");
    let due = "column `time`: 20 whole numbers lose digits as 32-bit numbers, such as 1700000000000000000, ";
    assert!(nanoseconds.starts_with(due), "{nanoseconds}");
    assert!(!told(1 << 23, "").contains("lose digits"));
    assert_eq!(told(1_700_000_000, ", columns: {time: skip}"), "");
    let case = Case::new(&[]);
    let whole = |at: i64| (1_700_000_000 + at).to_le_bytes();
    case.write(
        "x.npy",
        &npy("<i8", "(4, 1)", &[0, 1, 128, 256].map(whole).concat()),
    );
    case.write("y.npy", &npy("|u1", "(4,)", &[0, 1, 0, 1]));
    let pair = "{inputs: x.npy, labels: y.npy}";
    let data = case.data(&format!("{{format: npy, train: {pair}, holdout: 0.5}}"), "");
    let said = "arrays: 1 whole numbers lose digits as 32-bit numbers, such as 1700000001,";
    assert!(
        data.hidden_notes[0].starts_with(said),
        "{:?}",
        data.hidden_notes
    );
}

#[test]
fn texts_that_are_cut_are_counted() {
    let table = "t,y\none two three,0\none,1\na b c d e,1\n";
    let case = Case::new(&[("a.csv", table), ("t.csv", "t,y\nsome more words,0\n")]);
    let told = |words: &str| {
        let files = format!(
            "{{format: csv, train: a.csv, test: t.csv, label: y, columns: {{t: {{text: {{width: 50{words}}}}}}}}}"
        );
        case.data(&files, "").hidden_notes.join("; ")
    };
    assert_eq!(
        told(", words: 2"),
        "column `t`: 3 texts have more words than `words`, up to 5; fl reads their first ones"
    );
    assert_eq!(
        (told(", words: 5"), told("")),
        (String::new(), String::new())
    );
}

#[test]
fn what_images_lose_is_told() {
    let case = Case::new(&[]);
    let png = |colour: png::ColorType, bits: png::BitDepth, width: u32, pixels: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, 1);
        encoder.set_color(colour);
        encoder.set_depth(bits);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    };
    use png::BitDepth::{Eight, Sixteen};
    use png::ColorType::{Grayscale, GrayscaleAlpha};
    let told = |more: &str| {
        let files = format!("{{format: {{images: {{{more}}}}}, train: a, test: a}}");
        let notes = case.data(&files, "").hidden_notes;
        let lost = |note: &String| note.contains(" image");
        notes
            .into_iter()
            .filter(lost)
            .collect::<Vec<_>>()
            .join("; ")
    };
    case.write(
        "a/cat/opaque.png",
        &png(GrayscaleAlpha, Eight, 2, &[9, 255, 8, 255]),
    );
    case.write("a/dog/plain.png", &png(Grayscale, Eight, 2, &[1, 2]));
    assert_eq!(told(""), "");
    // training and test rows are the same files here
    case.write(
        "a/cat/clear.png",
        &png(GrayscaleAlpha, Eight, 2, &[9, 255, 8, 0]),
    );
    case.write("a/cat/deep.png", &png(Grayscale, Sixteen, 2, &[1, 2, 3, 4]));
    assert_eq!(
        told(""),
        "2 of 8 images have transparent pixels; they get the colour that stands in the file; 2 of 8 images have 16 bits a channel; fl reads the upper 8"
    );
    // a folder in a folder of a class, another ending, an image beside the folders of classes
    for name in [
        "a/cat/more/1.png",
        "a/dog/2.webp",
        "a/0.png",
        "a/dog/.hidden",
    ] {
        case.write(name, &png(Grayscale, Eight, 2, &[1, 2]));
    }
    assert!(told("").ends_with(
        "; 3 entries of image folders are not read: `a/0.png`, `cat/more`, `dog/2.webp`; fl reads files that end in png, jpg, jpeg, and those in folders of classes if there are any"
    ), "{}", told(""));
    for name in ["a/cat/more/1.png", "a/dog/2.webp", "a/0.png"] {
        fs::remove_file(case.0.path().join(name)).unwrap();
    }
    fs::remove_dir(case.0.path().join("a/cat/more")).unwrap();
    case.write("a/cat/wide.png", &png(Grayscale, Eight, 4, &[1, 2, 3, 4]));
    let cut = "2 of 10 images have another shape than `resize`, which cuts off their sides; `by: stretch` keeps them";
    assert!(told("resize: {height: 1, width: 2}").ends_with(cut));
    assert!(!told("resize: {height: 1, width: 2, by: stretch}").contains("cuts"));
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
fn arrays_with_labels_beside_or_inside() {
    let case = Case::new(&[]);
    case.write(
        "x.npy",
        &npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    );
    case.write(
        "y.npy",
        &npy(
            "<i8",
            "(3, 1)",
            &[0i64, 7, 0].map(i64::to_le_bytes).concat(),
        ),
    );
    case.write(
        "xy.npy",
        &npy(
            "<f4",
            "(3, 3)",
            &floats(&[1.0, 0.0, 2.0, 3.0, 7.0, 4.0, 5.0, 0.0, 6.0]),
        ),
    );
    let pair = case.data(
        "{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}",
        ", clients: 1",
    );
    let one = case.data(
        "{format: npy, train: xy.npy, label: 2, holdout: 0.34}",
        ", clients: 1",
    );
    for data in [&pair, &one] {
        assert_eq!(data.classes, ["0", "7"]);
    }
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in [("x.npy", "x.npy"), ("t.npy", "y.npy")] {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(&fs::read(case.0.path().join(content)).unwrap())
            .unwrap();
    }
    case.write("a.npz", &zip.finish().unwrap().into_inner());
    let files = "{format: npz, train: a.npz, label: t, holdout: 0.34}";
    assert_eq!(rows(&case.data(files, ", clients: 1")), rows(&pair));
    let error = case.error("{format: npz, train: a.npz, label: y, holdout: 0.1}");
    assert!(
        error.contains("there is no array `y`; it has: x, t"),
        "{error}"
    );
    case.write(
        "y.npy",
        &npy("<i8", "(2,)", &[0i64, 7].map(i64::to_le_bytes).concat()),
    );
    let error = case.error("{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}");
    assert!(
        error.contains("x.npy holds 3 rows") && error.contains("y.npy holds 2 labels"),
        "{error}"
    );
    case.write(
        "x.npy",
        &npy(
            "<f4",
            "(3, 2)",
            &floats(&[1.0, f32::NAN, 3.0, 4.0, 5.0, 6.0]),
        ),
    );
    case.write("y.npy", &npy("|u1", "(3,)", &[0, 7, 0]));
    let error = case.error("{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.34}");
    assert!(error.contains("x.npy: row 0, value 1: NaN"), "{error}");
}

#[test]
fn bytes_are_images_whichever_side_the_channels_are() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    // image, channel, row, column; and the same numbers with the channel last
    let number = |i: usize, c: usize, r: usize, x: usize| (100 * i + 10 * c + 2 * r + x) as u8;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for i in 0..2 {
        (0..12).for_each(|at| before.push(number(i, at / 4, at / 2 % 2, at % 2)));
        (0..12).for_each(|at| after.push(number(i, at % 3, at / 6, at / 3 % 2)));
    }
    case.write("before.npy", &npy("|u1", "(2, 3, 2, 2)", &before));
    case.write("after.npy", &npy("|u1", "(2, 2, 2, 3)", &after));
    let of = |inputs: &str| {
        let pair = format!("{{inputs: {inputs}, labels: y.npy}}");
        rows(&case.data(
            &format!("{{format: npy, train: {pair}, test: {pair}}}"),
            ", clients: 1",
        ))
    };
    assert_eq!(of("before.npy"), of("after.npy"));
    assert!((of("after.npy")[1][5] * 255.0 - 111.0).abs() < 1e-3);
    let pair = "{inputs: after.npy, labels: y.npy}";
    let error = case.error(&format!("{{format: npy, train: {pair}, holdout: 0.01}}"));
    assert!(
        error.contains("there are no test rows"),
        "1 % of two rows: {error}"
    );
}

#[test]
fn a_note_says_whether_arrays_of_images_are_scaled() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    let bytes: Vec<u8> = (0..24).collect();
    let numbers = floats(&bytes.iter().map(|n| f32::from(*n)).collect::<Vec<_>>());
    let notes = |kind: &str, shape: &str, content: &[u8]| {
        case.write("x.npy", &npy(kind, shape, content));
        let pair = "{inputs: x.npy, labels: y.npy}";
        let files = format!("{{format: npy, train: {pair}, test: {pair}}}");
        let data = case.data(&files, ", clients: 1");
        (rows(&data)[0][1], data.notes.join("\n"))
    };
    let (divided, as_they_are) = ("divided by 255", "taken as they are");
    for shape in ["(2, 3, 4)", "(2, 1, 3, 4)"] {
        let (value, told) = notes("|u1", shape, &bytes);
        assert!((value * 255.0 - 1.0).abs() < 1e-6, "{value}");
        assert!(
            told.contains(divided) && !told.contains(as_they_are),
            "{told}"
        );
        let (value, told) = notes("<f4", shape, &numbers);
        assert_eq!(value, 1.0);
        assert!(
            !told.contains(divided) && told.contains(as_they_are),
            "{told}"
        );
    }
    // rows of a table
    let (value, told) = notes("|u1", "(2, 12)", &bytes);
    assert_eq!(value, 1.0);
    assert!(
        !told.contains(divided) && !told.contains(as_they_are),
        "{told}"
    );
}

/// Arrays of any numbers, and the shapes that can be read in two ways.
#[test]
fn images_of_any_numbers_have_their_channels_in_front() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    let images = |kind: &str, sides: [usize; 3]| {
        let count = 2 * sides.iter().product::<usize>();
        let content: Vec<u8> = match kind {
            "|u1" => (0..count).map(|at| at as u8).collect(),
            "<i8" => (0..count)
                .flat_map(|at| (at as i64).to_le_bytes())
                .collect(),
            _ => floats(&(0..count).map(|at| at as f32).collect::<Vec<_>>()),
        };
        let [a, b, c] = sides;
        case.write(
            "x.npy",
            &npy(kind, &format!("(2, {a}, {b}, {c})"), &content),
        );
    };
    let read = |format: &str| {
        let pair = "{inputs: x.npy, labels: y.npy}";
        let data = case.data(
            &format!("{{format: {format}, train: {pair}, test: {pair}}}"),
            ", clients: 1",
        );
        let pixel = rows(&data)[1].clone();
        assert!(
            data.inferred.iter().all(|text| !text.contains("channels")),
            "not of the rows"
        );
        (data.task.input, pixel, data.notes.join("\n"))
    };
    for kind in ["|u1", "<i8", "<f4"] {
        let scale = if kind == "|u1" { 255.0 } else { 1.0 };
        for channels in [1, 3, 4] {
            images(kind, [2, 5, channels]);
            let (shape, found, notes) = read("npy");
            assert_eq!(shape, [channels, 2, 5], "{kind}");
            // the first channel of the second pixel of the second image
            let due = (11 * channels) as f32 / scale;
            assert!((found[1] - due).abs() < 1e-6, "{kind}: {found:?}");
            let said = format!(
                "rows of 2 x 5 x {channels} values are read as images of {channels} channels and 2 x 5 pixels; `channels: last` in \
                 `format` says the same, and `channels: first` reads them the other way"
            );
            assert!(notes.contains(&said), "{notes}");
            assert_eq!(read("{npy: {channels: first}}").0, [2, 5, channels]);
            // as PyTorch has them there is nothing to say
            images(kind, [channels, 2, 5]);
            let (shape, _, notes) = read("npy");
            assert_eq!(
                (shape, notes.contains("values are read")),
                (vec![channels, 2, 5], false)
            );
        }
        for sides in [[3, 8, 3], [4, 4, 4], [8, 8, 8], [8, 8, 2]] {
            images(kind, sides);
            let (shape, _, notes) = read("npy");
            assert_eq!(shape, sides);
            assert!(
                notes.contains("`channels: last` reads them the other way"),
                "{notes}"
            );
            let (shape, _, notes) = read("{npy: {channels: last}}");
            assert_eq!(shape, [sides[2], sides[0], sides[1]]);
            assert!(!notes.contains("values are read"), "{notes}");
        }
    }
}

#[test]
fn images_stand_in_folders_of_their_class() {
    let case = Case::new(&[]);
    let png = |grey: u8| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 2);
        encoder.set_color(png::ColorType::Grayscale);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[grey, 0, 0, 255]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    for (folder, grey) in [
        ("a/cat/1", 51),
        ("a/cat/2", 102),
        ("a/dog/1", 153),
        ("b/dog/1", 204),
        ("t/cat/1", 0),
    ] {
        case.write(&format!("{folder}.png"), &png(grey));
    }
    let data = case.data("{format: images, train: [a, b], test: t}", "");
    assert_eq!(
        (data.task.input.clone(), data.classes.clone()),
        (vec![1, 2, 2], vec!["cat".into(), "dog".into()])
    );
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    assert!((rows(&data)[3][0] - 0.8).abs() < 1e-6);
    let one = case.data("{format: images, train: a, holdout: 0.34}", ", clients: 2");
    assert_eq!((one.clients.len(), one.test.len()), (2, 1));
    let whole = png(1);
    case.write("b/dog/2.png", &whole[..whole.len() - 20]);
    assert!(
        case.error("{format: images, train: [a, b], test: t}")
            .contains("b/dog/2.png")
    );
    case.write("b/dog/2.png", b"GIF89a");
    assert!(
        case.error("{format: images, train: [a, b], test: t}")
            .contains("neither PNG nor JPEG")
    );
}

#[test]
fn images_of_different_sizes_get_one() {
    let case = Case::new(&[]);
    let png = |colour: png::ColorType, width: u32, pixels: &[u8]| {
        let mut bytes = Vec::new();
        let of_pixel = colour.samples() as u32;
        let height = pixels.len() as u32 / width / of_pixel;
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    };
    let grey = png::ColorType::Grayscale;
    let row = [0, 10, 20, 30];
    case.write("a/cat/wide.png", &png(grey, 4, &[row, row].concat()));
    let column = [0, 0, 10, 10, 20, 20, 30, 30];
    case.write("a/cat/high.png", &png(grey, 2, &column));
    case.write("a/dog/small.png", &png(grey, 1, &[77]));
    case.write("a/dog/fits.png", &png(grey, 2, &[1, 2, 3, 4]));
    let read = |by: &str| {
        let resize = format!("{{height: 2, width: 2, by: {by}}}");
        let format = format!("{{images: {{resize: {resize}}}}}");
        let data = case.data(&format!("{{format: {format}, train: a, test: a}}"), "");
        let bytes = |row: Vec<f32>| row.into_iter().map(|x| (x * 255.0).round()).collect();
        rows(&data)
            .into_iter()
            .map(bytes)
            .collect::<Vec<Vec<f32>>>()
    };
    // high, wide, fits, small
    let [fits, small] = [vec![1.0, 2.0, 3.0, 4.0], vec![77.0; 4]];
    let cut = [vec![10.0, 10.0, 20.0, 20.0], vec![10.0, 20.0, 10.0, 20.0]];
    assert_eq!(
        read("crop"),
        [&cut[..], &[fits.clone(), small.clone()]].concat()
    );
    // a triangle two pixels wide on either side: weights 3/7, 3/7 and 1/7
    let [low, high] = [50.0_f32 / 7.0, 160.0 / 7.0].map(f32::round);
    let stretched = [vec![low, low, high, high], vec![low, high, low, high]];
    assert_eq!(read("stretch"), [&stretched[..], &[fits, small]].concat());
    let error = case.error("{format: images, train: a, test: a}");
    assert!(
        error.contains("all images must be alike, or get one size by `resize`"),
        "{error}"
    );
    // grey and colour stay apart, unless the spec says which it is to be
    case.write("a/dog/red.png", &png(png::ColorType::Rgb, 1, &[90, 0, 8]));
    let coloured = |more: &str| {
        format!(
            "{{format: {{images: {{resize: {{height: 2, width: 2}}{more}}}}}, train: a, test: a}}"
        )
    };
    let error = case.error(&coloured(""));
    assert!(
        error.contains("in colour") && error.contains("by `colours` of `images`: grey or rgb"),
        "{error}"
    );
    // high, wide, fits, red, small
    let red = |colours: &str| {
        let data = case.data(&coloured(&format!(", colours: {colours}")), "");
        let bytes = rows(&data)[3..].concat();
        let bytes = bytes.iter().map(|x| (x * 255.0).round() as u8);
        bytes.collect::<Vec<u8>>()
    };
    assert_eq!(
        red("rgb"),
        [[90; 4], [0; 4], [8; 4], [77; 4], [77; 4], [77; 4]].concat()
    );
    // 0.299 90 + 0.114 8 = 27.82
    assert_eq!(red("grey"), [[28; 4], [77; 4]].concat());
    let one = "{format: {images: {resize: {height: 0, width: 2}}}, train: a, test: a}";
    assert!(case.error(one).contains("height: must be in 1..=4096"));
}

/// JPEG and PNG in one folder are of one set; so are files whose ending is another.
#[test]
fn jpeg_and_png_stand_side_by_side() {
    let case = Case::new(&[]);
    let sample = |name: &str| {
        let place = "../../tests/fuzz/corpus/images/";
        fs::read(format!("{}/{place}{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    case.write("a/cat/1.jpg", &sample("grey.jpg"));
    case.write("a/dog/3.JPEG", &sample("grey.jpg"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 8, 8);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[51; 64]).unwrap();
    writer.finish().unwrap();
    case.write("a/cat/2.png", &bytes);
    let data = case.data("{format: images, train: a, test: a}", ", clients: 1");
    assert_eq!(data.task.input, [1, 8, 8]);
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    let all = rows(&data);
    assert_eq!(all[0], all[2]);
    assert!((all[1][0] - 0.2).abs() < 1e-6);
    assert_ne!(all[0], all[1]);
    case.write("a/cat/4.png", &sample("grey.png"));
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("get one size by `resize`"), "{error}");
}

/// A row of a table, or the name of a folder, has the number of an image.
#[test]
fn exact_images_have_labels_in_a_table_or_numbers_for_folders() {
    let case = Case::new(&[
        (
            "ages.csv",
            "age,file,kind\n3,b/2.png,old\n1,a/1.png,new\n2.5,c/3.png,new\n",
        ),
        (
            "t.jsonl",
            "{\"file\": \"1.png\", \"age\": 7, \"kind\": \"old\"}\n",
        ),
        (
            "two.csv",
            "age,file\n1,a/1.png\n2,a/1.png\n,b/2.png\nten,c/3.png\n5,d/4.png\n",
        ),
        ("few.csv", "age,file\n1,a/1.png\n3,c/3.png\n"),
    ]);
    let png = |grey: u8| {
        let mut bytes = Vec::new();
        let mut writer = png::Encoder::new(&mut bytes, 1, 1).write_header().unwrap();
        writer.write_image_data(&[grey]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    for (name, grey) in [
        ("p/a/1", 51),
        ("p/b/2", 102),
        ("p/c/3", 153),
        ("t/1", 204),
        ("n/1.5/x", 51),
        ("n/-2/y", 102),
        ("m/4/z", 0),
    ] {
        case.write(&format!("{name}.png"), &png(grey));
    }
    let of = |examples: &Examples| match &**examples.labels() {
        fl_core::Labels::Numbers(numbers) => numbers.of().iter().copied().collect::<Vec<f32>>(),
        other => panic!("{other:?}"),
    };
    let scale = "kind: {number: {centre: 1, spread: 0.5}}";
    let table = format!(
        "{{format: images, train: {{inputs: p, labels: ages.csv}}, test: {{inputs: t, labels: t.jsonl}}, label: {{column: age, {scale}}}}}"
    );
    let data = case.data(&table, ", clients: 1");
    assert_eq!(
        rows(&data)
            .concat()
            .iter()
            .map(|x| (x * 5.0).round())
            .collect::<Vec<_>>(),
        [1.0, 2.0, 3.0]
    );
    assert_eq!(of(&data.clients[0]), [0.0, 4.0, 3.0]);
    assert_eq!(of(&data.test), [12.0]);
    assert!(!data.hidden_notes.join("; ").contains("not read"));
    let folders = format!("{{format: images, train: n, test: m, label: {{{scale}}}}}");
    let data = case.data(&folders, ", clients: 1");
    assert_eq!(
        (of(&data.clients[0]), of(&data.test)),
        (vec![-6.0, 1.0], vec![6.0])
    );
    // a class in a table, and a table for each client
    let each = "{inputs: p, labels: ages.csv}, {inputs: t, labels: t.jsonl}";
    let data = case.data(
        &format!(
            "{{format: images, train: [{each}], test: {{inputs: t, labels: t.jsonl}}, label: kind}}"
        ),
        "",
    );
    assert_eq!(data.classes, ["new", "old"]);
    assert_eq!(data.clients[0].class_counts(), [2, 1]);
    assert_eq!(data.clients[1].class_counts(), [0, 1]);
    let wrong = |labels: &str, more: &str| {
        case.error(&format!(
            "{{format: {{images: {{{more}}}}}, train: {{inputs: p, labels: {labels}}}, holdout: 0.4, label: {{column: age, {scale}}}}}"
        ))
    };
    assert_eq!(
        wrong("two.csv", ""),
        "set.files.format.images.file: two.csv:3: column `file`: an earlier row names p/a/1.png, too; two.csv:4: column `age`: the label is missing; \
         two.csv:5: column `age`: `ten` is not a number; two.csv:6: column `file`: there is no image p/d/4.png"
    );
    assert_eq!(
        wrong("few.csv", ""),
        "set.files.format.images.file: p/b/2.png: no row of few.csv has its name in the column `file`"
    );
    assert!(wrong("ages.csv", "file: name").contains("there is no column `name`"));
    assert!(
        wrong("none.csv", "")
            .contains("there is no file none.csv; the labels of images are in one table")
    );
    // what a column of many decimals is told, it can do
    let decimals = Case::new(&[]);
    for at in 0..30 {
        decimals.write(&format!("a/{at}.5/1.png"), &png(at));
    }
    let error = decimals.error("{format: images, train: a, holdout: 0.1}");
    assert!(error.contains("say `label: { kind: number }`"), "{error}");
    let files = "{format: images, train: a, holdout: 0.1, label: {kind: number}}";
    assert_eq!(decimals.data(files, ", clients: 1").clients[0].len(), 27);
}

#[test]
fn a_damaged_file_never_panics() {
    let case = people();
    let mut png_bytes = Vec::new();
    let mut writer = png::Encoder::new(&mut png_bytes, 1, 1)
        .write_header()
        .unwrap();
    writer.write_image_data(&[0]).unwrap();
    writer.finish().unwrap();
    let array = npy("<f4", "(2, 2)", &floats(&[1.0, 0.0, 3.0, 1.0]));
    let lines = b"1 1:1 2:1\n-1 1:2 2:1\n".to_vec();
    let json = b"{\"x\": 1, \"y\": 1}\n{\"x\": 2, \"y\": 0}\n".to_vec();
    let all = [
        ("people.csv", PEOPLE.as_bytes().to_vec(), csv("")),
        (
            "a.npy",
            array,
            "{format: npy, train: a.npy, label: 2, holdout: 0.5}".into(),
        ),
        (
            "a.svm",
            lines,
            "{format: libsvm, train: a.svm, holdout: 0.5}".into(),
        ),
        (
            "a.jsonl",
            json,
            "{format: jsonl, train: a.jsonl, label: y, holdout: 0.5}".into(),
        ),
        (
            "p/c/a.png",
            png_bytes,
            "{format: images, train: p, holdout: 0.5}".into(),
        ),
    ];
    for (name, good, files) in all {
        for at in 0..good.len() {
            for bad in [0, b'9', b'(', 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = bad;
                case.write(name, &bytes);
                let _ = case.spec(&files, "");
            }
            case.write(name, &good[..at]);
            let _ = case.spec(&files, "");
        }
    }
}

/// A file of a thousand times the columns that may be is refused at the first that is too many:
/// what is held is counted.
#[test]
fn a_row_of_too_many_fields_is_refused_before_it_is_held() {
    const N: usize = 4_000_000;
    let names = (0..N / 8).map(|k| format!("\"{k:06}\":1"));
    let object = format!("{{{}}}\n", names.collect::<Vec<_>>().join(","));
    let nested = format!("{{\"a\":[{}1],\"b\":1}}\n", "1,".repeat(N / 2));
    let too_many = "more than 100000 fields; at most 100000 columns can be read";
    for (name, text, says) in [
        ("head.csv", ",".repeat(N), too_many),
        ("tabs.tsv", "\t".repeat(N), too_many),
        (
            "row.csv",
            format!("a,b\n1,2\n{}\n", ",".repeat(N)),
            too_many,
        ),
        ("keys.jsonl", object, too_many),
        (
            "list.jsonl",
            nested,
            "must be a number, a text, true, false or null",
        ),
    ] {
        let case = Case::new(&[(name, &text)]);
        let format = if name.ends_with("jsonl") {
            "jsonl"
        } else {
            "csv"
        };
        let files = format!("{{format: {format}, train: {name}, label: b, holdout: 0.3}}");
        let mut error = String::new();
        let work = allocation_counter::measure(|| error = case.error(&files));
        assert!(
            error.contains(name) && error.contains(says),
            "{name}: {error}"
        );
        // the text, twice while it is read, and not much more: no list of fields
        let held = work.bytes_max as usize;
        assert!(held < 4 * N + (20 << 20), "{name}: {held} bytes");
    }
    // a known set has few columns
    let table = fl_data_kit::format::csv::Table {
        separator: b',',
        quotes: true,
        comment: None,
        header: false,
        columns: 3,
    };
    let text = ",".repeat(N);
    let mut error = String::new();
    let work = allocation_counter::measure(|| {
        let read = table.rows(text.as_bytes(), |_| Ok(()));
        error = format!("{:#}", read.unwrap_err());
    });
    assert!(error.contains(too_many), "{error}");
    assert!(work.bytes_max < 8 << 20, "{} bytes", work.bytes_max);
}

#[test]
fn a_first_line_that_is_a_row_is_told() {
    let people = "39,cook,low\n40,cook,high\n41,baker,low\n39,baker,high\n40,cook,low\n";
    let numbers = "0.5,2.5,1\n0.25,2,0\n4,5.5,1\n3,2,0\n";
    let years = "2023,2024,job\n39,1,cook\n40,2,cook\n41,3,baker\n42,4,baker\n";
    let case = Case::new(&[("a.csv", people), ("n.csv", numbers), ("y.csv", years)]);
    let files = |file: &str, label: &str| {
        format!("{{format: csv, train: {file}, holdout: 0.25, label: {label}}}")
    };
    let told = "looks like a row; if it has no line of names, say so by `format: { csv: { header";
    let error = case.error(&files("a.csv", "income"));
    assert!(
        error.starts_with("set.files.label: a.csv: there is no column `income`")
            && error.contains(told),
        "{error}"
    );
    let notes = |file: &str, label: &str| {
        let data = case.data(&files(file, label), "");
        data.hidden_notes.join("\n")
    };
    assert!(notes("a.csv", "low").starts_with("a.csv: its first line looks"));
    assert!(notes("n.csv", "'1'").contains(told));
    assert!(!notes("y.csv", "job").contains(told));
    let error =
        case.error("{format: csv, train: a.csv, holdout: 0.25, label: low, columns: {low: skip}}");
    assert!(
        error.contains("`columns` says how `low` is read, and `label` says that it is the label"),
        "{error}"
    );
}

/// Truth values are no bytes of a picture.
#[test]
fn truth_values_are_numbers() {
    let case = Case::new(&[]);
    case.write("y.npy", &npy("|u1", "(2,)", &[0, 1]));
    for shape in ["(2, 1, 2, 2)", "(2, 2, 2)", "(2, 4)"] {
        case.write("x.npy", &npy("|b1", shape, &[0, 1, 0, 1, 1, 1, 0, 0]));
        let pair = "{inputs: x.npy, labels: y.npy}";
        let files = format!("{{format: npy, train: {pair}, test: {pair}}}");
        let data = case.data(&files, ", clients: 1");
        assert_eq!(
            rows(&data),
            [[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]],
            "{shape}"
        );
    }
    case.write("x.npy", &npy("<M8[ns]", "(2, 1)", &[0; 16]));
    let files = "{format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.5}";
    let error = case.error(files);
    assert!(
        error.contains("times (`<M8[ns]`) are not read; save them as numbers"),
        "{error}"
    );
}

#[test]
fn a_part_of_an_image_is_no_row() {
    let place = "../../tests/fuzz/corpus/images/grey.jpg";
    let whole = fs::read(format!("{}/{place}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let case = Case::new(&[]);
    case.write("a/cat/1.jpg", &whole);
    case.write("a/dog/2.jpg", &whole);
    case.data("{format: images, train: a, test: a}", ", clients: 1");
    // without the end of what is drawn
    let scan = whole.windows(2).position(|two| two == [0xff, 0xda]);
    case.write("a/dog/2.jpg", &whole[..scan.unwrap() + 12]);
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("dog/2.jpg: damaged, cut off"), "{error}");
    // a preview before it, and the start of another image behind it, are none of its own
    let behind = [&whole[..], b"behind\xff\xda\0\x08"].concat();
    case.write("a/dog/2.jpg", &behind);
    case.data("{format: images, train: a, test: a}", ", clients: 1");
    let preview = b"\xff\xfe\0\x0a\xff\xda\0\x02\0\0\xff\xd9";
    let cut = [&whole[..2], preview, &whole[2..scan.unwrap() + 12]];
    case.write("a/dog/2.jpg", &cut.concat());
    let error = case.error("{format: images, train: a, test: a}");
    assert!(error.contains("dog/2.jpg: damaged, cut off"), "{error}");
}

#[test]
fn what_a_folder_of_tables_holds_besides_is_told() {
    let table = "x,y\n1,a\n2,b\n3,a\n";
    let case = Case::new(&[
        ("h/a.csv", table),
        ("h/b.csv", table),
        ("h/c.txt", table),
        ("h/f.data", table),
        ("h/sub/e.csv", table),
        ("h/.hidden", table),
        ("beside.txt", table),
    ]);
    let told = |train: &str| {
        let files = format!("{{format: csv, train: {train}, label: y, holdout: 0.4}}");
        let notes = case.data(&files, "").hidden_notes;
        let unread = |note: &String| note.contains("not read");
        notes.into_iter().filter(unread).collect::<Vec<_>>()
    };
    let said = "3 entries of folders are not read: `h/c.txt`, `h/f.data`, `h/sub`; fl reads files that end in csv, tsv, and none in folders inside";
    assert_eq!(told("h"), [said]);
    assert_eq!(told("[h]"), [said]);
    assert_eq!(told("\"h/*.csv\""), [""; 0]);
    assert_eq!(told("[h/a.csv, h/b.csv]"), [""; 0]);
    // the ending of a packed file in capital letters
    let mut packed = Vec::new();
    let mut gz = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
    gz.write_all(table.as_bytes()).unwrap();
    gz.finish().unwrap();
    case.write("h/d.CSV.GZ", &packed);
    let files = "{format: csv, train: h, label: y, holdout: 0.4}";
    assert_eq!(case.data(files, "").clients.len(), 3);
    assert_eq!(told("h"), [said]);
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

#[test]
fn fields_that_are_equal_as_numbers_are_one_category_and_one_mark() {
    let case = Case::new(&[
        ("a.csv", "k,x,y\n1,5,a\n2,-999.0,b\nn,6,a\n,7,b\n"),
        ("b.csv", "k,x,y\n1.0,5,a\n2,-9.99e2,b\n02,6,a\nn,7,b\n"),
    ]);
    let data = |columns: &str| {
        let files = format!(
            "{{format: csv, train: [a.csv, b.csv], test: b.csv, label: y, missing: [\"\", -999], columns: {{{columns}}}}}"
        );
        case.data(&files, ", split: by-file")
    };
    let found = data("k: category, x: {number: {missing: 0}}");
    assert_eq!(
        found.columns[0].1,
        // a text with leading zeros is a code
        "one of 4 categories: 02, 1, 2, n"
    );
    let all = rows(&found);
    assert_eq!(all[0], [0.0, 1.0, 0.0, 0.0, 5.0]);
    assert_eq!(all[1], [0.0, 0.0, 1.0, 0.0, 0.0], "-999.0 is missing");
    let notes = found.hidden_notes.join("; ");
    assert!(
        notes.contains("column `k`: fl reads `1.0` as `1`"),
        "{notes}"
    );
    let second = found.clients[1].samples.values();
    assert_eq!(second.row(0).to_vec(), [0.0, 1.0, 0.0, 0.0, 5.0]);
    assert_eq!(second[[1, 4]], 0.0, "-9.99e2 is missing");
    let given = data("k: {category: {of: [1.0, 2, n, \"02\"]}}, x: {number: {missing: 0}}");
    assert_eq!(rows(&given)[0], [1.0, 0.0, 0.0, 0.0, 5.0]);
    let wrong = "{format: csv, train: a.csv, label: y, holdout: 0.5, columns: {k: {category: {of: [1, 1.0]}}}}";
    let error = read_yaml::<Files>(wrong).unwrap_err().to_string();
    assert!(error.contains("which are equal"), "{error}");
}

#[test]
fn numbers_of_column_files_are_written_plainly() {
    use parquet::data_type::DoubleType;
    let schema = "message rows { required double x; required double y; }";
    let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
    let how = parquet::file::properties::WriterProperties::builder().build();
    let mut bytes = Vec::new();
    let (schema, how) = (Arc::new(schema), Arc::new(how));
    let mut file =
        parquet::file::writer::SerializedFileWriter::new(&mut bytes, schema, how).unwrap();
    let mut group = file.next_row_group().unwrap();
    for values in [[0.0, 1.0, -999.0, 3.0], [-1.0, 1.0, -1.0, 1.0]] {
        let mut column = group.next_column().unwrap().unwrap();
        let of = column.typed::<DoubleType>();
        of.write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    let case = Case::new(&[]);
    case.write("a.parquet", &bytes);
    case.write("b.parquet", &bytes);
    let data = case.data(
        "{format: parquet, train: a.parquet, test: b.parquet, label: y, missing: [-999], columns: {x: {number: {missing: 7}}}}",
        ", clients: 1",
    );
    assert_eq!(data.classes, ["-1.0", "1.0"]);
    assert_eq!(rows(&data), [[0.0], [1.0], [7.0], [3.0]]);
}

#[test]
fn columns_of_json_stand_in_alphabetical_order() {
    let rows_of = "{\"z\": 1, \"y\": \"a\", \"x\": 20}\n{\"x\": 40, \"z\": 3, \"y\": \"b\"}\n";
    let other = "{\"x\": 20, \"y\": \"a\", \"z\": 1}\n{\"x\": 40, \"y\": \"b\", \"z\": 3}\n";
    let public = "{\"x\": 20, \"z\": 1}\n{\"z\": 3, \"x\": 40}\n";
    let case = Case::new(&[
        ("a.jsonl", rows_of),
        ("b.jsonl", other),
        ("p.jsonl", public),
    ]);
    let data = |name: &str| {
        case.data(
            &format!("{{format: jsonl, train: {name}, test: {name}, label: y}}"),
            ", clients: 1, normalise: {mean: [20, 1], std: [10, 2]}, \
             public: {from: {set: {files: {format: jsonl, train: p.jsonl}}}}",
        )
    };
    let told = |data: &Assembled| {
        let of =
            |note: &&String| note.contains("alphabetical order, whatever that of the file: x, z;");
        data.notes.iter().filter(of).count()
    };
    let (a, b) = (data("a.jsonl"), data("b.jsonl"));
    assert_eq!(rows(&a), [[0.0, 0.0], [2.0, 1.0]]);
    assert_eq!(rows(&a), rows(&b));
    assert_eq!(a.columns, b.columns);
    assert_eq!((told(&a), told(&b)), (1, 0));
}

#[test]
fn a_code_with_leading_zeros_is_no_missing_number() {
    let case = Case::new(&[("a.csv", "k,y\n0,a\n00,b\n000,a\n0.0,b\n")]);
    let data = case.data(
        "{format: csv, train: a.csv, test: a.csv, label: y, missing: [\"\", 0], columns: {k: category}}",
        ", clients: 1",
    );
    let due = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]];
    assert_eq!(rows(&data), due);
}

#[test]
fn a_row_of_one_empty_field_stays() {
    let case = Case::new(&[
        ("a.csv", "x,y\n1,a\n2,b\n"),
        ("t.csv", "t\nno\n\"\"\nyes\n \nmaybe\n"),
        ("own.csv", "t,y\nno,a\nyes,b\nno,b\n"),
    ]);
    let data = case.data(
        "{format: csv, train: own.csv, test: own.csv, label: y, columns: {t: {text: {width: 8}}}}",
        ", clients: 1, public: {from: {set: {files: {format: csv, train: t.csv, columns: {t: {text: {width: 8}}}}}}}",
    );
    assert_eq!(data.public.unwrap().samples.len(), 5);
}

#[test]
fn numbers_to_predict_may_be_as_large_as_they_are() {
    let case = Case::new(&[]);
    let labels = [1e16, 3e16].map(f64::to_le_bytes).concat();
    case.write("x.npy", &npy("<f4", "(2, 1)", &floats(&[1.0, 2.0])));
    case.write("y.npy", &npy("<f8", "(2,)", &labels));
    let pair = "{inputs: x.npy, labels: y.npy}";
    let kind = "{number: {centre: 2.0e+16, spread: 1.0e+16}}";
    let files = format!("{{format: npy, train: {pair}, test: {pair}, label: {{kind: {kind}}}}}");
    let data = case.data(&files, ", clients: 1");
    assert_eq!(data.clients[0].len(), 2);
}

#[test]
fn a_png_that_is_to_be_turned_is_told() {
    let case = Case::new(&[]);
    let png = |exif: Option<Vec<u8>>| {
        let mut bytes = Vec::new();
        let mut info = png::Info::with_size(2, 1);
        info.color_type = png::ColorType::Grayscale;
        info.exif_metadata = exif.map(Into::into);
        let encoder = png::Encoder::with_info(&mut bytes, info).unwrap();
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[1, 2]).unwrap();
        writer.finish().unwrap();
        bytes
    };
    let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0];
    let exif = [&b"II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
    case.write("a/cat/1.png", &png(Some(exif)));
    case.write("a/dog/2.png", &png(None));
    let data = case.data("{format: images, train: a, test: a}", ", clients: 1");
    let notes = data.hidden_notes.join("; ");
    assert!(
        notes.contains("2 of 4 images say that they are to be shown turned or mirrored"),
        "{notes}"
    );
}

/// A shift of numbers that stand for words or characters has no meaning.
#[test]
fn texts_are_not_normalised_and_get_no_noise() {
    let users = "{\"users\": [\"u\"], \"num_samples\": [2], \"user_data\": {\"u\": {\"x\": [\"ab\", \"ba\"], \"y\": [\"a\", \"b\"]}}}";
    let case = Case::new(&[
        ("a.csv", "t,y\nno way,a\nyes sir,b\nno no,a\n"),
        ("u.json", users),
    ]);
    let texts = |how: &str| {
        format!(
            "{{format: csv, train: a.csv, test: a.csv, label: y, columns: {{t: {{text: {{{how}}}}}}}}}"
        )
    };
    for files in [
        texts("width: 8"),
        texts("width: 8, words: 2"),
        "{format: {leaf: {alphabet: ab}}, train: u.json, test: u.json}".into(),
    ] {
        for more in [
            ", clients: 1, feature-noise: {variance: 1}",
            ", clients: 1, normalise: {mean: [0, 0], std: [1, 1]}",
        ] {
            let spec = case.spec(&files, more);
            let error = spec.and_then(|spec| {
                let built = build(&spec, Path::new("nowhere"), &Stream::root(1));
                built.map_err(|error| vec![format!("{error:#}")])
            });
            let error = error.unwrap_err().join("; ");
            assert!(
                error.contains("sparse, or hold numbers of words"),
                "{error}"
            );
        }
    }
}
