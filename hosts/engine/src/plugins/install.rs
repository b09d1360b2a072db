//! Installs packages from an index, and says how far installed ones are trusted.

use super::index::{self, Found, MOST_WHEEL};
use super::{ENTRIES, attest, wheel, yaml};
use crate::NotRun;
use anyhow::{Context, bail, ensure};
use fl_core::PartDecl;
use fl_core::abi::raw::{FL_OLDEST, FL_VERSION};
use fl_core::settings::defaults;
use fl_registry::{
    Announced, Catalogue, Isolation, Library, Package, Trust, compare_versions, meets, normalised,
    plugin_dir,
};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// The folder of plugins, made if it is not there.
fn dir() -> anyhow::Result<PathBuf> {
    let dir =
        plugin_dir().context("this system names no folder for a user's data; set FL_PLUGIN_DIR")?;
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

/// Unpacks a wheel beside installed packages, where it stays only if it is moved.
fn unpacked(bytes: &[u8], dir: &Path) -> anyhow::Result<(tempfile::TempDir, Package)> {
    let to = tempfile::Builder::new().prefix(".new").tempdir_in(dir)?;
    wheel::unpack(bytes, to.path())?;
    let found = Package::in_folder(to.path(), None).map_err(anyhow::Error::msg)?;
    let found = found.with_context(|| {
        format!(
            "it announces no plugin: no entry point group `{}`",
            fl_registry::GROUP
        )
    })?;
    Ok((to, found))
}

/// SHA-256 of what a package loads.
fn hash(package: &Package) -> anyhow::Result<String> {
    let hash = package.sha256().map_err(anyhow::Error::msg)?;
    hash.with_context(|| format!("the module of {} is not in its folder", package.name))
}

/// The SHA-256 of the plugins that stored entries give a package of this name and version.
fn stored_files(package: &Package) -> impl Iterator<Item = String> + use<> {
    let Package { name, version, .. } = package.clone();
    let all = super::stored().into_iter().map(|(entry, _)| entry);
    let here = all.filter(move |entry| entry.name == name && entry.version == version);
    here.flat_map(|entry| entry.files).map(|file| file.sha256)
}

/// Puts an unpacked package where it stays. Says whether it was there already.
fn keep(new: tempfile::TempDir, package: &Package, dir: &Path) -> anyhow::Result<bool> {
    let to = dir.join(format!("{}-{}", package.name, package.version));
    let there = Package::in_folder(&to, Some(&package.name)).map_err(anyhow::Error::msg)?;
    if let Some(there) = there {
        let (old, now) = (hash(&there)?, hash(package)?);
        let Package { name, version, .. } = package;
        let what = format!("{name} {version} is installed with SHA-256 {old}, and");
        let to = to.display();
        // what was installed from an index had the hash of its entry
        let known = |sha256: &str| stored_files(package).any(|of| of.eq_ignore_ascii_case(sha256));
        ensure!(
            old == now || known(&old) || !known(&now),
            "{what} its entry has {now}: the file was changed after it was installed; remove {to}, and run the same again"
        );
        ensure!(
            old == now,
            "{what} this wheel has {now}: a version must not change; if you trust the new one, remove {to}"
        );
        return Ok(true);
    }
    #[cfg(unix)]
    {
        // the folder is made for its owner alone, and packages are read like other programs
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755))?;
    }
    fs::rename(new.path(), &to).with_context(|| format!("writing {}", to.display()))?;
    // it is not there any more
    let _ = new.keep();
    Ok(false)
}

