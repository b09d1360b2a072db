//! The pictures of a page as files of their own, for a paper: SVG and PDF.

use crate::pdf::pdf;
use std::fmt::Write;

/// The style sheet of pages, which has the colours.
const STYLE: &str = include_str!("style.css");
/// The height of a line of a legend.
const LINE: f64 = 18.0;

/// A picture of a page, on its own.
pub struct PictureFile {
    /// The name of its files, without an ending.
    pub name: String,
    /// SVG that needs no style sheet.
    pub svg: String,
    /// The same as PDF; `Err` has a character of its texts that Helvetica does not have.
    pub pdf: Result<Vec<u8>, char>,
}

impl PictureFile {
    /// Returns the endings and contents of its files.
    pub fn files(&self) -> Vec<(&'static str, &[u8])> {
        let pdf = self.pdf.iter().map(|pdf| ("pdf", &pdf[..]));
        [("svg", self.svg.as_bytes())]
            .into_iter()
            .chain(pdf)
            .collect()
    }

    /// Returns why there is no PDF.
    pub fn note(&self) -> Option<String> {
        let (name, lacking) = (&self.name, self.pdf.as_ref().err()?);
        Some(format!(
            "there is no {name}.pdf: its font, Helvetica, has no `{lacking}`; inkscape and \
             rsvg-convert make one of {name}.svg"
        ))
    }
}

/// Returns the plots of a page that this crate made. The legend is a part of each picture, and so is
/// what `notes` say of an epsilon in it. Maps of counts are left out.
pub fn picture_files(page: &str, notes: &[String]) -> Vec<PictureFile> {
    let of_epsilon = |title: &str| {
        if title.contains("epsilon") {
            notes.iter().filter(|n| n.starts_with("Epsilon")).collect()
        } else {
            Vec::new()
        }
    };
    let mut all: Vec<PictureFile> = Vec::new();
    for figure in page.split("<figure>").skip(1) {
        let figure = figure.split("</figure>").next().unwrap_or_default();
        let title = file_name(between(figure, "<h3>", "</h3>").unwrap_or_default());
        let numbers = figure.find("<details").unwrap_or(figure.len());
        let Some(svg) = between(&figure[..numbers], "<svg viewBox=\"", "</svg>") else {
            continue;
        };
        let legend = between(figure, "<ul class=\"legend\">", "</ul>").unwrap_or_default();
        // runs of a comparison have pictures of one name
        if !all.iter().any(|known| known.name == title) {
            all.extend(
                alone(svg, legend, &of_epsilon(&title)).map(|svg| PictureFile {
                    name: title,
                    pdf: pdf(&svg),
                    svg,
                }),
            );
        }
    }
    all
}

/// Small letters, digits and single `-`.
fn file_name(title: &str) -> String {
    let word = |c: char| {
        if c.is_alphanumeric() || c == '.' {
            c
        } else {
            ' '
        }
    };
    let words: String = title.to_lowercase().chars().map(word).collect();
    words.split_whitespace().collect::<Vec<_>>().join("-")
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split_once(to)?.0)
}

/// The most letters of a line of a note.
const LETTERS: usize = 90;

/// A picture with its own style, its legend and these notes.
fn alone(svg: &str, legend: &str, notes: &[&String]) -> Option<String> {
    let (size, body) = svg.split_once('"')?;
    let (_, body) = body.split_once('>')?;
    let mut size = size.split(' ').skip(2).map(str::parse::<f64>);
    let (Some(Ok(width)), Some(Ok(height))) = (size.next(), size.next()) else {
        return None;
    };
    let (mut lines, mut at) = (String::new(), height);
    for item in legend.split("<li>").skip(1) {
        let style = between(item, "<svg class=\"", "\"")?;
        let (_, label) = item.split_once("</svg>")?;
        let label = label.split("</li>").next().unwrap_or_default();
        let (y, text) = (at + LINE / 2.0, at + LINE / 2.0 + 4.0);
        let _ = write!(
            lines,
            "<g class=\"{style}\"><line class=\"line\" x1=\"60\" x2=\"86\" y1=\"{y}\" y2=\"{y}\"/></g>\
             <text class=\"name\" x=\"92\" y=\"{text}\">{label}</text>"
        );
        at += LINE;
    }
    for note in notes {
        let mut rows = vec![String::new()];
        for word in note.split_whitespace() {
            match rows.last_mut() {
                Some(row) if row.len() + word.len() < LETTERS => *row += &format!(" {word}"),
                _ => rows.push(word.into()),
            }
        }
        for row in rows {
            let text = maud::html! { (row.trim_start()) }.into_string();
            let _ = write!(
                lines,
                "<text class=\"name\" x=\"8\" y=\"{}\">{text}</text>",
                at + LINE / 2.0 + 4.0
            );
            at += LINE;
        }
    }
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{at}\" \
         viewBox=\"0 0 {width} {at}\" style=\"background:#fff\"><style>{}</style>{body}{lines}</svg>\n",
        style()
    ))
}

