//! [`Plan`]: what a run will exchange and release, as far as it is known before.

use crate::planned_exchange::{PlannedCohort, PlannedExchange};
use crate::planned_releases::{PlannedReleases, least_epsilon, planned};
use fl_core::message::{ExchangeShape, MessageType};
use fl_core::privacy::{Guarantee, Observer, Unit, UnpricedDisclosures, UpperBound, short};
use fl_core::{
    Accountant, BoxedSelector, BuildContext, COUNTS, Candidate, ClientId, Parts, Pool, Role,
    Roster, SamplingScheme, SlotSpec, Trainer, parameters_in,
};
use fl_data::{Assembled, DataSpec, Split};
use fl_registry::Spec;
use std::ops::RangeInclusive;

/// What a run will exchange and release.
pub struct Plan {
    /// The number of clients that take part.
    pub everyone: usize,
    /// The number of their examples; 0 if only nodes know it.
    pub examples: usize,
    /// The number of public samples.
    pub public: usize,
    /// All exchanges.
    pub exchanges: Vec<PlannedExchange>,
    /// What observers will see without a price; empty without an accountant.
    pub exposed: UnpricedDisclosures,
    /// The largest guarantee against each observer that sees nothing without a price; `None` where
    /// only the run can tell.
    pub reached: Vec<(Observer, Option<Guarantee>)>,
    /// That the budget does not cover the first release, if that is sure.
    pub above_budget: Option<String>,
    /// The releases, at most.
    pub(crate) releases: PlannedReleases,
    /// The libraries that a guarantee rests on.
    pub(crate) claimed_by: Vec<String>,
    /// Whether the protocol pools the data of all clients.
    pub(crate) pools: bool,
}

impl Plan {
    /// Plans a run of a spec on its data.
    ///
    /// # Errors
    /// If the protocol cannot be made.
    pub fn new(spec: &Spec<DataSpec>, data: &Assembled) -> anyhow::Result<Self> {
        let make = spec.part_context(&data.task);
        let protocol = spec.make_protocol(&make)?;
        let owners = data.clients.iter().enumerate();
        // what is at nodes is not known here
        let at_nodes = matches!(spec.data.split(), Split::Own);
        let accounts = spec.parts.has("accountant");
        let owners = owners.filter(|(_, own)| at_nodes || accounts || !own.is_empty());
        let mut roster: Vec<(ClientId, usize)> = owners
            .map(|(id, own)| (id as ClientId, own.len()))
            .collect();
        if protocol.pools_data() {
            roster = vec![(0, roster.iter().map(|(_, n)| n).sum())];
        }
        let everyone = roster.len();
        let examples = roster.iter().map(|(_, n)| n).sum();
        let pool: Vec<Candidate> = roster.iter().map(|(id, _)| Candidate::new(*id)).collect();
        let public = data.public.as_ref().map_or(0, |p| p.samples.len());
        let outputs = data.task.kind.outputs();
        let parts = &spec.parts.in_slots(protocol.slots());
        // what a filter of samples leaves out, a bit mask tells
        let filters = |slot: &SlotSpec| {
            let of_samples = slot.role == Role::Selector && slot.signature != Roster::NAME;
            of_samples && parts.has(slot.name)
        };
        let filtered = protocol.slots().iter().any(filters);
        let mask = |of: &MessageType, rows: usize| {
            let keyed = filtered && of.columns.iter().any(|column| column.name == "rows");
            if keyed { rows.div_ceil(8) as u64 } else { 0 }
        };
        let asked = protocol.exchanges().into_iter();
        let asked = asked.filter(|asked| parts.asks(asked, &make));
        let exchanges: Vec<PlannedExchange> = asked
            .map(|asked| {
                let (params, model) = sizes(parts, (asked.model, &asked.shares), &make);
                let facts = ExchangeShape {
                    params,
                    rows: if asked.made {
                        asked.rows
                    } else {
                        asked.rows.min(public)
                    },
                    inputs: data.task.width(),
                    outputs,
                    classes: data.task.kind.classes(),
                    model,
                };
                let cohort = match asked.cohort.filter(|slot| parts.has(slot)) {
                    Some(slot) => {
                        let sizes = parts.cohort_sizes(slot, asked.times, &pool, &make);
                        match sizes.map(RangeInclusive::into_inner) {
                            None => PlannedCohort::Unknown,
                            Some((least, most)) if least == most => PlannedCohort::Fixed(most),
                            Some((least, most)) => PlannedCohort::Drawn(least, most),
                        }
                    }
                    None => PlannedCohort::Fixed(everyone),
                };
                // of several voters' messages that travel in one
                let voices = asked.voices as u64;
                let [down, up] = [asked.request, asked.answer].map(|of| mask(of, facts.rows));
                let each = |bytes: u64| bytes.saturating_mul(voices).saturating_add(up);
                let copies = asked.copies as u64;
                let copies = |bytes: u64| bytes.saturating_mul(copies).saturating_add(down);
                PlannedExchange {
                    cohort,
                    draw: draw(parts, asked.cohort, &make),
                    rows: facts.rows,
                    clients: match cohort {
                        PlannedCohort::Fixed(n) => n,
                        _ => everyone,
                    },
                    down: asked.request.expected(&facts).map(copies),
                    up: asked.answer.expected(&facts).map(each),
                    releases: (asked.flow.slots())
                        .chain(
                            parts
                                .sends_class_counts(&asked, &make)
                                .then_some(COUNTS.name()),
                        )
                        .filter(|slot| parts.has(slot))
                        .collect(),
                    asked,
                }
            })
            .collect();
        let mut exposed = fl_core::exposed(protocol.as_ref(), parts, &make, &spec.faults);
        for what in &data.inferred {
            exposed.add(&Observer::ALL, what);
        }
        let relied_on = exchanges.iter().flat_map(|row| row.asked.relied_on());
        let claimed_by = parts.claimed_by(&relied_on.collect::<Vec<_>>());
        let mut releases = PlannedReleases::default();
        let mut reached = Vec::new();
        if accounts {
            releases = planned(parts, &exchanges, everyone, &spec.faults, &make);
            releases.inherit(&data.inherited);
            let open = Observer::ALL.into_iter();
            for observer in open.filter(|observer| exposed.to(*observer).is_empty()) {
                let accountant: fl_core::Result<Box<dyn Accountant>> =
                    parts.build(Role::Accountant, "accountant", None, &make);
                let guarantee = accountant.ok().and_then(|a| releases.price(a, observer));
                let told = |guarantee| Guarantee {
                    noise: spec.noise,
                    after_split: spec.data.deals(),
                    claimed_by: claimed_by.clone(),
                    ..guarantee
                };
                reached.push((observer, guarantee.map(told)));
            }
        } else {
            exposed = UnpricedDisclosures::default();
        }
        let budget = spec.budget.as_ref().filter(|_| accounts);
        let above_budget = budget.and_then(|budget| {
            let least = least_epsilon(parts, &exchanges, everyone, &make, budget.against)?;
            (!budget.allows(least)).then(|| {
                format!(
                    "the cheapest first release has an epsilon of {}, and the budget is {}: the run stops before it releases anything; raise the budget, or add noise",
                    UpperBound(least),
                    budget.epsilon
                )
            })
        });
        if let Some(twice) = &data.twice {
            let of_example =
                |g: &Option<Guarantee>| g.as_ref().is_none_or(|g| g.unit == Unit::Example);
            for (observer, _) in reached.extract_if(.., |(_, g)| of_example(g)) {
                exposed.add(&[observer], twice);
            }
        }
        Ok(Self {
            everyone,
            examples,
            public,
            exchanges,
            exposed,
            reached,
            above_budget,
            releases,
            claimed_by,
            pools: protocol.pools_data(),
        })
    }

