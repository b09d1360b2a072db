//! From a table of text to rows of numbers.

use crate::class_key::{category_key, key};
use crate::classes::{Classes, plainness, short};
use crate::column_kinds::{Column, Number, Text};
use crate::content::Budget;
use crate::literal::Literal;
use crate::rows::{Part, loses_digits, rounded};
use crate::seen_column::{MAX_CATEGORIES, SeenColumn, number};
use crate::settings::Files;
use crate::table::{Table, WrongRows};
use anyhow::{Result, bail, ensure};
use fl_core::{Inputs, first_names};
use fl_data_kit::column_match::{CLASS, LABEL, NUMBER, SKIPPED, TEXT};
use std::collections::{BTreeMap, BTreeSet};

/// How every column of the tables becomes numbers.
pub(crate) struct Plan<'a> {
    files: &'a Files,
    first: &'a Table,
    /// The column with the classes, or those with the labels of which a row can have several.
    labels: Vec<usize>,
    /// In the order of the first table.
    columns: Vec<(usize, Encoding)>,
    width: usize,
    sparse: bool,
    /// For each column: its name, and how it is read.
    pub described: Vec<(String, String)>,
    /// Columns whose categories the spec does not say.
    found: Vec<String>,
    /// For each column, test rows with a category that no training row has, and such categories.
    unseen: BTreeMap<usize, (usize, BTreeSet<String>)>,
    /// For each column, whole numbers that lose digits, and the first.
    lossy: BTreeMap<usize, (usize, f64)>,
    /// For each column, texts of which only the first words are read, and their largest number of
    /// words.
    cut: BTreeMap<usize, (usize, usize)>,
    pub notes: Vec<String>,
    /// Why columns of numbers may be something else.
    pub doubts: Vec<String>,
}

enum Encoding {
    Number(Number),
    Category {
        /// The place of each key.
        index: BTreeMap<String, usize>,
        /// Their names in the order of the spec, if it lists them.
        given: Option<Vec<String>>,
    },
    Text(Text),
}

impl Encoding {
    fn width(&self) -> usize {
        match self {
            Self::Number(_) => 1,
            Self::Category { index, .. } => index.len(),
            Self::Text(text) => text.words.unwrap_or(text.width),
        }
    }
}

