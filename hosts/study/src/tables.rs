//! Tables of run results: Markdown for people, CSV for programs.

use crate::cells::{Rounding, line, minus, number, shown, signed, unmarked};
use crate::columns::{Column, ColumnKind, Measured, Rounds, Show};
use crate::model::{RunSpec, Table};
use crate::plots::pictures;
use crate::results::{RunResult, RunResults};
use crate::stats::{Paired, Sample, paired};
use fl_report::{
    NEGATIVE_TRANSFER, Run, Section, WorseThanAlone, digits_of, is_alone, worse_than_alone,
};
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

/// A measured column of a row, as [`crate::tables_csv`] names its cells.
pub(crate) type CsvLine = [String; 14];

/// A finished table.
#[derive(Clone, Debug)]
pub struct BuiltTable {
    /// Markdown with its heading, and with failed or missing runs.
    pub markdown: String,
    /// Whether every run is done.
    pub whole: bool,
    /// The same table for a page.
    pub section: Section,
    /// One row for each measured column of each row, for programs.
    pub(crate) csv: Vec<CsvLine>,
}

/// Why two runs cannot be compared client by client.
const NO_SCORES: &str = "it and the run of `solo` have no scores of the same clients; \
    a file of results has such scores only of published data sets without an accountant";

/// The most notes of one kind on runs below a table.
const MOST_NOTES: usize = 5;

/// Makes a table from the results of its runs.
pub fn made(table: &Table, answers: &RunResults) -> BuiltTable {
    let maker = TableBuilder { table, answers };
    let columns = maker.columns();
    let mut markdown = format!("### {}\n\n", unmarked(&maker.heading()));
    let mut head = vec![table.against.map_or("", |_| "setting").to_string()];
    let heads = columns.iter();
    head.extend(heads.map(|(across, column)| maker.head(*across, column)));
    markdown += &line(&head);
    markdown += &format!("|{}\n", "---|".repeat(columns.len() + 1));
    let (mut csv, mut rows) = (Vec::new(), Vec::new());
    for row in 0..table.rows.len() {
        let mut cells = vec![table.rows[row].name.clone()];
        for (across, column) in &columns {
            cells.push(maker.cell(row, *across, column));
            // columns of one measure combine its seeds differently
            let of_csv = maker.csv(row, *across, column);
            csv.extend(of_csv.filter(|line| !csv.contains(line)));
        }
        markdown += &line(&cells);
        rows.push(cells);
    }
    let Lacking {
        failed,
        missing,
        open,
    } = maker.lacking();
    let mut notes: Vec<String> = failed
        .iter()
        .map(|text| format!("Failed: {}", text.replace('\n', " ")))
        .collect();
    if missing > 0 {
        let runs = if missing == 1 { "run has" } else { "runs have" };
        notes.push(format!("{missing} {runs} not been run."));
    }
    if !open.is_empty() {
        let n = open.len();
        let runs = if n == 1 { "run is" } else { "runs are" };
        let hours = hours(open.iter().sum());
        notes.push(format!("{n} {runs} open: about {hours}."));
    }
    let wrong = maker.wrong();
    let wholly = failed.is_empty() && missing == 0 && wrong.is_empty();
    if wrong.is_empty() {
        notes.extend(maker.blank_rows());
    }
    notes.extend(wrong);
    notes.extend(maker.caveats());
    notes.extend(maker.attack_notes());
    notes.extend(maker.partial_notes());
    notes.extend(maker.data_notes());
    notes.extend(maker.older());
    for note in &notes {
        markdown += &format!("\n* {}", unmarked(note));
    }
    // a README says in its own words what it shows
    let notes = maker.measured().into_iter().chain(notes).collect();
    BuiltTable {
        whole: wholly,
        markdown: format!("{}\n", markdown.trim_end()),
        section: Section {
            title: maker.heading(),
            head,
            rows,
            notes,
            pictures: pictures(table, answers),
        },
        csv,
    }
}

/// The runs of a table that have no result.
struct Lacking {
    /// Those that failed, each with the reason.
    failed: Vec<String>,
    /// The number of the others that must be run before the table stands in a README.
    missing: usize,
    /// The expected hours of those that may be open.
    open: Vec<f64>,
}

