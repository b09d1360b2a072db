//! Everything that is made before a run begins: the checked spec, its data, and its manifest.

use crate::NotRun;
use crate::events::unpriced;
use anyhow::{Context, ensure};
use fl_core::privacy::{Noise, NoiseSource};
use fl_core::regular_file::open_regular;
use fl_core::{BuildContext, InitialModel, Protocol, Public, Stream, Task};
use fl_data::{Assembled, DataSpec, KeptModel, PublicSamples};
use fl_files::FileHash;
use fl_privacy::RowKey;
use fl_registry::{
    Catalogue, DataSection as _, Document, Mistakes, NO_LEVELS, SessionPart, Spec, any_make,
};
use fl_sim::{Manifest, Session, Unpriced};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Opens a file to read. What is no regular file is refused: a pipe without a writer would block.
///
/// # Errors
/// When the file cannot be opened, or is no regular file.
pub fn open(path: &Path) -> std::io::Result<File> {
    // standard input by name, and `/dev/null`, end
    if path.is_dir() || path.starts_with("/dev") || path.starts_with("/proc") {
        return File::open(path);
    }
    open_regular(path)
}

/// Parses the spec in a file. No more is read than a spec may have, so that `/dev/zero` ends too.
///
/// # Errors
/// [`NotRun::Usage`] when the file cannot be read.
pub fn parse(path: &Path) -> anyhow::Result<Document> {
    let name = path.display().to_string();
    Ok(Document::parse(&name, &text(path)?))
}

/// The text of a spec.
///
/// # Errors
/// As [`parse`].
pub fn text(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = fl_registry::MAX_BYTES as u64 + 1;
    let read = open(path).and_then(|file| file.take(most).read_to_end(&mut text));
    read.map_err(|error| {
        let name = path.display();
        NotRun::usage(match error.kind() {
            std::io::ErrorKind::NotFound => format!("{name}: there is no such file"),
            _ if path.join("spec.yaml").is_file() => format!(
                "{name}: this is a run folder; name its spec ({name}/spec.yaml), or continue a stopped \
                 run with `fl run --resume {name}`"
            ),
            std::io::ErrorKind::IsADirectory => format!("{name}: this is a folder; name a spec"),
            _ => format!("{name}: {error}"),
        })
    })?;
    Ok(text)
}

/// Checks a spec with these parts and those of the libraries that it names.
///
/// # Errors
/// [`NotRun::Refused`] when a library cannot be loaded; the inner error is every mistake of the
/// spec.
pub fn check(
    spec: &Document,
    catalogue: &Catalogue,
) -> Result<Result<Spec<DataSpec>, Mistakes>, NotRun> {
    // a user who believes that it guards this run must not be left to believe so
    if std::env::var_os("FL_PLUGINS_TRUST").is_some_and(|level| !level.is_empty()) {
        return Err(NotRun::Usage(format!("FL_PLUGINS_TRUST: {NO_LEVELS}")));
    }
    let catalogue = catalogue.with_plugins(spec).map_err(NotRun::Refused)?;
    let read = spec.read(&catalogue);
    if let Ok(read) = &read {
        let libraries = library_notes(read);
        let notes = read.notes.iter().chain(&libraries);
        notes.for_each(|note| note_once(note));
    }
    Ok(read)
}

/// What a user should know of the spec's libraries.
fn library_notes(spec: &Spec<DataSpec>) -> Vec<String> {
    let mut notes = fl_registry::replacement_notes(&spec.libraries);
    #[cfg(unix)]
    notes.extend(fl_registry::isolation_notes(spec));
    notes
}

/// Logs a note that this process has not logged before: a study checks one spec many times.
pub fn note_once(note: &str) {
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.insert(note.into()) {
        log::info!("note: {note}");
    }
}

/// As [`check`]; mistakes are an error like any other.
///
/// # Errors
/// [`NotRun::Refused`] and [`NotRun::Mistakes`].
pub fn read(spec: &Document, catalogue: &Catalogue) -> Result<Spec<DataSpec>, NotRun> {
    check(spec, catalogue)?.map_err(NotRun::Mistakes)
}

/// The data of a spec.
///
/// # Errors
/// When a data set is not there or cannot be read.
pub fn data(spec: &Spec<DataSpec>, dir: &Path) -> anyhow::Result<Assembled> {
    data_and_protocol(spec, dir).map(|(data, _)| data)
}

/// The data of a spec, and its protocol.
///
/// # Errors
/// As [`data`].
pub(crate) fn data_and_protocol(
    spec: &Spec<DataSpec>,
    dir: &Path,
) -> anyhow::Result<(Assembled, Box<dyn Protocol>)> {
    let build = if spec.parts.has("accountant") || spec.ledger.is_some() {
        fl_data::build_identified
    } else {
        fl_data::build
    };
    let mut data = build(&spec.data, dir, &data_stream(spec)).context("data")?;
    let protocol = spec.make_protocol(&protocol_context(spec, &data.task))?;
    fl_privacy::inherit(spec, &mut data, protocol.pools_data())?;
    // single rows, and how unevenly classes are spread
    if unpriced(spec) == Unpriced::Withheld {
        data.hidden_notes.clear();
        data.uneven.clear();
    }
    Ok((data, protocol))
}

