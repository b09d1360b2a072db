//! Two neighbouring data sets.

use anyhow::{Result, ensure};
use fl_core::privacy::{Neighbours, Unit};
use fl_core::{Examples, Inputs, Labels, Samples, Stream};
use fl_data::Assembled;
use fl_engine::NotRun;
use std::sync::Arc;

/// Two data sets that differ in one unit, and the unit.
pub struct Pair {
    /// With the unit, and without it or with another in its place.
    pub worlds: [Assembled; 2],
    /// The difference, for people.
    pub what: String,
    /// The rows of the unit; a user's own neighbour has none.
    pub rows: Option<Examples>,
}

impl Pair {
    /// Takes a user's own two data sets.
    ///
    /// # Errors
    /// If they differ in their task or their number of clients.
    pub fn given(one: Assembled, other: Assembled, name: &str) -> Result<Self> {
        ensure_usage!(
            one.task == other.task,
            "the task of {name} is another: {:?}, and of the spec {:?}; neighbours differ in rows only",
            other.task,
            one.task
        );
        ensure_usage!(
            one.clients.len() == other.clients.len(),
            "{name} has {} clients and the spec {}; the list of clients is public, so give a client without data an empty file",
            other.clients.len(),
            one.clients.len()
        );
        Ok(Self {
            worlds: [one, other],
            what: format!("the data of the spec, and those of {name}"),
            rows: None,
        })
    }

    /// Makes a neighbour of `data` that differs in one unit of a client: the given one, or one that
    /// `stream` draws. An example that is added, or takes the place of another, is a copy of a row
    /// of this client with a wrong label, which models learn worst of all.
    ///
    /// # Errors
    /// If there is no such client, or it has no rows.
    pub fn of(
        data: &Assembled,
        (unit, change): (Unit, Neighbours),
        client: Option<usize>,
        stream: &Stream,
    ) -> Result<Self> {
        let mut draws = stream.child("unit", 0).draws();
        let with_rows = owners(data)?;
        let client = match client {
            Some(client) => {
                let last = data.clients.len() - 1;
                let own = data.clients.get(client);
                let own = own.ok_or_else(|| {
                    NotRun::Usage(format!(
                        "--client: the clients are 0 to {last}, got {client}"
                    ))
                })?;
                ensure_usage!(
                    !own.is_empty(),
                    "--client: client {client} has no examples; name another"
                );
                client
            }
            None => with_rows[draws.below(with_rows.len())],
        };
        let n = data.clients[client].len();
        let (mut one, what, rows);
        let mut other;
        match (unit, change) {
            (Unit::Example, _) => {
                let at = draws.below(n);
                one = data.clone();
                let copy = add_mislabelled(&mut one, client, &[at])?;
                other = one.clone();
                let with = copy.clone();
                let own = one.clients[client].clone();
                match change {
                    Neighbours::Removed => {
                        one.clients[client] = own.join(&copy)?;
                        what = format!(
                            "with and without one row of client {client} (row {at} of its {n} once more, with a wrong label)"
                        );
                    }
                    Neighbours::Replaced => {
                        let before: Vec<usize> = (0..at).collect();
                        let after: Vec<usize> = (at + 1..n).collect();
                        let replaced = own.pick(&before).join(&copy)?.join(&own.pick(&after))?;
                        one.clients[client] = replaced;
                        what = format!(
                            "row {at} of client {client}, of {n}, with its own label and with a wrong one"
                        );
                    }
                }
                rows = with;
            }
            (Unit::Party, Neighbours::Removed) => {
                one = data.clone();
                other = data.clone();
                rows = one.clients[client].clone();
                other.clients[client] = rows.pick(&[]);
                what = format!("client {client} with its {n} rows and with none");
            }
            (Unit::Party, Neighbours::Replaced) => {
                one = data.clone();
                // another number of rows, because that is a client's secret too
                let positions: Vec<usize> = match n {
                    1 => vec![0, 0],
                    n => (0..n - 1).collect(),
                };
                let copies = add_mislabelled(&mut one, client, &positions)?;
                other = one.clone();
                rows = one.clients[client].clone();
                let m = positions.len();
                other.clients[client] = copies;
                what = format!(
                    "client {client} with its {n} rows, and with {m} of them that have wrong labels"
                );
            }
        }
        Ok(Self {
            worlds: [one, other],
            what,
            rows: Some(rows),
        })
    }
}

