//! [`ResultsFile`]: the results of finished runs, one line of JSON each, in a file that is
//! committed.

use anyhow::{Context, anyhow, ensure};
use fl_core::Result;
use fl_core::regular_file::open_regular;
use fl_report::RunRecord;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a file of results.
const MOST: u64 = 256 << 20;

/// A line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultLine {
    /// The table, row and seed that the run was done for. Other rows with its spec share it.
    pub run: String,
    /// SHA-256 of the resolved spec.
    pub spec: String,
    /// SHA-256 of the spec before defaults are filled in.
    pub asked: String,
    /// What the program that made it computed for the quick specs that have a part in common with
    /// the run: the first digits of their digests. Empty if that is not known.
    pub quick: BTreeMap<String, String>,
    /// The outcome, and what made it.
    #[serde(flatten)]
    pub record: RunRecord,
}

/// The results of finished runs, in a file that only grows. Each line begins with a hash of its
/// rest, so that a line that was edited is not taken. Lines may stand in any order, so that version
/// control can merge two files.
pub struct ResultsFile {
    path: PathBuf,
    /// Each with its number in the file.
    lines: Vec<(usize, ResultLine)>,
    /// Whether the last line is cut short.
    cut: bool,
}

impl ResultsFile {
    /// Reads the file; none that is not there yet has no lines. A last line that was cut short, as
    /// by a full disk, is left out.
    ///
    /// # Errors
    /// If it cannot be read, or a line is no result or was edited; names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let mut results = Self {
            path: path.into(),
            lines: Vec::new(),
            cut: false,
        };
        let file = match open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(results),
            file => file.with_context(|| format!("reading {}", path.display()))?,
        };
        // a process may be writing a line
        lock(file.lock_shared()).with_context(|| format!("reading {}", path.display()))?;
        results.take(&file)?;
        Ok(results)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lines, each with its number.
    pub fn lines(&self) -> &[(usize, ResultLine)] {
        &self.lines
    }

    /// Returns whether the last line is cut short, and so left out.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Adds a line, unless the file has the same digest for its spec by now. After an error the
    /// file is as before.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn add(&mut self, line: ResultLine) -> Result<()> {
        let what = || format!("writing {}", self.path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let mut file = options.open(&self.path).with_context(what)?;
        lock(file.lock()).with_context(what)?;
        let end = self.take(&file)?;
        let same = |known: &ResultLine| {
            (&known.spec, &known.record.digest) == (&line.spec, &line.record.digest)
        };
        if self.lines.iter().any(|(_, known)| same(known)) {
            return Ok(());
        }
        let what = || format!("writing {}", self.path.display());
        if self.cut {
            file.set_len(end).with_context(what)?;
        }
        let begun = end > 0 && !ends_line(&mut file, end).with_context(what)?;
        let text = [if begun { "\n" } else { "" }, &sealed(&line)?, "\n"].concat();
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            // what a full disk has taken of it
            let _ = file.set_len(end);
            return Err(error).with_context(what);
        }
        let number = self.lines.last().map_or(1, |(number, _)| number + 1);
        self.lines.push((number, line));
        self.cut = false;
        Ok(())
    }

    /// Reads all lines; returns the length of the file up to the last whole line.
    fn take(&mut self, mut file: &File) -> Result<u64> {
        let here = self.path.display().to_string();
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        let read = file.take(MOST + 1).read_to_end(&mut text);
        read.with_context(|| format!("reading {here}"))?;
        ensure!(
            text.len() as u64 <= MOST,
            "{here}: it has more than 256 MiB"
        );
        (self.lines, self.cut) = (Vec::new(), false);
        let (mut number, mut end) = (0, 0);
        for bytes in text.split_inclusive(|byte| *byte == b'\n') {
            number += 1;
            let whole = bytes.ends_with(b"\n");
            match opened(bytes.trim_ascii_end()) {
                Ok(line) => self.lines.push((number, line)),
                Err(_) if !whole => {
                    self.cut = true;
                    break;
                }
                Err(why) => {
                    return Err(anyhow!(
                        "{here}:{number}: {why}; restore the line from version control, or remove it and run the study"
                    ));
                }
            }
            end += bytes.len() as u64;
        }
        Ok(end)
    }
}

/// Some network file systems lack locks: the results matter more.
fn lock(locked: std::io::Result<()>) -> std::io::Result<()> {
    match locked {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        locked => locked,
    }
}

