//! The pictures of a page as files of their own: SVG for a paper.

use std::fmt::Write;

/// The style sheet of pages, which has the colours.
const STYLE: &str = include_str!("style.css");
/// The height of a line of a legend.
const LINE: f64 = 18.0;

/// Returns the plots of a page that this crate made, each with a name for its file, as SVG that needs no style
/// sheet. The legend is a part of the picture. Maps of counts are left out.
pub fn picture_files(page: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for figure in page.split("<figure>").skip(1) {
        let figure = figure.split("</figure>").next().unwrap_or_default();
        let title = file_name(between(figure, "<h3>", "</h3>").unwrap_or_default());
        let numbers = figure.find("<details").unwrap_or(figure.len());
        let Some(svg) = between(&figure[..numbers], "<svg viewBox=\"", "</svg>") else {
            continue;
        };
        let legend = between(figure, "<ul class=\"legend\">", "</ul>").unwrap_or_default();
        // runs of a comparison have pictures of one name
        if !all.iter().any(|(known, _)| *known == title) {
            all.extend(alone(svg, legend).map(|picture| (title, picture)));
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

/// A picture with its own style and legend.
fn alone(svg: &str, legend: &str) -> Option<String> {
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
        let all = picture_files(&page);
        assert_eq!(all.len(), 1);
        let (title, svg) = &all[0];
        assert_eq!(title, "y-by-x");
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
    }
}