impl<'a> Plan<'a> {
    /// From the spec, and from the training rows where it does not say.
    pub fn new(files: &'a Files, tables: &'a [Table]) -> Result<Self> {
        let first = &tables[0];
        let orders = tables
            .iter()
            .map(|table| table.order(first))
            .collect::<Result<Vec<_>>>()?;
        for (name, _) in &files.columns.0 {
            first.find(name)?;
        }
        let labels = files.label_column().into_iter();
        let labels = labels.chain(files.findings.iter().flatten());
        let labels = labels
            .map(|label| first.find(&label.0))
            .collect::<Result<Vec<_>>>()?;
        let label = match files.number() {
            Some(_) => NUMBER,
            None => [CLASS, LABEL][usize::from(files.findings.is_some())],
        };
        let mut plan = Self {
            files,
            first,
            labels,
            columns: Vec::new(),
            width: 0,
            sparse: false,
            described: Vec::new(),
            found: Vec::new(),
            unseen: BTreeMap::new(),
            lossy: BTreeMap::new(),
            cut: BTreeMap::new(),
            notes: Vec::new(),
            doubts: Vec::new(),
        };
        // columns of numbers and of categories
        let (mut inferred, mut doubts) = ([Vec::new(), Vec::new()], Vec::new());
        for (column, name) in first.names.iter().enumerate() {
            if plan.labels.contains(&column) {
                plan.described.push((name.clone(), label.into()));
                continue;
            }
            let given = files.columns.0.iter().find(|(known, _)| known == name);
            let cells = || {
                let of = tables.iter().zip(&orders);
                of.flat_map(move |(t, order)| (0..t.len()).map(move |r| t.cell(r, order[column])))
            };
            let how = match given {
                Some((_, how)) => how.clone(),
                None => {
                    let seen =
                        SeenColumn::of(tables, &orders, column, |cell| plan.is_missing(cell));
                    doubts.extend(seen.doubt());
                    plan.doubts.extend(seen.doubts_of_numbers());
                    let kind = seen.kind()?;
                    let categories = matches!(kind, Column::Category(_));
                    inferred[usize::from(categories)].push(name.clone());
                    kind
                }
            };
            let (encoding, text) = match how {
                Column::Skip => {
                    plan.described.push((name.clone(), SKIPPED.into()));
                    continue;
                }
                Column::Number(number) => {
                    let text = match number.ends() {
                        Some((low, high)) => {
                            format!("a number from {low} to {high}, scaled to 0..1")
                        }
                        None => "a number, not scaled".into(),
                    };
                    (Encoding::Number(number), text)
                }
                Column::Text(text) => {
                    let about = match text.words {
                        None => format!("{TEXT}{} hashed words", text.width),
                        Some(n) => {
                            format!(
                                "{TEXT}its first {n} words, numbers of {} hashed",
                                text.width
                            )
                        }
                    };
                    (Encoding::Text(text), about)
                }
                Column::Category(category) => plan.category(name, category.of, cells())?,
            };
            plan.width += encoding.width();
            plan.sparse |= matches!(&encoding, Encoding::Text(text) if text.words.is_none());
            let text = match given {
                Some(_) => text,
                None => format!("{text} (inferred)"),
            };
            plan.described.push((name.clone(), text));
            plan.columns.push((column, encoding));
        }
        ensure!(
            plan.width > 0,
            "{}: no column is left to learn from",
            first.path.display()
        );
        if !plan.found.is_empty() {
            plan.notes.push(format!(
                "categories were found in the clients' rows: {}; if the rows are private, list them in the spec: \
                 `{{category: {{of: [..]}}}}`",
                plan.found.join(", ")
            ));
        }
        let kinds = inferred.iter().zip(["numbers", "categories"]);
        let kinds = kinds.filter(|(names, _)| !names.is_empty());
        let kinds: Vec<String> = kinds
            .map(|(names, kind)| format!("{} ({kind})", first_names(names, 50)))
            .collect();
        if !kinds.is_empty() {
            let doubts: String = doubts.iter().map(|doubt| format!("; {doubt}")).collect();
            plan.notes.push(format!(
                "kinds of columns were inferred from the clients' rows: {}{doubts}; if the rows are private, list them in `columns`; \
                 for a network or a linear model, `{{number: {{range: [..]}}}}` scales numbers to 0 to 1",
                kinds.join(", ")
            ));
        }
        Ok(plan)
    }

    fn is_missing(&self, field: &str) -> bool {
        self.files.is_missing(field)
    }

