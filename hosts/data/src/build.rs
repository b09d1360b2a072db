//! From a spec to the data of every client.

use crate::features::{self, FeatureMap};
use crate::other_scale::{other_scale, sources_of_other_scale};
use crate::partition::{by_class, fedkt_image_split, fedkt_queries, fedkt_tabular_split};
use crate::public::{Public, PublicFrom};
use crate::section::DataSpec;
use crate::shared_rows::{
    RowHash, RowSet, digest_of_rows, hashes, overlaps, owned_twice, row_hashes,
};
use crate::split::{Groups, by_file, by_user, clients_of_users, extremes, split};
use crate::split_spec::Split;
use crate::test_rows::owners_of_tests;
use crate::undersampled::{self, Undersampled, Undersampler};
use anyhow::{Context, Result, bail, ensure};
use fl_core::{
    Examples, Images, Inputs, Labels, Masks, PrivacyEvent, Samples, Stream, Task, first_names,
    floor_share,
};
use fl_data_kit::format::append;
use fl_data_kit::{Normalise, Set, SetSpec, check_ranges, dataset::Source, load_seen};
use ndarray::{Axis, concatenate};
use std::path::Path;
use std::sync::Arc;

/// The most clients that an error names.
const LISTED: usize = 10;

/// What the results of a run show of test rows that are a client's own.
const MEASURED: &str = "models are measured on rows of each client (`data.test`)";

/// The data of a run. All views of one part of a set share its storage.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// What each client trains with; some may own nothing.
    pub clients: Vec<Examples>,
    /// What each client sets aside for validation: one per client, or empty if the spec asks for
    /// none.
    pub client_validation: Vec<Examples>,
    /// Samples that all may see.
    pub public: Option<PublicSamples>,
    /// Examples for all tests.
    pub test: Examples,
    /// What each client's own model is tested with, if clients belong to domains or test with rows
    /// of their own: one per client, or empty.
    pub client_tests: Vec<Examples>,
    /// Are these rows of the clients' own?
    pub own_tests: bool,
    /// The set's own validation rows, if it has any.
    pub validation: Option<Examples>,
    /// What is to be learned.
    pub task: Task,
    /// The file or user of each client, if each has one of its own; empty otherwise.
    pub owners: Vec<String>,
    /// Names of the classes, if the files give them.
    pub classes: Vec<String>,
    /// What became of each column of the files: its name, and how it is read.
    pub columns: Vec<(String, String)>,
    /// Warnings about an extreme split. They disclose how much a client has, so they are not
    /// shown in runs with an accountant.
    pub uneven: Vec<String>,
    /// As `notes`, but they tell of single rows, such as one that is a test row too. Runs with an
    /// accountant do not show them.
    pub hidden_notes: Vec<String>,
    /// What a user should know before a run: what was inferred from the rows, what is missing.
    pub notes: Vec<String>,
    /// Properties inferred from all rows of the clients: kinds of columns, categories,
    /// classes, means. Observers of a run see some of them.
    pub inferred: Vec<String>,
    /// The hash of the rows of the clients' set ([`build_identified`]).
    pub digest: Option<String>,
    /// The hashes of single rows ([`build_identified`]).
    pub identity: Option<RowIdentity>,
    /// What was taken from each value; `None` if the values are as in the files.
    pub normalise: Option<Normalise>,
    /// What the inputs were put through after that, if the spec has `features`.
    pub features: Option<FeatureMap>,
    /// The test and the public rows before these features.
    pub(crate) plain: Option<[RowSet; 2]>,
    /// What the runs released that made some of these rows from clients' rows.
    pub inherited: Vec<PrivacyEvent>,
    /// A row that two clients have. A guarantee for one example assumes that it is one client's.
    pub twice: Option<String>,
}

impl Assembled {
    /// How many of these rows are test rows, and how many of them are public. Features do not
    /// matter, by which different rows may become the same: `rows` are without.
    pub fn shared_rows(&self, rows: &Samples) -> [usize; 2] {
        let now = || self.row_sets();
        let sets = self.plain.clone().unwrap_or_else(now);
        sets.map(|set| set.count(hashes(rows)))
    }

