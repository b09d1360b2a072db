//! The text format of a study.

use crate::seeds::seeds_of;
use fl_core::settings::{Range, Reader, Setting, Value, ValueType};
use serde_yaml::Mapping;

fl_core::settings! {
    /// Runs of specs with changed values, and the tables that are made of them.
    pub struct File {
        /// Names the files that are written: letters, digits, `-`, `_` and `.`.
        name: String;
        /// The file of results that last, relative to the study's file: `NAME.results.jsonl`. Each
        /// finished run adds a line. Commit it; several studies may share it.
        results: Option<String> = None;
        /// Settings of every table that does not have its own.
        defaults: RawTable = fl_core::settings::defaults();
        /// The tables.
        tables: Vec<RawTable>;
    }
}

fl_core::settings! {
    /// A table: its rows or grid, what is measured, and its columns.
    pub struct RawTable {
        /// Names the table: for `--only`, and between the marks in a README.
        name: Option<String> = None;
        /// Its heading. Default: its name.
        title: Option<String> = None;
        /// The spec, relative to the study's file.
        base: Option<String> = None;
        /// The seeds: `3`, `1-10`, or a list of numbers. Default: 1.
        seeds: Option<Seeds> = None;
        /// Values by path, set in every row: `{ protocol.rounds: 5 }`.
        set: Mapping = Mapping::new();
        /// The rows.
        rows: Vec<RawItem> = Vec::new();
        /// Instead of rows, values by path: every combination is a row. `base` stands for the spec.
        grid: Mapping = Mapping::new();
        /// The name of a grid's row: `t = {protocol.subsets}`.
        label: Option<String> = None;
        /// The second direction: each row is run with each of these.
        across: Vec<RawItem> = Vec::new();
        /// What is measured; of several, the first that a run has. Default: `accuracy`, or
        /// `clients.accuracy`.
        measure: Option<Names> = None;
        /// Numbers are multiplied by this. Default: 1.
        scale: Option<f64> = None;
        /// Digits after the point. Default: two significant digits of the spread over seeds.
        digits: Option<usize> = None, in 0..=12;
        /// Columns with the same values for all of `across`.
        lead: Vec<RawColumn> = Vec::new();
        /// The columns. Default: `mean`.
        columns: Vec<RawColumn> = Vec::new();
        /// The pictures.
        plots: Vec<RawPlot> = Vec::new();
        /// The row of comparison, seed by seed.
        against: Option<String> = None;
        /// Published results, by row.
        published: Mapping = Mapping::new();
        /// Published numbers without a deviation that differ by no more count as equal. Default: 0.
        published_spread: Option<f64> = None, in 0.0..;
        /// The expected hours of a run on an idle core. The table may then stand in its README
        /// while runs are missing: their cells say `open`.
        hours: Option<f64> = None, in 0.0..;
        /// Run these large runs one after the other, each with all threads.
        alone: Option<bool> = None;
        /// The README that contains the table between marks, relative to the study's file.
        into: Option<String> = None;
    }
}

fl_core::settings! {
    /// A picture.
    pub struct RawPlot {
        /// From left to right: `round`, or a path of the grid.
        by: String;
        /// The measure, if not the table's.
        measure: Option<Names> = None;
        /// Numbers are multiplied by this.
        scale: Option<f64> = None;
    }
}

fl_core::settings! {
    /// A row, or an item of `across`.
    pub struct RawItem {
        /// Its name in the table.
        name: String;
        /// Its spec, relative to the study's file.
        base: Option<String> = None;
        /// Its seeds.
        seeds: Option<Seeds> = None;
        /// Values by path.
        set: Mapping = Mapping::new();
        /// The expected hours of a run.
        hours: Option<f64> = None, in 0.0..;
        /// Its published result.
        published: Option<Scalar> = None;
        /// Texts for columns of text, by name.
        text: Mapping = Mapping::new();
    }
}

impl RawItem {
    /// A row of this name that changes nothing.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            base: None,
            seeds: None,
            set: Mapping::new(),
            hours: None,
            published: None,
            text: Mapping::new(),
        }
    }
}

fl_core::settings! {
    /// A column that says what is in it.
    pub struct OwnColumn {
        /// Its head.
        title: Option<String> = None;
        /// The measure, if not the table's.
        measure: Option<Names> = None;
        /// The measurement of this round instead of the last.
        round: Option<u64> = None;
        /// The best of all rounds instead of the last. The best is chosen on the rows that it is
        /// measured on, so it is a little too good; many published numbers are.
        best: bool = false;
        /// How several seeds are shown: the name of a known column.
        show: Option<String> = None;
        /// Numbers are multiplied by this.
        scale: Option<f64> = None;
        /// Digits after the point.
        digits: Option<usize> = None, in 0..=12;
        /// The name of the row's text.
        text: Option<String> = None;
    }
}

/// A column: the name of a known one, or what is in it.
#[derive(Clone, Debug, PartialEq)]
pub enum RawColumn {
    /// By its name.
    Known(String),
    /// By what is in it.
    Own(Box<OwnColumn>),
}

impl Setting for RawColumn {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(name) => Some(Self::Known(name.clone())),
            Value::Mapping(_) => OwnColumn::read(value, reader).map(|own| Self::Own(Box::new(own))),
            other => reader.unlike(&Self::kind(), other),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Known(name) => name.as_str().into(),
            Self::Own(own) => own.write(),
        }
    }
    fn value_type() -> ValueType {
        ValueType::one_of([String::value_type(), OwnColumn::value_type()])
            .described("the name of a column, or a mapping with `measure` or `text`")
    }
}

/// Seeds: `3`, `1-10`, `[1, 5, 7]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Seeds(pub Vec<u64>);

impl Setting for Seeds {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match seeds_of(value) {
            Ok(seeds) => Some(Self(seeds)),
            Err(text) => reader.wrong(text),
        }
    }
    fn write(&self) -> Value {
        self.0
            .iter()
            .map(|seed| Value::from(*seed))
            .collect::<Vec<_>>()
            .into()
    }
    fn value_type() -> ValueType {
        let number = ValueType::Whole(Range::of(&(0..)));
        let range = ValueType::Text(Some("^ *[0-9]+ *- *[0-9]+ *$".into()));
        let list = ValueType::List {
            items: number.clone().into(),
            length: (1, None),
            distinct: true,
        };
        ValueType::one_of([number, range, list])
            .described("a number, a range such as 1-10, or a list of numbers")
    }
}

/// One name or several.
#[derive(Clone, Debug, PartialEq)]
pub struct Names(pub Vec<String>);

impl Setting for Names {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(one) => Some(Self(vec![one.clone()])),
            Value::Sequence(all) if !all.is_empty() => Vec::read(value, reader).map(Self),
            other => reader.unlike(&Self::kind(), other),
        }
    }
    fn write(&self) -> Value {
        self.0.write()
    }
    fn value_type() -> ValueType {
        let name = String::value_type();
        ValueType::one_of([name.clone(), ValueType::list_of_some(name)])
            .described("a name, or a list of names")
    }
}

/// A number or a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar(pub Value);

impl Setting for Scalar {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(_) | Value::Number(_) => Some(Self(value.clone())),
            other => reader.unlike(&Self::kind(), other),
        }
    }
    fn write(&self) -> Value {
        self.0.clone()
    }
    fn value_type() -> ValueType {
        ValueType::one_of([f64::value_type(), String::value_type()]).described("a number or a text")
    }
}
