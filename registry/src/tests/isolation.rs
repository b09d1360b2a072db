use crate::{Isolate, Isolation, Library};
use fl_core::settings::{Reader, Setting, Value, defaults};

/// What a spec and the command line make of a library.
#[test]
fn a_library_is_isolated_unless_the_user_says_otherwise() {
    let limits = Isolate {
        call_seconds: 5.0,
        ..defaults()
    };
    let opened = Isolate {
        sandbox: false,
        reads: vec!["/etc".into()],
        ..limits.clone()
    };
    let open = Isolation::On(opened.clone());
    let (on, own) = (Isolation::On(defaults()), Isolation::On(limits.clone()));
    let off = &Isolation::Off;
    for (spec, asked, due) in [
        (None, None, Some(defaults())),
        (None, Some(off), None),
        (None, Some(&on), Some(defaults())),
        (Some(off), None, None),
        (Some(off), Some(&on), Some(defaults())),
        (Some(&own), None, Some(limits.clone())),
        (Some(&own), Some(off), Some(limits.clone())),
        (Some(&own), Some(&on), Some(limits.clone())),
        // the flag is stronger than what the spec opens
        (Some(&open), Some(off), Some(opened)),
        (Some(&open), Some(&on), Some(limits)),
    ] {
        let library = Library {
            isolate: spec.cloned(),
            ..Library::at("lib.so")
        };
        let found = library.isolation(asked, true);
        assert_eq!(found, due, "{spec:?} {asked:?}");
        // a program that cannot begin such processes loads what nobody asked to isolate
        let found = library.isolation(asked, false);
        let wanted = [spec, asked].into_iter().flatten();
        let wanted = wanted.into_iter().any(|one| one != off);
        assert_eq!(found, due.filter(|_| wanted), "{spec:?} {asked:?}");
    }
}

/// As specs have it, and as the resolved spec of an earlier version has it.
#[test]
fn isolation_is_written_as_it_was_read() {
    for text in [
        "false",
        "{call-seconds: 600.0, memory-gib: null}",
        "{call-seconds: 60.0, memory-gib: 2.0}",
        "{call-seconds: 600.0, memory-gib: null, cpu-seconds: 9, reads: [a], sandbox: false}",
    ] {
        let value: Value = serde_yaml::from_str(text).unwrap();
        let read = Isolation::read(&value, &mut Reader::default()).unwrap();
        assert_eq!(read.write(), value, "{text}");
    }
}
