//! A library that gives whatever it likes, and what the host makes of it.
#![allow(unsafe_code, reason = "the other side of a C interface")]

use crate::bytes::Bytes;
use fl_core::abi::import;
use fl_core::abi::raw::*;
use fl_core::message::{Erased, MessageType, SampleShape, encode};
use fl_core::privacy::{Composition, Ledger, ReleaseNoise};
use fl_core::settings::{Reader, Value};
use fl_core::{
    Accountant, AnyAggregator, AnyMechanism, BoxedPart, BoxedSelector, BuildContext, Candidate,
    ClientMessage, Cohort, Draws, Examples, FitOptions, Generator, Labels, Length, Loss, PartDecl,
    Parts, PassStep, Pool, PrivacyEvent, Role, Roster, Round, Samples, SlotAssignment, Stream,
    Target, Task, TaskKind, Trainer, message::SoftLabels,
};
use ndarray::Array2;
use serde_json::json;
use std::cell::{LazyCell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;

static TABLE: FlLibrary = FlLibrary {
    describe: Some(describe),
    create: Some(create),
    call: Some(call),
    drop: Some(drop_part),
    free: Some(free),
    ..FlLibrary::OF_THIS_VERSION
};

thread_local! {
    /// What the library does next; its end comes first.
    static SCRIPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static DESCRIPTION: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PARTS: LazyCell<Vec<&'static PartDecl>> = LazyCell::new(parts);
}

unsafe extern "C" fn describe(_: *const FlHost, json: *mut FlText) -> i32 {
    DESCRIPTION.with_borrow(|text| {
        // SAFETY: the host's place for a text, which stays as long as the thread or until the next
        // description.
        unsafe { json.write(borrowed(text)) };
    });
    FL_OK
}

unsafe extern "C" fn free(_: FlText) {}

unsafe extern "C" fn drop_part(_: *mut c_void) {}

unsafe extern "C" fn create(_: u32, _: FlText, _: FlText, host: *const FlHost) -> i32 {
    // SAFETY: the host's own table, during its call.
    let host = unsafe { &*host };
    if let Some(part) = host.part {
        // SAFETY: as above. The part is never looked at.
        unsafe { part(host.context, std::ptr::dangling_mut::<u64>().cast()) };
    }
    FL_OK
}

unsafe extern "C" fn call(_: *mut c_void, _: u32, _: *const FlInput, host: *const FlHost) -> i32 {
    let script = SCRIPT.take();
    let mut bytes = Bytes(&script);
    // SAFETY: the host's own table, during its call.
    let code = act(unsafe { &*host }, &mut bytes);
    let rest = bytes.0.to_vec();
    SCRIPT.set(rest);
    code
}

fn borrowed(bytes: &[u8]) -> FlText {
    FlText {
        data: bytes.as_ptr(),
        length: bytes.len(),
    }
}

/// Names, types and lengths that a well-meaning library would use come often.
const NAMES: [&str; 10] = [
    "w",
    "rows",
    "values",
    "scores",
    "state",
    "positions",
    "features",
    "slopes",
    "classes",
    "",
];
const TEXTS: [&str; 10] = [
    "null",
    "3",
    "{}",
    r#"{"notes": ["a note"], "numbers": [["left-out", 2.0]]}"#,
    r#"{"needs": ["samples", "sent"], "claims": ["weight_free"], "folds": true}"#,
    r#"{"wanted": "samples", "of": [0, 2]}"#,
    r#"{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}"#,
    r#"{"steps": 5, "loss": 0.3}"#,
    r#"{"epsilon": 1.0, "delta": 0.0, "unit": "party"}"#,
    r#"{"parametric": true, "differentiable": true}"#,
];

/// Does what the bytes say, and returns the code that they say.
pub(crate) fn act(host: &FlHost, bytes: &mut Bytes<'_>) -> i32 {
    let at = host.context;
    for _ in 0..bytes.byte() % 6 {
        match bytes.byte() % 10 {
            0..=3 => tensor(host, bytes),
            4 => {
                let text = bytes.one(&TEXTS).as_bytes();
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { host.text.unwrap()(at, borrowed(text)) };
            }
            5 => {
                let text = bytes.some();
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { host.text.unwrap()(at, borrowed(text)) };
            }
            6 => {
                let (setting, text) = (bytes.some(), bytes.some());
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { host.fail.unwrap()(at, borrowed(setting), borrowed(text)) };
            }
            7 => {
                let part = usize::from(bytes.byte() % 4) as *mut c_void;
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { host.part.unwrap()(at, part) };
            }
            8 => {
                let mut numbers = [0.0; 4];
                let draw = bytes.one(&[host.fill_uniform, host.fill_normal]);
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { draw.unwrap()(at, numbers.as_mut_ptr(), 4) };
                let add = bytes.one(&[host.add_laplace, host.add_gaussian]);
                let scale = bytes.one(&[1.0, 0.0, -1.0, f64::NAN, 1e300]);
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { add.unwrap()(at, numbers.as_mut_ptr(), 4, scale) };
            }
            _ => {
                let (level, text) = (u32::from(bytes.byte()), bytes.some());
                // SAFETY: the host's own function, its context during its call, and memory that
                // lives through it.
                unsafe { host.log.unwrap()(at, level, borrowed(text)) };
            }
        }
    }
    match bytes.byte() {
        0..=200 => FL_OK,
        code => i32::from(code) - 201,
    }
}

fn tensor(host: &FlHost, bytes: &mut Bytes<'_>) {
    let name = if bytes.rarely(4) {
        bytes.some()
    } else {
        bytes.one(&NAMES).as_bytes()
    };
    let dtype = u32::from(bytes.byte() % 5);
    let shape: Vec<usize> = (0..bytes.byte() % 4)
        .map(|_| {
            if bytes.rarely(32) {
                usize::MAX >> bytes.of(64)
            } else {
                bytes.of(6)
            }
        })
        .collect();
    // more than this is room that the host gives, but no fuzzer has
    let n = shape.iter().try_fold(1_usize, |n, d| n.checked_mul(*d));
    if n.is_some_and(|n| n > 1 << 20 && n < 1 << 40) {
        return;
    }
    let (dimensions, shape) = (shape.len() as u32, shape.as_ptr());
    // SAFETY: the host's own function, and a shape of `shape.len()` dimensions.
    let room =
        unsafe { host.tensor.unwrap()(host.context, borrowed(name), dtype, dimensions, shape) };
    let size = [4, 8, 4, 1].get(dtype as usize).copied().unwrap_or(0);
    let (Some(n), false) = (n, room.is_null()) else {
        return;
    };
    let whole = bytes.rarely(2);
    for i in 0..n.min(64) {
        let number = bytes.byte();
        // SAFETY: the host made room for `n` numbers of this size.
        unsafe {
            let to = room.cast::<u8>().add(i * size);
            match (dtype, whole) {
                (FL_F32, true) => to.cast::<f32>().write_unaligned(f32::from(number) - 100.0),
                (FL_F64, true) => to.cast::<f64>().write_unaligned(f64::from(number) - 100.0),
                (FL_U32, true) => to.cast::<u32>().write_unaligned(u32::from(number)),
                _ => to.write_bytes(number, size),
            }
        }
    }
}

fn imported(description: &[u8]) -> Option<Vec<&'static PartDecl>> {
    DESCRIPTION.set(description.to_vec());
    // SAFETY: a static table.
    unsafe { import(&raw const TABLE, "a library") }.ok()
}