    fn category<'c>(
        &mut self,
        name: &str,
        of: Option<Vec<Literal>>,
        cells: impl Iterator<Item = &'c str>,
    ) -> Result<(Encoding, String)> {
        let given = of.is_some();
        let names: Vec<String> = match of {
            Some(of) => of.into_iter().map(|word| word.0).collect(),
            None => {
                // the plainest spelling of each
                let mut found: BTreeMap<_, &str> = BTreeMap::new();
                let mut others = BTreeSet::new();
                for cell in cells.filter(|cell| !self.is_missing(cell)) {
                    let known = found.entry(category_key(cell)).or_insert(cell);
                    if *known != cell {
                        let plainer = plainness(cell) < plainness(known);
                        let other = if plainer {
                            std::mem::replace(known, cell)
                        } else {
                            cell
                        };
                        others.insert(other);
                    }
                    ensure!(
                        found.len() <= MAX_CATEGORIES,
                        "{}: column `{name}` has more than {MAX_CATEGORIES} different texts; say in `columns` that it is \
                         `text` or `skip`, or list its categories: `{{category: {{of: [..]}}}}`",
                        self.first.path.display()
                    );
                }
                self.found.push(name.into());
                if !others.is_empty() {
                    let read = |other: &&str| {
                        let name = found[&category_key(other)];
                        (*other != name).then(|| format!("`{}` as `{}`", short(other), short(name)))
                    };
                    let all: Vec<String> = others.iter().filter_map(read).collect();
                    self.doubts.push(format!(
                        "column `{name}`: fl reads {}",
                        first_names(&all, 3)
                    ));
                }
                let mut found: Vec<String> = found.into_values().map(str::to_string).collect();
                found.sort();
                found
            }
        };
        let text = format!("one of {} categories: {}", names.len(), names.join(", "));
        let index = names.iter().enumerate();
        let index = index.map(|(at, name)| (category_key(name).into_owned(), at));
        let index = index.collect();
        let given = given.then_some(names);
        Ok((Encoding::Category { index, given }, text))
    }

    /// The class, or the combination of labels, of a row.
    fn class(
        &self,
        table: &Table,
        row: usize,
        labels: &[usize],
        classes: &mut Classes,
    ) -> Result<u32> {
        if self.files.findings.is_some() {
            return classes.combination(labels.iter().map(|at| {
                let cell = table.cell(row, *at);
                match &*key(cell) {
                    "1" => Ok(Some(true)),
                    "0" => Ok(Some(false)),
                    "-1" => Ok(None),
                    _ if self.is_missing(cell) => Ok(None),
                    _ => {
                        let text = format!(
                            "`{}` is no label; it must be 1, 0, or -1 or missing where it is unknown",
                            short(cell)
                        );
                        Err(table.wrong(row, *at, text))
                    }
                }
            }));
        }
        let Some(label) = labels.first().copied() else {
            return Ok(0);
        };
        let class = table.cell(row, label);
        if self.is_missing(class) {
            let what = match self.files.number() {
                Some(_) => "the number to predict is missing",
                None => "the class is missing",
            };
            return Err(table.wrong(row, label, what));
        }
        let class = classes.of(class);
        class.map_err(|text| table.wrong(row, label, text))
    }

    /// The rows of a table as numbers, and their classes.
    pub fn encode(
        &mut self,
        table: &Table,
        classes: &mut Classes,
        budget: &Budget,
    ) -> Result<Part> {
        let order = table.order(self.first)?;
        let labels: Vec<usize> = self.labels.iter().map(|label| order[*label]).collect();
        let rows = table.len();
        let bytes = (rows as u64)
            .saturating_mul(self.width as u64)
            .saturating_mul(4);
        if !self.sparse && bytes > budget.left() {
            let width = self.width;
            let exceeded = budget.exceeded(&table.path);
            bail!("{exceeded}; {rows} rows of {width} values need {bytes} bytes");
        }
        let mut of = Vec::with_capacity(rows);
        let mut dense = Vec::with_capacity(if self.sparse { 0 } else { rows * self.width });
        let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        let mut row_values: Vec<(u32, f32)> = Vec::new();
        let mut wrong = WrongRows::default();
        let mut unseen = Vec::new();
        for row in 0..rows {
            let class = self.class(table, row, &labels, classes);
            of.push(wrong.take(class).unwrap_or_default());
            row_values.clear();
            let mut from = 0u32;
            for (column, encoding) in &self.columns {
                let at = order[*column];
                let cell = table.cell(row, at);
                let field = self.field(encoding, cell, from, &mut row_values);
                match wrong.take(field.map_err(|text| table.wrong(row, at, text))) {
                    Some(Read::Unseen) => unseen.push((*column, cell)),
                    Some(Read::Rounded(value)) => {
                        self.lossy.entry(*column).or_insert((0, value)).0 += 1;
                    }
                    Some(Read::Cut(words)) => {
                        let (texts, most) = self.cut.entry(*column).or_default();
                        (*texts, *most) = (*texts + 1, words.max(*most));
                    }
                    Some(Read::Known) | None => {}
                }
                from += encoding.width() as u32;
            }
            if self.sparse {
                let present = row_values.iter().filter(|(_, value)| *value != 0.0);
                for (column, value) in present {
                    columns.push(*column);
                    values.push(*value);
                }
                starts.push(columns.len());
                if (columns.len() + starts.len()) as u64 * 8 > budget.left() {
                    return Err(budget.exceeded(&table.path));
                }
            } else {
                let start = dense.len();
                dense.resize(start + self.width, 0.0);
                for (column, value) in &row_values {
                    dense[start + *column as usize] = *value;
                }
            }
        }
        wrong.none()?;
        for (column, cell) in unseen {
            let (rows, cells) = self.unseen.entry(column).or_default();
            *rows += 1;
            if cells.len() < MAX_CATEGORIES {
                cells.insert(short(cell));
            }
        }
        let inputs = if self.sparse {
            Inputs::Sparse {
                width: self.width,
                starts,
                columns,
                values,
            }
        } else {
            Inputs::Dense {
                shape: vec![self.width],
                data: dense,
            }
        };
        Ok(Part { inputs, of })
    }

    /// Appends the values of one field that are not 0, from column `from`.
    fn field(
        &self,
        encoding: &Encoding,
        cell: &str,
        from: u32,
        out: &mut Vec<(u32, f32)>,
    ) -> Result<Read> {
        let missing = self.is_missing(cell);
        match encoding {
            Encoding::Number(how) => {
                let found = match (missing, how.missing) {
                    (true, Some(instead)) => instead,
                    (true, None) => bail!(
                        "is missing; set the number in its place in `columns`: {{number: {{missing: 0}}}}"
                    ),
                    (false, _) => match number(cell) {
                        Some(number) => number,
                        None if cell.parse::<f32>().is_ok_and(f32::is_infinite) => {
                            bail!("`{}` is larger than a 32-bit number can be", short(cell))
                        }
                        None => bail!("`{}` is not a number", short(cell)),
                    },
                };
                let value = match how.ends() {
                    Some((low, high)) if !(low..=high).contains(&found) => {
                        bail!("{found} is not in the range {low} to {high} of the spec")
                    }
                    Some((low, high)) => (found - low) / (high - low),
                    None => found,
                };
                out.push((from, value));
                let exact = cell.parse().ok().filter(|_| !missing);
                if let Some(exact) = exact.filter(|exact| loses_digits(*exact)) {
                    return Ok(Read::Rounded(exact));
                }
            }
            Encoding::Category { index, given } => match index.get(&*category_key(cell)) {
                Some(at) => out.push((from + *at as u32, 1.0)),
                None if missing => {}
                None => match given {
                    Some(names) => bail!(
                        "`{}` is none of its categories: {}",
                        short(cell),
                        names[..names.len().min(20)].join(", ")
                    ),
                    None => return Ok(Read::Unseen),
                },
            },
            Encoding::Text(text) => {
                let cell = if missing { "" } else { cell };
                match text.words {
                    None => {
                        let words = fl_data_kit::text::bag(cell, text.width);
                        out.extend(words.map(|(column, value)| (from + column, value)));
                    }
                    Some(n) => {
                        let words = || fl_data_kit::text::sequence(cell, text.width);
                        out.extend((from..).zip(words()).take(n));
                        let all = words().count();
                        if all > n {
                            return Ok(Read::Cut(all));
                        }
                    }
                }
            }
        }
        Ok(Read::Known)
    }

    /// What numbers do not hold of the fields.
    pub fn lost(&self) -> Vec<String> {
        let name = |column: &usize| &self.first.names[*column];
        let lossy = self.lossy.iter();
        let lossy = lossy.map(|(column, (count, first))| {
            format!("column `{}`: {}", name(column), rounded(*count, *first))
        });
        let cut = self.cut.iter().map(|(column, (texts, most))| {
            format!(
                "column `{}`: {texts} texts have more words than `words`, up to {most}; fl reads their first ones",
                name(column)
            )
        });
        lossy.chain(cut).collect()
    }

    /// Says how columns of JSON stand, if a file has them in another order: a list with a number for
    /// each column follows this one.
    pub fn reordered(&self, tables: &[Table]) -> Option<String> {
        let names = self.columns.iter();
        let names: Vec<String> = names.map(|(at, _)| self.first.names[*at].clone()).collect();
        let sorted = |table: &Table| {
            let inputs = table.written.iter().filter(|name| names.contains(name));
            inputs.is_sorted()
        };
        (!tables.iter().all(sorted)).then(|| {
            format!(
                "columns of `jsonl` stand in alphabetical order, whatever that of the file: {}; so do the numbers of a list \
                 with one for each column, as in `normalise`",
                first_names(&names, 50)
            )
        })
    }

    /// What a user should know of `rows` test rows, once they are encoded.
    pub fn unseen(&self, rows: usize) -> Option<String> {
        let of = |(column, (count, cells)): (&usize, &(usize, BTreeSet<String>))| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("`{cell}`")).collect();
            let name = &self.first.names[*column];
            format!("`{name}` in {count} of {rows} ({})", first_names(&cells, 3))
        };
        let all: Vec<String> = self.unseen.iter().map(of).collect();
        (!all.is_empty()).then(|| {
            let all = first_names(&all, 10);
            format!(
                "test rows have categories that no row of a client has, and no value stands for them: {all}"
            )
        })
    }
}

/// What became of a field.
enum Read {
    Known,
    /// A category that no training row has.
    Unseen,
    /// A whole number that loses digits.
    Rounded(f64),
    /// The first words of a text of this many.
    Cut(usize),
}
