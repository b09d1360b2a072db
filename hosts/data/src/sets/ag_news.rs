//! `ag-news`.

use super::shared::{classes, task};
use crate::folder::Folder;
use crate::format::csv;
use crate::set::{DataSet, Facts, Part, Rows};
use crate::text::{self, bags};
use anyhow::Result;
use fl_core::Task;

fl_core::settings! {
    /// News in four topics, as hashed bags of words.
    pub struct AgNews {
        /// Values in a row; a word counts in the column that its hash names.
        width: usize = text::WIDTH, in 1..=text::MAX_WIDTH;
    }
}
crate::data_set!("ag-news" => AgNews);

impl DataSet for AgNews {
    fn facts(&self) -> Facts {
        Facts {
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
        task(&[self.width], 4)
    }

    /// The title counts only where the training file has titles: one of its public subsets has descriptions alone, and
    /// a word that only test rows can have teaches nothing.
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
            let inputs = bags(texts.iter().map(String::as_str), self.width);
            (inputs, classes(of, 4))
        };
        Ok(Rows::new(part(train), part(test)))
    }
}
