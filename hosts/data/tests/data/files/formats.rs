//! Tables in every format.

use super::*;

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
