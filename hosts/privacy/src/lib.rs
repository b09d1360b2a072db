//! What data a run has, what it may release, and what was released over all runs. A [`DataId`] says
//! which rows a run has, and a [`Plan`] what it may release. A [`DataLedger`] keeps the releases of
//! runs by data set, and says what they guarantee together; a [`NodeLedger`] keeps those of a node.
//! Both are chains: files of records that only grow, in which every change is found.
mod chain;
mod entry;
mod inherited;
mod ledger;
mod node_ledger;
mod plan;
mod planned_exchange;
mod planned_releases;
mod record;
mod rows;
mod spending;
mod total;

pub use chain::{ChainFiles, Head};
pub use entry::{Entry, State};
pub use fl_sim::{ClientReleases, Counted, Releases, counted};
pub use inherited::{inherit, made_releases};
pub use ledger::{DataLedger, DataSet, Forecast, data_sets};
pub use node_ledger::{AnswerKey, NodeLedger};
pub use plan::Plan;
pub use planned_exchange::{PlannedCohort, PlannedExchange};
pub use record::{AccountantId, Limit, OwnBudget, Reservation, RunId, Spending};
pub use rows::{DataId, RowKey, Sealed, Sharing};
pub use spending::{
    AT_NODES, RunSpending, accountant, book, check_ledger, forecast, ledger_fault, made_accountant,
    own_parts,
};
pub use total::{MakeAccountant, caveat, price, rule, together};

use fl_core::Result;

/// Returns a new name from the system's random numbers, in hexadecimal.
///
/// # Errors
/// If the system has no random numbers.
pub fn random_name() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("random numbers of the system: {error}"))?;
    Ok(fl_core::hex(&bytes))
}
