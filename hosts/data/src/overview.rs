//! What each client gets, before a run.

use crate::assembled::Assembled;
use fl_core::{Examples, TaskKind};
use fl_data_kit::column_match::shortened;
use serde_json::{Value as Json, json};
use std::fmt::{Display, Formatter, Write};

/// Clients that the text shows one by one; the JSON has all.
const SHOWN: usize = 50;
/// Classes that the text gives numbers for.
const NUMBERED: usize = 10;
/// Classes that the picture has room for.
const PICTURED: usize = 120;
/// Width of the largest client's bar.
const BAR: usize = 20;

/// What each client gets.
#[derive(Clone, Debug)]
pub struct Overview {
    /// What is learnt: `[1, 28, 28] -> 10 classes`.
    pub task: String,
    /// Names of the classes; their numbers if the files give none.
    pub classes: Vec<String>,
    /// What became of each column of the files.
    pub columns: Vec<(String, String)>,
    /// Every client.
    pub clients: Vec<Share>,
    /// Public rows, and whether their labels are public too.
    pub public: Option<(usize, bool)>,
    /// Test rows of each class.
    pub test: Vec<u32>,
    /// Test rows.
    pub tested: usize,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// What one client gets.
#[derive(Clone, Debug)]
pub struct Share {
    /// The file or user that its rows come from, if it is one.
    pub file: Option<String>,
    /// Rows to train with.
    pub rows: usize,
    /// Rows set aside for validation.
    pub validation: usize,
    /// Rows that it tests with, if it has some of its own.
    pub test: Option<usize>,
    /// Rows of each class (or with each finding).
    pub counts: Vec<u32>,
}

impl Overview {
    /// Of data that have been split.
    pub fn of(data: &Assembled) -> Self {
        let kind = match data.task.kind {
            TaskKind::Classes(n) => format!("{n} classes"),
            TaskKind::MultiLabel(n) => format!("{n} findings, of which a row can have several"),
            kind => kind.to_string(),
        };
        // images that are to be made, and numbers, are all of one kind, which has no name
        let counts = |of: &Examples| match data.task.kind {
            TaskKind::Image { .. } | TaskKind::Numbers { .. } => Vec::new(),
            _ => of.class_counts(),
        };
        let aside = |k: usize| data.client_validation.get(k).map_or(0, Examples::len);
        let tests = data.own_tests.then_some(&data.client_tests[..]);
        let tests = tests.unwrap_or_default();
        let share = |(k, own): (usize, &Examples)| Share {
            file: data.owners.get(k).cloned(),
            rows: own.len(),
            validation: aside(k),
            test: tests.get(k).map(Examples::len),
            counts: counts(own),
        };
        let named = counts(&data.test).len();
        let numbers = (0..named).map(|class| class.to_string());
        Self {
            task: format!("{:?} -> {kind}", data.task.input),
            classes: if data.classes.is_empty() {
                numbers.collect()
            } else {
                data.classes.clone()
            },
            columns: data.columns.clone(),
            clients: data.clients.iter().enumerate().map(share).collect(),
            public: data
                .public
                .as_ref()
                .map(|public| (public.samples.len(), public.labelled.is_some())),
            test: counts(&data.test),
            tested: data.test.len(),
            notes: [&data.notes[..], &data.hidden_notes, &data.uneven].concat(),
        }
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let client = |(k, share): (usize, &Share)| {
            let mut client = json!({
                "client": k, "file": share.file, "rows": share.rows, "validation": share.validation, "classes": share.counts,
            });
            if let Some(rows) = share.test {
                client["test"] = rows.into();
            }
            client
        };
        let columns = self.columns.iter();
        json!({
            "task": self.task, "classes": self.classes,
            "columns": columns.map(|(name, read)| json!({ "name": name, "read": read })).collect::<Vec<_>>(),
            "clients": self.clients.iter().enumerate().map(client).collect::<Vec<_>>(),
            "public": self.public.map(|(rows, labelled)| json!({ "rows": rows, "labelled": labelled })),
            "test": { "rows": self.tested, "classes": self.test }, "notes": self.notes,
        })
    }

