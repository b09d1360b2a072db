//! Plots as SVG. Colours, fonts and dashes are classes of the page's style sheet: `s0` to `s7` are
//! the palette and `d0` to `d2` the dashes, so that lines differ without colour too.

use crate::text::{measured, tick};
use maud::{Markup, html};

/// The number of distinguishable lines.
pub(crate) const STYLES: usize = 24;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

/// More points than this only increase the size of the page.
const POINTS: usize = 800;
/// The most points that get a mark.
const MARKED: usize = 60;
/// The most lines whose bands are areas: areas of more lines would hide each other.
const AREAS: usize = 2;
/// The most points that get a bar for their band where areas would hide each other.
const BARRED: usize = 24;
/// From one bar to the next, and from the first to the last, in pixels.
const BESIDE: f64 = 3.0;
const ROOM: f64 = 24.0;

/// Returns the class of line number `at`.
pub(crate) fn style(at: usize) -> String {
    format!("s{} d{}", at % 8, at / 8 % 3)
}

/// A point of a line.
pub(crate) struct Dot {
    pub x: f64,
    pub y: f64,
    /// Half the height of the band around it.
    pub spread: f64,
    /// Its tooltip.
    pub title: String,
}

/// A line, optionally with a band.
pub(crate) struct Line {
    pub label: String,
    /// The index of its style.
    pub style: usize,
    pub dots: Vec<Dot>,
}

impl Line {
    /// Returns the line of those of `points` that [`shown`] names.
    pub fn of<T>(label: &str, style: usize, points: &[T], dot: impl Fn(&T) -> Dot) -> Self {
        Self {
            label: label.into(),
            style,
            dots: shown(points.len()).map(|at| dot(&points[at])).collect(),
        }
    }
}

/// Returns the style and the label of each line.
pub(crate) fn legend(lines: &[Line]) -> Vec<(usize, &str)> {
    lines.iter().map(|l| (l.style, l.label.as_str())).collect()
}

/// Returns whether every line keeps one value, so that a picture shows nothing.
pub(crate) fn are_flat(all: &[Line]) -> bool {
    let flat = |line: &Line| {
        let mut values = line.dots.iter().map(|d| (d.y, d.spread));
        let first = values.next();
        values.all(|value| Some(value) == first)
    };
    all.iter().all(flat)
}

/// One axis of a plot.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Whether all values are whole numbers.
    whole: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Returns an axis that contains all `values`, from pixel `from` to pixel `to`. With `log` it
    /// is logarithmic if the values suggest it.
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64, log: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut whole = true;
        for value in values.filter(|v| v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
            whole &= value.fract() == 0.0;
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let log = log && low > 0.0 && high / low >= 20.0;
        if !log && low == high {
            let margin = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low, high) = (low - margin, high + margin);
        }
        Self {
            low,
            high,
            log,
            whole,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            libm::log(value / self.low) / libm::log(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Returns the positions of its ticks.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (
                libm::log10(self.low).ceil() as i32,
                libm::log10(self.high).floor() as i32,
            );
            let every = ((high - low) / 5 + 1).max(1) as usize;
            // few powers of ten leave room for marks between them
            let steps: &[f64] = match high - low {
                ..2 => &[1.0, 2.0, 5.0],
                2 => &[1.0, 3.0],
                _ => &[1.0],
            };
            let powers = (low - 1..=high).filter(|n| (n - low).rem_euclid(every as i32) == 0);
            let marks = powers.flat_map(|n| steps.iter().map(move |step| step * 10_f64.powi(n)));
            // a mark at the end is not lost to rounding
            let within = |mark: &f64| (self.low..=self.high * (1.0 + 1e-9)).contains(mark);
            return marks.filter(within).collect();
        }
        // no ticks between rounds
        let least = if self.whole { 1.0 } else { 0.0 };
        let rough = ((self.high - self.low) / 7.0).max(least);
        let power = libm::pow(10_f64, libm::log10(rough).floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = step.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last.min(first.saturating_add(20)))
            .map(|n| n as f64 * step)
            .collect()
    }
}

/// Returns the indices of those of `count` points that a line shows: evenly spaced, and the last.
pub(crate) fn shown(count: usize) -> impl Iterator<Item = usize> {
    let every = count.div_ceil(POINTS).max(1);
    let last = count.checked_sub(1).filter(|last| last % every != 0);
    (0..count).step_by(every).chain(last)
}

