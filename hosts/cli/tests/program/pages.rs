//! The Markdown pages: their links, the width of their lines, the commands that they show, and the
//! book that is made of them.

use crate::common::{root, user_dir};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BOOK: &str = "specs/book/src";

/// Files below `folder` with this ending, relative to the root: not what is built, run or hidden.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && name != ".github";
        if path.is_dir() && !hidden && !["target", "runs"].contains(&&*name) {
            files(&path, ending, found);
        } else if name.ends_with(ending) {
            found.push(path.strip_prefix(root()).unwrap().to_path_buf());
        }
    }
}

fn all(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found);
    found.sort();
    assert!(!found.is_empty());
    found
}

fn read(page: impl AsRef<Path>) -> String {
    let path = root().join(page);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Lines of docstrings, and with comments that do not stand behind a long line of code.
fn python_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut inside, mut doc) = (false, false);
    text.lines().enumerate().filter(move |(_, line)| {
        let (begins, own) = (!inside, line.trim_start());
        doc = own.starts_with("\"\"\"") && begins || doc && !begins;
        inside ^= line.matches("\"\"\"").count() % 2 == 1;
        let marks = ["noqa", "type:", "fmt:"];
        let comment = line.split_once("  # ").is_some_and(|(code, text)| {
            code.chars().count() <= 100 && !marks.iter().any(|mark| text.starts_with(mark))
        });
        doc || begins && (own.starts_with('#') || comment)
    })
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The code blocks of this language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    let rest = text.split(&*fence).skip(1);
    rest.map(|t| t.split("```").next().unwrap()).collect()
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).map(|(_, line)| line);
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let anchor = |h: &str| h.trim_start_matches(['#', ' ']).to_lowercase();
    headings
        .filter(|line| line.starts_with('#'))
        .map(|h| anchor(h).chars().filter(kept).collect::<String>())
        .map(|h| h.replace(' ', "-"))
        .collect()
}

/// The targets of links and pictures.
fn links(text: &str) -> Vec<String> {
    let plain: Vec<String> = prose(text).map(|(_, line)| without_code(line)).collect();
    let plain = plain.join("\n");
    let links = plain.split("](").skip(1);
    let links = links.filter_map(|t| t.split(')').next());
    let pictures = plain.split("<img src=\"").skip(1);
    let pictures = pictures.filter_map(|t| t.split('"').next());
    let local = |link: &&str| !link.contains("://") && !link.contains(char::is_whitespace);
    links
        .chain(pictures)
        .filter(local)
        .map(String::from)
        .collect()
}

