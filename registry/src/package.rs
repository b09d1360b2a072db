//! Packages: installed wheels of Python that announce a plugin under the entry point group
//! `fl.plugins`. Only their metadata is read here; nothing of them is loaded.

use std::cmp::Ordering;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The entry point group.
pub(crate) const GROUP: &str = "fl.plugins";
/// The most that is read of a file of metadata, in bytes.
const MOST: u64 = 1 << 22;
/// The platform of modules without compiled ones, which are the same everywhere.
pub(crate) const ANY: &str = "any";

/// What a package announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// A module of Python, by name.
    Module(String),
    /// A library, by its path below the folder of the package.
    Library(PathBuf),
}

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The folder that it is installed in, such as `site-packages`.
    pub folder: PathBuf,
    /// The folder of its metadata, below that one.
    pub(crate) info: String,
    /// Its plugin.
    pub plugin: Announced,
}

/// Finds further folders that packages are installed in: for the host that has Python. The first
/// call counts.
pub fn on_packages(folders: fn() -> Vec<PathBuf>) {
    let _ = FOLDERS.set(folders);
}

static FOLDERS: OnceLock<fn() -> Vec<PathBuf>> = OnceLock::new();

/// The folders that packages are looked for in: those of Python, where the host has one; otherwise
/// those of `PYTHONPATH` and of the active environment (`VIRTUAL_ENV`).
fn package_folders() -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let all = dir.read_dir().into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    if let Some(folders) = FOLDERS.get() {
        return folders();
    }
    let path = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let named = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
    let env = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let of_env = env.into_iter().flat_map(|env| {
        let unix = below(&env.join("lib")).into_iter();
        let unix = unix.map(|python| python.join("site-packages"));
        unix.chain([env.join("Lib").join("site-packages")])
    });
    named.chain(of_env.filter(|dir| dir.is_dir())).collect()
}

/// A name as packages are compared by: small letters, and one `-` for each run of `-`, `_`, `.`.
///
/// # Errors
/// When it is no name of a package.
pub(crate) fn normalised(name: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let whole = ends(name.chars().next()) && ends(name.chars().next_back());
    if !whole || name.len() > 100 || !name.chars().all(fine) {
        return Err(format!(
            "a package cannot be called {name:?}: letters, digits, `-`, `_` and `.`, at most 100"
        ));
    }
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    Ok(words.collect::<Vec<_>>().join("-").to_ascii_lowercase())
}

/// Is this the version of a package?
pub(crate) fn is_version(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".+!".contains(c);
    text.len() <= 64 && text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(fine)
}

/// The numbers of a version without zeros at the end, and the rest, such as `rc1`.
fn parts(version: &str) -> (Vec<u64>, &str) {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (numbers, rest) = version.split_at(end.unwrap_or(version.len()));
    let numbers = numbers.split('.').filter(|n| !n.is_empty());
    let mut numbers: Vec<u64> = numbers.map(|n| n.parse().unwrap_or(u64::MAX)).collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    (numbers, rest)
}

/// The order of versions: by their numbers, and `1.2rc1` before `1.2` before `1.2+local`.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    let key = |version| {
        let (numbers, rest) = parts(version);
        let late = rest.is_empty() || rest.starts_with('+') || rest.starts_with("post");
        (numbers, late, rest.to_string())
    };
    key(a).cmp(&key(b))
}

/// Does a version meet a request? `1.2` is met by every release 1.2.x, a longer one by itself.
pub(crate) fn meets(version: &str, wanted: &str) -> bool {
    if compare_versions(version, wanted) == Ordering::Equal {
        return true;
    }
    let release = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let fixed = |text: &str| text.trim_end_matches('.').split('.').count();
    let (of, prefix) = (version.split('.'), wanted.split('.'));
    release(version)
        && release(wanted)
        && fixed(wanted) <= fixed(version)
        && of.zip(prefix).all(|(a, b)| a.parse::<u64>() == b.parse())
}

pub(crate) fn text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let about = path.symlink_metadata().map_err(|e| e.to_string())?;
    if !about.is_file() {
        return Err("it is no regular file".into());
    }
    let file = File::open(path).map_err(|e| e.to_string())?;
    let read = file.take(MOST + 1).read_to_string(&mut text);
    if read.map_err(|e| e.to_string())? as u64 > MOST {
        Err(format!("it is longer than {MOST} bytes"))
    } else {
        Ok(text)
    }
}

