//! A protocol in a library that asks for whatever it likes, and what a run makes of it.
#![allow(unsafe_code, reason = "the other side of a C interface")]

use crate::bytes::Bytes;
use crate::host::{Kept, borrowed, host, small, with_input};
use crate::library::act;
use fl_core::abi::import;
use fl_core::abi::raw::*;
use fl_core::settings::Value;
use fl_core::{
    BuildContext, Examples, Inputs, Labels, PartDecl, Parts, Protocol, Role, RunOptions,
    SlotAssignment, Stream, linked_parts,
};
use fl_sim::{Setup, run};
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

static TABLE: FlLibrary = FlLibrary {
    describe: Some(describe),
    create: Some(create),
    call: Some(call),
    drop: Some(drop_part),
    free: Some(free),
    ..FlLibrary::OF_THIS_VERSION
};

/// What the protocol does next.
static SCRIPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

const DESCRIPTION: &str =
    r#"{"parts": [{"role": "protocol", "name": "asks", "doc": "It asks for anything."}]}"#;

const SLOT: &str = r#"{"name": "model", "role": "trainer", "optional": true, "doc": "One.", "lasts": false, "server": true}"#;
const EXCHANGE: &str = r#"{"label": "q", "down": "nothing", "up": "scalar", "times": 1, "rows": 0, "voices": 1, "copies": 1, "model": "model"}"#;

static DECLARED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let one = format!(r#"{{"slots": [{SLOT}], "exchanges": [{EXCHANGE}]}}"#);
    let params = one.replace("scalar", "params");
    let unknown = one.replace("scalar", "no-such-kind");
    let none = r#"{"slots": [], "exchanges": []}"#.to_string();
    vec![one.clone(), one.clone(), one, params, unknown, none]
});

/// A part's number, an operation and its text.
type Asked = (u64, u32, String);

