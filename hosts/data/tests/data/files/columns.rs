//! Columns of tables: what is inferred of them, and what they lose.

use super::*;

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
fn a_code_with_leading_zeros_is_no_missing_number() {
    let case = Case::new(&[("a.csv", "k,y\n0,a\n00,b\n000,a\n0.0,b\n")]);
    let data = case.data(
        "{format: csv, train: a.csv, test: a.csv, label: y, missing: [\"\", 0], columns: {k: category}}",
        ", clients: 1",
    );
    let due = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]];
    assert_eq!(rows(&data), due);
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