/// Returns the least and the largest value that a measure of this name can have, times `scale`.
pub(crate) fn range(name: &str, scale: f64) -> [f64; 2] {
    const SHARES: [&str; 12] = [
        "accuracy",
        "auc",
        "mauc",
        "dice",
        "iou",
        "aji",
        "f1",
        "precision",
        "recall",
        "ssim",
        "specificity",
        "kept",
    ];
    let names = name.split(" or ");
    let mut last = names.map(|name| name.rsplit('.').next().unwrap_or(name));
    if last.all(|name| SHARES.contains(&name)) && scale > 0.0 {
        [0.0, scale]
    } else {
        [f64::NEG_INFINITY, f64::INFINITY]
    }
}

/// Returns whether the values of a measure of this name lie between 0 and 1.
pub(crate) fn is_share(name: &str) -> bool {
    range(name, 1.0)[0] == 0.0
}

/// Returns what the bands of these lines mean; empty if none is drawn. `over` names what spreads.
pub(crate) fn bands(all: &[Line], over: &str) -> String {
    if all.iter().flat_map(|l| &l.dots).any(|d| d.spread > 0.0) {
        format!(
            "{} are one standard deviation over {over}, within the range of the measure.",
            match spreads(all) {
                Spreads::Areas => "Bands",
                Spreads::Bars => "Bars",
                Spreads::Edges => "Thin lines",
            }
        )
    } else {
        String::new()
    }
}

/// How the bands of a plot are drawn.
#[derive(Clone, Copy, PartialEq)]
enum Spreads {
    Areas,
    /// A bar at each point, those of one place side by side.
    Bars,
    /// Two thin lines.
    Edges,
}

fn spreads(all: &[Line]) -> Spreads {
    let spread = all.iter().filter(|l| l.dots.iter().any(|d| d.spread > 0.0));
    let most = all.iter().map(|l| l.dots.len()).max().unwrap_or(0);
    match (spread.count(), most) {
        (..=AREAS, _) => Spreads::Areas,
        (_, ..=BARRED) => Spreads::Bars,
        _ => Spreads::Edges,
    }
}

/// Draws lines over `x`; with `log`, `x` may be logarithmic. Bands stay within the range of the
/// measure, and above 0 if all values are.
pub(crate) fn lines(all: &[Line], x: &str, y: &str, log: bool, range: [f64; 2]) -> Markup {
    let dots = || {
        all.iter()
            .flat_map(|line| &line.dots)
            .filter(|d| d.y.is_finite())
    };
    let how = spreads(all);
    // points with bars at one place stand side by side
    let aside = |at: usize| match how {
        Spreads::Bars => {
            let others = (all.len() - 1) as f64;
            BESIDE.min(ROOM / others) * (at as f64 - others / 2.0)
        }
        _ => 0.0,
    };
    let margin = 6.0 + aside(all.len().saturating_sub(1));
    let (from, to) = (LEFT + margin, WIDTH - RIGHT - margin);
    let across = Scale::of(dots().map(|d| d.x), from, to, log);
    let [least, most] = range;
    let least = if dots().all(|d| d.y >= 0.0) {
        least.max(0.0)
    } else {
        least
    };
    let ends = |d: &Dot| {
        let (below, above) = (d.y - d.spread, d.y + d.spread);
        // a value beyond the range is drawn as it is
        [below.max(least.min(d.y)), above.min(most.max(d.y))]
    };
    let up = Scale::of(
        dots().flat_map(ends),
        HEIGHT - BOTTOM - 4.0,
        TOP + 4.0,
        false,
    );
    let place = |line: usize, d: &Dot| (across.at(d.x) + aside(line), up.at(d.y));
    let title = format!("{y} by {x}");
    // a share times 100
    let unit = if most == 100.0 { " (%)" } else { "" };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(title) {
            (axes(Some(&across), &up, x, &format!("{y}{unit}")))
            @for (at, line) in all.iter().enumerate() {
                g class=(style(line.style)) {
                    @for part in pieces(&line.dots) {
                        @if part.iter().any(|d| d.spread > 0.0) {
                            @match how {
                                Spreads::Areas => path class="band" d=(band(part, &across, &up, &ends)) {},
                                Spreads::Edges => path class="edge" d=(band(part, &across, &up, &ends)) {},
                                Spreads::Bars => {
                                    @for dot in part.iter().filter(|d| d.spread > 0.0) {
                                        @let (x, [low, high]) = (px(place(at, dot).0), ends(dot));
                                        line class="spread" x1=(x) x2=(x) y1=(px(up.at(low))) y2=(px(up.at(high))) {}
                                    }
                                }
                            }
                        }
                        polyline class="line" points=(path(part.iter().map(|dot| place(at, dot)))) {
                            title { (line.label) }
                        }
                    }
                    @let marks = line.dots.iter().filter(|d| d.y.is_finite());
                    @for dot in marks.filter(|_| line.dots.len() <= MARKED) {
                        @let (cx, cy) = place(at, dot);
                        circle class="dot" cx=(px(cx)) cy=(px(cy)) r="3" { title { (dot.title) } }
                    }
                }
            }
        }
    }
}

