//! Where two answers differ, tensor by tensor, and how far.

use crate::file::{Bounds, Case, Tolerance};
use fl_core::message::{Dtype, message_type};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The differences of two answers.
#[derive(Default)]
pub struct Differences {
    /// One for each tensor or value.
    pub lines: Vec<String>,
    /// Are all of them numbers that are nearly equal, as another machine's may be?
    pub rounding: bool,
}

/// Compares an answer with the expected one, as the case says.
pub fn compare(case: &Case, expected: &Json, found: &Json) -> Differences {
    let mut walk = Walk::new(case);
    walk.rounds(expected, found);
    for path in walk.unused() {
        walk.differ(format!("tolerance: the answer has no `{path}`"));
    }
    walk.out
}

/// Numbers at paths that are not within their bounds.
pub fn outside(case: &Case, found: &Json) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, bounds) in &case.within.0 {
        for (round, answer) in rounds_of(found) {
            let below = path.split('.').try_fold(answer, |at, key| at.get(key));
            match below {
                Some(found) => out_of(&format!("{round}{path}"), found, *bounds, &mut lines),
                None => lines.push(format!("{round}{path}: {}", no_such_value(answer, path))),
            }
        }
    }
    lines
}

/// What the answer has where the path leaves it.
fn no_such_value(answer: &Json, path: &str) -> String {
    let mut place = answer;
    for key in path.split('.') {
        match place.get(key) {
            Some(below) => place = below,
            None => break,
        }
    }
    let known = place.as_object().into_iter().flat_map(Map::keys);
    let known: Vec<&str> = known.map(String::as_str).collect();
    if known.is_empty() {
        "the answer has no such value".into()
    } else {
        format!(
            "the answer has no such value; there are {}",
            known.join(", ")
        )
    }
}

/// The answer of each round with its name, or the only one.
fn rounds_of(answer: &Json) -> Vec<(String, &Json)> {
    match answer.get("rounds").and_then(Json::as_array) {
        Some(rounds) => {
            let rounds = rounds.iter().enumerate();
            let named = rounds.map(|(at, answer)| (format!("round {}, ", at + 1), answer));
            named.collect()
        }
        None => vec![(String::new(), answer)],
    }
}

fn out_of(path: &str, found: &Json, bounds: Bounds, lines: &mut Vec<String>) {
    if let Json::Object(map) = found {
        for (key, value) in map {
            out_of(&format!("{path}.{key}"), value, bounds, lines);
        }
        return;
    }
    let Bounds { low, high } = bounds;
    let mut all = Vec::new();
    leaves(found, &mut Vec::new(), &mut all);
    let far = |leaf: &Json| match number(leaf) {
        Some(x) if x >= low && x <= high => 0.0,
        Some(x) if x.is_finite() => (low - x).max(x - high),
        _ => f64::INFINITY,
    };
    let wrong = all.iter().filter(|(_, leaf)| far(leaf) > 0.0);
    let worst = wrong.clone().max_by(|a, b| far(a.1).total_cmp(&far(b.1)));
    if let Some((at, leaf)) = worst {
        let count = counted(wrong.count(), all.len(), "outside");
        let at = place(at);
        lines.push(format!(
            "{path}: {count} [{low}, {high}]; worst{at}: {leaf}"
        ));
    }
}

/// `3 of 40 numbers differ`.
fn counted(n: usize, of: usize, what: &str) -> String {
    match (n, what) {
        (1, "differ") => format!("1 of {of} numbers differs"),
        (1, _) => format!("1 of {of} numbers is {what}"),
        (_, "differ") => format!("{n} of {of} numbers differ"),
        _ => format!("{n} of {of} numbers are {what}"),
    }
}

/// ` at [1, 4]`; nothing for a number that stands alone.
fn place(at: &[usize]) -> String {
    match at {
        [] => String::new(),
        at => format!(" at {at:?}"),
    }
}

fn number(leaf: &Json) -> Option<f64> {
    match leaf {
        Json::Number(n) => n.as_f64(),
        Json::String(word) => match word.as_str() {
            "nan" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Every leaf of nested lists, with its index.
fn leaves<'j>(value: &'j Json, at: &mut Vec<usize>, all: &mut Vec<(Vec<usize>, &'j Json)>) {
    match value {
        Json::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                at.push(position);
                leaves(item, at, all);
                at.pop();
            }
        }
        leaf => all.push((at.clone(), leaf)),
    }
}

/// The shape of a number, or of nested lists of numbers; `None` for anything else.
fn shape(value: &Json) -> Option<Vec<usize>> {
    let Json::Array(items) = value else {
        return number(value).map(|_| Vec::new());
    };
    let mut inner: Option<Vec<usize>> = None;
    for item in items {
        let of_item = shape(item)?;
        if *inner.get_or_insert_with(|| of_item.clone()) != of_item {
            return None;
        }
    }
    let mut all = vec![items.len()];
    all.extend(inner.unwrap_or_default());
    Some(all)
}

struct Walk<'c> {
    close: Option<f64>,
    tolerances: &'c BTreeMap<String, Tolerance>,
    /// By path: has it met a value?
    met: BTreeMap<&'c str, bool>,
    round: String,
    out: Differences,
}

