//! What crosses between a program and a library: plain C types. `include/fl_plugin.h` is generated
//! from this file.

use std::ffi::c_void;

/// The first eight bytes of every library's table: `FLPLUGIN`.
pub const FL_MAGIC: u64 = 0x4E49_4755_4C50_4C46;
/// The interface that this header describes. What a later one has more stands at the end of a
/// structure.
pub const FL_VERSION: u32 = 1;

/// Done.
pub const FL_OK: i32 = 0;
/// It cannot be done; `FlHost.fail` has the reason.
pub const FL_ERROR: i32 = 1;
/// This part has no such operation. Right for every operation that is called optional here.
pub const FL_UNKNOWN: i32 = 2;
/// The library panicked, and is still usable.
pub const FL_PANIC: i32 = 3;
/// An accountant has no price for the event.
pub const FL_UNPRICED: i32 = 4;
/// Shapes, names or lengths do not fit together.
pub const FL_SHAPE: i32 = 5;
/// The part does not have an ability that was asked for.
pub const FL_LACKS: i32 = 6;
/// Numbers are no longer finite, such as those of a training.
pub const FL_DIVERGED: i32 = 7;

/// Noise follows the run's seed.
pub const FL_SEEDED: u32 = 0;
/// Noise follows a key of the operating system, and is exact.
pub const FL_SYSTEM: u32 = 1;

/// Tensors of `float`.
pub const FL_F32: u32 = 0;
/// Tensors of `double`.
pub const FL_F64: u32 = 1;
/// Tensors of `uint32_t`.
pub const FL_U32: u32 = 2;
/// Tensors of bytes, one-dimensional and contiguous.
pub const FL_U8: u32 = 3;
/// Tensors of `int64_t`.
pub const FL_I64: u32 = 4;
/// Tensors of bits in row order, contiguous, eight in a byte, the first in the lowest bit. Strides
/// do not count, and what is left of the last byte is 0.
pub const FL_BITS: u32 = 5;

/// Optional, of a library (`part` is NULL). Text `{"part": 0, "settings": {..}}`; gives the text
/// `{"settings": {..}}` with every default filled in, or
/// `{"mistakes": [{"path": ["net", 0], "text": "..", "on_key": false}]}`. Without it the host
/// checks settings by the `settings` of the description.
pub const FL_CHECK: u32 = 1;
/// Optional. Gives a text: aggregators and attacks
/// `{"needs": [..], "claims": [..], "robustness": null, "folds": false}` with needs of `samples`,
/// `class_counts`, `training_loss`, `sent`, claims of `order_free`, `weight_scale_free`,
/// `weight_free`, `within_hull`, `of_mean`, and a robustness such as
/// `{"share": 0.1, "per_bad": 2, "besides": 1}`; selectors `{"draw": "unknown", "needs_scores": false}` with a draw as in
/// `FL_PRICE`; trainers
/// `{"parametric": false, "differentiable": false, "learns": ["CrossEntropy", "Mae", "Mse", {"Huber": {"delta": 1}}, "Norm", {"Kl": {"tau": 1}}], "feature_loss": false}`,
/// where no `learns` stands for all losses; with `"vocabulary": 1000` if samples must be numbers of
/// words from 0 to 999; with `"buffers": ["norm.running_var"]`, the parameters that are statistics
/// of data: they are averaged, and no server optimiser takes a step with them; with
/// `"least_batch": 2` if training skips mini-batches of fewer samples; with
/// `"schedule_length": 100` if a learning-rate schedule takes this number of mini-batches, and
/// `"schedule_end": 0.001` if the rate stays there after them; with
/// `"schedules_pass": true` if it falls along each training, or `"schedules_epoch": true` at the
/// end of each epoch and training; with `"step_momentum": 0.9` if each step is exactly
/// `v = 0.9 v + g`, `w = w - lr v`; with `"beside_gradient": ["dropout"]`, what training does and
/// FL_GRADIENT leaves out; with `"decays_weights": true` if steps have weight decay; with
/// `"starts_again": true` if each training starts again, and knows nothing of earlier ones; with
/// `"scales_rate": true` if FL_TRAIN and FL_DESCEND may scale its learning rate; with
/// `"gradient_terms": true` if FL_TRAIN may have `proximal`, `gradient_offset` and `clip`.
pub const FL_DESCRIBE: u32 = 2;
/// Optional: the state kept between calls. Gives the tensor `state` (bytes), or none if there is no
/// state.
pub const FL_SAVE: u32 = 3;
/// Takes back what `FL_SAVE` gave: one message with the tensor `state`.
pub const FL_LOAD: u32 = 4;