/// A part of every role and of many signatures.
fn parts() -> Vec<&'static PartDecl> {
    let all = [
        (Role::Aggregator, "params -> params"),
        (Role::Aggregator, "votes -> counts"),
        (Role::Aggregator, "soft-labels -> soft-labels"),
        (Role::Aggregator, "logits -> logits"),
        (Role::Aggregator, "class-means -> class-means"),
        (Role::Aggregator, "models -> models"),
        (Role::Aggregator, "mask -> ids"),
        (Role::Attack, "votes"),
        (Role::Privacy, "params"),
        (Role::Privacy, "logits"),
        (Role::Privacy, "counts"),
        (Role::Privacy, "scalar"),
        (Role::Selector, "clients"),
        (Role::Selector, "samples"),
        (Role::Selector, "soft-labels"),
        (Role::Trainer, ""),
        (Role::Generator, ""),
        (Role::Accountant, ""),
    ];
    let part = |(at, (role, signature)): (usize, &(Role, &str))| {
        json!({
            "role": role.name(), "name": format!("part-{at}"), "signature": signature, "doc": "One.",
            "settings": [{ "name": "a", "doc": "One.", "schema": { "type": "number", "default": 1 } }],
        })
    };
    let all: Vec<_> = all.iter().enumerate().map(part).collect();
    imported(json!({ "parts": all }).to_string().as_bytes()).expect("a description")
}

