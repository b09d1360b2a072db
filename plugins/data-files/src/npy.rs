//! NumPy's array files: a magic, a header in the form of a Python dictionary, then the numbers.
//!
//! Read here and not by a crate: those that do it bring a parser generator for that one line, and
//! their recursion and allocation follow what the file says.

use anyhow::{Context, Result, bail, ensure};

/// An array, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub data: Data,
}

/// The bytes of a number in 64 bits and in 32.
const NUMBER: usize = 12;

/// Numbers: bytes stay bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Unsigned bytes.
    Bytes(Vec<u8>),
    /// Everything else that is a number; truth values are 0 and 1.
    Numbers(Vec<f64>),
    /// Texts, as only labels may be.
    Texts(Vec<String>),
}

impl Array {
    /// The number at a position; a text is none.
    pub fn number(&self, at: usize) -> f64 {
        match &self.data {
            Data::Bytes(data) => f64::from(data[at]),
            Data::Numbers(data) => data[at],
            Data::Texts(_) => f64::NAN,
        }
    }
}

/// Reads an array of numbers, truth values or texts.
///
/// # Errors
/// If it is not NumPy's, holds bytes, complex numbers, records or objects, or its header does not
/// describe exactly the bytes that follow.
pub fn read(bytes: &[u8]) -> Result<Array> {
    Header::read(bytes)?.array()
}

/// What the header of an array says, and the bytes that follow it.
pub struct Header<'b> {
    shape: Vec<usize>,
    /// The kind of numbers.
    letters: &'b str,
    big: bool,
    fortran: bool,
    /// The bytes of one.
    size: usize,
    content: &'b [u8],
}

impl<'b> Header<'b> {
    /// Reads it.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(bytes: &'b [u8]) -> Result<Self> {
        const MAGIC: &[u8] = b"\x93NUMPY";
        ensure!(
            bytes.starts_with(MAGIC),
            "not NumPy's: begins with {:02x?}, and NumPy's begins with {MAGIC:02x?}",
            &bytes[..bytes.len().min(MAGIC.len())]
        );
        let start = |at: usize| bytes.get(at).copied().map(usize::from);
        let (length, from): (Option<usize>, usize) = match start(6) {
            Some(1) => (start(8).zip(start(9)).map(|(a, b)| a + 256 * b), 10),
            Some(2 | 3) => {
                let four = bytes.get(8..12).and_then(|four| four.try_into().ok());
                (four.map(|four| u32::from_le_bytes(four) as usize), 12)
            }
            _ => bail!("an array file of a version that is not known"),
        };
        let header = length.and_then(|length| bytes.get(from..from.checked_add(length)?));
        let header = header.context("the file ends inside its header")?;
        let header = std::str::from_utf8(header).context("the header is not text")?;
        let content = &bytes[from + header.len()..];

