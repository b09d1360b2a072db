//! Tables with a separator: AG News, SST-2 (tabs, no quotes) and UCI Adult.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, Read};

/// How files begin that hold no text, whatever their names, and what to do with them.
const PACKED: [(&[u8], &str); 5] = [
    (&[0x1f, 0x8b], "packed by gzip: let its name end in `.gz`"),
    (
        b"PK\x03\x04",
        "a ZIP archive, such as a workbook of a spreadsheet: unpack it, or save the sheet as CSV",
    ),
    (
        &[0xd0, 0xcf, 0x11, 0xe0],
        "an old workbook of a spreadsheet: save the sheet as CSV",
    ),
    (b"\xfd7zXZ\0", "packed by xz: let its name end in `.xz`"),
    (
        b"PAR1",
        "a Parquet file: say `format: parquet`, and let its name end in `.parquet`",
    ),
];

/// The mark that some programs begin a file with.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What the first bytes of a file may not be.
fn first(bytes: &[u8]) -> Result<()> {
    for (begin, what) in PACKED {
        ensure!(!bytes.starts_with(begin), "the file is {what}");
    }
    let wide = [&[0xff, 0xfe], &[0xfe, 0xff]]
        .iter()
        .any(|mark| bytes.starts_with(*mark));
    ensure!(
        !(wide || bytes.iter().take(4).any(|byte| *byte == 0)),
        "the file looks like UTF-16; save it as UTF-8"
    );
    Ok(())
}

/// The bytes as text, without the mark that some programs begin a file with.
///
/// # Errors
/// Says which byte is not UTF-8, or no text.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    first(bytes)?;
    Utf8::new(bytes).check(bytes, true)?;
    let text = std::str::from_utf8(bytes)?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Text that is checked while it is read, without the mark that some programs begin a file with:
/// [`utf8`] of a stream, with its errors.
pub struct Utf8<R> {
    from: R,
    /// What was read and not handed out: the beginning of the file.
    begin: Vec<u8>,
    begun: bool,
    /// The bytes that were checked, and the lines among them.
    bytes: u64,
    lines: u64,
    /// The beginning of a character whose end was not read.
    open: Vec<u8>,
}

impl<R: Read> Utf8<R> {
    /// The text that is read from `from`.
    pub fn new(from: R) -> Self {
        Self {
            from,
            begin: Vec::new(),
            begun: false,
            bytes: 0,
            lines: 0,
            open: Vec::new(),
        }
    }

    /// Checks what comes next, and what came before it of the same character.
    fn check(&mut self, bytes: &[u8], last: bool) -> Result<()> {
        let joined;
        let mut all = bytes;
        if !self.open.is_empty() {
            joined = [&self.open[..], bytes].concat();
            all = &joined;
        }
        let wrong = |at: usize, lines: &[u8]| {
            let line = self.lines + lines.iter().filter(|b| **b == b'\n').count() as u64 + 1;
            (self.bytes + at as u64, line)
        };
        if let Some(nul) = all.iter().position(|byte| *byte == 0) {
            let (at, line) = wrong(nul, &all[..nul]);
            bail!("byte {at} (line {line}) is 0, which is no text; save the file as UTF-8");
        }
        let valid = match std::str::from_utf8(all) {
            Ok(_) => all.len(),
            Err(error) if error.error_len().is_none() && !last => error.valid_up_to(),
            Err(error) => {
                let valid = error.valid_up_to();
                let (at, line) = wrong(valid, &all[..valid]);
                bail!(
                    "not UTF-8 text: byte {at} (line {line}) is {:#04x}; save the file as UTF-8",
                    all[valid]
                );
            }
        };
        let lines = all[..valid].iter().filter(|byte| **byte == b'\n').count();
        (self.bytes, self.lines) = (self.bytes + valid as u64, self.lines + lines as u64);
        self.open = all[valid..].to_vec();
        Ok(())
    }

