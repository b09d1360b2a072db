//! Mistakes in files and settings.

use super::*;

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
