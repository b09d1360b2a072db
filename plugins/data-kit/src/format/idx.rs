//! IDX: a big-endian header (magic, one size per dimension), then bytes. MNIST and its relatives.

use anyhow::{Result, ensure};

/// Images of one channel, `rows x height x width` bytes.
#[derive(Debug, PartialEq)]
pub struct Images {
    /// Height of an image.
    pub height: usize,
    /// Width of an image.
    pub width: usize,
    /// All images, one after the other.
    pub data: Vec<u8>,
}

/// Reads a file of unsigned bytes in three dimensions.
///
/// # Errors
/// If it is not IDX, has other dimensions, or its header does not describe exactly the bytes that
/// follow.
pub fn images(bytes: Vec<u8>) -> Result<Images> {
    let [_, height, width] = header(&bytes)?;
    ensure!(
        height > 0 && width > 0,
        "the header says images of {height} x {width}; both must be at least 1"
    );
    Ok(Images {
        height,
        width,
        data: content::<3>(bytes),
    })
}

/// Reads a file of unsigned bytes in one dimension, each below `classes`.
///
/// # Errors
/// As [`images`], and if a label is not below `classes`.
pub fn labels(bytes: Vec<u8>, classes: usize) -> Result<Vec<u32>> {
    let [_] = header(&bytes)?;
    let labels = content::<1>(bytes);
    if let Some(at) = labels.iter().position(|l| usize::from(*l) >= classes) {
        anyhow::bail!(
            "label {at} is {}; with {classes} classes it must be below {classes}",
            labels[at]
        );
    }
    Ok(labels.into_iter().map(u32::from).collect())
}

/// The number of rows that a header claims, from the first eight bytes of a file.
pub fn claimed_rows(start: &[u8]) -> Option<usize> {
    (start.get(..3)? == [0, 0, 8])
        .then(|| be(start, 4))
        .flatten()
}

fn be(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(four)).ok()
}

/// The sizes in the header, once it is sure that exactly the bytes it describes follow it.
fn header<const D: usize>(bytes: &[u8]) -> Result<[usize; D]> {
    let start = 4 + 4 * D;
    ensure!(!bytes.is_empty(), "the file is empty");
    ensure!(
        bytes.len() >= start,
        "the file ends after {} bytes, inside its header of {start}",
        bytes.len()
    );
    let (magic, wanted) = (&bytes[..4], [0, 0, 8, D as u8]);
    ensure!(
        magic == wanted,
        "begins with {magic:02x?}; IDX of unsigned bytes in {D} dimension(s) begins with {wanted:02x?}"
    );
    let mut sizes = [0; D];
    let mut product = Some(1usize);
    for (d, size) in sizes.iter_mut().enumerate() {
        *size = be(bytes, 4 + 4 * d).unwrap_or(usize::MAX);
        product = product.and_then(|p| p.checked_mul(*size));
    }
    let found = bytes.len() - start;
    ensure!(
        product == Some(found),
        "the header says {sizes:?}, which is {}, but {found} bytes follow it",
        product.map_or("more than can be counted".to_string(), |p| format!(
            "{p} bytes"
        ))
    );
    ensure!(found > 0, "the file holds no rows");
    Ok(sizes)
}

fn content<const D: usize>(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.drain(..4 + 4 * D);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(magic: [u8; 4], sizes: &[u32], content: &[u8]) -> Vec<u8> {
        let sizes = sizes.iter().flat_map(|s| s.to_be_bytes());
        magic
            .into_iter()
            .chain(sizes)
            .chain(content.iter().copied())
            .collect()
    }
    const IMAGES: [u8; 4] = [0, 0, 8, 3];
    const LABELS: [u8; 4] = [0, 0, 8, 1];

    #[test]
    fn reads_what_was_written() {
        let got = images(file(IMAGES, &[2, 1, 3], &[1, 2, 3, 4, 5, 6])).unwrap();
        assert_eq!(
            got,
            Images {
                height: 1,
                width: 3,
                data: vec![1, 2, 3, 4, 5, 6]
            }
        );
        assert_eq!(
            labels(file(LABELS, &[3], &[0, 2, 1]), 3).unwrap(),
            [0, 2, 1]
        );
        assert_eq!(claimed_rows(&file(LABELS, &[70_000], &[])), Some(70_000));
        assert_eq!(claimed_rows(b"abc"), None);
        assert_eq!(claimed_rows(&[0, 0, 8, 1, 0]), None);
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let wrong = |bytes, part: &str| {
            let text = images(bytes).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        };
        wrong(vec![], "empty");
        wrong(
            IMAGES.to_vec(),
            "ends after 4 bytes, inside its header of 16",
        );
        wrong(
            file(LABELS, &[2, 1, 3], &[0; 6]),
            "begins with [00, 00, 08, 01]",
        );
        wrong(
            file([0, 0, 13, 3], &[2, 1, 3], &[0; 6]),
            "begins with [00, 00, 0d, 03]",
        );
        wrong(
            file(IMAGES, &[2, 1, 3], &[0; 5]),
            "which is 6 bytes, but 5 bytes follow",
        );
        wrong(file(IMAGES, &[2, 1, 3], &[0; 7]), "but 7 bytes follow");
        wrong(
            file(IMAGES, &[u32::MAX; 3], &[0; 7]),
            "more than can be counted",
        );
        wrong(
            file(IMAGES, &[1 << 31, 1 << 31, 4], &[]),
            "more than can be counted",
        );
        wrong(file(IMAGES, &[0, 28, 28], &[]), "no rows");
        let text = labels(file(LABELS, &[3], &[0, 9, 10]), 10)
            .unwrap_err()
            .to_string();
        assert!(text.contains("label 2 is 10; with 10 classes"), "{text}");
    }
}
