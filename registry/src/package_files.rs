//! What a hash of a package covers.

use crate::package::{ANY, Announced, Package, platform, text};
use crate::sealed_memfd::hash;
use fl_core::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

/// The most files that a package of modules may have.
const MOST: usize = 10_000;

/// What Python may import of a folder.
const IMPORTED: [&str; 4] = ["py", "pyc", "so", "pyd"];

/// Where Python keeps what it compiles. fl has Python compile the hashed sources instead.
const CACHE: &str = "__pycache__";

/// The hash of a package.
pub(crate) struct PackageHash {
    /// SHA-256 in hexadecimal: of the library, or of a line for each file, as `sha256sum` writes
    /// it.
    pub sha256: String,
    /// Each file of a package of modules: its name below the folder, and its SHA-256.
    pub files: Vec<(String, String)>,
    /// The platform that it is for.
    pub platform: String,
}

/// The module that this file is, without the folders before it.
fn module(name: &str) -> Option<&str> {
    let (stem, ending) = name.split_once('.')?;
    let ending = ending.rsplit('.').next().unwrap_or(ending);
    IMPORTED.contains(&ending).then_some(stem)
}

/// The names of files in a RECORD: the first of the values that commas separate in each line.
fn recorded(record: &str) -> Vec<String> {
    let name = |line: &str| match line.strip_prefix('"') {
        // in a quoted name a quote is written twice
        Some(rest) => {
            let rest = rest.replace("\"\"", "\0");
            rest.split('"')
                .next()
                .unwrap_or_default()
                .replace('\0', "\"")
        }
        None => line.split(',').next().unwrap_or_default().into(),
    };
    record
        .lines()
        .map(name)
        .filter(|name| !name.is_empty())
        .collect()
}

/// Is `folder` a package that Python imports as a whole? Without that file it may be of several
/// distributions.
fn is_whole(folder: &Path) -> bool {
    let all = folder.read_dir().into_iter().flatten().flatten();
    let mut names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| module(&name) == Some("__init__"))
}

/// What is covered, by its name below the folder of the package.
struct Cover<'a> {
    root: &'a Path,
    files: BTreeSet<String>,
}

impl Cover<'_> {
    fn add(&mut self, name: String) -> Result<(), String> {
        self.files.insert(name);
        if self.files.len() > MOST {
            Err(format!("it has more than {MOST} files"))
        } else {
            Ok(())
        }
    }

    /// What is there: names, and whether each is a folder.
    fn entries(&self, folder: &str) -> Result<Vec<(String, bool)>, String> {
        let path = self.root.join(folder);
        let unread = |why: String| format!("{}: {why}", path.display());
        let mut all = Vec::new();
        for entry in path.read_dir().map_err(|e| unread(e.to_string()))? {
            let entry = entry.map_err(|e| unread(e.to_string()))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(unread("it has a file whose name is no text".into()));
            };
            let is_folder = entry.path().is_dir();
            all.push((name, is_folder));
        }
        Ok(all)
    }

    /// Everything below a folder, which ends with `/`.
    fn whole(&mut self, folder: &str) -> Result<(), String> {
        for (name, is_folder) in self.entries(folder)? {
            let path = format!("{folder}{name}");
            if name == CACHE {
                continue;
            }
            if is_folder && self.root.join(&path).is_symlink() {
                return Err(format!("its folder {path} is a link; hashes follow none"));
            }
            if is_folder {
                self.whole(&format!("{path}/"))?
            } else {
                self.add(path)?
            }
        }
        Ok(())
    }

    /// What Python can import or read of the `names` that a RECORD has below `folder`, and what
    /// lies beside them and would be imported in their place.
    fn part(&mut self, folder: &str, names: &[&str]) -> Result<(), String> {
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut modules = BTreeSet::new();
        for name in names {
            match name.split_once('/') {
                Some((CACHE, _)) => {}
                Some((first, rest)) => below.entry(first).or_default().push(rest),
                None => {
                    modules.extend(module(name));
                    if self.root.join(folder).join(name).is_file() {
                        self.add(format!("{folder}{name}"))?;
                    }
                }
            }
        }
        modules.extend(below.keys());
        for (name, is_folder) in self.entries(folder)? {
            let path = format!("{folder}{name}");
            if !is_folder && module(&name).is_some_and(|module| modules.contains(module)) {
                self.add(path)?;
            } else if is_folder && modules.contains(&*name) {
                let whole = is_whole(&self.root.join(&path));
                match (whole, below.get(&*name)) {
                    (true, _) => self.whole(&format!("{path}/"))?,
                    (false, Some(names)) => self.part(&format!("{path}/"), names)?,
                    (false, None) => {}
                }
            }
        }
        Ok(())
    }
}

