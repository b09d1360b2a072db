//! [`PricedLedger`]: the ledger that all accountants share.

use fl_core::prelude::*;
use fl_core::privacy::{
    Composition, Guarantee, Ledger, Neighbours, Noise, Relation, Unit, ratio_up,
};
use fl_core::{ClientId, Problem};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The price of one event.
#[derive(Clone)]
pub struct Price<C> {
    /// The cost, in the accountant's own form.
    pub cost: C,
    /// The unit that the release protects.
    pub unit: Unit,
    /// Whether the cost depends on the data.
    pub data_dependent: bool,
}

impl<C> Price<C> {
    /// Returns a cost that does not depend on the data.
    pub fn fixed(cost: C, unit: Unit) -> Self {
        Self {
            cost,
            unit,
            data_dependent: false,
        }
    }

    /// Converts the cost to another form.
    pub fn map<D>(self, f: impl FnOnce(C) -> D) -> Price<D> {
        Price {
            cost: f(self.cost),
            unit: self.unit,
            data_dependent: self.data_dependent,
        }
    }
}

/// How an accountant computes costs from events and an epsilon from costs.
pub trait Pricing: Send + 'static {
    /// The costs that are added.
    type Cost: Clone + Default + Send;

    /// Returns the price of one event.
    ///
    /// # Errors
    /// [`Problem::Unpriced`] if it has none here.
    fn price(&self, event: &PrivacyEvent) -> Result<Price<Self::Cost>>;

    /// Adds a cost on the same data. A sum of decimals is rounded up (`plus`).
    fn add(sum: &mut Self::Cost, more: &Self::Cost);

    /// Returns the epsilon of `cost`, 0 for none, and the delta of the guarantee; that is a setting of
    /// most accountants, computed by some.
    fn spent(&self, cost: &Self::Cost) -> (f64, f64);
}

/// A ledger with prices. Costs of one client's releases add, of clients with disjoint data the
/// largest counts (parallel composition), and the server's releases add to that.
pub struct PricedLedger<P: Pricing> {
    pricing: P,
    server: P::Cost,
    clients: BTreeMap<ClientId, P::Cost>,
    unit: Option<Unit>,
    relation: Relation,
    data_dependent: bool,
    /// The event that was priced last. It is quoted before it is charged, and often repeats.
    last: Mutex<Option<(PrivacyEvent, Price<P::Cost>)>>,
}

impl<P: Pricing> From<P> for PricedLedger<P> {
    fn from(pricing: P) -> Self {
        Self {
            pricing,
            server: P::Cost::default(),
            clients: BTreeMap::new(),
            unit: None,
            relation: Relation::of_nothing(),
            data_dependent: false,
            last: Mutex::new(None),
        }
    }
}

impl<P: Pricing> PricedLedger<P> {
    /// Returns the price of an event after others that protect `before`.
    fn quote(&self, event: &PrivacyEvent, before: Option<Unit>) -> Result<Price<P::Cost>> {
        if let PrivacyEvent::Unaccounted { why } | PrivacyEvent::Undrawn { why } = event {
            bail!(Problem::Unpriced(format!(
                "no guarantee can be given: {why}"
            )));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let price = match &*last {
            Some((known, price)) if known == event => price.clone(),
            _ => match event {
                PrivacyEvent::Repeated { times, event } => {
                    let one = self.pricing.price(event)?;
                    one.map(|cost| multiple::<P>(cost, *times))
                }
                _ => self.pricing.price(event)?,
            },
        };
        if let Some(before) = before.filter(|before| *before != price.unit) {
            bail!(Problem::Unpriced(format!(
                "guarantees for one {} and for one {} do not add up",
                price.unit, before
            )));
        }
        *last = Some((event.clone(), price.clone()));
        Ok(price)
    }

    /// Returns the pairs of data sets that all prices and those of these events cover.
    fn neighbours<'e>(
        &self,
        unit: Option<Unit>,
        events: impl IntoIterator<Item = &'e PrivacyEvent>,
    ) -> Result<Neighbours> {
        let all = events.into_iter().fold(self.relation, Relation::with);
        let pairs = all.neighbours(unit.unwrap_or(Unit::Example));
        pairs.ok_or_else(|| Problem::Unpriced(Neighbours::DO_NOT_ADD_UP.into()).into())
    }

