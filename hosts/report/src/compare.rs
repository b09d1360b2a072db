//! Comparison of two runs: the differences of their specs, their first divergence, and the gaps of
//! their measurements.

use crate::alone::{WorseThanAlone, is_alone, worse_than_alone};
use crate::read::{Entry, Metric, Run};
use crate::specs::differences;
use crate::text::{measured, number};
use fl_core::ClientId;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// The differences of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    names: [String; 2],
    /// Paths, with the value in each spec.
    pub specs: Vec<(String, [Option<String>; 2])>,
    /// Their first divergence.
    pub parts: Option<FirstDivergence>,
    /// For runs of one spec with different results: in what else they differ, with the value of
    /// each.
    pub reasons: Vec<(String, [String; 2])>,
    /// The number of requests in each journal.
    questions: [usize; 2],
    /// The number of requests without a digest, which follow system noise.
    untold: usize,
    /// Differing measurements.
    pub measured: Vec<LargestGap>,
    /// Measurements of only one run, with its index.
    pub only: Vec<(String, usize)>,
    /// If one of them is a run of `solo`: the clients with worse scores in the other, or why they
    /// cannot be compared.
    pub alone: Option<Result<Vec<WorseThanAlone>, String>>,
    /// The digests of the runs.
    digests: [Option<String>; 2],
    notices: Vec<String>,
}

/// The first divergence of two journals.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstDivergence {
    /// The step in each.
    pub steps: [String; 2],
    /// The exchange in each.
    pub questions: [String; 2],
    /// The position in the journal, from 1.
    pub at: usize,
    /// The difference: the clients, the messages to them, or the best explanation found.
    pub how: String,
}

/// The largest gap of one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct LargestGap {
    /// The name of the measure.
    pub name: String,
    /// The number of steps in which both have it.
    pub both: usize,
    /// The number of steps in which it differs.
    pub differs: usize,
    /// The number of steps in which one run alone has it.
    pub alone: usize,
    /// The largest difference, second minus first, and its step.
    pub largest: (f64, String),
    /// The last value of each.
    pub last: [Option<f64>; 2],
}

/// Compares two runs.
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let specs = differences(&[&a.spec, &b.spec]).into_iter().map(|d| {
        let mut values = d.values.into_iter();
        (d.path, [values.next().flatten(), values.next().flatten()])
    });
    let (measured, only) = measurements(a, b);
    let digest = |run: &Run| run.summary.as_ref().map(|s| s.outcome.digest.clone());
    let notices = [a, b]
        .into_iter()
        .flat_map(|run| run.notices.iter().map(|n| format!("{}: {n}", run.label)));
    let mut all = Comparison {
        reasons: Vec::new(),
        names: [a.label.clone(), b.label.clone()],
        specs: specs.collect(),
        parts: parting(&a.journal, &b.journal),
        questions: [a.journal.len(), b.journal.len()],
        untold: a.journal.iter().filter(|e| e.digest.is_empty()).count(),
        measured,
        only,
        alone: match (is_alone(a), is_alone(b)) {
            (true, false) => Some(worse_than_alone(a, b)),
            (false, true) => Some(worse_than_alone(b, a)),
            _ => None,
        },
        digests: [digest(a), digest(b)],
        notices: notices.collect(),
    };
    if all.specs.is_empty() && !all.alike() {
        all.reasons = a.origin.apart(&b.origin);
    }
    all
}

fn parting(a: &[Entry], b: &[Entry]) -> Option<FirstDivergence> {
    let same = |(a, b): (&Entry, &Entry)| {
        (&a.step, &a.question, &a.digest) == (&b.step, &b.question, &b.digest)
            && a.dropped == b.dropped
    };
    let at = a.iter().zip(b).position(|pair| !same(pair));
    let at = at.or_else(|| (a.len() != b.len()).then_some(a.len().min(b.len())))?;
    let name = |of: fn(&Entry) -> &str| {
        [a, b].map(|all| all.get(at).map_or("nothing more", of).to_string())
    };
    let how = match (a.get(at), b.get(at)) {
        (Some(a), Some(b)) => how(a, b),
        _ => "one run continues, and the other has ended".into(),
    };
    Some(FirstDivergence {
        steps: name(|e| &e.step),
        questions: name(|e| &e.question),
        at: at + 1,
        how,
    })
}

