//! Unpacks a wheel: a zip archive that somebody else made.

use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Component, Path};

/// The most files of a wheel.
const MOST_FILES: usize = 10_000;
/// The most bytes of all its files.
const MOST_BYTES: u64 = 1 << 30;

/// Unpacks a wheel into an empty folder.
///
/// # Errors
/// When it is no wheel, would write elsewhere, or is too large. The folder then has a part of it.
pub(super) fn unpack(bytes: &[u8], to: &Path) -> anyhow::Result<()> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).context("it is no wheel")?;
    ensure!(
        archive.len() <= MOST_FILES,
        "it has more than {MOST_FILES} files"
    );
    let (mut seen, mut left) = (BTreeSet::new(), MOST_BYTES);
    for at in 0..archive.len() {
        let file = archive.by_index(at).context("it is no wheel")?;
        let name = file.name().context("it is no wheel")?.into_owned();
        let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
        let inside = Path::new(&name).components().all(plain) && !name.contains(['\\', ':', '\0']);
        ensure!(
            inside && !name.is_empty(),
            "its file {name:?} would be written elsewhere"
        );
        // systems differ in whether these are one file
        ensure!(
            seen.insert(name.to_lowercase()),
            "it has the file {name:?} twice"
        );
        ensure!(!file.is_symlink(), "its file {name:?} is a link");
        ensure!(
            !name.contains("__pycache__") && !name.ends_with(".pyc"),
            "its file {name:?} is bytecode, which Python may run in place of a source"
        );
        let top = name.split('/').next().unwrap_or_default();
        if top.ends_with(".data") {
            bail!("it has files for other folders ({top}), which only pip installs");
        }
        if file.is_dir() {
            continue;
        }
        let path = to.join(&name);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        let mut out = File::options().write(true).create_new(true).open(&path)?;
        let copied = std::io::copy(&mut file.take(left + 1), &mut out);
        let copied = copied.with_context(|| format!("its file {name:?}"))?;
        ensure!(
            copied <= left,
            "its files have more than {MOST_BYTES} bytes"
        );
        left -= copied;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::write::{SimpleFileOptions, ZipWriter};

    fn archive(write: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>)) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        write(&mut zip);
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn an_archive_writes_into_its_folder_only() {
        let dir = tempfile::tempdir().unwrap();
        let plain = SimpleFileOptions::default();
        let refused = |bytes: &[u8], says: &str| {
            let to = tempfile::tempdir_in(dir.path()).unwrap();
            let error = format!("{:#}", unpack(bytes, to.path()).unwrap_err());
            assert!(error.contains(says), "{error}");
        };
        for name in [
            "../out.py",
            "/out.py",
            "a/../../out.py",
            "..\\out.py",
            "C:out.py",
        ] {
            let bytes = archive(|zip| zip.start_file(name, plain).unwrap());
            refused(&bytes, "would be written elsewhere");
        }
        let link = archive(|zip| zip.add_symlink("a.py", "/etc/passwd", plain).unwrap());
        refused(&link, "is a link");
        let twice = archive(|zip| {
            zip.start_file("a.py", plain).unwrap();
            zip.start_file("A.py", plain).unwrap();
        });
        refused(&twice, "twice");
        let scripts = archive(|zip| zip.start_file("a-1.data/scripts/ls", plain).unwrap());
        refused(&scripts, "only pip installs");
        let cached = archive(|zip| zip.start_file("a/__pycache__/b.pyc", plain).unwrap());
        refused(&cached, "is bytecode");
        refused(b"PK\x03\x04 and no more", "no wheel");
        refused(&[], "no wheel");
        let many = archive(|zip| {
            for at in 0..=MOST_FILES {
                zip.start_file(at.to_string(), plain).unwrap();
            }
        });
        refused(&many, "more than 10000 files");
        assert!(!dir.path().join("out.py").exists());
        let fine = archive(|zip| {
            zip.add_directory("a/", plain).unwrap();
            zip.start_file("a/b.py", plain).unwrap();
            zip.write_all(b"x = 1").unwrap();
        });
        unpack(&fine, dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("a/b.py")).unwrap(), b"x = 1");
        // cut off anywhere, it is refused or whole
        for end in 0..fine.len() {
            let to = tempfile::tempdir().unwrap();
            assert!(unpack(&fine[..end], to.path()).is_err(), "{end}");
        }
    }
}
