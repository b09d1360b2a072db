//! [`NodeData`]: a node with its own data, and its [`Policy`].

use crate::node_state::Sum;
use crate::policy::wanted;
use crate::wire::RequestKind;
use anyhow::{Error, bail, ensure};
use fl_core::privacy::{Noise, Observer};
use fl_core::settings::{above, between};
use fl_core::{
    BuildContext, COUNTS, Examples, Labels, Parts, Problem, Protocol, RequiredInputs, Result,
};
use fl_privacy::NodeLedger;
use sha2::{Digest, Sha256};

fl_core::settings! {
    /// The limits of a node, for any request of a leader.
    pub struct Policy {
        /// Largest epsilon of all its releases together, by the accountant of the spec. The node
        /// takes no part if a spec has no accountant, draws its noise from its seed, or shows the
        /// server something without a price.
        epsilon: Option<f64> = None, in above(0.0);
        /// The delta of that epsilon; a run with a smaller delta is held to its own.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// Kinds of messages that may leave, such as `params` or `logits`. Also `score` and
        /// `model`, for measurements of its own model and the model as a result, and `notes`, for
        /// the log of its parts. If not given, all but `notes`.
        may_leave: Option<Vec<String>> = None;
    }
}

impl Policy {
    /// The words that `may-leave` accepts besides kinds of messages.
    pub const WORDS: [&'static str; 3] = ["score", "model", "notes"];
}

/// The additional inputs of a node with its own data.
pub struct NodeData {
    /// Its limits.
    pub policy: Policy,
    /// Why its data do not fit the spec, if so; for their owner.
    pub unfit: Option<String>,
    /// Called with errors, which stay with the data.
    pub tell: Box<dyn FnMut(&str) + Send>,
}

impl NodeData {
    /// Checks that the node can take part. `tests` tells whether it has test rows of its own.
    /// Returns why its answers have no price, if so.
    ///
    /// # Errors
    /// If its data do not fit, or its budget cannot be kept with such a spec.
    pub(crate) fn takes_part(
        &self,
        protocol: &dyn Protocol,
        parts: &Parts,
        context: &BuildContext,
        (noise, tests): (Noise, bool),
    ) -> Result<Option<String>> {
        ensure!(
            self.unfit.is_none(),
            "its own data do not fit the spec; its node's log says why"
        );
        ensure!(
            !protocol.pools_data(),
            "the protocol pools the data of all clients, and the data of this node stay here"
        );
        // whatever the server does about a node that fails, it sees that the node failed
        let faults = fl_core::settings::defaults();
        let seen = fl_core::exposed(protocol, parts, context, &faults);
        let slots = protocol.slots();
        let (seen, shown) = (
            seen.to(Observer::Server),
            slots.iter().find(|slot| slot.shown),
        );
        let why = match shown {
            // refused now, and not at the request: by then other answers have been paid
            Some(slot) => format!(
                "the clients' own models (`{}`) are measured, and that has no price (set `evaluate-clients: false`, if the protocol has that)",
                slot.name
            ),
            _ if !seen.is_empty() => {
                format!("the server sees something without a price: {}", seen.join("; "))
            }
            _ if tests => {
                "models are measured on its own test rows, and that has no price; leave out `data.test`".into()
            }
            _ if !parts.has("accountant") => "the spec has no accountant to add up prices; fill `parts.accountant`".into(),
            _ if noise == Noise::Seeded => {
                "the noise follows the seed, so anyone with the spec can remove it; set `noise: system`".into()
            }
            None => return Ok(None),
        };
        match self.policy.epsilon {
            Some(_) => Err(self.budget_fails(&why)),
            None => Ok(Some(why)),
        }
    }

    /// Checks that no answer of an earlier run had no price.
    ///
    /// # Errors
    /// If one had none, and the node has a budget.
    pub(crate) fn keeps_budget(&self, ledger: &NodeLedger) -> Result<()> {
        match ledger.unpriced().filter(|_| self.policy.epsilon.is_some()) {
            // the leader of this run need not know what another's asked for: the ledger has it
            Some(_) => Err(self.budget_fails("an answer of an earlier run had no price")),
            None => Ok(()),
        }
    }

    fn budget_fails(&self, why: &str) -> Error {
        let epsilon = self.policy.epsilon.unwrap_or_default();
        let why = format!("its lifetime budget of epsilon {epsilon} cannot be guaranteed: {why}");
        Problem::Budget(why).into()
    }

