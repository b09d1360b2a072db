//! What one reads to change the inside: circles of files, and files that only pass an ability on.

use crate::size::{Size, all, product, sizes};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Words for a loss on features, the ability that shows how many files pass one on.
const ABILITY: [&str; 4] = ["featureloss", "feature_loss", "addedloss", "auxiliary"];

const HEAD: &str = "
## The inside

The same counts in commit 8d2557c0 and now.
`FL_SIZE_OF=FOLDER cargo test -p fl-cli --test program inside -- --ignored --nocapture` prints those
of another tree. A circle is a set of files that use one another; what a file uses by the name of a
folder above it does not count.

| | 8d2557c0 | now |
|---|---|---|
";

/// The counts of 8d2557c0.
const THEN: [usize; 11] = [94181, 24772, 10077, 5793, 33988, 29628, 52, 351, 86, 16, 12];

/// What is counted, by its name.
type Counts = Vec<(&'static str, usize)>;

fn counts(top: &Path) -> (Counts, Vec<BTreeSet<String>>) {
    let by_file = sizes(top, |name| name.into());
    let sum = |folders: &[&str], of: fn(&Size) -> usize| -> usize {
        let ours = |name: &str| folders.iter().any(|folder| name.starts_with(folder));
        let ours = by_file.iter().filter(|(name, _)| ours(name));
        ours.map(|(_, size)| of(size)).sum()
    };
    let circles = circles(top);
    let code: fn(&Size) -> usize = |size| size.code;
    let counts = vec![
        ("code", sum(&[""], code)),
        ("code in `fl-core`", sum(&["fl-core/"], code)),
        (
            "of it the C interface",
            sum(&["fl-core/abi/", "fl-core/src/abi/"], code),
        ),
        ("code in `registry`", sum(&["registry/"], code)),
        ("code in `hosts`", sum(&["hosts/"], code)),
        ("code in `plugins`", sum(&["plugins/"], code)),
        (
            "functions of more than 80 lines",
            sum(&[""], |size| size.long),
        ),
        ("`unsafe`", sum(&[""], |size| size.not_safe)),
        (
            "of it in `hosts/python`",
            sum(&["hosts/python/"], |size| size.not_safe),
        ),
        ("files that only pass on a loss on features", pass_on(top)),
        ("circles of files", circles.len()),
    ];
    (counts, circles)
}

/// The page's part on the inside, and its last lines, which must be current.
pub fn page(top: &Path) -> (String, String) {
    let (counts, circles) = counts(top);
    let mut page = HEAD.to_string();
    for ((what, now), then) in counts.iter().zip(THEN) {
        let _ = writeln!(page, "| {what} | {then} | {now} |");
    }
    let mut exact = "| circle in | files |\n|---|---|\n".to_string();
    for circle in circles {
        let folder = shared_folder(&circle);
        let files: Vec<&str> = circle.iter().map(|file| &file[folder.len()..]).collect();
        let _ = writeln!(exact, "| `{folder}` | {} |", files.join(", "));
    }
    page.push('\n');
    (page + &exact, exact)
}

/// The folder that files have in common.
fn shared_folder(files: &BTreeSet<String>) -> &str {
    let first = files.first().map_or("", |file| file);
    let ends = first.match_indices('/').map(|(at, _)| &first[..=at]);
    let shared = ends
        .rev()
        .find(|folder| files.iter().all(|file| file.starts_with(folder)));
    shared.unwrap_or("")
}

#[test]
#[ignore = "it only prints the counts of the tree that FL_SIZE_OF names"]
fn prints_the_counts_of_another_tree() {
    let folder = std::env::var_os("FL_SIZE_OF").expect("FL_SIZE_OF=FOLDER");
    let (counts, circles) = counts(Path::new(&folder));
    let text = format!("{counts:#?}\n{circles:#?}\n");
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).unwrap();
}

