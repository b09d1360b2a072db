//! Rows and files that are used twice.

use super::*;

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
