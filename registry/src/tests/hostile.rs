//! Text that means harm, or means nothing: a clear error, little work, and never a panic.

use super::*;
use fl_core::Stream;
use std::fmt::Write;

/// Bounds of the work: allocations, and bytes held at once, for a text of `bytes` bytes. No text
/// has more values than bytes, nor more than are allowed; the worst seen is 73 allocations and
/// 1,010 bytes for each. A pair of 8,000 groups compared with each other would be ten times the
/// bound.
fn bounds(bytes: usize) -> (u64, u64) {
    let values = bytes.min(crate::yaml::MAX_VALUES) as u64;
    (120 * values + 10_000, 2_000 * values + (1 << 20))
}

/// Reads a text. Work is counted, not timed: what is quadratic, or unbounded, shows on a busy
/// machine as on an idle one.
fn read_bounded(name: &str, bytes: &[u8], catalogue: &Catalogue) -> Result<Spec<Toy>, Mistakes> {
    let mut read = None;
    let work = allocation_counter::measure(|| {
        read = Some(crate::Document::parse("mine.yaml", bytes).read::<Toy>(catalogue));
    });
    let (count, held) = bounds(bytes.len());
    assert!(
        work.count_total <= count && work.bytes_max <= held,
        "{name}, {} bytes: {} allocations, at most {count} wanted; {} bytes at once, at most {held} wanted",
        bytes.len(),
        work.count_total,
        work.bytes_max
    );
    read.expect("it was read")
}

fn report(name: &str, bytes: &[u8]) -> String {
    let read = read_bounded(name, bytes, &catalogue());
    let report = read
        .map(|_| "fine".to_string())
        .unwrap_or_else(|e| e.to_string());
    let first = report.lines().next().unwrap_or_default();
    format!(
        "{} ({} in all)",
        first.chars().take(170).collect::<String>(),
        report.lines().count()
    )
}