/// Optional, of a library (`part` is NULL): the most bytes of one message of a kind that it
/// declares. Text
/// `{"kind": "spreads", "params": 9, "rows": 50, "inputs": 4, "outputs": 3, "classes": 3, "model": null}`,
/// where `model` is the bytes of a model in its own format; gives the text of a whole number, or
/// `null`.
pub const FL_BYTES: u32 = 5;

/// Aggregator, and attack (role `attack`, signature `params`). The messages of an inbox, in client
/// order, finite and alike; text `{"number": 1, "last": false, "name": "round 1"}`, with
/// `"buffers": ["norm.running_var"]` if parameters have buffers, to be averaged only. Gives the
/// tensors of the result, and optionally a text
/// `{"notes": ["for the user"], "numbers": [["left-out", 2.0]]}`.
pub const FL_AGGREGATE: u32 = 10;
/// Aggregator, optional: gives a new part that takes `FL_FOLD_ADD` for each message and then one
/// `FL_FOLD_FINISH`. Text as `FL_AGGREGATE`.
pub const FL_FOLD: u32 = 11;
/// Takes one message in.
pub const FL_FOLD_ADD: u32 = 12;
/// Gives the tensors of the result.
pub const FL_FOLD_FINISH: u32 = 13;
/// Aggregator that needs `sent`. What the clients were sent in this round, one message, before
/// `FL_AGGREGATE` or `FL_FOLD`.
pub const FL_SENT: u32 = 14;
/// Aggregator, optional: what becomes of a fold's result. One message, text as `FL_AGGREGATE`;
/// gives the tensors of the result.
pub const FL_UPDATE: u32 = 15;

/// Selector, optional. One message: a client's own samples, the tensor `values` (`samples x ..`),
/// and `classes` (numbers), `multi-label` (floats: 1, 0, -1 for unknown), `pixels` (floats: the
/// classes of an image's pixels) or `images` (floats of 0 to 1,
/// `samples x channels x height x width`: those to be made); text `{"classes": 10, "samples": 7}`,
/// as in FL_TRAIN.
pub const FL_FIT: u32 = 20;
/// Selector. One message: the tensors `clients` (numbers), `sizes` and `losses` (doubles, NaN where
/// unknown), or `values` of samples; text as `FL_AGGREGATE`. Gives the tensor `positions`
/// (numbers), ascending, and optionally a text as `FL_AGGREGATE`.
pub const FL_SELECT: u32 = 21;
/// Selector of clients, optional. As `FL_SELECT`; gives the text of the numbers that it needs
/// before it selects, `{"wanted": "samples", "of": [0, 2]}` with positions, or `loss` in place of
/// `samples`, or `null`. It is called again with these numbers.
pub const FL_POLL: u32 = 22;

/// Selector, optional. As `FL_SELECT`; gives the tensor `ranks` (doubles), a number for each of the
/// pool, higher for a preferred one, or none. For reports only.
pub const FL_RANK: u32 = 23;

/// Mechanism. One message in, the bounded message out.
pub const FL_CLIP: u32 = 30;
/// Mechanism, optional. One message in; gives the text of a number, or `null`.
pub const FL_RANGE: u32 = 31;
/// Mechanism, optional. Text: the largest range of all clients.
pub const FL_AGREE: u32 = 32;
/// Mechanism. One message in, text `{"clients": 10, "of": 20, "draw": "everyone"}`, where a draw is
/// `everyone`, `{"poisson": {"rate": 0.1}}`, `fixed-size` or `unknown`; gives the text of a privacy
/// event.
pub const FL_PRICE: u32 = 33;
/// Mechanism. One message in, text as `FL_PRICE`; gives the message with noise, drawn with
/// `add_laplace`, `add_gaussian` or, for choices between labels, `fill_uniform`.
pub const FL_PERTURB: u32 = 34;
/// Mechanism, optional. One message in; gives the text of a whole number.
pub const FL_QUERIES: u32 = 35;
/// Mechanism, optional. One message in, text `{"queries": 3}`; gives the message with the first of
/// them.
pub const FL_TRUNCATE: u32 = 36;
/// Mechanism, optional. Text: a privacy event; gives the text of the event to charge.
pub const FL_ACTUAL_COST: u32 = 37;
/// Mechanism, optional. Gives the text of the largest Euclidean norm that `FL_CLIP` lets pass, if
/// that only shortens longer messages to it and replaces those that are not finite by zeros; or
/// `null`.
pub const FL_NORM_BOUND: u32 = 38;

