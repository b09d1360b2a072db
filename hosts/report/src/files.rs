//! Files of a run folder, which may be truncated, damaged or missing.

use anyhow::Context;
use fl_core::Result;
use fl_core::regular_file::{MOST_LINE, MOST_TEXT, open_regular, read_regular};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The most pictures to show.
const PICTURES: usize = 16;
/// The most bytes of a picture.
const PICTURE: u64 = 4 << 20;

/// Fails if there is a device, a pipe or the like in a run folder: no run makes one.
pub(crate) fn all_regular(folder: &Path) -> Result<()> {
    for below in ["", "models", "pictures", "messages"] {
        let there = std::fs::read_dir(folder.join(below));
        for entry in there.into_iter().flatten().flatten() {
            // a link to nothing is a file that is missing
            let about = entry.path().metadata();
            if about.is_ok_and(|about| !about.is_file() && !about.is_dir()) {
                let error = std::io::Error::other("it is no regular file");
                return Err(error).with_context(|| entry.path().display().to_string());
            }
        }
    }
    Ok(())
}

pub(crate) fn whole<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    notices: &mut Vec<String>,
) -> Option<T> {
    let read = read_regular(&folder.join(name), MOST_LINE).map_err(anyhow::Error::from);
    let read = read.and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(|error| notices.push(format!("{name} cannot be read: {error}.")))
        .ok()
}

/// Returns the PNG files of a folder by name; none if there is no folder.
pub(crate) fn pictures(folder: &Path, notices: &mut Vec<String>) -> Vec<(String, Vec<u8>)> {
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = there.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".png")).collect();
    names.sort();
    if names.len() > PICTURES {
        let found = names.len();
        notices.push(format!(
            "pictures has {found} pictures; the first {PICTURES} are shown."
        ));
        names.truncate(PICTURES);
    }
    let mut all = Vec::new();
    for name in names {
        match read_regular(&folder.join(&name), PICTURE) {
            Ok(bytes) if bytes.starts_with(b"\x89PNG\r\n\x1a\n") => all.push((name, bytes)),
            Ok(_) => notices.push(format!("pictures/{name} is no PNG file.")),
            Err(error) => notices.push(format!("pictures/{name} cannot be read: {error}.")),
        }
    }
    all
}

/// Hands over the lines of a file up to the first unreadable one, one at a time.
pub(crate) fn lines<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    notices: &mut Vec<String>,
    take: &mut dyn FnMut(T),
) {
    let file = match open_regular(&folder.join(name)) {
        Ok(file) => file,
        Err(error) => {
            notices.push(format!("{name} cannot be read: {error}."));
            return;
        }
    };
    let long = file.metadata().is_ok_and(|about| about.len() > MOST_TEXT);
    let mut lines = BufReader::new(file.take(MOST_TEXT));
    let mut line = Vec::new();
    for read in 0_usize.. {
        line.clear();
        let found = match lines.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => serde_json::from_slice(&line).map_err(anyhow::Error::from),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(found) => take(found),
            Err(_) if long => {
                notices.push(format!(
                    "{name} is longer than 256 MiB; only its first {read} lines are shown."
                ));
                break;
            }
            Err(_) if !line.ends_with(b"\n") => {
                notices.push(format!(
                    "{name} is cut short: its last line is not whole, and is left out."
                ));
                break;
            }
            Err(error) => {
                let at = read + 1;
                notices.push(format!("line {at} of {name} cannot be read ({error}); it and what follows are left out."));
                break;
            }
        }
    }
}
