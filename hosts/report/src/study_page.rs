//! The page of a study: its tables and their plots.

use crate::svg::{self, Dot, Line};
use crate::text::{digits_of, number, of_measure};
use crate::widgets::{coded, contents, figure, table, whole};
use maud::{Markup, html};

/// A table of a study, for a page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Failed or missing runs.
    pub notes: Vec<String>,
    /// Its plots.
    pub pictures: Vec<Picture>,
}

/// Lines over numbers.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its heading.
    pub title: String,
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis.
    pub y: String,
    /// Whether `x` may use a logarithmic axis.
    pub powers: bool,
    /// Factor of the measured values.
    pub scale: f64,
    /// Lines by name.
    pub lines: Vec<(String, Vec<Spot>)>,
}

/// The mean over several seeds.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// The horizontal position.
    pub x: f64,
    /// Their mean.
    pub y: f64,
    /// Their deviation; `None` for one seed.
    pub spread: Option<f64>,
    /// The number of seeds.
    pub seeds: usize,
}

/// A run of a study.
#[derive(Clone, Debug)]
pub struct RunLine {
    /// Its table, row and column.
    pub of: [String; 3],
    /// Its seed.
    pub seed: u64,
    /// Its duration, which a run with an accountant does not state.
    pub seconds: Option<f64>,
    /// Its digest.
    pub digest: String,
    /// The name of the folder in which it is kept.
    pub kept: String,
}

/// Returns the page of a study: HTML that needs no other file. `runs` are listed at its end.
pub fn study(name: &str, sections: &[Section], runs: &[RunLine]) -> String {
    let ids: Vec<String> = (1..=sections.len()).map(|n| format!("table-{n}")).collect();
    let links = ids.iter().zip(sections);
    let links = links.map(|(id, section)| (id.as_str(), section.title.as_str()));
    let links = links.chain((!runs.is_empty()).then_some((RUNS, "Runs")));
    let body = html! {
        h1 { (name) }
        (contents(links))
        @for (id, section) in ids.iter().zip(sections) {
            h2 id=(id) { (section.title) }
            (rows(section))
            @for note in &section.notes { p.notice { (coded(note)) } }
            @if !section.pictures.is_empty() {
                div.charts { @for picture in &section.pictures { (drawn(picture)) } }
            }
        }
        @if !runs.is_empty() { (list(runs)) }
    };
    whole(name, &body)
}

/// The target of the link to the list of runs.
const RUNS: &str = "runs";

fn list(runs: &[RunLine]) -> Markup {
    html! {
        h2 id=(RUNS) { "Runs" }
        details {
            summary { (runs.len()) " runs, with seeds and digests; " code { "fl report kept/NAME" } " makes the page of one" }
            div.wide { table {
                thead { tr {
                    th { "table" } th { "row" } th { "column" } th.n { "seed" } th.n { "seconds" } th { "digest" } th { "kept as" }
                } }
                tbody { @for run in runs { tr {
                    @for name in &run.of { td { (name) } }
                    td.n { (run.seed) }
                    td.n { (run.seconds.map_or(String::new(), |s| format!("{s:.1}"))) }
                    td { (code(&run.digest)) } td { code { (run.kept) } }
                } } }
            } }
        }
    }
}

/// The first digits of a digest, and all of them on hover.
fn code(digest: &str) -> Markup {
    let short: String = digest.chars().take(16).collect();
    html! { code title=(digest) { (short) } }
}

pub(crate) fn rows(section: &Section) -> Markup {
    // a column of numbers begins with digits, signs or brackets in every row
    let number = |cell: &String| !cell.starts_with(|c: char| c.is_alphabetic() || c == '`');
    let numbers = |at: usize| {
        let cells = section.rows.iter().filter_map(|row| row.get(at));
        at > 0 && cells.into_iter().all(number)
    };
    let head = section.head.iter().enumerate();
    let head: Vec<String> = head
        .map(|(at, name)| format!("{}{}", if numbers(at) { "#" } else { "" }, plus_minus(name)))
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let signs = |row: &Vec<String>| row.iter().map(|cell| plus_minus(cell)).collect();
    table(&head, &section.rows.iter().map(signs).collect::<Vec<_>>())
}

/// The sign of all pages.
fn plus_minus(text: &str) -> String {
    text.replace("+-", "±")
}

