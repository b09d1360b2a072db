//! Mistakes in a spec with the lines that they are in, for a terminal.

use fl_registry::{Mistakes, SourcePosition};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Every mistake, and below it its line with a caret at its place; at most `width` characters of
/// that line. A mistake of a setting from outside, or of a file that cannot be read, stands alone.
pub fn pointed(mistakes: &Mistakes, width: usize) -> String {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let mut out = String::new();
    for (at, said) in mistakes.to_string().lines().enumerate() {
        let _ = writeln!(out, "{said}");
        let Some(mistake) = mistakes.0.get(at) else {
            continue; // `.. and 3 more mistakes`
        };
        let SourcePosition::Text { line, column } = mistake.place else {
            continue;
        };
        let text = texts
            .entry(&mistake.file)
            .or_insert_with(|| read(&mistake.file));
        if let Some(row) = text.lines().nth(line - 1) {
            let number = line.to_string();
            let room = width.saturating_sub(number.len() + 7).max(20);
            // a place beyond the room has half of it before it
            let skipped = (column + room / 4).saturating_sub(room);
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            let shown: String = row.chars().skip(skipped).take(room).map(plain).collect();
            let caret = column - 1 - skipped.min(column - 1);
            let _ = writeln!(out, "  {number} | {shown}");
            let _ = writeln!(out, "  {:1$} | {2:3$}^", "", number.len(), "", caret);
        }
    }
    out.trim_end().to_string()
}

/// What the file has of text; nothing if it cannot be read.
fn read(file: &str) -> String {
    let text = fl_engine::text(Path::new(file)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.trim_start_matches('\u{feff}').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::Step;
    use fl_registry::Document;

    #[test]
    fn a_caret_stands_below_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        let file = path.display().to_string();
        let pad = " ".repeat(60);
        let of = |text: &str, width| {
            std::fs::write(&path, text).unwrap();
            let document = Document::parse(&file, text.as_bytes());
            let at = ["b", "c"].map(|key| Step::Key(key.into()));
            pointed(&Mistakes(vec![document.mistake_at(&at, "wrong")]), width)
        };
        assert_eq!(
            of("a: 1\nb: {c: 1}\n", 80),
            format!("{file}:2:8  b.c: wrong\n  2 | b: {{c: 1}}\n    |        ^")
        );
        // a place beyond the width
        let shown = of(&format!("b: {{{pad}c: 1}}\n"), 40);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].len() <= 40, "{shown}");
        let at = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][at..at + 1], "1", "{shown}");
        // a file that is gone
        let document = Document::parse("gone.yaml", b"b: {c: 1}");
        let gone = Mistakes(vec![document.mistake_at(&[], "wrong")]);
        assert_eq!(pointed(&gone, 80), gone.to_string());
    }
}