/// The plugin that the text of an `entry_points.txt` announces; `None`: none.
fn announced(text: &str) -> Result<Option<Announced>, String> {
    let lines = text.lines().map(str::trim);
    let mut group = "";
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            group = name.trim();
        } else if group == GROUP {
            found.push(line.split_once('=').map_or("", |(_, value)| value.trim()));
        }
    }
    let value = match found[..] {
        [] => return Ok(None),
        [one] => one,
        _ => {
            return Err(format!(
                "it announces {} plugins under {GROUP}, and one is allowed: let one module import \
                 the others, or make several packages",
                found.len()
            ));
        }
    };
    let word = |word: &str| {
        !word.is_empty()
            && !word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let wrong = || {
        format!(
            "its entry point under {GROUP} is {value:?}; it must be a module (`my_mean`) or a \
             library in a module's folder (`my_mean:plugin.so`)"
        )
    };
    let (module, file) = match value.split_once(':') {
        Some((module, file)) => (module.trim(), Some(file.trim())),
        None => (value, None),
    };
    if !module.split('.').all(word) {
        return Err(wrong());
    }
    let Some(file) = file else {
        return Ok(Some(Announced::Module(module.into())));
    };
    match file.rsplit_once('.') {
        Some((stem, "so" | "dylib" | "dll")) if stem.split('.').all(word) => {
            let folder: PathBuf = module.split('.').collect();
            Ok(Some(Announced::Library(folder.join(file))))
        }
        _ => Err(wrong()),
    }
}

/// The package that a folder `*.dist-info` describes; `None`: it announces no plugin.
fn described(folder: &Path, info: &str) -> Result<Option<Package>, String> {
    let dir = folder.join(info);
    let at = |name: &str| text(&dir.join(name)).map_err(|why| format!("{name}: {why}"));
    if !dir.join("entry_points.txt").exists() {
        return Ok(None);
    }
    let Some(plugin) = announced(&at("entry_points.txt")?)? else {
        return Ok(None);
    };
    let metadata = at("METADATA")?;
    let (name, version) = field(&metadata, "Name")
        .zip(field(&metadata, "Version"))
        .ok_or_else(|| "METADATA: it has no `Name` and `Version`".to_string())?;
    let (called, name) = (info_name(info), normalised(&name)?);
    if called.as_deref() != Some(&name) {
        return Err(format!("its METADATA says that it is `{name}`"));
    }
    if !is_version(&version) {
        return Err(format!("METADATA: {version:?} is no version"));
    }
    Ok(Some(Package {
        name,
        version,
        folder: folder.into(),
        info: info.into(),
        plugin,
    }))
}

/// A field of the header of a METADATA.
fn field(metadata: &str, name: &str) -> Option<String> {
    let header = metadata.lines().take_while(|line| !line.trim().is_empty());
    let mut lines = header.filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    Some(value.trim().to_string())
}

/// The name in `fl_trimmed-1.2.dist-info`.
fn info_name(info: &str) -> Option<String> {
    let (name, _) = info.strip_suffix(".dist-info")?.split_once('-')?;
    normalised(name).ok()
}

/// The packages with a plugin in one folder, or what is wrong with one. `only` reads one name.
fn in_folder(folder: &Path, only: Option<&str>) -> Vec<Result<Package, String>> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let wanted = |info: &String| {
        let name = info_name(info);
        name.is_some_and(|name| only.is_none_or(|only| only == name))
    };
    let mut infos: Vec<String> = names.filter(wanted).collect();
    infos.sort();
    let read = |info: String| {
        let found = described(folder, &info).transpose()?;
        Some(found.map_err(|why| format!("{}: {why}", folder.join(info).display())))
    };
    infos.into_iter().filter_map(read).collect()
}

/// Every installed package with a plugin, or what is wrong with one.
pub fn packages() -> Vec<Result<Package, String>> {
    let folders = package_folders();
    let all = folders.iter().flat_map(|folder| in_folder(folder, None));
    all.collect()
}

/// What a user who lacks a package does.
fn to_install(name: &str, version: Option<&str>) -> String {
    let release = version.map_or(String::new(), |version| format!("=={version}.*"));
    let active = match FOLDERS.get() {
        Some(_) => "",
        None => " in the active environment (VIRTUAL_ENV)",
    };
    format!("install it, as by `pip install '{name}{release}'`{active}")
}

impl Package {
    /// The newest installed package of this name that meets `version`; of equal ones the first, as
    /// Python's path has it.
    ///
    /// # Errors
    /// Says where it was looked for, which versions are there, and what to do.
    pub(crate) fn find(name: &str, version: Option<&str>) -> Result<Self, String> {
        let name = normalised(name)?;
        let folders = package_folders();
        let mut all = Vec::new();
        for folder in &folders {
            let found = in_folder(folder, Some(&name));
            if found.len() > 1 {
                return Err(format!(
                    "{} has {} packages called `{name}`; remove all but one",
                    folder.display(),
                    found.len()
                ));
            }
            for package in found {
                all.push(package?);
            }
        }
        let fits = |p: &&Self| version.is_none_or(|wanted| meets(&p.version, wanted));
        // of equal ones the first
        let newest = all.iter().rev().filter(fits);
        if let Some(newest) = newest.max_by(|a, b| compare_versions(&a.version, &b.version)) {
            return Ok(newest.clone());
        }
        let there: Vec<&str> = all.iter().map(|p| &p.version[..]).collect();
        if !there.is_empty() {
            let (wanted, there) = (version.unwrap_or_default(), there.join(", "));
            let todo = to_install(&name, version);
            return Err(format!(
                "version {wanted} is wanted, and {there} is installed; {todo}"
            ));
        }
        let others = folders.iter().flat_map(|folder| in_folder(folder, None));
        let others: Vec<String> = others.flatten().map(|p| p.name).collect();
        if let Some(near) = fl_core::settings::nearest(&name, others.iter().map(String::as_str)) {
            let todo = to_install(&name, version);
            return Err(format!(
                "it is not installed; did you mean `{near}`? If not: {todo}"
            ));
        }
        // Python also names folders that hold no packages
        let infos = |folder: &&PathBuf| {
            let entries = folder.read_dir().into_iter().flatten().flatten();
            let mut names = entries.map(|entry| PathBuf::from(entry.file_name()));
            names.any(|name| name.extension().is_some_and(|end| end == "dist-info"))
        };
        let looked = folders.iter().filter(infos);
        let looked: Vec<_> = looked.map(|f| f.display().to_string()).collect();
        let found = if looked.is_empty() {
            "it is not installed, for there is no folder of packages".to_string()
        } else {
            format!("it is not installed in {}", looked.join(", "))
        };
        Err(format!("{found}; {}", to_install(&name, version)))
    }

