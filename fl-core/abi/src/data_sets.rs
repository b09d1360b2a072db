//! The data sets of a protocol in a library: numbers in place of rows that both sides have.
//!
//! The program hands out the rows that one side of a protocol may see, and no others: a client's
//! own and the public ones. Rows of one set make one set at the library, numbered from 0. Its
//! number is good during the call that it was handed out in. A library fetches such a set once.

use super::by_address::ByAddress;
use anyhow::Context;
use fl_roles::{Examples, Inputs, Labels, Problem, Public, Result, Samples};
use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows of a set, by their number in it.
pub(super) enum Rows<'x> {
    /// The first rows, in order.
    First(usize),
    List(Cow<'x, [u32]>),
}

impl<'x> Rows<'x> {
    fn of(rows: Cow<'x, [u32]>) -> Self {
        if rows.iter().copied().eq(0..rows.len() as u32) {
            Self::First(rows.len())
        } else {
            Self::List(rows)
        }
    }
}

/// The sets that both sides know during a call.
pub(super) trait KnownSets {
    /// The number of the set of these samples, and their rows in it; `None` if the other side does
    /// not know them.
    fn place<'x>(&self, x: &'x Samples) -> Option<(u64, Rows<'x>)>;

    /// Which of the set's labels these are.
    fn label(&self, set: u64, of: &Arc<Labels>) -> Option<usize>;

    /// The samples that [`KnownSets::place`] has placed at the other side.
    fn samples(&self, set: u64, rows: Rows<'_>) -> Result<Samples>;

    /// The labels that [`KnownSets::label`] has found at the other side.
    fn labels(&self, set: u64, at: usize) -> Result<Arc<Labels>>;
}

/// Knows no set: all inputs cross themselves.
pub(super) struct NoSets;

impl KnownSets for NoSets {
    fn place<'x>(&self, _: &'x Samples) -> Option<(u64, Rows<'x>)> {
        None
    }
    fn label(&self, _: u64, _: &Arc<Labels>) -> Option<usize> {
        None
    }
    fn samples(&self, set: u64, _: Rows<'_>) -> Result<Samples> {
        Err(unknown(set))
    }
    fn labels(&self, set: u64, _: usize) -> Result<Arc<Labels>> {
        Err(unknown(set))
    }
}

fn unknown(set: u64) -> anyhow::Error {
    anyhow::anyhow!("this call was handed no data set {set}")
}

fn indices(rows: &[u32]) -> Vec<usize> {
    rows.iter().map(|row| *row as usize).collect()
}

/// Some rows of a set, ascending.
type Visible = Arc<[u32]>;

/// A set of which the program handed out rows.
struct HandedSet {
    number: u64,
    inputs: Arc<Inputs>,
    rows: Visible,
    /// Labels, and the rows whose labels the program handed out.
    labels: Vec<(Arc<Labels>, Visible)>,
}

/// What the program remembers of a set that it handed out, so that a library fetches it once.
struct SetEntry {
    number: u64,
    rows: Visible,
    labelled: Vec<Visible>,
}

/// By the addresses of inputs, ids and labels.
static NUMBERED: Mutex<ByAddress<Vec<usize>, SetEntry>> = Mutex::new(ByAddress::new());

/// A view of a set that is handed out, with its labels or without.
type SetView<'x> = (&'x Samples, Option<&'x Arc<Labels>>);

/// The rows of several views, each once.
fn union<'x>(views: impl Iterator<Item = &'x Samples>) -> Visible {
    let mut rows: Vec<u32> = views.flat_map(|of| of.ids()).copied().collect();
    if !rows.is_sorted_by(|a, b| a < b) {
        rows.sort_unstable();
        rows.dedup();
    }
    rows.into()
}

/// The sets that the program hands out to one side of a protocol in one call.
pub(super) struct HandedOut {
    own: Vec<Examples>,
    public: Option<Arc<Public>>,
    /// Made when the library first asks for one.
    sets: OnceCell<Vec<HandedSet>>,
}

impl HandedOut {
    /// The rows of a client's own and of the public data.
    pub fn new(own: Vec<Examples>, public: Option<Arc<Public>>) -> Self {
        Self {
            own,
            public,
            sets: OnceCell::new(),
        }
    }

    fn sets(&self) -> &[HandedSet] {
        self.sets.get_or_init(|| self.make())
    }