/// Accountant. Text: a privacy event.
pub const FL_CHARGE: u32 = 40;
/// Accountant. Text: a privacy event, or `null`; gives the text of a guarantee. An `epsilon` of
/// `null` is infinite.
pub const FL_GUARANTEE: u32 = 41;
/// Accountant. Text `{"ledgers": [{"client": 0, "events": []}], "how": "parallel"}`, or
/// `sequential`.
pub const FL_MERGE: u32 = 42;

/// Generator. Text `{"samples": 64}`; gives the tensor `values`, `samples x ..`.
pub const FL_SAMPLE: u32 = 50;
/// Generator. One message: `values` as sampled last, and `slope`, a number for each of theirs
/// (`samples x width`); text as in FL_PREDICT.
pub const FL_LEARN: u32 = 51;

/// Trainer. A message with `values` and `target`, then the anchor's parameters if `proximal` is not
/// null, then the offset's if `gradient_offset` is true; text
/// `{"length": {"Steps": 5}, "batch": 16, "loss": "CrossEntropy", "fresh": false, "proximal": null, "gradient_offset": false, "clip": null, "target": "classes"}`,
/// where a target is of `classes`, `multi-label`, `pixels` (floats), `soft` or `scores` (also
/// numbers to predict, on the label's scale), and
/// `"samples": 7`, a number from 1 that no other samples of the program have: who keeps what it made
/// of samples, such as a copy on a card, knows them again. Gives the text
/// `{"steps": 5, "loss": 0.3}`, with `null` for a loss that is not finite, and if it knows whether the loss still fell at the end, `"falls":
/// true` or `false`. With `"rate": 0.5`, which only a trainer with `scales_rate` is told, its
/// learning rate is this times its own in this pass. With `"auxiliary": true`, which only a trainer with `FL_HEAD` is told, it asks
/// `FlHost.call` for a loss to add in every mini-batch: FL_AUXILIARY_LOSS. With `"feature_loss":
/// true`, which only a trainer is told that has it in the text of FL_DESCRIBE, for FL_FEATURE_LOSS.
pub const FL_TRAIN: u32 = 60;
/// Trainer. One message with `values`, text `{"samples": 7}` as in FL_TRAIN; gives the tensor
/// `scores`, `samples x outputs`.
pub const FL_PREDICT: u32 = 61;
/// Trainer, optional. As FL_PREDICT; gives the tensor `features`, or none.
pub const FL_FEATURES: u32 = 62;
/// Trainer, optional. Model and optimiser: gives the tensor `state`.
pub const FL_SAVE_STATE: u32 = 63;
/// Takes back what `FL_SAVE_STATE` gave.
pub const FL_LOAD_STATE: u32 = 64;
/// Parametric trainer. Gives the parameters, one tensor of floats each.
pub const FL_PARAMS: u32 = 65;
/// Parametric trainer. One message: the parameters.
pub const FL_SET_PARAMS: u32 = 66;
/// Differentiable trainer. One message with `values` and `slope`, text as in FL_PREDICT; gives the
/// tensor `slopes`, `samples x width`.
pub const FL_VJP: u32 = 67;
/// Parametric trainer, optional. One message with `values` and `target`, text
/// `{"loss": "CrossEntropy", "target": "classes"}`; gives the gradient of the mean loss, one tensor
/// of floats for each parameter.
pub const FL_GRADIENT: u32 = 68;
/// Parametric trainer, optional. Gives the text of the present step size, or `null`.
pub const FL_STEP_SIZE: u32 = 69;
/// Trainer, optional. What the client remembers beside model and optimiser, which outlasts a model
/// that is made anew for each question: gives the tensor `state`, or none. `FL_SAVE_STATE` holds it
/// too.
pub const FL_SAVE_MEMORY: u32 = 70;
/// Takes back what `FL_SAVE_MEMORY` gave; model and optimiser stay as they are.
pub const FL_LOAD_MEMORY: u32 = 71;
/// Parametric trainer, optional. One message: a gradient, named and shaped as `FL_PARAMS`; text
/// `{"at": 0, "of": 10}`. Takes one step of the optimiser along it, as after batch `at` of `of`; at
/// `"rate": 0.5` times its learning rate, as in FL_TRAIN.
pub const FL_DESCEND: u32 = 72;
/// Trainer, optional. Gives the last layer on the features of `FL_FEATURES`: the tensors `weight`
/// (`outputs x features`) and `bias` of doubles, or none.
pub const FL_HEAD: u32 = 73;
/// Parametric trainer, optional. As `FL_GRADIENT`, and the text has a `clip`: gives the sum of the
/// gradients of single samples, each shortened to this Euclidean norm, or no tensor.
pub const FL_CLIPPED_GRADIENTS: u32 = 74;

