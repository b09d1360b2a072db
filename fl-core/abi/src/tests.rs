//! Both sides in one program, without a library: small enough for an interpreter that checks every
//! access.
use super::marshal::view;
use super::raw::*;
use fl_roles::message::{Params, View};
use fl_roles::prelude::*;
use fl_roles::settings::Value;
use fl_roles::{
    BoxedAggregator, FeatureLoss, FeatureTerm, FitReport, LogEvent, Parametric, PartDecl, TaskKind,
};
use ndarray::{Array2, ArrayD, ArrayView2, Axis, IxDyn};
use std::collections::BTreeSet;

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
        for name in round.buffers() {
            round.note(format!("buffer {name}"));
        }
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
        ClientMessage::new(k, 1.0 + f64::from(k), params(numbers + k as f32))
    };
    Inbox::new((0..3).map(mail).collect()).unwrap()
}

#[test]
fn a_part_answers_through_the_interface() {
    let (mut part, inbox) = (build("{}"), inbox());
    let out = part.aggregate(&Round::first(), &inbox).unwrap();
    let linked = inbox.weighted_mean(&[1.0, 2.0, 3.0], &fl_roles::Serial);
    assert_eq!(out, linked);
    assert_eq!(part.save(), [1]);
    part.load(&[7]).unwrap();
    assert_eq!(part.save(), [7]);
}