impl Package {
    /// The hash of what is loaded. `None`: the files of the package are not known. It has no RECORD
    /// that lists its module, as an editable install has none.
    ///
    /// The hash of a package of modules covers its entry points, all files that its RECORD lists,
    /// and what lies among its modules. It leaves out what an installer writes: the rest of the
    /// metadata, scripts and bytecode.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hashed(&self) -> Result<Option<PackageHash>, String> {
        let of = |path: &Path| {
            let about = path.metadata().map_err(|e| e.to_string());
            let regular = about.and_then(|about| {
                if about.is_file() {
                    File::open(path)
                        .and_then(|mut file| hash(&mut file))
                        .map_err(|e| e.to_string())
                } else {
                    Err("it is no regular file".into())
                }
            });
            regular.map_err(|why| format!("{}: {why}", path.display()))
        };
        let announced = match &self.plugin {
            Announced::Library(path) => {
                let sha256 = of(&self.folder.join(path))?;
                let (files, platform) = (Vec::new(), platform());
                return Ok(Some(PackageHash {
                    sha256,
                    files,
                    platform,
                }));
            }
            Announced::Module(module) => module.replace('.', "/"),
        };
        let record = self.folder.join(&self.info).join("RECORD");
        if !record.is_file() {
            return Ok(None);
        }
        let record = text(&record).map_err(|why| format!("{}: {why}", record.display()))?;
        let names = recorded(&record);
        let (outside, inside): (Vec<&str>, Vec<&str>) = names
            .iter()
            .map(String::as_str)
            .filter(|name| {
                !name
                    .split('/')
                    .next()
                    .is_some_and(|first| first.ends_with(".dist-info"))
            })
            .partition(|name| name.starts_with("../") || Path::new(name).is_absolute());
        // two names of one file would hide one of them
        let odd = |name: &&str| {
            let inner = name.trim_start_matches("../").trim_start_matches('/');
            inner.split('/').any(|step| matches!(step, "" | "." | ".."))
        };
        if let Some(name) = inside.iter().chain(&outside).copied().find(odd) {
            return Err(format!(
                "its RECORD has {name:?}, which is no plain name; install the package anew with pip"
            ));
        }
        let mut cover = Cover {
            root: &self.folder,
            files: BTreeSet::from([format!("{}/entry_points.txt", self.info)]),
        };
        cover.part("", &inside)?;
        let mut all = BTreeMap::new();
        let mut imported = BTreeSet::new();
        for name in cover.files {
            let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
            if let Some(module) = module(file) {
                imported.insert(match (folder, module) {
                    (folder, "__init__") => folder.to_string(),
                    ("", module) => module.into(),
                    (folder, module) => format!("{folder}/{module}"),
                });
            }
            let sha256 = of(&self.folder.join(&name))?;
            all.insert(name, sha256);
        }
        if !imported.contains(&announced) {
            return Ok(None);
        }
        let compiled = |name: &String| {
            !name.ends_with(".py") && module(name.rsplit('/').next().unwrap_or(name)).is_some()
        };
        let platform = if all.keys().any(compiled) {
            platform()
        } else {
            ANY.into()
        };
        // data beside the environment's modules; how deep these lie differs between systems
        for name in outside {
            let path = self.folder.join(name);
            let name = name.trim_start_matches("../");
            let scripts = name.strip_prefix("bin/").or(name.strip_prefix("Scripts/"));
            let is_script = scripts.is_some_and(|script| !script.contains('/'));
            if !is_script && path.is_file() {
                let name = format!("../{name}");
                if all.insert(name.clone(), of(&path)?).is_some() {
                    return Err(format!("its RECORD has two files that are both {name}"));
                }
            }
        }
        let files: Vec<(String, String)> = all.into_iter().collect();
        let lines = files
            .iter()
            .map(|(name, sha256)| format!("{sha256}  {name}\n"));
        let sha256 = hex(&Sha256::digest(lines.collect::<String>()));
        Ok(Some(PackageHash {
            sha256,
            files,
            platform,
        }))
    }

    /// SHA-256 of what is loaded, in hexadecimal. `None`: the files of the package are not known.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn sha256(&self) -> Result<Option<String>, String> {
        Ok(self.hashed()?.map(|hashed| hashed.sha256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MODULES: &str = "mine.py,sha256=x,1\nmine_helper.py,,\n\"mine_data,\"\"a.json\",,\nmine_data/w.npy,,\n\
        ../../../share/mine/table.csv,,\n../../../bin/mine,,\nspace/inner/__init__.py,,\n\
        __pycache__/mine.cpython-311.pyc,,\nfl_a-1.dist-info/METADATA,,\nfl_a-1.dist-info/RECORD,,\n";

    fn installed(env: &Path, record: Option<&str>) -> Package {
        let folder = env.join("lib/python3.11/site-packages");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for name in [
            "mine.py",
            "mine_helper.py",
            "mine_data,\"a.json",
            "mine_data/w.npy",
            "space/inner/__init__.py",
            "space/inner/data.bin",
            "space/other.py",
            "other.py",
            "../../../share/mine/table.csv",
            "../../../bin/mine",
            "__pycache__/mine.cpython-311.pyc",
            "fl_a-1.dist-info/METADATA",
            "fl_a-1.dist-info/entry_points.txt",
        ] {
            write(name, name);
        }
        if let Some(record) = record {
            write("fl_a-1.dist-info/RECORD", record);
        }
        Package {
            name: "fl-a".into(),
            version: "1".into(),
            folder,
            info: "fl_a-1.dist-info".into(),
            plugin: Announced::Module("mine".into()),
        }
    }

    /// A file that is changed or added where the hash must see it, or must not.
    #[test]
    fn a_hash_covers_what_python_can_import_or_read_of_a_package() {
        let env = tempfile::tempdir().unwrap();
        let package = installed(env.path(), Some(MODULES));
        let hash = || package.sha256().unwrap().unwrap();
        let first = hash();
        for (name, covered) in [
            ("mine.py", true),
            ("mine_helper.py", true),
            ("mine_data,\"a.json", true),
            ("mine_data/w.npy", true),
            ("space/inner/__init__.py", true),
            ("space/inner/data.bin", true),
            ("space/inner/more/added.txt", true),
            ("fl_a-1.dist-info/entry_points.txt", true),
            ("../../../share/mine/table.csv", true),
            // what Python would import in place of a source
            ("mine.cpython-311-x86_64-linux-gnu.so", true),
            ("mine_helper.abi3.so", true),
            ("mine_helper.pyc", true),
            ("mine_helper/__init__.py", true),
            ("space/inner.py", true),
            // of other distributions, or made by the installer
            ("space/other.py", false),
            ("other.py", false),
            ("another.so", false),
            ("../../../bin/mine", false),
            ("fl_a-1.dist-info/METADATA", false),
            ("fl_a-1.dist-info/INSTALLER", false),
            ("fl_a-2.dist-info/entry_points.txt", false),
            ("__pycache__/mine.cpython-311.pyc", false),
            ("space/inner/__pycache__/__init__.cpython-311.pyc", false),
        ] {
            let path = package.folder.join(name);
            let before = fs::read(&path).ok();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "changed").unwrap();
            assert_eq!(hash() != first, covered, "{name}");
            match before {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None if path.parent() == Some(&package.folder) => fs::remove_file(&path).unwrap(),
                None if name.starts_with("space/") => fs::remove_file(&path).unwrap(),
                None => fs::remove_dir_all(path.parent().unwrap())
                    .or_else(|_| fs::remove_file(&path))
                    .unwrap(),
            }
            if name.contains("INSTALLER") {
                installed(env.path(), Some(MODULES));
            }
            assert_eq!(hash(), first, "{name} is as it was");
        }
        // a changed list of files is another package
        installed(env.path(), Some(&MODULES.replace("mine_helper.py,,\n", "")));
        assert_ne!(hash(), first);
    }

    #[test]
    fn a_package_without_a_record_of_its_module_has_no_hash() {
        for record in [
            None,
            Some(""),
            Some("other.py,,\n"),
            Some("__editable__.fl_a.pth,,\n"),
        ] {
            let env = tempfile::tempdir().unwrap();
            assert_eq!(
                installed(env.path(), record).sha256(),
                Ok(None),
                "{record:?}"
            );
        }
    }

    #[test]
    fn compiled_modules_are_of_one_platform() {
        let env = tempfile::tempdir().unwrap();
        let package = installed(env.path(), Some(MODULES));
        assert_eq!(package.hashed().unwrap().unwrap().platform, ANY);
        fs::write(package.folder.join("mine_helper.abi3.so"), "compiled").unwrap();
        assert_eq!(package.hashed().unwrap().unwrap().platform, platform());
        // a pipe has no writer
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/null", package.folder.join("mine.so")).unwrap();
            assert!(package.sha256().unwrap_err().contains("no regular file"));
        }
    }
}