impl<'c> Walk<'c> {
    fn new(case: &'c Case) -> Self {
        let tolerances = &case.tolerance.0;
        Self {
            close: case.close,
            tolerances,
            met: tolerances.keys().map(|path| (&**path, false)).collect(),
            round: String::new(),
            out: Differences {
                lines: Vec::new(),
                rounding: true,
            },
        }
    }

    fn unused(&self) -> Vec<&'c str> {
        let unused = self.met.iter().filter(|(_, met)| !**met);
        unused.map(|(path, _)| *path).collect()
    }

    fn differ(&mut self, line: String) {
        self.out.rounding = false;
        self.out.lines.push(format!("{}{line}", self.round));
    }

    fn rounds(&mut self, expected: &Json, found: &Json) {
        let (a, b) = (rounds_of(expected), rounds_of(found));
        if a.len() != b.len() || a[0].0.is_empty() != b[0].0.is_empty() {
            let count = |all: &[(String, &Json)]| match &all[0] {
                (name, _) if name.is_empty() => "one answer".to_string(),
                _ => format!("{} rounds", all.len()),
            };
            return self.differ(format!("expected {}, found {}", count(&a), count(&b)));
        }
        for ((round, a), (_, b)) in a.into_iter().zip(b) {
            self.round = round;
            self.walk("", a, b, &Width::of(b));
        }
        self.round = String::new();
    }

    /// The tolerance of the longest path that leads here.
    fn tolerance(&mut self, path: &str) -> Option<&'c Tolerance> {
        let leads = |of: &&String| match path.strip_prefix(of.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        };
        let longest = self
            .tolerances
            .keys()
            .filter(leads)
            .max_by_key(|p| p.len())?;
        self.met.insert(longest, true);
        self.tolerances.get(longest)
    }

    fn walk(&mut self, path: &str, expected: &Json, found: &Json, width: &Width<'_>) {
        match (expected, found) {
            (Json::Object(a), Json::Object(b)) => self.maps(path, a, b, width),
            (a, b) if shape(a).is_some() && shape(b).is_some() => self.tensors(path, a, b, width),
            (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
                if a.iter().chain(b).all(Json::is_string) {
                    return self.texts(path, a, b);
                }
                for (at, (a, b)) in a.iter().zip(b).enumerate() {
                    self.walk(&format!("{path}[{at}]"), a, b, width);
                }
            }
            (a, b) if a == b => {}
            (a, b) => self.differ(format!("{path}: expected {}, found {}", brief(a), brief(b))),
        }
    }

    fn maps(
        &mut self,
        path: &str,
        expected: &Map<String, Json>,
        found: &Map<String, Json>,
        width: &Width<'_>,
    ) {
        let dot = if path.is_empty() { "" } else { "." };
        for (key, a) in expected {
            let path = format!("{path}{dot}{key}");
            match found.get(key) {
                Some(b) => self.walk(&path, a, b, width),
                None => self.differ(format!("{path}: expected, and not in the answer")),
            }
        }
        for key in found.keys().filter(|key| !expected.contains_key(*key)) {
            self.differ(format!("{path}{dot}{key}: in the answer, and not expected"));
        }
    }

    fn texts(&mut self, path: &str, expected: &[Json], found: &[Json]) {
        let pairs = expected.iter().zip(found).enumerate();
        let mut wrong = pairs.filter(|(_, (a, b))| a != b);
        if let Some((at, (a, b))) = wrong.next() {
            let (n, of) = (wrong.count() + 1, expected.len());
            let verb = if n == 1 { "differs" } else { "differ" };
            self.differ(format!(
                "{path}: {n} of {of} {verb}; the first is [{at}]: expected {a}, found {b}"
            ));
        }
    }

    fn tensors(&mut self, path: &str, expected: &Json, found: &Json, width: &Width<'_>) {
        let tolerance = self.tolerance(path);
        let (a, b) = (shape(expected), shape(found));
        if a != b {
            let [a, b] = [a, b].map(|shape| shape.unwrap_or_default());
            return self.differ(format!("{path}: expected shape {a:?}, found {b:?}"));
        }
        let (mut old, mut new) = (Vec::new(), Vec::new());
        leaves(expected, &mut Vec::new(), &mut old);
        leaves(found, &mut Vec::new(), &mut new);
        let double = width.double(path);
        let pairs = old.iter().zip(&new).map(|((at, a), (_, b))| Pair {
            at,
            texts: [a, b],
            numbers: [a, b].map(|leaf| number(leaf).unwrap_or(f64::NAN)),
            double,
        });
        let wrong: Vec<Pair<'_>> = pairs
            .filter(|pair| !pair.fits(tolerance, self.close))
            .collect();
        let Some(worst) = wrong
            .iter()
            .max_by(|a, b| a.distance().total_cmp(&b.distance()))
        else {
            return;
        };
        let rounding = wrong.iter().all(Pair::is_rounding);
        let shown = match worst.at {
            [] => format!("{path}: {worst}"),
            at => {
                let count = counted(wrong.len(), old.len(), "differ");
                format!("{path}: {count}; worst{}: {worst}", place(at))
            }
        };
        self.out.rounding &= rounding;
        self.out.lines.push(format!("{}{shown}", self.round));
    }
}

