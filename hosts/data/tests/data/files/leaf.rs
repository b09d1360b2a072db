//! Files with natural ids, and rows with several labels.

use super::{Case, floats, npy, rows};
use fl_core::{Labels, Stream, TaskKind};
use fl_data::{Assembled, build};
use std::path::Path;

/// Two writers of FEMNIST, with images of 2 x 2, as `data_to_json.py` writes them.
const WRITERS: &str = r#"{"users": ["f0001_41", "f0000_14"], "num_samples": [2, 1], "user_data": {
    "f0000_14": {"x": [[1.0, 0.00392156862745098, 1.0, 1.0]], "y": [36]},
    "f0001_41": {"x": [[1.0, 1.0, 0.0, 1.0], [0.5, 1.0, 1.0, 0.0]], "y": [4, 61]}}}"#;
const TESTED: &str = r#"{"users": ["f0000_14"], "num_samples": [1], "user_data": {
    "f0000_14": {"x": [[1.0, 1.0, 1.0, 0.25]], "y": [4]}}}"#;

/// Two parts of plays of Shakespeare, with lines of 3 characters, as `shake_utils.py` writes them.
const PARTS: &str = r#"{"users": ["HAMLET", "OPHELIA"], "hierarchies": ["H", "H"], "num_samples": [2, 1],
    "user_data": {"HAMLET": {"x": ["  T", " To"], "y": ["o", " "], "raw": "To be"}, "OPHELIA": {"x": ["Go~"], "y": ["\n"]}}}"#;

fn sizes(data: &Assembled) -> Vec<usize> {
    data.clients.iter().map(|own| own.len()).collect()
}

fn femnist() -> Case {
    let more = WRITERS
        .replace("f0001_41", "f0002_09")
        .replace("f0000_14", "f0003_27");
    Case::new(&[
        ("train/all_data_0_niid_0_keep_0_train_9.json", WRITERS),
        ("train/all_data_1_niid_0_keep_0_train_9.json", &more),
        ("test/all_data_0_niid_0_keep_0_test_9.json", TESTED),
    ])
}

const FEMNIST: &str = "{format: {leaf: {shape: [1, 2, 2]}}, train: train, test: test}";

#[test]
fn each_writer_is_a_client_in_the_order_of_the_files() {
    let data = femnist().data(FEMNIST, "");
    assert_eq!(
        data.owners,
        ["f0001_41", "f0000_14", "f0002_09", "f0003_27"]
    );
    assert_eq!(sizes(&data), [2, 1, 2, 1]);
    assert_eq!(data.classes, ["4", "36", "61"]);
    assert_eq!(data.task.input, [1, 2, 2]);
    assert_eq!(rows(&data)[1], [0.5, 1.0, 1.0, 0.0]);
    assert_eq!(data.clients[1].classes().unwrap(), [1]);
    assert_eq!(data.test.classes().unwrap(), [0]);
    // some rows of the second file are those of the first
    assert!(data.twice.unwrap().contains("f0001_41"));
}

#[test]
fn a_row_of_a_user_can_have_a_number() {
    let number = ", label: {kind: {number: {centre: 4, spread: 2}}}}";
    let files = format!("{}{number}", FEMNIST.strip_suffix('}').unwrap());
    let data = femnist().data(&files, "");
    let numbers = |of: &fl_core::Examples| match &**of.labels() {
        Labels::Numbers(numbers) => numbers.of().iter().copied().collect::<Vec<f32>>(),
        other => panic!("{other:?}"),
    };
    // all rows of the set, user by user
    let all = [0.0, 28.5, 16.0, 0.0, 28.5, 16.0];
    assert_eq!(numbers(&data.clients[0]), all);
    assert_eq!(sizes(&data), [2, 1, 2, 1]);
    assert_eq!(numbers(&data.test), [0.0]);
}