/// Crates without tests do not link a binary for them; a test that is added there must not be left
/// out in silence.
#[test]
fn no_test_stands_where_none_is_built() {
    let mut bare = 0;
    for (name, path) in all(&crate::common::root()) {
        let Some(folder) = name.strip_suffix("Cargo.toml") else {
            continue;
        };
        let manifest = fs::read_to_string(&path).unwrap();
        if !manifest.contains("[lib]\ntest = false") {
            continue;
        }
        bare += 1;
        for file in crate::common::files(&path.with_file_name("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let file = file.display();
            assert!(
                !text.contains("#[test]") && !text.contains("cfg(test)"),
                "{file}: remove `test = false` from {folder}Cargo.toml"
            );
        }
    }
    assert!(bare > 0, "a crate without tests");
}

/// Returns the files that name a loss on features, but for the role, who has it and who uses it.
fn pass_on(top: &Path) -> usize {
    let own = ["roles/trainer.rs", "roles/added_loss.rs", "fl/torch.py"];
    let own = |name: &str| own.iter().any(|own| name.ends_with(own)) && !name.contains("/abi/");
    let place = [
        "fl-core",
        "hosts/python/src",
        "hosts/python/fl/",
        "registry",
    ];
    let code = [".rs", ".py", ".h"];
    let names = |path: &Path| {
        let text = fs::read_to_string(path).unwrap().to_lowercase();
        ABILITY.iter().any(|word| text.contains(word))
    };
    let found = all(top).into_iter().filter(|(name, path)| {
        let ours = place.iter().any(|place| name.starts_with(place));
        ours && !own(name) && code.iter().any(|code| name.ends_with(code)) && names(path)
    });
    found.count()
}

/// Returns the circles of files that use one another, in Rust and in Python. What a file uses by
/// the name of a folder above it does not count.
fn circles(top: &Path) -> Vec<BTreeSet<String>> {
    let mut packages: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for (name, path) in all(top) {
        let file = |package: &str, modules: &str| (package.to_string(), module(modules));
        let split = name.split_once("/src/");
        let found = match (split, name.strip_prefix("hosts/python/fl/")) {
            (_, Some(python)) if name.ends_with(".py") => Some(file("fl", python)),
            (Some((package, rust)), _) if name.ends_with(".rs") && !rust.starts_with("bin/") => {
                Some(file(package, rust))
            }
            _ => None,
        };
        if let Some((package, module)) = found {
            let text = fs::read_to_string(&path).unwrap();
            let file = if name.ends_with(".py") {
                File::python(name, module, &text)
            } else {
                File::rust(name, module, &text)
            };
            packages.entry(package).or_default().push(file);
        }
    }
    packages
        .values()
        .flat_map(|files| in_circles(files))
        .collect()
}

/// `a/b.rs` is the module `a::b`, as are `a/b/mod.rs` and `a/b/__init__.py`.
fn module(path: &str) -> Vec<String> {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    let mut names: Vec<String> = stem.split('/').map(Into::into).collect();
    names.pop_if(|last| ["lib", "main", "mod", "__init__"].contains(&&**last));
    names
}

/// A file of a package, and the paths that it uses.
struct File {
    name: String,
    module: Vec<String>,
    uses: Vec<Vec<String>>,
}

impl File {
    fn rust(name: String, module: Vec<String>, text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let code: Vec<&str> = product(&lines)
            .into_iter()
            .map(|at| lines[at].trim())
            .collect();
        let code = code.join("\n");
        let (mut uses, mut names) = (Vec::new(), BTreeMap::new());
        for line in code.lines() {
            let child = line
                .strip_prefix("pub ")
                .or(line.strip_prefix("pub(crate) "));
            let child = child.unwrap_or(line).strip_prefix("mod ");
            if let Some(child) = child.and_then(|child| child.strip_suffix(';')) {
                let path = [&module[..], &[child.into()]].concat();
                names.insert(child.to_string(), path);
            }
        }
        let mut rest = String::new();
        for item in code.split_inclusive(';') {
            let start = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
            let begin = start.iter().find_map(|start| {
                let at = item.rfind(&format!("\n{start}")).map(|at| at + 1);
                at.or_else(|| item.starts_with(start).then_some(0))
                    .map(|at| (at, *start))
            });
            let Some((at, start)) = begin else {
                rest += item;
                continue;
            };
            rest += &item[..at];
            for (path, last) in expand(item[at + start.len()..].trim_end_matches(';')) {
                let child = names
                    .get(&path[0])
                    .map(|child| [child, &path[1..]].concat());
                let Some(path) = child.or_else(|| absolute(&module, &path)) else {
                    continue;
                };
                if start == "use " {
                    names.insert(last, path);
                }
            }
        }
        // an imported module counts by what is used of it
        let mut through = BTreeSet::new();
        for path in paths(&rest) {
            if let Some(known) = names.get(&path[0]) {
                through.insert(path[0].clone());
                uses.push([known, &path[1..]].concat());
            } else if let Some(path) = absolute(&module, &path) {
                uses.push(path);
            }
        }
        let declared = |name: &str| [&module[..], &[name.into()]].concat();
        names.retain(|name, path| !through.contains(name) && *path != declared(name));
        uses.extend(names.into_values());
        Self { name, module, uses }
    }

    fn python(name: String, module: Vec<String>, text: &str) -> Self {
        let package = name.ends_with("__init__.py");
        let (mut uses, mut open) = (Vec::new(), String::new());
        for line in text.lines() {
            open += line.trim();
            // a list of names in brackets goes on
            if open.contains('(') && !open.contains(')') && open.starts_with("from ") {
                continue;
            }
            let line = std::mem::take(&mut open);
            let Some((from, list)) = line
                .strip_prefix("from ")
                .and_then(|rest| rest.split_once(" import "))
            else {
                continue;
            };
            let up = from.len() - from.trim_start_matches('.').len();
            let base = match (up, from.strip_prefix("fl.")) {
                (0, None) if from == "fl" => Vec::new(),
                (0, None) => continue,
                (0, Some(rest)) => rest.split('.').map(Into::into).collect(),
                (up, _) => {
                    let keep = module.len() + usize::from(package) - up.min(module.len());
                    let mut base = module[..keep.min(module.len())].to_vec();
                    let rest = from.trim_start_matches('.').split('.');
                    base.extend(rest.filter(|name| !name.is_empty()).map(String::from));
                    base
                }
            };
            for name in list.trim_matches(['(', ')']).split(',') {
                let name = name.split(" as ").next().unwrap().trim();
                if !name.is_empty() {
                    uses.push([&base[..], &[name.into()]].concat());
                }
            }
        }
        Self { name, module, uses }
    }
}

/// The paths of a `use`, each with the name that it gives.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path: Vec<String> = path.split("::").map(|name| name.trim().into()).collect();
        path.pop_if(|last| last == "self");
        let last = path.last().cloned().unwrap_or_default();
        let name = if name.is_empty() { last } else { name.into() };
        return vec![(path, name)];
    };
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let one = list[from..at].trim();
                from = at + 1;
                if !one.is_empty() {
                    all.extend(expand(&format!("{head}{one}")));
                }
            }
            _ => {}
        }
    }
    all
}

