//! A picture file as PDF, drawn from its SVG by the rules of the style sheet inside it, so that
//! both look alike. Text is in Helvetica, which every reader of PDF has.

use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, Str};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;

/// A pixel of CSS in points.
const POINTS: f32 = 0.75;
/// A quarter of a circle of radius 1 as a Bézier curve: how far its handles are from its ends.
const HANDLE: f32 = 0.552_284_8;
const FONT: Name = Name(b"F");

/// Returns a picture of [`super::picture_files`] as a PDF of one page and of the same size.
///
/// # Errors
/// The character of a text that Helvetica, or XML, does not have.
pub(crate) fn pdf(svg: &str) -> Result<Vec<u8>, char> {
    let beyond_xml = |c: &char| {
        (c.is_control() && !"\t\n\r".contains(*c)) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if let Some(c) = svg.chars().find(beyond_xml) {
        return Err(c);
    }
    let document = Document::parse(svg).expect("this crate made the picture");
    let root = document.root_element();
    let mut canvas = Canvas {
        rules: rules(&document),
        content: Content::new(),
        opacities: BTreeMap::new(),
    };
    let (width, height) = (number(root, "width"), number(root, "height"));
    let up = [POINTS, 0.0, 0.0, -POINTS, 0.0, height * POINTS];
    canvas.content.transform(up);
    canvas.content.set_line_cap(LineCapStyle::ButtCap);
    canvas.content.set_line_join(LineJoinStyle::MiterJoin);
    for node in document.descendants().filter(Node::is_element) {
        canvas.draw(node)?;
    }

    let [catalog, pages, page, font, content] = [1, 2, 3, 4, 5].map(Ref::new);
    let mut file = Pdf::new();
    file.catalog(catalog).pages(pages);
    file.pages(pages).kids([page]).count(1);
    let mut only = file.page(page);
    only.media_box(Rect::new(0.0, 0.0, width * POINTS, height * POINTS));
    only.parent(pages).contents(content);
    let mut resources = only.resources();
    resources.fonts().pair(FONT, font);
    let mut states = resources.ext_g_states();
    for (name, opacity) in &canvas.opacities {
        let mut state = states
            .insert(Name(name.as_bytes()))
            .start::<pdf_writer::writers::ExtGraphicsState>();
        state.stroking_alpha(*opacity).non_stroking_alpha(*opacity);
    }
    states.finish();
    resources.finish();
    only.finish();
    file.type1_font(font)
        .base_font(Name(b"Helvetica"))
        .encoding_predefined(Name(b"WinAnsiEncoding"));
    file.stream(content, &canvas.content.finish());
    Ok(file.finish())
}

/// A selector and a property with its value. The selector is a list: the last names the element,
/// and those before it elements around it. Each is a tag or several classes.
type Rule<'t> = (Vec<&'t str>, &'t str, &'t str);

/// Returns the rules of a picture's style sheet, in its order.
fn rules<'t>(document: &'t Document) -> Vec<Rule<'t>> {
    let style = document.descendants().find(|n| n.has_tag_name("style"));
    let text = style.and_then(|style| style.text()).unwrap_or_default();
    let blocks = text
        .split('}')
        .filter_map(|block| block.trim().split_once('{'));
    let each = blocks.flat_map(|(selectors, properties)| {
        let properties = || properties.split(';').filter_map(|of| of.split_once(':'));
        selectors.split(',').flat_map(move |selector| {
            properties().map(move |(key, value)| (selector.split(' ').collect(), key, value))
        })
    });
    each.collect()
}

/// Returns whether a part of a selector, such as `text` or `.bar.s0`, names this element.
fn is_named(node: Node, part: &str) -> bool {
    let classes = node.attribute("class").unwrap_or_default();
    let mut parts = part.split('.');
    let tag = parts.next().unwrap_or_default();
    (tag.is_empty() || node.has_tag_name(tag))
        && parts.all(|class| classes.split(' ').any(|of| of == class))
}

fn number(node: Node, name: &str) -> f32 {
    let text = node.attribute(name).unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Returns the points `x,y x,y ..`.
fn points(text: &str) -> impl Iterator<Item = (f32, f32)> {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once(','));
    pairs.filter_map(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)))
}

struct Canvas<'t> {
    rules: Vec<Rule<'t>>,
    content: Content,
    /// The opacities in use, by the names of their states.
    opacities: BTreeMap<String, f32>,
}