/// What a library says of itself.
pub(crate) fn description(data: &[u8]) {
    SCRIPT.take();
    for part in imported(data).unwrap_or_default() {
        let about = (part.describe)();
        assert!(!about.doc.contains('\u{1b}'), "an escape");
        let nothing = Value::Mapping(serde_yaml::Mapping::new());
        let _ = (part.check)(&nothing, &mut Reader::default());
    }
}

/// What a library answers.
pub(crate) fn answers(data: &[u8]) {
    let mut bytes = Bytes(data);
    let decl = PARTS.with(|parts| parts[bytes.of(parts.len())]);
    let settings: Value = serde_yaml::from_str("{a: 2}").expect("settings");
    SCRIPT.set(bytes.0.to_vec());
    let Ok(settings) = decl.read(&settings) else {
        return;
    };
    let parts = Parts::new(vec![SlotAssignment {
        slot: "part".into(),
        clients: None,
        decl,
        settings,
    }]);
    let drive = Drive {
        parts: &parts,
        role: decl.role,
    };
    let signature = (decl.describe)().signature;
    match decl.role {
        Role::Aggregator | Role::Attack => drive.aggregate(),
        Role::Privacy => drive.release(),
        Role::Selector => drive.select(&signature),
        Role::Trainer => drive.train(),
        Role::Generator => drive.generate(),
        Role::Accountant => drive.account(),
        Role::Protocol => {}
    }
}

struct Drive<'a> {
    parts: &'a Parts,
    role: Role,
}

fn normal(draws: &mut Draws) -> f32 {
    draws.normal() as f32
}

/// A message about samples 0 to 2, three classes and one voter.
fn message(of: &'static MessageType, client: usize) -> Option<Erased> {
    let mut draws = Stream::root(client as u64).draws();
    of.sample(&mut SampleShape::new(2, &normal, &mut draws).fixed(&[0, 1, 2], 3, 1))
}

fn pool() -> Samples {
    let values = Array2::from_shape_fn((4, 2), |(i, j)| (i + j) as f32);
    Samples::fresh(values, vec![2]).expect("samples")
}

fn event() -> PrivacyEvent {
    let text = r#"{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}"#;
    serde_json::from_str(text).expect("an event")
}