    /// The file of its library, or the folder of its modules.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.plugin {
            Announced::Library(path) => self.folder.join(path),
            Announced::Module(_) => self.folder.clone(),
        }
    }
}

/// The platform that this program is for, such as `linux-x86_64`.
pub(crate) fn platform() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn exact_versions_have_an_order_and_meet_requests() {
        let sorted = [
            "1", "1.2rc1", "1.2", "1.2+mine", "1.2.1", "1.10", "2.0a1", "2",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(compare_versions(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        for (version, wanted, met) in [
            ("1.2.3", "1.2", true),
            ("1.2", "1.2.0", true),
            ("1.20", "1.2", false),
            ("1.2.3", "1.2.3.4", false),
            ("1.3", "1.2", false),
            ("1.2.1rc1", "1.2", false),
            ("1.2rc1", "1.2rc1", true),
        ] {
            assert_eq!(meets(version, wanted), met, "{version} for {wanted}");
        }
        for wrong in ["", "../1", "v1", "1/2", "1 2", &"1".repeat(65)] {
            assert!(!is_version(wrong), "{wrong}");
        }
    }

    #[test]
    fn exact_names_are_compared_as_pip_compares_them() {
        assert_eq!(normalised("FL_trimmed..x").unwrap(), "fl-trimmed-x");
        for wrong in [
            "",
            "..",
            "../a",
            "a/b",
            "-a",
            "a-",
            "a\nb",
            "\u{e4}",
            &"a".repeat(101),
        ] {
            assert!(normalised(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_entry_point_is_a_module_or_a_library_inside() {
        let read = |value: &str| announced(&format!("[x]\na = b\n[fl.plugins]\nname = {value}\n"));
        let library = |path: &str| Ok(Some(Announced::Library(path.into())));
        assert_eq!(read("a.b"), Ok(Some(Announced::Module("a.b".into()))));
        assert_eq!(read("a.b:plugin.so"), library("a/b/plugin.so"));
        assert_eq!(announced("[other]\na = b"), Ok(None));
        for wrong in [
            "",
            "..",
            "../a",
            "/a",
            "a:../b.so",
            "a:/b.so",
            "..:b.so",
            "a:b",
            "a:.so",
            "a b",
            "a:b.py",
        ] {
            assert!(
                read(wrong).unwrap_err().contains("must be a module"),
                "{wrong}"
            );
        }
        assert!(read("a\nc = d").unwrap_err().contains("2 plugins"));
    }

    fn install(folder: &Path, info: &str, name: &str, version: &str) {
        let dir = folder.join(info);
        fs::create_dir_all(&dir).unwrap();
        let metadata =
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: no");
        fs::write(dir.join("METADATA"), metadata).unwrap();
        fs::write(dir.join("entry_points.txt"), "[fl.plugins]\na = fl_a\n").unwrap();
    }

    #[test]
    fn a_package_is_what_its_folder_says() {
        let dir = tempfile::tempdir().unwrap();
        let found = || in_folder(dir.path(), Some("fl-a")).pop().unwrap();
        assert!(in_folder(dir.path(), Some("fl-a")).is_empty());
        install(dir.path(), "fl_a-2.0.dist-info", "FL.a", "2.0");
        assert_eq!(found().unwrap().version, "2.0");
        // one that passes for another
        install(dir.path(), "fl_a-2.0.dist-info", "fl-b", "2.0");
        assert!(found().unwrap_err().contains("says that it is `fl-b`"));
        install(dir.path(), "fl_a-2.0.dist-info", "fl-a", "../2");
        assert!(found().unwrap_err().contains("is no version"));
        let long = " ".repeat(MOST as usize + 1);
        fs::write(dir.path().join("fl_a-2.0.dist-info/METADATA"), long).unwrap();
        assert!(found().unwrap_err().contains("longer than"));
    }
}
