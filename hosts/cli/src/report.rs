//! `fl report` and `fl compare`.

use crate::{Done, Failure, either, print, say};
use anyhow::Context;
use clap::Args;
use fl_engine::RUN_PAGE;
use fl_privacy::AccountantId;
use fl_registry::Catalogue;
use fl_report::{Run, Section};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct ReportArgs {
    /// Run folders; a run that is not done is shown as far as it is.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Write the page to this file. By default it is `report.html` in the run folder, or for
    /// several runs `comparison.html` in the folder of `--paper`, or else in the first run folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write what a paper needs into this folder: the table of results as LaTeX and CSV, its
    /// notes, each picture as SVG and PDF, and the papers of the methods as BibTeX.
    #[arg(long, value_name = "DIR")]
    paper: Option<PathBuf>,
}

#[derive(Args)]
pub struct CompareArgs {
    /// A run folder.
    first: PathBuf,
    /// Another.
    second: PathBuf,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

fn open(dirs: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    Run::open_all(dirs).map_err(unreadable)
}

/// The folder is no run's, or one of its files is none that a run makes.
pub fn unreadable(error: anyhow::Error) -> Failure {
    let made = |error: &std::io::Error| error.kind() != ErrorKind::Other;
    if error.root_cause().downcast_ref().is_none_or(made) {
        Failure::usage(format!("{error:#}"))
    } else {
        error.into()
    }
}

pub fn report(args: &ReportArgs, catalogue: &Catalogue) -> Done {
    if args.dirs.len() > fl_report::MOST {
        return Err(Failure::usage(format!(
            "{} run folders were given; at most {} fit on one page",
            args.dirs.len(),
            fl_report::MOST
        )));
    }
    let runs = open(&args.dirs)?;
    let out = match (&args.out, &args.dirs[..]) {
        (Some(out), _) => out.clone(),
        (None, [dir]) => dir.join(RUN_PAGE),
        (None, dirs) => args
            .paper
            .as_ref()
            .unwrap_or(&dirs[0])
            .join("comparison.html"),
    };
    // a spec or a journal that is named by mistake stays
    const PAGE: &[u8] = b"<!DOCTYPE html>";
    let start = fl_files::beginning(&out, PAGE.len());
    if !start.is_empty() && start != PAGE {
        return Err(Failure::usage(format!(
            "{}: this file exists and is no page; name another with --out",
            out.display()
        )));
    }
    for run in &runs {
        for notice in &run.notices {
            say(format_args!("note: {}: {notice}", run.path.display()));
        }
    }
    let make = |id: &AccountantId| fl_engine::accountant(catalogue.parts(), id);
    let named = runs.iter().map(|run| (run.name().to_string(), run));
    let joint = fl_study::joint(named, &make).map(|table| table.section);
    let page = fl_report::page_with(&runs, joint.as_ref())?;
    if let Some(dir) = &args.paper {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    // the user has named the one, and another user may have made the folder of the other
    let write = match &args.out {
        Some(_) => fl_files::write,
        None => fl_files::write_unlinked,
    };
    write(&out, page.as_bytes())?;
    let mut written = vec![out];
    if let Some(dir) = &args.paper {
        written.extend(paper(dir, &runs, (&page, joint), catalogue)?);
    }
    let written: Vec<String> = written
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    print(written.join("\n"))
}

/// Writes tables, pictures and references of runs into a folder; `joint` is what they guarantee
/// together. Returns the files.
fn paper(
    dir: &Path,
    runs: &[Run],
    (page, joint): (&str, Option<Section>),
    catalogue: &Catalogue,
) -> anyhow::Result<Vec<PathBuf>> {
    let table = fl_report::results_table(runs);
    let pictures = fl_report::picture_files(page, &table.notes);
    let specs = runs.iter().map(|run| &run.spec);
    let mut files = vec![
        ("results.csv".to_string(), fl_report::table_csv(&table)?),
        (
            "methods.bib".into(),
            fl_report::bibliography(specs, catalogue.parts()).into(),
        ),
    ];
    if let Some(joint) = &joint {
        files.push(("privacy.csv".into(), fl_report::table_csv(joint)?));
    }
    let tables: Vec<Section> = [table].into_iter().chain(joint).collect();
    let tex = fl_report::tables_tex(&tables);
    files.push(("results.tex".into(), tex.into()));
    let notes = fl_report::notes_text(&tables);
    if !notes.is_empty() {
        files.push((fl_report::NOTES.into(), notes.into()));
    }
    for picture in pictures {
        let of = picture.files().into_iter();
        let of = of.map(|(ending, content)| (format!("{}.{ending}", picture.name), content.into()));
        files.extend(of);
        if let Some(note) = picture.note() {
            say(format_args!("note: {note}"));
        }
    }
    let mut written = Vec::new();
    for (name, content) in files {
        let file = dir.join(name);
        fl_files::write(&file, &content)?;
        written.push(file);
    }
    Ok(written)
}

pub fn compare(args: &CompareArgs) -> Done {
    let runs = [&args.first, &args.second].map(|dir| Run::open(dir));
    let runs: anyhow::Result<Vec<Run>> = runs.into_iter().collect();
    let runs = Run::named(runs.map_err(unreadable)?);
    let [first, second] = &runs[..] else {
        return Err(Failure::usage("two run folders are compared"));
    };
    let comparison = fl_report::compare(first, second);
    either(args.json, comparison.json(), &comparison)?;
    if comparison.alike() {
        Ok(())
    } else {
        Err(Failure::Differs)
    }
}