    /// Checks that an answer may leave.
    ///
    /// # Errors
    /// If it may not; names what may.
    pub(crate) fn allows(
        &self,
        protocol: &dyn Protocol,
        parts: &Parts,
        context: &BuildContext,
        want: &RequestKind,
    ) -> Result<()> {
        let kind = match want {
            RequestKind::Hello | RequestKind::Over | RequestKind::Countersign { .. } => {
                return Ok(());
            }
            RequestKind::Answer { label, needs, .. } => {
                if self.policy.epsilon.is_some() {
                    expected(protocol, parts, context, label, *needs)?;
                }
                let asked = protocol.exchanges();
                match asked.iter().find(|asked| asked.label == label) {
                    Some(asked) => asked.up,
                    // of an exchange that the protocol does not declare, only the fact of an answer
                    // is known
                    None => "nothing",
                }
            }
            RequestKind::Score { .. } => "score",
            RequestKind::Model { .. } => "model",
        };
        // neither passes a mechanism, so neither has a price
        let bare = matches!(want, RequestKind::Score { .. } | RequestKind::Model { .. });
        ensure!(
            self.policy.epsilon.is_none() || !bare,
            Problem::Absent(format!(
                "its node has a budget, and a `{kind}` has no price"
            ))
        );
        let Some(may) = &self.policy.may_leave else {
            return Ok(());
        };
        ensure!(
            kind == "nothing" || may.iter().any(|m| m == kind),
            Problem::Absent(format!(
                "its node lets no `{kind}` leave (may-leave: {})",
                may.join(", ")
            ))
        );
        Ok(())
    }

    /// Returns whether notes of its parts may leave.
    pub(crate) fn notes(&self) -> bool {
        let may = self.policy.may_leave.iter().flatten();
        may.into_iter().any(|m| m == "notes")
    }

    /// Returns an error for the leader, which has only the kind of the error, because the text may
    /// reveal something about the data.
    pub(crate) fn told(&mut self, error: &Error) -> Error {
        (self.tell)(&format!("{error:#}"));
        let told = match error.downcast_ref::<Problem>() {
            Some(Problem::Budget(_)) => Problem::Budget("its node's budget allows no more".into()),
            Some(Problem::Unpriced(_)) => {
                Problem::Unpriced("the accountant has no price for this release".into())
            }
            Some(Problem::NotFinite { tensor, .. }) => Problem::NotFinite {
                tensor: tensor.clone(),
                at: 0,
                value: "no number".into(),
            },
            Some(Problem::Diverged(_)) => {
                Problem::Diverged("its training diverged; its node's log says how".into())
            }
            Some(Problem::Lacks(text)) => Problem::Lacks(text.clone()),
            Some(Problem::Interrupted(_)) => {
                Problem::Interrupted("its program was to stop before it answered".into())
            }
            _ => Problem::Absent("it could not answer; its node's log says why".into()),
        };
        Error::new(told)
    }
}

/// Checks that the spec makes such a request: prices and unpriced disclosures were computed for
/// those only.
fn expected(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
    label: &str,
    needs: RequiredInputs,
) -> Result<()> {
    let Some(wanted) = wanted(protocol, parts, context, label) else {
        bail!(Problem::Absent(
            "its node has a budget and answers only exchanges of the spec; this is none of them"
                .into()
        ));
    };
    let counts = |needs: RequiredInputs| (needs.samples, needs.class_counts);
    let ((samples, classes), (may, may_classes)) = (counts(needs), counts(wanted));
    ensure!(
        (!samples || may) && (!classes || may_classes),
        Problem::Absent(
            "its node has a budget and sends only counts that the spec's parts use; they do not use these".into()
        )
    );
    ensure!(
        !needs.training_loss,
        Problem::Absent(
            "its node has a budget, and no mechanism gives its training loss a price".into()
        )
    );
    ensure!(
        !(samples || classes) || parts.has(&COUNTS),
        Problem::Absent(format!(
            "its node has a budget, and its number of examples has no price; fill parts.{}",
            COUNTS.name()
        ))
    );
    Ok(())
}

/// Hashes a node's data: every row, in order, as parts get it; and its test rows, if it has some.
pub(crate) fn sum(data: &Examples, tests: Option<&Examples>) -> Sum {
    let mut hash = Sha256::new();
    [Some(data), tests]
        .into_iter()
        .flatten()
        .for_each(|rows| add(&mut hash, rows));
    hash.finalize().into()
}

fn add(hash: &mut Sha256, data: &Examples) {
    let (samples, labels) = (&data.samples, data.labels());
    hash.update(format!("{:?} {}", data.task(), data.len()));
    let mut row = vec![0.0; samples.width()];
    for (at, id) in samples.ids().iter().enumerate() {
        samples.write(&[at], &mut row);
        row.iter().for_each(|v| hash.update(v.to_le_bytes()));
        match &**labels {
            Labels::Classes { of, .. } => hash.update(of[*id as usize].to_le_bytes()),
            Labels::Multi(of) => of
                .row(*id as usize)
                .iter()
                .for_each(|v| hash.update(v.to_le_bytes())),
            Labels::Images(of) => of
                .of()
                .row(*id as usize)
                .iter()
                .for_each(|v| hash.update([*v])),
            Labels::Numbers(of) => {
                let numbers = of.of();
                let row = numbers.row(*id as usize);
                row.iter().for_each(|v| hash.update(v.to_le_bytes()));
                for scale in of.scales() {
                    let ends = [scale.centre, scale.spread];
                    ends.iter().for_each(|v| hash.update(v.to_le_bytes()));
                }
            }
            Labels::Pixels(of) => {
                let row = *id as usize;
                of.of().row(row).iter().for_each(|v| hash.update([*v]));
                if let Some(objects) = of.objects() {
                    let numbers = objects.row(row);
                    numbers.iter().for_each(|v| hash.update(v.to_le_bytes()));
                }
            }
        }
    }
}
