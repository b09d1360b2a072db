//! Both sides in one program, without a library: small enough for an interpreter that checks every access.
use super::cross::{Letter, content, view, with_messages};
use super::describe;
use super::host::Call;
use super::lend::{Lent, Shelf};
use super::raw::*;
use crate::message::{Logits, Message, Named, Params, View};
use crate::prelude::*;
use crate::settings::{Reader, Step, Value};
use crate::{BoxedAggregator, PartDecl, TaskKind};
use ndarray::{Array2, ArrayD, Axis, IxDyn};
use std::ffi::c_void;

settings! {
    /// The weighted mean, or a panic.
    struct TestMean {
        /// Panics at the second call.
        fails: bool = false;
    }
}

struct Mean {
    fails: bool,
    calls: u8,
}

impl From<TestMean> for Mean {
    fn from(settings: TestMean) -> Self {
        Self {
            fails: settings.fails,
            calls: 0,
        }
    }
}

impl Aggregator for Mean {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        self.calls += 1;
        assert!(!self.fails || self.calls < 2, "at the second call");
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }
    fn save(&self) -> Vec<u8> {
        assert!(!self.fails || self.calls < 2, "it cannot be saved");
        vec![self.calls]
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.calls = *state.first().context("an empty state")?;
        Ok(())
    }
}
plugin!(aggregator "test-mean" => TestMean as Mean);

fn build(settings: &str) -> BoxedAggregator<Params, Params> {
    let parts: Vec<&PartDecl> = super::import_linked("here");
    let part = parts.iter().find(|p| p.name == "test-mean").unwrap();
    let make = BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    };
    let settings: Value = serde_yaml::from_str(settings).unwrap();
    *(part.build)(&settings, &make).unwrap().downcast().unwrap()
}

fn params(numbers: ArrayD<f32>) -> Params {
    Params([("w".to_string(), numbers)].into())
}

fn inbox() -> Inbox<Params> {
    let mail = |k: u32| {
        let numbers = ArrayD::from_shape_fn(IxDyn(&[2, 3]), |i| (i[0] * 3 + i[1]) as f32);
        Mail::new(k, 1.0 + f64::from(k), params(numbers + k as f32))
    };
    Inbox::new((0..3).map(mail).collect()).unwrap()
}

#[test]
fn a_part_answers_through_the_interface() {
    let (mut part, inbox) = (build("{}"), inbox());
    let out = part.aggregate(&Round::first(), &inbox).unwrap();
    let linked = inbox.weighted_mean(&[1.0, 2.0, 3.0], &crate::Serial);
    assert_eq!(out, linked);
    assert_eq!(part.save(), [1]);
    part.load(&[7]).unwrap();
    assert_eq!(part.save(), [7]);
}

#[test]
fn what_could_not_be_saved_cannot_be_loaded() {
    let mut part = build("{fails: true}");
    part.aggregate(&Round::first(), &inbox()).unwrap();
    let error = part.aggregate(&Round::first(), &inbox()).unwrap_err();
    assert!(format!("{error:#}").contains("it panicked: at the second call"));
    let state = part.save();
    let error = build("{}").load(&state).unwrap_err();
    assert!(
        format!("{error:#}").contains("could not be saved"),
        "{error:#}"
    );
    let late = part.aggregate(&Round::first(), &inbox()).unwrap_err();
    assert!(
        format!("{late:#}").contains("it cannot be saved"),
        "{late:#}"
    );
}

/// What a library sees of these numbers.
fn raw(data: *const f32, shape: &[usize], strides: &[isize]) -> FlTensor {
    FlTensor {
        name: FlText::of("w"),
        data: data.cast(),
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        dimensions: shape.len() as u32,
        dtype: FL_F32,
    }
}

#[test]
fn strides_may_be_negative_or_zero() {
    let numbers: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let base = ArrayD::from_shape_vec(IxDyn(&[3, 4]), numbers.clone()).unwrap();
    let mut turned = base.view().reversed_axes();
    turned.invert_axis(Axis(0));
    let wide = base.view();
    let wide = wide.broadcast(IxDyn(&[2, 3, 4])).unwrap();
    let point = ArrayD::from_elem(IxDyn(&[]), 5.0);
    let empty = ArrayD::<f32>::zeros(IxDyn(&[0, 4]));
    for wanted in [base.view(), turned, wide, point.view(), empty.view()] {
        let tensor = raw(wanted.as_ptr(), wanted.shape(), wanted.strides());
        // SAFETY: made from a view that is still there.
        let (name, found) = unsafe { view(&tensor) }.unwrap();
        let View::F32(found) = found else {
            panic!("another type")
        };
        assert_eq!((name, found), ("w", wanted));
    }
    let mut odd = raw(numbers.as_ptr(), &[12], &[1]);
    odd.dtype = 9;
    // SAFETY: the type is looked at before the numbers.
    assert!(unsafe { view(&odd) }.is_err());
    odd.shape = std::ptr::null();
    // SAFETY: there is no shape.
    assert!(unsafe { view(&odd) }.is_err());
}

/// Lends `all` to a part, and says which of the tensors called `name` are still the host's.
fn lent<M: Message>(all: &[M], numbers: impl Fn(&M) -> *const f32) -> Vec<bool> {
    lent_on(&mut Shelf::default(), all, numbers)
}