    fn make(&self) -> Vec<HandedSet> {
        let mut shown: Vec<SetView<'_>> = Vec::new();
        let public = self.public.as_deref().map(Public::whole);
        shown.extend(public.map(|(samples, ..)| (samples, None)));
        let labelled = public.into_iter().flat_map(|(_, a, b)| [a, b]).flatten();
        let labelled = self.own.iter().chain(labelled);
        shown.extend(labelled.map(|of| (&of.samples, Some(of.labels()))));
        let mut sets: Vec<HandedSet> = Vec::new();
        for (samples, _) in &shown {
            let inputs = samples.inputs();
            if !sets.iter().any(|set| Arc::ptr_eq(&set.inputs, inputs)) {
                let of_set = |(of, _): &&SetView<'_>| Arc::ptr_eq(of.inputs(), inputs);
                let views: Vec<_> = shown.iter().filter(of_set).copied().collect();
                sets.push(HandedSet::new(inputs, &views));
            }
        }
        sets
    }

    fn set(&self, number: u64) -> Result<&HandedSet> {
        let set = self.sets().iter().find(|set| set.number == number);
        set.ok_or_else(|| unknown(number))
    }

    fn handed_labels(&self, number: u64, at: usize) -> Result<&(Arc<Labels>, Visible)> {
        let labels = self.set(number)?.labels.get(at);
        labels.with_context(|| format!("there are no labels {at}"))
    }

    /// The inputs with this number, as the library has them.
    pub fn inputs(&self, number: u64) -> Result<Cow<'_, Inputs>> {
        let HandedSet { inputs, rows, .. } = self.set(number)?;
        Ok(if rows.len() == inputs.len() {
            Cow::Borrowed(&**inputs)
        } else {
            Cow::Owned(inputs.select(&indices(rows)))
        })
    }

    /// Labels of the inputs with this number. A row whose label is not handed out has that of
    /// another.
    pub fn labels_of(&self, number: u64, at: usize) -> Result<Cow<'_, Labels>> {
        let (labels, labelled) = self.handed_labels(number, at)?;
        if labelled.len() == labels.len() {
            return Ok(Cow::Borrowed(&**labels));
        }
        let known = |row: &u32| match labelled.binary_search(row) {
            Ok(at) => labelled[at] as usize,
            Err(_) => labelled.first().unwrap_or(row).to_owned() as usize,
        };
        let rows: Vec<usize> = self.set(number)?.rows.iter().map(known).collect();
        Ok(Cow::Owned(labels.select(&rows)))
    }
}

impl HandedSet {
    fn new(inputs: &Arc<Inputs>, views: &[SetView<'_>]) -> Self {
        let mut labels: Vec<&Arc<Labels>> = Vec::new();
        for of in views.iter().filter_map(|(_, labels)| *labels) {
            if !labels.iter().any(|known| Arc::ptr_eq(known, of)) {
                labels.push(of);
            }
        }
        let mut key = vec![Arc::as_ptr(inputs).addr()];
        for (samples, labels) in views {
            key.push(samples.shared_ids().as_ptr().addr());
            key.push(labels.map_or(0, |of| Arc::as_ptr(of).addr()));
        }
        let mut all = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(key, || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let of = |of: &&Arc<Labels>| {
                let with = |(_, own): &&SetView<'_>| own.is_some_and(|own| Arc::ptr_eq(own, of));
                union(views.iter().filter(with).map(|(samples, _)| *samples))
            };
            let entry = SetEntry {
                number: NEXT.fetch_add(1, Ordering::Relaxed),
                rows: union(views.iter().map(|(samples, _)| *samples)),
                labelled: labels.iter().map(of).collect(),
            };
            let ids = views.iter().map(|(of, _)| Arc::downgrade(of.shared_ids()));
            let ids: Vec<_> = ids.collect();
            let all = labels.iter().map(|of| Arc::downgrade(of));
            let (inputs, labels) = (Arc::downgrade(inputs), all.collect::<Vec<_>>());
            let alive = move || {
                inputs.strong_count() > 0
                    && ids.iter().all(|of| of.strong_count() > 0)
                    && labels.iter().all(|of| of.strong_count() > 0)
            };
            (entry, Box::new(alive))
        });
        let labelled = known.labelled.iter().cloned();
        Self {
            number: known.number,
            inputs: inputs.clone(),
            rows: known.rows.clone(),
            labels: labels.into_iter().cloned().zip(labelled).collect(),
        }
    }
}

