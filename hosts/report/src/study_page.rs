//! The page of a study: its tables and their plots.

use crate::svg::{self, Dot, Line};
use crate::text::{number, of_measure};
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

/// Returns the page of a study: HTML that needs no other file.
pub fn study(name: &str, sections: &[Section]) -> String {
    let ids: Vec<String> = (1..=sections.len()).map(|n| format!("table-{n}")).collect();
    let links = ids.iter().zip(sections);
    let links = links.map(|(id, section)| (id.as_str(), section.title.as_str()));
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
    };
    whole(name, &body)
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
        .map(|(at, name)| format!("{}{name}", if numbers(at) { "#" } else { "" }))
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, &section.rows)
}

fn drawn(picture: &Picture) -> Markup {
    let x = |spot: &Spot| of_measure(&picture.x, 1.0, spot.x);
    let y = |spot: &Spot| of_measure(&picture.y, picture.scale, spot.y);
    let dot = |label: &str, spot: &Spot| Dot {
        x: spot.x,
        y: spot.y,
        spread: spot.spread.unwrap_or(0.0),
        title: format!("{label}: {} at {}", y(spot), x(spot)),
    };
    let shown = picture.lines.iter().take(svg::STYLES).enumerate();
    let lines: Vec<Line> = shown
        .map(|(style, (label, spots))| Line {
            label: label.clone(),
            style,
            dots: svg::shown(spots.len())
                .map(|at| dot(label, &spots[at]))
                .collect(),
        })
        .collect();
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
    let legend: Vec<(usize, &str)> = lines.iter().map(|l| (l.style, l.label.as_str())).collect();
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
        &legend,
        &table(&head, &numbers),
    )
}