/// The path from the crate's root, if it is of this crate.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let from = match first.as_str() {
        "crate" => &[],
        "self" => module,
        "super" => &module[..module.len().checked_sub(1)?],
        _ => return None,
    };
    match rest.first() {
        Some(next) if next == "super" => absolute(from, rest).or_else(|| Some(from.to_vec())),
        _ => Some([from, rest].concat()),
    }
}

/// The paths of two and more names in the code.
fn paths(code: &str) -> Vec<Vec<String>> {
    let word = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let found = code.split(|letter| !word(letter));
    let found = found.filter(|path| path.contains("::") && !path.starts_with(':'));
    let names = |path: &str| path.split("::").map(String::from).collect::<Vec<_>>();
    let found: BTreeSet<Vec<String>> = found.map(names).collect();
    found.into_iter().collect()
}

/// The file that a path is of.
fn file_of(files: &[File], path: &[String]) -> Option<usize> {
    let found = (0..files.len()).filter(|at| path.starts_with(&files[*at].module));
    found.max_by_key(|at| files[*at].module.len())
}

fn in_circles(files: &[File]) -> Vec<BTreeSet<String>> {
    let next = |at: usize| -> BTreeSet<usize> {
        let uses = files[at].uses.iter();
        let mut next: BTreeSet<usize> = uses.filter_map(|path| file_of(files, path)).collect();
        next.retain(|to| !files[at].module.starts_with(&files[*to].module));
        next
    };
    let next: Vec<BTreeSet<usize>> = (0..files.len()).map(next).collect();
    let reach = |from: usize| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(next[at].iter().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let reach: Vec<BTreeSet<usize>> = (0..files.len()).map(reach).collect();
    let circle = |at: usize| -> BTreeSet<usize> {
        let there = reach[at].iter().copied();
        there.filter(|to| reach[*to].contains(&at)).collect()
    };
    let circles: BTreeSet<BTreeSet<usize>> = (0..files.len()).map(circle).collect();
    let circles = circles.into_iter().filter(|circle| circle.len() > 1);
    let name = |at: &usize| files[*at].name.clone();
    circles
        .map(|circle| circle.iter().map(name).collect())
        .collect()
}

#[test]
fn a_circle_is_of_files_that_use_one_another_by_any_name() {
    let top = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = top.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("k/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use c::C;\n");
    // in a list, as a whole path, by the crate's name, and in a test
    write("k/src/a.rs", "use crate::{C, b::B};\npub struct A(B, C);\n");
    write(
        "k/src/b.rs",
        "pub struct B;\nfn f() {\n    crate::a::A::g();\n}\n",
    );
    write(
        "k/src/c.rs",
        "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
    );
    write("hosts/python/fl/__init__.py", "from .x import X\n");
    write("hosts/python/fl/x.py", "from .y import (\n    Y,\n)\n");
    write("hosts/python/fl/y.py", "def f():\n    from fl import x\n");
    let found: Vec<Vec<String>> = circles(top.path())
        .into_iter()
        .map(Vec::from_iter)
        .collect();
    let python = ["hosts/python/fl/x.py", "hosts/python/fl/y.py"];
    assert_eq!(found, [python, ["k/src/a.rs", "k/src/b.rs"]]);
}