/// Whether the byte before `end` ends a line.
fn ends_line(file: &mut File, end: u64) -> std::io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::Start(end - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// What stands before the hash of a line.
const BEGIN: &str = "{\"sha256\":\"";

/// Writes a line with the hash of its rest.
fn sealed(line: &ResultLine) -> Result<String> {
    let rest = serde_json::to_string(line)?;
    let hash = fl_core::hex(&Sha256::digest(&rest));
    let rest = rest.strip_prefix('{').unwrap_or_default();
    Ok(format!("{BEGIN}{hash}\",{rest}"))
}

/// Reads a line; an error says what is wrong with it.
fn opened(bytes: &[u8]) -> Result<ResultLine> {
    let text = std::str::from_utf8(bytes).map_err(|_| anyhow!("it is no text"))?;
    let none = || anyhow!("it is no result: a line begins with `{BEGIN}`");
    let (hash, rest) = text
        .strip_prefix(BEGIN)
        .and_then(|text| text.split_once("\","))
        .with_context(none)?;
    let rest = format!("{{{rest}");
    ensure!(
        fl_core::hex(&Sha256::digest(&rest)) == hash,
        "it was edited or cut: its hash does not match"
    );
    serde_json::from_str(&rest).map_err(|error| {
        anyhow!("it is a result of another version of fl, which this one cannot read ({error})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(spec: &str, value: f64) -> ResultLine {
        let metrics = format!("[[\"accuracy\",[[1,{value},null]]]]");
        let record = format!("{{\"digest\":\"d{spec}\",\"metrics\":{metrics}}}");
        ResultLine {
            run: "t, a, seed 1".into(),
            spec: spec.into(),
            asked: "a".into(),
            quick: BTreeMap::from([("fedavg".into(), "8864f99e".into())]),
            record: serde_json::from_str(&record).unwrap(),
        }
    }

    fn specs(file: &ResultsFile) -> Vec<(usize, &str)> {
        let lines = file.lines().iter();
        lines.map(|(at, line)| (*at, &line.spec[..])).collect()
    }

    #[test]
    fn exact_lines_come_back_and_none_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.results.jsonl");
        let mut file = ResultsFile::read(&path).unwrap();
        let mut other = ResultsFile::read(&path).unwrap();
        assert!(file.lines().is_empty() && !path.exists());
        for value in [1.0 / 3.0, 0.1, 5e-324, 0.123_456_789_012_345_68] {
            file.add(line(&value.to_string(), value)).unwrap();
        }
        // another process knows of none of them
        other.add(line("0.1", 0.1)).unwrap();
        other.add(line("other", 0.5)).unwrap();
        let read = ResultsFile::read(&path).unwrap();
        assert_eq!(read.lines(), other.lines());
        assert_eq!(read.lines()[..4], *file.lines());
        assert_eq!(read.lines().len(), 5);
        // another result of the same spec stands beside the first
        let again = ResultLine {
            record: line("another", 0.1).record,
            ..line("0.1", 0.1)
        };
        file.add(again).unwrap();
        assert_eq!(file.lines().len(), 6);
    }

    #[test]
    fn what_is_cut_short_is_not_taken_and_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.results.jsonl");
        let mut file = ResultsFile::read(&path).unwrap();
        file.add(line("a", 0.1)).unwrap();
        file.add(line("b", 0.2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first + 1..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let mut read = ResultsFile::read(&path).unwrap();
            // a line without its line break is whole
            let due: &[_] = if end == whole.len() - 1 {
                &[(1, "a"), (2, "b")]
            } else {
                &[(1, "a")]
            };
            assert_eq!(specs(&read), due, "{end}");
            assert_eq!(read.is_cut(), due.len() == 1);
            read.add(line("b", 0.2)).unwrap();
            read.add(line("c", 0.3)).unwrap();
            let read = ResultsFile::read(&path).unwrap();
            assert_eq!(specs(&read), [(1, "a"), (2, "b"), (3, "c")], "{end}");
        }
    }

    #[test]
    fn an_edited_line_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.results.jsonl");
        let mut file = ResultsFile::read(&path).unwrap();
        file.add(line("a", 0.25)).unwrap();
        file.add(line("b", 0.5)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // line ends of another system, and another order, are no edit
        let (a, b) = text.trim_end().split_once('\n').unwrap();
        std::fs::write(&path, format!("{b}\r\n{a}\r\n")).unwrap();
        assert_eq!(
            specs(&ResultsFile::read(&path).unwrap()),
            [(1, "b"), (2, "a")]
        );
        let wrong = [
            (text.replace("0.5", "0.9"), ":2: it was edited or cut"),
            (text.replace("0.25", "0.26"), ":1: it was edited or cut"),
            (text.replacen("t, a", "t, c", 1), ":1: it was edited or cut"),
            (format!("{text}<<<<<<< HEAD\n"), ":3: it is no result"),
            (format!("\n{text}"), ":1: it is no result"),
            (text.replacen('{', "[", 1), ":1: it is no result"),
        ];
        for (wrong, says) in wrong {
            std::fs::write(&path, &wrong).unwrap();
            for error in [
                ResultsFile::read(&path).err().unwrap(),
                file.add(line("c", 0.1)).unwrap_err(),
            ] {
                let error = format!("{error:#}");
                assert!(error.contains(says), "{says} is not in {error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
    }
}