#[test]
fn users_test_with_the_test_rows_of_their_name() {
    let case = |users: &[&str]| {
        let user = |(at, name): (usize, &&str)| {
            let x = format!("[0.0, 0.0, 0.0, 0.{}]", at + 1);
            format!("\"{name}\": {{\"x\": [{x}], \"y\": [4]}}")
        };
        let data: Vec<String> = users.iter().enumerate().map(user).collect();
        let text = format!(
            "{{\"users\": {users:?}, \"num_samples\": {:?}, \"user_data\": {{{}}}}}",
            vec![1; users.len()],
            data.join(", ")
        );
        Case::new(&[("train/a.json", WRITERS), ("test/b.json", &text)])
    };
    let tests = |data: &Assembled| -> Vec<Vec<f32>> {
        let row = |of: &fl_core::Examples| of.samples.values().into_raw_vec_and_offset().0;
        data.client_tests.iter().map(row).collect()
    };
    const OWN: &str = ", test: {own: files}";
    let both = case(&["f0000_14", "f0001_41"]);
    // the first client is the first writer of the training file
    let data = both.data(FEMNIST, OWN);
    assert_eq!(data.owners, ["f0001_41", "f0000_14"]);
    let due = [[0.0, 0.0, 0.0, 0.2], [0.0, 0.0, 0.0, 0.1]];
    assert_eq!(tests(&data), due);
    // one client with both writers
    let data = both.data(FEMNIST, &format!("{OWN}, clients: 1"));
    assert_eq!(data.client_tests[0].len(), 2);
    let refused = |case: &Case| {
        let spec = case.spec(FEMNIST, OWN).unwrap();
        let built = build(&spec, Path::new("nowhere"), &Stream::root(1));
        built.unwrap_err().to_string()
    };
    let said = refused(&case(&["f0001_41"]));
    let none = "clients have no test rows: 1 (f0000_14); each needs at least one";
    assert!(said.contains(none), "{said}");
    let said = refused(&case(&["f0000_14", "f0001_41", "f0009_99"]));
    let nobody = "user `f0009_99` has test rows and no training rows";
    assert!(said.contains(nobody), "{said}");
}

#[test]
fn users_are_dealt_whole_to_fewer_clients() {
    let case = femnist();
    let dealt = case.data(FEMNIST, ", clients: 2");
    assert!(dealt.owners.is_empty());
    let mut whole = sizes(&dealt);
    whole.sort_unstable();
    assert!(
        [[2, 4], [3, 3]].contains(&[whole[0], whole[1]]),
        "{whole:?}"
    );
    for own in &dealt.clients {
        // rows 0 and 1 are of one user, and so are 3 and 4
        let has = |id: u32| own.samples.ids().contains(&id);
        assert!(has(0) == has(1) && has(3) == has(4));
    }
    // any other split shares out the rows
    assert_eq!(
        sizes(&case.data(FEMNIST, ", split: iid, clients: 3")),
        [2, 2, 2]
    );
    // rows held out are each user's own
    let held = case.data("{format: leaf, train: train, holdout: 0.5}", "");
    assert_eq!((sizes(&held), held.test.len()), (vec![1, 0, 1, 0], 4));
    let said = case.spec(FEMNIST, ", clients: 5").unwrap_err().join("");
    assert!(said.contains("there are 4 users for 5 clients"), "{said}");
    let said = case.spec(FEMNIST, ", split: by-file").unwrap_err().join("");
    assert!(
        said.contains("by-file is for sets that are read from a file for each client"),
        "{said}"
    );
    let tables = Case::new(&[("a.csv", "x,y\n1,a\n2,b\n")]);
    let files = "{format: csv, train: a.csv, label: y, holdout: 0.5}";
    let said = tables.spec(files, ", split: by-user").unwrap_err().join("");
    assert!(
        said.contains("by-user is for sets whose rows name their users"),
        "{said}"
    );
}

