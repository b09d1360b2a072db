//! `sst2`.

use anyhow::Result;
use fl_core::{Labels, Task};
use fl_data_kit::{
    DataSet, DataSetFacts, Folder, Rows, class_task, dataset::Part, format::csv, text,
};

fl_core::settings! {
    /// Sentences of film reviews, against or for, as hashed bags of words or as the first words in
    /// their order.
    pub struct Sst2 {
        /// Number of columns of a bag. The hash of a word selects its column.
        width: usize = text::WIDTH, in 1..=text::MAX_WIDTH;
        /// Instead of a bag, a row holds the text's first words in order: this many values. Each is
        /// the number of the word's column, from 1 to `width`; zeros fill the rest. For networks
        /// that begin with `embedding`.
        words: Option<usize> = None, in 1..=text::MAX_WORDS;
    }
}
fl_data_kit::data_set!("sst2" => Sst2);

impl DataSet for Sst2 {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "sst2",
            files: &[&["train.tsv"], &["dev.tsv"]],
            source: "SST-2 as in GLUE (Socher et al. 2013); its dev part is the test set here",
            licence: "none stated; research use",
            rows: Some((67_349, 872)),
            statistics: None,
            sparse: true,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&[self.words.unwrap_or(self.width)], 2)
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(self.words.map_or(0, |_| self.width))
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let table = csv::Table {
            separator: b'\t',
            quotes: false,
            comment: None,
            header: true,
            columns: 2,
        };
        let part = |file: &str| -> Result<Part> {
            folder.read(file, |bytes| {
                let (mut of, mut texts) = (vec![], vec![]);
                table.rows(&bytes, |fields| {
                    of.push(csv::class(fields[1], 0, 2)?);
                    texts.push(fields[0].to_string());
                    Ok(())
                })?;
                let inputs = text::rows(texts.iter().map(String::as_str), self.width, self.words);
                Ok((inputs, Labels::Classes { of, classes: 2 }))
            })
        };
        Ok(Rows::new(part("train.tsv")?, part("dev.tsv")?))
    }
}
