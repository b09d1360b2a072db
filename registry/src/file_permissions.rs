//! Which other users could have put something else where a file is found.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// More links than this go in a circle.
const LINKS: usize = 40;

/// Why a file or a folder is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Every user, or a group that is not the user's own, may write to it, or to a folder on the
    /// way to it. Other permissions mend that.
    #[error("{0}; chmod go-w")]
    Writable(String),
    /// Another user owns it, or a folder on the way to it, or the system does not say who does.
    #[error("{0}")]
    Other(String),
}

impl From<std::io::Error> for Untrusted {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// Fails if another user than the one who runs this, or root, could have written the file or the
/// folder at `path`, or could have put it there. `about` is what the system says of it.
///
/// # Errors
/// Says who could have, and where.
pub fn trusted(path: &Path, about: &Metadata) -> Result<(), Untrusted> {
    if let Some(who) = writers(about) {
        return Err(Untrusted::Writable(format!(
            "{who} may write to it, and could change it"
        )));
    }
    if !ours(about) {
        return Err(Untrusted::Other(format!(
            "it belongs to user {}, who could change it",
            about.uid()
        )));
    }
    on_the_way(path, path)
}

/// As [`trusted`], of a path where a file or a folder is to be made: fails if another user could
/// put something else there, or could replace what is made.
///
/// # Errors
/// Says who could, and where.
pub fn trusted_place(path: &Path) -> Result<(), Untrusted> {
    let whole = std::path::absolute(path)?;
    let there = whole.ancestors().find(|at| at.symlink_metadata().is_ok());
    let there = there.unwrap_or(Path::new("/"));
    on_the_way(there, path)?;
    keeps_entries(there, path).map(drop)
}

fn ours(about: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&about.uid())
}

/// Checks every folder in which a name is looked up on the way `to`, part of the way to `path`.
fn on_the_way(to: &Path, path: &Path) -> Result<(), Untrusted> {
    for (folder, name) in looked_up(to)? {
        if keeps_entries(&folder, path)?.is_none() {
            continue;
        }
        let entry = folder.join(name);
        let owner = entry.symlink_metadata()?;
        if !ours(&owner) {
            return Err(Untrusted::Other(format!(
                "{}, on the way to it, belongs to user {}, who could change it",
                entry.display(),
                owner.uid()
            )));
        }
    }
    Ok(())
}

/// Fails if another user could replace what somebody else has in this folder, on the way to
/// `path`. Returns who else may add to it.
fn keeps_entries(folder: &Path, path: &Path) -> Result<Option<String>, Untrusted> {
    let about = folder.metadata()?;
    if !ours(&about) {
        return Err(Untrusted::Other(format!(
            "its folder{} belongs to user {}, who could replace it",
            named(folder, path),
            about.uid()
        )));
    }
    match writers(&about) {
        // in a sticky folder, such as /tmp, only its owner can replace a file
        Some(who) if about.permissions().mode() & 0o1000 == 0 => Err(Untrusted::Writable(format!(
            "{who} may write to its folder{}, and could replace it",
            named(folder, path)
        ))),
        others => Ok(others),
    }
}

/// Who may write besides its owner. On Linux the group in which the user makes files is trusted:
/// most systems have one for each user.
fn writers(about: &Metadata) -> Option<String> {
    let (mode, group) = (about.permissions().mode(), about.gid());
    let users = || cfg!(target_os = "linux") && group == rustix::process::getegid().as_raw();
    let own = group == 0 || users();
    if mode & 0o002 != 0 {
        Some("every user".into())
    } else if mode & 0o020 != 0 && !own {
        Some(format!("group {group}"))
    } else {
        None
    }
}

/// The folder's name, if it is not the one that the path names.
fn named(folder: &Path, path: &Path) -> String {
    let parent = path.canonicalize().ok();
    if parent.as_deref().and_then(Path::parent) == Some(folder) {
        String::new()
    } else {
        format!(" {}", folder.display())
    }
}

/// Every folder in which a name is looked up on the way to `path`, and that name; links are
/// followed one after the other.
fn looked_up(path: &Path) -> std::io::Result<Vec<(PathBuf, OsString)>> {
    let mut todo: VecDeque<OsString> = VecDeque::new();
    let push = |todo: &mut VecDeque<OsString>, path: &Path| {
        for part in path.components().rev() {
            todo.push_front(part.as_os_str().to_os_string());
        }
    };
    push(&mut todo, &std::path::absolute(path)?);
    let (mut at, mut seen, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(name) = todo.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::Normal(_)) => {
                seen.push((at.clone(), name.clone()));
                let entry = at.join(&name);
                match entry.symlink_metadata()?.is_symlink() {
                    true if links < LINKS => {
                        links += 1;
                        push(&mut todo, &entry.read_link()?);
                    }
                    true => return Err(std::io::Error::other("too many links")),
                    false => at = entry,
                }
            }
            _ => {}
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_that_everybody_may_write_to_is_found_wherever_it_is_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("open/a/b")).unwrap();
        fs::create_dir_all(at("closed")).unwrap();
        fs::write(at("open/a/b/lib.so"), "x").unwrap();
        fs::write(at("closed/lib.so"), "x").unwrap();
        let trusted = |name: &str| {
            let path = at(name);
            trusted(&path, &path.metadata().unwrap()).map_err(|why| why.to_string())
        };
        trusted("open/a/b/lib.so").unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        };
        mode("open", 0o777);
        let error = trusted("open/a/b/lib.so").unwrap_err();
        assert!(error.contains("/open, and could replace it"), "{error}");
        // what a link in such a folder leads to may be fine, but the link is not
        symlink(at("closed/lib.so"), at("open/link.so")).unwrap();
        symlink("open/link.so", at("twice.so")).unwrap();
        for link in ["open/link.so", "twice.so"] {
            assert!(trusted(link).unwrap_err().contains("and could replace it"));
        }
        trusted("closed/../closed/lib.so").unwrap();
        // what is not there yet can be replaced as soon as it is made
        let place = |name: &str| trusted_place(&at(name)).map_err(|why| why.to_string());
        for new in ["open", "open/new", "open/new/b", "open/a/new"] {
            let error = place(new).unwrap_err();
            assert!(
                error.contains("every user may write to its folder"),
                "{error}"
            );
        }
        place("closed/new/b").unwrap();
        // sticky, as /tmp is: its entries are ours
        mode("open", 0o1777);
        trusted("twice.so").unwrap();
        place("open/new/b").unwrap();
        // the user's own group is as good as the user, another is not
        mode("closed", 0o775);
        trusted("closed/lib.so").unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("closed"), None, Some(4321)).unwrap();
            let error = trusted("closed/lib.so").unwrap_err();
            assert!(error.contains("group 4321 may write"), "{error}");
        }
        mode("closed", 0o755);
        // the owner of a folder can replace what is in it
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("closed"), Some(4321), None).unwrap();
            let error = trusted("closed/lib.so").unwrap_err();
            assert!(error.contains("its folder belongs to user 4321"), "{error}");
        }
        symlink("circle", at("circle")).unwrap();
        assert!(looked_up(&at("circle")).is_err());
    }
}