/// Protocol. Gives the text of what it declares: `{"slots": [..], "exchanges": [..], "grows": null,
/// "begins_with": null, "loads": null, "pooled": false, "measures": null}`, as
/// fl-core/abi/src/declaration.rs has them.
pub const FL_DECLARE: u32 = 80;
/// Protocol: the server's side. Text
/// `{"task": {..}, "filled": ["model"], "everyone": {"ids": [0, 1], "of": 2, "draw": "everyone"}}`.
/// All that it does goes through `FlHost.call`, from FL_MODEL on. An error has the text
/// `{"text": "..", "problem": null}` beside `FlHost.fail`.
pub const FL_LEAD: u32 = 81;
/// Protocol: a client's answer. Text `{"label": "..", "round": 1, "task": {..}, "filled":
/// ["model"]}`, which is mostly that of the call before, and the message that was sent. The client is the sender of the
/// message, and its key is `FlHost.key`. Gives the tensors of the answer. As FL_LEAD otherwise.
pub const FL_ANSWER: u32 = 82;
/// Protocol, optional. Text `{"filled": ["model", "data.public"]}`; gives a list of
/// `{"setting": null, "text": ".."}`.
pub const FL_CONFLICTS: u32 = 83;
/// Protocol, optional. Text `{"kind": {"Classes": 10}, "filled": []}`; gives `null`, or the text of
/// what stands in the way.
pub const FL_SUITS: u32 = 84;
/// Protocol, of a slot with `"own_task": true`. Text `{"slot": "..", "task": {..}}`; gives the task
/// of its parts.
pub const FL_TASK: u32 = 85;
/// Of the side that called, in the middle of its call. A protocol's FL_RUN with `forms` asks it for
/// another form of an answer: one message, and its envelope as in FL_COLLECT. Gives the message, and
/// the text of its envelope.
pub const FL_FORM: u32 = 91;
/// Of the side that called, in the middle of FL_TRAIN: a loss that is added to that of a mini-batch.
/// Text `{"target": "classes", "key": [..]}`, and one message with `weight`, `bias` (doubles, the
/// last layer before the step), `scores` (floats) and `target` (as in FL_TRAIN, but `multi-label` of
/// `int64_t` and `pixels` of numbers). Gives `loss` (one double), `by-scores` (floats), `weight` and
/// `bias`: the slopes of that loss.
pub const FL_AUXILIARY_LOSS: u32 = 92;
/// As FL_AUXILIARY_LOSS, with `features` (floats, `samples x features`), `target`, and `rows`
/// (`uint32_t`: which samples of FL_TRAIN these are, from 0). Gives `loss` and `by-features`
/// (floats).
pub const FL_FEATURE_LOSS: u32 = 93;