/// Returns the labels of the exchanges for which a client learns from its own examples; none if the
/// protocol learns from those of all clients at once.
pub(crate) fn training_exchanges(protocol: &dyn Protocol) -> Vec<String> {
    let mut all = protocol.exchanges();
    all.retain(|exchange| exchange.trains && !protocol.pools_data());
    all.into_iter().map(|of| of.label.into()).collect()
}

/// The stream that the data of a spec are split with.
pub(crate) fn data_stream(spec: &Spec<DataSpec>) -> Stream {
    Stream::root(spec.seed).child("data", 0)
}

/// What the protocol of a spec is made from: at the server and at the clients the same.
pub(crate) fn protocol_context(spec: &Spec<DataSpec>, task: &Task) -> BuildContext {
    BuildContext::new(task.clone(), Stream::root(spec.seed).child("protocol", 0))
}

/// The data of a spec; passes to `warn` what a user should know of them.
///
/// # Errors
/// As [`data`].
pub fn data_with_notes(
    spec: &Spec<DataSpec>,
    dir: &Path,
    warn: &mut dyn FnMut(&str),
) -> anyhow::Result<Assembled> {
    let data = data(spec, dir)?;
    let notes = data.notes.iter().chain(&data.hidden_notes);
    notes.chain(&data.uneven).for_each(|note| warn(note));
    Ok(data)
}

/// The public samples, as both sides of a run have them.
pub(crate) fn public(samples: PublicSamples) -> Public {
    match samples.labelled {
        Some(examples) => Public::labelled(examples),
        None => Public::unlabelled(samples.samples).with_truth(samples.truth),
    }
}

/// The files that the data of a spec are read from, each with its hash.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn data_files(spec: &DataSpec, dir: &Path) -> anyhow::Result<Vec<FileHash>> {
    let files = fl_data::fingerprints(spec, dir)?;
    let hashed = |(path, sha256): (PathBuf, String)| FileHash {
        path: path.display().to_string(),
        sha256,
    };
    Ok(files.into_iter().map(hashed).collect())
}

/// The model that the protocol of a spec begins with, if it names one.
pub(crate) fn initial_model(spec: &Spec<DataSpec>) -> anyhow::Result<Option<InitialModel>> {
    let task = spec.data.task().unwrap_or_else(|| any_make().task);
    let protocol = spec.make_protocol(&protocol_context(spec, &task))?;
    let initial = protocol.declare().loads;
    Ok(initial)
}

/// The file of the model that the server of a run begins with; nodes need none.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn initial_file(spec: &Spec<DataSpec>) -> anyhow::Result<Option<FileHash>> {
    let initial = initial_model(spec)?;
    let hashed = initial.map(|initial| FileHash::of(Path::new(&initial.file)));
    hashed.transpose()
}

/// The files that a run of a spec starts from, each with its hash: those of its data, and the model
/// that its protocol begins with.
///
/// # Errors
/// When one cannot be read.
pub fn input_files(spec: &Spec<DataSpec>, dir: &Path) -> anyhow::Result<Vec<FileHash>> {
    let mut files = data_files(&spec.data, dir)?;
    files.extend(initial_file(spec)?);
    Ok(files)
}

/// What a run starts from, with these data files: the content of `run.json`.
///
/// # Errors
/// When a part's source cannot be hashed.
pub fn manifest(
    spec: &Spec<DataSpec>,
    yaml: &str,
    data: Vec<FileHash>,
    command: &[String],
) -> anyhow::Result<Manifest> {
    let libraries = spec.libraries.iter().map(|library| FileHash {
        path: library.to_string(),
        sha256: library.sha256.clone().unwrap_or_default(),
    });
    let session = session_parts(spec)?.into_iter().map(|part| FileHash {
        path: part.name,
        sha256: part.sha256,
    });
    let mut now = Session::now(env!("CARGO_PKG_VERSION"), command);
    now.notes.extend(library_notes(spec));
    now.notes.iter().for_each(|note| note_once(note));
    ensure!(
        !now.started.is_empty(),
        "the clock of this machine is before 1970 or after 9999; set it, for a run says when it began"
    );
    let libraries = libraries.chain(session).collect();
    let mut manifest = Manifest::new(now, spec.seed, yaml, libraries, data);
    manifest.method = (spec.method != spec.protocol_name).then(|| spec.method.clone());
    let withholds = unpriced(spec) == Unpriced::Withheld;
    if withholds && (spec.data.has_own_rows() || initial_model(spec)?.is_some()) {
        manifest.withhold_data(RowKey::of_user()?.of_files(), fl_privacy::random_name()?);
    }
    Ok(manifest)
}

/// The parts of a spec that exist in this process only.
pub(crate) fn session_parts(spec: &Spec<DataSpec>) -> anyhow::Result<Vec<SessionPart>> {
    let parts = spec.parts.iter().map(|part| part.decl);
    let kept = spec.data.kept_model().and_then(KeptModel::part);
    let all = spec.stages.iter().map(|of| of.protocol).chain(parts);
    let all = all.chain(kept);
    fl_registry::session_parts(all, spec.libraries.iter())
}

/// Where the noise of releases comes from.
pub(crate) fn noise_source(spec: &Spec<DataSpec>) -> anyhow::Result<NoiseSource> {
    Ok(match spec.noise {
        Noise::Seeded => NoiseSource::Seeded,
        Noise::System => NoiseSource::system()?,
    })
}
