//! Files as bytes: plain, `.gz` or `.xz`.

use anyhow::{Context, Result, ensure};
use fl_core::regular_file::open_regular;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// No file of a known set is larger than this once decompressed; what says otherwise is a
/// decompression bomb.
pub const MAX_BYTES: u64 = 256 << 20;

/// A decoder whose dictionary needs more than this (KiB) is refused before the dictionary is
/// allocated; `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 80 << 10;

/// The endings under which a file is looked for, in this order.
pub const ENDINGS: [&str; 3] = ["", ".gz", ".xz"];

/// The file called `name` in `dir`, plain or with one of [`ENDINGS`].
pub fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    ENDINGS
        .iter()
        .map(|ending| dir.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

/// The whole content of a file, decompressed as its ending says.
///
/// # Errors
/// If the file cannot be read, is not what its ending says, is damaged or cut short, or holds more
/// than [`MAX_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_at_most(path, MAX_BYTES)
}

/// As [`read`], with another limit.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = read_start(path, limit.saturating_add(1))?;
    ensure!(
        bytes.len() as u64 <= limit,
        "{}: holds more than {limit} bytes when decompressed",
        path.display()
    );
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// At most the first `limit` bytes of the content: enough to read a header without decompressing
/// the rest.
///
/// # Errors
/// If the file cannot be read, is not what its ending says, or is damaged in the part that is read.
pub fn read_start(path: &Path, limit: u64) -> Result<Vec<u8>> {
    // the buffer grows with what arrives, so a header cannot make it allocate
    let mut bytes = Vec::new();
    let read = open(path)?.take(limit).read_to_end(&mut bytes);
    read.with_context(|| path.display().to_string())?;
    Ok(bytes)
}

/// The content of a file as a stream, decompressed as its ending says. An error while it is read
/// says what is wrong, and not of which file.
///
/// # Errors
/// If the file cannot be opened, or does not begin as its ending says.
pub fn open(path: &Path) -> Result<Box<dyn Read>> {
    let name = || path.display().to_string();
    let file = BufReader::new(open_regular(path).with_context(name)?);
    let ending = path.extension().and_then(|ending| ending.to_str());
    let ending = ending.map(str::to_ascii_lowercase);
    let (from, kind): (Box<dyn Read>, _) = match ending.as_deref() {
        Some("gz") => {
            let file = starts_with(file, &[0x1f, 0x8b], "gzip").with_context(name)?;
            (Box::new(flate2::read::MultiGzDecoder::new(file)), "gzip: ")
        }
        Some("xz") => {
            let file = starts_with(file, b"\xfd7zXZ\0", "xz").with_context(name)?;
            let xz = lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB);
            (Box::new(xz), "xz: ")
        }
        _ => (Box::new(file), ""),
    };
    Ok(Box::new(Content {
        from,
        kind,
        read: 0,
    }))
}

/// A stream whose errors say where it is damaged.
struct Content {
    from: Box<dyn Read>,
    kind: &'static str,
    read: u64,
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self.from.read(out) {
            Ok(n) => {
                self.read += n as u64;
                Ok(n)
            }
            Err(why) if why.kind() == ErrorKind::Interrupted => Err(why),
            Err(why) => Err(std::io::Error::other(format!(
                "{}damaged or cut short after {} bytes of content: {why}",
                self.kind, self.read
            ))),
        }
    }
}

fn starts_with(mut file: BufReader<File>, magic: &[u8], kind: &str) -> Result<impl Read> {
    let mut start = Vec::new();
    file.by_ref()
        .take(magic.len() as u64)
        .read_to_end(&mut start)?;
    ensure!(!start.is_empty(), "the file is empty");
    ensure!(
        start == magic,
        "not {kind}: begins with {start:02x?}, and {kind} begins with {magic:02x?}"
    );
    Ok(std::io::Cursor::new(start).chain(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// `hello, delta` written by liblzma with two delta filters (distances 32 and 1) in front of
    /// LZMA2.
    const DELTA_XZ: [u8; 72] = [
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 3, 2, 3, 1, 31, 3, 1, 0, 33, 1, 8, 0,
        197, 192, 209, 38, 1, 0, 11, 104, 253, 7, 0, 3, 189, 244, 68, 1, 7, 8, 237, 0, 97, 8, 205,
        194, 71, 104, 175, 90, 0, 1, 40, 12, 170, 87, 109, 116, 31, 182, 243, 125, 1, 0, 0, 0, 0,
        4, 89, 90,
    ];

    fn gz(content: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(content).unwrap();
        gz.finish().unwrap()
    }

    fn error(dir: &Path, name: &str, content: &[u8]) -> String {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        let text = format!("{:#}", read(&path).unwrap_err());
        assert!(text.starts_with(&path.display().to_string()), "{text}");
        text
    }

    #[test]
    fn the_three_forms_hold_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), b"hello, delta").unwrap();
        std::fs::write(at("b.gz"), gz(b"hello, delta")).unwrap();
        std::fs::write(at("c.xz"), DELTA_XZ).unwrap();
        for name in ["a", "b", "c"] {
            let path = find(dir.path(), name).unwrap();
            assert_eq!(read(&path).unwrap(), b"hello, delta");
            assert_eq!(read_start(&path, 5).unwrap(), b"hello");
        }
        assert_eq!(find(dir.path(), "d"), None);
    }

    #[test]
    fn damage_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let whole = gz(&[7; 5000]);
        assert!(error(dir, "a.gz", &whole[..whole.len() - 9]).contains("damaged or cut short"));
        assert!(error(dir, "b.xz", &DELTA_XZ[..60]).contains("damaged or cut short"));
        assert!(error(dir, "c.gz", b"<html>").contains("not gzip: begins with [3c, 68]"));
        assert!(error(dir, "d.xz", b"<html>").contains("not xz"));
        assert!(error(dir, "e.gz", b"").contains("the file is empty"));
        assert!(read(&dir.join("nowhere")).is_err());
    }

    #[test]
    fn a_bomb_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gz");
        std::fs::write(&path, gz(&[0; 100_000])).unwrap();
        let text = read_at_most(&path, 99_999).unwrap_err().to_string();
        assert!(text.contains("more than 99999 bytes"), "{text}");
        assert_eq!(read_at_most(&path, 100_000).unwrap().len(), 100_000);
    }

    #[test]
    fn a_damaged_xz_never_panics() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.xz");
        for at in 0..DELTA_XZ.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = DELTA_XZ;
                bytes[at] ^= flip;
                std::fs::write(&path, bytes).unwrap();
                if let Ok(content) = read(&path) {
                    assert_eq!(content, b"hello, delta", "byte {at} ^ {flip}");
                }
            }
        }
    }
}