    /// Says that a guarantee's delta would let a run publish what it protects, if that is so: to
    /// give away one of n examples at random has an epsilon of 0 and a delta of 1/n.
    pub fn large_delta(&self) -> Option<String> {
        let guarantees = self.reached.iter().filter_map(|(_, found)| found.as_ref());
        let of = |guarantee: &Guarantee| match guarantee.unit {
            Unit::Example => (guarantee.delta, self.examples, guarantee.unit, "examples"),
            Unit::Party => (guarantee.delta, self.everyone, guarantee.unit, "clients"),
        };
        let times = |(delta, n, ..): &(f64, usize, Unit, &str)| delta * *n as f64;
        let largest = guarantees
            .map(of)
            .max_by(|a, b| times(a).total_cmp(&times(b)));
        let (delta, n, unit, units) = largest?;
        (n > 0 && delta * n as f64 >= 1.0).then(|| {
            format!(
                "delta {} is not below one in {n} {units}, and a run that published one {unit} drawn at random would keep it: a delta far below {:.0e} says more",
                short(delta), 1.0 / n as f64
            )
        })
    }
}

/// How the selector in `slot` draws clients.
fn draw(parts: &Parts, slot: Option<&str>, make: &BuildContext) -> SamplingScheme {
    let Some(slot) = slot.filter(|slot| parts.has(slot)) else {
        return SamplingScheme::Everyone;
    };
    let selector = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, make);
    selector.map_or(SamplingScheme::Unknown, |selector| selector.draw())
}

/// One client of each part that fills `slot`; `None` for those that the spec does not name.
fn owners(parts: &Parts, slot: &str) -> Vec<Option<ClientId>> {
    let filled = parts.iter().filter(|filled| filled.slot == slot);
    let first = filled.map(|filled| filled.clients.iter().flatten().next());
    first
        .map(|range| range.map(|range| *range.start()))
        .collect()
}

/// The largest model in `slot`: its parameters in the groups `shares`, and its bytes in its own
/// format. Those of a forest are not known before it has grown.
fn sizes(
    parts: &Parts,
    (slot, shares): (&str, &[String]),
    make: &BuildContext,
) -> (usize, Option<u64>) {
    let (mut params, mut bytes) = (0, parts.has(slot).then_some(0));
    for client in owners(parts, slot) {
        let own = BuildContext::new(parts.task(slot, &make.task), make.stream.clone());
        let model = parts.build::<Box<dyn Trainer>>(Role::Trainer, slot, client, &own);
        let mut model = model.ok();
        let count = model.as_mut().and_then(|m| m.parametric());
        let count = count.map(|model| match parameters_in(shares, model) {
            Ok(shared) if !shares.is_empty() => model.params().only(&shared).count(),
            _ => model.params().count(),
        });
        params = params.max(count.unwrap_or(0));
        let saved = model.filter(|_| count.is_some());
        let saved = saved.and_then(|m| m.save().ok()).map(|m| m.len() as u64);
        bytes = bytes.zip(saved).map(|(a, b)| a.max(b));
    }
    (params, bytes)
}