#[test]
fn the_buffers_of_a_round_cross_to_a_part() {
    let names = ["a", "w \"quoted\""].map(String::from);
    let round = Round::first().with_buffers(BTreeSet::from(names.clone()));
    build("{}").aggregate(&round, &inbox()).unwrap();
    let due = names.map(|name| LogEvent::Note(format!("buffer {name}")));
    assert_eq!(round.take_log(), due);
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

/// A library in another language that declares a message of its own: its aggregator gives back the
/// first message, its mechanism what it was given.
mod of_a_message_of_its_own {
    use super::super::raw::*;
    use crate as abi;
    use fl_roles::message::{
        Bits, Column, Dtype, Erased, SensitivityNorm, Tensor, TensorMap, digest, message_type,
    };
    use fl_roles::prelude::*;
    use fl_roles::settings::Value;
    use fl_roles::{AnyAggregator, AnyMechanism, PartDecl, TaskKind};
    use ndarray::{ArrayD, IxDyn};
    use std::ffi::c_void;

    static DESCRIPTION: &str = r#"{
        "messages": [{"kind": "test-ranges", "doc": "Lowest and highest scores.", "reach": "sum", "tensors": [
            {"name": "rows", "type": "u32", "shape": "rows", "doc": "ids of the samples"},
            {"name": "range", "type": "f64", "shape": "rows x 2", "doc": "lowest and highest"},
            {"name": "steps", "type": "i64", "shape": "rows", "doc": "how often it moved up or down"},
            {"name": "known", "type": "bits", "shape": "rows x 5", "doc": "who has said something"}]}],
        "parts": [
            {"role": "aggregator", "name": "test-first", "signature": "test-ranges -> test-ranges", "doc": "The first."},
            {"role": "privacy", "name": "test-bare", "signature": "test-ranges", "doc": "Nothing."}]}"#;

    const TABLE: FlLibrary = FlLibrary {
        describe: Some(describe),
        create: Some(create),
        call: Some(call),
        drop: Some(drop_part),
        free: Some(free),
        ..FlLibrary::OF_THIS_VERSION
    };

    unsafe extern "C" fn describe(_: *const FlHost, json: *mut FlText) -> i32 {
        // SAFETY: the host's place for a text, which is static.
        unsafe { json.write(FlText::of(DESCRIPTION)) };
        FL_OK
    }

    static RANGES: FlLibrary = TABLE;

    static OTHER: FlLibrary = FlLibrary {
        describe: Some(describe_other),
        ..TABLE
    };

    unsafe extern "C" fn describe_other(_: *const FlHost, json: *mut FlText) -> i32 {
        let text = r#"{"messages": [{"kind": "test-ranges", "doc": "", "tensors": [
            {"name": "range", "type": "f64", "shape": "2"}]}], "parts": [
            {"role": "privacy", "name": "a", "signature": "test-ranges", "doc": "b"}]}"#;
        // SAFETY: the host's place for a text, which is static.
        unsafe { json.write(FlText::of(text)) };
        FL_OK
    }

    unsafe extern "C" fn free(_: FlText) {}

    unsafe extern "C" fn drop_part(_: *mut c_void) {}

    unsafe extern "C" fn create(_: u32, _: FlText, _: FlText, host: *const FlHost) -> i32 {
        // SAFETY: the host's own table, during its call; the part is never looked at.
        unsafe { (*host).part.unwrap()((*host).context, std::ptr::dangling_mut::<u64>().cast()) };
        FL_OK
    }

    unsafe extern "C" fn call(
        _: *mut c_void,
        operation: u32,
        input: *const FlInput,
        host: *const FlHost,
    ) -> i32 {
        // SAFETY: of the whole function: the host's own table and input, during its call, and room
        // for as many numbers as the shape says.
        unsafe {
            let (input, host) = (&*input, &*host);
            match operation {
                FL_AGGREGATE | FL_CLIP | FL_PERTURB => {}
                FL_PRICE => {
                    let text = r#"{"Unaccounted": {"why": "it draws no noise"}}"#;
                    host.text.unwrap()(host.context, FlText::of(text));
                    return FL_OK;
                }
                _ => return FL_UNKNOWN,
            }
            let first = &*input.messages;
            for tensor in std::slice::from_raw_parts(first.tensors, first.count) {
                let (name, view) = super::view(tensor).unwrap();
                let shape = view.shape();
                let n: usize = shape.iter().product();
                let room = host.tensor.unwrap()(
                    host.context,
                    FlText::of(name),
                    tensor.dtype,
                    shape.len() as u32,
                    shape.as_ptr(),
                );
                let bytes = view.dtype().bytes(n);
                room.cast::<u8>()
                    .copy_from_nonoverlapping(tensor.data.cast(), bytes);
            }
        }
        FL_OK
    }

    fn imported(origin: &str) -> Vec<&'static PartDecl> {
        // SAFETY: a static table.
        unsafe { abi::import(&raw const RANGES, origin) }.unwrap()
    }

    fn ranges(rows: &[u32], low: f64) -> Erased {
        let tensors = vec![
            (
                "range".into(),
                Tensor::F64(ArrayD::from_elem(IxDyn(&[rows.len(), 2]), low)),
            ),
            ("rows".into(), Tensor::U32(ndarray::arr1(rows).into_dyn())),
            (
                "steps".into(),
                Tensor::I64(ArrayD::from_elem(IxDyn(&[rows.len()]), (4.0 * low) as i64)),
            ),
            (
                "known".into(),
                Tensor::Bits(
                    Bits::new(
                        vec![rows.len(), 5],
                        vec![0b11; (5 * rows.len()).div_ceil(8)],
                    )
                    .unwrap(),
                ),
            ),
        ];
        let of = message_type("test-ranges").unwrap();
        of.from_tensors(TensorMap::new(tensors)).unwrap()
    }

    #[test]
    fn its_parts_work_on_it() {
        let parts = imported("ranges.so");
        let of = message_type("test-ranges").unwrap();
        assert_eq!((of.origin(), of.reach), ("ranges.so", SensitivityNorm::Sum));
        let make = BuildContext {
            task: Task {
                input: vec![1],
                kind: TaskKind::Classes(2),
            },
            stream: Stream::root(0),
        };
        let nothing = Value::Mapping(serde_yaml::Mapping::new());
        let mut first: Box<dyn AnyAggregator> = parts[0].make(&nothing, &make).unwrap();
        let mail = |from, low| ClientMessage::new(from, 1.0, ranges(&[from, from + 3], low));
        let inbox = of.inbox(vec![mail(4, 0.5), mail(2, -0.5)]).unwrap();
        let out = first.aggregate(&Round::first(), &*inbox).unwrap();
        assert_eq!(digest(&*out), digest(&*ranges(&[2, 5], -0.5)));
        assert!(first.fold(&Round::first()).is_none());

        let mut bare: Box<dyn AnyMechanism> = parts[1].make(&nothing, &make).unwrap();
        let mut message = ranges(&[1], 0.25);
        bare.clip(&mut *message).unwrap();
        let everyone = fl_roles::Cohort::all(1);
        let price = bare.price(&*message, &everyone).unwrap();
        assert!(matches!(price, PrivacyEvent::Unaccounted { .. }));
        let noise = ReleaseNoise::seeded(&Stream::root(1));
        bare.perturb(&mut *message, &everyone, &noise).unwrap();
        assert_eq!(digest(&*message), digest(&*ranges(&[1], 0.25)));
        // a protocol of Rust types has no use for it
        let wrong = parts[0].make::<fl_roles::BoxedAggregator<Params, Params>>(&nothing, &make);
        let error = wrong.err().unwrap().to_string();
        assert!(
            error.contains("it is test-ranges -> test-ranges"),
            "{error}"
        );
    }

    #[test]
    fn a_kind_that_another_library_declares_otherwise_is_refused() {
        imported("ranges.so");
        imported("again.so");
        // SAFETY: a static table.
        let error = unsafe { abi::import(&raw const OTHER, "other.so") }
            .err()
            .unwrap()
            .to_string();
        assert!(
            error
                .contains("ranges.so says `rows` of u32 [rows], `range` of f64 [rows x 2], `steps` of i64 [rows], `known` of bits [rows x 5] (a sum)")
                && error.contains("other.so says `range` of f64 [2]"),
            "{error}"
        );
        let columns = message_type("test-ranges").unwrap().columns;
        let names: Vec<_> = columns
            .iter()
            .map(|Column { name, dtype, .. }| (*name, *dtype))
            .collect();
        assert_eq!(names[..2], [("rows", Dtype::U32), ("range", Dtype::F64)]);
    }
}