fn lent_on<M: Message>(
    shelf: &mut Shelf<M>,
    all: &[M],
    numbers: impl Fn(&M) -> *const f32,
) -> Vec<bool> {
    let contents: Vec<Named<'_>> = all.iter().map(content).collect();
    let letters: Vec<_> = contents.iter().map(Letter::new).collect();
    with_messages(&letters, |messages| {
        // SAFETY: the messages live and stay as they are through the call.
        let lent = unsafe { Lent::new(shelf, messages) }.unwrap();
        let bodies = lent.inbox().iter().map(|mail| &mail.body);
        bodies
            .zip(all)
            .map(|(body, own)| {
                assert_eq!(crate::message::digest(body), crate::message::digest(own));
                // what a part copies is its own
                drop(body.clone());
                numbers(body) == numbers(own)
            })
            .collect()
    })
}

#[test]
fn numbers_stay_where_the_host_has_them() {
    let plain = ArrayD::from_shape_fn(IxDyn(&[2, 3]), |i| (i[0] + i[1]) as f32);
    let turned = plain.clone().reversed_axes();
    let all = [params(plain.clone()), params(turned), params(plain)];
    assert_eq!(lent(&all, |p| p.0["w"].as_ptr()), [true, false, true]);
    let scores = Logits::new(vec![3, 5], Array2::ones((2, 4)));
    let none = Logits::new(Vec::new(), Array2::ones((0, 4)));
    let at = |l: &Logits| l.values.as_ptr();
    assert!(lent(&[scores.clone(), none], at)[0]);
    // packed scores are rebuilt from their levels
    let mut packed = scores;
    packed.pack(crate::message::Grid {
        levels: 5,
        lowest: 0.0,
        step: 0.5,
    });
    assert!(!lent(&[packed], at)[0]);
}

#[test]
fn a_shelf_takes_whatever_comes_next() {
    let of = |names: &[&str], shape: &[usize]| {
        let tensor = |n: &&str| (n.to_string(), ArrayD::from_elem(IxDyn(shape), 2.0));
        Params(names.iter().map(tensor).collect())
    };
    let mut turned = of(&["a", "w"], &[2, 3]);
    for array in turned.0.values_mut() {
        *array = array.clone().reversed_axes();
    }
    let plain = of(&["a", "w"], &[2, 3]);
    let mut shelf = Shelf::default();
    for all in [
        vec![plain.clone(); 3],
        vec![of(&["a", "w"], &[4])],
        vec![plain.clone(), turned, plain.clone()],
        vec![of(&["a"], &[1, 2, 1]); 4],
        vec![of(&["b", "c", "w"], &[]); 2],
        vec![of(&[], &[]), of(&["x"], &[0, 3])],
        vec![plain.clone(); 2],
    ] {
        let lent = lent_on(&mut shelf, &all, |p| {
            p.0.values().last().map_or(std::ptr::null(), |a| a.as_ptr())
        });
        let whole = |p: &Params| p.count() == 0 || p.0.values().all(|a| a.is_standard_layout());
        let empty = |p: &Params| p.count() == 0;
        for (lent, p) in lent.into_iter().zip(&all).filter(|(_, p)| !empty(p)) {
            assert_eq!(lent, whole(p));
        }
    }
    // what was lent before a mistake is given back, and names may come in any order, or twice
    let (numbers, shape, strides) = ([1.0, 2.0, 3.0], [1], [1]);
    let one = |name: &'static str, at: usize| FlTensor {
        name: FlText::of(name),
        ..raw(&raw const numbers[at], &shape, &strides)
    };
    let mut bad = [one("a", 0), one("w", 1)];
    bad[1].shape = std::ptr::null();
    let mixed = [one("w", 0), one("a", 1), one("w", 2)];
    for (tensors, fine) in [(&bad[..], false), (&mixed[..], true), (&bad[..], false)] {
        let message = FlMessage {
            from: 3,
            classes: 0,
            weight: 1.0,
            class_counts: std::ptr::null(),
            tensors: tensors.as_ptr(),
            count: tensors.len(),
        };
        // SAFETY: all that the message points to lives through the loop.
        let lent = unsafe { Lent::new(&mut shelf, &[message]) };
        assert_eq!(lent.is_ok(), fine);
        let Ok(lent) = lent else { continue };
        let body = &lent.inbox().iter().next().unwrap().body;
        let found: Vec<_> = body.iter().copied().collect();
        assert_eq!(found, [2.0, 1.0]);
    }
}

/// What the host makes of a call in which a library does `f`.
fn outcome(f: impl FnOnce(&FlHost)) -> super::host::Answer {
    let (_, answer) = Call::new("a part", None, None).run(|host| {
        f(host);
        FL_OK
    });
    answer
}

fn room(host: &FlHost, name: &str, dtype: u32, shape: &[usize]) -> *mut c_void {
    let f = host.tensor.unwrap();
    let (n, name) = (shape.len() as u32, FlText::of(name));
    // SAFETY: a call that is running, and a shape of so many numbers.
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
    assert_eq!(names, ["a", "b", "c", "d", "none"]);
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
            "nothing is random",
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
fn descriptions_are_held_to_their_own_schemas() {
    let with = |settings: &str| {
        let text = format!(
            r#"{{"parts": [{{"role": "accountant", "name": "a", "doc": "b", "settings": [{settings}]}}]}}"#
        );
        describe::read(&text)
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
            "`maximum` of setting `x` must be a number",
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
}