#[test]
fn links_lead_to_what_is_there() {
    let mut broken = Vec::new();
    for page in all(".md") {
        let (text, name) = (read(&page), page.display());
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = if file.is_empty() {
                root().join(&page)
            } else {
                root().join(&page).parent().unwrap().join(file)
            };
            if !to.exists() {
                broken.push(format!("{name}: {link} is not there"));
            } else if !anchor.is_empty() && !anchors(&read(&to)).contains(&anchor.to_string()) {
                broken.push(format!("{name}: {link} has no such heading"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Pages that the program writes from doc comments.
const GENERATED: [&str; 4] = [
    "specs/README.md",
    "specs/book/fields",
    "plugins/PARTS.md",
    "fl-core/MESSAGES.md",
];

#[test]
fn lines_keep_to_a_hundred_columns() {
    let mut wide = Vec::new();
    for page in all(".md") {
        let mut generated = GENERATED.iter();
        if generated.any(|generated| page.starts_with(generated)) {
            continue;
        }
        let (text, mut table) = (read(&page), false);
        for (number, line) in prose(&text) {
            // tables cannot be wrapped, and `fl study` writes what stands between its marks
            table =
                (table || line.starts_with("<!-- fl study")) && !line.starts_with("<!-- end of");
            if !table && !line.trim_start().starts_with('|') && line.chars().count() > 100 {
                wide.push(format!("{}:{}", page.display(), number + 1));
            }
        }
    }
    for module in all(".py") {
        let text = read(&module);
        let lines = python_prose(&text).filter(|(_, line)| line.chars().count() > 100);
        wide.extend(lines.map(|(number, _)| format!("{}:{}", module.display(), number + 1)));
    }
    assert!(wide.is_empty(), "lines over 100 columns: {wide:#?}");
}

#[test]
fn the_book_has_every_chapter() {
    let summary = read(Path::new(BOOK).join("SUMMARY.md"));
    let chapters: BTreeSet<PathBuf> = links(&summary)
        .iter()
        .map(|link| root().join(BOOK).join(link).canonicalize().unwrap())
        .collect();
    for page in all(".md") {
        let shipped = page.starts_with(BOOK) && !page.ends_with("SUMMARY.md");
        let known = chapters.contains(&root().join(&page).canonicalize().unwrap());
        assert!(!shipped || known, "SUMMARY.md lacks {}", page.display());
    }
}

/// The lines of a source, `FILE` or `FILE:NAME` (between `ANCHOR: NAME` and `ANCHOR_END: NAME`),
/// without indentation and comment signs.
fn source(target: &str) -> Result<String, String> {
    let (file, name) = target.split_once(':').unwrap_or((target, ""));
    let text = fs::read_to_string(root().join(file)).map_err(|error| error.to_string())?;
    let at = |mark: &str| {
        let found = text.lines().position(|l| {
            l.trim_end_matches(" */")
                .ends_with(&format!("{mark}: {name}"))
        });
        found.ok_or(format!("{file} has no {mark}: {name}"))
    };
    let (first, last) = match name {
        "" => (0, text.lines().count()),
        _ => (at("ANCHOR")? + 1, at("ANCHOR_END")?),
    };
    let lines = text.lines().skip(first).take(last - first);
    let lines: Vec<&str> = lines.filter(|line| !line.contains("ANCHOR")).collect();
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = filled
        .clone()
        .map(|line| line.len() - line.trim_start().len())
        .min();
    let comment = filled.clone().all(|line| line.trim().starts_with("//!"));
    let plain = |line: &&str| {
        let line = line.get(indent.unwrap_or(0)..).unwrap_or("");
        match line.strip_prefix("//!").filter(|_| comment) {
            Some(text) => text.strip_prefix(' ').unwrap_or(text).into(),
            None => line.to_string(),
        }
    };
    Ok(lines.iter().map(|line| plain(line) + "\n").collect())
}

/// A block below `<!-- code: FILE:NAME -->` is what the file has there.
#[test]
fn exact_shown_code_is_that_of_its_source() {
    let (mut stale, mut shown) = (Vec::new(), 0);
    for page in all(".md") {
        let text = read(&page);
        let mut pieces = text.split("<!-- code: ");
        let mut now = pieces.next().unwrap().to_string();
        for piece in pieces {
            let block = piece.split_once(" -->\n```").and_then(|(target, rest)| {
                let (language, rest) = rest.split_once('\n')?;
                let (code, after) = rest.split_once("```\n")?;
                Some((target, language, code, after))
            });
            let Some((target, language, code, after)) = block else {
                panic!(
                    "{}: no block of code follows `{}`",
                    page.display(),
                    piece.lines().next().unwrap()
                );
            };
            let right = source(target).unwrap_or_else(|why| panic!("{}: {why}", page.display()));
            if right != code {
                stale.push(format!("{}: {target}", page.display()));
            }
            now += &format!("<!-- code: {target} -->\n```{language}\n{right}```\n{after}");
            shown += 1;
        }
        if std::env::var_os("FL_UPDATE").is_some() && now != text {
            fs::write(root().join(&page), now).unwrap();
            stale.clear();
        }
    }
    assert!(shown > 20);
    assert!(
        stale.is_empty(),
        "{stale:#?}; update with: FL_UPDATE=1 cargo test -p fl-cli --test program shown_code"
    );
}

/// Shown commands print what stands below them: of each shown line, the pieces between `..`, in
/// this order. Times differ. A page that shows the first and the last line shows those between.
#[test]
fn shown_commands_print_what_is_shown() {
    let program = Path::new(env!("CARGO_BIN_EXE_fl")).parent().unwrap();
    let path = format!(
        "{}:{}",
        program.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let pages = all(".md").into_iter();
    let pages = pages.filter(|page| page.starts_with(BOOK) || page == Path::new("README.md"));
    let mut commands = 0;
    for page in pages {
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(root().join(BOOK).join("files")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let text = read(&page);
        for block in blocks(&text, "console") {
            for shown in format!("\n{block}").split("\n$ ").skip(1) {
                let (command, lines) = shown.split_once('\n').unwrap_or((shown, ""));
                let mut sh = Command::new("sh");
                let sh = sh.args(["-c", command]).current_dir(dir.path());
                sh.env("XDG_DATA_HOME", user_dir()).env("PATH", &path);
                let done = sh.env("NO_COLOR", "1").output().unwrap();
                let said = [done.stdout, done.stderr].map(|t| String::from_utf8(t).unwrap());
                let shows = |said: &str| lines.lines().any(|shown| is_like(said, shown));
                let mut ends = said[0]
                    .lines()
                    .next()
                    .into_iter()
                    .chain(said[0].lines().last());
                let whole = !said[0].is_empty() && ends.all(shows);
                for line in said[0].lines().filter(|line| whole && !line.is_empty()) {
                    assert!(
                        shows(line),
                        "{}: `{command}` prints\n{line}\nand the page shows\n{lines}",
                        page.display()
                    );
                }
                let said = said.concat();
                for line in lines.lines().filter(|line| !line.is_empty()) {
                    let found = said.lines().any(|said| is_like(said, line));
                    assert!(
                        found,
                        "{}: `{command}` does not print\n{line}\nbut\n{said}",
                        page.display()
                    );
                }
                commands += 1;
            }
        }
    }
    assert!(commands > 10, "only {commands} commands");
}

/// Has `said` the pieces of `shown`? A number of seconds may be another.
fn is_like(said: &str, shown: &str) -> bool {
    let plain = |line: &str| match line.rsplit_once(" steps, ") {
        Some((front, _)) => format!("{front} steps"),
        None => line.to_string(),
    };
    let (said, shown) = (plain(said), plain(shown));
    let mut rest = &*said;
    shown.split("..").all(|piece| {
        let at = rest.find(piece.trim_end());
        rest = at.map_or(rest, |at| &rest[at + piece.trim_end().len()..]);
        at.is_some()
    })
}

#[test]
fn the_readme_shows_the_spec_that_is_shipped() {
    let readme = read("README.md");
    let spec = read(Path::new(BOOK).join("files/hello.yaml"));
    assert_eq!(blocks(&readme, "yaml"), [&*spec]);
    // the commands that install cannot be tried here, but what they name is there
    let install = blocks(&readme, "sh").concat();
    for (command, file) in [
        (
            "cargo run --release --locked -- run specs/book/src/files/hello.yaml",
            "specs/book/src/files/hello.yaml",
        ),
        ("cargo test --workspace --locked", "Cargo.toml"),
        ("pip install ./hosts/python", "hosts/python/pyproject.toml"),
        (
            "cargo install --locked --path hosts/cli",
            "hosts/cli/Cargo.toml",
        ),
    ] {
        assert!(install.contains(command), "{install}");
        assert!(root().join(file).exists());
    }
}

/// The numbers of the front page stand on the pages that they link to.
#[test]
fn the_readme_has_the_numbers_of_its_pages() {
    let readme = read("README.md");
    let rows = readme.lines().filter(|l| l.starts_with("| ["));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, what, ours, theirs, _] = cells[..] else {
            panic!("{row}");
        };
        let page = read(&links(what)[0]);
        let ours = ours.split(" [").next().unwrap();
        for number in [ours, theirs] {
            assert!(page.contains(number), "{row}: {number} is not on its page");
            seen += 1;
        }
    }
    assert!(seen > 10);
    // and every method that it names has its page
    let methods = read(Path::new(BOOK).join("methods.md"));
    let (_, named) = readme.split_once("papers' numbers**: ").unwrap();
    let (named, _) = named.split_once(';').unwrap();
    let named: Vec<&str> = named.split_whitespace().collect();
    for method in named.join(" ").split(", ") {
        assert!(methods.contains(method), "{method}");
    }
}

/// The messages that the book explains are the program's.
#[test]
fn explained_messages_are_in_the_sources() {
    let mut sources: Vec<String> = Vec::new();
    for ending in [".rs", ".py"] {
        let code = |path: &PathBuf| !path.components().any(|c| c.as_os_str() == "tests");
        sources.extend(all(ending).iter().filter(|p| code(p)).map(read));
    }
    // as they are written: without line breaks, and with `{name}` for what differs
    let sources: String = sources.concat().replace("\\\"", "\"");
    let page = read(Path::new(BOOK).join("troubleshooting.md")).replace('\n', " ");
    let mut messages = 0;
    for message in page.split("**`").skip(1) {
        let Some((message, _)) = message.split_once("`**") else {
            continue;
        };
        for piece in message.split("..") {
            let piece = piece.trim_matches(|c: char| !c.is_alphanumeric());
            // a name in the middle is filled in
            let long = piece.split(" is logits").next().unwrap();
            if long.len() > 12 && !long.starts_with("Exit Code") {
                assert!(
                    sources.contains(long),
                    "`{message}`: no source says `{long}`"
                );
                messages += 1;
            }
        }
    }
    assert!(messages > 20, "{messages} pieces");
}

/// The page with addresses has each set that the program looks for on the disk.
#[test]
fn every_set_that_needs_files_has_an_address() {
    let listed = crate::common::json(&root(), &["data", "list", "--json"]);
    let page = read(Path::new(BOOK).join("get-data.md"));
    let mut sets = 0;
    for set in listed["sets"].as_array().unwrap() {
        let name = set["name"].as_str().unwrap();
        if !set["files"].as_array().unwrap().is_empty() {
            let row = page
                .lines()
                .find(|line| line.contains(&format!("`{name}`")));
            assert!(row.is_some_and(|row| row.contains("<https://")), "{name}");
            sets += 1;
        }
    }
    assert!(sets > 5);
}

/// The pictures of the tutorials are those that their study makes; `FL_UPDATE` writes them.
#[test]
fn exact_pictures_of_tutorials_are_what_their_study_draws() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["points.yaml", "tutorials.yaml"] {
        let source = root().join(BOOK).join("files").join(file);
        fs::copy(source, dir.path().join(file)).unwrap();
    }
    crate::common::out(dir.path(), &["study", "tutorials.yaml"]);
    let pages = fs::read_dir(root().join(BOOK).join("tutorials")).unwrap();
    let (mut pictures, mut exercises) = (0, 0);
    for page in pages.map(|page| page.unwrap().path()) {
        let (text, name) = (read(&page), page.file_stem().unwrap().display().to_string());
        exercises += text.matches("**Exercise.**").count();
        let picture = format!("images/tutorial-{name}.svg");
        if !text.contains(&picture) {
            continue;
        }
        let made = fs::read_dir(dir.path().join("runs/studies")).unwrap();
        let mut made = made.map(|file| file.unwrap().path());
        let start = format!("tutorials-{name}-");
        let made = made.find(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&start) && name.ends_with(".svg")
        });
        let made = fs::read_to_string(made.expect(&start)).unwrap();
        let kept = root().join(BOOK).join(&picture);
        if std::env::var_os("FL_UPDATE").is_some() {
            fs::write(&kept, &made).unwrap();
        }
        assert!(
            fs::read_to_string(&kept).unwrap() == made,
            "{picture} is not what fl draws"
        );
        pictures += 1;
    }
    assert!(
        pictures > 9 && exercises > 9,
        "{pictures} pictures, {exercises} exercises"
    );
}