/// Of server and client: what a protocol asks of part 0 in the middle of FL_LEAD or FL_ANSWER. Text
/// `{"slot": "model"}`; gives the text of a number: the model in this slot takes the operations of
/// a trainer by that number, and then samples may be rows of a set that both sides know. The text
/// has `"set": 3` in place of `"samples": 7`, and `"first": 50` or the tensor `ids` in place of
/// `values`. Below, `samples` has the text of such samples, and `examples` has that and `labels`: a
/// number of the set's labels, or `null` and the tensor `labels`. A `round` is as FL_BEGIN_STEP
/// gives it, `kind` is that of the messages, and a number that JSON does not have is `null`.
pub const FL_MODEL: u32 = 100;
/// Of server and client. As FL_MODEL, of a generator.
pub const FL_GENERATOR: u32 = 101;
/// Of server and client. Gives the text `{"samples": {..}, "labelled": null, "truth": null}` of the
/// public data, the latter two as examples, and their tensors, whose names begin with `0/`, `1/`
/// and `2/`.
pub const FL_PUBLIC: u32 = 102;
/// Of server and client. Text `{"set": 3}`; gives the tensor `set`: inputs, as Rust's `postcard`
/// writes them.
pub const FL_INPUTS: u32 = 103;
/// Of server and client. Text `{"set": 3, "at": 0}`; as FL_INPUTS, labels.
pub const FL_LABELS: u32 = 104;
/// Of server and client. Text of samples, and their message; gives the tensor `values`,
/// `samples x ..`.
pub const FL_VALUES: u32 = 105;
/// Of server and client. Text of examples, `{"samples": {..}, "labels": 0}`, and their message;
/// gives the tensor `target`, and the text of its kind.
pub const FL_TARGETS: u32 = 106;
/// Of server and client. Text `{"part": 1}`: the protocol needs the part with this number no more.
pub const FL_DROP: u32 = 107;
/// Releases a message. Of a server: text `{"label": "..", "round": {..}, "kind": "params",
/// "cohort": {"ids": [0, 1], "of": 2, "draw": "everyone"}, "clip": true}`, by the mechanism of this
/// exchange. Of a client: text `{"slot": "privacy", "kind": "params"}`. Gives the message, and the
/// text of its kind. So do two operations of parts, for a server or client: FL_CLIP, of text
/// `{"slot": "privacy", "kind": "params", "agreed": null}`, and FL_AGGREGATE, of text `{"slot":
/// "aggregator", "round": {..}, "kind": "params", "shown": null}`, where `shown` is the kind of a
/// last message, which the round shows.
pub const FL_RELEASE: u32 = 108;
/// Server. Text `{"slot": "model"}`; gives the list of the clients that have a part in this slot.
pub const FL_WHO: u32 = 110;
/// Server. Text `{"at_least": 1}`; gives the cohort of the clients with this many examples.
pub const FL_WITH_EXAMPLES: u32 = 111;
/// Server. Text `{"round": {..}, "label": ".."}`, and one message if a selector may request the
/// loss of a model: the model. Gives the cohort of this exchange. The server's FL_SELECT has the
/// text `{"slot": "selector", "round": {..}, "pool": "samples", "samples": {..}}`.
pub const FL_COHORT: u32 = 112;
/// Server. Text `{"round": {..}, "label": "..", "to": [0, 1], "which": [0, 0]}`, where `which` has
/// the position of each client's message. Gives the list of answers, each as `{"from": 0, "weight":
/// 1.0, "class_counts": null, "training_loss": null}`, and their tensors, whose names begin with
/// their positions: `0/`.
pub const FL_COLLECT: u32 = 113;
/// Server. Text `{"round": {..}, "label": "..", "cohort": {..}, "which": [0, 0], "shown": null,
/// "forms": false}`: collects, aggregates and releases. With `forms` the program asks back for
/// another form of each answer. Gives the message, and the text of its kind.
pub const FL_RUN: u32 = 114;
/// Server. Text `{"slot": "privacy", "kind": "params", "cohort": {..}}`, and a message like that of
/// a release; fails if the budget does not pay for it.
pub const FL_AFFORDS: u32 = 115;
/// Server. Text `{"slot": "privacy", "kind": "logits"}`; gives `true` if the mechanism wants a
/// range on which clients agree. A client's FL_RANGE, of the same text and with a message, gives
/// its own, or `null`.
pub const FL_WANTS_RANGE: u32 = 116;
/// Server. Text `{"name": "round 1", "number": 1, "of": 10}`; gives `"skipped"`, `"restored"` with
/// the tensor `state`, or `{"attempt": {"round": {"name": "round 1", "number": 1, "last": false,
/// "key": [..]}, "undoable": false}}`.
pub const FL_BEGIN_STEP: u32 = 117;
/// Server. Text `{"failed": null}`, or with the text of an error as in FL_LEAD; gives `"done"`,
/// `"undone"` or another attempt.
pub const FL_JUDGE_STEP: u32 = 118;
/// Server. One message: the tensor `state`.
pub const FL_FINISH_STEP: u32 = 119;
/// Server. Text `{"slot": "model", "round": {..}}`.
pub const FL_EVALUATE: u32 = 120;
/// Server. Text as in FL_EVALUATE, with `"to": [0, 2]` if only these clients' models are meant,
/// and a message if models are to have these parameters.
pub const FL_EVALUATE_CLIENTS: u32 = 121;
/// Server. Text `{"slot": "model", "round": {..}, "whose": [0, 0]}`, and a message for each model,
/// where `whose` has the position of each client's; gives the tensor `scores` (doubles).
pub const FL_EVALUATE_FOR_CLIENTS: u32 = 122;
/// Server. Text `{"round": {..}, "name": "..", "value": 0.5}`.
pub const FL_RECORD: u32 = 123;
/// Server. Text `{"round": {..}, "name": "..", "each": [0.5, null]}`, in the order of clients.
pub const FL_RECORD_EACH: u32 = 124;
/// Server. Text `{"slot": "model", "name": ".."}`.
pub const FL_KEEP_MODEL: u32 = 125;
/// Server. Text `{"slot": "generator"}`.
pub const FL_KEEP_GENERATOR: u32 = 126;
/// Server. Text `{"name": "..", "samples": {..}}`, and their message.
pub const FL_KEEP_IMAGES: u32 = 127;
/// Server. Text `{"slot": "model"}`, with `"to": [0, 2]` if only these clients' models are meant.
pub const FL_KEEP_CLIENTS: u32 = 128;
/// Server. Text `{"text": ".."}`.
pub const FL_WARN: u32 = 129;
/// Server. Text `{"slot": "model"}`; gives the number of a reader of models, for FL_READ.
pub const FL_READER: u32 = 130;
/// Server. Text `{"part": 1, "client": 0}`, and the tensor `model`; gives the number of a model.
pub const FL_READ: u32 = 131;
/// Client. Gives its examples.
pub const FL_OWN: u32 = 140;
/// Client. Text `{"slot": "privacy"}`; gives the examples that the mechanism in this slot has
/// drawn.
pub const FL_PRIVATE: u32 = 141;
/// Client. Text `{"slot": "privacy"}`.
pub const FL_DRAW_PRIVATE: u32 = 142;
/// Client. Text `{"text": ".."}`.
pub const FL_NOTE: u32 = 143;
/// Client. Text `{"name": "..", "value": 0.5}`.
pub const FL_MEASURE: u32 = 144;
/// Client. Text `{"slot": "model", "index": 0}`; gives the number of a model.
pub const FL_NEW_MODEL: u32 = 145;
/// Client. Text `{"slot": "model", "part": 1}`, with a number from FL_NEW_MODEL.
pub const FL_SET_MODEL: u32 = 146;
/// Client. Text `{"value": 0.3}`: the mean loss of its training, or `null`.
pub const FL_FITTED: u32 = 147;
/// Client. Text `{"slot": "selector"}`; gives `[1, "samples"]`, the number of a selector and its
/// pool.
pub const FL_TAKE_SELECTOR: u32 = 148;
/// Client. Text `{"slot": "selector", "part": 1}`.
pub const FL_PUT_SELECTOR: u32 = 149;
/// Client. Text `{"name": ".."}`, and the tensor `kept`.
pub const FL_STASH: u32 = 150;
/// Client. Text `{"name": ".."}`; gives the tensor `kept`, or none.
pub const FL_STASHED: u32 = 151;
/// Client. As FL_STASHED, and keeps it no more.
pub const FL_UNSTASH: u32 = 152;
/// Client. Text `{"name": "..", "kind": "params"}`, and a message.
pub const FL_CACHE: u32 = 153;
/// Client. As FL_STASHED, of a message.
pub const FL_CACHED: u32 = 154;
/// Client. Text `{"slot": "privacy", "kind": "params"}`, and a message like those of the steps;
/// gives `[1, 100]`, the number of a mechanism and how many steps there are.
pub const FL_BEGIN_STEPS: u32 = 155;
/// Client. Text `{"at": 0}`; gives the positions of the examples of this step.
pub const FL_DRAW_LOT: u32 = 156;
/// Client. Text `{"at": 0, "part": 1, "kind": "params"}`, and a message; gives it as FL_RELEASE
/// does.
pub const FL_RELEASE_STEP: u32 = 157;
/// Client. Text `{"slot": "privacy", "part": 1}`.
pub const FL_END_STEPS: u32 = 158;
/// Client. Gives the rows that it has held back from its examples, if the exchange declares that it
/// uses them.
pub const FL_HELD_OUT: u32 = 159;

