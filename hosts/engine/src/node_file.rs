//! What a node says of itself: whose data it has, where they are, and what it allows.

use crate::data_check::{kind_of_inputs, steps_without_rows};
use crate::prepare;
use anyhow::{Context, bail, ensure};
use fl_core::message::{known_kinds, message_type};
use fl_core::{ClientId, Examples, Inputs};
use fl_data::{Assembled, DataSpec};
use fl_data_kit::dataset::HELD_OUT;
use fl_data_kit::{Inferred, Scaling, SetSpec, Use, load_seen};
use fl_registry::Spec;
use fl_remote::Policy;
use std::path::{Path, PathBuf};

fl_core::settings! {
    /// A node with data of its own.
    struct File {
        /// Which client of the run it is.
        client: u32;
        /// What it owns: the training rows of a set, as specs name sets.
        data: SetSpec;
        /// The folder of what lasts (its secret, what it has released, what it has learnt),
        /// relative to this file. It must stay as long as the data do.
        home: String;
        /// What it allows.
        policy: Policy = fl_core::settings::defaults();
    }
}

/// A node with data of its own.
pub struct NodeFile {
    pub client: ClientId,
    data: SetSpec,
    /// What is relative in it is relative to this.
    folder: PathBuf,
    pub home: PathBuf,
    pub policy: Policy,
}

impl NodeFile {
    /// Reads what a node says of itself; none of its data.
    ///
    /// # Errors
    /// Every mistake of it.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let about = path.metadata().with_context(name)?;
        ensure!(
            about.is_file() && about.len() <= fl_registry::MAX_BYTES as u64,
            "{}: it is no regular file, or too large",
            name()
        );
        let text = std::fs::read_to_string(path).with_context(name)?;
        let file: File = fl_core::settings::read_yaml(&text).with_context(name)?;
        let folder = path.canonicalize().with_context(name)?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        for kind in file.policy.may_leave.iter().flatten() {
            ensure!(
                message_type(kind).is_some() || Policy::WORDS.contains(&&**kind),
                "{}: policy.may-leave: there is no kind of message `{kind}`; known: {}, {}",
                name(),
                known_kinds(),
                Policy::WORDS.join(", ")
            );
        }
        Ok(Self {
            client: file.client,
            data: file.data,
            home: folder.join(file.home),
            folder: folder.into(),
            policy: file.policy,
        })
    }

    /// Checks that a run of `clients` clients has the client whose data these are.
    ///
    /// # Errors
    /// If there is no such client.
    pub fn check_client(&self, clients: usize) -> anyhow::Result<()> {
        ensure!(
            (self.client as usize) < clients,
            "it is of client {}, and the spec has {clients} clients, from 0; correct `client`",
            self.client
        );
        Ok(())
    }

    /// Its own examples, and those that it tests with, if the spec says so; the error says why they
    /// do not fit what the spec is about. If an accountant works for the run (`accounts`), none of
    /// them may be public.
    pub fn load(
        &self,
        spec: &Spec<DataSpec>,
        due: &Assembled,
        dir: &Path,
        accounts: bool,
    ) -> anyhow::Result<(Examples, Option<Examples>)> {
        let (stream, whole, spec) = (prepare::data_stream(spec), spec, &spec.data);
        self.check_client(spec.clients())?;
        let mut data = self.data.clone();
        let in_files = spec.tests_in_files();
        let use_of = if in_files { Use::Tested } else { Use::Labelled };
        if let Some((_, wrong)) = data.resolve(&self.folder, use_of).pop() {
            bail!(wrong);
        }
        // as the spec's own rows, which models are tested on
        let scaling = Scaling::As(due.normalise.as_ref());
        let set = load_seen(&data, dir, scaling, &mut |_, _| ())?;
        let mut own = set.train;
        let bytes = matches!(**own.samples.inputs(), Inputs::Bytes { .. });
        let mut all = own.clone();
        let mut tests = spec.tests_of_node(self.client as usize, &mut own, set.test, &stream)?;
        if let Some(how) = &spec.undersampled {
            for rows in [&mut all, &mut own].into_iter().chain(&mut tests) {
                *rows = how.of(rows)?;
            }
        }
        // before features, by which different rows may become the same
        let [tested, open] = due.shared_rows(&all.samples);
        let again = tests.as_ref().map_or(0, |tests| {
            fl_data::shared_rows(&tests.samples, &own.samples)
        });
        if let Some(features) = &due.features {
            let views = [&mut all, &mut own].into_iter().chain(&mut tests);
            features.apply(views.map(|view| &mut view.samples).collect())?;
        }
        let task = own.task();
        let (input, kind) = (&due.task.input, due.task.kind);
        ensure!(
            task == due.task,
            "its rows have shape {:?} and are for {}, and the spec's {input:?} and {kind}",
            task.input,
            task.kind
        );
        ensure!(
            set.classes.is_empty() || due.classes.is_empty() || set.classes == due.classes,
            "its classes are {}, and the spec's {}",
            set.classes.join(", "),
            due.classes.join(", ")
        );
        // the same rows must become the same numbers, wherever they are
        ensure!(
            bytes == due.bytes,
            "its inputs are {}, and the spec's {}",
            kind_of_inputs(bytes),
            kind_of_inputs(due.bytes)
        );
        data.reads_as(&spec.set)?;
        fl_data_kit::alike(&set.columns, &due.columns)?;
        // test rows of its files stay unused, unless models are tested on them: then no guarantee
        // is stated
        let unused = |found: &Inferred| {
            if in_files {
                found.text == HELD_OUT
            } else {
                found.of_test_rows
            }
        };
        let found = set.inferred.iter().filter(|found| !unused(found));
        let found: Vec<&str> = found.map(|found| found.text.as_str()).collect();
        ensure!(
            found.is_empty(),
            "what it learns from would follow from all of its own rows ({}); state columns and classes in `data`, as the spec does, and hold no rows out",
            found.join("; ")
        );
        ensure!(
            !accounts || spec.undersampled.is_none(),
            "the frequencies that `undersampled` keeps depend on a row's place in its file, so no guarantee could hold for a row"
        );
        let test_rows = (tested > 0).then(|| {
            let rows = all.len();
            format!("{tested} of {rows} rows are test rows of the spec too")
        });
        let again = (again > 0).then(|| format!("{again} of its test rows are training rows too"));
        let notes = set.notes.iter().chain(&set.hidden_notes);
        let idle = steps_without_rows(whole, &due.task, own.len())?;
        for note in notes.chain(&test_rows).chain(&again).chain(&idle) {
            log::info!("note: data of client {}: {note}", self.client);
        }
        ensure!(
            !accounts || tested + open == 0,
            "a row of its own is among the public or test rows of the spec, so no guarantee could hold for it"
        );
        Ok((own, tests))
    }
}