/// Nothing is inferred: the alphabet is LEAF's, and other characters are 0, or the last class.
#[test]
fn lines_become_numbers_of_characters() {
    let case = Case::new(&[
        ("a.json", PARTS),
        ("t.json", &PARTS.replace(r#"["\n"]"#, r#"["~"]"#)),
    ]);
    let data = case.data("{format: leaf, train: a.json, test: t.json}", "");
    assert_eq!(data.owners, ["HAMLET", "OPHELIA"]);
    assert_eq!(
        rows(&data),
        [[2.0, 2.0, 45.0], [2.0, 45.0, 68.0], [32.0, 68.0, 0.0]]
    );
    assert_eq!(
        (data.classes.len(), data.task.kind),
        (80, TaskKind::Classes(80))
    );
    assert_eq!(data.clients[0].classes().unwrap(), [67, 1]);
    assert_eq!(data.test.classes().unwrap(), [67, 1, 79]);
    assert_eq!(data.notes, Vec::<String>::new());
    let own = "{format: {leaf: {alphabet: \"oT \\n\"}}, train: a.json, test: t.json}";
    let data = case.data(own, "");
    assert_eq!(rows(&data)[0], [3.0, 3.0, 2.0]);
    assert_eq!(data.classes, ["o", "T", "space", "newline"]);
}

#[test]
fn what_leaf_would_not_write_is_told_with_its_place() {
    let told = |old: &str, new: &str| {
        let text = WRITERS.replacen(old, new, 1);
        assert_ne!(text, WRITERS);
        let case = Case::new(&[("a.json", &text), ("t.json", TESTED)]);
        let place = format!("{}/", case.0.path().display());
        let files = "{format: {leaf: {shape: [1, 2, 2]}}, train: a.json, test: t.json}";
        case.error(files).replace(&place, "")
    };
    for (old, new, wanted) in [
        (
            "{\"users\"",
            "{\"clients\"",
            "a.json: missing field `users` at line 3 column",
        ),
        ("\"f0000_14\"],", "],", "a.json: trailing comma at line 1"),
        (
            ", \"f0000_14\"],",
            "],",
            "a.json: 1 `users`, and 2 `num_samples`",
        ),
        (
            "[2, 1]",
            "[2, 2]",
            "a.json: user `f0000_14` has 1 rows in `x` and 1 in `y`, and `num_samples` says 2",
        ),
        (
            "\"f0001_41\", \"f0000_14\"], \"num_samples\": [2, 1]",
            "\"f0000_14\", \"f0000_14\"], \"num_samples\": [1, 1]",
            "`users` names it twice",
        ),
        (
            "[4, 61]",
            "[4]",
            "user `f0001_41` has 2 rows in `x` and 1 in `y`",
        ),
        (
            "[0.5, 1.0,",
            "[1.0,",
            "a.json: user `f0001_41`, row 1: 3 numbers, and the first row has 4",
        ),
        (
            "[0.5, 1.0, 1.0, 0.0]",
            "\"text\"",
            "user `f0001_41`, row 1: a text, and others are numbers",
        ),
        (
            "[0.5,",
            "[\"a\",",
            "a.json: invalid type: string \"a\", expected f64 at line 3",
        ),
        ("[0.5,", "[1e39,", "a.json: a number is too large at line 3"),
        (
            "[4, 61]",
            "[4, null]",
            "user `f0001_41`, row 1: `y` is `null`; it must be a number or a text",
        ),
        ("[1.0, 1.0, 0.0, 1.0], ", "[], ", "row 0: it is empty"),
        (
            "[1.0, 1.0, 0.0, 1.0], ",
            "[1.0], ",
            "row 0: 1 numbers, and the `shape` [1, 2, 2] of the spec has 4",
        ),
        (
            "\"f0001_41\": {",
            "\"f0009_00\": {\"x\": [], \"y\": []}, \"f0001_41\": {",
            "which `users` does not name",
        ),
    ] {
        let found = told(old, new);
        assert!(found.contains(wanted), "{new}: {found}");
    }
    let twice = Case::new(&[("d/a.json", WRITERS), ("d/b.json", TESTED)]);
    let said = twice.error("{format: leaf, train: d, holdout: 0.5}");
    assert!(
        said.contains("b.json: user `f0000_14` is in a file before it too"),
        "{said}"
    );
    let error = twice.error("{format: {leaf: {alphabet: aba}}, train: d, holdout: 0.5}");
    assert!(error.contains("`alphabet` has 'a' twice"), "{error}");
    let none = r#"{"users": ["a"], "num_samples": [0], "user_data": {"a": {"x": [], "y": []}}}"#;
    let none = Case::new(&[("a.json", none)]);
    let said = none.error("{format: leaf, train: a.json, holdout: 0.5}");
    assert!(said.contains("there are no training rows"), "{said}");
}

fn findings(labels: &Labels) -> Vec<Vec<i8>> {
    let Labels::Multi(of) = labels else {
        panic!("{labels:?}")
    };
    of.rows().into_iter().map(|row| row.to_vec()).collect()
}

#[test]
fn rows_of_tables_have_several_labels() {
    let case = Case::new(&[
        ("a.csv", "age,cough,fever\n20,1,0\n30,0,0\n40,1,\n"),
        ("t.csv", "fever,age,cough\n1,50,1\n"),
    ]);
    let files = "{format: csv, train: a.csv, test: t.csv, findings: [cough, fever], columns: {age: number}}";
    let data = case.data(files, ", clients: 1");
    assert_eq!(data.task.kind, TaskKind::MultiLabel(2));
    assert_eq!(data.classes, ["cough", "fever"]);
    assert_eq!(
        findings(data.clients[0].labels()),
        [[1, 0], [0, 0], [1, -1]]
    );
    assert_eq!(findings(data.test.labels()), [[1, 1]]);
    assert!(
        data.notes.is_empty() && data.inferred.is_empty(),
        "{:?}",
        data.notes
    );
    let said = case.error("{format: libsvm, train: a.csv, test: t.csv, findings: [a]}");
    assert!(said.contains("rows of this format have classes"), "{said}");
    for (old, new, wanted) in [
        (
            "findings: [cough,",
            "label: age, findings: [cough,",
            "give one of them",
        ),
        (
            "findings: [cough,",
            "classes: [a, b], findings: [cough,",
            "rows have labels or a class",
        ),
        (
            "[cough, fever]",
            "[cough, cough]",
            "`findings` names `cough` twice",
        ),
        (
            "[cough, fever]",
            "[]",
            "`findings` must name at least one label",
        ),
        (
            "[cough, fever]",
            "[cough, feve]",
            "there is no column `feve`; did you mean `fever`?",
        ),
        (
            "[cough, fever]",
            "[age, fever]",
            "a.csv:2: column `age`: `20` is no label; it must be 1, 0, or -1",
        ),
    ] {
        let said = case.error(&files.replace(old, new));
        assert!(said.contains(wanted), "{new}: {said}");
    }
}

#[test]
fn rows_of_arrays_have_several_labels() {
    let case = Case::new(&[]);
    case.write(
        "x.npy",
        &npy("<f4", "(3, 2)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    );
    case.write(
        "y.npy",
        &npy(
            "<f4",
            "(3, 2)",
            &floats(&[1.0, 0.0, f32::NAN, 1.0, -1.0, 0.0]),
        ),
    );
    let pair = "{inputs: x.npy, labels: y.npy}";
    let files = format!("{{format: npy, train: {pair}, test: {pair}, findings: [a, b]}}");
    let data = case.data(&files, ", clients: 1");
    assert_eq!(
        findings(data.clients[0].labels()),
        [[1, 0], [-1, 1], [-1, 0]]
    );
    assert_eq!(data.classes, ["a", "b"]);
    let said = case.error(&files.replace("[a, b]", "[a, b, c]"));
    assert!(
        said.contains(
            "y.npy: labels of shape [3, 2]; with the 3 `findings` of the spec it must be [3, 3]"
        ),
        "{said}"
    );
    let said = case.error(&files.replace(", findings: [a, b]", ""));
    assert!(
        said.contains("or `findings` must name the labels"),
        "{said}"
    );
    let said = case.error("{format: npy, train: x.npy, holdout: 0.5, findings: [a]}");
    assert!(said.contains("are in a file of their own"), "{said}");
    case.write(
        "y.npy",
        &npy("<f4", "(3, 2)", &floats(&[1.0, 0.0, 0.5, 1.0, 0.0, 0.0])),
    );
    let said = case.error(&files);
    assert!(
        said.contains("y.npy: row 1, label 0 is 0.5; it must be 1, 0, or -1 or NaN"),
        "{said}"
    );
}
