//! From a spec to the data of every client.

use crate::assembled::Assembled;
use crate::feature_noise::with_values;
use crate::features::Features;
use crate::other_scale::{other_scale, sources_of_other_scale};
use crate::partition::by_class;
use crate::public::PublicFrom;
use crate::public_rows::take_public;
use crate::rows::{cut, first, origins, pooled, renumbered};
use crate::section::DataSpec;
use crate::seen_rows::{SeenRows, Taken, of_ids};
use crate::shared_rows::{
    RowHash, RowSet, digest_of_rows, hashes, overlaps, owned_twice, row_hashes,
};
use crate::split::{Groups, by_file, by_user, clients_of_users, extremes, split};
use crate::split_spec::Split;
use crate::test_notes::{few, of_no_mask, of_one_class, of_one_number, of_one_value};
use crate::test_rows::owners_of_tests;
use crate::undersampled::{self, Undersampled, Undersampler};
use anyhow::{Context, Result, ensure};
use fl_core::augment::Augmenter;
use fl_core::{Examples, Inputs, Labels, Samples, Stream, TaskKind, first_names, floor_share};
use fl_data_kit::dataset::{HELD_OUT, Source};
use fl_data_kit::{Scaling, Set, SetSpec, check_ranges, load_seen};
use std::path::Path;

/// The most clients that an error names.
const LISTED: usize = 10;

/// What the results of a run show of test rows that are a client's own.
const MEASURED: &str = "models are measured on rows of each client (`data.test`)";

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
    let mut set = LoadedSet::load(spec, dir, stream, identify)?;
    set.take_public(dir)?;
    set.compare_rows();
    let owned = set.share_out()?;
    set.take_tests(&owned)?;
    set.take_validation();
    set.turn_and_blur()?;
    let mut all = set.all;
    if let Some(how) = &spec.undersampled {
        undersample(&mut all, how)?;
    }
    if let Some(how) = &spec.features {
        put_features(&mut all, how)?;
    }
    Ok(all)
}

/// The clients' set while it becomes the data of a run.
struct LoadedSet<'a> {
    spec: &'a DataSpec,
    stream: &'a Stream,
    identify: bool,
    /// Training rows that no client has yet.
    train: Examples,
    sources: Vec<Source>,
    test_sources: Vec<Source>,
    seen: SeenRows<u64>,
    hashed: SeenRows<RowHash>,
    /// Whether its rows are compared with test rows and public rows.
    looks: bool,
    /// All its training rows, if no public row may be one of them.
    apart: Option<RowSet>,
    /// Its public rows.
    taken: Taken,
    /// The data of the run, as far as they are known.
    all: Assembled,
}

