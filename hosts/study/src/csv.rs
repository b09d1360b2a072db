//! Tables and runs as CSV, for programs.

use crate::model::{RunSpec, Table};
use crate::results::RunResults;
use crate::tables::BuiltTable;
use fl_core::Result;
use fl_report::{RunLine, cell};

/// Every measured column of every row: one CSV. `caveats` says that the noise of an epsilon is
/// seeded, which libraries claim it, or why it is no guarantee.
///
/// # Errors
/// If it cannot be written.
pub fn tables_csv(tables: &[BuiltTable]) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let head =
        "table,row,column,measure,seeds,mean,std,median,min,max,published,minus,interval,caveats";
    out.write_record(head.split(','))?;
    for row in tables.iter().flat_map(|t| &t.csv) {
        out.write_record(row.iter().map(|text| cell(text).into_owned()))?;
    }
    Ok(out.into_inner()?)
}

/// Returns every run of every table that is done, for the study's page; `key` returns the
/// digest that a run is stored under.
pub fn run_lines(
    tables: &[Table],
    answers: &RunResults,
    key: &dyn Fn(&RunSpec) -> String,
) -> Vec<RunLine> {
    let line = |(of, seed, run): ([&String; 3], u64, &RunSpec)| {
        let measured = answers.get(run)?.as_ref().ok()?;
        Some(RunLine {
            of: of.map(Clone::clone),
            seed,
            seconds: measured.seconds(),
            digest: measured.digest().into(),
            kept: key(run),
        })
    };
    each_run(tables).filter_map(line).collect()
}

/// Returns every run of every table, with the names of its table, row and column, and its seed.
fn each_run(tables: &[Table]) -> impl Iterator<Item = ([&String; 3], u64, &RunSpec)> {
    tables.iter().flat_map(|table| {
        let rows = table.rows.iter().zip(&table.runs);
        let cells = rows.flat_map(move |(row, cells)| {
            let cells = table.across.iter().zip(cells);
            cells.map(move |(across, runs)| ([&table.name, &row.name, &across.name], runs))
        });
        cells.flat_map(|(of, runs)| runs.iter().map(move |(seed, run)| (of, *seed, run)))
    })
}

/// Writes every run of every table, one line for each number: one CSV. `guarantee` is the one that
/// an epsilon is a part of, or says why there is none; `made by` names the program and the machine.
/// `key` returns the digest that a run is stored under.
///
/// # Errors
/// If it cannot be written.
pub fn runs_csv(
    tables: &[Table],
    answers: &RunResults,
    key: &dyn Fn(&RunSpec) -> String,
) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let head = "table,row,column,seed,spec,digest,measure,value,error,guarantee,made by";
    out.write_record(head.split(','))?;
    for (of, seed, run) in each_run(tables) {
        let (seed, key) = (seed.to_string(), key(run));
        let names = of.map(|name| cell(name));
        let begin = [&names[0][..], &names[1], &names[2], &seed, &key];
        match answers.get(run) {
            None => {}
            Some(Err(error)) => {
                out.write_record([&begin[..], &["", "", "", &cell(error), "", ""]].concat())?;
            }
            Some(Ok(measured)) => {
                let made_by = measured.run().made_by();
                for (name, value, guarantee) in measured.lines() {
                    let name = cell(&name);
                    let of = [measured.digest(), &name, &value, "", &guarantee, &made_by];
                    out.write_record([&begin[..], &of].concat())?;
                }
            }
        }
    }
    Ok(out.into_inner()?)
}
