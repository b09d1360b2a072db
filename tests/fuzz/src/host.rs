//! A host that asks whatever it likes, and what a library of this program's parts makes of it.
//! Pointers are valid, as the interface demands of a host; everything else may be wrong.
#![allow(unsafe_code, reason = "the other side of a C interface")]

use crate::bytes::Bytes;
use fl_core::abi::library;
use fl_core::abi::raw::*;
use fl_core::settings::Value;
use fl_core::{Role, linked_parts};
use fl_plugins as _;
use std::cell::{Cell, LazyCell};
use std::ffi::c_void;
use std::panic::set_hook;
use std::sync::{LazyLock, Once};

thread_local! {
    /// Where each part that can cross stands in the description, and its settings, every default
    /// filled in.
    static PARTS: LazyCell<Vec<(u32, String)>> = LazyCell::new(parts);
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
}

fn parts() -> Vec<(u32, String)> {
    let all = linked_parts().into_iter().enumerate();
    let parts = all.filter(|(_, part)| part.role != Role::Protocol);
    let settled = parts.map(|(at, part)| {
        let nothing = Value::Mapping(serde_yaml::Mapping::new());
        let settings = part.read(&nothing).map_or(nothing, |read| read.value);
        (at as u32, fl_core::settings::to_json(&settings).to_string())
    });
    settled.collect()
}

/// What the host keeps during a call.
#[derive(Default)]
pub(crate) struct Kept {
    parts: Vec<*mut c_void>,
    rooms: Vec<Vec<u64>>,
    refuses: bool,
    drawn: u64,
}

/// # Safety
/// `context` is that of a call that is running.
unsafe fn kept<'a>(context: *mut c_void) -> &'a mut Kept {
    // SAFETY: as the caller says; these functions are called one after the other, on one thread.
    unsafe { &mut *context.cast() }
}

unsafe extern "C" fn log(_: *mut c_void, _: u32, text: FlText) {
    // SAFETY: a text of the library.
    unsafe { looked_at(text) };
}

unsafe extern "C" fn fail(_: *mut c_void, setting: FlText, text: FlText) {
    // SAFETY: texts of the library.
    unsafe { [looked_at(setting), looked_at(text)] };
}

unsafe extern "C" fn text(_: *mut c_void, json: FlText) {
    // SAFETY: a text of the library.
    unsafe { looked_at(json) };
}

/// # Safety
/// `text` is valid.
unsafe fn looked_at(text: FlText) {
    if text.length > 0 {
        // SAFETY: as the caller says.
        let bytes = unsafe { std::slice::from_raw_parts(text.data, text.length) };
        assert!(std::str::from_utf8(bytes).is_ok(), "no UTF-8");
    }
}