/// A value in one line, shortened.
fn brief(value: &Json) -> String {
    shortened(&value.to_string(), 100, "...")
}

/// At most `wide` characters of a text, with `end` in place of more.
pub(crate) fn shortened(text: &str, wide: usize, end: &str) -> String {
    match text.chars().count() {
        n if n > wide => {
            let kept = text.chars().take(wide - end.len());
            kept.chain(end.chars()).collect()
        }
        _ => text.into(),
    }
}

/// The types of an answer's floats.
struct Width<'j> {
    kind: Option<&'j str>,
}

impl<'j> Width<'j> {
    fn of(answer: &'j Json) -> Self {
        Self {
            kind: answer.get("kind").and_then(Json::as_str),
        }
    }

    /// Are the numbers at this path doubles?
    fn double(&self, path: &str) -> bool {
        let mut words = path.splitn(2, '.');
        let name = match (words.next(), words.next()) {
            (Some("scores" | "samples" | "parameters"), _) => return false,
            (Some("tensors" | "bounded"), Some(name)) => name,
            _ => return true,
        };
        let columns = self.kind.and_then(message_type).map(|of| of.columns);
        let named = |of: &str| columns.into_iter().flatten().find(|c| c.name == of);
        let column = named(name).or_else(|| named("*"));
        column.is_some_and(|column| column.dtype != Dtype::F32)
    }
}

/// An expected number and the one that was found.
struct Pair<'j> {
    at: &'j [usize],
    texts: [&'j Json; 2],
    numbers: [f64; 2],
    double: bool,
}

impl Pair<'_> {
    fn fits(&self, tolerance: Option<&Tolerance>, close: Option<f64>) -> bool {
        let [x, y] = self.numbers;
        if x == y || (x.is_nan() && y.is_nan()) {
            return true; // 2 and 2.0 are one number
        }
        let apart = (x - y).abs();
        match tolerance {
            Some(limit) => {
                limit.abs.is_some_and(|abs| apart <= abs)
                    || limit.rel.is_some_and(|rel| apart <= rel * x.abs())
                    || limit.ulp.is_some_and(|ulp| self.ulps() <= ulp)
            }
            None => close.is_some_and(|close| self.close(close)),
        }
    }

    fn close(&self, close: f64) -> bool {
        let [x, y] = self.numbers;
        (x - y).abs() <= close * (1.0 + x.abs().max(y.abs()))
    }

    fn is_rounding(&self) -> bool {
        self.close(1e-5)
    }

    fn distance(&self) -> f64 {
        let [x, y] = self.numbers;
        let apart = (x - y).abs();
        if apart.is_nan() { f64::INFINITY } else { apart }
    }

    /// Steps from one number to the other.
    fn ulps(&self) -> u64 {
        // integers in the order of the floats
        let order = |bits: i64| if bits < 0 { i64::MIN - bits } else { bits };
        let [x, y] = self.numbers.map(|x| {
            if self.double {
                order(x.to_bits() as i64)
            } else {
                order(i64::from((x as f32).to_bits() as i32) << 32) >> 32
            }
        });
        if self.numbers.iter().any(|x| x.is_nan()) {
            u64::MAX
        } else {
            x.abs_diff(y)
        }
    }
}

impl std::fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [expected, found] = self.texts;
        write!(f, "expected {expected}, found {found}")?;
        let apart = self.distance();
        if apart.is_finite() {
            let relative = short(apart / self.numbers[0].abs());
            let apart = short(apart);
            write!(
                f,
                ", {apart} apart (relative {relative}, {} ulp)",
                self.ulps()
            )?;
        }
        Ok(())
    }
}