/// Formats `0.5 h`.
fn hours(hours: f64) -> String {
    let digits = usize::from(hours < 9.95);
    let unit = if digits == 1 { 10.0 } else { 1.0 };
    let text = format!("{:.digits$}", (hours.max(0.1) * unit).round() / unit);
    format!("{} h", text.strip_suffix(".0").unwrap_or(&text))
}

struct TableBuilder<'a> {
    table: &'a Table,
    answers: &'a RunResults,
}

impl TableBuilder<'_> {
    /// Returns the title, with the seeds if they are the same everywhere.
    fn heading(&self) -> String {
        let all = self.table.runs.iter().flatten();
        let mut all = all.map(|runs| runs.iter().map(|(seed, _)| *seed).collect::<Vec<_>>());
        let first = all.next().unwrap_or_default();
        if all.any(|seeds| seeds != first) {
            return self.table.title.clone();
        }
        let seeds = match &first[..] {
            [one] => format!("seed {one}"),
            [from, .., to] if first.windows(2).all(|p| p[0] + 1 == p[1]) => {
                format!("seeds {from} to {to}")
            }
            seeds => {
                let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
                format!("seeds {}", seeds.join(", "))
            }
        };
        format!("{}, {seeds}", self.table.title)
    }

    /// Returns the index in the second direction and the column, from left to right.
    fn columns(&self) -> Vec<(usize, &Column)> {
        let lead = self.table.lead.iter().map(|c| (0, c));
        let each = (0..self.table.across.len())
            .flat_map(|at| self.table.columns.iter().map(move |c| (at, c)));
        lead.chain(each).collect()
    }

    fn head(&self, across: usize, column: &Column) -> String {
        let name = &self.table.across[across].name;
        let lead = self.table.lead.iter().any(|c| std::ptr::eq(c, column));
        match (name.is_empty() || lead, self.table.columns.len()) {
            (true, _) => column.title.clone(),
            (false, 1) => name.clone(),
            (false, _) => format!("{name}: {}", column.title),
        }
    }

    fn runs(&self, row: usize, across: usize) -> &[(u64, RunSpec)] {
        &self.table.runs[row][across]
    }

    /// Returns those of these runs that are done.
    fn done<'r>(
        &'r self,
        runs: impl Iterator<Item = &'r (u64, RunSpec)>,
    ) -> impl Iterator<Item = &'r RunResult> {
        runs.filter_map(|(_, run)| self.answers.get(run)?.as_ref().ok())
    }

    fn values(&self, row: usize, across: usize, names: &[String], of: Rounds) -> Vec<(u64, f64)> {
        let runs = self.runs(row, across).iter();
        let value = |(seed, run): &(u64, RunSpec)| {
            let result = self.answers.get(run)?.as_ref().ok()?;
            let (_, value) = self.first_of(across, *seed, result, names, of)?;
            value.is_finite().then_some((*seed, value))
        };
        runs.filter_map(value).collect()
    }

    /// Returns the first of these numbers that a run has, with the place of its name.
    fn first_of(
        &self,
        across: usize,
        seed: u64,
        run: &RunResult,
        names: &[String],
        of: Rounds,
    ) -> Option<(usize, f64)> {
        let value = |name: &String| match NEGATIVE_TRANSFER.iter().position(|of| of == name) {
            Some(number) => Some(self.negative_transfer(across, seed, run.run()).ok()?[number]),
            None => run.get(name, of),
        };
        let mut named = names.iter().enumerate();
        named.find_map(|(at, name)| Some((at, value(name)?)))
    }

    /// Returns the numbers of a run beside that of `solo` with the same data and seed, or why there
    /// are none.
    fn negative_transfer(&self, across: usize, seed: u64, run: &Run) -> Result<[f64; 3], String> {
        if is_alone(run) {
            return Err("a run of `solo` is compared with no other".into());
        }
        let rows = (0..self.table.rows.len()).flat_map(|row| self.runs(row, across));
        let of_seed = self.done(rows.filter(|(other, _)| *other == seed));
        let alone: Vec<&Run> = of_seed
            .map(RunResult::run)
            .filter(|run| is_alone(run))
            .collect();
        // rows of `solo` on other data do not fit
        let mut beside = alone.iter().map(|alone| worse_than_alone(alone, run));
        let found = beside.clone().find_map(Result::ok);
        let why = || match beside.next() {
            Some(Err(why)) => why,
            _ => format!(
                "no row here has a finished run of `solo` with seed {seed} that begins without \
                 `initial`"
            ),
        };
        let found = found.ok_or_else(why)?;
        let first = found.first().map(WorseThanAlone::numbers);
        first.ok_or_else(|| NO_SCORES.into())
    }

    /// Returns why no run has a number of these, which one of [`NEGATIVE_TRANSFER`] is among.
    fn without_transfer(&self) -> Option<String> {
        let rows = 0..self.table.rows.len();
        let cells = rows.flat_map(|row| (0..self.table.across.len()).map(move |at| (row, at)));
        let runs = cells.flat_map(|(row, at)| self.runs(row, at).iter().map(move |of| (at, of)));
        let mut why = runs.filter_map(|(at, (seed, run))| {
            let run = self.answers.get(run)?.as_ref().ok()?.run();
            self.negative_transfer(at, *seed, run)
                .err()
                .filter(|_| !is_alone(run))
        });
        why.next()
    }

    fn sample(&self, row: usize, across: usize, what: &Measured) -> Option<Sample> {
        let values = self.values(row, across, &what.names, what.of);
        Sample::new(values.into_iter().map(|(_, v)| v * what.scale).collect())
    }

    /// Returns the names of all measures of the table.
    fn names(&self) -> BTreeSet<&String> {
        self.table.measures().into_iter().flatten().collect()
    }

    /// Returns what readers must know of the epsilons in the table, with the rows that it concerns.
    fn caveats(&self) -> Vec<String> {
        let names = self.names();
        let said = self.by_rows(|run| {
            // a cell without an epsilon is empty
            let given = names.iter().filter(|name| run.shows_cost(name));
            given.flat_map(|name| run.caveats(name)).collect()
        });
        let said = said.into_iter().map(|(caveat, rows, all)| {
            if all {
                format!("Epsilon is {caveat}.")
            } else {
                format!("Epsilon of {rows} is {caveat}.")
            }
        });
        said.collect()
    }

    /// Returns rows that are done and have measured nothing of any column, with what they measured.
    /// A measurement without a number, as of a model that diverged, is one too.
    fn blank_rows(&self) -> Vec<String> {
        let names = self.names();
        let across = 0..self.table.across.len();
        let has = |row: usize, what: &Measured| {
            let values = |at| self.values(row, at, &what.names, what.of);
            across.clone().any(|at| !values(at).is_empty())
        };
        let blank = |row: usize| {
            let mut measured = self.table.measured().peekable();
            measured.peek()?;
            let mut done = self.done(self.table.runs[row].iter().flatten()).peekable();
            let known = done.peek()?.all();
            // notes of their own say why they have no number
            let told = |run: &RunResult| {
                let tells = |name: &&String| {
                    !run.caveats(name).is_empty() || !run.rounds(slice::from_ref(*name)).is_empty()
                };
                is_alone(run.run()) || names.iter().any(tells)
            };
            if measured.any(|what| has(row, what)) || done.any(told) {
                return None;
            }
            let known: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
            let (name, known) = (&self.table.rows[row].name, known.join(", "));
            Some(format!(
                "{name} has measured nothing of these columns; there are {known}."
            ))
        };
        (0..self.table.rows.len()).filter_map(blank).collect()
    }

    /// Returns what readers should know of the attacks, with the rows that it concerns.
    fn attack_notes(&self) -> Vec<String> {
        self.few_notes("Attack", RunResult::attack_notes)
    }

    /// Returns what readers should know of the data, with the rows that it concerns.
    fn data_notes(&self) -> Vec<String> {
        self.few_notes("Data", |run| run.data_notes().to_vec())
    }

    /// Returns which means leave out clients, with the rows that it concerns.
    fn partial_notes(&self) -> Vec<String> {
        let names = self.names();
        self.few_notes("Clients", |run| run.partial_notes(&names))
    }

    /// Returns what `texts` gives about something of runs that are done, with the rows that it
    /// concerns; not more than a reader reads.
    fn few_notes(&self, about: &str, texts: impl Fn(&RunResult) -> Vec<String>) -> Vec<String> {
        let said = self.by_rows(texts);
        let more = said.len().saturating_sub(MOST_NOTES);
        let said = said.into_iter().take(MOST_NOTES);
        let mut all: Vec<String> = said
            .map(|(note, rows, all)| {
                if all {
                    format!("{about}: {note}.")
                } else {
                    format!("{about} of {rows}: {note}.")
                }
            })
            .collect();
        if more > 0 {
            let about = about.to_lowercase();
            all.push(format!(
                "{more} further notes on {about} are in the folders of the runs."
            ));
        }
        all
    }

    /// Returns what `texts` gives of runs that are done, each with the names of its rows, and
    /// whether these are all.
    fn by_rows(&self, texts: impl Fn(&RunResult) -> Vec<String>) -> Vec<(String, String, bool)> {
        let mut rows: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (at, row) in self.table.rows.iter().enumerate() {
            let runs = self.table.runs.get(at).into_iter().flatten().flatten();
            for text in self.done(runs).flat_map(&texts) {
                rows.entry(text).or_default().insert(&row.name);
            }
        }
        let all = self.table.rows.len();
        let named = |(text, rows): (String, BTreeSet<&str>)| {
            let whole = rows.len() >= all;
            (text, Vec::from_iter(rows).join(", "), whole)
        };
        rows.into_iter().map(named).collect()
    }

    /// Returns why the present program may come to other numbers, with the rows that it concerns.
    fn older(&self) -> Vec<String> {
        let said = self.by_rows(|run| run.older.iter().cloned().collect());
        let said = said.into_iter();
        said.map(|(why, rows, _)| format!("Results of {rows} are {why}."))
            .collect()
    }

    /// Says what those columns measure whose heads do not.
    fn measured(&self) -> Option<String> {
        let lead = self.table.lead.iter().map(|column| (column, 1));
        let columns = self.table.columns.iter();
        let all = lead.chain(columns.map(|column| (column, self.table.across.len())));
        let all: BTreeSet<String> = all
            .filter_map(|(column, across)| self.measured_in(column, across))
            .collect();
        let all = Vec::from_iter(all).join("; ");
        (!all.is_empty()).then(|| format!("Measured: {all}."))
    }

    /// Says what a column measures in the first `across` items of the second direction, unless its
    /// head does. If its runs have different measures, all but the first name their rows.
    fn measured_in(&self, column: &Column, across: usize) -> Option<String> {
        let Measured {
            names, of, scale, ..
        } = column.measured()?;
        // by the place of a measure in `names`
        let mut cells: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
        let places =
            (0..self.table.rows.len()).flat_map(|row| (0..across).map(move |at| (row, at)));
        for (row, at) in places {
            for (seed, run) in self.runs(row, at) {
                let Some(Ok(run)) = self.answers.get(run) else {
                    continue;
                };
                let found = self.first_of(at, *seed, run, names, *of);
                if let Some((name, _)) = found.filter(|(_, value)| value.is_finite()) {
                    cells.entry(name).or_default().insert((row, at));
                }
            }
        }
        let bytes = names.iter().all(|name| name.starts_with("bytes."));
        let unit = match *scale {
            1.0 => String::new(),
            100.0 => "in percent".into(),
            1e-6 if bytes => "in MB".into(),
            1e-9 if bytes => "in GB".into(),
            scale => format!("times {scale}"),
        };
        let first = names.get(cells.keys().next().copied().unwrap_or(0))?;
        let others: Vec<String> = cells
            .iter()
            .skip(1)
            .map(|(name, of)| {
                let of_other = |row: usize| {
                    let mut rest = cells.iter().filter(|(other, _)| *other != name);
                    rest.any(|(_, of)| of.iter().any(|(other, _)| *other == row))
                };
                let mut rows: Vec<String> = of
                    .iter()
                    .map(|(row, at)| {
                        let (row_name, at) = (&self.table.rows[*row].name, &self.table.across[*at]);
                        if of_other(*row) && !at.name.is_empty() {
                            format!("{row_name} in {}", at.name)
                        } else {
                            row_name.clone()
                        }
                    })
                    .collect();
                rows.dedup();
                format!(", or {} ({})", names[*name], rows.join(", "))
            })
            .collect();
        if others.is_empty() {
            let said = format!("{first} {unit}");
            return (!column.title.contains(first.as_str())).then(|| said.trim_end().into());
        }
        let unit = if unit.is_empty() {
            unit
        } else {
            format!(", {unit}")
        };
        Some(format!("{first}{}{unit}", others.concat()))
    }

    /// Returns mistakes of the study's own text: a measure that no run has, and `lead` columns
    /// whose values differ.
    fn wrong(&self) -> Vec<String> {
        let cells = || {
            let rows = 0..self.table.rows.len();
            rows.flat_map(|row| (0..self.table.across.len()).map(move |across| (row, across)))
        };
        let runs = self.table.runs.iter().flatten().flatten();
        let Some(one) = self.done(runs).next() else {
            return Vec::new();
        };
        let asked = self.table.measured().map(|what| (&what.names, what.of));
        let plotted = self.table.plots.iter();
        let plotted = plotted.map(|plot| (&plot.names, Rounds::Last));
        let mut wrong = Vec::new();
        for (names, of) in asked.chain(plotted) {
            let open = !self.lacking().open.is_empty();
            if !open && !cells().any(|(row, at)| !self.values(row, at, names, of).is_empty()) {
                let known: Vec<String> = one.all().into_iter().map(|(name, _)| name).collect();
                let is_transfer = |name: &String| NEGATIVE_TRANSFER.contains(&name.as_str());
                let why = self.without_transfer();
                wrong.push(match why.filter(|_| names.iter().any(is_transfer)) {
                    Some(why) => format!("No run has a number for {}: {why}", of.of(names, "`")),
                    None => format!(
                        "No run has measured {}; there are {}",
                        of.of(names, "`"),
                        known.join(", ")
                    ),
                });
            }
        }
        for column in &self.table.lead {
            let differs = |row: usize| {
                let first = self.cell(row, 0, column);
                (1..self.table.across.len()).any(|at| self.cell(row, at, column) != first)
            };
            if let Some(row) = (0..self.table.rows.len()).find(|row| differs(*row)) {
                wrong.push(format!(
                    "`lead` column `{}` stands for all of `across`, and differs in row `{}`: put it into `columns`",
                    column.title, self.table.rows[row].name
                ));
            }
        }
        wrong.sort();
        wrong.dedup();
        wrong
    }

    /// Returns this row minus the row of comparison, seed by seed, and the number of seeds that
    /// both have.
    fn difference(&self, row: usize, across: usize, what: &Measured) -> Option<(Paired, usize)> {
        let against = self.table.against.filter(|of| *of != row)?;
        let values = |row| self.values(row, across, &what.names, what.of).into_iter();
        let other: BTreeMap<u64, f64> = values(against).collect();
        let pairs: Vec<f64> = values(row)
            .filter_map(|(seed, v)| Some((v - other.get(&seed)?) * what.scale))
            .collect();
        let count = pairs.len();
        paired(pairs).map(|paired| (paired, count))
    }

    fn published(&self, row: usize, across: usize) -> Option<&String> {
        let of_row = || self.table.rows[row].published.as_ref();
        self.table.across[across].published.as_ref().or_else(of_row)
    }

    fn cell(&self, row: usize, across: usize, column: &Column) -> String {
        let what = match &column.what {
            ColumnKind::Published => {
                return self.published(row, across).cloned().unwrap_or_default();
            }
            ColumnKind::PublishedMinus => return self.published_minus(row, across),
            ColumnKind::Text(name) => {
                let of_row = || self.table.rows[row].text.get(name);
                let text = self.table.across[across].text.get(name);
                return text.or_else(of_row).cloned().unwrap_or_default();
            }
            ColumnKind::RunResult(what) => what,
        };
        let (digits, scale) = (what.digits, what.scale);
        if what.show == Show::Minus {
            let Some((difference, pairs)) = self.difference(row, across, what) else {
                return String::new();
            };
            let digits = digits.unwrap_or_else(|| digits_of(difference.half, scale));
            let (text, all) = (minus(difference, digits), self.runs(row, across).len());
            return if pairs < all {
                format!("{text} ({pairs} of {all})")
            } else {
                text
            };
        }
        let runs = self.runs(row, across);
        let done = self.done(runs.iter()).count();
        let failed = |(_, run): &(u64, RunSpec)| matches!(self.answers.get(run), Some(Err(_)));
        let failed = runs.iter().any(failed);
        let Some(sample) = self.sample(row, across, what) else {
            return match (done, failed) {
                (0, true) => "failed".into(),
                (0, false) => match self.hours(row, across) {
                    Some(one) if self.is_first_measured(column) => {
                        format!("open, {}", hours(one * runs.len() as f64))
                    }
                    _ => "–".into(),
                },
                _ => String::new(),
            };
        };
        let some = sample.count();
        let digits = digits.unwrap_or_else(|| digits_of(sample.std(), scale));
        let rounding = Rounding::of(&what.names, scale);
        let text = shown(&sample, what.show, digits, rounding);
        if some < runs.len() {
            format!("{text} ({some} of {})", runs.len())
        } else {
            text
        }
    }

    fn published_minus(&self, row: usize, across: usize) -> String {
        let of = |row| self.published(row, across).and_then(|text| number(text));
        let against = self.table.against.filter(|of| *of != row);
        let (Some((ours, spread)), Some((theirs, their_spread))) = (of(row), against.and_then(of))
        else {
            return String::new();
        };
        let usual = self.table.published_spread;
        let within = spread.unwrap_or(usual).max(their_spread.unwrap_or(usual));
        let apart = ours.value - theirs.value;
        let same = if apart.abs() <= within + 1e-9 {
            ", not distinguishable"
        } else {
            ""
        };
        format!("{}{same}", signed(apart, ours.digits.max(theirs.digits)))
    }

    /// Returns the expected hours of a run, if it may be open.
    fn hours(&self, row: usize, across: usize) -> Option<f64> {
        let of_row = self.table.rows[row].hours;
        self.table.across[across].hours.or(of_row)
    }

    /// Returns whether a row without results says in this column that it is open.
    fn is_first_measured(&self, column: &Column) -> bool {
        let measured = |c: &&Column| c.measured().is_some_and(|what| what.show != Show::Minus);
        let first = self.table.columns.iter().find(measured);
        first.is_some_and(|first| std::ptr::eq(first, column))
    }

    /// Lists the runs without a result.
    fn lacking(&self) -> Lacking {
        let (mut failed, mut missing, mut open) = (Vec::new(), 0, Vec::new());
        for (nth, (row, of_row)) in self.table.rows.iter().zip(&self.table.runs).enumerate() {
            for (at, (across, runs)) in self.table.across.iter().zip(of_row).enumerate() {
                for (seed, run) in runs {
                    let column = match &across.name[..] {
                        "" => String::new(),
                        name => format!(", {name}"),
                    };
                    match self.answers.get(run) {
                        Some(Err(why)) => {
                            failed.push(format!("{}{column}, seed {seed}: {why}", row.name))
                        }
                        None => match self.hours(nth, at) {
                            Some(hours) => open.push(hours),
                            None => missing += 1,
                        },
                        Some(Ok(_)) => {}
                    }
                }
            }
        }
        Lacking {
            failed,
            missing,
            open,
        }
    }

    fn csv(&self, row: usize, across: usize, column: &Column) -> Option<CsvLine> {
        let what = column.measured()?;
        let names = &what.names;
        let runs = self.runs(row, across).iter();
        let caveats = self
            .done(runs)
            .flat_map(|run| names.iter().flat_map(|name| run.caveats(name)));
        let caveats = Vec::from_iter(caveats.collect::<BTreeSet<_>>()).join("; ");
        let measure = what.of.of(names, "");
        let place = [
            self.table.name.clone(),
            self.table.rows[row].name.clone(),
            self.table.across[across].name.clone(),
            measure,
        ];
        let Some(sample) = self.sample(row, across, what) else {
            // why there is no epsilon
            let mut line = CsvLine::default();
            line[..4].clone_from_slice(&place);
            (line[4], line[13]) = ("0".into(), caveats);
            return Some(line).filter(|line| !line[13].is_empty());
        };
        let difference = self.difference(row, across, what).map(|(d, _)| d);
        // a published number belongs to the first measure of the table
        let first = self.table.columns.iter().find_map(Column::measured);
        let published = self.published(row, across);
        let published = published.filter(|_| first.is_some_and(|first| first.names == *names));
        let interval = match difference {
            Some(Paired {
                mean,
                half: Some(half),
            }) => format!("{} to {}", mean - half, mean + half),
            _ => String::new(),
        };
        let [table, row, across, measure] = place;
        Some([
            table,
            row,
            across,
            measure,
            sample.count().to_string(),
            sample.mean().to_string(),
            sample.std().map_or(String::new(), |s| s.to_string()),
            sample.median().to_string(),
            sample.min().to_string(),
            sample.max().to_string(),
            published.cloned().unwrap_or_default(),
            difference.map_or(String::new(), |d| d.mean.to_string()),
            interval,
            caveats,
        ])
    }
}
