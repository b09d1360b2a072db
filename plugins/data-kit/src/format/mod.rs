//! Readers of the published file formats. Each takes the bytes of one file and says, when they are
//! wrong, at which byte, line or record, what was found and what would be right; the caller adds
//! the file's name.

pub mod csv;
pub mod idx;
pub mod libsvm;

use fl_core::Inputs;

/// Images of bytes on the scale 0 to 1: one after the other, each channel by channel.
pub fn images(shape: [usize; 3], data: Vec<u8>) -> Inputs {
    Inputs::Bytes {
        shape,
        data,
        mean: vec![0.0; shape[0]],
        std: vec![1.0; shape[0]],
    }
}

/// Appends rows to rows of the same shape, scale and kind of numbers; sparse ones may have another
/// width. Gives back rows of another kind.
///
/// # Errors
/// The rows that do not go with `all`, which stays as it is.
pub fn append(all: &mut Inputs, more: Inputs) -> Result<(), Inputs> {
    let same = all.shape() == more.shape();
    match (all, more) {
        (
            Inputs::Sparse {
                width,
                starts,
                columns,
                values,
            },
            Inputs::Sparse {
                width: w,
                starts: s,
                columns: c,
                values: v,
            },
        ) => {
            let before = columns.len();
            *width = (*width).max(w);
            starts.extend(s[1..].iter().map(|end| before + end));
            columns.extend(c);
            values.extend(v);
        }
        (Inputs::Dense { data, .. }, Inputs::Dense { data: more, .. }) if same => {
            data.extend(more);
        }
        (
            Inputs::Bytes {
                data, mean, std, ..
            },
            Inputs::Bytes {
                data: more,
                mean: m,
                std: s,
                ..
            },
        ) if same && (&*mean, &*std) == (&m, &s) => data.extend(more),
        (_, more) => return Err(more),
    }
    Ok(())
}

/// Images one after the other, each channel by channel, from images of this number of pixels, each
/// pixel with all its `channels`.
pub fn channels_first<T: Copy>(data: &[T], pixels: usize, channels: usize) -> Vec<T> {
    let image = |of: &[T]| {
        let at = |i: usize| of[i % pixels * channels + i / pixels];
        (0..pixels * channels).map(at).collect::<Vec<T>>()
    };
    data.chunks_exact(pixels * channels)
        .flat_map(image)
        .collect()
}
