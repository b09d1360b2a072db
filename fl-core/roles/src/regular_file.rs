//! Regular files: read without waiting for a pipe, and with a bound on the bytes.
//!
//! Another user may have made a run folder, with links to devices, pipes and endless files in it.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Take};
use std::path::Path;

/// The most bytes of a text of a run folder that are read.
pub const MOST_TEXT: u64 = 256 << 20;

/// The most bytes of a model or another binary file of a run folder that are read at once.
pub const MOST_BINARY: u64 = 16 << 30;

/// The most bytes of a line.
pub const MOST_LINE: u64 = 64 << 20;

/// Opens a regular file to read; a link may lead to it. Opens no device, and waits for no pipe.
///
/// # Errors
/// If it cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let regular = |is_file: bool| {
        if is_file {
            Ok(())
        } else {
            Err(Error::other("it is no regular file"))
        }
    };
    // opening a device may do something
    regular(path.metadata()?.is_file())?;
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.read(true).open(path)?;
    // another file may be there by now
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Hashes the remaining bytes; the hash is open for more.
///
/// # Errors
/// Those of reading.
#[doc(hidden)]
pub fn sha256_of(mut from: impl Read) -> Result<Sha256> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(hash),
            Ok(n) => hash.update(&buffer[..n]),
            // a signal came
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads the whole of a regular file of at most `most` bytes.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger.
pub fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_long = || Error::other(format!("it has more than {}", size(most)));
    if file.metadata()?.len() > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // it may grow meanwhile
    if file.take(most + 1).read_to_end(&mut bytes)? as u64 > most {
        Err(too_long())
    } else {
        Ok(bytes)
    }
}

/// As [`read_regular`], of a text of at most [`MOST_TEXT`] bytes.
///
/// # Errors
/// As [`read_regular`], and if it is no UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = read_regular(path, MOST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| Error::other("it is no UTF-8 text"))
}

/// The lines of a regular file, one at a time.
pub struct RegularLines {
    file: BufReader<Take<File>>,
    most: u64,
    number: usize,
    line: Vec<u8>,
}

impl RegularLines {
    /// Opens a file, of which at most `most` bytes are read.
    ///
    /// # Errors
    /// As [`open_regular`].
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        let file = open_regular(path)?.take(most.saturating_add(1));
        Ok(Self {
            file: BufReader::new(file),
            most,
            number: 0,
            line: Vec::new(),
        })
    }

    /// Returns the next line with its line break, which the last may lack; `None` at the end.
    ///
    /// # Errors
    /// If the line cannot be read, has more than [`MOST_LINE`] bytes, or exceeds the bytes that
    /// are read in all.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        let mut line = self.file.by_ref().take(MOST_LINE + 1);
        if line.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.file.get_ref().limit() == 0 && self.file.buffer().is_empty() {
            return Err(Error::other(format!(
                "it has more than {}",
                size(self.most)
            )));
        }
        if self.line.len() as u64 > MOST_LINE {
            let (number, most) = (self.number, size(MOST_LINE));
            return Err(Error::other(format!("line {number} has more than {most}")));
        }
        Ok(Some(&self.line))
    }
}

/// Formats a limit.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b => format!("{b} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "one\ntwo\nthree").unwrap();
        assert_eq!(read_regular(&path, 13).unwrap(), b"one\ntwo\nthree");
        let error = read_regular(&path, 12).unwrap_err().to_string();
        assert_eq!(error, "it has more than 12 bytes");
        let mut lines = RegularLines::open(&path, 13).unwrap();
        for due in ["one\n", "two\n", "three"] {
            assert_eq!(lines.next_line().unwrap(), Some(due.as_bytes()));
        }
        assert_eq!(lines.next_line().unwrap(), None);
        let mut lines = RegularLines::open(&path, 9).unwrap();
        lines.next_line().unwrap();
        lines.next_line().unwrap();
        assert!(lines.next_line().is_err());
        // a file with a hole: nothing of it is on the disk
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read_text(&path).unwrap_err().to_string();
        assert_eq!(error, "it has more than 256 MiB");
        let mut lines = RegularLines::open(&path, u64::MAX).unwrap();
        let error = lines.next_line().unwrap_err().to_string();
        assert_eq!(error, "line 1 has more than 64 MiB");
        assert!(open_regular(dir.path()).is_err());
        #[cfg(unix)]
        {
            let link = dir.path().join("zero");
            std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
            let error = open_regular(&link).unwrap_err().to_string();
            assert_eq!(error, "it is no regular file");
        }
    }
}
