//! The spending of a run, in the ledger that its spec names.

use crate::plan::Plan;
use anyhow::{Context, anyhow, ensure};
use fl_core::privacy::{Epsilons, Observer, Protection};
use fl_core::settings::Value;
use fl_core::{
    Accountant, Budget, BuildContext, PartDecl, Parts, Result, Role, RunEvent, RunReleases,
    SlotAssignment, Stream, Task, TaskKind, hex,
};
use fl_data::{Assembled, DataSpec, RowIdentity, Split};
use fl_privacy::{
    AccountantId, Amount, DataId, DataLedger, Forecast, Head, Releases, Reservation, RunId,
    Spending,
};
use fl_registry::{Catalogue, LedgerUse, Spec};
use fl_sim::{LEDGER, Listener, RunRecord, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Why data of nodes have another ledger.
const AT_NODES: &str = "`ledger` is for data of this machine; with `data.split: own` each node keeps a ledger of its own, so leave it out";

/// A run in its ledger, as its folder knows it.
#[derive(Serialize, Deserialize)]
struct KnownRun {
    /// The name of the ledger.
    ledger: String,
    /// The name of the run.
    run: String,
    /// The ledger's head after its last reservation.
    head: Head,
}

impl KnownRun {
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LEDGER);
        let what = || format!("reading {}", path.display());
        match fl_files::read_own(&path) {
            Ok(text) => serde_json::from_slice(&text).with_context(what).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(what),
        }
    }

    fn check(&self, ledger: &DataLedger, folder: &Path) -> Result<()> {
        let here = folder.display();
        ensure!(
            self.ledger == ledger.id(),
            "{} is not the ledger with which the run in {here} began; put that one back",
            ledger.path().display()
        );
        ledger.check_contains(&self.head, &format!("the run in {here}"))
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        fl_files::write_secret(&folder.join(LEDGER), &text)?;
        fl_files::sync(folder)
    }
}

/// The spending of a run that has its folder.
pub(crate) struct RunSpending {
    ledger: DataLedger,
    reservation: Reservation,
    folder: PathBuf,
    /// Whether the folder names the run.
    known: bool,
    /// Whether this process has reserved the run's spending.
    reserved: bool,
    accountants: Vec<&'static PartDecl>,
    /// Observers without a guarantee, as the ledger knows.
    nothing: BTreeSet<Observer>,
}

impl RunSpending {
    /// Opens the ledger of a run with this plan. `folder` is that of a stopped run, or empty.
    /// Nothing is written.
    ///
    /// # Errors
    /// If the ledger cannot be read, is an older copy than the run knows, or its limit refuses the
    /// run.
    pub fn open(
        spec: &Spec<DataSpec>,
        (wanted, folder): (&LedgerUse, &Path),
        (data, plan): (&Assembled, &Plan),
    ) -> Result<Self> {
        let ledger = DataLedger::open(Path::new(&wanted.path))?;
        let known = match folder.as_os_str().is_empty() {
            true => None,
            false => KnownRun::read(folder)?,
        };
        if let Some(known) = &known {
            known.check(&ledger, folder)?;
        }
        let run = known.as_ref().map(|known| Ok(known.run.clone()));
        let run = run.unwrap_or_else(fl_privacy::random_name)?;
        let reservation = reservation(spec, (wanted, &ledger), run, data, plan)?;
        let accountants = [&fl_core::linked_parts()[..], &own_parts(spec)].concat();
        let forecast = ledger.forecast(&reservation, &|id| accountant(&accountants, id));
        if let Some(why) = forecast.refused {
            return Err(anyhow!(
                "the run was refused before anything was released: {why}"
            ));
        }
        let nothing = Observer::ALL.into_iter();
        let nothing = nothing.filter(|o| reservation.most.nothing.contains_key(o));
        Ok(Self {
            nothing: nothing.collect(),
            known: known.is_some(),
            reserved: false,
            folder: folder.into(),
            ledger,
            reservation,
            accountants,
        })
    }

    /// Returns the budget of the run: its own, or the reservation if the ledger has a limit. A run
    /// that would release more than was planned is then refused before the noise is drawn.
    pub fn budget(&self, own: Option<&Budget>) -> Option<Budget> {
        let reserved = match (self.ledger.limit(), &self.reservation.most.amount) {
            (Some(limit), Amount::Releases(releases)) => {
                let id = self.reservation.accountant.as_ref()?;
                let new = accountant(&self.accountants, id).ok()?;
                let most = fl_privacy::price(new, releases, Observer::Readers).ok()?;
                Some(Budget {
                    epsilon: most.epsilon,
                    against: match limit.against {
                        Observer::Server => fl_core::BudgetScope::Server,
                        Observer::Clients => fl_core::BudgetScope::Clients,
                        Observer::Readers => fl_core::BudgetScope::Readers,
                    },
                    delta: None,
                })
            }
            _ => None,
        };
        match (own, reserved) {
            (Some(own), Some(reserved)) => Some(Budget {
                epsilon: own.epsilon.min(reserved.epsilon),
                ..own.clone()
            }),
            (own, reserved) => own.cloned().or(reserved),
        }
    }
}

