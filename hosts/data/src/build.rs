//! From a spec to the data of every client.

use crate::partition::{fedkt_image_split, fedkt_queries, fedkt_tabular_split, fraction_split};
use crate::sets::{Set, SetSpec, load};
use crate::spec::{DataSpec, Public, PublicFrom};
use crate::split::{Groups, split};
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Samples, Stream, Task};
use std::path::Path;

/// The data of a run. All views of one part of a set share its storage.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// What each client trains with; some may own nothing.
    pub clients: Vec<Examples>,
    /// What each client sets aside for validation: one per client, or empty if the spec asks for none.
    pub client_validation: Vec<Examples>,
    /// What everybody may see.
    pub public: Option<PublicSamples>,
    /// What everybody is tested with.
    pub test: Examples,
    /// The set's own validation rows, if it has any.
    pub validation: Option<Examples>,
    /// What is to be learned.
    pub task: Task,
}

/// The public samples.
#[derive(Clone, Debug)]
pub struct PublicSamples {
    /// The inputs.
    pub samples: Samples,
    /// The same rows with their labels, if the spec makes them public.
    pub labelled: Option<Examples>,
}

/// Reads or makes the set in the data directory `dir`, takes out the public samples and shares out the others.
/// Nothing but `spec` and `stream` decides which sample goes where.
///
/// # Errors
/// If a set cannot be loaded, a number of the spec is out of its range, nothing is left for the clients, or the
/// public samples do not fit the private ones.
pub fn build(spec: &DataSpec, dir: &Path, stream: &Stream) -> Result<Assembled> {
    let Set {
        train,
        test,
        validation,
        normalise,
    } = load(&spec.set, dir, spec.normalise.as_ref())?;
    let mut train = first(train, spec.limit.train)?;
    let mut test = first(test, spec.limit.test)?;

    let public = match &spec.public {
        Some(how) => {
            let other =
                |set: &SetSpec| load(set, dir, normalise.as_ref()).context("the public set");
            let stream = stream.child("public", 0);
            Some(take_public(how, &mut train, &mut test, &other, &stream)?)
        }
        None => None,
    };
    ensure!(!train.is_empty(), "no samples are left for the clients");
    ensure!(!test.is_empty(), "no samples are left to test with");

    let groups = Groups::of(&train);
    let parts = split(
        &groups,
        &spec.split,
        spec.clients,
        spec.set.name(),
        &stream.child("split", 0),
    )
    .with_context(|| format!("splitting `{}`", spec.set.name()))?;
    let mut clients: Vec<Examples> = parts.clients.iter().map(|rows| train.pick(rows)).collect();
    let mut client_validation = vec![];
    if spec.validation != 0.0 {
        ensure!(
            (0.0..1.0).contains(&spec.validation),
            "validation must be at least 0 and below 1, got {}",
            spec.validation
        );
        for (k, own) in clients.iter_mut().enumerate() {
            let (aside, _) = fraction_split(own.len(), spec.validation)?;
            let rows = stream
                .child("validation", k as u64)
                .draws()
                .choose(own.len(), aside);
            client_validation.push(cut(own, &rows));
        }
    }
    Ok(Assembled {
        task: train.task(),
        clients,
        client_validation,
        public,
        test,
        validation,
    })
}

/// Takes the public rows out of the training or test rows, or from the set that `other` loads.
fn take_public(
    how: &Public,
    train: &mut Examples,
    test: &mut Examples,
    other: &dyn Fn(&SetSpec) -> Result<Set>,
    stream: &Stream,
) -> Result<PublicSamples> {
    let mut public = match &how.from {
        PublicFrom::Share(share) => {
            let rows = share_of(train, *share, stream)?;
            cut(train, &rows)
        }
        PublicFrom::HalfOfTest => {
            let half = fedkt_image_split(test.len()).0;
            cut(test, &stream.draws().choose(test.len(), half))
        }
        PublicFrom::Tabular => {
            let sizes = fedkt_tabular_split(train.len());
            let order = stream.draws().permutation(train.len());
            let (own, pool) = order.split_at(sizes.train);
            let (public, tested) = pool.split_at(sizes.public);
            *test = train.pick(tested);
            let public = train.pick(public);
            *train = train.pick(own);
            public
        }
        PublicFrom::Set { set, size } => {
            // `other` applies the private set's statistics, not this set's own: one model sees both kinds of rows, so
            // a byte must mean the same value in either, and nobody may have to know where a row is from.
            let rows = other(set)?.train;
            let (found, wanted) = (rows.samples.shape(), train.samples.shape());
            ensure!(
                found == wanted,
                "public rows of `{}` have shape {found:?}, the private ones {wanted:?}; they must be equal",
                set.name()
            );
            let size = size.unwrap_or(rows.len());
            ensure!(
                size <= rows.len(),
                "{size} public rows of `{}`, which has {}",
                set.name(),
                rows.len()
            );
            rows.pick(&stream.draws().choose(rows.len(), size))
        }
    };
    if let Some(fraction) = how.queries {
        let asked = fedkt_queries(public.len() + test.len(), fraction).context("public queries")?;
        let chosen = stream
            .child("queries", 0)
            .draws()
            .choose(public.len(), asked);
        public = public.pick(&chosen);
    }
    ensure!(
        !public.is_empty(),
        "there are no public samples; take a larger share"
    );
    ensure!(
        !how.labels || public.task() == train.task(),
        "public labels are of another task ({:?}) than the private ones ({:?}); leave the labels away",
        public.task().kind,
        train.task().kind
    );
    Ok(PublicSamples {
        samples: public.samples.clone(),
        labelled: how.labels.then_some(public),
    })
}

/// The first rows of every class, as many of each as keep the proportions.
fn first(examples: Examples, limit: Option<usize>) -> Result<Examples> {
    match limit.filter(|limit| *limit < examples.len()) {
        Some(limit) => {
            Ok(examples.pick(&Groups::of(&examples).take(limit, |_, _, k| (0..k).collect())?))
        }
        None => Ok(examples),
    }
}

/// Rows at random from every class, as many of each as keep the proportions.
fn share_of(examples: &Examples, share: f64, stream: &Stream) -> Result<Vec<usize>> {
    ensure!(
        share > 0.0 && share < 1.0,
        "the public share must be above 0 and below 1, got {share}"
    );
    let total = (share * examples.len() as f64).round() as usize;
    let choose = |group, n, k| stream.child("class", group as u64).draws().choose(n, k);
    Groups::of(examples).take(total, choose)
}

/// Takes the rows at these ascending positions out of `from`.
fn cut(from: &mut Examples, rows: &[usize]) -> Examples {
    let out = from.pick(rows);
    let rest: Vec<usize> = (0..from.len())
        .filter(|row| rows.binary_search(row).is_err())
        .collect();
    *from = from.pick(&rest);
    out
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