    /// The test and the public rows, as they are now.
    pub(crate) fn row_sets(&self) -> [RowSet; 2] {
        let public = self.public.as_ref().map(|public| &public.samples);
        [Some(&self.test.samples), public].map(|rows| RowSet::of(rows.into_iter().flat_map(hashes)))
    }
}

/// The hashes of rows as they were decoded.
#[derive(Clone, Debug)]
pub struct RowIdentity {
    /// Those of each client, of all its rows.
    pub clients: Vec<Vec<RowHash>>,
    /// Those of public rows, and of the test rows of a user's own set.
    pub public: Vec<RowHash>,
}

/// The public samples.
#[derive(Clone, Debug)]
pub struct PublicSamples {
    /// The inputs.
    pub samples: Samples,
    /// The same rows with their labels, if the spec makes them public.
    pub labelled: Option<Examples>,
    /// The same rows with their labels, for measurements only; `None` if they come from another
    /// set, whose classes mean something else.
    pub truth: Option<Examples>,
}

/// Reads or makes the set in the data directory `dir`, takes out the public samples and shares out
/// the others. Nothing but `spec` and `stream` decides which sample goes where.
///
/// # Errors
/// If the spec would not be read from a file, a set cannot be loaded, or nothing is left for the
/// clients.
pub fn build(spec: &DataSpec, dir: &Path, stream: &Stream) -> Result<Assembled> {
    assemble(spec, dir, stream, false)
}

/// As [`build`], with the hash of all training rows of the clients' set, as decoded and in any
/// order: two specs with the same rows have the same, whatever their split and their `limit`.
///
/// # Errors
/// As [`build`].
pub fn build_identified(spec: &DataSpec, dir: &Path, stream: &Stream) -> Result<Assembled> {
    assemble(spec, dir, stream, true)
}