        let kind = text(header, "descr")
            .context("the header has no `descr` that is a text: records are not read")?;
        let fortran = match after(header, "fortran_order")? {
            rest if rest.starts_with("True") => true,
            rest if rest.starts_with("False") => false,
            _ => bail!("`fortran_order` in the header is neither True nor False"),
        };
        let shape = shape(header)?;
        let big = kind.starts_with('>');
        let letters = kind.trim_start_matches(['<', '>', '|', '=']);
        ensure!(
            !letters.starts_with(['S', 'O']),
            "bytes and objects (`{kind}`) are not read; save texts as `array.astype(str)`"
        );
        let width = letters.get(1..).and_then(|n| n.parse().ok());
        let size: usize = if letters.starts_with('U') {
            width.and_then(|n: usize| n.checked_mul(4))
        } else {
            width
        }
        .unwrap_or(0);
        let count = shape
            .iter()
            .try_fold(1usize, |n, side| n.checked_mul(*side));
        let wanted = count.and_then(|n| n.checked_mul(size));
        ensure!(
            !letters.starts_with(['M', 'm']),
            "times (`{kind}`) are not read; save them as numbers: `(array - array.min()) / np.timedelta64(1, 's')`"
        );
        ensure!(
            wanted == Some(content.len()) && size > 0,
            "the header says {shape:?} of `{kind}`, but {} bytes follow it",
            content.len()
        );
        Ok(Self {
            shape,
            letters,
            big,
            fortran,
            size,
            content,
        })
    }

    /// The bytes that the array takes, with the 32-bit numbers that are made of it.
    pub fn memory(&self) -> u64 {
        let (bytes, count) = (self.content.len(), self.content.len() / self.size);
        let once = match self.letters {
            "u1" => bytes,
            of if of.starts_with('U') => bytes + count * size_of::<String>(),
            _ => count * NUMBER,
        };
        // it is copied into another order
        once as u64 * (1 + u64::from(self.fortran))
    }

    /// The array.
    ///
    /// # Errors
    /// As [`read`].
    pub fn array(self) -> Result<Array> {
        let Self { content, big, .. } = self;
        let data = match self.letters {
            "u1" => Data::Bytes(content.to_vec()),
            of if of.starts_with('U') => Data::Texts(texts(content, self.size, big)?),
            of => Data::Numbers(numbers(content, of, big)?),
        };
        let array = Array {
            shape: self.shape,
            data,
        };
        Ok(if self.fortran { c_order(&array) } else { array })
    }
}

/// Texts of one width: four bytes a character, filled up with zeros.
fn texts(content: &[u8], size: usize, big: bool) -> Result<Vec<String>> {
    let character = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        char::from_u32(if big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    };
    let text = |(at, bytes): (usize, &[u8])| {
        let text: Option<String> = bytes.chunks_exact(4).map(character).collect();
        let text = text.with_context(|| format!("text {at} holds what is no character"))?;
        Ok(text.trim_end_matches('\0').to_string())
    };
    content.chunks_exact(size).enumerate().map(text).collect()
}

fn numbers(content: &[u8], letters: &str, big: bool) -> Result<Vec<f64>> {
    macro_rules! all {
        ($t:ty) => {
            content
                .chunks_exact(size_of::<$t>())
                .map(|bytes| {
                    let bytes = bytes.try_into().unwrap_or_default();
                    let value = if big {
                        <$t>::from_be_bytes(bytes)
                    } else {
                        <$t>::from_le_bytes(bytes)
                    };
                    value as f64
                })
                .collect()
        };
    }
    Ok(match letters {
        "b1" => content
            .iter()
            .map(|byte| f64::from(u8::from(*byte != 0)))
            .collect(),
        "i1" => all!(i8),
        "i2" => all!(i16),
        "i4" => all!(i32),
        "i8" => all!(i64),
        "u2" => all!(u16),
        "u4" => all!(u32),
        "u8" => all!(u64),
        "f4" => all!(f32),
        "f8" => all!(f64),
        other => bail!(
            "numbers of the kind `{other}` are not read; save the array as float32, for example"
        ),
    })
}

/// What stands behind `'key':` in the header.
fn after<'h>(header: &'h str, key: &str) -> Result<&'h str> {
    let rest = header.split_once(&format!("'{key}'")).map(|(_, rest)| rest);
    let rest = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
    rest.map(str::trim_start)
        .with_context(|| format!("the header has no `{key}`"))
}

/// A text in the header.
fn text<'h>(header: &'h str, key: &str) -> Option<&'h str> {
    let rest = after(header, key).ok()?.strip_prefix('\'')?;
    rest.split_once('\'').map(|(text, _)| text)
}

fn shape(header: &str) -> Result<Vec<usize>> {
    let inner = after(header, "shape")?
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'));
    let (inner, _) = inner.context("the `shape` in the header is not in brackets")?;
    let sides = inner
        .split(',')
        .map(str::trim)
        .filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides
        .map(|side| {
            side.parse()
                .with_context(|| format!("the `shape` in the header holds `{side}`"))
        })
        .collect::<Result<_>>()?;
    ensure!(
        (1..=8).contains(&shape.len()),
        "an array of {} dimensions; there must be 1 to 8",
        shape.len()
    );
    Ok(shape)
}