impl Drive<'_> {
    fn aggregate(self) {
        let Some(mut part) = self.build::<Box<dyn AnyAggregator>>() else {
            return;
        };
        let of = part.input();
        let all: Option<Vec<_>> = (0..2)
            .map(|k| Some(ClientMessage::new(k as u32, 1.0, message(of, k)?)))
            .collect();
        let Some(Ok(inbox)) = all.clone().map(|all| of.inbox(all)) else {
            return;
        };
        let mut round = Round::first();
        let _ = (part.needs(), part.claims());
        if part.needs().sent {
            round = round.showing_any(message(of, 0).expect("it was made before").into());
        }
        if let Ok(out) = part.aggregate(&round, &*inbox) {
            let _ = encode(&*out);
        }
        if let Some(mut fold) = part.fold(&round) {
            let mut mail = all.into_iter().flatten();
            let added = mail.try_for_each(|mail| fold.add(mail));
            if let (Ok(()), Ok(out)) = (added, fold.finish()) {
                let _ = part.update(&round, out).map(|out| encode(&*out));
            }
        }
        let _ = round.take_log();
        let state = part.save();
        let _ = part.load(&state);
    }

    fn release(self) {
        let Some(mut part) = self.build::<Box<dyn AnyMechanism>>() else {
            return;
        };
        let Some(mut message) = message(part.on(), 0) else {
            return;
        };
        if let Some(range) = part.range(&*message) {
            part.agree(range);
        }
        let _ = part.clip(&mut *message);
        let cohort = Cohort::all(3);
        let price = part.price(&*message, &cohort);
        let noise = ReleaseNoise::seeded(&Stream::root(1));
        let _ = part.perturb(&mut *message, &cohort, &noise);
        let queries = part.queries(&*message);
        part.truncate(&mut *message, queries.min(2));
        let _ = part.actual_cost(price.unwrap_or_else(|_| event()));
        let state = part.save();
        let _ = part.load(&state);
        let _ = encode(&*message);
    }

    fn build<B: BoxedPart>(&self) -> Option<B> {
        let make = BuildContext {
            task: Task {
                input: vec![2],
                kind: TaskKind::Classes(3),
            },
            stream: Stream::root(0),
        };
        self.parts.build(self.role, "part", None, &make).ok()
    }

    fn select(self, name: &str) {
        match name {
            Roster::NAME => {
                let clients: Vec<Candidate> = (0..4).map(Candidate::new).collect();
                self.choose::<Roster>(&clients, 4);
            }
            Samples::NAME => self.choose(&pool(), 4),
            _ => {
                let labels = message(MessageType::of::<SoftLabels>(), 0).expect("soft labels");
                self.choose(&labels.take::<SoftLabels>().expect("soft labels"), 3);
            }
        }
    }

    fn choose<P: Pool + ?Sized>(self, pool: &P, n: usize) {
        let Some(mut part) = self.build::<BoxedSelector<P>>() else {
            return;
        };
        let round = Round::first();
        let labels = Labels::Classes {
            of: vec![0, 1, 2, 0],
            classes: 3,
        };
        let own = Examples::all(self::pool().inputs().clone(), Arc::new(labels));
        let _ = part.fit(&own.expect("examples"), &round.stream);
        if let Ok(Some(poll)) = part.poll(&round, pool) {
            assert!(poll.of.iter().all(|at| *at < n), "{poll:?} of {n}");
        }
        if let Ok(Some(ranks)) = part.rank(pool) {
            assert_eq!(ranks.len(), n, "ranks");
        }
        if let Ok(positions) = part.select(&round, pool) {
            assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
            assert!(positions.iter().all(|at| *at < n), "{positions:?} of {n}");
        }
    }

    fn train(self) {
        let Some(mut part) = self.build::<Box<dyn Trainer>>() else {
            return;
        };
        let (x, stream) = (pool(), Stream::root(3));
        let target = Target::Classes(&[0, 1, 2, 0]);
        let pass = FitOptions::new(Length::Steps(2), 2, Loss::CrossEntropy);
        let _ = (part.abilities(), part.fit(&x, target, &pass, &stream));
        if let Ok(scores) = part.predict(&x) {
            assert_eq!(scores.dim(), (4, 3), "scores");
        }
        if let Ok(Some(features)) = part.features(&x) {
            assert_eq!(features.nrows(), 4, "features");
        }
        if let Some(head) = part.head() {
            assert_eq!(head.outputs(), 3, "a last layer");
        }
        if let Some(part) = part.parametric() {
            let params = part.params();
            let _ = part.set_params(&params);
            let _ = part.gradient(&x, target, Loss::CrossEntropy);
            let _ = part.descend(&params, &PassStep::new(0, 1));
            let _ = (part.step_size(), part.buffers());
        }
        if let Some(part) = part.differentiable() {
            let slope = Array2::ones((4, 3));
            if let Ok(slopes) = part.vjp(&x, slope.view()) {
                assert_eq!(slopes.dim(), (4, 2), "slopes");
            }
        }
        let _ = part.save().map(|model| part.load(&model));
        let _ = part.save_state().map(|state| part.load_state(&state));
    }

    fn generate(self) {
        let Some(mut part) = self.build::<Box<dyn Generator>>() else {
            return;
        };
        if let Ok(made) = part.sample(4, &Stream::root(3)) {
            assert_eq!(made.len(), 4, "samples");
            let slope = Array2::ones((4, made.width()));
            let _ = part.learn(&made, slope.view());
        }
        let _ = part.save().map(|state| part.load(&state));
    }

    fn account(self) {
        let Some(mut part) = self.build::<Box<dyn Accountant>>() else {
            return;
        };
        let _ = part.charge(&event());
        if let Ok(guarantee) = part.guarantee(Some(&event())) {
            assert!(guarantee.epsilon >= 0.0, "{guarantee:?}");
        }
        let ledgers: [Ledger; 0] = [];
        let _ = part.merge(&ledgers, Composition::Parallel);
    }
}
