use super::call::{Answer, Call};
use super::describe;
use super::part_handle::{Functions, Table};
use crate::caller::Means;
use crate::raw::*;
use fl_roles::settings::{Reader, Step, Value};
use std::ffi::c_void;

/// The functions of this program's own table.
fn functions() -> Functions {
    Table::of(crate::library()).unwrap()
}

/// What the host makes of a call in which a library does `f`.
fn outcome(f: impl FnOnce(&FlHost)) -> Answer {
    let (_, answer) = Call::new("a part", Means::default()).run(|host| {
        f(host);
        FL_OK
    });
    answer
}

fn room(host: &FlHost, name: &str, dtype: u32, shape: &[usize]) -> *mut c_void {
    let f = host.tensor.unwrap();
    let (n, name) = (shape.len() as u32, FlText::of(name));
    // SAFETY: a call that is running, and a shape of `shape.len()` numbers.
    unsafe { f(host.context, name, dtype, n, shape.as_ptr()) }
}

#[test]
fn answers_stand_in_memory_of_the_host() {
    let answer = outcome(|host| {
        let all = [
            ("a", FL_F32, 4),
            ("b", FL_F64, 8),
            ("c", FL_U32, 4),
            ("d", FL_U8, 1),
            ("e", FL_I64, 8),
        ];
        for (name, dtype, size) in all {
            let data = room(host, name, dtype, &[3]).cast::<u8>();
            // SAFETY: three numbers of this size.
            unsafe { data.add(2 * size).write(1) };
        }
        assert!(!room(host, "none", FL_F32, &[0, 5]).is_null());
    });
    assert_eq!(answer.misuse, None);
    let names: Vec<_> = answer.tensors.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "none"]);
}

#[test]
fn misuse_is_named() {
    type Wrong = fn(&FlHost);
    let all: [(Wrong, &str); 8] = [
        (|h| _ = room(h, "w", 9, &[1]), "the type 9 is unknown"),
        (
            |h| _ = room(h, "w", FL_U8, &[1, 1]),
            "bytes have 1 dimension",
        ),
        (|h| _ = room(h, "w", FL_F32, &[1; 17]), "17 dimensions"),
        (|h| _ = room(h, "w", FL_F64, &[1 << 40]), "too large"),
        (
            |h| _ = room(h, "a\u{1b}", FL_F32, &[1]),
            "is called \"a\\u{1b}\"",
        ),
        (
            |h| {
                room(h, "w", FL_F32, &[1]);
                room(h, "w", FL_F32, &[1]);
            },
            "given twice",
        ),
        (
            // SAFETY: a call that is running; the part is never used.
            |h| unsafe {
                let part = std::ptr::dangling_mut::<u64>().cast();
                h.part.unwrap()(h.context, part);
                h.part.unwrap()(h.context, part);
            },
            "same part twice",
        ),
        (
            // SAFETY: a call that is running, and room for a number.
            |h| unsafe { h.fill_uniform.unwrap()(h.context, &mut 0.0, 1) },
            "random numbers in a call that has none",
        ),
    ];
    for (wrong, says) in all {
        let misuse = outcome(wrong).misuse.unwrap_or_default();
        assert!(misuse.contains(says), "{misuse}, not {says}");
    }
}

#[test]
fn errors_do_not_steer_the_terminal() {
    let answer = outcome(|host| {
        let text = format!("red \u{1b}[31m\r{}", "x".repeat(5000));
        // SAFETY: a call that is running.
        unsafe { host.fail.unwrap()(host.context, FlText::EMPTY, FlText::of(&text)) };
    });
    let (_, text) = answer.failure.unwrap();
    assert!(text.starts_with("red \\u{1b}[31m\\rxxx"), "{text}");
    assert!(text.len() < 2100 && text.ends_with("bytes in all)"));
}

#[test]
fn keys_of_a_later_description_are_ignored() {
    let text = r#"{"later": 1, "messages": [{"kind": "test-later", "doc": "c", "later": [], "tensors":
        [{"name": "w", "type": "f32", "shape": "2", "later": {}}]}],
        "parts": [{"role": "accountant", "name": "a", "doc": "b", "later": "x"}]}"#;
    let parts = describe::read(text, "here", functions()).unwrap();
    assert_eq!(parts[0].name, "a");
    assert!(fl_roles::message::message_type("test-later").is_some());
}

#[test]
fn descriptions_are_held_to_their_own_schemas() {
    let with = |settings: &str| {
        let text = format!(
            r#"{{"parts": [{{"role": "accountant", "name": "a", "doc": "b", "settings": [{settings}]}}]}}"#
        );
        describe::read(&text, "here", functions())
            .map(|mut parts| parts.remove(0).about.fields)
            .map_err(|e| format!("{e:#}"))
    };
    let setting = |schema: &str| {
        with(&format!(
            r#"{{"name": "x", "doc": "d", "schema": {schema}}}"#
        ))
    };
    let fields = setting(r#"{"type": "number", "default": 0.5, "maximum": 1}"#).unwrap();
    for (schema, says) in [
        (
            r#"{"type": "number", "default": 2, "maximum": 1}"#,
            "default of setting `x` must be at most 1",
        ),
        (
            r#"{"type": "number", "default": "a"}"#,
            "default of setting `x` must be a number",
        ),
        (
            r#"{"type": "number", "maximum": "1"}"#,
            "setting `x`: `maximum` must be a number",
        ),
        (
            r#"{"enum": ["a", "b"], "default": "c"}"#,
            "must be one of a, b",
        ),
    ] {
        let error = setting(schema).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let many: Vec<_> = (0..1001)
        .map(|i| format!(r#"{{"name": "x{i}", "doc": "d"}}"#))
        .collect();
    assert!(with(&many.join(",")).unwrap_err().contains("1001 settings"));

    let check = |text: &str| {
        let mut reader = Reader::default();
        let value: Value = serde_yaml::from_str(text).unwrap();
        let read = describe::check(&fields, &value, &mut reader);
        (read, reader.mistakes)
    };
    let filled: Value = serde_yaml::from_str("{x: 0.5}").unwrap();
    assert_eq!(check("{}"), (Some(filled), Vec::new()));
    let (read, mistakes) = check("{x: 3, y: 1}");
    assert_eq!((read, mistakes.len()), (None, 2));
    assert_eq!(mistakes[0].path, [Step::Key("x".into())]);

    // what is in a list is checked one by one
    let list = r#"{"type": "array", "items": {"type": "number", "minimum": 0}}"#;
    let fields = setting(list).unwrap();
    let mut reader = Reader::default();
    let value: Value = serde_yaml::from_str("{x: [1, -1, a]}").unwrap();
    assert_eq!(describe::check(&fields, &value, &mut reader), None);
    let wrong: Vec<String> = reader.mistakes.iter().map(ToString::to_string).collect();
    let wanted = [
        "x[1]: must be at least 0, got -1",
        "x[2]: must be a number, got `a`",
    ];
    assert_eq!(wrong, wanted);
}

#[test]
fn a_part_may_say_its_number() {
    let text = r#"{"parts": [{"role": "accountant", "name": "a", "doc": "b", "index": 7}]}"#;
    assert_eq!(
        describe::read(text, "here", functions()).unwrap()[0].index,
        Some(7)
    );
}