/// UTF-8, not ended by a zero. Borrowed for the call, unless stated otherwise.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlText {
    /// The first byte; may be NULL if there is none.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// A borrowed tensor, to be read only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlTensor {
    /// Its name, one of its kind in a message.
    pub name: FlText,
    /// The number at `0, 0, ..`.
    pub data: *const c_void,
    /// One number for each dimension.
    pub shape: *const usize,
    /// How far apart neighbours are, in numbers, for each dimension; may be 0 or negative.
    pub strides: *const isize,
    /// How many dimensions; 0 for a single number.
    pub dimensions: u32,
    /// FL_F32, FL_F64, FL_U32, FL_U8, FL_I64 or FL_BITS.
    pub dtype: u32,
}

/// A message and its sender.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlMessage {
    /// The sender's number.
    pub from: u32,
    /// Length of `class_counts`.
    pub classes: u32,
    /// How much it counts: finite, at least 0.
    pub weight: f64,
    /// Examples of each class at the sender; NULL unless the part asked for them.
    pub class_counts: *const u32,
    /// Its tensors.
    pub tensors: *const FlTensor,
    /// How many tensors.
    pub count: usize,
    /// The mean loss of the training that made the message; NaN unless the part asked for it.
    pub training_loss: f64,
}

/// What an operation is given. All of it is borrowed for the call.
#[repr(C)]
pub struct FlInput {
    /// `sizeof(FlInput)` of the host.
    pub size: usize,
    /// JSON; each operation describes its content.
    pub text: FlText,
    /// The messages.
    pub messages: *const FlMessage,
    /// How many messages.
    pub count: usize,
}

