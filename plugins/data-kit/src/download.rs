//! Files of data sets that may be fetched: where each is, and what it must be.

use anyhow::{Context, Result, bail, ensure};
use fl_core::hex;
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};

/// A file of a data set and a public address of it. The address was public when this was written:
/// size and hash say whether it still has the same file.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The address of its folder: `http` or `https`.
    pub folder: &'static str,
    /// Its name there. A file whose name ends in `.gz` is unpacked.
    pub file: &'static str,
    /// Bytes of its content, unpacked.
    pub bytes: u64,
    /// The SHA-256 of its content, unpacked, in hexadecimal digits.
    pub sha256: &'static str,
}

impl Download {
    /// Its published name, as among the files of the set.
    pub fn name(&self) -> &'static str {
        self.file.strip_suffix(".gz").unwrap_or(self.file)
    }

    /// Copies its content from `packed`, as it lies at its address, to `out`; never more than
    /// [`Self::bytes`].
    ///
    /// # Errors
    /// If it cannot be read or written, is damaged, or its size or hash is another one; says both
    /// what it has and what is due.
    pub fn unpack(&self, packed: impl Read, out: &mut dyn Write) -> Result<()> {
        if self.file.ends_with(".gz") {
            self.copy(MultiGzDecoder::new(packed), out).context("gzip")
        } else {
            self.copy(packed, out)
        }
    }

    /// Checks a content, unpacked.
    ///
    /// # Errors
    /// As [`Self::unpack`].
    pub fn check(&self, content: &[u8]) -> Result<()> {
        self.copy(content, &mut std::io::sink())
    }

    fn copy(&self, from: impl Read, out: &mut dyn Write) -> Result<()> {
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut from = from.take(self.bytes.saturating_add(1));
        let mut block = vec![0; 1 << 16];
        loop {
            let n = match from.read(&mut block) {
                Ok(0) => break,
                Ok(n) => n,
                Err(why) => bail!("after {bytes} of {} bytes: {why}", self.bytes),
            };
            bytes += n as u64;
            ensure!(
                bytes <= self.bytes,
                "it has more than the {} bytes that `{}` has",
                self.bytes,
                self.name()
            );
            hash.update(&block[..n]);
            out.write_all(&block[..n])?;
        }
        let found = hex(&hash.finalize());
        ensure!(
            bytes == self.bytes && found == self.sha256,
            "it has {bytes} bytes and the SHA-256 {found}, and `{}` has {} bytes and the SHA-256 {}",
            self.name(),
            self.bytes,
            self.sha256
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    const HELLO: Download = Download {
        folder: "http://localhost/set",
        file: "hello.gz",
        bytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    };

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut gz = GzEncoder::new(Vec::new(), Compression::best());
        gz.write_all(content).unwrap();
        gz.finish().unwrap()
    }

    fn error(download: &Download, bytes: &[u8]) -> String {
        let error = download.unpack(bytes, &mut Vec::new()).unwrap_err();
        format!("{error:#}")
    }

    #[test]
    fn exact_a_file_is_unpacked_if_its_size_and_hash_are_right() {
        let mut out = Vec::new();
        HELLO.unpack(&packed(b"hello")[..], &mut out).unwrap();
        assert_eq!((&out[..], HELLO.name()), (&b"hello"[..], "hello"));
        let plain = Download {
            file: "hello",
            ..HELLO
        };
        plain.unpack(&b"hello"[..], &mut out).unwrap();
        assert_eq!(out, b"hellohello");
    }

    #[test]
    fn another_file_is_refused_with_both_sizes_and_hashes() {
        let whole = packed(b"hello");
        assert_eq!(
            error(&HELLO, &packed(b"hallo")),
            "gzip: it has 5 bytes and the SHA-256 \
             d3751d33f9cd5049c4af2b462735457e4d3baf130bcbb87f389e349fbaeb20b9, and `hello` has 5 bytes \
             and the SHA-256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        for (bytes, why) in [
            (packed(b"hell"), "it has 4 bytes and the SHA-256"),
            // however much a little file unpacks to
            (
                packed(&[0; 1 << 20]),
                "it has more than the 5 bytes that `hello` has",
            ),
            (whole[..whole.len() - 3].to_vec(), "of 5 bytes: "),
            (
                b"<html>no such file</html>".to_vec(),
                "after 0 of 5 bytes: invalid gzip header",
            ),
            (Vec::new(), "gzip"),
        ] {
            let found = error(&HELLO, &bytes);
            assert!(found.contains(why), "{found}");
        }
    }
}