/// Splits a line at values that are not finite.
fn pieces(dots: &[Dot]) -> Vec<&[Dot]> {
    let parts = dots.split(|d| !d.y.is_finite());
    let parts = parts.filter(|part| !part.is_empty());
    parts.collect()
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    points
        .map(|(x, y)| format!("{},{}", px(x), px(y)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn band(part: &[Dot], across: &Scale, up: &Scale, ends: &dyn Fn(&Dot) -> [f64; 2]) -> String {
    let above = part.iter().map(|d| (across.at(d.x), up.at(ends(d)[1])));
    let below = part.iter().rev();
    let below = below.map(|d| (across.at(d.x), up.at(ends(d)[0])));
    format!("M{}Z", path(above.chain(below)))
}

fn axes(across: Option<&Scale>, up: &Scale, x: &str, y: &str) -> Markup {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    html! {
        @for value in up.ticks() {
            @let at = up.at(value);
            line class="grid" x1=(LEFT) x2=(right) y1=(px(at)) y2=(px(at)) {}
            text class="tick" x=(LEFT - 6.0) y=(px(at + 4.0)) text-anchor="end" { (tick(value)) }
        }
        @for (at, value) in across.into_iter().flat_map(|s| s.ticks().into_iter().map(|v| (s.at(v), v))) {
            line class="grid" x1=(px(at)) x2=(px(at)) y1=(TOP) y2=(bottom) {}
            text class="tick" x=(px(at)) y=(bottom + 15.0) text-anchor="middle" { (tick(value)) }
        }
        line class="axis" x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
        line class="axis" x1=(LEFT) x2=(LEFT) y1=(TOP) y2=(bottom) {}
        text class="name" x=((LEFT + right) / 2.0) y=(HEIGHT - 6.0) text-anchor="middle" { (x) }
        text class="name" x="12" y=((TOP + bottom) / 2.0) text-anchor="middle"
            transform={ "rotate(-90 12 " ((TOP + bottom) / 2.0) ")" } { (y) }
    }
}

/// Bars of one style, one at each name.
pub(crate) struct Bars<'a> {
    /// What tooltips say after the name; empty for bars of one style.
    pub label: &'a str,
    pub values: Vec<Option<f64>>,
    /// Where a line stands.
    pub mean: Option<f64>,
}

/// Draws the bars of each name side by side, and a line at each mean.
pub(crate) fn bars(names: &[&str], all: &[Bars<'_>], x: &str, y: &str) -> Markup {
    let values = all
        .iter()
        .flat_map(|bars| bars.values.iter().copied().chain([bars.mean]));
    let values = values.flatten().chain([0.0]);
    let up = Scale::of(values, HEIGHT - BOTTOM, TOP + 4.0, false);
    let step = (WIDTH - LEFT - RIGHT) / names.len().max(1) as f64;
    let width = step * 0.8 / all.len().max(1) as f64;
    let named = names.len().div_ceil(24).max(1);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (y) " by " (x) } {
            (axes(None, &up, x, y))
            @for (at, name) in names.iter().enumerate() {
                @let left = LEFT + step * (at as f64 + 0.1);
                @for (style, bars) in all.iter().enumerate() {
                    @let value = bars.values.get(at).copied().flatten();
                    @if let Some(value) = value.filter(|v| v.is_finite()) {
                        @let (top, base) = (up.at(value.max(0.0)), up.at(value.min(0.0)));
                        rect class={ "bar s" (style) } x=(px(left + width * style as f64)) y=(px(top)) width=(px(width)) height=(px((base - top).max(0.5))) {
                            title { (x) " " (name) @if !bars.label.is_empty() { ", " (bars.label) } ": " (measured(Some(value))) }
                        }
                    }
                }
                @if at % named == 0 {
                    text class="tick" x=(px(left + step * 0.4)) y=(HEIGHT - BOTTOM + 15.0) text-anchor="middle" { (name) }
                }
            }
            @for mean in all.iter().filter_map(|bars| bars.mean).filter(|m| m.is_finite()) {
                @let at = px(up.at(mean));
                line class="mean" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(at) y2=(at) { title { "mean" } }
            }
        }
    }
}

/// Counts as shades: `rows` down, `columns` across. With `by_row` the darkest shade is a row's
/// largest count.
pub(crate) struct Heat<'a> {
    pub rows: &'a [String],
    pub columns: &'a [String],
    pub counts: &'a dyn Fn(usize, usize) -> u64,
    pub down: &'a str,
    pub across: &'a str,
    pub by_row: bool,
}