    /// Looks at the first bytes, which say what else a file is.
    fn begin(&mut self) -> std::io::Result<()> {
        self.begun = true;
        (&mut self.from).take(8).read_to_end(&mut self.begin)?;
        let begin = std::mem::take(&mut self.begin);
        let last = begin.len() < 8;
        first(&begin)
            .and_then(|()| self.check(&begin, last))
            .map_err(io)?;
        self.begin = begin
            .strip_prefix(&MARK)
            .map_or(begin.clone(), <[u8]>::to_vec);
        Ok(())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if !self.begun {
            self.begin()?;
        }
        if !self.begin.is_empty() {
            let n = out.len().min(self.begin.len());
            out[..n].copy_from_slice(&self.begin[..n]);
            self.begin.drain(..n);
            return Ok(n);
        }
        let n = self.from.read(out)?;
        let last = n == 0 && !out.is_empty();
        self.check(&out[..n], last).map_err(io)?;
        Ok(n)
    }
}

fn io(error: anyhow::Error) -> std::io::Error {
    std::io::Error::other(error)
}

/// No file of a known set has more rows than this; a small compressed file may claim to have any
/// number of them.
const MAX_ROWS: usize = 1 << 22;

/// No text of a known set is longer than this.
const MAX_TEXT: usize = 128 << 20;

/// As [`utf8`], of a file of a known set.
///
/// # Errors
/// As [`utf8`], and when it is longer than any of them.
pub fn known(bytes: &[u8]) -> Result<&str> {
    ensure!(
        bytes.len() <= MAX_TEXT,
        "the text has {} bytes; at most {MAX_TEXT} can be read",
        bytes.len()
    );
    utf8(bytes)
}

/// Checks that a file may have this number of rows.
///
/// # Errors
/// When it may not.
pub fn few_enough(rows: usize) -> Result<()> {
    ensure!(
        rows <= MAX_ROWS,
        "the file holds more than {MAX_ROWS} rows, which is more than any known set has"
    );
    Ok(())
}

/// A finite number.
///
/// # Errors
/// Says what was found instead: text, NaN, or more than an `f32` holds.
pub fn number(text: &str) -> Result<f32> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => anyhow::bail!("found `{text}`; a value must be a finite number"),
    }
}

/// More columns than this are a slip of the pen.
pub const MAX_COLUMNS: usize = 100_000;

/// A row with more bytes than this has lost the end of a quotation.
pub const MAX_ROW: usize = 64 << 20;

/// Calls `row` with the line that each row begins at and with its fields, without the spaces around
/// them. Empty lines are skipped. Holds one row, and stops at the first field that is too many;
/// `at` says where a line is.
///
/// # Errors
/// If a row has more than [`MAX_COLUMNS`] fields or [`MAX_ROW`] bytes, `text` cannot be read, or
/// `row` fails.
pub fn records(
    mut text: impl BufRead,
    mut reader: csv_core::Reader,
    at: impl Fn(u64) -> String,
    mut row: impl FnMut(u64, &[&str]) -> Result<()>,
) -> Result<()> {
    use csv_core::ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record};
    let (mut bytes, mut ends) = (vec![0; 1 << 10], vec![0; 1 << 4]);
    // the reader's own count leaves out empty lines, and is late after `\r\n`
    let mut lines = Lines::default();
    loop {
        lines.skip_blank(&mut text)?;
        let line = lines.passed + 1;
        let (mut length, mut fields) = (0, 0);
        loop {
            let left = text.fill_buf()?;
            let (result, read, written, ended) =
                reader.read_record(left, &mut bytes[length..], &mut ends[fields..]);
            lines.pass(&left[..read]);
            text.consume(read);
            (length, fields) = (length + written, fields + ended);
            match result {
                InputEmpty => {}
                OutputFull => {
                    ensure!(
                        bytes.len() < MAX_ROW,
                        "{}: a row of more than {MAX_ROW} bytes; is a closing `\"` missing?",
                        at(line)
                    );
                    bytes.resize(2 * bytes.len(), 0);
                }
                OutputEndsFull => {
                    ensure!(
                        ends.len() <= MAX_COLUMNS,
                        "{}: more than {MAX_COLUMNS} fields; at most {MAX_COLUMNS} columns can be read",
                        at(line)
                    );
                    ends.resize((2 * ends.len()).min(MAX_COLUMNS + 1), 0);
                }
                Record => break,
                End => return Ok(()),
            }
        }
        let mut from = 0;
        let cells = ends[..fields].iter().map(|end| {
            let cell = std::str::from_utf8(&bytes[from..*end]);
            from = *end;
            Ok(cell?.trim())
        });
        let cells: Vec<&str> = cells.collect::<Result<_>>()?;
        row(line, &cells)?;
    }
}