unsafe extern "C" fn tensor(
    context: *mut c_void,
    name: FlText,
    _: u32,
    dimensions: u32,
    shape: *const usize,
) -> *mut c_void {
    // SAFETY: the context of this call, and what the library says of a tensor.
    let (kept, shape) = unsafe {
        looked_at(name);
        let shape = match dimensions {
            0 => &[][..],
            n => std::slice::from_raw_parts(shape, n as usize),
        };
        (kept(context), shape)
    };
    let n = shape.iter().try_fold(1_usize, |n, d| n.checked_mul(*d));
    match n.filter(|n| *n < 1 << 22 && !kept.refuses) {
        Some(n) => {
            kept.rooms.push(vec![0; n.max(1)]);
            let room = kept.rooms.last_mut().expect("it was put there");
            room.as_mut_ptr().cast()
        }
        None => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn part(context: *mut c_void, part: *mut c_void) {
    // SAFETY: the context of this call.
    unsafe { kept(context) }.parts.push(part);
}

unsafe extern "C" fn fill(context: *mut c_void, out: *mut f64, n: usize) {
    // SAFETY: the context of this call.
    let kept = unsafe { kept(context) };
    for i in 0..n {
        kept.drawn = kept.drawn.wrapping_mul(6_364_136_223_846_793_005);
        kept.drawn = kept.drawn.wrapping_add(1_442_695_040_888_963_407);
        let number = (kept.drawn >> 11) as f64 / (1_u64 << 53) as f64;
        // SAFETY: room for `n` numbers.
        unsafe { out.add(i).write(number) };
    }
}

unsafe extern "C" fn add(_: *mut c_void, _: *mut f64, _: usize, _: f64) {}

unsafe extern "C" fn parallel_for(
    _: *mut c_void,
    data: *mut f32,
    n: usize,
    size: usize,
    work: Option<unsafe extern "C" fn(*mut c_void, usize, *mut f32, usize)>,
    argument: *mut c_void,
) {
    if n == 0 {
        return;
    }
    // SAFETY: `n` numbers that are lent for this call.
    let data = unsafe { std::slice::from_raw_parts_mut(data, n) };
    for (i, chunk) in data.chunks_mut(size.max(1)).enumerate() {
        // SAFETY: the library's own function, as it asked.
        unsafe { work.expect("work")(argument, i, chunk.as_mut_ptr(), chunk.len()) };
    }
}

pub(crate) fn host(kept: &mut Kept, bytes: &mut Bytes<'_>) -> FlHost {
    FlHost {
        size: size_of::<FlHost>() - usize::from(bytes.rarely(64)),
        context: std::ptr::from_mut(kept).cast(),
        key: [bytes.byte(); 32],
        log: Some(log),
        fail: Some(fail),
        text: Some(text),
        tensor: Some(tensor),
        part: Some(part),
        fill_uniform: Some(fill),
        fill_normal: Some(fill),
        parallel_for: Some(parallel_for),
        noise: u32::from(bytes.rarely(16)),
        add_laplace: Some(add),
        add_gaussian: Some(add),
        call: None,
    }
}

pub(crate) fn borrowed(text: &[u8]) -> FlText {
    FlText {
        data: text.as_ptr(),
        length: text.len(),
    }
}

const TASKS: [&str; 4] = [
    r#"{"input": [2], "kind": {"Classes": 3}}"#,
    r#"{"input": [1, 4, 4], "kind": {"Classes": 2}}"#,
    r#"{"input": [3], "kind": {"MultiLabel": 2}}"#,
    r#"{"input": [], "kind": {"Classes": 0}}"#,
];

const NAMES: [&str; 16] = [
    "rows", "values", "w", "b", "ids", "classes", "target", "slope", "state", "labels", "clients",
    "sizes", "losses", "levels", "packed", "step",
];

const ROUND: &str = r#"{"number": 1, "last": false, "name": "round 1"}"#;
const COHORT: &str = r#"{"clients": 3, "of": 5, "draw": "everyone"}"#;
const EVENT: &str = r#"{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}"#;

/// Texts that an operation may be given; others are given none.
const TEXTS: &[(u32, &str)] = &[
    (FL_CHECK, r#"{"part": 0, "settings": {}}"#),
    (FL_AGGREGATE, ROUND),
    (FL_FOLD, ROUND),
    (FL_UPDATE, ROUND),
    (FL_FIT, r#"{"classes": 3}"#),
    (FL_SELECT, ROUND),
    (FL_POLL, ROUND),
    (FL_RANK, "{}"),
    (FL_AGREE, "2.5"),
    (FL_PRICE, COHORT),
    (FL_PERTURB, COHORT),
    (FL_TRUNCATE, r#"{"queries": 1}"#),
    (FL_ACTUAL_COST, EVENT),
    (FL_CHARGE, EVENT),
    (FL_GUARANTEE, "null"),
    (
        FL_MERGE,
        r#"{"ledgers": [{"client": 0, "events": []}], "how": "parallel"}"#,
    ),
    (FL_SAMPLE, r#"{"samples": 4}"#),
    (FL_LEARN, "{}"),
    (
        FL_TRAIN,
        r#"{"length": {"Steps": 2}, "batch": 2, "loss": "CrossEntropy", "fresh": false, "proximal": null, "gradient_offset": false, "clip": null, "target": "classes"}"#,
    ),
    (
        FL_TRAIN,
        r#"{"length": {"Epochs": 1}, "batch": 0, "loss": "Mse", "fresh": true, "proximal": 0.1, "gradient_offset": true, "clip": 1, "target": "scores"}"#,
    ),
    (FL_PREDICT, "{}"),
    (FL_FEATURES, "{}"),
    (FL_VJP, "{}"),
    (
        FL_GRADIENT,
        r#"{"loss": "CrossEntropy", "target": "classes"}"#,
    ),
    (
        FL_CLIPPED_GRADIENTS,
        r#"{"loss": "CrossEntropy", "target": "classes", "clip": 1.5}"#,
    ),
    (FL_DESCEND, r#"{"at": 0, "of": 1}"#),
    (FL_GUARANTEE, EVENT),
    (FL_PRICE, r#"{"clients": 0, "of": 0, "draw": "unknown"}"#),
];

/// Every operation, and two that there are not, each with a text that it may be given.
static OPERATIONS: LazyLock<Vec<(u32, &str)>> = LazyLock::new(|| {
    let known = fl_core::abi::OPERATIONS.iter().map(|of| of.number);
    let silent = known.filter(|number| TEXTS.iter().all(|(of, _)| of != number));
    let silent = silent.chain([0, 99]).map(|number| (number, ""));
    silent.chain(TEXTS.iter().copied()).collect()
});

/// A text of the fuzzer, unless it asks for more work than a fuzzer has time for.
pub(crate) fn small(text: &[u8]) -> &[u8] {
    let long = |run: &[u8]| run.len() > 2 && run.iter().all(u8::is_ascii_digit);
    let many = text.windows(3).any(long)
        || text
            .windows(2)
            .any(|w| w[1] == b'e' && w[0].is_ascii_digit());
    if many { b"{}" } else { text }
}

const F32: [f32; 8] = [0.0, 1.0, -1.0, 0.5, f32::NAN, f32::INFINITY, 3e38, 1e-40];

/// Numbers of one tensor, and their shape and strides.
struct Block {
    name: Vec<u8>,
    dtype: u32,
    shape: Vec<usize>,
    strides: Vec<isize>,
    data: Vec<u64>,
    missing: bool,
}

fn block(bytes: &mut Bytes<'_>) -> Block {
    let name = if bytes.rarely(16) {
        bytes.some().to_vec()
    } else {
        bytes.one(&NAMES).into()
    };
    let dtype = bytes.one(&[FL_F32, FL_F32, FL_U32, FL_U32, FL_F64, FL_U8, 7]);
    let shape: Vec<usize> = (0..bytes.byte() % 4).map(|_| bytes.of(6)).collect();
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1) as isize;
    }
    if bytes.rarely(8) {
        // the same number again and again
        strides.iter_mut().for_each(|s| *s = 0);
    }
    let n: usize = shape.iter().product();
    let mut data = vec![0_u64; n.max(1)];
    let plain = !bytes.rarely(4);
    for i in 0..n {
        let byte = bytes.byte();
        let number = F32[usize::from(byte) % if plain { 4 } else { 8 }];
        let at = data.as_mut_ptr();
        // SAFETY: there is room for `n` numbers of eight bytes.
        unsafe {
            match dtype {
                FL_F32 => at.cast::<f32>().add(i).write(number),
                FL_F64 => at.cast::<f64>().add(i).write(number.into()),
                FL_U32 if plain => at.cast::<u32>().add(i).write(u32::from(byte % 4)),
                FL_U32 => at.cast::<u32>().add(i).write(u32::MAX - u32::from(byte)),
                _ => at.cast::<u8>().add(i).write(byte),
            }
        }
    }
    Block {
        name,
        dtype,
        shape,
        strides,
        data,
        missing: bytes.rarely(64),
    }
}

impl Block {
    fn raw(&self) -> FlTensor {
        FlTensor {
            name: borrowed(&self.name),
            data: if self.missing {
                std::ptr::null()
            } else {
                self.data.as_ptr().cast()
            },
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ptr(),
            dimensions: self.shape.len() as u32,
            dtype: self.dtype,
        }
    }
}

/// A part may panic at nonsense, which its library catches; a fuzzer's own hook would take that for
/// the end.
fn allow_panics_in_calls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_hook(Box::new(|panic| {
            if !IN_CALL.get() {
                eprintln!("{panic}");
            }
        }));
    });
}

/// Every call returns a code, with a text where there is one.
pub(crate) fn calls(data: &[u8]) {
    allow_panics_in_calls();
    let mut bytes = Bytes(data);
    let table = library();
    let mut kept = Kept::default();
    let own = bytes.rarely(8).then(|| small(bytes.some()).to_vec());
    let (index, settings) = PARTS.with(|parts| parts[bytes.of(parts.len())].clone());
    let settings = own.unwrap_or_else(|| settings.into_bytes());
    let task = bytes.one(&TASKS).as_bytes();
    let first = host(&mut kept, &mut bytes);
    let create = table.create.expect("create");
    IN_CALL.set(true);
    // SAFETY: a host and texts that live through the call.
    unsafe { create(index, borrowed(&settings), borrowed(task), &raw const first) };
    while !bytes.is_empty() {
        one(table, &mut kept, &mut bytes);
    }
    IN_CALL.set(false);
    for part in kept.parts {
        // SAFETY: the library made it, and it is dropped once.
        unsafe { table.drop.expect("drop")(part) };
    }
}

fn one(table: &FlLibrary, kept: &mut Kept, bytes: &mut Bytes<'_>) {
    let (operation, usual) = bytes.one(&OPERATIONS);
    let text = if bytes.rarely(8) {
        small(bytes.some())
    } else {
        usual.as_bytes()
    };
    let code = with_input(text, bytes, |input, bytes| {
        let part = match kept.parts.len() {
            0 => std::ptr::null_mut(),
            n => kept.parts[bytes.of(n)],
        };
        kept.refuses = bytes.rarely(32);
        kept.rooms.clear();
        let host = host(kept, bytes);
        let call = table.call.expect("call");
        // SAFETY: everything handed over lives through the call, and one thread uses the part.
        unsafe { call(part, operation, input, &raw const host) }
    });
    // a panic is the part's, and the host says so: whoever asks nonsense may get one, but a library
    // survives it
    assert!((FL_OK..=FL_DIVERGED).contains(&code), "code {code}");
}

/// Runs `f` with this text and the messages that the bytes say.
pub(crate) fn with_input<R>(
    text: &[u8],
    bytes: &mut Bytes<'_>,
    f: impl FnOnce(&FlInput, &mut Bytes<'_>) -> R,
) -> R {
    let blocks: Vec<Vec<Block>> = (0..bytes.byte() % 4)
        .map(|_| (0..bytes.byte() % 4).map(|_| block(bytes)).collect())
        .collect();
    let raw: Vec<Vec<FlTensor>> = blocks
        .iter()
        .map(|all| all.iter().map(Block::raw).collect())
        .collect();
    let counts = [1, 2, 3, u32::MAX];
    let messages: Vec<FlMessage> = raw
        .iter()
        .map(|tensors| FlMessage {
            from: u32::from(bytes.byte() % 4),
            classes: u32::from(bytes.byte() % 5),
            weight: bytes.one(&[1.0, 0.0, 2.0, -1.0, f64::NAN, f64::INFINITY, 1e308]),
            class_counts: if bytes.rarely(2) {
                counts.as_ptr()
            } else {
                std::ptr::null()
            },
            tensors: tensors.as_ptr(),
            count: tensors.len(),
            training_loss: bytes.one(&[f64::NAN, 0.5, 0.0, -1.0, f64::INFINITY, 1e308]),
        })
        .collect();
    let input = FlInput {
        size: size_of::<FlInput>() - usize::from(bytes.rarely(64)),
        text: borrowed(text),
        messages: messages.as_ptr(),
        count: messages.len(),
    };
    f(&input, bytes)
}
