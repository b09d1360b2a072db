//! CIFAR binary: records of label bytes and 3072 bytes, the red, green and blue planes of 32 x 32.
//! CIFAR-10 has one label byte; CIFAR-100 has two, of which the second is the class and the first a
//! coarser one.

use anyhow::{Result, ensure};
use fl_core::Labels;
use fl_data_kit::dataset::Part;
use fl_data_kit::{Folder, Rows, format};

/// Channels, height, width.
pub const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3072;

/// Appends the records of one batch file, each with `label_bytes` label bytes, the last of which is
/// the class. The canonical CIFAR-10 batches hold 10,000 records; any number is read.
///
/// # Errors
/// If the file is empty, is not a whole number of records, or has a label that is not below
/// `classes`.
pub fn append(
    bytes: &[u8],
    label_bytes: usize,
    classes: usize,
    images: &mut Vec<u8>,
    labels: &mut Vec<u32>,
) -> Result<()> {
    let length = label_bytes + PIXELS;
    ensure!(!bytes.is_empty(), "the file is empty");
    ensure!(
        bytes.len().is_multiple_of(length),
        "holds {} bytes, which is {} records of {length} and {} bytes more; cut short, or not CIFAR binary",
        bytes.len(),
        bytes.len() / length,
        bytes.len() % length
    );
    for (at, record) in bytes.chunks_exact(length).enumerate() {
        let label = usize::from(record[label_bytes - 1]);
        ensure!(
            label < classes,
            "record {at} has label {label}; it must be below {classes}"
        );
        labels.push(label as u32);
        images.extend_from_slice(&record[label_bytes..]);
    }
    Ok(())
}

/// Reads the records of the batch files of two parts: those to learn from, and those to test with.
pub(crate) fn rows(
    folder: &Folder<'_>,
    (train, test): (&[&[&str]], &[&[&str]]),
    label_bytes: usize,
    classes: usize,
) -> Result<Rows> {
    let part = |files: &[&[&str]]| -> Result<Part> {
        let (mut data, mut of) = (vec![], vec![]);
        for names in files {
            folder.read(names[0], |bytes| {
                append(&bytes, label_bytes, classes, &mut data, &mut of)
            })?;
        }
        Ok((format::images(SHAPE, data), Labels::Classes { of, classes }))
    };
    Ok(Rows::new(part(train)?, part(test)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_joined_in_order() {
        let (mut images, mut labels) = (vec![], vec![]);
        for (label, grey) in [(3, 30), (9, 90)] {
            let mut record = vec![grey; 1 + PIXELS];
            record[0] = label;
            append(&record, 1, 10, &mut images, &mut labels).unwrap();
        }
        assert_eq!(labels, [3, 9]);
        assert_eq!((images.len(), images[3071], images[3072]), (6144, 30, 90));
    }

    #[test]
    fn the_second_label_byte_of_cifar_100_is_the_class() {
        let mut record = vec![7; 2 + PIXELS];
        (record[0], record[1]) = (19, 99);
        let (mut images, mut labels) = (vec![], vec![]);
        append(&record, 2, 100, &mut images, &mut labels).unwrap();
        assert_eq!((labels, images), (vec![99], vec![7; PIXELS]));
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let wrong = |bytes: &[u8], part: &str| {
            let text = append(bytes, 1, 10, &mut vec![], &mut vec![])
                .unwrap_err()
                .to_string();
            assert!(text.contains(part), "{text}");
        };
        wrong(&[], "empty");
        wrong(&[0; 5000], "1 records of 3073 and 1927 bytes more");
        let mut two = vec![0; 2 * (1 + PIXELS)];
        two[1 + PIXELS] = 10;
        wrong(&two, "record 1 has label 10");
    }
}
