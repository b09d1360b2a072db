//! Checks that NVRTC 12.1 compiles the kernels to the PTX beside them.

use crate::cuda::KERNELS;
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/kernels")
}

/// Returns the names of files with this ending, in order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path());
    let mut all: Vec<PathBuf> = all
        .filter(|f| f.extension().is_some_and(|e| e == ending))
        .collect();
    all.sort();
    all
}

/// Works without NVRTC too: it finds a kernel that was changed and not compiled again.
#[test]
fn the_kernels_are_those_that_were_compiled() {
    let mut listed = String::new();
    for file in [files(&folder(), "cu"), files(&folder(), "cuh")].concat() {
        let hash = Sha256::digest(std::fs::read(&file).unwrap());
        let hash: String = hash.iter().map(|b| format!("{b:02x}")).collect();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        listed += &format!("{hash}  {name}\n");
    }
    let kept = std::fs::read_to_string(folder().join("sources.sha256")).unwrap();
    assert!(
        kept == listed,
        "run src/cuda/kernels/compile.py: a kernel has changed"
    );
    let bytes: usize = KERNELS.iter().map(|ptx| ptx.len()).sum();
    assert!(bytes <= 70_000, "{bytes} bytes of kernels in every program");
}

#[test]
fn exact_ptx_is_made_again_by_nvrtc() {
    let Some(python) = python() else {
        eprintln!("skipped: NVRTC 12.1 cannot be installed here, so the PTX is not made again");
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let tool = folder().join("compile.py");
    let done = Command::new(python)
        .arg(tool)
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let made = files(out.path(), "gz");
    assert_eq!(made.len(), KERNELS.len());
    // in the order of their names, as `KERNELS`
    for (file, kept) in made.iter().zip(KERNELS) {
        let packed = std::fs::read(file).unwrap();
        let [made, kept] =
            [&packed, kept].map(|packed| std::io::read_to_string(GzDecoder::new(packed)).unwrap());
        assert!(
            made.len() > 1000 && made == kept,
            "{} is another",
            file.display()
        );
    }
}

/// Returns a Python with NVRTC, installed once into its own folder; `None` if there is none.
fn python() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let folder = here.ancestors().nth(3)?.join("nvrtc-12.1");
    let python = folder.join("bin/python");
    let works = || {
        let tried = Command::new(&python)
            .args(["-c", "import nvidia.cuda_nvrtc"])
            .output();
        tried.is_ok_and(|done| done.status.success())
    };
    if works() {
        return Some(python);
    }
    let run = |program: &Path, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).output();
        done.is_ok_and(|done| done.status.success())
    };
    let name = folder.to_str()?;
    let package = "nvidia-cuda-nvrtc-cu12==12.1.105";
    let install = [
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--retries",
        "0",
        package,
    ];
    let installed = run(Path::new("python3"), &["-m", "venv", name]) && run(&python, &install);
    (installed && works()).then_some(python)
}