#[test]
fn hostile_text_is_refused() {
    let bomb = (1..20).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string(),
        |text, i| {
            format!(
                "{text}a{i}: &a{i} [{}]\n",
                vec![format!("*a{}", i - 1); 10].join(", ")
            )
        },
    );
    let chain = (1..5000).fold("a0: &a0 x\n".to_string(), |mut text, i| {
        let _ = writeln!(text, "a{i}: &a{i} [*a{}]", i - 1);
        text
    });
    let many = |f: &dyn Fn(usize) -> String, n| (0..n).map(f).collect::<String>();
    let groups = many(
        &|i| format!("    - {{ clients: {i}, use: nat, x{i}: {i} }}\n"),
        8000,
    );
    let groups = GOOD.replace("  cohort:", &format!("  cohort:\n{groups}  xcohort:"));
    let good_groups = many(
        &|i| format!("    - {{ clients: {i}, use: uniform, share: 0.{i} }}\n"),
        8000,
    );
    let good_groups = GOOD
        .replace("clients: 10\n", "clients: 9000\n")
        .replace("  cohort:", &format!("  cohort:\n{good_groups}  xcohort:"));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("deep lists", "[".repeat(20_000).into()),
        ("deep mappings", "{a: ".repeat(20_000).into()),
        ("deep blocks", "- ".repeat(20_000).into()),
        (
            "deep indentation",
            many(&|i| format!("{}a:\n", " ".repeat(i)), 1400).into(),
        ),
        (
            "65 levels",
            format!("a: {}1{}", "[".repeat(65), "]".repeat(65)).into(),
        ),
        ("a bomb", bomb.into()),
        ("a chain of aliases", chain.into()),
        ("11 MB", vec![b'a'; 11_000_000]),
        (
            "many values",
            format!("a: [{}]", "1, ".repeat(300_000)).into(),
        ),
        ("many keys", many(&|i| format!("k{i}: 1\n"), 40_000).into()),
        ("the same key", "k: 1\n".repeat(20_000).into()),
        ("many groups", groups.into()),
        ("many good groups", good_groups.into()),
        ("many documents", "---\n".repeat(200_000).into()),
        ("a long key", format!("{}: 1", "k".repeat(900_000)).into()),
        (
            "a long name",
            GOOD.replace("use: mean", &format!("use: {}", "mean".repeat(200_000)))
                .into(),
        ),
        (
            "a long word",
            GOOD.replace(
                "on-nan: fail",
                &format!("on-nan: {}", "drop".repeat(200_000)),
            )
            .into(),
        ),
        ("a binary", vec![0x7f, b'E', b'L', b'F', 0, 1, 0xff]),
        ("not UTF-8", b"name: x\nb: caf\xe9".to_vec()),
        ("UTF-16", b"\xff\xfen\0a\0".to_vec()),
        ("a NUL", b"name: x\na: \0".to_vec()),
        (
            "an open string",
            format!("a: \"{}", "x\n ".repeat(100_000)).into(),
        ),
        ("colons", ":".repeat(500_000).into()),
        ("question marks", "? ".repeat(200_000).into()),
        ("a list as a key", "[a, b]: 1".into()),
        ("a number as a key", "1.5: 1".into()),
        ("infinite", GOOD.replace("share: 0.5", "share: .inf").into()),
        (
            "too large a number",
            GOOD.replace("share: 0.5", "share: 1e999").into(),
        ),
        (
            "too large an integer",
            GOOD.replace("seed: 7", "seed: 18446744073709551616").into(),
        ),
        (
            "large clients",
            GOOD.replace("clients: 0-3", "clients: 0-4294967295").into(),
        ),
        (
            "larger clients",
            GOOD.replace("clients: 0-3", "clients: 0-99999999999999999999")
                .into(),
        ),
    ];
    let mut out = String::new();
    for (name, bytes) in cases {
        let _ = writeln!(out, "{name}: {}", report(name, &bytes));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn what_looks_odd_is_fine() {
    assert!(read(&format!("\u{feff}{}", GOOD.replace('\n', "\r\n"))).is_ok());
    assert!(read(&format!("%YAML 1.2\n---\n{GOOD}...\n# the end\n")).is_ok());
    assert!(read(&GOOD.replace("name: good", "\"name\": 'good'\t# a tab")).is_ok());
}

#[test]
fn two_thousand_mutations_do_no_harm() {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        "- ",
        "&a ",
        "*a",
        "!t ",
        "<<: ",
        "\t",
        "\n",
        "  ",
        "'",
        "\"",
        "|",
        ">",
        "#",
        "%",
        "@",
        "~",
        ".nan",
        "-1",
        "1e999",
        "\u{0}",
        "\u{feff}",
        "\u{85}",
        "é",
        "---\n",
        "use: ",
        "clients: ",
        "0-3",
        "?",
        ",",
        "\\",
    ];
    let (mut fine, catalogue) = (0, catalogue());
    for case in 0..2000 {
        let mut draws = Stream::root(1).child("case", case).draws();
        let mut bytes = GOOD.as_bytes().to_vec();
        for _ in 0..=draws.below(2) {
            let at = draws.below(bytes.len());
            let end = (at + draws.below(12)).min(bytes.len());
            match draws.below(4) {
                0 => drop(bytes.splice(at..at, pieces[draws.below(pieces.len())].bytes())),
                1 => drop(bytes.drain(at..end)),
                2 => bytes[at] = draws.below(256) as u8,
                _ => {
                    let copy = bytes[at..end].to_vec();
                    let to = draws.below(bytes.len());
                    drop(bytes.splice(to..to, copy));
                }
            }
        }
        match read_bounded(&format!("case {case}"), &bytes, &catalogue) {
            Ok(spec) => {
                fine += 1;
                assert_eq!(read(&spec.yaml().unwrap()).unwrap().resolved, spec.resolved);
            }
            Err(mistakes) => {
                assert!(!mistakes.0.is_empty() && mistakes.to_string().lines().count() < 102)
            }
        }
    }
    assert!(
        (50..1500).contains(&fine),
        "{fine} of 2000 were still right"
    );
}