/// What a later interface may make of the tables: one more function at the end of each.
mod grown {
    use super::super::host::Call;
    use super::super::marshal::{OutgoingMessage, content, of_size, with_messages};
    use super::*;
    use crate::caller::Means;

    #[repr(C)]
    struct LaterHost {
        host: FlHost,
        more: Option<unsafe extern "C" fn()>,
    }

    #[repr(C)]
    struct LaterLibrary {
        library: FlLibrary,
        more: Option<unsafe extern "C" fn()>,
    }

    unsafe extern "C" fn never() {}

    /// Runs `f` with a host that has one more function.
    fn later(call: Call<'_>, f: impl FnOnce(&FlHost) -> i32) -> (i32, super::super::host::Answer) {
        call.run(|host| {
            // SAFETY: the host's own structure, copied as it is.
            let host = unsafe { std::ptr::read(host) };
            let size = size_of::<LaterHost>();
            let more = Some(never as unsafe extern "C" fn());
            let host = FlHost { size, ..host };
            f(&LaterHost { host, more }.host)
        })
    }

    #[test]
    fn a_library_of_today_serves_a_program_with_one_more_function() {
        let table = super::super::library();
        let index = fl_roles::linked_parts()
            .iter()
            .position(|part| part.name == "test-mean")
            .unwrap() as u32;
        let (stream, task) = (Stream::root(0), r#"{"input": [1], "kind": {"Classes": 2}}"#);
        let call = || Call::new("a library", Means::stream(&stream));
        let (code, answer) = later(call(), |host| {
            let (settings, task) = (FlText::of("{}"), FlText::of(task));
            // SAFETY: everything handed over lives through the call.
            unsafe { table.create.unwrap()(index, settings, task, host) }
        });
        let [part] = answer.parts[..] else {
            panic!("{code}: {:?}", answer.failure)
        };
        let inbox = inbox();
        let contents: Vec<_> = inbox.iter().map(|mail| content(&mail.body)).collect();
        let letters: Vec<_> = contents.iter().map(OutgoingMessage::new).collect();
        let text = r#"{"number": 1, "last": false, "name": "round 1"}"#;
        let (code, answer) = with_messages(&letters, |messages| {
            let input = FlInput {
                size: size_of::<FlInput>(),
                text: FlText::of(text),
                messages: messages.as_ptr(),
                count: messages.len(),
            };
            later(call(), |host| {
                // SAFETY: the part is the library's own, and all else lives through the call.
                unsafe { table.call.unwrap()(part, FL_AGGREGATE, &raw const input, host) }
            })
        });
        assert_eq!((code, answer.failure), (FL_OK, None));
        assert_eq!(answer.tensors[0].0, "w");
        // SAFETY: the library made it, and it is dropped once.
        unsafe { table.drop.unwrap()(part) };
    }

    #[test]
    fn a_program_with_one_more_function_reads_a_library_of_today() {
        let table = super::super::library();
        let size = table.size as usize;
        // SAFETY: the table has as many bytes as it says, and zeros are no functions.
        let read: LaterLibrary = unsafe { of_size(std::ptr::from_ref(table).cast(), size) };
        assert!(read.more.is_none());
        assert_eq!(
            read.library.call.map(|f| f as usize),
            table.call.map(|f| f as usize)
        );
        assert_eq!(
            read.library.free.map(|f| f as usize),
            table.free.map(|f| f as usize)
        );
    }
}

settings! {
    /// A trainer that only looks at the loss on features that a method adds; its own is no number.
    struct TestTrainer {
        /// Takes a loss on features.
        takes: bool = true;
    }
}

impl TestTrainer {
    fn new(settings: TestTrainer, _: &BuildContext) -> Result<Self> {
        Ok(settings)
    }
}

impl Trainer for TestTrainer {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        let Some(of) = pass.feature_loss else {
            return Ok(FitReport {
                steps: 1,
                loss: f64::NAN,
                falls: Some(false),
            });
        };
        let term = FeatureTerm::of(of, x.values().view(), target, &[0, 1], stream)?;
        let slopes: f32 = term.by_features.iter().sum();
        Ok(FitReport {
            steps: 1,
            loss: term.loss + 100.0 * f64::from(slopes),
            falls: None,
        })
    }
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        Ok(x.values())
    }
    fn abilities(&self) -> Abilities {
        Abilities {
            feature_loss: self.takes,
            least_batch: 2 + usize::from(self.takes),
            schedule_length: self.takes.then_some(9),
            schedule_end: self.takes.then_some(0.01),
            schedules_pass: self.takes,
            schedules_epoch: self.takes,
            step_momentum: self.takes.then_some(0.9),
            beside_gradient: vec!["dropout".into(); usize::from(self.takes)],
            decays_weights: self.takes,
            starts_again: self.takes,
            ..Abilities::default()
        }
    }
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}
plugin!(trainer "test-trainer" => TestTrainer as TestTrainer);