/// Three digits.
fn short(x: f64) -> String {
    let text = format!("{x:.2e}");
    match x.is_finite() && (x == 0.0 || (1e-3..1e6).contains(&x)) {
        true => text.parse::<f64>().unwrap_or(x).to_string(),
        false if x.is_finite() => text,
        false => "infinite".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::Setting;
    use serde_json::json;

    fn lines(case: &str, expected: Json, found: Json) -> Vec<String> {
        let case = format!("{{ name: a, part: aggregator mean, {case} }}");
        let case = serde_yaml::from_str(&case).unwrap();
        let case = Case::read(&case, &mut fl_core::settings::Reader::default()).unwrap();
        compare(&case, &expected, &found).lines
    }

    fn params(w: Json) -> Json {
        json!({ "kind": "params", "tensors": { "w": w } })
    }

    #[test]
    fn exact_a_path_that_no_answer_has_names_what_is_there() {
        let answer = json!({ "metrics": { "accuracy": 1.0, "auc": 0.5 } });
        let due = "the answer has no such value; there are accuracy, auc";
        assert_eq!(no_such_value(&answer, "metrics.acuracy"), due);
        let due = "the answer has no such value";
        assert_eq!(no_such_value(&answer, "metrics.auc.mean"), due);
    }

    #[test]
    fn exact_steps_between_floats_are_counted_in_the_type_of_the_tensor() {
        let next = f32::from_bits(1.0_f32.to_bits() + 3).to_string();
        let next: Json = serde_json::from_str(&next).unwrap();
        for (ulp, fine) in [(2, false), (3, true)] {
            let tolerance = format!("tolerance: {{ tensors.w: {{ ulp: {ulp} }} }}");
            let found = lines(&tolerance, params(json!([1])), params(json!([next])));
            assert_eq!(found.is_empty(), fine, "{found:?}");
        }
        let double = f64::from_bits(2.0_f64.to_bits() - 5);
        let tolerance = "tolerance: { loss: { ulp: 5 } }";
        let [a, b] = [2.0, double].map(|loss| json!({ "loss": loss }));
        assert_eq!(lines(tolerance, a.clone(), b.clone()), Vec::<String>::new());
        let tolerance = "tolerance: { loss: { ulp: 4 } }";
        let found = lines(tolerance, a, b);
        assert!(found[0].ends_with("5 ulp)"), "{found:?}");
        // from one side of zero to the other
        let (a, b) = (params(json!([-1e-45])), params(json!([1e-45])));
        let found = lines("close: 0", a, b);
        assert!(found[0].ends_with("2 ulp)"), "{found:?}");
    }

    #[test]
    fn a_difference_names_the_tensor_and_its_worst_number() {
        let a = params(json!([[1, 2, 3], [4, 5, 6]]));
        let b = params(json!([[1, 2.5, 3], [4, 5, 7.5]]));
        assert_eq!(
            lines("close: 0.01", a.clone(), b),
            [
                "tensors.w: 2 of 6 numbers differ; worst at [1, 2]: expected 6, found 7.5, 1.5 apart (relative 0.25, 3145728 ulp)"
            ]
        );
        let wide = params(json!([[1, 2], [4, 5]]));
        assert_eq!(
            lines("close: 0.01", a.clone(), wide),
            ["tensors.w: expected shape [2, 3], found [2, 2]"]
        );
        let nan = params(json!([[1, "nan", 3], [4, 5, 100]]));
        let found = lines("close: 0.01", a.clone(), nan.clone());
        assert!(
            found[0].contains(r#"worst at [0, 1]: expected 2, found "nan""#),
            "{found:?}"
        );
        assert_eq!(lines("close: 0", nan.clone(), nan), Vec::<String>::new());
        let other = json!({ "kind": "params", "tensors": { "v": [1] } });
        assert_eq!(
            lines("close: 0", a, other),
            [
                "tensors.w: expected, and not in the answer",
                "tensors.v: in the answer, and not expected"
            ]
        );
    }

    #[test]
    fn rounds_are_compared_one_by_one_and_their_number_counts() {
        let rounds = |of: &[f64]| {
            let all: Vec<Json> = of.iter().map(|w| params(json!([w]))).collect();
            json!({ "rounds": all })
        };
        let found = lines(
            "close: 0",
            rounds(&[1.0, 2.0, 3.0]),
            rounds(&[1.0, 2.0, 4.0]),
        );
        assert!(found[0].starts_with("round 3, tensors.w: "), "{found:?}");
        assert_eq!(
            lines("close: 0", rounds(&[1.0, 2.0]), rounds(&[1.0])),
            ["expected 2 rounds, found 1 rounds"]
        );
        assert_eq!(
            lines("close: 0", params(json!([1])), rounds(&[1.0])),
            ["expected one answer, found 1 rounds"]
        );
    }
}