impl Heat<'_> {
    /// Draws the plot.
    pub fn draw(&self) -> Markup {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        let cell = (720.0 / columns.max(1) as f64).clamp(7.0, 44.0);
        let high = cell
            .min((720.0 / rows.max(1) as f64).clamp(12.0, 28.0))
            .max(12.0);
        let names = self.rows.iter().map(|r| r.chars().count());
        let names = names.fold(0, usize::max);
        let left = 30.0 + 7.0 * names.min(16) as f64;
        let (width, height) = (
            left + cell * columns as f64 + 8.0,
            38.0 + high * rows as f64,
        );
        let counts = |row: usize| (0..columns).map(move |c| (self.counts)(row, c));
        let largest = |row: usize| counts(row).fold(0, u64::max);
        let all = (0..rows).map(largest).max().unwrap_or(0);
        let named = (columns as f64 * 22.0 / (cell * columns.max(1) as f64))
            .ceil()
            .max(1.0) as usize;
        html! {
            svg.heat viewBox={ "0 0 " (px(width)) " " (px(height)) } style={ "width:" (px(width)) "px" } role="img"
                aria-label={ (self.down) " by " (self.across) } {
                @for (r, row) in self.rows.iter().enumerate() {
                    @let y = high * r as f64;
                    @let most = if self.by_row { largest(r) } else { all };
                    text class="tick" x=(px(left - 5.0)) y=(px(y + high / 2.0 + 4.0)) text-anchor="end" { (short(row)) }
                    @for (c, column) in self.columns.iter().enumerate() {
                        @let count = (self.counts)(r, c);
                        @let shade = if most == 0 { 0.0 } else { (count as f64 / most as f64).sqrt() };
                        @let x = left + cell * c as f64;
                        rect class="cell" x=(px(x)) y=(px(y)) width=(px(cell - 1.0)) height=(px(high - 1.0))
                            fill-opacity=(format!("{shade:.2}")) {
                            title { (self.down) " " (row) ", " (self.across) " " (column) ": " (count) }
                        }
                        @if cell >= 7.0 * count.to_string().len() as f64 + 3.0 {
                            text class=(if shade > 0.6 { "on" } else { "off" }) x=(px(x + cell / 2.0 - 0.5))
                                y=(px(y + high / 2.0 + 4.0)) text-anchor="middle" { (count) }
                        }
                    }
                }
                @for (c, column) in self.columns.iter().enumerate().step_by(named) {
                    text class="tick" x=(px(left + cell * (c as f64 + 0.5))) y=(px(high * rows as f64 + 14.0)) text-anchor="middle" {
                        (short(column))
                    }
                }
                text class="name" x=(px(left + cell * columns as f64 / 2.0)) y=(px(height - 6.0)) text-anchor="middle" { (self.across) }
                text class="name" x="11" y=(px(high * rows as f64 / 2.0)) text-anchor="middle"
                    transform={ "rotate(-90 11 " (px(high * rows as f64 / 2.0)) ")" } { (self.down) }
            }
        }
    }
}