impl<'a> LoadedSet<'a> {
    fn load(spec: &'a DataSpec, dir: &Path, stream: &'a Stream, identify: bool) -> Result<Self> {
        check_ranges(spec).context("data")?;
        // those of a user's own files are checked once they have been read
        if let Some(own) = spec.set.task() {
            spec.fits(&own)?;
        }
        // with `split: own` no client has these rows, and nodes compare their own
        let others: Vec<&SetSpec> = match spec.split() {
            Split::Own => Vec::new(),
            _ => spec.public_sets().collect(),
        };
        let mut same = others.iter();
        let shared = same.find_map(|public| spec.set.shared_source(public, dir));
        // published test rows of a set may equal its training rows by chance
        let looks = spec.set.of_a_user() || !others.is_empty();
        let (mut seen, mut hashed) = (SeenRows::default(), SeenRows::default());
        let given = spec.normalise.as_ref();
        let scaling = given.map_or(Scaling::Own, |of| Scaling::As(Some(of)));
        let set = load_seen(&spec.set, dir, scaling, &mut |rows, test| {
            if looks {
                (seen.own, seen.tested) = (hashes(rows).collect(), hashes(test).collect());
            }
            if identify {
                hashed.own = row_hashes(rows);
                if spec.set.of_a_user() || spec.pools_tests() || spec.tests_in_files() {
                    hashed.tested = row_hashes(test);
                }
            }
        });
        let set = set.and_then(|set| numbered(spec, set))?;
        let own_rows = RowSet::of(seen.own.iter().copied());
        // nodes compare their rows with the test rows themselves, and have none of these
        let at_nodes = matches!(spec.split(), Split::Own);
        let mut found = set.inferred;
        found.retain(|found| !(at_nodes && (found.of_test_rows || found.text == HELD_OUT)));
        let of_tests = at_nodes || found.iter().any(|found| found.of_test_rows);
        let mut inferred: Vec<String> = found.into_iter().map(|found| found.text).collect();
        if spec.set.of_a_user() && !of_tests && own_rows.count(seen.tested.iter().copied()) > 0 {
            inferred.push("rows of the clients' files are test rows as well".into());
        }
        if spec.set.of_a_user() {
            inferred.extend(shown_by_settings(spec));
        }
        let compared = !others.is_empty() && shared.is_none();
        if let Some(what) = shared {
            inferred.push(format!("{what} is the clients' and public as well"));
        }
        let mut classes = set.classes;
        if let Some(order) = spec.class_order.as_ref().filter(|_| !classes.is_empty()) {
            classes = order.iter().map(|old| classes[*old].clone()).collect();
        }
        spec.fits(&set.train.task())?;
        let name = spec.set.name();
        ensure!(
            !set.train.is_empty(),
            "data set `{name}` has no training rows"
        );
        let mut hidden_notes = set.hidden_notes;
        let rows = (set.train.len(), set.test.len());
        hidden_notes.extend(spec.limit.notes(rows));
        let kind = set.train.task().kind;
        let no_classes = kind.is_dense() || matches!(kind, TaskKind::Numbers { .. });
        if spec.set.of_a_user() && no_classes {
            hidden_notes.extend(spec.limit.first_rows(rows));
        }
        let mut train = first(set.train, spec.limit.train)?;
        let mut test = first(set.test, spec.limit.test)?;
        if spec.pools_tests() {
            (train, test) = pooled(&train, &test)?;
            seen.own.append(&mut seen.tested);
            hashed.own.append(&mut hashed.tested);
        }
        let all = Assembled {
            task: train.task(),
            clients: Vec::new(),
            client_tests: Vec::new(),
            own_tests: spec.test.is_some(),
            client_validation: Vec::new(),
            public: None,
            test,
            validation: set.validation,
            owners: Vec::new(),
            classes,
            columns: set.columns,
            notes: set.notes,
            no_black: Vec::new(),
            uneven: Vec::new(),
            hidden_notes,
            inferred,
            digest: None,
            identity: None,
            normalise: set.normalise,
            bytes: matches!(**train.samples.inputs(), Inputs::Bytes { .. }),
            features: None,
            plain: None,
            inherited: Vec::new(),
            twice: None,
        };
        Ok(Self {
            spec,
            stream,
            identify,
            train,
            sources: set.sources,
            test_sources: set.test_sources,
            seen,
            hashed,
            looks: looks && !matches!(spec.split(), Split::Own),
            apart: compared.then_some(own_rows),
            taken: Taken::default(),
            all,
        })
    }

