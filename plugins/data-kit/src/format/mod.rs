//! Readers of the published file formats. Each takes the bytes of one file and says, when they are
//! wrong, at which byte, line or record, what was found and what would be right; the caller adds
//! the file's name.

pub mod csv;
pub mod idx;
pub mod libsvm;

/// Images of bytes on the scale 0 to 1: one after the other, each channel by channel.
pub fn images(shape: [usize; 3], data: Vec<u8>) -> fl_core::Inputs {
    fl_core::Inputs::Bytes {
        shape,
        data,
        mean: vec![0.0; shape[0]],
        std: vec![1.0; shape[0]],
    }
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
