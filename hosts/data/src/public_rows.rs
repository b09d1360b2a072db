//! Takes the public rows out of a set.

use crate::assembled::PublicSamples;
use crate::partition::{fedkt_image_split, fedkt_queries, fedkt_tabular_split};
use crate::public::{Public, PublicFrom};
use crate::rows::{cut, joined, of_every_class};
use crate::seen_rows::Taken;
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Stream, floor_share};
use fl_data_kit::{Set, SetSpec};

/// Takes the public rows out of the training or test rows, or from the set that `other` loads.
pub(crate) fn take_public(
    how: &Public,
    train: &mut Examples,
    test: &mut Examples,
    other: &mut dyn FnMut(&SetSpec) -> Result<Set>,
    stream: &Stream,
) -> Result<(PublicSamples, Taken)> {
    let mut public = match &how.from {
        PublicFrom::Share(share) => {
            let total = (share * train.len() as f64).round() as usize;
            cut(train, &of_every_class(train, total, stream)?)
        }
        PublicFrom::Count(count) => {
            let rows = of_every_class(train, *count, stream).context("public rows")?;
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
        PublicFrom::Set(set) => {
            // `other` scales by the private set's statistics, or not at all if it has none: one model
            // sees both kinds of rows, so a byte must mean the same value in either, whichever set
            // a row is from.
            other(set)?.train
        }
    };
    if let Some(weights) = &how.classes {
        public = weighted(&public, weights, &stream.child("weighted", 0))?;
    }
    let pool = public.len() + test.len();
    let kept = match how.queries {
        Some(fraction) => Some(fedkt_queries(pool, fraction)?),
        None => how.size,
    };
    let total = kept.unwrap_or(public.len());
    let mixed = match &how.mix {
        Some(mix) => (mix.share * total as f64).round() as usize,
        None => 0,
    };
    if kept.is_some() || mixed > 0 {
        let kept = total - mixed;
        ensure!(
            how.queries.is_some() || kept <= public.len(),
            "public: a size of {kept}, but there are only {} samples",
            public.len()
        );
        let chosen = stream.child("kept", 0).draws().choose(public.len(), kept);
        public = public.pick(&chosen);
    }
    let whole = public.samples.ids().to_vec();
    if let Some(mix) = how.mix.as_ref().filter(|_| mixed > 0) {
        let more = other(&mix.set)?.train.samples;
        ensure!(
            mixed <= more.len(),
            "public.mix: {mixed} samples of `{}`, which has only {}",
            mix.set.name(),
            more.len()
        );
        let chosen = stream.child("mixed", 0).draws().choose(more.len(), mixed);
        let more = more.pick(&chosen);
        let samples = PublicSamples {
            samples: joined(&public.samples, &more),
            labelled: None,
            truth: None,
        };
        let mixed = more.ids().to_vec();
        return Ok((samples, Taken { whole, mixed }));
    }
    ensure!(
        !public.is_empty(),
        "there are no public samples{}; take a larger share",
        match how.queries {
            Some(share) => format!(
                ": a share of {share} (`public.queries`) of {pool} public and test samples is less than one"
            ),
            None => String::new(),
        }
    );
    let taken = Taken {
        whole,
        mixed: Vec::new(),
    };
    let samples = PublicSamples {
        samples: public.samples.clone(),
        labelled: how.labelled.then(|| public.clone()),
        truth: (!matches!(how.from, PublicFrom::Set(_))).then_some(public),
    };
    Ok((samples, taken))
}

/// The rows that the weights of their classes leave, drawn at random.
fn weighted(examples: &Examples, weights: &[f64], stream: &Stream) -> Result<Examples> {
    let classes = examples
        .classes()
        .context("public.classes: the samples do not have one class each")?;
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let mut rows = Vec::new();
    for (class, weight) in weights.iter().enumerate() {
        let of = |row: &usize| classes[*row] as usize == class;
        let of: Vec<usize> = (0..classes.len()).filter(of).collect();
        let kept = floor_share(weight / largest, of.len());
        let mut draws = stream.child("class", class as u64).draws();
        rows.extend(draws.choose(of.len(), kept).into_iter().map(|at| of[at]));
    }
    rows.sort_unstable();
    Ok(examples.pick(&rows))
}
