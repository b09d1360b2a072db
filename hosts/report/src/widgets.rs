//! What pages are made of: the frame, figures, tables.

use crate::svg;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

/// The most rows of a table.
pub(crate) const ROWS: usize = 500;

/// A script of a page, with the data that it reads.
pub(crate) struct Script {
    pub code: &'static str,
    /// The identifier of its element, and JSON.
    pub data: (&'static str, String),
}

/// Returns a page that needs no other file.
pub(crate) fn whole(title: &str, body: &Markup) -> String {
    whole_with(title, body, None)
}

/// As [`whole`]; a browser runs this script and no other.
pub(crate) fn whole_with(title: &str, body: &Markup, script: Option<&Script>) -> String {
    let mut policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'".to_string();
    if let Some(script) = script {
        let hash = STANDARD.encode(Sha256::digest(script.code));
        policy += &format!("; script-src 'sha256-{hash}'");
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // the page loads nothing from other places, for any text of a spec
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) " · fl" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                // it shows in narrow windows only
                p.hint { "Wide tables and pictures scroll sideways; a shadow marks what is beyond the edge." }
                (body)
                @if let Some(Script { code, data: (id, json) }) = script {
                    // no text of the data ends its element
                    script type="application/json" id=(id) { (PreEscaped(json.replace('<', "\\u003c"))) }
                    script { (PreEscaped(code)) }
                }
            }
        }
    };
    page.into_string()
}

/// A section of a page.
pub(crate) struct Section {
    /// The target of links.
    pub id: &'static str,
    pub title: &'static str,
    /// Whether it takes the whole width, or half of a wide window.
    pub full: bool,
    pub body: Markup,
}

/// Returns links to the sections of a page.
pub(crate) fn contents<'s>(sections: impl Iterator<Item = (&'s str, &'s str)>) -> Markup {
    html! {
        nav { @for (id, title) in sections { a href={ "#" (id) } { (title) } " " } }
    }
}

/// Returns sections, side by side in a wide window; with `links`, after links to them.
pub(crate) fn flow(sections: &[Section], links: bool) -> Markup {
    html! {
        @if links { (contents(sections.iter().map(|s| (s.id, s.title)))) }
        div.flow {
            @for section in sections {
                section id=[links.then_some(section.id)] class=[section.full.then_some("full")] {
                    h2 { (section.title) }
                    (section.body)
                }
            }
        }
    }
}

/// Returns a plot with its caption, and with its numbers as a table.
pub(crate) fn figure(
    title: &str,
    about: &str,
    picture: &Markup,
    legend: &[(usize, &str)],
    numbers: &Markup,
) -> Markup {
    html! {
        figure {
            h3 { (title) }
            (picture)
            @if !legend.is_empty() {
                ul.legend {
                    @for (style, label) in legend {
                        li {
                            svg class=(svg::style(*style)) viewBox="0 0 26 10" aria-hidden="true" {
                                line class="line" x1="0" x2="26" y1="5" y2="5" {}
                            }
                            (label)
                        }
                    }
                }
            }
            @if !about.is_empty() { figcaption { (about) } }
            details { summary { "numbers" } div.wide { (numbers) } }
        }
    }
}

/// Returns a table; columns whose heads begin with `#` hold numbers.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    let number = |at: usize| head.get(at).is_some_and(|h| h.starts_with('#'));
    html! {
        div.wide {
            table {
                thead { tr {
                    @for (at, name) in head.iter().enumerate() {
                        th class=[number(at).then_some("n")] { (coded(name.trim_start_matches('#'))) }
                    }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                td class=(if number(at) { "n" } else { width(cell) }) { (coded(cell)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The class of a cell of text: a short one stays on a line, a long one gets room for its words.
fn width(cell: &str) -> &'static str {
    match cell.chars().count() {
        0..=24 => "v",
        25..=60 => "w",
        _ => "t",
    }
}

/// A text whose parts between backticks are code.
pub(crate) fn coded(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    html! {
        @if parts.len().is_multiple_of(2) { (text) } @else {
            @for (at, part) in parts.iter().enumerate() {
                @if at % 2 == 1 { code { (part) } } @else { (part) }
            }
        }
    }
}

/// Returns a table of [`some`] rows, with its remark.
pub(crate) fn some_table<T>(
    head: &[&str],
    rows: impl Iterator<Item = T> + Clone,
    cells: impl Fn(T) -> Vec<String>,
) -> Markup {
    let (rows, said) = some(rows.clone(), rows.count());
    let rows: Vec<_> = rows.into_iter().map(cells).collect();
    html! { (table(head, &rows)) @if !said.is_empty() { p.dim { (said) } } }
}

/// Returns at most [`ROWS`] of `count` rows, evenly spaced and with the last, and a remark if there
/// are more. Does not keep the other rows.
pub(crate) fn some<T>(rows: impl Iterator<Item = T>, count: usize) -> (Vec<T>, String) {
    let every = count.div_ceil(ROWS).max(1);
    let kept = rows.enumerate();
    let kept = kept.filter(|(at, _)| at % every == 0 || at + 1 == count);
    let kept = kept.map(|(_, row)| row).collect();
    let said = match every {
        1 => String::new(),
        _ => format!("{count} rows; every {every}th is shown, and the last"),
    };
    (kept, said)
}