    /// Takes the public rows out, or loads them.
    fn take_public(&mut self, dir: &Path) -> Result<()> {
        let (spec, identify, all) = (self.spec, self.identify, &mut self.all);
        if let Some(how) = &spec.public {
            let (seen, hashed) = (&mut self.seen, &mut self.hashed);
            let (notes, hidden_notes) = (&mut all.notes, &mut all.hidden_notes);
            let scaling = Scaling::As(all.normalise.as_ref());
            let mut other = |set: &SetSpec| {
                let loaded = load_seen(set, dir, scaling, &mut |rows, _| {
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
            let (train, test) = (&mut self.train, &mut all.test);
            let stream = self.stream.child("public", 0);
            let (samples, rows) = take_public(how, train, test, &mut other, &stream)?;
            let labels = samples.labelled.as_ref().map(|of| &**of.labels());
            if let (Labels::Numbers(own), Some(Labels::Numbers(open))) = (&**train.labels(), labels)
            {
                own.fits(open).context("the labels of the public samples")?;
            }
            if !matches!(**samples.samples.inputs(), Inputs::Bytes { .. }) {
                all.no_black.extend(no_black(train, "public samples"));
            }
            (all.public, self.taken) = (Some(samples), rows);
        }
        ensure!(
            !self.train.is_empty(),
            "no samples are left for the clients"
        );
        ensure!(
            spec.pools_tests() || !all.test.is_empty(),
            "no samples are left to test with"
        );
        Ok(())
    }

    /// Notes what clients' rows, test rows and public rows have in common.
    fn compare_rows(&mut self) {
        let (spec, train, sources, all) = (self.spec, &self.train, &self.sources, &mut self.all);
        if self.looks {
            let how = spec.public.as_ref();
            let from = match how.map(|how| &how.from) {
                Some(PublicFrom::Tabular) => &self.seen.own,
                _ => &self.seen.tested,
            };
            let tested = of_ids(all.test.samples.ids(), from);
            let open = how.map_or(Vec::new(), |how| self.seen.public(how, &self.taken));
            let own = of_ids(train.samples.ids(), &self.seen.own);
            let twice = owned_twice(&self.seen.own, sources);
            let of = origins(train, sources);
            let notes = &mut all.hidden_notes;
            notes.extend(overlaps((&own, &of), &tested, &open, twice.as_ref()));
            // test rows that became the clients' own have no source
            let known: Vec<usize> = (0..of.len())
                .filter(|row| of[*row] < sources.len())
                .collect();
            let of: Vec<usize> = known.iter().map(|row| of[*row]).collect();
            match sources_of_other_scale(&train.samples.pick(&known), &of, sources) {
                Some(told) => notes.push(told),
                None => {
                    let public = all.public.as_ref().map(|of| ("public rows", &of.samples));
                    let others = [Some(("test rows", &all.test.samples)), public];
                    let others = others.into_iter().flatten();
                    notes.extend(others.filter_map(|rows| other_scale(&train.samples, rows)));
                }
            }
            all.twice = twice.filter(|_| matches!(spec.split(), Split::ByFile | Split::ByUser));
        }
        if spec.set.of_a_user() {
            let (test, classes) = (&all.test, &all.classes);
            all.hidden_notes.extend(few(test));
            all.hidden_notes.extend(of_one_class(test, classes));
            all.hidden_notes.extend(of_one_value(test, classes));
            all.hidden_notes.extend(of_no_mask(test, classes));
            let both = [
                of_one_number(train, "training"),
                of_one_number(test, "test"),
            ];
            all.hidden_notes.extend(both.into_iter().flatten());
        }
        let mut open = self.seen.others.iter().flatten().copied();
        if self
            .apart
            .as_ref()
            .is_some_and(|own| own.count(&mut open) > 0)
        {
            all.inferred.push(format!(
                "rows of `{}` are the clients' and public as well",
                spec.set.name()
            ));
        }
    }

    /// Shares the training rows out; returns the rows of each client. Test rows in clients' files
    /// are theirs.
    fn share_out(&mut self) -> Result<Vec<Vec<usize>>> {
        let (spec, train, sources, all) = (self.spec, &self.train, &self.sources, &mut self.all);
        let (number, name) = (spec.clients(), spec.set.name());
        let (drawn, owner_of) = (self.stream.child("split", 0), || origins(train, sources));
        let parts = match spec.split() {
            Split::ByFile => by_file(&owner_of(), sources.len(), number, name),
            Split::ByUser => by_user(&owner_of(), sources.len(), number, name, &drawn),
            how => {
                let groups = Groups::to_split(train, spec.label_groups);
                split(&groups, &how, number, name, &drawn)
            }
        };
        let parts = parts.with_context(|| format!("`split`: splitting `{name}`"))?;
        if !matches!(spec.split(), Split::Own) {
            all.uneven = extremes(&parts.sizes());
            if spec.tests_in_files() {
                let sources = (&sources[..], &self.test_sources[..]);
                let (tests, note) = in_files(spec, &all.test, sources, &drawn)?;
                all.client_tests = tests;
                all.notes.extend(note);
            }
        }
        if matches!(spec.split(), Split::ByFile | Split::ByUser) && sources.len() == number {
            all.owners = sources.iter().map(|source| source.name.clone()).collect();
        }
        let clients = parts.clients.iter().map(|rows| train.pick(rows));
        all.clients = clients.collect();
        if self.identify {
            let public = spec.public.as_ref();
            let public = public.map_or(Vec::new(), |how| self.hashed.public(how, &self.taken));
            let identity = self
                .hashed
                .identity(&all.clients, &all.client_tests, public);
            all.identity = Some(identity);
            let rows = std::mem::take(&mut self.hashed.own);
            all.digest = Some(fl_core::hex(&digest_of_rows(rows)));
        }
        Ok(parts.clients)
    }

    /// Takes a share of each client's rows, `owned`, for its tests.
    fn take_tests(&mut self, owned: &[Vec<usize>]) -> Result<()> {
        let (spec, all) = (self.spec, &mut self.all);
        if let Some(how) = spec.test.as_ref().filter(|how| !how.in_files()) {
            let mut tested = Vec::new();
            // nodes have rows, and test rows, of their own
            let at_nodes = matches!(spec.split(), Split::Own);
            for (k, own) in all.clients.iter_mut().enumerate().filter(|_| !at_nodes) {
                let rows = how.draw(k, own, &self.stream.child("test", k as u64))?;
                tested.extend(rows.iter().map(|row| owned[k][*row]));
                all.client_tests.push(cut(own, &rows));
            }
            if spec.pools_tests() {
                all.test = self.train.pick(&tested);
            }
            if self.looks {
                let of = |rows: &[Examples]| -> Vec<u64> {
                    rows.iter().flat_map(|own| hashes(&own.samples)).collect()
                };
                let tests = of(&all.client_tests);
                let learnt = RowSet::of(of(&all.clients).into_iter());
                let again = learnt.count(tests.iter().copied());
                all.hidden_notes.extend((again > 0).then(|| {
                    format!(
                        "{again} of {} test rows of the clients' own are training rows too: rows repeat, so scores on them may be too good",
                        tests.len()
                    )
                }));
            }
            // as below
            let what = "a client's test rows depend on its number of rows";
            all.inferred.push(what.into());
        }
        if spec.test.is_some() {
            all.inferred.push(MEASURED.into());
        }
        Ok(())
    }

    fn take_validation(&mut self) {
        let (share, all) = (self.spec.validation, &mut self.all);
        if share == 0.0 {
            return;
        }
        for (k, own) in all.clients.iter_mut().enumerate() {
            let mut draws = self.stream.child("validation", k as u64).draws();
            let rows = draws.choose(own.len(), floor_share(share, own.len()));
            all.client_validation.push(cut(own, &rows));
        }
        // one row more changes the draw, and so, many of the rows that are left for training
        let what = "a client's validation rows depend on its number of rows";
        all.inferred.push(what.into());
    }

    /// Puts clients into their domains, and noise on their features.
    fn turn_and_blur(&mut self) -> Result<()> {
        let (spec, all) = (self.spec, &mut self.all);
        let tests = all.test.clone();
        if let Some(domains) = &spec.domains {
            domains.turn_all(&mut all.clients)?;
            domains.turn_all(&mut all.client_validation)?;
            domains.turn_all(&mut all.client_tests)?;
            let of_domain;
            (all.test, of_domain) = domains.test(&all.test, all.clients.len())?;
            if spec.test.is_none() {
                all.client_tests = of_domain;
            }
        }
        if let Some(noise) = &spec.feature_noise {
            let mut views = vec![&mut all.clients[..], &mut all.client_validation];
            // otherwise those of a domain are the common ones
            if spec.test.is_some() {
                views.push(&mut all.client_tests);
            }
            noise.add(views, &self.stream.child("feature-noise", 0))?;
            let what = "images with `data.feature-noise`";
            all.no_black.extend(no_black(&self.train, what));
            if spec.pools_tests() {
                // those of all clients together, as they are now
                let own = all.client_tests.iter();
                let data = own.flat_map(|own| own.samples.values()).collect();
                all.test = with_values(&tests, data)?;
            }
            // a row more in front of others moves their numbers
            let what = "the noise on a row (`data.feature-noise`) depends on its number";
            all.inferred.push(what.into());
        }
        Ok(())
    }
}

/// Says what a crop fills images with that are no bytes any more, unless black was 0 in `bytes`.
fn no_black(bytes: &Examples, what: &str) -> Option<String> {
    let black = Augmenter::black(bytes.samples.inputs());
    black.iter().any(|value| *value != 0.0).then(|| {
        format!(
            "{what} are numbers and no bytes: where `augment` has `crop`, the border is 0, the \
             mean, and not black"
        )
    })
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

/// Puts features in the place of the inputs of all rows of a run.
fn put_features(all: &mut Assembled, how: &Features) -> Result<()> {
    let task = how.task(&all.task)?;
    let public = all.public.as_ref().map(|public| &public.samples);
    let map = how.map(all.task.width(), public)?;
    all.plain = Some(all.row_sets());
    all.task = task;
    let own = all.clients.iter_mut().chain(&mut all.client_validation);
    let own = own.chain(&mut all.client_tests);
    let own = own.chain([&mut all.test]).chain(&mut all.validation);
    let mut views: Vec<&mut Samples> = own.map(|view| &mut view.samples).collect();
    if let Some(public) = &mut all.public {
        views.push(&mut public.samples);
        let labelled = public.labelled.iter_mut().chain(&mut public.truth);
        views.extend(labelled.map(|view| &mut view.samples));
    }
    map.apply(views)?;
    all.features = Some(map);
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
