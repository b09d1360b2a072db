//! The record of the sizes of crates, `tests/SIZE.md`, is current, and says why a crate grew.

use crate::common::root;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const RECORD: &str = "tests/SIZE.md";
/// How many lines a crate may lose before the record must say so.
const SLACK: usize = 50;
/// The reason of a crate that has grown since the record was written by hand.
const OPEN: &str = "?";
/// Folders without product code: tests, benchmarks, files that `fl new` writes, and what is built.
const LEFT_OUT: [&str; 7] = [
    "tests",
    "benches",
    "templates",
    "target",
    "fuzz",
    "golden",
    "runs",
];

const HEAD: &str = "# Size of the code

Lines of Rust outside tests, without blank lines and comments. A change that makes a crate larger
says why in its row. `FL_UPDATE=1 cargo test -p fl-cli --test program size` writes the numbers.
\"Long\" counts functions of more than 80 lines, and \"unsafe\" blocks, functions and impls.

| crate | code | long | unsafe | why it last grew |
|---|---|---|---|---|
";

#[derive(Clone, Copy, Default)]
pub struct Size {
    pub code: usize,
    pub long: usize,
    pub not_safe: usize,
}

/// Returns whether a line begins a function.
fn begins_function(line: &str) -> bool {
    let words = [
        "pub(crate) ",
        "pub(super) ",
        "pub ",
        "const ",
        "async ",
        "unsafe ",
        "extern \"C\" ",
    ];
    let mut rest = line.trim_start();
    while let Some(shorter) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter;
    }
    rest.starts_with("fn ")
}

/// The lines that belong to the item which begins at `from`: rustfmt ends it where it began.
fn item(lines: &[&str], from: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let at = indent(lines[from]);
    let ends = |line: &&str| {
        indent(line) == at
            && (line.trim_start().starts_with('}') || line.ends_with(';') || line.ends_with('}'))
    };
    let end = lines[from..].iter().position(ends);
    end.map_or(lines.len() - from, |end| end + 1)
}

/// The lines of a file that are code, without its tests.
pub fn product(lines: &[&str]) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at].trim();
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[test]") {
            at += 1;
            while at < lines.len() && lines[at].trim_start().starts_with(['#', '/']) {
                at += 1;
            }
            at += if at < lines.len() { item(lines, at) } else { 0 };
            continue;
        }
        if !line.is_empty() && !line.starts_with("//") {
            found.push(at);
        }
        at += 1;
    }
    found
}

/// Counts a file, without its tests.
fn count(text: &str) -> Size {
    let lines: Vec<&str> = text.lines().collect();
    let mut size = Size::default();
    for at in product(&lines) {
        size.code += 1;
        size.long += usize::from(begins_function(lines[at]) && item(&lines, at) > 80);
        let marks = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
        let marks = marks.map(|mark| lines[at].matches(mark).count());
        size.not_safe += marks.iter().sum::<usize>();
    }
    size
}

/// The files below a folder that are no tests: the name of each, and its path.
pub fn all(top: &Path) -> Vec<(String, PathBuf)> {
    let (mut found, mut open) = (Vec::new(), vec![top.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_string_lossy();
            let name = name.replace('\\', "/");
            let file = name.rsplit('/').next().unwrap();
            let test = file == "tests.rs" || file.ends_with("_tests.rs");
            if path.is_dir() && !file.starts_with('.') && !LEFT_OUT.contains(&file) {
                open.push(path);
            } else if path.is_file() && !test {
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

/// The sizes below a folder, by what a file is `of`.
pub fn sizes(top: &Path, of: impl Fn(&str) -> String) -> BTreeMap<String, Size> {
    let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
    for (name, path) in all(top) {
        if !name.ends_with(".rs") {
            continue;
        }
        let found = count(&fs::read_to_string(&path).unwrap());
        let sum = sizes.entry(of(&name)).or_default();
        sum.code += found.code;
        sum.long += found.long;
        sum.not_safe += found.not_safe;
    }
    sizes
}

/// The crate that a file belongs to.
fn crate_of(name: &str) -> String {
    let folders = Path::new(name).ancestors().skip(1);
    let mut folders = folders.filter(|folder| root().join(folder).join("Cargo.toml").is_file());
    let found = folders.next().unwrap_or(Path::new(""));
    found.to_string_lossy().replace('\\', "/")
}

/// What the record says of each crate: its lines, and why it grew.
fn recorded() -> BTreeMap<String, (usize, String)> {
    let text = fs::read_to_string(root().join(RECORD)).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, code, _, _, why] = cells[..] else {
            return None;
        };
        Some((
            name.trim_matches('`').into(),
            (code.parse().ok()?, why.into()),
        ))
    });
    rows.collect()
}

#[test]
fn no_crate_grows_without_a_reason_in_the_record_of_sizes() {
    let (sizes, known) = (sizes(&root(), crate_of), recorded());
    let (mut page, mut wrong, mut all) = (HEAD.to_string(), Vec::new(), Size::default());
    for (name, size) in &sizes {
        let (then, why) = known.get(name).cloned().unwrap_or_default();
        let code = size.code;
        let (grew, shrank) = (code > then, code + SLACK < then);
        let why = if grew { OPEN.into() } else { why };
        if grew || shrank {
            wrong.push(format!("{name} had {then} lines and has {code}"));
        }
        let Size { long, not_safe, .. } = size;
        let _ = writeln!(page, "| `{name}` | {code} | {long} | {not_safe} | {why} |");
        all.code += code;
        all.long += long;
        all.not_safe += not_safe;
    }
    let gone = known
        .keys()
        .filter(|name| !sizes.contains_key(*name) && **name != "all");
    wrong.extend(gone.map(|name| format!("{name} is gone")));
    let Size {
        code,
        long,
        not_safe,
    } = all;
    let _ = writeln!(page, "| all | {code} | {long} | {not_safe} | |");
    let (inside, circles) = crate::inside::page(&root());
    page += &inside;
    if !fs::read_to_string(root().join(RECORD)).is_ok_and(|known| known.ends_with(&circles)) {
        wrong.push("the circles of files are others".into());
    }
    if std::env::var_os("FL_UPDATE").is_some() && !wrong.is_empty() {
        fs::write(root().join(RECORD), &page).unwrap();
    }
    let open: Vec<String> = recorded()
        .into_iter()
        .filter(|(_, (_, why))| why == OPEN)
        .map(|(name, _)| name)
        .collect();
    assert!(
        open.is_empty(),
        "{RECORD}: say in its row why it grew: {}",
        open.join(", ")
    );
    assert!(
        wrong.is_empty(),
        "{RECORD}: {}; write the numbers with: FL_UPDATE=1 cargo test -p fl-cli --test program size",
        wrong.join("; ")
    );
}

#[test]
fn tests_comments_and_blank_lines_are_no_code() {
    let text = "//! A page.\nuse a::B;\n\n/// Adds.\npub fn add() {\n    1;\n}\n\n#[cfg(test)]\nmod tests {\n    fn x() {}\n}\n\n#[test]\nfn t() {\n    unsafe { y() }\n}\nfn z() {\n    unsafe { y() }\n}\n";
    let size = count(text);
    assert_eq!((size.code, size.long, size.not_safe), (7, 0, 1));
    let long = format!("fn long() {{\n{}}}\n", "    a();\n".repeat(80));
    assert_eq!((count(&long).code, count(&long).long), (82, 1));
}
