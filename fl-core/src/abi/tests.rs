//! Both sides in one program, without a library: small enough for an interpreter that checks every access.
use super::cross::view;
use super::raw::*;
use crate::message::{Params, View};
use crate::prelude::*;
use crate::settings::Value;
use crate::{BoxedAggregator, PartDecl, TaskKind};
use ndarray::{ArrayD, Axis, IxDyn};

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
    part.make(&settings, &make).unwrap()
}

pub(super) fn params(numbers: ArrayD<f32>) -> Params {
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
pub(super) fn raw(data: *const f32, shape: &[usize], strides: &[isize]) -> FlTensor {
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
    for shape in [&[][..], &[12]] {
        let none = raw(std::ptr::null(), shape, &[1][..shape.len()]);
        // SAFETY: there are no numbers to be looked at.
        assert!(unsafe { view(&none) }.is_err());
    }
}