fn assemble(spec: &DataSpec, dir: &Path, stream: &Stream, identify: bool) -> Result<Assembled> {
    check_ranges(spec).context("data")?;
    // those of a user's own files are checked once they have been read
    if let Some(own) = spec.set.task() {
        spec.fits(&own)?;
    }
    // with `split: own` no client has these rows, and nodes compare their own
    let others = match spec.split() {
        Split::Own => Vec::new(),
        _ => spec.public_sets().collect(),
    };
    let mut same = others.iter();
    let shared = same.find_map(|public| spec.set.shared_source(public, dir));
    let compared = !others.is_empty() && shared.is_none();
    // published test rows of a set may equal its training rows by chance
    let looks = spec.set.of_a_user() || !others.is_empty();
    let (mut seen, mut hashed) = (SeenRows::default(), SeenRows::default());
    let Set {
        train,
        test,
        validation,
        normalise,
        sources,
        test_sources,
        mut classes,
        columns,
        mut notes,
        inferred,
        mut hidden_notes,
    } = load_seen(
        &spec.set,
        dir,
        spec.normalise.as_ref(),
        &mut |rows, test| {
            if looks {
                (seen.own, seen.tested) = (hashes(rows).collect(), hashes(test).collect());
            }
            if identify {
                hashed.own = row_hashes(rows);
                if spec.set.of_a_user() || spec.pools_tests() || spec.tests_in_files() {
                    hashed.tested = row_hashes(test);
                }
            }
        },
    )
    .and_then(|set| numbered(spec, set))?;
    let own_rows = RowSet::of(seen.own.iter().copied());
    let of_tests = inferred.iter().any(|found| found.of_test_rows);
    let mut inferred: Vec<String> = inferred.into_iter().map(|found| found.text).collect();
    if spec.set.of_a_user() && !of_tests && own_rows.count(seen.tested.iter().copied()) > 0 {
        inferred.push("rows of the clients' files are test rows as well".into());
    }
    if let Some(order) = spec.class_order.as_ref().filter(|_| !classes.is_empty()) {
        classes = order.iter().map(|old| classes[*old].clone()).collect();
    }
    spec.fits(&train.task())?;
    let name = spec.set.name();
    ensure!(!train.is_empty(), "data set `{name}` has no training rows");
    hidden_notes.extend(spec.limit.notes((train.len(), test.len())));
    let mut train = first(train, spec.limit.train)?;
    let mut test = first(test, spec.limit.test)?;
    if spec.pools_tests() {
        (train, test) = pooled(&train, &test)?;
        seen.own.append(&mut seen.tested);
        hashed.own.append(&mut hashed.tested);
    }

    let (mut public, mut taken) = (None, Taken::default());
    if let Some(how) = &spec.public {
        let mut other = |set: &SetSpec| {
            let loaded = load_seen(set, dir, normalise.as_ref(), &mut |rows, _| {
                seen.others.push(hashes(rows).collect());
                if identify {
                    hashed.others.push(row_hashes(rows));
                }
            });
            let loaded = loaded.context("the public set")?;
            let found = |note: &String| loaded.inferred.iter().any(|found| found.text == *note);
            let form = loaded.notes.iter().filter(|note| !found(note));
            notes.extend(form.map(|note| format!("public samples: {note}")));
            let lost = loaded.hidden_notes.iter();
            hidden_notes.extend(lost.map(|note| format!("public samples: {note}")));
            // labels that are not used need not have the same classes
            if how.labelled {
                numbered(spec, loaded)
            } else {
                Ok(loaded)
            }
        };
        let stream = stream.child("public", 0);
        let (samples, rows) = take_public(how, &mut train, &mut test, &mut other, &stream)?;
        let labels = samples.labelled.as_ref().map(|of| &**of.labels());
        if let (Labels::Numbers(own), Some(Labels::Numbers(open))) = (&**train.labels(), labels) {
            own.fits(open).context("the labels of the public samples")?;
        }
        (public, taken) = (Some(samples), rows);
    }
    ensure!(!train.is_empty(), "no samples are left for the clients");
    ensure!(
        spec.pools_tests() || !test.is_empty(),
        "no samples are left to test with"
    );

    let mut twice = None;
    // nodes have rows, and test rows, of their own
    let at_nodes = matches!(spec.split(), Split::Own);
    if looks && !at_nodes {
        let how = spec.public.as_ref();
        let from = match how.map(|how| &how.from) {
            Some(PublicFrom::Tabular) => &seen.own,
            _ => &seen.tested,
        };
        let tested = of_ids(test.samples.ids(), from);
        let open = how.map_or(Vec::new(), |how| seen.public(how, &taken));
        let own = of_ids(train.samples.ids(), &seen.own);
        twice = owned_twice(&seen.own, &sources);
        let of = origins(&train, &sources);
        hidden_notes.extend(overlaps((&own, &of), &tested, &open, twice.as_ref()));
        match sources_of_other_scale(&train.samples, &of, &sources) {
            Some(told) => hidden_notes.push(told),
            None => {
                let public = public.as_ref().map(|of| ("public rows", &of.samples));
                let others = [Some(("test rows", &test.samples)), public];
                let others = others.into_iter().flatten();
                hidden_notes.extend(others.filter_map(|rows| other_scale(&train.samples, rows)));
            }
        }
    }
    if spec.set.of_a_user() {
        hidden_notes.extend(of_one_class(&test, &classes));
        hidden_notes.extend(of_one_value(&test, &classes));
    }

    let (number, name) = (spec.clients(), spec.set.name());
    if spec.set.of_a_user() {
        inferred.extend(shown_by_settings(spec));
    }
    if let Some(what) = shared {
        inferred.push(format!("{what} is the clients' and public as well"));
    }
    if compared && own_rows.count(seen.others.iter().flatten().copied()) > 0 {
        inferred.push(format!(
            "rows of `{name}` are the clients' and public as well"
        ));
    }
    let (drawn, owner_of) = (stream.child("split", 0), || origins(&train, &sources));
    let parts = match spec.split() {
        Split::ByFile => by_file(&owner_of(), sources.len(), number, name),
        Split::ByUser => by_user(&owner_of(), sources.len(), number, name, &drawn),
        how => split(
            &Groups::to_split(&train, spec.label_groups),
            &how,
            number,
            name,
            &drawn,
        ),
    }
    .with_context(|| format!("`split`: splitting `{name}`"))?;
    let uneven = if at_nodes {
        Vec::new()
    } else {
        extremes(&parts.sizes())
    };
    let mut client_tests = Vec::new();
    if spec.tests_in_files() && !at_nodes {
        let sources = (&sources[..], &test_sources[..]);
        let (tests, note) = in_files(spec, &test, sources, &drawn)?;
        client_tests = tests;
        notes.extend(note);
    }
    let owners = match spec.split() {
        Split::ByFile | Split::ByUser if sources.len() == number => {
            sources.into_iter().map(|source| source.name).collect()
        }
        _ => Vec::new(),
    };
    let mut clients: Vec<Examples> = parts.clients.iter().map(|rows| train.pick(rows)).collect();
    let identity = identify.then(|| {
        let public = spec.public.as_ref();
        let public = public.map_or(Vec::new(), |how| hashed.public(how, &taken));
        hashed.identity(&clients, &client_tests, public)
    });
    if let Some(how) = spec.test.as_ref().filter(|how| !how.in_files()) {
        let mut all = Vec::new();
        for (k, own) in clients.iter_mut().enumerate().filter(|_| !at_nodes) {
            let rows = how.draw(k, own, &stream.child("test", k as u64))?;
            all.extend(rows.iter().map(|row| parts.clients[k][*row]));
            client_tests.push(cut(own, &rows));
        }
        if spec.pools_tests() {
            test = train.pick(&all);
        }
        // as below
        inferred.push("a client's test rows depend on its number of rows".into());
    }
    if spec.test.is_some() {
        inferred.push(MEASURED.into());
    }
    let mut client_validation = vec![];
    if spec.validation != 0.0 {
        for (k, own) in clients.iter_mut().enumerate() {
            let aside = floor_share(spec.validation, own.len());
            let rows = stream
                .child("validation", k as u64)
                .draws()
                .choose(own.len(), aside);
            client_validation.push(cut(own, &rows));
        }
        // one row more changes the draw, and so, many of the rows that are left for training
        inferred.push("a client's validation rows depend on its number of rows".into());
    }
    if let Some(domains) = &spec.domains {
        domains.turn_all(&mut clients)?;
        domains.turn_all(&mut client_validation)?;
        domains.turn_all(&mut client_tests)?;
        let of_domain;
        (test, of_domain) = domains.test(&test, clients.len())?;
        if spec.test.is_none() {
            client_tests = of_domain;
        }
    }
    if let Some(noise) = &spec.feature_noise {
        let views = [&mut clients[..], &mut client_validation, &mut client_tests];
        noise.add(views, &stream.child("feature-noise", 0))?;
        // a row more in front of others moves their numbers
        inferred.push("the noise on a row (`data.feature-noise`) depends on its number".into());
    }
    let mut all = Assembled {
        task: train.task(),
        clients,
        client_tests,
        own_tests: spec.test.is_some(),
        client_validation,
        public,
        test,
        validation,
        owners,
        classes,
        columns,
        notes,
        uneven,
        hidden_notes,
        inferred,
        digest: identify.then(|| fl_core::hex(&digest_of_rows(hashed.own))),
        identity,
        normalise,
        features: None,
        plain: None,
        inherited: Vec::new(),
        twice: twice.filter(|_| matches!(spec.split(), Split::ByFile | Split::ByUser)),
    };
    if let Some(how) = &spec.undersampled {
        undersample(&mut all, how)?;
    }
    if let Some(how) = &spec.features {
        features::put(&mut all, how)?;
    }
    Ok(all)
}

