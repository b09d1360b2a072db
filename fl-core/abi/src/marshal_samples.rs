//! How samples and pools to choose from cross.

use super::by_address::ByAddress;
use anyhow::{Context, bail};
use fl_roles::message::{Message, NamedTensors, SoftLabels, TensorMap, View};
use fl_roles::{
    AnyPool, Candidate, ClientStat, Examples, Images, Inputs, Labels, Masks, Pool, Problem, Result,
    Roster, Samples,
};
use ndarray::{Array2, ArrayD, ArrayViewD, Ix4, IxDyn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs `f` with the values of `x`, `samples x ..`: those of the set itself, if they are all of it
/// in order.
pub(super) fn with_values<R>(x: &Samples, f: impl FnOnce(ArrayViewD<'_, f32>) -> R) -> R {
    let shape: Vec<usize> = std::iter::once(x.len()).chain(x.shape()).collect();
    if let Inputs::Dense { data, .. } = &**x.inputs()
        && x.ids().iter().copied().eq(0..x.len() as u32)
        && let Some(data) = data.get(..x.len() * x.width())
        && let Ok(view) = ArrayViewD::from_shape(IxDyn(&shape), data)
    {
        return f(view);
    }
    let values = x.values().into_raw_vec_and_offset().0;
    match ArrayD::from_shape_vec(IxDyn(&shape), values) {
        Ok(values) => f(values.view()),
        Err(_) => f(ArrayD::zeros(IxDyn(&[0])).view()), // cannot be: as many values as the shape says
    }
}

/// A number for these samples, from 1: views with the same storage and the same ids have the same
/// number, and no others ever get it. So who made something of them knows them again.
pub(super) fn number(x: &Samples) -> u64 {
    static NUMBERED: Mutex<ByAddress<(usize, usize), u64>> = Mutex::new(ByAddress::new());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (inputs, ids) = (x.inputs(), x.shared_ids());
    let key = (Arc::as_ptr(inputs).addr(), ids.as_ptr().addr());
    let mut all = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    *all.get(key, || {
        let (inputs, ids) = (Arc::downgrade(inputs), Arc::downgrade(ids));
        let alive = move || inputs.strong_count() > 0 && ids.strong_count() > 0;
        (NEXT.fetch_add(1, Ordering::Relaxed), Box::new(alive))
    })
}

/// Samples from a tensor `values`, `samples x ..`.
pub(super) fn samples(parcel: &mut TensorMap) -> Result<Samples> {
    let values = parcel.f32("values")?;
    let (rows, shape) = values
        .shape()
        .split_first()
        .map(|(n, shape)| (*n, shape.to_vec()))
        .context("`values` has no dimension")?;
    let width = shape.iter().product();
    let values = values.as_standard_layout().into_owned();
    let values = Array2::from_shape_vec((rows, width), values.into_raw_vec_and_offset().0)?;
    Samples::fresh(values, shape)
}

/// Runs `f` with what is known of samples, in tensors that any library reads.
pub(super) fn with_labels<R>(own: &Examples, f: impl FnOnce(&NamedTensors<'_>) -> R) -> R {
    let mut tensors: NamedTensors<'_> = Vec::new();
    let (classes, findings) = (own.classes(), own.multi_label().map(|f| f.mapv(f32::from)));
    if let Some(classes) = &classes {
        let classes = ndarray::ArrayView1::from(classes).into_dyn();
        tensors.push(("classes".into(), View::U32(classes)));
    }
    if let Some(findings) = &findings {
        tensors.push(("multi-label".into(), View::F32(findings.view().into_dyn())));
    }
    let masks = own.masks().map(|m| m.of().mapv(f32::from));
    if let Some(masks) = &masks {
        tensors.push(("pixels".into(), View::F32(masks.view().into_dyn())));
    }
    let images = own.images().and_then(|of| {
        let [channels, height, width] = of.shape();
        let shape = (own.len(), channels, height, width);
        of.values().into_shape_with_order(shape).ok()
    });
    if let Some(images) = &images {
        tensors.push(("images".into(), View::F32(images.view().into_dyn())));
    }
    f(&tensors)
}

/// The labels that [`with_labels`] sent, of samples of this shape.
pub(super) fn labels(classes: usize, shape: &[usize], parcel: &mut TensorMap) -> Result<Labels> {
    Ok(if parcel.has("classes") {
        Labels::Classes {
            of: parcel.list("classes")?,
            classes,
        }
    } else if parcel.has("pixels") {
        let of = parcel.table("pixels")?.mapv(|x| x as u8);
        let size = match *shape {
            [_, height, width] => (height, width),
            _ => (1, of.ncols()),
        };
        Labels::Pixels(Masks::new(classes, size, of, None)?)
    } else if parcel.has("images") {
        let of = parcel.f32("images")?.into_dimensionality::<Ix4>()?;
        let (rows, channels, height, width) = of.dim();
        let bytes = of.mapv(|x| (x * 255.0).round() as u8);
        let bytes = bytes.into_shape_with_order((rows, channels * height * width))?;
        Labels::Images(Images::new([channels, height, width], bytes)?)
    } else {
        Labels::Multi(parcel.table("multi-label")?.mapv(|x| x as i8))
    })
}

/// Runs `f` with a pool as tensors.
pub(super) fn send<R>(pool: AnyPool<'_>, f: impl FnOnce(&NamedTensors<'_>) -> R) -> R {
    match pool {
        AnyPool::Clients(clients) => {
            let ids: Vec<u32> = clients.iter().map(|c| c.id).collect();
            let known = |wanted: ClientStat| -> Vec<f64> {
                let of = |c| wanted.known(c).unwrap_or(f64::NAN);
                clients.iter().map(of).collect()
            };
            let (sizes, losses) = (known(ClientStat::Samples), known(ClientStat::Loss));
            f(&vec![
                (
                    "losses".into(),
                    View::F64(ndarray::ArrayView1::from(&losses).into_dyn()),
                ),
                (
                    "clients".into(),
                    View::U32(ndarray::ArrayView1::from(&ids).into_dyn()),
                ),
                (
                    "sizes".into(),
                    View::F64(ndarray::ArrayView1::from(&sizes).into_dyn()),
                ),
            ])
        }
        AnyPool::Samples(samples) => with_values(samples, |values| {
            f(&vec![("values".into(), View::F32(values))])
        }),
        AnyPool::SoftLabels(labels) => f(&labels.tensors()),
    }
}

/// Runs `f` with the pool of this name, but samples, back from tensors.
pub(super) fn receive<R>(
    pool: &str,
    parcel: TensorMap,
    f: impl FnOnce(AnyPool<'_>) -> Result<R>,
) -> Result<R> {
    match pool {
        Roster::NAME => f(AnyPool::Clients(&clients(parcel)?)),
        SoftLabels::NAME => {
            let labels = SoftLabels::from_tensors(parcel)?;
            fl_roles::message::check(&labels)?;
            f(AnyPool::SoftLabels(&labels))
        }
        other => bail!("no pool is called `{other}`"),
    }
}

fn clients(mut parcel: TensorMap) -> Result<Vec<Candidate>> {
    let clients = parcel.list("clients")?;
    let (sizes, losses) = (parcel.f64("sizes")?, parcel.f64("losses")?);
    Problem::shape_unless(
        clients.len() == sizes.len() && clients.len() == losses.len(),
        || {
            format!(
                "{} clients, {} sizes and {} losses",
                clients.len(),
                sizes.len(),
                losses.len()
            )
        },
    )?;
    let known = |x: &f64| (!x.is_nan()).then_some(*x);
    let told = sizes.iter().zip(&losses);
    let all = clients.into_iter().zip(told);
    Ok(all
        .map(|(id, (size, loss))| Candidate {
            id,
            samples: known(size).map(|n| n as u64),
            loss: known(loss),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_samples_have_the_same_number_and_others_never_get_it() {
        let made = || Samples::fresh(Array2::zeros((4, 2)), vec![2]).unwrap();
        let all = made();
        let first = number(&all);
        assert_eq!(number(&all.clone()), first);
        assert_ne!(number(&all.pick(&[1, 2])), first);
        let mut seen = std::collections::BTreeSet::from([first]);
        // more than are remembered, each at an address that may have been another's
        assert!((0..1000).all(|_| seen.insert(number(&made()))));
        assert_eq!(number(&all), first);
    }
}