/// What the host does for a library during one call, and only then. Every answer goes through it,
/// so no memory of the library is ever freed by the host. Any thread may call `log` and
/// `parallel_for`, the caller's thread all of them.
#[expect(
    clippy::type_complexity,
    reason = "the header is made from these lines, and C has no such alias"
)]
#[repr(C)]
pub struct FlHost {
    /// `sizeof(FlHost)` of the host.
    pub size: usize,
    /// To be handed back to every function here.
    pub context: *mut c_void,
    /// The key of this call's random stream; a library must draw from nothing else.
    pub key: [u8; 32],
    /// Something for people to read. Level 1 is an error, 2 a warning, 3 information, 4 for those
    /// who search.
    pub log: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: FlText)>,
    /// Why the call fails, and which setting is to blame (`net[0].width`; empty: none).
    pub fail: Option<unsafe extern "C" fn(context: *mut c_void, setting: FlText, text: FlText)>,
    /// The answer's text: JSON.
    pub text: Option<unsafe extern "C" fn(context: *mut c_void, json: FlText)>,
    /// Room for a tensor of the answer: in row order, zeros. Fill it before the call returns. NULL:
    /// it was refused, and the call will be an error whatever it returns.
    pub tensor: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            name: FlText,
            dtype: u32,
            dimensions: u32,
            shape: *const usize,
        ) -> *mut c_void,
    >,
    /// A new part, which the host will `drop` one day: the answer of `create` and of `FL_FOLD`.
    pub part: Option<unsafe extern "C" fn(context: *mut c_void, part: *mut c_void)>,
    /// The next numbers of the call's stream, uniform in `[0, 1)`.
    pub fill_uniform: Option<unsafe extern "C" fn(context: *mut c_void, out: *mut f64, n: usize)>,
    /// The next numbers of the call's stream, standard normal. Not for `FL_PERTURB` where `noise`
    /// is FL_SYSTEM.
    pub fill_normal: Option<unsafe extern "C" fn(context: *mut c_void, out: *mut f64, n: usize)>,
    /// Calls `work(argument, i, chunk, length)` for every chunk of `size` of the `n` numbers at
    /// `data`, on the host's threads, in any order; returns when all is done. Results must not
    /// depend on how the work is cut.
    pub parallel_for: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            data: *mut f32,
            n: usize,
            size: usize,
            work: Option<
                unsafe extern "C" fn(
                    argument: *mut c_void,
                    i: usize,
                    chunk: *mut f32,
                    length: usize,
                ),
            >,
            argument: *mut c_void,
        ),
    >,
    /// Where the noise of `FL_PERTURB` comes from: FL_SEEDED or FL_SYSTEM.
    pub noise: u32,
    /// Adds Laplace noise of this scale to each of the `n` numbers at `values`. Noise of the system
    /// is drawn on a grid, to which the numbers are moved first, towards 0.
    pub add_laplace:
        Option<unsafe extern "C" fn(context: *mut c_void, values: *mut f64, n: usize, scale: f64)>,
    /// As `add_laplace`, with normal noise of this standard deviation.
    pub add_gaussian:
        Option<unsafe extern "C" fn(context: *mut c_void, values: *mut f64, n: usize, sigma: f64)>,
    /// Asks the maker of this for an operation in the middle of the call, as `FlLibrary.call` asks a
    /// library; `host` takes the answer, is one that the caller fills in, and has the key of the
    /// operation's random stream. `part` is a number that FL_MODEL has given for a part of the
    /// program, with which a protocol does the operations of its role, or 0. Right while a protocol
    /// leads or answers or a trainer trains with an auxiliary loss, and then for the caller's
    /// thread; NULL in other calls.
    pub call: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            part: u64,
            operation: u32,
            input: *const FlInput,
            host: *const FlHost,
        ) -> i32,
    >,
}