/// The set with its classes in the order of the spec.
fn numbered(spec: &DataSpec, mut set: Set) -> Result<Set> {
    if let Some(order) = &spec.class_order {
        let parts = [&mut set.train, &mut set.test].into_iter();
        for part in parts.chain(&mut set.validation) {
            *part = renumbered(part, order)?;
        }
    }
    Ok(set)
}

/// What the settings of a user's own set let observers see of its rows.
fn shown_by_settings(spec: &DataSpec) -> impl Iterator<Item = String> {
    let public = spec.public.as_ref();
    let all = [
        (
            public.is_some_and(|public| public.from.of_clients()),
            "public samples are taken out of the clients' files",
        ),
        (
            spec.limit.train.is_some(),
            "the rows that `limit` keeps depend on all rows of the clients",
        ),
        // one row more in front of others changes their masks too
        (
            spec.undersampled.is_some(),
            "the frequencies that `undersampled` keeps depend on a row's place in its file",
        ),
    ];
    let shown = all.into_iter().filter(|(shows, _)| *shows);
    shown.map(|(_, what)| what.into())
}

/// Images to be made again, where there were classes.
fn undersample(all: &mut Assembled, how: &Undersampled) -> Result<()> {
    all.task = how.task(&all.task)?;
    all.classes = Vec::new();
    let public = all.public.iter().map(|public| &public.samples);
    let own = all.clients.iter().chain(&all.client_validation);
    let own = own.chain(&all.client_tests);
    let views: Vec<&Samples> = own
        .chain([&all.test])
        .chain(&all.validation)
        .map(|view| &view.samples)
        .chain(public)
        .collect();
    let less = Undersampler::new(how, &views)?;
    let own = all.clients.iter_mut().chain(&mut all.client_validation);
    let own = own.chain(&mut all.client_tests);
    for view in own.chain([&mut all.test]).chain(&mut all.validation) {
        *view = less.examples(view)?;
    }
    if let Some(public) = &mut all.public {
        public.samples = less.samples(&public.samples)?;
        for view in public.labelled.iter_mut().chain(&mut public.truth) {
            *view = less.examples(view)?;
        }
    }
    let psnr = undersampled::psnr(&all.test)?;
    all.notes.push(format!(
        "the undersampled test images themselves have a PSNR of {psnr:.2} dB"
    ));
    Ok(())
}