/// Installs a package into the folder of plugins: the newest version that meets `version` in the
/// configured indexes, or in the one at `only`. `name` may be the path of a wheel instead, which
/// no index vouches for. Returns what was done.
///
/// # Errors
/// When no index has it, or its entry, signature, wheel or plugin is not what it must be. Then
/// nothing was installed.
pub fn add(
    name: &str,
    version: Option<&str>,
    only: Option<&str>,
    note: &mut dyn FnMut(String),
) -> anyhow::Result<String> {
    if name.ends_with(".whl") {
        let bytes = super::read(Path::new(name), MOST_WHEEL)?;
        let dir = dir()?;
        let (new, package) = unpacked(&bytes, &dir).with_context(|| name.to_string())?;
        let there = keep(new, &package, &dir)?;
        return Ok(done(&package, there, &Trust::Any, name));
    }
    let found = choose(index::entries(only, note)?, name, version)?;
    let (entry, place) = (&found.entry, &found.index);
    let name = &entry.name;
    let level = match &found.level {
        Ok(level) => level.clone(),
        Err(why) => bail!(
            "{name} {} of index {place} is refused: {why}",
            entry.version
        ),
    };
    if let Some(interface) = entry.interface {
        let known = u64::from(FL_OLDEST)..=u64::from(FL_VERSION);
        ensure!(
            known.contains(&interface),
            "{name} {} has interface {interface}, and this program has {FL_OLDEST} to {FL_VERSION}",
            entry.version
        );
    }
    let here = fl_registry::platform();
    let file = entry
        .files
        .iter()
        .find(|f| f.platform == here || f.platform == "any");
    let file = file.with_context(|| {
        let all: Vec<&str> = entry.files.iter().map(|file| &file.platform[..]).collect();
        let all = if all.is_empty() {
            "none".into()
        } else {
            all.join(", ")
        };
        format!(
            "{name} {} has no wheel for {here}; there are: {all}",
            entry.version
        )
    })?;
    let bytes = index::wheel(&found, file)?;
    let what = || format!("the wheel of {name} {}", entry.version);
    let sum = hex(&bytes);
    ensure!(
        sum.eq_ignore_ascii_case(&file.wheel_sha256),
        "{} has sha256 {sum}, and its entry says {}",
        what(),
        file.wheel_sha256
    );
    let dir = dir()?;
    let (new, package) = unpacked(&bytes, &dir).with_context(what)?;
    ensure!(
        package.name == *name && package.version == entry.version,
        "{} has {} {} in it",
        what(),
        package.name,
        package.version
    );
    let loads = hash(&package)?;
    ensure!(
        loads.eq_ignore_ascii_case(&file.sha256),
        "{} has a plugin with sha256 {loads}, and its entry says {}",
        what(),
        file.sha256
    );
    let there = keep(new, &package, &dir)?;
    let entries = dir.join(ENTRIES);
    fs::create_dir_all(&entries)?;
    let at = entries.join(found.file_name());
    fl_sim::write(&at, found.text.as_bytes())?;
    if let Some(signature) = &found.signature {
        fl_sim::write(&at.with_extension("yaml.minisig"), signature.as_bytes())?;
    }
    Ok(done(&package, there, &level, place))
}

fn done(package: &Package, there: bool, level: &Trust, from: &str) -> String {
    let Package { name, version, .. } = package;
    let how = if there {
        "is there already"
    } else {
        "is installed"
    };
    format!(
        "{name} {version} {how} ({level}, from {from}); in a spec:\nplugins: [{{ package: {name}, version: \"{version}\" }}]"
    )
}

