use crate::{Isolate, Isolation, Library, Trust};
use fl_core::settings::{Reader, Setting, Value, defaults};

/// What a spec, the command line and an index make of a library.
#[test]
fn a_library_that_no_trusted_index_signed_is_isolated_unless_somebody_says_otherwise() {
    let limits = Isolate {
        call_seconds: 5.0,
        ..defaults()
    };
    let (on, own) = (Isolation::On(defaults()), Isolation::On(limits.clone()));
    let off = &Isolation::Off;
    for (spec, asked, trust, due) in [
        (None, None, Trust::Any, Some(defaults())),
        (None, None, Trust::Published, None),
        (None, None, Trust::Reviewed, None),
        (None, Some(off), Trust::Any, None),
        (None, Some(&on), Trust::Reviewed, Some(defaults())),
        (Some(off), None, Trust::Any, None),
        (Some(off), Some(&on), Trust::Any, Some(defaults())),
        (Some(&own), None, Trust::Reviewed, Some(limits.clone())),
        (Some(&own), Some(off), Trust::Any, Some(limits.clone())),
        (Some(&own), Some(&on), Trust::Any, Some(limits)),
    ] {
        let library = Library {
            isolate: spec.cloned(),
            ..Library::at("lib.so")
        };
        let found = library.isolation(asked, &trust, true);
        assert_eq!(found, due, "{spec:?} {asked:?} {trust}");
        // a program that cannot begin such processes loads what nobody asked to isolate
        let found = library.isolation(asked, &trust, false);
        let wanted = [spec, asked].into_iter().flatten();
        let wanted = wanted.into_iter().any(|one| one != off);
        assert_eq!(found, due.filter(|_| wanted), "{spec:?} {asked:?} {trust}");
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