impl Listener for RunSpending {
    fn on(&mut self, event: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
        match *event {
            RunEvent::Begins(Some(folder)) => self.folder = folder.into(),
            RunEvent::ExchangeBegins if !self.reserved => self.reserve()?,
            RunEvent::ExchangeEnds(entry) => self.reached(entry.privacy.as_ref())?,
            RunEvent::Cost(cost) => self.reached(cost.privacy.as_ref())?,
            RunEvent::Stops if self.reserved => self.ledger.stop(&self.reservation.id)?,
            RunEvent::Ends(releases) => self.settle(releases)?,
            _ => {}
        }
        Ok(Verdict::GoOn)
    }
}

impl RunSpending {
    /// Reserves all that the run may spend.
    fn reserve(&mut self) -> Result<()> {
        let mut known = KnownRun {
            ledger: self.ledger.id().into(),
            run: self.reservation.id.run.clone(),
            head: self.ledger.head(),
        };
        // the name comes first: a run that is killed after its reservation finds it again
        if !self.known {
            known.write(&self.folder)?;
            self.known = true;
        }
        let accountants = &self.accountants;
        let make = |id: &AccountantId| accountant(accountants, id);
        known.head = self.ledger.reserve(self.reservation.clone(), &make)?;
        self.reserved = true;
        known.write(&self.folder)
    }

    /// Records observers who have seen something without a price.
    fn reached(&mut self, epsilons: Option<&Epsilons>) -> Result<()> {
        for (observer, epsilon) in epsilons.into_iter().flatten() {
            if epsilon.is_none() && self.nothing.insert(*observer) {
                let why = "it has seen something without a price";
                self.ledger.seen(&self.reservation.id, *observer, why)?;
            }
        }
        Ok(())
    }

    /// Replaces the reservation by what was spent.
    fn settle(&mut self, releases: RunReleases<'_>) -> Result<()> {
        let nothing = releases.privacy.into_iter().flatten();
        let nothing = nothing.filter_map(|(observer, protection)| match protection {
            Protection::Holds(_) => None,
            Protection::Nothing { nothing, .. } => Some((*observer, nothing.clone())),
        });
        let spent = Spending {
            amount: Amount::Releases(Releases::of(releases.server, releases.clients)),
            nothing: nothing.collect(),
        };
        self.ledger.settle(&self.reservation.id, spent)
    }
}

/// Checks that a ledger is not older than the run in a folder knows.
///
/// # Errors
/// If it is, or the run used another ledger, or none.
pub fn check_ledger(ledger: &DataLedger, folder: &Path) -> Result<()> {
    let known = KnownRun::read(folder)?;
    known.context("it used no ledger")?.check(ledger, folder)
}

/// Returns why a run of a spec could not use the ledger that the spec names, if so.
pub fn ledger_fault(spec: &Spec<DataSpec>) -> Option<String> {
    let wanted = spec.ledger.as_ref()?;
    if matches!(spec.data.split(), Split::Own) {
        return Some(AT_NODES.into());
    }
    let opened = DataLedger::open(Path::new(&wanted.path));
    opened.err().map(|error| format!("{error:#}"))
}

/// Returns what a run of a spec would add to its ledger; `None` if it names none.
///
/// # Errors
/// If the ledger cannot be read.
pub fn forecast(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    plan: &Plan,
    catalogue: &Catalogue,
) -> anyhow::Result<Option<Forecast>> {
    let Some(wanted) = &spec.ledger else {
        return Ok(None);
    };
    let ledger = DataLedger::open(Path::new(&wanted.path))?;
    let reservation = reservation(spec, (wanted, &ledger), "planned".into(), data, plan)?;
    let forecast = ledger.forecast(&reservation, &|id| accountant(catalogue.parts(), id));
    Ok(Some(forecast))
}