/// The newest entry of this name that meets `version`, if one index has it.
///
/// # Errors
/// [`NotRun`] when no index or several have it.
pub fn choose(all: Vec<Found>, name: &str, version: Option<&str>) -> anyhow::Result<Found> {
    let name = &normalised(name).map_err(NotRun::usage)?;
    let names: Vec<String> = all.iter().map(|found| found.entry.name.clone()).collect();
    let mut all: Vec<Found> = all.into_iter().filter(|f| f.entry.name == *name).collect();
    if all.is_empty() {
        let near = fl_core::settings::nearest(name, names.iter().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        return Err(NotRun::usage(format!(
            "no index has a plugin `{name}`{near}"
        )));
    }
    let versions: Vec<String> = all.iter().map(|f| f.entry.version.clone()).collect();
    all.retain(|f| version.is_none_or(|wanted| meets(&f.entry.version, wanted)));
    // whoever adds an entry to one index must not take the place of a package of another
    let mut places: Vec<String> = all.iter().map(|found| found.index.clone()).collect();
    places.dedup();
    if places.len() > 1 {
        let places = places.join(", ");
        return Err(NotRun::usage(format!(
            "`{name}` is in several indexes: {places}; choose one with --index"
        )));
    }
    // entries are in the order of versions
    all.pop().ok_or_else(|| {
        NotRun::usage(format!(
            "no index has `{name}` {}; there are {}",
            version.unwrap_or_default(),
            versions.join(", ")
        ))
    })
}

/// An installed package, and how far it is trusted.
pub struct Installed {
    /// The package.
    pub package: Package,
    /// SHA-256 of what it loads.
    pub sha256: Option<String>,
    /// The level that the entries of installed packages give it.
    pub level: Trust,
}

/// Every installed package with a plugin. Passes to `note` what is wrong with others.
///
/// # Errors
/// When the plugin of one cannot be read.
pub fn installed(note: &mut dyn FnMut(String)) -> anyhow::Result<Vec<Installed>> {
    let mut all = Vec::new();
    for package in fl_registry::packages() {
        let package = match package {
            Ok(package) => package,
            Err(why) => {
                note(why);
                continue;
            }
        };
        let sha256 = match package.sha256() {
            Ok(sha256) => sha256,
            Err(why) => {
                note(format!("{} {}: {why}", package.name, package.version));
                continue;
            }
        };
        let hash = sha256.as_deref().filter(|_| package.is_whole());
        let level = hash.map_or(Trust::Any, attest);
        all.push(Installed {
            package,
            sha256,
            level,
        });
    }
    all.sort_by(|a, b| {
        let versions = || compare_versions(&a.package.version, &b.package.version);
        a.package.name.cmp(&b.package.name).then_with(versions)
    });
    Ok(all)
}

/// The parts of a package's library and its interface. Only a process of its own loads the library.
fn contents(package: &Package) -> anyhow::Result<(Vec<String>, Option<u64>)> {
    let linked = Catalogue::linked()?.isolating(Isolation::On(defaults()));
    let all = linked.with(&[Library::at(package.path())])?;
    let own = all.parts().iter().filter(|part| {
        let mut linked = linked.parts().iter();
        !linked.any(|linked| std::ptr::eq(*linked, **part))
    });
    // `privacy`, as commands and entries have it
    let role = |part: &PartDecl| part.role.name().split(' ').next().unwrap_or_default();
    let parts = own.map(|part| format!("{} {}", role(part), part.name));
    let interface = all.libraries().last().and_then(|of| of.interface);
    Ok((parts.collect(), interface.map(u64::from)))
}

/// The beginning of an index entry for a wheel: what its metadata and its library say. Its author
/// fills in the rest.
///
/// # Errors
/// When it is no wheel with a plugin.
pub fn draft(path: &Path, note: &mut dyn FnMut(String)) -> anyhow::Result<String> {
    let bytes = super::read(path, MOST_WHEEL)?;
    let place = || path.display().to_string();
    let (new, package) = unpacked(&bytes, &std::env::temp_dir()).with_context(place)?;
    let file = index::EntryFile {
        platform: match package.plugin {
            Announced::Module(_) => "any".into(),
            Announced::Library(_) => fl_registry::platform(),
        },
        wheel: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into(),
        wheel_sha256: hex(&bytes),
        sha256: hash(&package)?,
    };
    let (parts, interface) = match package.plugin {
        Announced::Module(_) => Default::default(),
        Announced::Library(_) => contents(&package).unwrap_or_else(|why| {
            note(format!(
                "{}: {why:#}; `parts` and `interface` are left out",
                place()
            ));
            Default::default()
        }),
    };
    let field = |name: &str| package.field(name).unwrap_or_default();
    let [licence, home] = ["License-Expression", "Home-page"].map(field);
    // `Source, https://..`
    let project = field("Project-URL");
    let project = project.rsplit(", ").next().unwrap_or_default();
    let entry = index::Entry {
        name: package.name.clone(),
        version: package.version.clone(),
        about: field("Summary"),
        parts,
        interface,
        licence: if licence.is_empty() {
            field("License")
        } else {
            licence
        },
        paper: None,
        source: if home.is_empty() {
            project.into()
        } else {
            home
        },
        commit: String::new(),
        conformance: index::Conformance::Untried,
        reviewed: None,
        files: vec![file],
    };
    drop(new);
    yaml(&entry)
}

/// How an installed package differs from its entry in an index, and what to do.
fn differs(package: &Package, sha256: &str, found: &Found) -> String {
    let index = &found.index;
    let files = found.entry.files.iter().map(|file| &file.sha256[..]);
    let due = files.collect::<Vec<_>>().join(" or ");
    match stored_files(package).any(|of| of.eq_ignore_ascii_case(sha256)) {
        true => format!("it is not what index {index} says now: SHA-256 {due}"),
        false => format!(
            "it is not what index {index} says: SHA-256 {due}; if it was installed from there, it was \
             changed: remove it, and run `fl plugin add {}`",
            package.name
        ),
    }
}

/// Compares installed packages with the entries of indexes: one line for each package, and whether
/// all of them are what their entries say and trusted as far as `required`. `names` chooses some.
///
/// # Errors
/// When a name is not installed, or an index cannot be read.
pub fn verify(
    names: &[String],
    only: Option<&str>,
    required: &Trust,
    note: &mut dyn FnMut(String),
) -> anyhow::Result<(String, bool)> {
    let names: Result<Vec<String>, String> = names.iter().map(|n| normalised(n)).collect();
    let names = names.map_err(NotRun::usage)?;
    let all = installed(note)?;
    if let Some(missing) = names
        .iter()
        .find(|n| all.iter().all(|i| i.package.name != **n))
    {
        return Err(NotRun::usage(format!(
            "`{missing}` is not installed; `fl plugin list` shows what is"
        )));
    }
    let known = index::entries(only, note)?;
    let (mut lines, mut fine) = (Vec::new(), true);
    for one in all
        .iter()
        .filter(|i| names.is_empty() || names.contains(&i.package.name))
    {
        let Package { name, version, .. } = &one.package;
        let sha256 = one.sha256.as_deref().unwrap_or_default();
        let same = |f: &&Found| f.entry.name == *name && f.entry.version == *version;
        let has = |f: &Found| {
            f.entry
                .files
                .iter()
                .any(|f| f.sha256.eq_ignore_ascii_case(sha256))
        };
        let entries: Vec<&Found> = known.iter().filter(same).collect();
        let (good, text) = match entries[..] {
            [] => (true, "no index has it".to_string()),
            _ => match entries.iter().find(|f| has(f)) {
                None => (false, differs(&one.package, sha256, entries[0])),
                Some(found) => match &found.level {
                    Ok(level) => (
                        true,
                        format!("as index {} says ({level} there)", found.index),
                    ),
                    Err(why) => (false, format!("index {}: {why}", found.index)),
                },
            },
        };
        let enough = one.level.clone().stricter(required.clone()) == one.level;
        let more = match &one.level {
            _ if enough || !good => String::new(),
            Trust::Published => format!(
                "; plugins-trust is {required}, and its entry does not say that the keepers reviewed it"
            ),
            _ => format!("; plugins-trust is {required}: `fl plugin add {name}` fetches its entry"),
        };
        fine &= good && enough;
        lines.push(format!(
            "{name} {version}: {}, {text}{more}\n  sha256 {sha256}",
            one.level
        ));
    }
    if lines.is_empty() {
        lines.push("no package with a plugin is installed".into());
    }
    Ok((lines.join("\n"), fine))
}
