//! Labels, numbers to predict, and rows to test with.

use super::*;

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
fn numbers_to_predict_that_lose_digits_are_told() {
    let told = |first: f64, step: f64, kind: &str| {
        let row = |k: u32| format!("{k},{}\n", first + step * f64::from(k));
        let table = "x,y\n".to_string() + &(0..20).map(row).collect::<String>();
        let case = Case::new(&[("a.csv", &table[..])]);
        let label = format!("label: {{column: y, kind: {kind}}}");
        let files = format!("{{format: csv, train: a.csv, holdout: 0.5, {label}}}");
        case.data(&files, "").hidden_notes.join("; ")
    };
    let lost = |said: &str| said.contains("`y`: numbers lose digits on their scale");
    let plain = "{number: {centre: 0, spread: 1}}";
    let said = told(1e9, 1.0, plain);
    assert!(lost(&said), "{said}");
    assert!(!lost(&told(1e9, 1.0, "number")));
    assert!(!lost(&told(1e3, 1.0, plain)) && !lost(&told(0.1, 0.0, plain)));
    // a double does not hold these whole numbers
    let said = told(1_152_921_504_606_846_976.0, 0.0, "number");
    assert!(lost(&said), "{said}");
}

#[test]
fn a_limit_on_rows_without_classes_takes_the_first_and_says_so() {
    let row = |k: u32| format!("{k},{}\n", k / 40);
    let table = "x,y\n".to_string() + &(0..100).map(row).collect::<String>();
    let case = Case::new(&[("a.csv", &table[..])]);
    let told = |kind: &str, limit: &str| {
        let label = format!("label: {{column: y, kind: {kind}}}");
        let files = format!("{{format: csv, train: a.csv, test: a.csv, {label}}}");
        case.data(&files, limit).hidden_notes.join("; ")
    };
    let limit = ", limit: {train: 40, test: 60}";
    let said = told("number", limit);
    let first = "data.limit.train takes the first 40 of 100 train rows, since a row has no class \
                 of its own: if the files are sorted, shuffle them or leave `limit` out";
    assert!(
        said.contains(first) && said.contains("first 60 of 100 test rows"),
        "{said}"
    );
    assert!(
        said.contains("all 40 training rows have the same label"),
        "{said}"
    );
    assert!(!said.contains("test rows have the same label"), "{said}");
    let said = told("number", "") + &told("class", limit);
    assert!(
        !said.contains("takes the first") && !said.contains("same label"),
        "{said}"
    );
}