/// What a library exports, under the name `fl_plugin`. Every function is needed.
///
/// A part may move between threads and is used by one at a time; different parts are used at the
/// same time. Every function must return: no exception and no `longjmp` may leave one, and the host
/// sets no time limit.
#[repr(C)]
pub struct FlLibrary {
    /// FL_MAGIC.
    pub magic: u64,
    /// FL_VERSION.
    pub version: u32,
    /// `sizeof(FlLibrary)`.
    pub size: u32,
    /// Describes every part, as JSON in the library's own memory, until `free`:
    /// `{"parts": [{"role": "aggregator", "name": "my-mean", "signature": "params -> params", "doc": "One sentence.", "settings": [{"name": "trim", "doc": "One sentence.", "schema": {"type": "number", "default": 0.1, "minimum": 0}}]}]}`.
    /// A setting without a default must be given. A group of settings has the schema
    /// `{"type": "object", "settings": [..]}`, with settings like these. A part may have an
    /// `index`: what `create` and FL_CHECK call it, if that is not its position here. `"from"` may
    /// name its crate, and `"brought": true` says that it is there only because others of the
    /// library use that crate:
    /// it gives way to the same part of the same crate elsewhere. Kinds of messages of its own
    /// stand beside the parts:
    /// `"messages": [{"kind": "spreads", "doc": "One sentence.", "reach": "any", "tensors": [{"name": "spread", "type": "f64", "shape": "rows x 2", "doc": "One sentence."}]}]`.
    /// A type is `f32`, `f64`, `i64`, `u32`, `u8` (one dimension) or `bits`. A shape is `any`, or
    /// sizes, each a number or a name that stands for one size throughout a message. `reach` says
    /// what one unit of data changes: `any` message becomes any other, a `sum` gains or loses its
    /// own, or it is `stated` in the message.
    pub describe: Option<unsafe extern "C" fn(host: *const FlHost, json: *mut FlText) -> i32>,
    /// Makes the part at this position of the description. `settings` is JSON with every default
    /// filled in, `task` is `{"input": [1, 28, 28], "kind": {"Classes": 10}}`.
    pub create: Option<
        unsafe extern "C" fn(
            index: u32,
            settings: FlText,
            task: FlText,
            host: *const FlHost,
        ) -> i32,
    >,
    /// Does one operation.
    pub call: Option<
        unsafe extern "C" fn(
            part: *mut c_void,
            operation: u32,
            input: *const FlInput,
            host: *const FlHost,
        ) -> i32,
    >,
    /// Ends a part.
    pub drop: Option<unsafe extern "C" fn(part: *mut c_void)>,
    /// Takes back what `describe` gave.
    pub free: Option<unsafe extern "C" fn(json: FlText)>,
}