impl<'t> Canvas<'t> {
    /// Returns a property of an element: of the rules that name it, the last one's.
    fn style(&self, node: Node, key: &str) -> Option<&'t str> {
        let names = |parts: &[&str]| {
            let (last, around) = parts.split_last()?;
            let within = |part: &&str| node.ancestors().skip(1).any(|n| is_named(n, part));
            (is_named(node, last) && around.iter().all(within)).then_some(())
        };
        let rules = self.rules.iter().rev();
        let mut found = rules.filter(|(parts, of, _)| *of == key && names(parts).is_some());
        found.next().map(|(_, _, value)| *value)
    }

    fn colour(&self, node: Node, key: &str) -> Option<[f32; 3]> {
        let text = self.style(node, key)?.strip_prefix('#')?;
        let digits: Vec<f32> = text
            .chars()
            .filter_map(|c| Some(c.to_digit(16)? as f32))
            .collect();
        match digits[..] {
            [r, g, b] => Some([r, g, b].map(|of| of / 15.0)),
            [a, b, c, d, e, f] => {
                Some([(a, b), (c, d), (e, f)].map(|(h, l)| (16.0 * h + l) / 255.0))
            }
            _ => None,
        }
    }

    fn draw(&mut self, node: Node) -> Result<(), char> {
        let number = |name| number(node, name);
        self.content.save_state();
        match node.tag_name().name() {
            "text" => self.text(node)?,
            "line" => {
                self.content.move_to(number("x1"), number("y1"));
                self.content.line_to(number("x2"), number("y2"));
                self.paint(node);
            }
            "rect" => {
                let (x, y) = (number("x"), number("y"));
                self.content.rect(x, y, number("width"), number("height"));
                self.paint(node);
            }
            "circle" => {
                let (x, y, r) = (number("cx"), number("cy"), number("r"));
                let h = r * HANDLE;
                let to = &mut self.content;
                to.move_to(x + r, y);
                to.cubic_to(x + r, y + h, x + h, y + r, x, y + r);
                to.cubic_to(x - h, y + r, x - r, y + h, x - r, y);
                to.cubic_to(x - r, y - h, x - h, y - r, x, y - r);
                to.cubic_to(x + h, y - r, x + r, y - h, x + r, y);
                self.paint(node);
            }
            "polyline" => {
                self.path(node.attribute("points").unwrap_or_default());
                self.paint(node);
            }
            "path" => {
                let text = node.attribute("d").unwrap_or_default();
                self.path(text.trim_start_matches('M').trim_end_matches('Z'));
                self.content.close_path();
                self.paint(node);
            }
            // groups and titles draw nothing themselves
            _ => {}
        }
        self.content.restore_state();
        Ok(())
    }

    fn path(&mut self, text: &str) {
        for (at, (x, y)) in points(text).enumerate() {
            match at {
                0 => self.content.move_to(x, y),
                _ => self.content.line_to(x, y),
            };
        }
    }

    /// Fills and strokes the path as the rules say.
    fn paint(&mut self, node: Node) {
        if let Some(opacity) = self.style(node, "opacity") {
            let name = format!("O{opacity}");
            self.content.set_parameters(Name(name.as_bytes()));
            let value = opacity.parse().unwrap_or(1.0);
            self.opacities.insert(name, value);
        }
        let width = self.style(node, "stroke-width");
        let width = width.and_then(|text| text.parse().ok()).unwrap_or(1.0);
        self.content.set_line_width(width);
        if let Some(dashes) = self.style(node, "stroke-dasharray") {
            let dashes = dashes
                .split(' ')
                .filter_map(|text| text.parse::<f32>().ok());
            self.content.set_dash_pattern(dashes, 0.0);
        }
        let paints = [self.colour(node, "fill"), self.colour(node, "stroke")];
        if let [Some([r, g, b]), _] = paints {
            self.content.set_fill_rgb(r, g, b);
        }
        if let [_, Some([r, g, b])] = paints {
            self.content.set_stroke_rgb(r, g, b);
        }
        match paints {
            [Some(_), Some(_)] => self.content.fill_nonzero_and_stroke(),
            [Some(_), None] => self.content.fill_nonzero(),
            [None, Some(_)] => self.content.stroke(),
            [None, None] => self.content.end_path(),
        };
    }

    fn text(&mut self, node: Node) -> Result<(), char> {
        let text = node.text().unwrap_or_default();
        let text: Vec<u8> = text.chars().map(code).collect::<Result<_, _>>()?;
        let font = self.style(node, "font").unwrap_or_default();
        let size = font.split("px").next().and_then(|text| text.parse().ok());
        let size: f32 = size.unwrap_or(12.0);
        let wide: f32 = text.iter().map(|code| width(*code)).sum::<f32>() * size / 1000.0;
        let left = match node.attribute("text-anchor") {
            Some("end") => wide,
            Some("middle") => wide / 2.0,
            _ => 0.0,
        };
        if let Some([r, g, b]) = self.colour(node, "fill") {
            self.content.set_fill_rgb(r, g, b);
        }
        let (x, y) = (number(node, "x"), number(node, "y"));
        // the y axis of a page goes down, that of letters up
        let place = match node.attribute("transform") {
            // all names of upward axes are turned about their own place
            Some(_) => [0.0, -1.0, -1.0, 0.0, x, y + left],
            None => [1.0, 0.0, 0.0, -1.0, x - left, y],
        };
        self.content.begin_text().set_font(FONT, size);
        self.content.set_text_matrix(place).show(Str(&text));
        self.content.end_text();
        Ok(())
    }
}

/// Returns the code of a character in WinAnsi, or the character if it has none.
fn code(of: char) -> Result<u8, char> {
    Ok(match of {
        ' '..='~' | '\u{a0}'..='\u{ff}' => of as u8,
        '…' => 0x85,
        '‘' => 0x91,
        '’' => 0x92,
        '“' => 0x93,
        '”' => 0x94,
        '–' => 0x96,
        '—' => 0x97,
        _ => return Err(of),
    })
}

/// Returns the width of a character of Helvetica in thousandths of its size (Adobe's metrics of the
/// font; letters with accents count as a mean letter).
fn width(code: u8) -> f32 {
    const WIDTHS: [u16; 95] = [
        278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556,
        556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722,
        722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722,
        667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556,
        556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,
        500, 334, 260, 334, 584,
    ];
    let at = usize::from(code).checked_sub(32);
    f32::from(at.and_then(|at| WIDTHS.get(at)).copied().unwrap_or(556))
}