    fn rows(&self) -> usize {
        self.clients.iter().map(|share| share.rows).sum()
    }

    fn summary(&self, out: &mut String) -> std::fmt::Result {
        let (clients, rows) = (self.clients.len(), self.rows());
        writeln!(out, "{}; {rows} rows over {clients} clients", self.task)?;
        if let Some((rows, labelled)) = self.public {
            let labels = if labelled { "with" } else { "without" };
            writeln!(out, "{rows} public rows, {labels} labels")?;
        }
        writeln!(out, "{} rows to test with", self.tested)?;
        let own = self.clients.iter().filter_map(|share| share.test);
        if let (Some(least), Some(most)) = (own.clone().min(), own.max()) {
            writeln!(
                out,
                "each client tests with {least} to {most} rows of its own"
            )?;
        }
        if !self.columns.is_empty() {
            let width = self.columns.iter().map(|(name, _)| name.chars().count());
            let width = width.max().unwrap_or(0).min(40);
            writeln!(out, "\ncolumns")?;
            for (name, read) in self.columns.iter().take(NUMBERED * 10) {
                writeln!(out, "  {name:width$}  {}", shortened(read))?;
            }
        }
        let names = self.classes.iter().enumerate();
        let named = names.clone().any(|(at, name)| *name != at.to_string());
        if named {
            let all: Vec<String> = names
                .take(50)
                .map(|(at, name)| format!("{at} {name}"))
                .collect();
            writeln!(out, "\nclasses: {}", all.join(", "))?;
        }
        Ok(())
    }

    /// A line per client: its rows, a bar of them, and how dark each class is in its row of the
    /// picture.
    fn picture(&self, out: &mut String) -> std::fmt::Result {
        let classes = self.classes.len();
        let darkest = self.clients.iter().flat_map(|share| &share.counts);
        let darkest = darkest.copied().max().unwrap_or(0).max(1);
        let largest = self.clients.iter().map(|share| share.rows).max();
        let largest = largest.unwrap_or(0).max(1);
        let pictured = classes.min(PICTURED);
        let mut heads = String::new();
        for class in 0..pictured {
            heads += &(class % 10).to_string();
        }
        write!(out, "\n{:>6} {:>8}  {:BAR$}  {heads}", "client", "rows", "")?;
        if classes <= NUMBERED {
            for class in 0..classes {
                write!(out, " {class:>7}")?;
            }
        }
        out.push('\n');
        for (k, share) in self.clients.iter().enumerate().take(SHOWN) {
            let bar = "█".repeat((share.rows * BAR).div_ceil(largest));
            let shades = share.counts.iter().take(pictured);
            let shades: String = shades.map(|count| shade(*count, darkest)).collect();
            write!(out, "{k:>6} {:>8}  {bar:BAR$}  {shades}", share.rows)?;
            if classes <= NUMBERED {
                for count in &share.counts {
                    write!(out, " {count:>7}")?;
                }
            }
            if let Some(file) = &share.file {
                write!(out, "  {file}")?;
            }
            out.push('\n');
        }
        if self.clients.len() > SHOWN {
            writeln!(out, "  .. and {} more", self.clients.len() - SHOWN)?;
        }
        let mut sizes: Vec<usize> = self.clients.iter().map(|share| share.rows).collect();
        sizes.sort_unstable();
        if let (Some(least), Some(most)) = (sizes.first(), sizes.last()) {
            let median = sizes[sizes.len() / 2];
            write!(out, "rows of a client: {least} to {most}, median {median}")?;
            if classes > 0 {
                let dark = u64::from(darkest) * 3 / 4;
                write!(
                    out,
                    "; in the picture a blank is 0 and █ more than {dark} rows"
                )?;
            }
            out.push('\n');
        }
        Ok(())
    }
}

/// Darker for more; blank only for none.
fn shade(count: u32, most: u32) -> char {
    match (u64::from(count) * 4).div_ceil(u64::from(most)) {
        0 => ' ',
        1 => '░',
        2 => '▒',
        3 => '▓',
        _ => '█',
    }
}

impl Display for Overview {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        self.summary(&mut out)?;
        self.picture(&mut out)?;
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        f.write_str(out.trim_end())
    }
}