impl KnownSets for HandedOut {
    fn place<'x>(&self, x: &'x Samples) -> Option<(u64, Rows<'x>)> {
        let of = |set: &&HandedSet| Arc::ptr_eq(&set.inputs, x.inputs());
        let set = self.sets().iter().find(of)?;
        let (ids, rows) = (x.ids(), &*set.rows);
        if ids == rows {
            return Some((set.number, Rows::First(ids.len())));
        }
        let at = |id| rows.binary_search(id).ok().map(|at| at as u32);
        let at: Option<Vec<u32>> = ids.iter().map(at).collect();
        Some((set.number, Rows::of(at?.into())))
    }

    fn label(&self, set: u64, of: &Arc<Labels>) -> Option<usize> {
        let labels = &self.set(set).ok()?.labels;
        labels.iter().position(|(known, _)| Arc::ptr_eq(known, of))
    }

    fn samples(&self, set: u64, rows: Rows<'_>) -> Result<Samples> {
        let HandedSet {
            inputs,
            rows: visible,
            ..
        } = self.set(set)?;
        let row = |at: &u32| {
            let row = visible.get(*at as usize).copied();
            row.with_context(|| {
                Problem::Shape(format!(
                    "row {at} of the {} rows of data set {set}",
                    visible.len()
                ))
            })
        };
        let ids = match rows {
            Rows::First(n) => {
                let first = visible.get(..n);
                first.map(<[u32]>::to_vec).with_context(|| {
                    Problem::Shape(format!(
                        "{n} of the {} rows of data set {set}",
                        visible.len()
                    ))
                })?
            }
            Rows::List(at) => at.iter().map(row).collect::<Result<_>>()?,
        };
        Samples::of(inputs.clone(), ids)
    }

    fn labels(&self, set: u64, at: usize) -> Result<Arc<Labels>> {
        Ok(self.handed_labels(set, at)?.0.clone())
    }
}

/// A part of a set, and how many bytes it has.
pub(super) type Bytes<T> = (T, usize);

/// The sets that a library knows during a call, by their numbers.
#[derive(Default)]
pub(super) struct LibrarySets(Mutex<BTreeMap<u64, LibrarySet>>);

struct LibrarySet {
    inputs: Arc<Inputs>,
    labels: BTreeMap<usize, Arc<Labels>>,
}

impl LibrarySets {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, LibrarySet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn place<'x>(&self, x: &'x Samples) -> Option<(u64, Rows<'x>)> {
        let all = self.all();
        let mut all = all.iter();
        let (number, _) = all.find(|(_, set)| Arc::ptr_eq(&set.inputs, x.inputs()))?;
        Some((*number, Rows::of(Cow::Borrowed(x.ids()))))
    }

    pub fn label(&self, set: u64, of: &Arc<Labels>) -> Option<usize> {
        let all = self.all();
        let mut known = all.get(&set)?.labels.iter();
        let (at, _) = known.find(|(_, known)| Arc::ptr_eq(known, of))?;
        Some(*at)
    }

    /// The samples of a set, whose inputs `fetch` gets if this library has them no more.
    pub fn samples(
        &self,
        set: u64,
        rows: Rows<'_>,
        fetch: impl FnOnce() -> Result<Bytes<Inputs>>,
    ) -> Result<Samples> {
        let known = self.all().get(&set).map(|set| set.inputs.clone());
        let inputs = match known {
            Some(inputs) => inputs,
            None => {
                let inputs = fetched((set, None), fetch)?;
                let own = LibrarySet {
                    inputs: inputs.clone(),
                    labels: BTreeMap::new(),
                };
                self.all().insert(set, own);
                inputs
            }
        };
        match rows {
            Rows::First(n) if n == inputs.len() => Ok(Samples::all(inputs)),
            Rows::First(n) => Samples::of(inputs, (0..u32::try_from(n)?).collect()),
            Rows::List(rows) => Samples::of(inputs, rows.into_owned()),
        }
    }

    /// Labels of a set, as [`LibrarySets::samples`].
    pub fn labels(
        &self,
        set: u64,
        at: usize,
        fetch: impl FnOnce() -> Result<Bytes<Labels>>,
    ) -> Result<Arc<Labels>> {
        let found = |set: &LibrarySet| set.labels.get(&at).cloned();
        if let Some(found) = self.all().get(&set).and_then(found) {
            return Ok(found);
        }
        let labels = fetched((set, Some(at)), fetch)?;
        if let Some(set) = self.all().get_mut(&set) {
            set.labels.insert(at, labels.clone());
        }
        Ok(labels)
    }
}

/// The number of bytes that a library keeps from call to call.
const KEPT: usize = 64 << 20;

/// The number of a set, and of its labels if it is those.
type SetPart = (u64, Option<usize>);

/// Inputs and labels that this library has fetched, with their bytes, the last used at the end.
static FETCHED: Mutex<Vec<CachedSet>> = Mutex::new(Vec::new());

type CachedSet = (SetPart, Arc<dyn Any + Send + Sync>, usize);