/// The test rows of each client, from its files among `sources.1`, and what a user should know.
///
/// # Errors
/// If a client has none, or a file belongs to no client.
fn in_files(
    spec: &DataSpec,
    test: &Examples,
    sources: (&[Source], &[Source]),
    drawn: &Stream,
) -> Result<(Vec<Examples>, Option<String>)> {
    let (train, tests) = sources;
    let (of, note) = owners_of_tests(train, tests, &spec.split())?;
    let clients = spec.clients();
    let client_of = clients_of_users(train.len(), clients, drawn)?;
    let rows = origins(test, tests).into_iter();
    let rows: Vec<usize> = rows.map(|source| client_of[of[source]]).collect();
    let rows = by_class(&rows, clients)?;
    let none = rows.iter().enumerate().filter(|(_, rows)| rows.is_empty());
    let name = |client: usize| {
        let mut own = train.iter().zip(&client_of);
        let own = own.find(|(_, of)| **of == client);
        format!("{client} ({})", own.map_or("", |(source, _)| &source.name))
    };
    let none: Vec<String> = none.map(|(client, _)| name(client)).collect();
    ensure!(
        none.is_empty(),
        "`data.test.own: files`: clients have no test rows: {}; each needs at least one",
        first_names(&none, LISTED)
    );
    let own = rows.iter().map(|rows| test.pick(rows));
    Ok((own.collect(), note))
}