/// Lines that were read: what ends the first ends all.
#[derive(Default)]
struct Lines {
    passed: u64,
    end: Option<u8>,
    /// A `\r` was last, and what follows says whether it ends a line.
    open: bool,
}

impl Lines {
    fn pass(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if let (true, Some(next)) = (self.open, bytes.first()) {
            self.settle(*next);
        }
        if self.end.is_none()
            && let Some(at) = bytes.iter().position(|byte| b"\r\n".contains(byte))
        {
            match (bytes[at], bytes.get(at + 1)) {
                (b'\r', None) => self.open = true,
                (b'\r', Some(b'\n')) | (b'\n', _) => self.end = Some(b'\n'),
                _ => self.end = Some(b'\r'),
            }
            bytes = &bytes[at..];
        }
        let ends = bytes.iter().filter(|byte| Some(**byte) == self.end);
        self.passed += ends.count() as u64;
    }

    /// What follows a `\r` of which nothing was known.
    fn settle(&mut self, next: u8) {
        self.open = false;
        let alone = next != b'\n';
        self.end = Some(if alone { b'\r' } else { b'\n' });
        self.passed += u64::from(alone);
    }

    fn skip_blank(&mut self, text: &mut impl BufRead) -> Result<()> {
        loop {
            let left = text.fill_buf()?;
            let blank = left
                .iter()
                .take_while(|byte| b"\r\n".contains(byte))
                .count();
            self.pass(&left[..blank]);
            if let (true, Some(next)) = (self.open, left.get(blank)) {
                self.settle(*next);
            }
            let more = blank > 0 && blank == left.len();
            text.consume(blank);
            if !more {
                return Ok(());
            }
        }
    }
}

/// How a table is written.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Between two fields.
    pub separator: u8,
    /// May a field stand in `"`? Without quotes a `"` is an ordinary character.
    pub quotes: bool,
    /// Lines that begin with this are skipped.
    pub comment: Option<u8>,
    /// Is the first line the names of the columns?
    pub header: bool,
    /// Fields in every row.
    pub columns: usize,
}

impl Table {
    /// Calls `row` with the fields of each row, without the spaces around them. Empty lines are
    /// skipped.
    ///
    /// # Errors
    /// If the file is empty, not text, has a row of other than `columns` fields, or `row` fails;
    /// says which line.
    pub fn rows(&self, bytes: &[u8], mut row: impl FnMut(&[&str]) -> Result<()>) -> Result<()> {
        let reader = csv_core::ReaderBuilder::new()
            .delimiter(self.separator)
            .quoting(self.quotes)
            .comment(self.comment)
            .build();
        let (mut found, mut header) = (0, self.header);
        let at = |line| format!("line {line}");
        records(known(bytes)?.as_bytes(), reader, at, |line, fields| {
            if std::mem::take(&mut header) {
                return Ok(());
            }
            found += 1;
            few_enough(found)?;
            ensure!(
                fields.len() == self.columns,
                "line {line}: {} fields; a row has {}",
                fields.len(),
                self.columns
            );
            row(fields).with_context(|| format!("line {line}"))
        })?;
        ensure!(found > 0, "the file holds no rows");
        Ok(())
    }
}