/// Makes an accountant of a ledger from these parts.
///
/// # Errors
/// If no part has its name, or its settings are refused.
pub fn accountant(parts: &[&'static PartDecl], id: &AccountantId) -> Result<Box<dyn Accountant>> {
    let mut known = parts.iter();
    let decl = known.find(|part| part.role == Role::Accountant && part.name == id.name);
    let decl = decl.with_context(|| {
        format!(
            "no accountant is called `{}` here; load its library with --plugin",
            id.name
        )
    })?;
    let settings: Value = serde_json::from_value(id.settings.clone())?;
    let context = BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    };
    let settings = decl.read(&settings);
    let settings = settings.with_context(|| format!("the accountant {id} of the ledger"))?;
    let parts = Parts::new(vec![SlotAssignment {
        slot: "accountant".into(),
        clients: None,
        decl,
        settings,
    }]);
    parts.build(Role::Accountant, "accountant", None, &context)
}

/// The parts that a spec uses.
pub(crate) fn own_parts(spec: &Spec<DataSpec>) -> Vec<&'static PartDecl> {
    spec.parts.iter().map(|filled| filled.decl).collect()
}

/// Returns all that a run may spend.
fn reservation(
    spec: &Spec<DataSpec>,
    (wanted, ledger): (&LedgerUse, &DataLedger),
    run: String,
    data: &Assembled,
    plan: &Plan,
) -> Result<Reservation> {
    ensure!(!matches!(spec.data.split(), Split::Own), AT_NODES);
    let filled = spec.parts.iter().find(|filled| filled.slot == "accountant");
    let accountant = filled.map(|filled| {
        Ok::<_, anyhow::Error>(AccountantId {
            name: filled.decl.name.into(),
            settings: serde_json::to_value(&filled.settings.value)?,
        })
    });
    let accountant = accountant.transpose()?;
    let rows = data.digest.clone().zip(data.identity.as_ref());
    let (rows, identity) = rows.context("the rows were not hashed")?;
    let nothing = Observer::ALL.map(|observer| (observer, plan.exposed.to(observer)));
    Ok(Reservation {
        id: RunId {
            run,
            spec: hex(&Sha256::digest(spec.yaml()?)),
        },
        time: fl_sim::time(SystemTime::now()).unwrap_or_default(),
        name: spec.name.clone(),
        seed: spec.seed,
        data: DataId {
            name: wanted.data.clone().unwrap_or(spec.data.set.name().into()),
            split: split(&rows, identity, plan),
            rows,
            dealt: spec.data.deals(),
            sample: ledger.sample(identity.clients.iter().flatten())?,
            public: ledger.sample(identity.public.iter())?,
        },
        most: Spending {
            amount: amount(spec, accountant.as_ref(), plan),
            nothing: nothing
                .into_iter()
                .filter(|(_, why)| !why.is_empty())
                .collect(),
        },
        accountant,
        noise: spec.noise,
        claimed_by: plan.claimed_by.clone(),
    })
}

/// The releases of the plan, if they are known and within the run's own budget. Otherwise the
/// budget.
fn amount(spec: &Spec<DataSpec>, id: Option<&AccountantId>, plan: &Plan) -> Amount {
    let planned = plan.releases.seen_by(Observer::Readers);
    let Some(id) = id else {
        return Amount::Releases(Releases::default());
    };
    let price = |releases: &Releases| {
        let new = accountant(&own_parts(spec), id).ok()?;
        fl_privacy::price(new, releases, Observer::Readers).ok()
    };
    let Some(budget) = &spec.budget else {
        return planned.map_or(Amount::Unknown, Amount::Releases);
    };
    if let Some(releases) = planned
        && price(&releases).is_some_and(|most| budget.allows(most.epsilon))
    {
        return Amount::Releases(releases);
    }
    let delta = id.settings.get("delta").and_then(serde_json::Value::as_f64);
    match delta.or(budget.delta) {
        Some(delta) => {
            // a client holds its own releases to the budget, the server all that it knows of
            let times = if plan.releases.on_both_sides {
                2.0
            } else {
                1.0
            };
            Amount::AtMost {
                epsilon: times * budget.epsilon,
                delta: times * delta,
                unit: plan.releases.unit,
            }
        }
        None => Amount::Unknown,
    }
}

/// The hash of the split: which client has which rows.
fn split(rows: &str, identity: &RowIdentity, plan: &Plan) -> String {
    let mut hash = Sha256::new().chain_update(rows);
    if plan.pools {
        return hex(&hash.chain_update("pooled").finalize());
    }
    // by content: the same files in another order deal the rows to other clients
    for client in &identity.clients {
        hash.update((client.len() as u64).to_le_bytes());
        hash.update(fl_data::digest_of_rows(client.clone()));
    }
    hex(&hash.finalize())
}
