//! Rows of a set: taken out, put together, and whose they are.

use crate::split::Groups;
use anyhow::{Result, bail};
use fl_core::{Examples, Images, Inputs, Labels, Masks, Samples, Stream};
use fl_data_kit::dataset::Source;
use fl_data_kit::format::append;
use ndarray::{Axis, concatenate};
use std::sync::Arc;

/// The file or user that each row comes from; row ids count through all of them.
pub(crate) fn origins(train: &Examples, sources: &[Source]) -> Vec<usize> {
    let ends: Vec<usize> = sources
        .iter()
        .scan(0, |end, source| {
            *end += source.rows;
            Some(*end)
        })
        .collect();
    let ids = train.samples.ids().iter();
    ids.map(|id| ends.partition_point(|end| *end <= *id as usize))
        .collect()
}

/// The same rows; class `order[i]` is called `i`.
pub(crate) fn renumbered(examples: &Examples, order: &[usize]) -> Result<Examples> {
    let mut number = vec![0; order.len()];
    (0u32..)
        .zip(order)
        .for_each(|(new, old)| number[*old] = new);
    let Labels::Classes { of, classes } = &**examples.labels() else {
        bail!("only classes have numbers");
    };
    let of = of.iter().map(|old| number[*old as usize]).collect();
    let labels = Labels::Classes {
        of,
        classes: *classes,
    };
    Examples::all(examples.samples.inputs().clone(), Arc::new(labels))
}

/// Training and test rows as rows of one storage, the training rows in front, and no test rows. A
/// row's id is its place in the whole set.
pub(crate) fn pooled(train: &Examples, test: &Examples) -> Result<(Examples, Examples)> {
    let whole = |view: &Examples| Samples::all(view.samples.inputs().clone());
    let inputs = joined(&whole(train), &whole(test));
    let labels = match (&**train.labels(), &**test.labels()) {
        (Labels::Classes { of, classes }, Labels::Classes { of: more, .. }) => Labels::Classes {
            of: [&of[..], more].concat(),
            classes: *classes,
        },
        (Labels::Multi(of), Labels::Multi(more)) => {
            Labels::Multi(concatenate(Axis(0), &[of.view(), more.view()])?)
        }
        (Labels::Pixels(of), Labels::Pixels(more)) => {
            let all = concatenate(Axis(0), &[of.of(), more.of()])?;
            let objects = of.objects().zip(more.objects());
            let objects = objects.map(|(of, more)| concatenate(Axis(0), &[of, more]));
            let objects = objects.transpose()?;
            Labels::Pixels(Masks::new(of.classes(), of.size(), all, objects)?)
        }
        (Labels::Images(of), Labels::Images(more)) => {
            let all = concatenate(Axis(0), &[of.of(), more.of()])?;
            Labels::Images(Images::new(of.shape(), all)?)
        }
        (Labels::Numbers(of), Labels::Numbers(more)) => Labels::Numbers(of.join(more)?),
        _ => bail!("training and test rows have labels of two kinds"),
    };
    let all = Examples::all(inputs.inputs().clone(), Arc::new(labels))?;
    let before = train.samples.inputs().len();
    let of = |view: &Examples, before: usize| -> Vec<usize> {
        let ids = view.samples.ids().iter();
        ids.map(|id| *id as usize + before).collect()
    };
    let rows = [of(train, 0), of(test, before)].concat();
    Ok((all.pick(&rows), all.pick(&[])))
}

/// The rows of both, those of `first` in front; as plain numbers unless both are of one kind.
pub(crate) fn joined(first: &Samples, then: &Samples) -> Samples {
    let [mut inputs, more] = [first, then].map(|samples| {
        let ids = samples.ids().iter();
        let rows: Vec<usize> = ids.map(|id| *id as usize).collect();
        samples.inputs().select(&rows)
    });
    if let Err(more) = append(&mut inputs, more) {
        let values = |samples: Inputs| Samples::all(Arc::new(samples)).values().into_iter();
        let shape = inputs.shape();
        let data = values(inputs).chain(values(more)).collect();
        inputs = Inputs::Dense { shape, data };
    }
    Samples::all(Arc::new(inputs))
}

/// The first rows of every class, as many of each as keep the proportions.
pub(crate) fn first(examples: Examples, limit: Option<usize>) -> Result<Examples> {
    match limit.filter(|limit| *limit < examples.len()) {
        Some(limit) => {
            Ok(examples.pick(&Groups::of(&examples).take(limit, |_, _, k| (0..k).collect())?))
        }
        None => Ok(examples),
    }
}

/// Rows at random from every class, `total` of them, as many of each as keep the proportions.
pub(crate) fn of_every_class(
    examples: &Examples,
    total: usize,
    stream: &Stream,
) -> Result<Vec<usize>> {
    let choose = |group, n, k| stream.child("class", group as u64).draws().choose(n, k);
    Groups::of(examples).take(total, choose)
}

/// Takes the rows at these ascending positions out of `from`.
pub(crate) fn cut(from: &mut Examples, rows: &[usize]) -> Examples {
    let out = from.pick(rows);
    let rest: Vec<usize> = (0..from.len())
        .filter(|row| rows.binary_search(row).is_err())
        .collect();
    *from = from.pick(&rest);
    out
}