/// The style of a picture on paper, with colours in place of variables, which programs for print do
/// not know.
fn style() -> String {
    let colour = |name: &str| between(STYLE, &format!("--{name}:"), ";").unwrap_or_default();
    let last = |name: &str| between(STYLE, &format!("--{name}:"), "}").unwrap_or_default();
    let mut out = format!(
        "text{{font:12px sans-serif;fill:{fg}}}.tick{{fill:{dim}}}.grid{{stroke:{rule}}}.axis{{stroke:{dim}}}\
         .line{{fill:none;stroke-width:2}}.band{{opacity:.16}}.edge{{fill:none;opacity:.45}}\
         .spread{{stroke-width:1.5;opacity:.7}}.mean{{stroke:{fg};stroke-dasharray:6 4}}\
         .d1 .line{{stroke-dasharray:7 4}}.d2 .line{{stroke-dasharray:2 3}}",
        fg = colour("fg"),
        dim = colour("dim"),
        rule = colour("rule"),
    );
    for n in 0..8 {
        let of = if n == 7 {
            last("7")
        } else {
            colour(&n.to_string())
        };
        let _ = write!(
            out,
            ".s{n} .line,.s{n} .edge,.s{n} .spread{{stroke:{of}}}\
             .s{n} .band,.s{n} .dot,.bar.s{n}{{fill:{of}}}"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Dot, Line, lines};
    use crate::widgets::{figure, table};

    #[test]
    fn a_picture_stands_alone_with_its_legend_and_no_variable() {
        let line = |style: usize| Line {
            label: "a & b".into(),
            style,
            dots: [1.0, 2.0]
                .map(|x| Dot {
                    x,
                    y: x,
                    spread: 0.5,
                    title: String::new(),
                })
                .into(),
        };
        let drawn = lines(&[line(0), line(9)], "x", "y", false, [0.0, 9.0]);
        let legend = [(0, "a & b"), (9, "<c>")];
        let page = figure("y by x", "", &drawn, &legend, &table(&[], &[])).into_string();
        let page = format!(
            "{page}{}",
            figure("flat", "", &maud::html! {}, &[], &table(&[], &[])).into_string()
        );
        let all = picture_files(&page, &[]);
        assert_eq!(all.len(), 1);
        let PictureFile { name, svg, pdf } = &all[0];
        assert_eq!(name, "y-by-x");
        assert!(
            svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"),
            "{svg}"
        );
        assert!(
            !svg.contains("var(") && !svg.contains(":;") && !svg.contains(":}"),
            "{svg}"
        );
        assert!(svg.contains("viewBox=\"0 0 480 296\""), "{svg}");
        assert!(
            svg.contains(">a &amp; b</text>") && svg.contains(">&lt;c&gt;</text>"),
            "{svg}"
        );
        assert!(
            svg.contains("<g class=\"s1 d1\"><line") && svg.contains(".s7 .band"),
            "{svg}"
        );
        let open = svg.matches("<g").count();
        assert_eq!(open, svg.matches("</g>").count());
        // the PDF of the same size has the same texts, lines, marks, colours, dashes and bands
        let pdf = String::from_utf8_lossy(pdf.as_ref().unwrap()).into_owned();
        assert!(pdf.starts_with("%PDF-1.7") && pdf.contains("/MediaBox [0 0 360 222]"));
        let texts = svg.split("</text>").filter_map(|of| of.rsplit_once("\">"));
        let texts = texts.map(|(_, text)| text.replace("&lt;", "<").replace("&gt;", ">"));
        let mut texts: Vec<String> = texts.map(|text| text.replace("&amp;", "&")).collect();
        assert!(
            texts
                .pop()
                .is_some_and(|after| after.is_empty() || after.contains('<'))
        );
        for text in &texts {
            assert!(pdf.contains(&format!("({text}) Tj")), "{text}: {pdf}");
        }
        assert_eq!(pdf.matches(" Tj").count(), svg.matches("</text>").count());
        let strokes = svg.matches("<line").count() + svg.matches("<polyline").count();
        assert_eq!(pdf.matches("\nS\n").count(), strokes);
        let fills = svg.matches("<path").count() + svg.matches("<circle").count();
        assert_eq!(pdf.matches("\nf\n").count(), fills);
        // #0072b2, and the second line's dashes and its own line of the legend
        assert_eq!(
            pdf.matches("0 0.44705883 0.69803923 RG").count(),
            2,
            "{pdf}"
        );
        assert_eq!(pdf.matches("[7 4] 0 d").count(), 2, "{pdf}");
        assert!(
            pdf.contains("/O.16 gs") && pdf.contains("/ca 0.16"),
            "{pdf}"
        );
    }

    #[test]
    fn a_picture_with_a_character_that_its_font_lacks_has_no_pdf_and_says_why() {
        let picture = |label: &str| {
            let line = Line {
                label: label.into(),
                style: 0,
                dots: Vec::new(),
            };
            let drawn = lines(&[line], "x", "y", false, [0.0, 9.0]);
            let page = figure("y", "", &drawn, &[(0, label)], &table(&[], &[]));
            picture_files(&page.into_string(), &[]).remove(0)
        };
        let known = picture("0.5 ± 0.1 … é");
        assert_eq!((known.files().len(), known.note()), (2, None));
        let greek = picture("α = 1");
        let note = greek.note().unwrap();
        assert_eq!(greek.files().len(), 1);
        assert!(note.starts_with("there is no y.pdf: its font, Helvetica, has no `α`"));
    }
}