fn how(a: &Entry, b: &Entry) -> String {
    if (&a.step, &a.question) != (&b.step, &b.question) {
        return "the exchange differs".into();
    }
    let answers = |e: &Entry| {
        e.answers
            .iter()
            .cloned()
            .collect::<BTreeMap<ClientId, String>>()
    };
    let (of_a, of_b) = (answers(a), answers(b));
    if of_a.is_empty() || of_b.is_empty() {
        return "the client is unknown: a journal has no digests of single answers if the run has an accountant, or if it asked more than \
                256 clients"
            .into();
    }
    let only = |these: &BTreeMap<ClientId, String>, those: &BTreeMap<ClientId, String>| {
        let ids = these.keys().filter(|id| !those.contains_key(id)).copied();
        ids.collect::<Vec<_>>()
    };
    let (only_a, only_b) = (only(&of_a, &of_b), only(&of_b, &of_a));
    if !only_a.is_empty() || !only_b.is_empty() {
        let sides = [("first", only_a), ("second", only_b)];
        let said = sides.iter().filter(|(_, of)| !of.is_empty());
        let said =
            said.map(|(side, of)| format!("only in the {side} did client {} answer", ids(of)));
        return said.collect::<Vec<_>>().join("; ");
    }
    let other: Vec<ClientId> = of_a
        .iter()
        .filter(|(id, d)| of_b.get(id) != Some(d))
        .map(|(id, _)| *id)
        .collect();
    match other.len() {
        0 => "all answers are alike, but the messages to clients, or the reasons for dropped answers, differ".into(),
        n if n == of_a.len() && n > 1 => format!("the answers of all {n} clients differ, client {} first", other[0]),
        1 => format!("the answer of client {} differs; those of {} others are alike", other[0], of_a.len() - 1),
        n => format!("the answers of {n} of {} clients differ: {}", of_a.len(), ids(&other)),
    }
}

/// Formats `3, 5, 9`, ten at most.
fn ids(all: &[ClientId]) -> String {
    let shown: Vec<String> = all.iter().take(10).map(u32::to_string).collect();
    let more = match all.len().saturating_sub(10) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

fn measurements(a: &Run, b: &Run) -> (Vec<LargestGap>, Vec<(String, usize)>) {
    type Key<'r> = (&'r str, &'r str, u64, usize);
    // several with one name in one step are distinguished by their number
    fn by_key(run: &Run) -> BTreeMap<Key<'_>, &Metric> {
        let mut times: BTreeMap<(&str, &str, u64), usize> = BTreeMap::new();
        let keyed = run.metrics.iter().map(|m| {
            let n = times.entry((&m.name, &m.step, m.round)).or_default();
            *n += 1;
            ((&m.name[..], &m.step[..], m.round, *n), m)
        });
        keyed.collect()
    }
    fn count(of: &BTreeMap<Key<'_>, &Metric>, name: &str) -> usize {
        let all = of.range((name, "", 0, 0)..);
        all.take_while(|(key, _)| key.0 == name).count()
    }

    let (of_a, of_b) = (by_key(a), by_key(b));
    let (last_a, last_b) = (a.last(), b.last());
    fn values<'r>(all: &[&'r Metric]) -> BTreeMap<&'r str, Option<f64>> {
        all.iter().map(|m| (&m.name[..], m.value)).collect()
    }
    let (values_a, values_b) = (values(&last_a), values(&last_b));
    let (mut apart, mut only) = (Vec::new(), Vec::new());
    for metric in &last_a {
        let name = &metric.name[..];
        let Some(last) = values_b.get(name).copied() else {
            only.push((name.to_string(), 0));
            continue;
        };
        let pairs = of_a.range((name, "", 0, 0)..);
        let pairs = pairs
            .take_while(|(key, _)| key.0 == name)
            .filter_map(|(key, m)| Some((*m, *of_b.get(key)?)));
        let pairs: Vec<(&Metric, &Metric)> = pairs.collect();
        let same = |(a, b): &&(&Metric, &Metric)| a.value == b.value && a.each() == b.each();
        let mut largest = (0.0_f64, String::new());
        for (a, b) in &pairs {
            let difference = b.value.unwrap_or(f64::NAN) - a.value.unwrap_or(f64::NAN);
            if difference.abs() > largest.0.abs() {
                largest = (difference, a.step.to_string());
            }
        }
        apart.push(LargestGap {
            name: name.to_string(),
            both: pairs.len(),
            differs: pairs.len() - pairs.iter().filter(same).count(),
            alone: count(&of_a, name) + count(&of_b, name) - 2 * pairs.len(),
            largest,
            last: [metric.value, last],
        });
    }
    only.extend(
        last_b
            .iter()
            .filter(|m| !values_a.contains_key(&m.name[..]))
            .map(|m| (m.name.to_string(), 1)),
    );
    (apart, only)
}

impl Comparison {
    /// Returns whether both have the same requests, answers and measurements, which is possible
    /// with different specs.
    pub fn alike(&self) -> bool {
        let digests = match &self.digests {
            [Some(a), Some(b)] => a == b,
            [a, b] => a.is_some() == b.is_some(),
        };
        let measured = self
            .measured
            .iter()
            .all(|m| m.differs == 0 && m.alone == 0 && m.last[0] == m.last[1]);
        digests
            && self.parts.is_none()
            && measured
            && self.only.is_empty()
            && self.notices.is_empty()
    }