/// Returns the clients that have rows.
///
/// # Errors
/// If there are none.
pub fn owners(data: &Assembled) -> Result<Vec<usize>> {
    let clients = data.clients.iter().enumerate();
    let owners: Vec<usize> = clients
        .filter(|(_, own)| !own.is_empty())
        .map(|(k, _)| k)
        .collect();
    ensure!(!owners.is_empty(), "no client has any examples");
    Ok(owners)
}

/// Keeps the first rows of every client only.
pub fn shorten(data: &mut Assembled, rows: usize) {
    for own in &mut data.clients {
        let kept: Vec<usize> = (0..own.len().min(rows)).collect();
        *own = own.pick(&kept);
    }
}

/// Adds copies of a client's rows at `positions`, with wrong labels, to the storage of all rows,
/// and returns them. No view has them yet.
pub fn add_mislabelled(
    data: &mut Assembled,
    client: usize,
    positions: &[usize],
) -> Result<Examples> {
    let own = &data.clients[client];
    let (inputs, labels) = (own.samples.inputs().clone(), own.labels().clone());
    let ids = own.samples.ids();
    let all = 0..inputs.len();
    let copied: Vec<usize> = all
        .clone()
        .chain(positions.iter().map(|at| ids[*at] as usize))
        .collect();
    let wrong = wrong_labels(&labels, &copied, all.end);
    let (new_inputs, new_labels) = (Arc::new(inputs.select(&copied)), Arc::new(wrong));
    let moved = |view: &mut Examples| -> Result<()> {
        let same =
            Arc::ptr_eq(view.samples.inputs(), &inputs) && Arc::ptr_eq(view.labels(), &labels);
        if same {
            let rows: Vec<usize> = view.samples.ids().iter().map(|id| *id as usize).collect();
            *view = Examples::all(new_inputs.clone(), new_labels.clone())?.pick(&rows);
        }
        Ok(())
    };
    data.clients.iter_mut().try_for_each(moved)?;
    data.client_validation.iter_mut().try_for_each(moved)?;
    data.client_tests.iter_mut().try_for_each(moved)?;
    moved(&mut data.test)?;
    if let Some(public) = &mut data.public {
        move_samples(&mut public.samples, &inputs, &new_inputs)?;
        let views = public.labelled.iter_mut().chain(&mut public.truth);
        views.into_iter().try_for_each(moved)?;
    }
    let new: Vec<usize> = (all.end..copied.len()).collect();
    Ok(Examples::all(new_inputs, new_labels)?.pick(&new))
}

fn move_samples(view: &mut Samples, from: &Arc<Inputs>, to: &Arc<Inputs>) -> Result<()> {
    if Arc::ptr_eq(view.inputs(), from) {
        *view = Samples::of(to.clone(), view.ids().to_vec())?;
    }
    Ok(())
}

/// The labels of these rows, wrong ones from `from` on: the next class, the opposite of each label,
/// or the target of the next row.
fn wrong_labels(labels: &Labels, rows: &[usize], from: usize) -> Labels {
    let n = labels.len();
    match labels.select(rows) {
        Labels::Classes { mut of, classes } => {
            for class in &mut of[from..] {
                *class = (*class + 1) % classes.max(1) as u32;
            }
            Labels::Classes { of, classes }
        }
        Labels::Multi(mut of) => {
            for mut row in of.rows_mut().into_iter().skip(from) {
                row.mapv_inplace(|label| match label {
                    0 => 1,
                    1 => 0,
                    unknown => unknown,
                });
            }
            Labels::Multi(of)
        }
        _ => {
            let next = rows.iter().enumerate();
            let next = next.map(|(at, row)| if at < from { *row } else { (row + 1) % n });
            labels.select(&next.collect::<Vec<_>>())
        }
    }
}
