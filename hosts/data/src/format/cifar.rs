//! CIFAR-10 binary: records of one label byte and 3072 bytes, the red, green and blue planes of 32 x 32.

use anyhow::{Result, ensure};

/// Channels, height, width.
pub const SHAPE: [usize; 3] = [3, 32, 32];
/// Number of classes.
pub const CLASSES: u8 = 10;
const RECORD: usize = 1 + 3072;

/// Appends the records of one batch file. The canonical batches hold 10,000; any number is read.
///
/// # Errors
/// If the file is empty, is not a whole number of records, or has a label of 10 or more.
pub fn append(bytes: &[u8], images: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    ensure!(!bytes.is_empty(), "the file is empty");
    ensure!(
        bytes.len().is_multiple_of(RECORD),
        "holds {} bytes, which is {} records of {RECORD} and {} bytes more; cut short, or not CIFAR-10 binary",
        bytes.len(),
        bytes.len() / RECORD,
        bytes.len() % RECORD
    );
    for (at, record) in bytes.chunks_exact(RECORD).enumerate() {
        let label = record[0];
        ensure!(
            label < CLASSES,
            "record {at} has label {label}; it must be below {CLASSES}"
        );
        labels.push(u32::from(label));
        images.extend_from_slice(&record[1..]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_joined_in_order() {
        let (mut images, mut labels) = (vec![], vec![]);
        for (label, grey) in [(3, 30), (9, 90)] {
            let mut record = vec![grey; RECORD];
            record[0] = label;
            append(&record, &mut images, &mut labels).unwrap();
        }
        assert_eq!(labels, [3, 9]);
        assert_eq!((images.len(), images[3071], images[3072]), (6144, 30, 90));
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let wrong = |bytes: &[u8], part: &str| {
            let text = append(bytes, &mut vec![], &mut vec![])
                .unwrap_err()
                .to_string();
            assert!(text.contains(part), "{text}");
        };
        wrong(&[], "empty");
        wrong(&[0; 5000], "1 records of 3073 and 1927 bytes more");
        let mut two = vec![0; 2 * RECORD];
        two[RECORD] = 10;
        wrong(&two, "record 1 has label 10");
    }
}
