//! The rows of a plan: for each exchange who is asked how often, and how many bytes cross.

use fl_core::message::ExchangeShape;
use fl_core::{
    BoxedSelector, BuildContext, COUNTS, ClientId, ExchangeSpec, Parts, Protocol, Role, Roster,
    Round, SamplingScheme, Trainer,
};

/// Rounds whose cohorts are drawn to see how large they are.
const DRAWS: usize = 32;

/// How many clients are asked in one round.
#[derive(Clone, Copy, PartialEq)]
pub enum CohortSize {
    /// The same number in every round.
    Fixed(usize),
    /// A random number: the least and the most of the rounds that were drawn.
    Drawn(usize, usize),
    /// The selector must see more than there is before a run.
    Unknown,
}

/// One row of the plan.
pub struct Row {
    pub asked: ExchangeSpec,
    pub cohort: CohortSize,
    /// How they are drawn.
    pub draw: SamplingScheme,
    /// Clients asked each time, at most.
    pub clients: usize,
    /// Bytes to one client, at most.
    pub down: Option<u64>,
    /// Bytes of one answer, at most.
    pub up: Option<u64>,
    /// Samples that it is about, at most.
    pub rows: usize,
    /// Filled slots through which it is released.
    pub releases: Vec<&'static str>,
}

/// The exchanges of a protocol with these parts, for the clients of `roster` and so many `public`
/// samples.
pub fn rows(
    protocol: &dyn Protocol,
    parts: &Parts,
    roster: &Roster,
    public: usize,
    make: &BuildContext,
) -> Vec<Row> {
    let everyone = roster.len();
    let asked = protocol.exchanges().into_iter();
    let asked = asked.filter(|asked| parts.asks(asked, make));
    asked
        .map(|asked| {
            let (params, model) = sizes(parts, asked.model, make);
            let facts = ExchangeShape {
                params,
                rows: match asked.made {
                    true => asked.rows,
                    false => asked.rows.min(public),
                },
                inputs: make.task.width(),
                outputs: make.task.kind.outputs(),
                classes: make.task.kind.classes(),
                model,
            };
            let cohort = match asked.cohort.filter(|slot| parts.has(slot)) {
                Some(slot) => cohort(parts, slot, asked.times, roster, make),
                None => CohortSize::Fixed(everyone),
            };
            // of several voters' messages that travel in one
            let voices = asked.voices as u64;
            let each = |bytes: u64| bytes.saturating_mul(voices);
            let copies = |bytes: u64| bytes.saturating_mul(asked.copies as u64);
            Row {
                cohort,
                draw: draw(parts, asked.cohort, make),
                rows: facts.rows,
                clients: match cohort {
                    CohortSize::Fixed(n) => n,
                    _ => everyone,
                },
                down: asked.request.expected(&facts).map(copies),
                up: asked.answer.expected(&facts).map(each),
                releases: (asked.flow.slots())
                    .chain(
                        parts
                            .sends_class_counts(&asked, make)
                            .then_some(COUNTS.name()),
                    )
                    .filter(|slot| parts.has(slot))
                    .collect(),
                asked,
            }
        })
        .collect()
}

/// How the selector in `slot` draws clients.
fn draw(parts: &Parts, slot: Option<&str>, make: &BuildContext) -> SamplingScheme {
    let Some(slot) = slot.filter(|slot| parts.has(slot)) else {
        return SamplingScheme::Everyone;
    };
    let selector = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, make);
    selector.map_or(SamplingScheme::Unknown, |selector| selector.draw())
}

/// How many clients the selector in `slot` picks: its cohorts are drawn as in a run.
fn cohort(
    parts: &Parts,
    slot: &str,
    times: usize,
    roster: &Roster,
    make: &BuildContext,
) -> CohortSize {
    let selector = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, make);
    let Ok(mut selector) = selector else {
        return CohortSize::Unknown;
    };
    let (mut least, mut most) = (usize::MAX, 0);
    for round in 0..times.clamp(1, DRAWS) {
        let stream = make.stream.child(slot, round as u64);
        let round = Round::first().with_stream(stream);
        // one that asks clients first decides by what they say
        if selector
            .poll(&round, roster)
            .is_ok_and(|poll| poll.is_some())
        {
            return CohortSize::Unknown;
        }
        match selector.select(&round, roster) {
            Ok(picked) => (least, most) = (least.min(picked.len()), most.max(picked.len())),
            Err(_) => return CohortSize::Unknown,
        }
    }
    match least == most {
        true => CohortSize::Fixed(most),
        false => CohortSize::Drawn(least, most),
    }
}

/// One client of each part that fills `slot`; `None` for those that the spec does not name.
pub fn owners(parts: &Parts, slot: &str) -> Vec<Option<ClientId>> {
    let filled = parts.iter().filter(|filled| filled.slot == slot);
    let first = filled.map(|filled| filled.clients.iter().flatten().next());
    first
        .map(|range| range.map(|range| *range.start()))
        .collect()
}

/// The largest model in `slot`: its parameters, and its bytes in its own format. Those of a forest
/// are not known before it has grown.
fn sizes(parts: &Parts, slot: &str, make: &BuildContext) -> (usize, Option<u64>) {
    let (mut params, mut bytes) = (0, parts.has(slot).then_some(0));
    for client in owners(parts, slot) {
        let own = BuildContext {
            task: parts.task(slot, &make.task),
            stream: make.stream.clone(),
        };
        let model = parts.build::<Box<dyn Trainer>>(Role::Trainer, slot, client, &own);
        let mut model = model.ok();
        let count = model.as_mut().and_then(|m| m.parametric());
        let count = count.map(|p| p.params().count());
        params = params.max(count.unwrap_or(0));
        let saved = model.filter(|_| count.is_some());
        let saved = saved.and_then(|m| m.save().ok()).map(|m| m.len() as u64);
        bytes = bytes.zip(saved).map(|(a, b)| a.max(b));
    }
    (params, bytes)
}