    /// Returns the comparison for programs.
    pub fn json(&self) -> serde_json::Value {
        let measured: Vec<_> = self.measured.iter().map(|m| serde_json::json!({
            "name": m.name, "steps": m.both, "differ": m.differs, "alone": m.alone, "largest": m.largest.0, "at": m.largest.1, "last": m.last,
        })).collect();
        let specs: Vec<_> = self
            .specs
            .iter()
            .map(|(path, of)| serde_json::json!({ "path": path, "values": of }))
            .collect();
        let only: Vec<_> = self
            .only
            .iter()
            .map(|(name, of)| serde_json::json!({ "name": name, "run": self.names[*of] }))
            .collect();
        serde_json::json!({
            "runs": self.names, "alike": self.alike(), "specs": specs, "measured": measured, "only": only, "digests": self.digests,
            "notices": self.notices,
            "alone": self.alone.as_ref().and_then(|of| of.as_ref().ok()).map(|of| of.iter().map(|m| {
                let [rate, size, burden] = m.numbers();
                serde_json::json!({
                    "name": m.name, "clients": m.clients, "worse": m.worse,
                    "rate": rate, "loss": size, "burden": burden,
                })
            }).collect::<Vec<_>>()),
            "reasons": self.reasons.iter().map(|(what, of)| serde_json::json!({ "what": what, "values": of })).collect::<Vec<_>>(),
            "parts": self.parts.as_ref().map(|p| serde_json::json!({
                "question": p.at, "steps": p.steps, "questions": p.questions, "how": p.how,
            })),
        })
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let [a, b] = &self.names;
        writeln!(
            f,
            "{a} and {b}: {}",
            if self.alike() { "alike" } else { "different" }
        )?;
        for notice in &self.notices {
            writeln!(f, "note: {notice}")?;
        }
        writeln!(f, "\nspecs")?;
        if self.specs.is_empty() {
            writeln!(f, "  the same")?;
        }
        let paths = self.specs.iter().map(|(path, _)| path.len());
        let wide = paths.fold(0, usize::max).min(44);
        for (path, [a, b]) in &self.specs {
            let show = |v: &Option<String>| v.clone().unwrap_or("absent".into());
            writeln!(f, "  {path:<wide$}  {} -> {}", show(a), show(b))?;
        }
        writeln!(f, "\nexchanges")?;
        match &self.parts {
            None => {
                let answers = match self.untold {
                    0 => "with the same answers".to_string(),
                    n => format!(
                        "with the same answers except {n} that the journal does not digest: their noise cannot be repeated"
                    ),
                };
                writeln!(f, "  the same {} exchanges, {answers}", self.questions[0])?;
            }
            Some(p) => {
                let both = |[a, b]: &[String; 2]| {
                    if a == b {
                        a.clone()
                    } else {
                        format!("{a} -> {b}")
                    }
                };
                match p.at - 1 {
                    0 => writeln!(f, "  the first exchange differs")?,
                    1 => writeln!(f, "  the first exchange is alike; they differ at")?,
                    n => writeln!(f, "  the first {n} exchanges are alike; they differ at")?,
                }
                writeln!(f, "    step     {}", both(&p.steps))?;
                writeln!(f, "    request  {}", both(&p.questions))?;
                writeln!(f, "    {}", p.how)?;
            }
        }
        for (name, both) in &self.reasons {
            let [a, b] = both.each_ref().map(|value| match &value[..] {
                "" => "none known",
                value => value,
            });
            writeln!(f, "  possible reason: another {name}: {a} -> {b}")?;
        }
        writeln!(f, "\nmeasured")?;
        let names = self.measured.iter().map(|m| m.name.len());
        let wide = names.fold(0, usize::max);
        for m in &self.measured {
            let [first, last] = m.last;
            write!(f, "  {:<wide$}  {}", m.name, measured(first))?;
            if first != last {
                write!(f, " -> {}", measured(last))?;
            }
            match (m.both, m.differs) {
                (0, _) => write!(f, "; no step has it in both runs")?,
                (n, 0) if m.alone > 0 => write!(
                    f,
                    "; the same in {n} steps, and in one run alone in {}",
                    m.alone
                )?,
                (n, 0) => write!(f, "; the same in all {n} steps")?,
                (n, k) if m.largest.1.is_empty() => {
                    write!(f, "; differs in {k} of {n} steps, at single clients")?
                }
                (n, k) => write!(
                    f,
                    "; differs in {k} of {n} steps, most in {}: {}",
                    m.largest.1,
                    number(m.largest.0)
                )?,
            }
            writeln!(f)?;
        }
        for (name, of) in &self.only {
            writeln!(f, "  {name}  only in {}", self.names[*of])?;
        }
        if let Some(alone) = &self.alone {
            writeln!(f, "\nworse than alone")?;
            match alone {
                Err(why) => writeln!(f, "  unknown: {why}")?,
                Ok(of) if of.is_empty() => {
                    writeln!(f, "  unknown: no score of each client in both")?
                }
                Ok(of) => of
                    .iter()
                    .try_for_each(|m| writeln!(f, "  {}  {m}", m.name))?,
            }
        }
        let digest = |of: &Option<String>| of.clone().unwrap_or("not done".into());
        let [a, b] = &self.digests;
        if a == b && a.is_some() {
            write!(f, "\ndigest  {}", digest(a))
        } else {
            write!(f, "\ndigests {}\n        {}", digest(a), digest(b))
        }
    }
}
