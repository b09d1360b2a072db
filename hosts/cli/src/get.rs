//! `fl data get`: fetches the files of a set, and checks them.

use crate::{DataDir, Done, Failure, print, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use fl_data_kit::{Download, Entry, FileEntry};
use std::io::{ErrorKind, Read, Write};
use std::process::{Command, Stdio};

#[derive(Args)]
pub struct GetArgs {
    /// The set, as `fl data list` names it.
    name: String,
    #[command(flatten)]
    place: DataDir,
    /// Another server with the same files: the address of the folder that they are in.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
}

pub fn get(args: &GetArgs) -> Done {
    let dir = args.place.path();
    let sets = fl_data_kit::list(&dir);
    let set = named(&sets, &args.name)?;
    say(format_args!(
        "{}: {}; licence: {}",
        set.name, set.facts.source, set.facts.licence
    ));
    let mut lines = Vec::new();
    for file in &set.files {
        lines.push(of_file(file, args.from.as_deref())?);
    }
    print(lines.join("\n"))
}

/// Where a file is.
pub fn address(file: &Download) -> String {
    format!("{}/{}", file.folder, file.file)
}

/// What a file must be: `45 bytes unpacked, SHA-256 9f86..`.
pub fn due(file: &Download) -> String {
    format!("{} bytes unpacked, SHA-256 {}", file.bytes, file.sha256)
}

fn named<'s>(sets: &'s [Entry], name: &str) -> std::result::Result<&'s Entry, Failure> {
    let fetched = |set: &&Entry| {
        !set.files.is_empty() && set.files.iter().all(|file| file.download.is_some())
    };
    let can: Vec<&str> = sets.iter().filter(fetched).map(|set| set.name).collect();
    let can = can.join(", ");
    let Some(set) = sets.iter().find(|set| set.name == name) else {
        let names = sets.iter().map(|set| set.name);
        let hint = match fl_core::settings::nearest(name, names) {
            Some(near) => format!("did you mean `{near}`? "),
            None => String::new(),
        };
        return Err(Failure::usage(format!(
            "no data set is called `{name}`; {hint}these can be fetched: {can}"
        )));
    };
    if set.files.is_empty() {
        return Err(Failure::usage(format!(
            "`{name}` needs no files: fl makes its rows"
        )));
    }
    if !fetched(&set) {
        return Err(Failure::usage(format!(
            "fl knows no address with a hash for `{name}`: get {} by hand (`fl data list` says where its files belong); these can be fetched: {can}",
            set.facts.source
        )));
    }
    Ok(set)
}

/// Fetches a file unless it is there; says which.
fn of_file(file: &FileEntry, from: Option<&str>) -> Result<String> {
    let download = file.download.context("a file without an address")?;
    let path = &file.wanted;
    if let Some(there) = &file.found {
        let content = fl_data_kit::archive::read(there)?;
        let right = download.check(&content).with_context(|| {
            format!(
                "{} is there and is another file; move it away, or name another --data-dir",
                there.display()
            )
        });
        return right.map(|()| format!("{}: there already", there.display()));
    }
    let folder = path.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let from = from.unwrap_or(download.folder).trim_end_matches('/');
    let address = format!("{from}/{}", download.file);
    let bytes = download.bytes;
    say(format_args!("fetching {address} ({})", due(&download)));
    let mut failed = None;
    let written = fl_files::write_with(path, |out| {
        let fetched = fetch(&address, &download, out);
        fetched.inspect_err(|why| failed = Some(format!("{why:#}")))
    });
    if let Some(why) = failed {
        bail!("fetching {address}: {why}; {} is not there", path.display());
    }
    written?;
    Ok(format!("{}: {bytes} bytes", path.display()))
}

/// Lets `curl` fetch a file, and writes its content as it arrives.
fn fetch(address: &str, download: &Download, out: &mut dyn Write) -> Result<()> {
    let mut curl = Command::new("curl");
    // a server that hangs must not hang the command
    curl.args(["--fail", "--silent", "--show-error", "--location"])
        .args(["--proto", "=http,https", "--max-redirs", "5"])
        .args(["--connect-timeout", "30"])
        .args(["--speed-limit", "1000", "--speed-time", "60", "--"])
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match curl.spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == ErrorKind::NotFound => bail!(
            "there is no program `curl`, which `fl data get` needs: install it, or fetch the file by hand"
        ),
        Err(why) => return Err(why).context("starting `curl`"),
    };
    let arriving = child.stdout.take().context("curl has an output")?;
    let content = download.unpack(arriving, out);
    // its pipe is closed, so it ends even if it had more to say
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut said);
    }
    let status = child.wait().context("waiting for `curl`")?;
    // 23: curl could not write, since fl stopped reading; then the content tells why
    match status.code() {
        Some(0 | 23) => content,
        _ => bail!("{}", said.trim()),
    }
}