fn short(name: &str) -> String {
    match name.chars().count() {
        0..=16 => name.into(),
        _ => name.chars().take(15).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_marks_and_bears_anything() {
        let of = |values: &[f64], log| Scale::of(values.iter().copied(), 0.0, 100.0, log);
        assert_eq!(
            of(&[0.13, 0.87], false).ticks(),
            [0.2, 0.4, 0.6000000000000001, 0.8]
        );
        assert_eq!(of(&[1.0, 5000.0], true).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        // rounds
        assert_eq!(of(&[1.0, 2.0, 3.0], false).ticks(), [1.0, 2.0, 3.0]);
        assert_eq!(of(&[4.0], false).ticks(), [4.0]);
        for odd in [
            &[][..],
            &[3.0],
            &[0.0, 0.0],
            &[f64::NAN, f64::INFINITY],
            &[-1e300, 1e300],
            &[1e-320, 1e-310],
        ] {
            for log in [false, true] {
                let scale = of(odd, log);
                assert!(scale.ticks().len() <= 21, "{odd:?}");
            }
        }
    }

    #[test]
    fn exact_spread_values_have_a_logarithmic_axis_with_several_marks() {
        let of = |values: &[f64]| Scale::of(values.iter().copied(), 0.0, 100.0, true).ticks();
        assert_eq!(
            of(&[0.1, 1.0, 10.0]),
            [0.1, 0.30000000000000004, 1.0, 3.0, 10.0]
        );
        assert_eq!(of(&[0.1, 0.5, 5.0]), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(of(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn bands_of_many_lines_are_bars_side_by_side() {
        let drawn = |lines_of: usize, points: usize| {
            let dot = |x: usize| Dot {
                x: x as f64,
                y: 0.5,
                spread: 0.1,
                title: String::new(),
            };
            let line = |style: usize| Line {
                label: "a".into(),
                style,
                dots: (0..points).map(dot).collect(),
            };
            let all: Vec<Line> = (0..lines_of).map(line).collect();
            let about = bands(&all, "seeds");
            (
                lines(&all, "x", "y", false, [0.0, 1.0]).into_string(),
                about,
            )
        };
        let (areas, about) = drawn(2, 4);
        assert_eq!(areas.matches("class=\"band\"").count(), 2);
        assert!(about.starts_with("Bands are"), "{about}");
        let (bars, about) = drawn(3, 4);
        assert_eq!(bars.matches("class=\"spread\"").count(), 12);
        assert!(
            !bars.contains("class=\"band\"") && about.starts_with("Bars are"),
            "{about}"
        );
        let places = bars.split("class=\"spread\" x1=\"").skip(1);
        let places: std::collections::BTreeSet<&str> =
            places.map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(places.len(), 12, "no bar hides another");
        let (edges, about) = drawn(3, 40);
        assert_eq!(edges.matches("class=\"edge\"").count(), 3);
        assert!(about.starts_with("Thin lines are"), "{about}");
    }

    #[test]
    fn what_is_not_finite_parts_a_line() {
        let dot = |x: f64, y: f64| Dot {
            x,
            y,
            spread: 0.0,
            title: String::new(),
        };
        let line = Line {
            label: "<b>".into(),
            style: 9,
            dots: vec![
                dot(1.0, 0.5),
                dot(2.0, f64::NAN),
                dot(3.0, 0.7),
                dot(4.0, 0.8),
            ],
        };
        let all = [f64::NEG_INFINITY, f64::INFINITY];
        let drawn = lines(&[line], "round", "accuracy", false, all).into_string();
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert_eq!(drawn.matches("<circle").count(), 3);
        assert!(drawn.contains("class=\"s1 d1\"") && drawn.contains("&lt;b&gt;"));
        assert!(!drawn.contains("NaN") && !drawn.contains("<b>"));
    }

    #[test]
    fn exact_a_band_keeps_to_the_range_of_the_measure() {
        let line = |y: f64, spread: f64| Line {
            label: "a".into(),
            style: 0,
            dots: [1.0, 2.0]
                .map(|x| Dot {
                    x,
                    y,
                    spread,
                    title: String::new(),
                })
                .into(),
        };
        let ticks = |name: &str, scale: f64, y: f64, spread: f64| -> Vec<f64> {
            let drawn = lines(&[line(y, spread)], "round", name, false, range(name, scale));
            let drawn = drawn.into_string();
            let texts = drawn.split("text-anchor=\"end\">").skip(1);
            let texts = texts.map(|t| t.split('<').next().unwrap_or_default().parse().unwrap());
            texts.collect()
        };
        let within = |ticks: Vec<f64>, low: f64, high: f64| {
            assert!(ticks.iter().all(|t| (low..=high).contains(t)), "{ticks:?}");
        };
        within(ticks("accuracy", 100.0, 8.0, 20.0), 0.0, 100.0);
        within(
            ticks("clients.accuracy or accuracy", 1.0, 0.9, 0.3),
            0.0,
            1.0,
        );
        within(ticks("loss", 1.0, 0.5, 2.0), 0.0, 3.0);
        assert!(
            ticks("attack.shift", 1.0, -0.5, 2.0)
                .iter()
                .any(|t| *t < -1.0)
        );
    }
}
