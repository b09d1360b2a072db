//! Plots of a table: measurements by round, or by a value of the grid.

use crate::columns::{Rounds, transfer_in, usual_names};
use crate::file::{Names, RawPlot, RawTable};
use crate::model::{By, Item, Plot, Position, RunSpec, Table};
use crate::results::{RunResults, values};
use crate::stats::Sample;
use fl_report::{Picture, Spot, axis, positions};
use std::collections::BTreeSet;

/// Returns the plots of `raw`, which has every default; an error says what is wrong with one.
pub(crate) fn plots(raw: &RawTable, rows: &[Item]) -> Vec<Result<Plot, String>> {
    raw.plots.iter().map(|plot| one(plot, raw, rows)).collect()
}

fn one(plot: &RawPlot, raw: &RawTable, rows: &[Item]) -> Result<Plot, String> {
    let by = match plot.by.as_str() {
        "round" => By::Round,
        path => {
            let mut paths: Vec<&str> = Vec::new();
            for place in rows.iter().flat_map(|row| &row.grid) {
                if !paths.contains(&place.path.as_str()) {
                    paths.push(&place.path);
                }
            }
            if !paths.contains(&path) {
                let known: Vec<String> = paths.iter().map(|p| format!("`{p}`")).collect();
                return Err(format!(
                    "`by` must be `round` or a path of the grid, got `{path}`; {}",
                    if known.is_empty() {
                        "the table has no grid".into()
                    } else {
                        format!("its grid has {}", known.join(", "))
                    }
                ));
            }
            let of_path = rows.iter().flat_map(|row| &row.grid);
            let mut words = of_path.filter(|place| place.path == path && place.number.is_none());
            if let Some(word) = words.next() {
                return Err(format!(
                    "by `{path}`: `{}` is not a number, so it has no place on an axis",
                    word.name
                ));
            }
            By::Value(path.into())
        }
    };
    let names = plot.measure.as_ref().or(raw.measure.as_ref());
    let names = names.map_or(usual_names(), |Names(names)| names.clone());
    if let Some(name) = transfer_in(&names) {
        return Err(format!(
            "`{name}` compares a whole run with one of `solo`, and no plot has both: name another \
             `measure` in the plot"
        ));
    }
    Ok(Plot {
        by,
        names,
        scale: plot.scale.or(raw.scale).unwrap_or(1.0),
    })
}

/// Returns the plots of a table, from the results of its runs.
pub fn pictures(table: &Table, answers: &RunResults) -> Vec<Picture> {
    let plots = table.plots.iter();
    plots
        .map(|plot| PlotLines {
            table,
            answers,
            plot,
        })
        .map(|drawn| drawn.picture())
        .collect()
}

/// Returns the last word of a path: `alpha` of `data.split.dirichlet.alpha`.
fn last_word(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Returns the name of a position in words: `t 2` instead of `t = 2`.
fn words(place: &Position) -> String {
    place.name.replace(" = ", " ")
}

struct PlotLines<'a> {
    table: &'a Table,
    answers: &'a RunResults,
    plot: &'a Plot,
}

impl PlotLines<'_> {
    fn picture(&self) -> Picture {
        let y = self.measured();
        let (x, lines) = match &self.plot.by {
            By::Round => self.by_round(),
            By::Value(path) => (last_word(path), self.by_value(path)),
        };
        Picture {
            title: format!("{y} by {x}"),
            x: x.into(),
            y,
            powers: self.plot.by != By::Round,
            scale: self.plot.scale,
            lines: lines.into_iter().filter(|(_, l)| !l.is_empty()).collect(),
        }
    }

    /// Returns the names that runs have measured; before the first run, all that may be.
    fn measured(&self) -> String {
        let runs = self.table.runs.iter().flatten().flatten();
        let mut found: Vec<&str> = Vec::new();
        for run in runs.filter_map(|(_, run)| self.answers.get(run)?.as_ref().ok()) {
            let name = self
                .plot
                .names
                .iter()
                .find(|name| run.get(name, Rounds::Last).is_some());
            found.extend(
                name.map(String::as_str)
                    .filter(|name| !found.contains(name)),
            );
        }
        if found.is_empty() {
            self.plot.names.join(" or ")
        } else {
            found.join(" or ")
        }
    }

    /// Returns the row, with the column if there are several.
    fn label(&self, row: String, across: usize) -> String {
        let column = &self.table.across[across].name;
        match (row.is_empty(), column.is_empty()) {
            (true, true) => self.measured(),
            (false, true) => row,
            (true, false) => column.clone(),
            (false, false) => format!("{row}, {column}"),
        }
    }

    fn spot(&self, row: usize, across: usize, x: f64, of: Rounds) -> Option<Spot> {
        let runs = &self.table.runs[row][across];
        let all = values(self.answers, runs, &self.plot.names, of).into_iter();
        let sample = Sample::new(all.map(|(_, v)| v * self.plot.scale).collect())?;
        Some(Spot {
            x,
            y: sample.mean(),
            spread: sample.std(),
            seeds: sample.count(),
        })
    }

    /// Returns the name of the axis, and the lines.
    fn by_round(&self) -> (&'static str, Vec<(String, Vec<Spot>)>) {
        let of_runs = |runs: &mut dyn Iterator<Item = &(u64, RunSpec)>| -> Vec<Vec<u64>> {
            let done = runs.filter_map(|(_, run)| self.answers.get(run)?.as_ref().ok());
            done.map(|run| run.rounds(&self.plot.names)).collect()
        };
        let all = of_runs(&mut self.table.runs.iter().flatten().flatten());
        let rounds: BTreeSet<u64> = all.iter().flatten().copied().collect();
        let mut rounds = Vec::from_iter(rounds);
        // what is measured once, and after rounds, is measured at the end
        let ends = |of_run: &Vec<u64>| of_run.len() > 1 && of_run.last() == Some(&0);
        if all.iter().any(ends) {
            rounds.rotate_left(1);
        }
        let mut lines = Vec::new();
        for (row, item) in self.table.rows.iter().enumerate() {
            for across in 0..self.table.across.len() {
                let own = of_runs(&mut self.table.runs[row][across].iter());
                let own: BTreeSet<u64> = own.into_iter().flatten().collect();
                let places = rounds.iter().copied().zip(positions(&rounds));
                let places = places.filter(|(round, _)| own.contains(round));
                let spot = |(round, x)| self.spot(row, across, x, Rounds::One(round));
                let label = self.label(item.name.clone(), across);
                lines.push((label, places.filter_map(spot).collect()));
            }
        }
        (axis(&rounds), lines)
    }

    fn by_value(&self, path: &str) -> Vec<(String, Vec<Spot>)> {
        let mut lines: Vec<(String, Vec<Spot>)> = Vec::new();
        for (row, item) in self.table.rows.iter().enumerate() {
            let (mut x, mut others) = (None, Vec::new());
            for place in &item.grid {
                if place.path == path {
                    x = place.number
                } else {
                    others.push(words(place))
                }
            }
            let Some(x) = x else { continue };
            for across in 0..self.table.across.len() {
                let label = self.label(others.join(", "), across);
                let spot = self.spot(row, across, x, Rounds::Last);
                match lines.iter_mut().find(|(of, _)| *of == label) {
                    Some((_, spots)) => spots.extend(spot),
                    None => lines.push((label, spot.into_iter().collect())),
                }
            }
        }
        for (_, spots) in &mut lines {
            spots.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        lines
    }
}
