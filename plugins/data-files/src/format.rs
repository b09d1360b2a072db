//! How files are written.

fl_core::choices! {
    /// How files are written.
    pub enum Format {
        /// A table: one row a line, fields separated by commas, names of the columns in the first
        /// line.
        Csv(Csv) = "csv",
        /// Images and labels as MNIST has them: unsigned bytes.
        Idx = "idx",
        /// One row a line: `label index:value ..`.
        Libsvm(Libsvm) = "libsvm",
        /// An array of NumPy: a row per sample. Four dimensions are images, and so are three of
        /// bytes.
        Npy(Npy) = "npy",
        /// Several arrays of NumPy.
        Npz(Npz) = "npz",
        /// A table in Apache's column format, plain or with the codecs snappy, zstd and gzip.
        Parquet = "parquet",
        /// A table: one JSON object a line.
        Jsonl = "jsonl",
        /// Rows of users by name, in JSON as LEAF's scripts write FEMNIST, Shakespeare and Synthetic:
        /// `{users: [..], num_samples: [..], user_data: {USER: {x: [..], y: [..]}}}`. Each user is a
        /// client (`split: by-user`).
        Leaf(Leaf) = "leaf",
        /// PNG and JPEG files, a folder per class; or all in one folder, as only a public set may
        /// have them. They are of one size, or get one by `resize`. With `label: {kind: number}`
        /// the name of a folder is the number. Labels can also be in a table beside the images:
        /// `{inputs: photos, labels: ages.csv}` with `label: {column: age, kind: number}`.
        Images(ImageFiles) = "images",
        /// PNG or JPEG files of one size in a folder, and in another a PNG of the same name for
        /// each, whose pixels have classes: `{inputs: images, labels: masks}`.
        Masks(Masks) = "masks",
        /// PNG or JPEG files of one size in a folder, and in another the image of the same name
        /// that is to be made of each, all of one size, which may be another:
        /// `{inputs: noisy, labels: clean}`.
        Pairs = "pairs",
    }
}

fl_core::settings! {
    /// How a table of text is written.
    pub struct Csv {
        /// Between two fields, one character; if not given a comma, in `.tsv` files a tab.
        separator: Option<String> = None;
        /// Is the first line the names of the columns? If not, columns are called by their number,
        /// from 1.
        header: bool = true;
    }
}

fl_core::settings! {
    /// Rows of LIBSVM.
    pub struct Libsvm {
        /// Features; if not given, the largest index in any file.
        width: Option<u32> = None, in 1..=MAX_WIDTH;
    }
}

fl_core::settings! {
    /// Rows of LEAF.
    pub struct Leaf {
        /// The shape of a row of numbers, such as `[1, 28, 28]` for FEMNIST; if empty, a list.
        shape: Vec<usize> = Vec::new(), in 1..=MAX_WIDTH as usize;
        /// Rows that are texts become the numbers of their characters in this alphabet, from 1; 0
        /// is any other character. Where `y` is a text too and the spec has no `classes`, these
        /// characters are the classes, and any other character has the last class, as in LEAF's
        /// code. If not given, the 80 characters of LEAF's model of Shakespeare.
        alphabet: Option<String> = None;
    }
}

fl_core::settings! {
    /// An array of NumPy.
    pub struct Npy {
        /// Which side of an image is its channels. If not given the last one if it is 1, 3 or 4 and
        /// the first one is not, otherwise the first.
        channels: Option<Channels> = None;
    }
}

fl_core::settings! {
    /// Arrays of NumPy.
    pub struct Npz {
        /// The array with a row per sample.
        inputs: String = "x".into();
        /// As that of `npy`.
        channels: Option<Channels> = None;
    }
}

fl_core::choices! {
    /// Which side of an image in an array is its channels.
    pub enum Channels {
        /// `rows x channels x height x width`, as PyTorch has them.
        First = "first",
        /// `rows x height x width x channels`, as Keras and PIL have them.
        Last = "last",
    }
}

fl_core::settings! {
    /// What becomes of images when they are read.
    pub struct ImageFiles {
        /// The size that all images get; without it, they must have one.
        resize: Option<Resize> = None;
        /// The colours that all images get; without it, all must be grey, or all in colour.
        colours: Option<Colours> = None;
        /// With labels in a table: the column with the name of each image's file, from the folder
        /// of the images, such as `cat/1.png`.
        file: String = "file".into();
    }
}

impl ImageFiles {
    /// Images of one size and with the same colours, as they are in their files.
    pub(crate) const AS_STORED: Self = Self {
        resize: None,
        colours: None,
        file: String::new(),
    };
}

fl_core::choices! {
    /// The colours of images.
    pub enum Colours {
        /// One channel; a pixel in colour gets `0.299 red + 0.587 green + 0.114 blue` (ITU-R 601).
        Grey = "grey",
        /// Red, green and blue; those of a grey pixel are equal.
        Rgb = "rgb",
    }
}

fl_core::settings! {
    /// The size that images get, by linear interpolation; of a smaller size, each pixel is a
    /// weighted mean of all that it stands for (a triangle filter).
    pub struct Resize {
        /// Pixels from top to bottom.
        height: usize, in 1..=4096;
        /// Pixels from left to right.
        width: usize, in 1..=4096;
        /// What becomes of an image of another shape.
        by: ResizeBy = ResizeBy::Crop;
    }
}

fl_core::choices! {
    /// What becomes of an image whose sides have another ratio.
    pub enum ResizeBy {
        /// It keeps its ratio, and what stands out on two sides is cut off alike.
        Crop = "crop",
        /// It is stretched.
        Stretch = "stretch",
    }
}

fl_core::settings! {
    /// Images whose pixels have classes.
    pub struct Masks {
        /// The meaning of a pixel of a mask.
        pixels: MaskPixels = MaskPixels::Classes;
    }
}

fl_core::choices! {
    /// What stands in a pixel of a mask, a PNG of one channel with 8 or 16 bits.
    pub enum MaskPixels {
        /// Its class, from 0, the background; or, if there are two classes, 0 and 255.
        Classes = "classes",
        /// The number of its object, 0 for none. There are two classes: background, and objects.
        Objects = "objects",
    }
}

/// More features than this are a slip of the pen.
pub(crate) const MAX_WIDTH: u32 = fl_data_kit::text::MAX_WIDTH as u32;

impl Format {
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Csv(_) | Self::Jsonl | Self::Parquet)
    }

    /// Do its files say which user a row is of?
    pub(crate) fn names_users(&self) -> bool {
        matches!(self, Self::Leaf(_))
    }

    /// Does a file hold many rows? Then one with the same content is the same; images are alike
    /// more easily.
    pub(crate) fn of_many_rows(&self) -> bool {
        !matches!(self, Self::Images(_) | Self::Masks(_) | Self::Pairs)
    }

    /// Endings of the files that count in a folder; any if there are none.
    pub(crate) fn endings(&self) -> &'static [&'static str] {
        match self {
            Self::Csv(_) => &["csv", "tsv"],
            Self::Jsonl => &["jsonl", "ndjson"],
            Self::Parquet => &["parquet"],
            Self::Leaf(_) => &["json"],
            Self::Npy(_) => &["npy"],
            Self::Npz(_) => &["npz"],
            Self::Images(_) | Self::Masks(_) | Self::Pairs => &["png", "jpg", "jpeg"],
            Self::Idx | Self::Libsvm(_) => &[],
        }
    }
}