/// Requests that a protocol may make, and some that none may.
static ASKS: LazyLock<Vec<Asked>> = LazyLock::new(|| {
    let key = format!("[{}]", ["7"; 32].join(","));
    let round = format!(r#"{{"name": "round 1", "number": 1, "last": true, "key": {key}}}"#);
    let cohort = r#"{"ids": [0, 1], "of": 2, "draw": "everyone"}"#;
    let samples = r#"{"set": 1, "first": 1}"#;
    let own = "{}";
    let mut all: Vec<Asked> = vec![
        (
            0,
            FL_BEGIN_STEP,
            r#"{"name": "round 1", "number": 1, "of": 1}"#.into(),
        ),
        (0, FL_JUDGE_STEP, r#"{"failed": null}"#.into()),
        (
            0,
            FL_JUDGE_STEP,
            r#"{"failed": {"text": "it failed", "problem": null}}"#.into(),
        ),
        (0, FL_FINISH_STEP, r#"{}"#.into()),
        (
            0,
            FL_COLLECT,
            format!(r#"{{"round": {round}, "label": "q", "to": [0, 1], "which": [0, 0]}}"#),
        ),
        (
            0,
            FL_COLLECT,
            format!(r#"{{"round": {round}, "label": "q", "to": [0, 9], "which": [0, 5]}}"#),
        ),
        (
            0,
            FL_RUN,
            format!(
                r#"{{"round": {round}, "label": "q", "cohort": {cohort}, "which": [0, 0], "shown": "params", "forms": true}}"#
            ),
        ),
        (
            0,
            FL_COHORT,
            format!(r#"{{"round": {round}, "label": "q"}}"#),
        ),
        (
            0,
            FL_SELECT,
            format!(
                r#"{{"slot": "model", "round": {round}, "pool": "samples", "samples": {samples}}}"#
            ),
        ),
        (
            0,
            FL_AGGREGATE,
            format!(r#"{{"slot": "model", "round": {round}, "kind": "params", "shown": null}}"#),
        ),
        (
            0,
            FL_RELEASE,
            format!(
                r#"{{"label": "q", "round": {round}, "kind": "params", "cohort": {cohort}, "clip": true}}"#
            ),
        ),
        (
            0,
            FL_AFFORDS,
            format!(r#"{{"slot": "privacy", "kind": "params", "cohort": {cohort}}}"#),
        ),
        (
            0,
            FL_WANTS_RANGE,
            r#"{"slot": "privacy", "kind": "logits"}"#.into(),
        ),
        (
            0,
            FL_EVALUATE,
            format!(r#"{{"slot": "model", "round": {round}}}"#),
        ),
        (
            0,
            FL_EVALUATE_FOR_CLIENTS,
            format!(r#"{{"slot": "model", "round": {round}, "whose": [0, 7]}}"#),
        ),
        (
            0,
            FL_RECORD,
            format!(r#"{{"round": {round}, "name": "n", "value": null}}"#),
        ),
        (
            0,
            FL_RECORD_EACH,
            format!(r#"{{"round": {round}, "name": "n", "each": [1.0, null]}}"#),
        ),
        (
            0,
            FL_KEEP_MODEL,
            r#"{"slot": "model", "name": "../model"}"#.into(),
        ),
        (
            0,
            FL_KEEP_IMAGES,
            format!(r#"{{"name": "images", "samples": {own}}}"#),
        ),
        (0, FL_KEEP_CLIENTS, r#"{"slot": "model"}"#.into()),
        (0, FL_READER, r#"{"slot": "model"}"#.into()),
        (0, FL_READ, r#"{"part": 1, "client": 0}"#.into()),
        (0, FL_WHO, r#"{"slot": "model"}"#.into()),
        (0, FL_WITH_EXAMPLES, r#"{"at_least": 1}"#.into()),
        (0, FL_OWN, r#"{}"#.into()),
        (0, FL_PUBLIC, r#"{}"#.into()),
        (0, FL_INPUTS, r#"{"set": 1}"#.into()),
        (0, FL_LABELS, r#"{"set": 1, "at": 0}"#.into()),
        (0, FL_DRAW_PRIVATE, r#"{"slot": "privacy"}"#.into()),
        (0, FL_NEW_MODEL, r#"{"slot": "model", "index": 0}"#.into()),
        (
            0,
            FL_NEW_MODEL,
            r#"{"slot": "model", "index": 18446744073709551615}"#.into(),
        ),
        (0, FL_SET_MODEL, r#"{"slot": "model", "part": 1}"#.into()),
        (0, FL_PRIVATE, r#"{"slot": "privacy"}"#.into()),
        (
            0,
            FL_RELEASE_STEP,
            r#"{"at": 0, "part": 1, "kind": "params"}"#.into(),
        ),
        (0, FL_DROP, r#"{"part": 1}"#.into()),
        (0, FL_TAKE_SELECTOR, r#"{"slot": "model"}"#.into()),
        (0, FL_PUT_SELECTOR, r#"{"slot": "model", "part": 1}"#.into()),
        (0, FL_STASH, r#"{"name": "s"}"#.into()),
        (0, FL_UNSTASH, r#"{"name": "s"}"#.into()),
        (0, FL_CACHE, r#"{"name": "c", "kind": "params"}"#.into()),
        (0, FL_CACHED, r#"{"name": "c"}"#.into()),
        (
            0,
            FL_CLIP,
            r#"{"slot": "privacy", "kind": "params", "agreed": 1.0}"#.into(),
        ),
        (
            0,
            FL_RELEASE,
            r#"{"slot": "privacy", "kind": "params"}"#.into(),
        ),
        (
            0,
            FL_BEGIN_STEPS,
            r#"{"slot": "privacy", "kind": "params"}"#.into(),
        ),
        (0, FL_DRAW_LOT, r#"{"at": 0}"#.into()),
        (0, FL_END_STEPS, r#"{"slot": "privacy", "part": 1}"#.into()),
        (0, FL_NOTE, r#"{"text": "a note"}"#.into()),
        (0, FL_MEASURE, r#"{"name": "m", "value": 1.0}"#.into()),
        (0, FL_FITTED, r#"{"value": null}"#.into()),
        (0, FL_WARN, r#"{"text": "beware"}"#.into()),
        (0, FL_GENERATOR, r#"{"slot": "model"}"#.into()),
        (0, FL_VALUES, samples.into()),
        (
            0,
            FL_TARGETS,
            format!(r#"{{"samples": {samples}, "labels": 0}}"#),
        ),
        (0, FL_NOTE, r#"{"slot": "model"}"#.into()),
        (0, FL_NOTE, r#"{"do": "note"}"#.into()),
    ];
    // two numbers at least, so that one of them may be dropped
    let model = (0, FL_MODEL, r#"{"slot": "model"}"#.to_string());
    all.extend(std::iter::repeat_n(model, 4));
    let pass = r#""length": {"Steps": 1}, "batch": 1, "loss": "CrossEntropy", "fresh": false, "proximal": null, "gradient_offset": false, "clip": null, "target": "classes""#;
    for (operation, text) in [
        (FL_DESCRIBE, String::new()),
        (FL_SAVE, String::new()),
        (FL_LOAD, String::new()),
        (FL_SAVE_STATE, String::new()),
        (FL_LOAD_STATE, String::new()),
        (FL_PARAMS, String::new()),
        (FL_SET_PARAMS, String::new()),
        (FL_HEAD, String::new()),
        (FL_CLIP, String::new()),
        (FL_DESCEND, r#"{"at": 0, "of": 1}"#.into()),
        (FL_PREDICT, samples.into()),
        (FL_PREDICT, own.into()),
        (FL_VJP, own.into()),
        (
            FL_GRADIENT,
            r#"{"target": "classes", "loss": "CrossEntropy"}"#.into(),
        ),
        (FL_TRAIN, format!(r#"{{{pass}, "set": 1, "first": 1}}"#)),
        (FL_TRAIN, format!("{{{pass}}}")),
    ] {
        all.push((1, operation, text.clone()));
        all.push((2, operation, text));
    }
    all
});

unsafe extern "C" fn describe(_: *const FlHost, json: *mut FlText) -> i32 {
    // SAFETY: the host's place for a text, which stays for ever.
    unsafe { json.write(borrowed(DESCRIPTION.as_bytes())) };
    FL_OK
}

unsafe extern "C" fn free(_: FlText) {}

unsafe extern "C" fn drop_part(_: *mut c_void) {}

unsafe extern "C" fn create(_: u32, _: FlText, _: FlText, host: *const FlHost) -> i32 {
    // SAFETY: the host's own table, during its call; the part is never looked at.
    unsafe {
        let host = &*host;
        host.part.unwrap()(host.context, std::ptr::dangling_mut::<u64>().cast());
    }
    FL_OK
}

unsafe extern "C" fn call(
    _: *mut c_void,
    operation: u32,
    _: *const FlInput,
    host: *const FlHost,
) -> i32 {
    let script = std::mem::take(&mut *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner));
    let mut bytes = Bytes(&script);
    // SAFETY: the host's own table, during its call.
    let code = operate(operation, unsafe { &*host }, &mut bytes);
    *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = bytes.0.to_vec();
    code
}

fn say(host: &FlHost, text: &[u8]) {
    // SAFETY: the host's own function and context, during its call.
    unsafe { host.text.unwrap()(host.context, borrowed(text)) };
}

fn operate(operation: u32, host: &FlHost, bytes: &mut Bytes<'_>) -> i32 {
    match operation {
        FL_DECLARE => {
            if bytes.rarely(16) {
                say(host, small(bytes.some()))
            } else {
                say(host, DECLARED[bytes.of(DECLARED.len())].as_bytes())
            }
            FL_OK
        }
        FL_LEAD | FL_ANSWER => {
            if operation == FL_LEAD && !bytes.rarely(16) {
                ask(host, &ASKS[0], None, bytes);
            }
            for _ in 0..bytes.byte() % 12 {
                let own = bytes.rarely(8).then(|| small(bytes.some()));
                ask(host, &ASKS[bytes.of(ASKS.len())], own, bytes);
            }
            act(host, bytes)
        }
        _ => FL_UNKNOWN,
    }
}

/// Asks the program for this in the middle of a call, by its text or another one.
fn ask(to: &FlHost, what: &Asked, other: Option<&[u8]>, bytes: &mut Bytes<'_>) {
    let Some(call) = to.call else { return };
    let (part, operation, text) = what;
    let text = other.unwrap_or(text.as_bytes());
    // the script goes on in the clients that this asks
    let code = with_input(text, bytes, |input, bytes| {
        let mut kept = Kept::default();
        let sink = host(&mut kept, bytes);
        *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = bytes.0.to_vec();
        // SAFETY: the program's own function and context, during its call, and structures that
        // live through this one.
        unsafe { call(to.context, *part, *operation, input, &raw const sink) }
    });
    assert!(
        (FL_OK..=FL_DIVERGED).contains(&code) && code != FL_PANIC,
        "code {code}"
    );
    let left = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner).len();
    bytes.take(bytes.0.len().saturating_sub(left));
}

static PART: LazyLock<&'static PartDecl> = LazyLock::new(|| {
    // SAFETY: a static table.
    let parts = unsafe { import(&raw const TABLE, "a library") };
    parts.expect("a description")[0]
});

/// A run of a protocol that asks for anything ends, with an outcome or an error.
pub(crate) fn protocols(data: &[u8]) {
    *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = data.to_vec();
    let inputs = Inputs::Dense {
        shape: vec![2],
        data: (0..12).map(|i| i as f32).collect(),
    };
    let labels = Labels::Classes {
        of: vec![0, 1, 2, 0, 1, 2],
        classes: 3,
    };
    let all = Examples::all(Arc::new(inputs), Arc::new(labels)).expect("examples");
    let nothing = Value::Mapping(serde_yaml::Mapping::new());
    let make = BuildContext {
        task: all.task(),
        stream: Stream::root(0),
    };
    let Ok(protocol) = PART.make::<Box<dyn Protocol>>(&nothing, &make) else {
        return;
    };
    let linear = |part: &&PartDecl| (part.role, part.name) == (Role::Trainer, "linear");
    let decl = linked_parts()
        .into_iter()
        .find(linear)
        .expect("it is linked");
    let parts = Parts::new(vec![SlotAssignment {
        slot: "model".into(),
        clients: None,
        decl,
        settings: decl.read(&nothing).expect("settings"),
    }]);
    let options = RunOptions::new(1, all.task());
    let clients = vec![all.pick(&[0, 1, 2]), all.pick(&[3, 4])];
    let test = all.pick(&[5]);
    let _ = run(Setup::new(
        protocol.into(),
        Arc::new(parts),
        options,
        clients,
        test,
    ));
}
