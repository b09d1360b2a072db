//! A protocol that comes out of a library runs as the linked one does: every quick spec has one
//! digest.

use crate::common::{fl, quick, specs};
use crate::library;
use fl_core::{PartDecl, Role, abi, linked_parts};
use fl_plugins as _;
use fl_registry::Catalogue;
use std::path::Path;

/// The linked parts, with these protocols in place of the linked ones.
fn with_protocols(protocols: Vec<&'static PartDecl>) -> Catalogue {
    let mut parts = linked_parts();
    parts.retain(|part| part.role != Role::Protocol);
    let protocols = protocols.into_iter().filter(|p| p.role == Role::Protocol);
    parts.extend(protocols);
    Catalogue::new(parts).unwrap()
}

/// The digest of a short run of this spec.
fn digest(spec: &str, catalogue: &Catalogue, out: &Path) -> String {
    let document = fl_engine::parse(Path::new(spec)).unwrap();
    let spec = fl_engine::read(&document, catalogue).unwrap();
    let dir = std::env::var("FL_DATA_DIR").unwrap_or_default();
    let data = fl_engine::data(&spec, Path::new(&dir)).unwrap();
    let execution = fl_sim::Execution::default();
    let options = fl_engine::ExecuteOptions::new(dir.into(), Vec::new(), execution);
    let folder = fl_engine::Folder::New(out.into());
    let outcome = fl_engine::execute(&spec, data, folder, options);
    outcome
        .unwrap_or_else(|e| panic!("{}: {e:#}", spec.name))
        .digest
}

#[test]
fn exact_every_quick_spec_has_one_digest_whether_its_protocol_is_loaded() {
    let (linked, loaded) = (
        Catalogue::linked().unwrap(),
        with_protocols(abi::import_linked("here")),
    );
    let dir = tempfile::tempdir().unwrap();
    for spec in specs("quick") {
        let spec = crate::common::shorter(dir.path(), &spec);
        let run = |name: &str, catalogue| digest(&spec, catalogue, &dir.path().join(name));
        let name = Path::new(&spec).file_stem().unwrap().to_string_lossy();
        let here = run(&format!("{name}-linked"), &linked);
        assert_eq!(run(&format!("{name}-loaded"), &loaded), here, "{name}");
    }
}

#[test]
fn a_protocol_that_misbehaves_gets_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let library = library::beside("fl_hostile").display().to_string();
    let error = |how: &str, more: &[&str]| {
        let (spec, protocol) = (
            quick("solo"),
            format!("protocol={{use: misbehaves, how: {how}}}"),
        );
        let run = [
            "run", &spec, "--out", how, "--plugin", &library, "--set", &protocol,
        ];
        let done = fl(dir.path(), &[&run[..], more].concat());
        assert!(!done.status.success(), "{how}");
        String::from_utf8(done.stderr).unwrap()
    };
    let noise = "parts.privacy={use: laplace-params, clip: 1.0, scale: 1.0}";
    let example = library::beside("fl_plugin_example_dynamic")
        .display()
        .to_string();
    for isolate in [&[][..], &["--isolate"][..]] {
        for (how, more, says) in [
            ("panic", &[][..], "it panicked: in lead"),
            ("answer", &[], "it panicked: in answer"),
            ("undeclared", &[], "declares no exchange `another number`"),
            (
                "outlasts",
                &["--threads", "1"],
                "used a part of the program after its call",
            ),
            (
                "hides",
                &["--set", noise, "--plugin", &example],
                "the answer was made without one",
            ),
        ] {
            let said = error(how, &[more, isolate].concat());
            assert!(said.contains(says), "{how} {isolate:?}: {said}");
        }
    }
    #[cfg(target_os = "linux")]
    {
        let plugins = format!("plugins=[{{path: {library:?}, isolate: {{call-seconds: 0.5}}}}]");
        let run = ["run", &quick("solo"), "--out", "stay", "--set", &plugins];
        let protocol = ["--set", "protocol={use: misbehaves, how: stay}"];
        let done = fl(dir.path(), &[&run[..], &protocol].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("took longer than"), "{said}");
    }
}