    fn enter(&mut self, client: Option<ClientId>, event: &PrivacyEvent, price: &Price<P::Cost>) {
        self.unit = Some(price.unit);
        self.relation = self.relation.with(event);
        self.data_dependent |= price.data_dependent;
        let sum = match client {
            Some(id) => self.clients.entry(id).or_default(),
            None => &mut self.server,
        };
        P::add(sum, &price.cost);
    }
}

impl<P: Pricing> Accountant for PricedLedger<P> {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        let price = self.quote(event, self.unit)?;
        self.neighbours(Some(price.unit), [event])?;
        self.enter(None, event, &price);
        Ok(())
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        let quoted = next.map(|e| self.quote(e, self.unit)).transpose()?;
        let unit = quoted.as_ref().map(|n| n.unit).or(self.unit);
        let neighbours = self.neighbours(unit, next)?;
        let next = quoted;
        let mut server = self.server.clone();
        if let Some(next) = &next {
            P::add(&mut server, &next.cost);
        }
        let with = |client: &P::Cost| {
            let mut both = server.clone();
            P::add(&mut both, client);
            self.pricing.spent(&both)
        };
        let all = self.clients.values().map(with);
        let (epsilon, delta) = all.fold(self.pricing.spent(&server), |(e, d), (f, g)| {
            (f64::max(e, f), f64::max(d, g))
        });
        Ok(Guarantee {
            epsilon,
            delta,
            unit: unit.unwrap_or(Unit::Example),
            neighbours,
            data_dependent: self.data_dependent || next.is_some_and(|n| n.data_dependent),
            noise: Noise::Seeded,
            after_split: false,
            finest_split: false,
            claimed_by: Vec::new(),
        })
    }

    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()> {
        // all or nothing: a refused ledger charges none of its events
        let (mut unit, mut prices) = (self.unit, Vec::new());
        for ledger in ledgers {
            let client = ledger.client.filter(|_| how == Composition::Parallel);
            for event in &ledger.events {
                let price = self.quote(event, unit)?;
                unit = Some(price.unit);
                prices.push((client, event, price));
            }
        }
        self.neighbours(unit, ledgers.iter().flat_map(|ledger| &ledger.events))?;
        prices
            .iter()
            .for_each(|(client, event, price)| self.enter(*client, event, price));
        Ok(())
    }
}

/// Returns `a + b`, rounded up: the sum of many releases must not lose what each rounds off.
pub(crate) fn plus(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // what rounding took from the sum, exactly (Knuth's two-sum)
    let of_b = sum - a;
    let lost = (a - (sum - of_b)) + (b - of_b);
    if lost > 0.0 { sum.next_up() } else { sum }
}

/// Returns `k` costs of `x` each, rounded up.
pub(crate) fn scaled(k: f64, x: f64) -> f64 {
    let product = k * x;
    if libm::fma(k, x, -product) > 0.0 {
        product.next_up()
    } else {
        product
    }
}

/// Multiplies a cost by doubling.
fn multiple<P: Pricing>(mut cost: P::Cost, mut times: usize) -> P::Cost {
    let mut sum = P::Cost::default();
    while times > 0 {
        if times % 2 == 1 {
            P::add(&mut sum, &cost);
        }
        times /= 2;
        if times > 0 {
            let same = cost.clone();
            P::add(&mut cost, &same);
        }
    }
    sum
}

/// Returns the refusal of an accountant that has no price for an event.
pub(crate) fn unpriced<T>(accountant: &str, prices: &str, event: &PrivacyEvent) -> Result<T> {
    bail!(Problem::Unpriced(format!(
        "`{accountant}` has no price for {event}; it prices {prices}"
    )))
}

/// Returns `sensitivity / scale`, rounded up, or refuses invalid numbers.
pub(crate) fn ratio(event: &PrivacyEvent, sensitivity: f64, scale: f64) -> Result<f64> {
    let sound = sensitivity >= 0.0 && sensitivity.is_finite() && scale > 0.0 && scale.is_finite();
    ensure!(
        sound,
        Problem::Unpriced(format!(
            "{event} makes no sense: the sensitivity must be finite and at least 0, the noise finite and above 0"
        ))
    );
    Ok(ratio_up(sensitivity, scale))
}
