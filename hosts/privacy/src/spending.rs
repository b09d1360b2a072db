//! What a run says of its rows and of its spending: in its folder, and in the ledger that its spec
//! names.

use crate::chain::Head;
use crate::entry::UNPRICED;
use crate::ledger::{DataLedger, Forecast};
use crate::plan::Plan;
use crate::record::{AccountantId, OwnBudget, Reservation, RunId, Spending};
use crate::rows::{DataId, RowKey, Sharing};
use crate::total::price;
use anyhow::{Context, anyhow, ensure};
use fl_core::privacy::{Epsilons, Observer, Protection};
use fl_core::settings::Value;
use fl_core::{
    Accountant, Budget, PartDecl, Parts, Result, Role, RunEvent, RunReleases, SlotAssignment, hex,
};
use fl_data::{Assembled, DataSpec, Split};
use fl_registry::{Catalogue, LedgerUse, Spec, any_make};
use fl_sim::{LEDGER, Listener, Releases, RunRecord, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Why a spec whose rows are at nodes has no ledger.
pub const AT_NODES: &str = "it is for data of this machine; with `data.split: own` each node keeps a ledger of its own: leave it out";

/// A run in its ledger, as its folder knows it.
#[derive(Serialize, Deserialize)]
struct KnownRun {
    /// The name of the ledger.
    ledger: String,
    /// The name of the run.
    run: String,
    /// The ledger's head after its last reservation.
    head: Head,
    /// The number of the stop, if it has stopped since.
    stopped: Option<u64>,
    /// The number of the stop that it goes on from, under its own name.
    continues: Option<u64>,
}

impl KnownRun {
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LEDGER);
        let what = || format!("reading {}", path.display());
        let text = fl_files::present(fl_files::read_own(&path)).with_context(what)?;
        let read = text.map(|text| serde_json::from_slice(&text));
        read.transpose().with_context(what)
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
pub struct RunSpending {
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
        ensure!(
            !matches!(spec.data.split(), Split::Own),
            "ledger: {AT_NODES}"
        );
        let ledger = DataLedger::open(Path::new(&wanted.path))?;
        let known = if folder.as_os_str().is_empty() {
            None
        } else {
            KnownRun::read(folder)?
        };
        if let Some(known) = &known {
            known.check(&ledger, folder)?;
        }
        let continues = known
            .as_ref()
            .and_then(|known| known.stopped.or(known.continues));
        // of several copies of a stopped run, each that goes on is a run of its own
        let known = known.filter(|known| known.stopped.is_none());
        let run = known.as_ref().map(|known| Ok(known.run.clone()));
        let run = run.unwrap_or_else(crate::random_name)?;
        let reservation = Reservation {
            continues,
            ..book(spec, &ledger.key()?, run, data, plan)?
        };
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

    /// Returns what is reserved, as a budget, if the ledger has a limit. A run that would release
    /// more than was planned is then refused before the noise is drawn.
    pub fn budget(&self) -> Option<Budget> {
        let against = self.ledger.limit()?.against;
        let most = &self.reservation.most;
        let releases = most.releases.as_ref().filter(|_| most.budget.is_none())?;
        let id = self.reservation.accountant.as_ref()?;
        let new = accountant(&self.accountants, id).ok()?;
        let most = price(new, releases, against).ok()?;
        Some(Budget {
            epsilon: most.epsilon,
            against,
            delta: None,
        })
    }
}

impl Listener for RunSpending {
    fn on(&mut self, event: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
        match *event {
            RunEvent::Begins(Some(folder)) => self.folder = folder.into(),
            RunEvent::ExchangeBegins if !self.reserved => self.reserve()?,
            RunEvent::ExchangeEnds(entry) => self.reached(entry.privacy.as_ref())?,
            RunEvent::Cost(cost) => self.reached(cost.privacy.as_ref())?,
            RunEvent::Stops if self.reserved => self.stop()?,
            RunEvent::Ends(releases) => self.settle(releases)?,
            _ => {}
        }
        Ok(Verdict::GoOn)
    }
}

impl RunSpending {
    /// Reserves all that the run may spend.
    fn reserve(&mut self) -> Result<()> {
        let mut known = self.known_run(None);
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

    fn known_run(&self, stopped: Option<u64>) -> KnownRun {
        KnownRun {
            ledger: self.ledger.id().into(),
            run: self.reservation.id.run.clone(),
            head: self.ledger.head(),
            stopped,
            continues: self.reservation.continues.filter(|_| stopped.is_none()),
        }
    }

    fn stop(&mut self) -> Result<()> {
        let number = self.ledger.stop(&self.reservation.id)?;
        self.known_run(Some(number)).write(&self.folder)
    }

    /// Records observers who have seen something without a price.
    fn reached(&mut self, epsilons: Option<&Epsilons>) -> Result<()> {
        for (observer, epsilon) in epsilons.into_iter().flatten() {
            if epsilon.is_none() && self.nothing.insert(*observer) {
                let id = &self.reservation.id;
                self.ledger.seen(id, *observer, UNPRICED)?;
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
            releases: Some(Releases::of(releases.server, releases.clients)),
            budget: None,
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
    ensure!(
        !matches!(spec.data.split(), Split::Own),
        "ledger: {AT_NODES}"
    );
    let ledger = DataLedger::open(Path::new(&wanted.path))?;
    let reservation = book(spec, &ledger.key()?, "planned".into(), data, plan)?;
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
    made_accountant(
        decl,
        &settings,
        &format!("the accountant {id} of the ledger"),
    )
}

/// Makes an accountant with these settings; errors call it `what`.
///
/// # Errors
/// If its settings are refused.
pub fn made_accountant(
    decl: &'static PartDecl,
    settings: &Value,
    what: &str,
) -> Result<Box<dyn Accountant>> {
    let settings = decl.read(settings).with_context(|| what.to_string())?;
    let parts = Parts::new(vec![SlotAssignment {
        slot: "accountant".into(),
        clients: None,
        decl,
        settings,
    }]);
    parts.build(Role::Accountant, "accountant", None, &any_make())
}

/// The parts that a spec uses.
pub fn own_parts(spec: &Spec<DataSpec>) -> Vec<&'static PartDecl> {
    spec.parts.iter().map(|filled| filled.decl).collect()
}

/// Returns what a run says of itself before it begins: its rows, by hashes with this key, and all
/// that it may spend.
pub fn book(
    spec: &Spec<DataSpec>,
    key: &RowKey,
    run: String,
    data: &Assembled,
    plan: &Plan,
) -> Result<Reservation> {
    let filled = spec.parts.iter().find(|filled| filled.slot == "accountant");
    let accountant = filled.map(|filled| {
        Ok::<_, anyhow::Error>(AccountantId {
            name: filled.decl.name.into(),
            settings: serde_json::to_value(&filled.settings.value)?,
        })
    });
    let accountant = accountant.transpose()?;
    let nothing = Observer::ALL.map(|observer| (observer, plan.exposed.to(observer)));
    Ok(Reservation {
        id: RunId {
            run,
            spec: hex(&Sha256::digest(spec.yaml()?)),
        },
        continues: None,
        time: fl_sim::time(SystemTime::now()).unwrap_or_default(),
        name: spec.name.clone(),
        seed: spec.seed,
        data: rows(spec, key, data, plan.pools),
        most: Spending {
            nothing: nothing
                .into_iter()
                .filter(|(_, why)| !why.is_empty())
                .collect(),
            ..most(spec, accountant.as_ref(), plan)
        },
        accountant,
        noise: spec.noise,
        claimed_by: plan.claimed_by.clone(),
    })
}

/// Describes the rows of a run; those at nodes are not known here.
pub(crate) fn rows(spec: &Spec<DataSpec>, key: &RowKey, data: &Assembled, pooled: bool) -> DataId {
    let set = &spec.data.set;
    let name = spec.ledger.as_ref().and_then(|ledger| ledger.data.clone());
    let name = name.unwrap_or_else(|| {
        if set.generated() {
            format!("{}, seed {}", set.name(), spec.seed)
        } else {
            set.name().into()
        }
    });
    let dealt = spec.data.deals();
    match (data.digest.as_deref(), &data.identity) {
        (Some(all), Some(identity)) if !matches!(spec.data.split(), Split::Own) => {
            DataId::of(name, key, (all, identity), Sharing { dealt, pooled })
        }
        _ => DataId {
            name,
            ..DataId::default()
        },
    }
}

/// The releases of the plan, if they are known, and the run's own budget, if they may exceed it.
fn most(spec: &Spec<DataSpec>, id: Option<&AccountantId>, plan: &Plan) -> Spending {
    let Some(id) = id else {
        return Spending {
            releases: Some(Releases::default()),
            ..Spending::default()
        };
    };
    let releases = plan.releases.seen_by(Observer::Readers);
    let within = |budget: &Budget| {
        let new = accountant(&own_parts(spec), id).ok()?;
        let against = budget.against;
        let most = price(new, releases.as_ref()?, against).ok()?;
        Some(budget.allows(most.epsilon))
    };
    let budget = spec.budget.as_ref();
    let budget = budget.filter(|budget| within(budget) != Some(true));
    let planned = &plan.releases;
    let own = budget.and_then(|budget| {
        let delta = id.settings.get("delta").and_then(serde_json::Value::as_f64);
        let delta = delta.or(budget.delta)?;
        // a client holds its own releases to the budget, the server all that it knows of
        let times = if planned.by_clients && planned.by_server {
            2.0
        } else {
            1.0
        };
        Some(OwnBudget {
            epsilon: times * budget.epsilon,
            delta: times * delta,
            against: if planned.by_server {
                budget.against
            } else {
                // all observers see the same releases of clients
                Observer::Server
            },
            protects: planned.protects,
        })
    });
    Spending {
        releases,
        budget: own,
        ..Spending::default()
    }
}
