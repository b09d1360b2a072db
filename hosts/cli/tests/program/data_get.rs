//! `fl data get`, from a server on this machine.

use crate::common::{fails, fl, flat, json, out};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

/// Answers one request for a path with its bytes.
fn answer(mut client: TcpStream, files: &HashMap<String, Vec<u8>>) -> std::io::Result<()> {
    let mut head = String::new();
    let mut lines = BufReader::new(client.try_clone()?);
    while lines.read_line(&mut head)? > 2 {}
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match files.get(path) {
        Some(body) => ("200 OK", &body[..]),
        None => ("404 Not Found", &b"gone"[..]),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    client.write_all(body)
}

/// Serves these files to whoever asks, until the test's process ends; gives the address.
fn serve(files: &[(&str, &[u8])]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let files = files
        .iter()
        .map(|(path, body)| ((*path).to_string(), body.to_vec()));
    let files: HashMap<String, Vec<u8>> = files.collect();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // a client that reads no further is none of ours
            let _ = answer(client, &files);
        }
    });
    format!("http://{address}/here")
}

fn curl() -> bool {
    let found = Command::new("curl").arg("--version").output();
    let found = found.is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: there is no `curl` here");
    }
    found
}

/// All files below a folder.
fn files_in(folder: &Path) -> Vec<String> {
    let Ok(all) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut all: Vec<String> = all.map(|entry| name(entry.unwrap())).collect();
    all.sort();
    all
}

#[test]
fn another_file_is_refused_and_leaves_nothing_behind() {
    if !curl() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data/adult");
    let server = serve(&[
        ("/here/adult.data", b"hello"),
        ("/big/adult.data", &[b'1'; 4_000_000]),
    ]);
    let get = |from: &str| {
        let args = [
            "data",
            "get",
            "adult-raw",
            "--data-dir",
            "data",
            "--from",
            from,
        ];
        let (code, said) = fails(dir.path(), &args);
        assert_eq!(files_in(&folder), [""; 0], "{said}");
        (code, flat(&said))
    };
    let (code, said) = get(&server);
    assert_eq!(code, 1, "{said}");
    let found = "it has 5 bytes and the SHA-256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let due = "`adult.data` has 3974305 bytes and the SHA-256 5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d";
    assert!(said.contains(found) && said.contains(due), "{said}");
    assert!(
        said.contains(&format!("fetching {server}/adult.data")),
        "{said}"
    );
    let (_, said) = get(&server.replace("/here", "/big"));
    assert!(
        said.contains("it has more than the 3974305 bytes"),
        "{said}"
    );
    let (_, said) = get(&server.replace("/here", "/gone"));
    assert!(
        said.contains("404") && said.contains("adult.data is not there"),
        "{said}"
    );
    assert!(!said.contains("writing"), "nothing was: {said}");
    // a server that is not there, and what is no address of a server
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(get(&format!("http://{closed}")).0, 1);
    let (_, said) = get(&format!("file://{}", dir.path().display()));
    assert!(said.contains("rotocol"), "{said}");
}

/// What would be fetched is known before anything is.
#[test]
fn address_bytes_and_hash_are_shown_before_the_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let address = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data";
    let hash = "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d";
    let listed = flat(&out(dir.path(), &["data", "list", "--data-dir", "."]));
    let shown = flat(&out(dir.path(), &["inspect", "adult-raw"]));
    for said in [&listed, &shown] {
        let said = said.replace(' ', "");
        assert!(said.contains("`fldatagetadult-raw`"), "{said}");
        assert!(said.contains(address) && said.contains(hash), "{said}");
        assert!(said.contains("3974305bytesunpacked"), "{said}");
    }
    let sets = json(dir.path(), &["data", "list", "--json", "--data-dir", "."]);
    let file = |name: &str| {
        let sets = sets["sets"].as_array().unwrap();
        sets.iter().find(|set| set["name"] == name).unwrap()["files"][0].clone()
    };
    let adult = file("adult-raw");
    assert_eq!(adult["address"], address);
    assert_eq!(
        (&adult["bytes"], &adult["sha256"]),
        (&3_974_305.into(), &hash.into())
    );
    assert!(file("cifar10")["address"].is_null());
}

#[test]
fn a_file_that_is_there_is_checked_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("adult/adult.data");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "mine").unwrap();
    let (code, said) = fails(dir.path(), &["data", "get", "adult-raw", "--data-dir", "."]);
    let said = flat(&said);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("is there and is another file; move it away"),
        "{said}"
    );
    assert!(
        said.contains("it has 4 bytes") && said.contains("has 3974305 bytes"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn an_error_about_a_missing_file_names_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let spec = crate::common::quick("fedavg");
    let said = |set: &str| {
        let set = format!("data.set={set}");
        let args = ["run", &spec, "--data-dir", ".", "--set", &set];
        flat(&fails(dir.path(), &args).1)
    };
    let mnist = said("mnist");
    assert!(
        mnist.contains("`fl data get mnist` fetches it. Or get MNIST"),
        "{mnist}"
    );
    let cifar = said("cifar10");
    assert!(
        !cifar.contains("fl data get") && cifar.contains("Get CIFAR-10"),
        "{cifar}"
    );
}

#[test]
fn a_set_without_an_address_is_refused_with_those_that_have_one() {
    let dir = tempfile::tempdir().unwrap();
    for (name, why) in [
        (
            "mnits",
            "did you mean `mnist`? these can be fetched: adult-raw, fashion-mnist, mnist",
        ),
        ("blobs", "`blobs` needs no files: fl makes its rows"),
        ("cifar10", "fl knows no address with a hash for `cifar10`"),
    ] {
        let done = fl(dir.path(), &["data", "get", name, "--data-dir", "."]);
        let said = flat(&String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(files_in(dir.path()), [""; 0]);
}

/// A file of the real data, unpacked.
fn real(name: &str) -> Option<Vec<u8>> {
    let dir = std::env::var_os("FL_DATA_DIR")?;
    let packed = fs::read(Path::new(&dir).join(format!("{name}.gz"))).ok()?;
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut content)
        .ok()?;
    Some(content)
}

#[test]
fn exact_the_right_files_are_fetched_once_and_used() {
    let (Some(train), Some(test)) = (real("adult/adult.data"), real("adult/adult.test")) else {
        eprintln!("skipped: there is no Adult in FL_DATA_DIR");
        return;
    };
    if !curl() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&[("/here/adult.data", &train), ("/here/adult.test", &test)]);
    let get = [
        "data",
        "get",
        "adult-raw",
        "--data-dir",
        "data",
        "--from",
        &server,
    ];
    let said = out(dir.path(), &get);
    assert!(said.contains("adult.data: 3974305 bytes"), "{said}");
    assert_eq!(
        files_in(&dir.path().join("data/adult")),
        ["adult.data", "adult.test"]
    );
    assert_eq!(
        fs::read(dir.path().join("data/adult/adult.data")).unwrap(),
        train
    );
    let sets = json(
        dir.path(),
        &["data", "list", "--json", "--data-dir", "data"],
    );
    let there = sets["sets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "adult-raw");
    assert_eq!(there.unwrap()["present"], true);
    let gone = [
        "data",
        "get",
        "adult-raw",
        "--data-dir",
        "data",
        "--from",
        "http://127.0.0.1:9",
    ];
    assert!(out(dir.path(), &gone).contains("adult.test: there already"));
}