/// The file or user that each row comes from; row ids count through all of them.
fn origins(train: &Examples, sources: &[Source]) -> Vec<usize> {
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
fn renumbered(examples: &Examples, order: &[usize]) -> Result<Examples> {
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

/// The ids of the public samples in the sets that they come from.
#[derive(Default)]
struct Taken {
    /// Of those of `from`.
    whole: Vec<u32>,
    /// Of those of `mix`.
    mixed: Vec<u32>,
}

/// The hashes of rows by their ids.
#[derive(Default)]
struct SeenRows<H> {
    /// Of the clients' set.
    own: Vec<H>,
    /// Of its test rows.
    tested: Vec<H>,
    /// Of each other set, in the order of loading.
    others: Vec<Vec<H>>,
}

impl<H: Copy> SeenRows<H> {
    /// Those of the public samples; none if the rows that they were taken from have no hashes.
    fn public(&self, how: &Public, taken: &Taken) -> Vec<H> {
        let from = match how.from {
            PublicFrom::HalfOfTest => &self.tested,
            PublicFrom::Set(_) => &self.others[0],
            _ => &self.own,
        };
        let mut all = if from.is_empty() {
            Vec::new()
        } else {
            of_ids(&taken.whole, from)
        };
        if let Some(mixed) = self.others.last().filter(|_| !taken.mixed.is_empty()) {
            all.extend(of_ids(&taken.mixed, mixed));
        }
        all
    }
}

impl SeenRows<RowHash> {
    /// The hashes of each client's rows, with those of its tests if they are its own, and of the
    /// public rows.
    fn identity(
        &mut self,
        clients: &[Examples],
        tests: &[Examples],
        mut public: Vec<RowHash>,
    ) -> RowIdentity {
        let own = |own: &Examples| of_ids(own.samples.ids(), &self.own);
        let mut clients: Vec<_> = clients.iter().map(own).collect();
        if tests.is_empty() {
            public.extend(&self.tested)
        } else {
            for (own, tests) in clients.iter_mut().zip(tests) {
                own.extend(of_ids(tests.samples.ids(), &self.tested));
            }
            self.own.append(&mut self.tested);
        }
        RowIdentity { clients, public }
    }
}

fn of_ids<H: Copy>(ids: &[u32], all: &[H]) -> Vec<H> {
    ids.iter().map(|id| all[*id as usize]).collect()
}

/// Takes the public rows out of the training or test rows, or from the set that `other` loads.
fn take_public(
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
            // `other` applies the private set's statistics, not this set's own: one model sees both
            // kinds of rows, so a byte must mean the same value in either, whichever set a row
            // is from.
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

/// Training and test rows as rows of one storage, the training rows in front, and no test rows. A
/// row's id is its place in the whole set.
fn pooled(train: &Examples, test: &Examples) -> Result<(Examples, Examples)> {
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

/// Says that all test rows are of one of several classes, as a file that is sorted by class gives
/// them; `None` if they are not, or too few to tell.
fn of_one_class(tests: &Examples, classes: &[String]) -> Option<String> {
    const FEW: usize = 10;
    let of = tests.classes().filter(|of| of.len() >= FEW)?;
    let same = classes.len() > 1 && of.iter().all(|class| *class == of[0]);
    same.then(|| {
        let auc = if classes.len() == 2 { ", and `auc` is missing" } else { "" };
        format!(
            "all {} test rows are of the class `{}`: how well a model tells the {} classes apart is not measured{auc}",
            of.len(),
            classes[of[0] as usize],
            classes.len()
        )
    })
}

/// Names the labels that no test row has, or that no test row lacks; `None` if there are none.
fn of_one_value(tests: &Examples, labels: &[String]) -> Option<String> {
    let Labels::Multi(of) = &**tests.labels() else {
        return None;
    };
    let some = |label: usize, value: i8| {
        let mut ids = tests.samples.ids().iter();
        ids.any(|id| of[[*id as usize, label]] == value)
    };
    let same = labels.iter().enumerate();
    let same: Vec<String> = same
        .filter(|(label, _)| !some(*label, 0) || !some(*label, 1))
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    (!same.is_empty()).then(|| {
        let score = if same.len() == labels.len() {
            "there is no `mauc`"
        } else {
            "`mauc` is a mean over the others"
        };
        format!(
            "{} of {} labels are the same in all test rows that have them, so {score}: {}",
            same.len(),
            labels.len(),
            first_names(&same, 5)
        )
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

/// Rows at random from every class, `total` of them, as many of each as keep the proportions.
fn of_every_class(examples: &Examples, total: usize, stream: &Stream) -> Result<Vec<usize>> {
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