/// Returns what has this number, and fetches it if this library has it no more.
fn fetched<T: Any + Send + Sync>(
    number: SetPart,
    fetch: impl FnOnce() -> Result<Bytes<T>>,
) -> Result<Arc<T>> {
    let all = || FETCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = {
        let mut all = all();
        let at = all.iter().position(|(of, ..)| *of == number);
        at.map(|at| {
            let found = all.remove(at);
            all.push(found.clone());
            found.1
        })
    };
    if let Some(Ok(known)) = known.map(Arc::downcast) {
        return Ok(known);
    }
    let (made, bytes) = fetch()?;
    let made = Arc::new(made);
    let mut all = all();
    all.push((number, made.clone(), bytes));
    let mut sum: usize = all.iter().map(|(.., bytes)| bytes).sum();
    while sum > KEPT && all.len() > 1 {
        sum -= all.remove(0).2;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six rows of one number each, with their classes.
    fn set() -> Examples {
        let (shape, data) = (vec![1], (0..6).map(|i| i as f32).collect());
        let (of, classes) = (vec![0, 1, 2, 3, 4, 5], 6);
        let labels = Labels::Classes { of, classes };
        Examples::all(Arc::new(Inputs::Dense { shape, data }), Arc::new(labels)).unwrap()
    }

    fn values(of: &Inputs) -> Vec<f32> {
        match of {
            Inputs::Dense { data, .. } => data.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn classes(of: &Labels) -> Vec<u32> {
        match of {
            Labels::Classes { of, .. } => of.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_is_handed_its_own_rows_and_the_public_ones() {
        let all = set();
        let (own, other) = (all.pick(&[4, 1]), all.pick(&[0, 2]));
        let public = Arc::new(Public::unlabelled(all.pick(&[5]).samples));
        let handed = HandedOut::new(vec![own.clone()], Some(public.clone()));
        let (number, rows) = handed.place(&own.samples).unwrap();
        assert!(matches!(rows, Rows::List(rows) if *rows == [1, 0]));
        assert_eq!(values(&handed.inputs(number).unwrap()), [1.0, 4.0, 5.0]);
        let label = handed.label(number, own.labels()).unwrap();
        // the public row has no label here: it has that of another row
        let labels = handed.labels_of(number, label).unwrap();
        assert_eq!(classes(&labels), [1, 4, 1]);
        // both are of one set there, as they are here
        let (same, rows) = handed.place(public.samples()).unwrap();
        assert!(same == number && matches!(rows, Rows::List(rows) if *rows == [2]));
        let back = handed.samples(number, Rows::List(Cow::Borrowed(&[1, 1, 2])));
        assert_eq!(back.unwrap().ids(), [4, 4, 5]);
        let beyond = handed.samples(number, Rows::First(4)).unwrap_err();
        assert_eq!(
            beyond.to_string(),
            "4 of the 3 rows of data set ".to_string() + &number.to_string()
        );
        assert!(
            handed
                .samples(number, Rows::List(Cow::Borrowed(&[3])))
                .is_err()
        );
        // another client's set has another number, which this one was not handed
        let others = HandedOut::new(vec![other.clone()], Some(public.clone()));
        let (elsewhere, _) = others.place(&other.samples).unwrap();
        assert_ne!(elsewhere, number);
        for refused in [
            handed.inputs(elsewhere).err(),
            handed.labels_of(elsewhere, 0).err(),
        ] {
            let text = refused.unwrap().to_string();
            assert_eq!(
                text,
                format!("this call was handed no data set {elsewhere}")
            );
        }
        assert!(handed.samples(elsewhere, Rows::First(1)).is_err());
        // samples of rows that were not handed out have no place
        assert!(handed.place(&other.samples).is_none());
        // a library fetches a set once: it has its number in the next call too
        let again = HandedOut::new(vec![own.clone()], Some(public));
        assert_eq!(again.place(&own.samples).unwrap().0, number);
    }

    #[test]
    fn inputs_of_every_form_are_selected_by_row() {
        let bytes = Inputs::Bytes {
            shape: [1, 1, 2],
            data: vec![1, 2, 3, 4, 5, 6],
            mean: vec![0.0],
            std: vec![1.0],
        };
        let sparse = Inputs::Sparse {
            width: 3,
            starts: vec![0, 2, 2, 3],
            columns: vec![0, 2, 1],
            values: vec![1.0, 2.0, 3.0],
        };
        for of in [bytes, sparse] {
            let (width, picked) = (of.width(), of.select(&[2, 0, 2]));
            assert!(picked.is_sound() && picked.len() == 3);
            for (at, row) in [2, 0, 2].into_iter().enumerate() {
                let (mut one, mut other) = (vec![0.0; width], vec![0.0; width]);
                of.write_row(row, &mut one);
                picked.write_row(at, &mut other);
                assert_eq!(one, other);
            }
        }
    }
}
