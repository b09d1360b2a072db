//! What is known of a data set before any file is opened.

/// What is known of a set before any file is opened.
#[derive(Clone, Copy, Debug)]
pub struct DataSetFacts {
    /// Its folder in the data directory; empty for a set that has none there.
    pub folder: &'static str,
    /// The files it is read from. Each is looked for under any of its names, plain, `.gz` or `.xz`;
    /// the first name is the one the set was published with.
    pub files: &'static [&'static [&'static str]],
    /// Where it comes from and what to search for.
    pub source: &'static str,
    /// Terms of use, as known.
    pub licence: &'static str,
    /// Training and test rows, as published or as made.
    pub rows: Option<(usize, usize)>,
    /// Mean and standard deviation that are taken from each channel, for sets of images: about the
    /// training images' own.
    pub statistics: Option<(&'static [f32], &'static [f32])>,
    /// Are the rows mostly 0, so that a shift would fill them, or numbers of words?
    pub sparse: bool,
}

impl DataSetFacts {
    /// A set that the program makes itself.
    pub const fn made(train: usize, test: usize) -> Self {
        Self {
            folder: "",
            files: &[],
            source: "made by this program",
            licence: "",
            rows: Some((train, test)),
            statistics: None,
            sparse: false,
        }
    }
}