/// Names the best mean of each line with its round, if the picture is by round and of a score.
fn best(picture: &Picture) -> String {
    let lower = fl_core::metrics::lower_is_better(&picture.y);
    let score = lower || fl_core::metrics::is_score(&picture.y);
    if picture.x != "round" || !score {
        return String::new();
    }
    let of = |(label, spots): &(String, Vec<Spot>)| {
        // the first of equals
        let best = spots.iter().reduce(|best, next| {
            let better = if lower {
                next.y < best.y
            } else {
                next.y > best.y
            };
            if better { next } else { best }
        })?;
        let value = match best.spread.filter(|spread| *spread > 0.0) {
            // as in the table
            Some(spread) => {
                let digits = digits_of(Some(spread), picture.scale);
                format!("{:.digits$}", best.y)
            }
            None => of_measure(&picture.y, picture.scale, best.y),
        };
        Some(format!("{label} {value} (round {})", best.x))
    };
    let all: Vec<String> = picture.lines.iter().filter_map(of).collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" Best: {}.", all.join(", "))
    }
}

fn drawn(picture: &Picture) -> Markup {
    let x = |spot: &Spot| of_measure(&picture.x, 1.0, spot.x);
    let y = |spot: &Spot| of_measure(&picture.y, picture.scale, spot.y);
    let line = |(style, (label, spots)): (usize, &(String, Vec<Spot>))| {
        Line::of(label, style, spots, |spot| Dot {
            x: spot.x,
            y: spot.y,
            spread: spot.spread.unwrap_or(0.0),
            title: format!("{label}: {} at {}", y(spot), x(spot)),
        })
    };
    let shown = picture.lines.iter().take(svg::STYLES).enumerate();
    let lines: Vec<Line> = shown.map(line).collect();
    let numbers: Vec<Vec<String>> = picture
        .lines
        .iter()
        .flat_map(|(label, spots)| {
            spots.iter().map(|spot| {
                vec![
                    label.clone(),
                    x(spot),
                    y(spot),
                    spot.spread.map_or(String::new(), number),
                    spot.seeds.to_string(),
                ]
            })
        })
        .collect();
    let head = [
        "",
        &format!("#{}", picture.x),
        &format!("#{}", picture.y),
        "#std",
        "#seeds",
    ];
    let mut about = format!("Means over seeds. {}", svg::bands(&lines, "seeds"));
    if picture.lines.len() > svg::STYLES {
        about += &format!(
            " The first {} of {} lines are drawn; the table below has the numbers of all.",
            svg::STYLES,
            picture.lines.len()
        );
    }
    about += &best(picture);
    figure(
        &picture.title,
        about.trim(),
        &svg::lines(
            &lines,
            &picture.x,
            &picture.y,
            picture.powers,
            svg::range(&picture.y, picture.scale),
        ),
        &svg::legend(&lines),
        &table(&head, &numbers),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_the_best_of_each_line_has_its_round() {
        let spot = |x: f64, y: f64| Spot {
            x,
            y,
            spread: None,
            seeds: 1,
        };
        let picture = |x: &str, y: &str| Picture {
            title: String::new(),
            x: x.into(),
            y: y.into(),
            powers: false,
            scale: 1.0,
            lines: vec![
                (
                    "a".into(),
                    vec![spot(1.0, 0.5), spot(2.0, 0.75), spot(3.0, 0.75)],
                ),
                ("b".into(), vec![spot(1.0, 0.25)]),
            ],
        };
        let of = |x, y| best(&picture(x, y));
        assert_eq!(
            of("round", "accuracy"),
            " Best: a 0.7500 (round 2), b 0.2500 (round 1)."
        );
        assert_eq!(
            of("round", "rmse"),
            " Best: a 0.5000 (round 1), b 0.2500 (round 1)."
        );
        assert_eq!(of("alpha", "accuracy") + &of("round", "bytes.up"), "");
        // the digits of the spread, as in the table
        let mut spread = picture("round", "accuracy");
        spread.lines[0].1[1].spread = Some(0.031);
        assert_eq!(
            best(&spread),
            " Best: a 0.750 (round 2), b 0.2500 (round 1)."
        );
        // without one, small and large numbers keep theirs
        let mut sizes = picture("round", "rmse");
        sizes.lines[0].1 = vec![spot(1.0, 3e-5)];
        sizes.lines[1].1 = vec![spot(1.0, 123_456.7)];
        assert_eq!(
            best(&sizes),
            " Best: a 3.000e-5 (round 1), b 123456.7 (round 1)."
        );
    }
}
