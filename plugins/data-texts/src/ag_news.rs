//! `ag-news`.

use anyhow::Result;
use fl_core::{Labels, Task};
use fl_data_kit::{
    DataSet, DataSetFacts, Folder, Rows, class_task, dataset::Part, format::csv, text,
};

fl_core::settings! {
    /// News in four topics, as hashed bags of words or as the first words in their order.
    pub struct AgNews {
        /// Number of columns of a bag. The hash of a word selects its column.
        width: usize = text::WIDTH, in 1..=text::MAX_WIDTH;
        /// Instead of a bag, a row holds the text's first words in order: this many values. Each is
        /// the number of the word's column, from 1 to `width`; zeros fill the rest. For networks
        /// that begin with `embedding`.
        words: Option<usize> = None, in 1..=text::MAX_WORDS;
    }
}
fl_data_kit::data_set!("ag-news" => AgNews);

impl DataSet for AgNews {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "agnews",
            files: &[&["train.csv", "train-subset.csv"], &["test.csv"]],
            source: "AG News topic classification (Zhang, Zhao, LeCun 2015)",
            licence: "research and other non-commercial use",
            rows: Some((120_000, 7600)),
            statistics: None,
            sparse: true,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&[self.words.unwrap_or(self.width)], 4)
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(self.words.map_or(0, |_| self.width))
    }

    /// The title counts only where the training file has titles: one of its public subsets has
    /// descriptions alone, and a word that only test rows can have teaches nothing.
    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let table = csv::Table {
            separator: b',',
            quotes: true,
            comment: None,
            header: false,
            columns: 3,
        };
        let read = |file: &str| {
            folder.read(file, |bytes| {
                let (mut of, mut texts) = (vec![], vec![]);
                table.rows(&bytes, |fields| {
                    of.push(csv::class(fields[0], 1, 4)?);
                    texts.push([fields[1].to_string(), fields[2].to_string()]);
                    Ok(())
                })?;
                Ok((of, texts))
            })
        };
        let (train, test) = (read("train.csv")?, read("test.csv")?);
        let from = usize::from(train.1.iter().all(|[title, _]| title.is_empty()));
        let part = |(of, texts): (Vec<u32>, Vec<[String; 2]>)| -> Part {
            let texts: Vec<String> = texts
                .iter()
                .map(|fields| fields[from..].join(" "))
                .collect();
            let inputs = text::rows(texts.iter().map(String::as_str), self.width, self.words);
            (inputs, Labels::Classes { of, classes: 4 })
        };
        Ok(Rows::new(part(train), part(test)))
    }
}