/// A class given as a number that begins at `first`: 1 to 4 in AG News, 0 and 1 in SST-2.
///
/// # Errors
/// If it is not one of the `classes` numbers.
pub fn class(text: &str, first: u32, classes: u32) -> Result<u32> {
    let class = text
        .parse()
        .ok()
        .and_then(|c: u32| c.checked_sub(first))
        .filter(|c| *c < classes);
    class.with_context(|| {
        format!(
            "the class is `{text}`; it must be in {first}..={}",
            first + classes - 1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: Table = Table {
        separator: b',',
        quotes: true,
        comment: Some(b'|'),
        header: false,
        columns: 3,
    };
    const TABS: Table = Table {
        separator: b'\t',
        quotes: false,
        comment: None,
        header: true,
        columns: 2,
    };

    fn all(table: Table, text: &[u8]) -> Result<Vec<String>> {
        let mut rows = vec![];
        table.rows(text, |fields| {
            rows.push(fields.join("|"));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn quotes_tabs_and_headers() {
        let got = all(NEWS, b"|skipped\n\"3\",\"a, b\",\"c \"\"d\"\"\ne\"\n1,,x\n").unwrap();
        assert_eq!(got, ["3|a, b|c \"d\"\ne", "1||x"]);
        let got = all(TABS, b"sentence\tlabel\nsay \" it \t1\n\"\t0\n").unwrap();
        assert_eq!(got, ["say \" it|1", "\"|0"]);
    }

    #[test]
    fn lines_are_counted_as_an_editor_does() {
        for (text, due) in [
            ("a\nb\nc", vec![1, 2, 3]),
            ("a\r\nb\r\nc\r\n", vec![1, 2, 3]),
            ("\n\na\n\r\n\nb\n\"c\nd\"\ne\n\n", vec![3, 6, 7, 9]),
            ("a\rb\r\rc", vec![1, 2, 4]),
        ] {
            let mut found = Vec::new();
            let at = |line| format!("line {line}");
            // however little is read at a time
            for size in [1, 2, 3, 100] {
                found.clear();
                let text = std::io::BufReader::with_capacity(size, Utf8::new(text.as_bytes()));
                records(text, csv_core::Reader::new(), at, |line, _| {
                    found.push(line);
                    Ok(())
                })
                .unwrap();
                assert_eq!(found, due, "{size}");
            }
            assert_eq!(found, due, "{text:?}");
        }
    }

    #[test]
    fn a_stream_is_checked_over_every_border() {
        let read = |bytes: &[u8], size| {
            let mut text = String::new();
            let mut from = std::io::BufReader::with_capacity(size, Utf8::new(bytes));
            let done = from.read_to_string(&mut text);
            done.map(|_| text).map_err(|error| error.to_string())
        };
        for size in 1..12 {
            let text = "a,é\n12345,€𝄞x\r\nlast";
            assert_eq!(read(text.as_bytes(), size).unwrap(), text);
            let marked = format!("\u{feff}{text}");
            assert_eq!(read(marked.as_bytes(), size).unwrap(), text);
            assert_eq!(read(b"\xef\xbb\xbf", size).unwrap(), "");
            let cut = read(b"12345\n678\xe2\x82", size).unwrap_err();
            assert!(cut.contains("byte 9 (line 2) is 0xe2"), "{cut}");
            let wrong = read(b"1234567\xe2\n9", size).unwrap_err();
            assert!(wrong.contains("byte 7 (line 1) is 0xe2"), "{wrong}");
        }
    }

    #[test]
    fn wrong_files_say_which_line_and_why() {
        let wrong = |got: Result<Vec<String>>, part: &str| {
            let text = format!("{:#}", got.unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        wrong(all(NEWS, b""), "no rows");
        wrong(all(TABS, b"sentence\tlabel\n"), "no rows");
        wrong(all(NEWS, b"1,a,b\n1,a\n"), "line 2: 2 fields; a row has 3");
        wrong(
            all(NEWS, b"1,a,b\n1,\xff,b\n"),
            "byte 8 (line 2) is 0xff; save the file as UTF-8",
        );
        wrong(
            all(NEWS, b"1,a,b\n1,\0,b\n"),
            "byte 8 (line 2) is 0, which is no text",
        );
        wrong(
            all(NEWS, b"\x1f\x8b\x08\0"),
            "packed by gzip: let its name end in `.gz`",
        );
        wrong(
            all(NEWS, b"PK\x03\x04\n\0"),
            "a ZIP archive, such as a workbook",
        );
        for wide in [&b"\xff\xfe1\0,\0"[..], b"\xfe\xff\x001\0,", b"1\0,\0a\0"] {
            wrong(
                all(NEWS, wide),
                "the file looks like UTF-16; save it as UTF-8",
            );
        }
        let failing = NEWS.rows(b"1,a,b\n5,a,b\n", |f| class(f[0], 1, 4).map(drop));
        assert_eq!(
            format!("{:#}", failing.unwrap_err()),
            "line 2: the class is `5`; it must be in 1..=4"
        );
        assert!(
            class("0", 1, 4).is_err() && class("x", 0, 2).is_err() && class("-1", 0, 2).is_err()
        );
        assert_eq!(
            (class("1", 1, 4).unwrap(), class("1", 0, 2).unwrap()),
            (0, 1)
        );
        assert!(number("NaN").is_err() && number("inf").is_err() && number("1e40").is_err());
        assert!((number("-3.5").unwrap() + 3.5).abs() < 1e-9);
    }
}