/// The same array with the last index running fastest.
fn c_order(array: &Array) -> Array {
    let shape = &array.shape;
    let total: usize = shape.iter().product();
    // for each position in C order, where it stands in Fortran order
    let place = |mut at: usize| {
        let mut index = vec![0; shape.len()];
        for (i, side) in index.iter_mut().zip(shape).rev() {
            *i = at % side;
            at /= side;
        }
        index
            .iter()
            .zip(shape)
            .rev()
            .fold(0, |at, (i, side)| at * side + i)
    };
    let data = match &array.data {
        Data::Bytes(data) => Data::Bytes((0..total).map(|at| data[place(at)]).collect()),
        Data::Numbers(data) => Data::Numbers((0..total).map(|at| data[place(at)]).collect()),
        Data::Texts(data) => Data::Texts((0..total).map(|at| data[place(at)].clone()).collect()),
    };
    Array {
        shape: shape.clone(),
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(content);
        bytes
    }

    #[test]
    fn numbers_of_all_kinds_are_read() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }\n";
        let got = read(&file(header, &[1, 0, 2, 0, 255, 255, 0, 1])).unwrap();
        assert_eq!(
            (got.shape, got.data),
            (vec![2, 2], Data::Numbers(vec![1.0, 2.0, -1.0, 256.0]))
        );
        let header = "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }";
        let got = read(&file(header, &1.5f32.to_be_bytes())).unwrap();
        assert_eq!(got.data, Data::Numbers(vec![1.5]));
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
        let got = read(&file(header, &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(
            got.data,
            Data::Bytes(vec![1, 2, 3, 4, 5, 6]),
            "columns first"
        );
    }

    #[test]
    fn texts_end_before_their_zeros() {
        let header = "{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }";
        let text = |text: &str| {
            let all = text.chars().map(u32::from).chain(std::iter::repeat(0));
            all.take(3).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
        };
        let got = read(&file(header, &[text("ja"), text("né")].concat())).unwrap();
        assert_eq!(got.data, Data::Texts(vec!["ja".into(), "né".into()]));
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let wrong = |bytes: &[u8], part: &str| {
            let text = format!("{:#}", read(bytes).unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        let header = |kind: &str, shape: &str| {
            format!("{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}")
        };
        wrong(b"", "not NumPy's");
        wrong(b"PK\x03\x04..", "begins with [50, 4b");
        wrong(
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
            "ends inside its header",
        );
        wrong(b"\x93NUMPY\x09\x00", "version");
        wrong(
            &file(&header("'<f4'", "(2,)"), &[0; 7]),
            "says [2] of `<f4`, but 7 bytes follow",
        );
        let huge = "(18446744073709551615, 4)";
        wrong(&file(&header("'<f4'", huge), &[0; 8]), "bytes follow");
        wrong(
            &file(&header("'|S5'", "(1,)"), &[0; 5]),
            "bytes and objects (`|S5`) are not read",
        );
        wrong(
            &file(&header("'<U1'", "(1,)"), &[0, 0, 0, 255]),
            "text 0 holds what is no character",
        );
        wrong(&file(&header("'|O'", "(1,)"), &[0; 8]), "(`|O`) are not");
        wrong(
            &file(&header("[('a', '<f4')]", "(1,)"), &[0; 4]),
            "records are not read",
        );
        wrong(&file(&header("'<f4'", "()"), &[0; 4]), "0 dimensions");
        wrong(&file(&header("'<f4'", "(-1,)"), &[0; 4]), "holds `-1`");
        wrong(&file(&"(".repeat(60_000), &[]), "no `descr`");
    }
}
