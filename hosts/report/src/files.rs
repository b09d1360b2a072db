//! Files of a run folder, which may be cut short, damaged or not there.

use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Of each file, at most so many bytes are read.
const MOST: u64 = 256 << 20;

pub(crate) fn text_of(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn whole<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    notices: &mut Vec<String>,
) -> Option<T> {
    let read = text_of(&folder.join(name)).map_err(anyhow::Error::from);
    let read = read.and_then(|text| Ok(serde_json::from_str(&text)?));
    read.map_err(|error| notices.push(format!("{name} cannot be read: {error}.")))
        .ok()
}

/// The lines of a file up to the first that cannot be read.
pub(crate) fn lines<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    notices: &mut Vec<String>,
) -> Vec<T> {
    let mut all = Vec::new();
    let file = match File::open(folder.join(name)) {
        Ok(file) => file,
        Err(error) => {
            notices.push(format!("{name} cannot be read: {error}."));
            return all;
        }
    };
    let long = file.metadata().is_ok_and(|about| about.len() > MOST);
    let mut lines = BufReader::new(file.take(MOST));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines
            .read_until(b'\n', &mut line)
            .map_err(anyhow::Error::from);
        let found = match read {
            Ok(0) => break,
            read => read.and_then(|_| Ok(serde_json::from_slice(&line)?)),
        };
        match found {
            Ok(found) => all.push(found),
            Err(_) if long || !line.ends_with(b"\n") => {
                let read = all.len();
                notices.push(match long {
                    true => format!(
                        "{name} is longer than 256 MiB; only its first {read} lines are shown."
                    ),
                    false => {
                        format!("{name} is cut short: its last line is not whole, and is left out.")
                    }
                });
                break;
            }
            Err(error) => {
                let at = all.len() + 1;
                notices.push(format!("line {at} of {name} cannot be read ({error}); it and what follows are left out."));
                break;
            }
        }
    }
    all
}