impl Parametric for TestTrainer {
    fn params(&self) -> Params {
        params(ArrayD::zeros(IxDyn(&[2])))
    }
    fn buffers(&self) -> BTreeSet<String> {
        BTreeSet::from(["w".into()])
    }
    fn set_params(&mut self, _: &Params) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_trainer_says_of_itself_crosses_to_the_program() {
    for takes in [true, false] {
        let mut model: Box<dyn Trainer> = test_trainer(&format!("{{takes: {takes}}}")).unwrap();
        let due = Abilities {
            feature_loss: takes,
            least_batch: 2 + usize::from(takes),
            schedule_length: takes.then_some(9),
            schedule_end: takes.then_some(0.01),
            schedules_pass: takes,
            schedules_epoch: takes,
            step_momentum: takes.then_some(0.9),
            beside_gradient: vec!["dropout".into(); usize::from(takes)],
            decays_weights: takes,
            starts_again: takes,
            ..Abilities::default()
        };
        assert_eq!(model.abilities(), due);
        assert_eq!(
            model.parametric().unwrap().buffers(),
            ["w".to_string()].into()
        );
    }
}

fn test_trainer(settings: &str) -> Result<Box<dyn Trainer>> {
    let parts: Vec<&PartDecl> = super::import_linked("there");
    let part = parts.iter().find(|p| p.name == "test-trainer").unwrap();
    let make = BuildContext {
        task: Task {
            input: vec![2],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    };
    part.make(&serde_yaml::from_str(settings)?, &make)
}

#[test]
fn a_loss_that_is_no_number_crosses_to_the_program() {
    let x = Samples::fresh(Array2::zeros((1, 2)), vec![2]).unwrap();
    let pass = FitOptions::new(fl_roles::Length::Steps(1), 1, fl_roles::Loss::CrossEntropy);
    let mut model = test_trainer("{}").unwrap();
    let report = model.fit(&x, Target::Classes(&[0]), &pass, &Stream::root(0));
    let report = report.unwrap();
    assert!(report.loss.is_nan());
    assert_eq!((report.steps, report.falls), (1, Some(false)));
}

/// The sum of features whose class is 1, and slopes of one shape or another.
#[derive(Debug)]
struct OfClassOne {
    key: [u8; 32],
    narrow: bool,
}

impl FeatureLoss for OfClassOne {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        stream: &Stream,
    ) -> Result<FeatureTerm> {
        assert_eq!((stream.key(), rows), (self.key, &[0, 1][..]));
        let Target::Classes(classes) = target else {
            bail!("there is no such loss for other targets than classes");
        };
        let ones = Array2::from_shape_fn(features.dim(), |(i, _)| {
            f32::from(u8::from(classes[i] == 1))
        });
        let loss = f64::from((&ones * &features).sum());
        let by_features = if self.narrow {
            ones.slice_move(ndarray::s![.., ..1])
        } else {
            ones
        };
        Ok(FeatureTerm { loss, by_features })
    }
}

#[test]
fn a_loaded_trainer_asks_for_the_loss_on_its_features() {
    let stream = Stream::root(7);
    let fit = |settings: &str, narrow| -> Result<f64> {
        let mut model = test_trainer(settings)?;
        let x = Samples::fresh(ndarray::array![[1.0, 2.0], [4.0, 8.0]], vec![2])?;
        let loss = OfClassOne {
            key: stream.key(),
            narrow,
        };
        let pass = FitOptions {
            feature_loss: Some(&loss),
            ..FitOptions::new(fl_roles::Length::Steps(1), 2, fl_roles::Loss::CrossEntropy)
        };
        let report = model.fit(&x, Target::Classes(&[0, 1]), &pass, &stream)?;
        Ok(report.loss)
    };
    assert_eq!(fit("{}", false).unwrap(), 212.0);
    let error = |settings, narrow| format!("{:#}", fit(settings, narrow).unwrap_err());
    let found = error("{takes: false}", false);
    assert!(
        found.contains("it takes no loss on its features"),
        "{found}"
    );
    let found = error("{}", true);
    assert!(
        found.contains("slopes of shape (2, 1); expected (2, 2)"),
        "{found}"
    );
}
