/* The interface between fl and the libraries that it loads. Generated from fl-core/abi/src/raw.rs; do not edit.
 *
 * A library defines one symbol, the table `fl_plugin`; plugins/example-c is a whole one in 100 lines. */
#ifndef FL_PLUGIN_H
#define FL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first eight bytes of every library's table: `FLPLUGIN`. */
#define FL_MAGIC UINT64_C(0x4E4947554C504C46)
/* The interface that this header describes. What a later one has more stands at the end of a
 * structure. */
#define FL_VERSION 1u

/* Done. */
#define FL_OK 0
/* It cannot be done; `FlHost.fail` has the reason. */
#define FL_ERROR 1
/* This part has no such operation. Right for every operation that is called optional here. */
#define FL_UNKNOWN 2
/* The library panicked, and is still usable. */
#define FL_PANIC 3
/* An accountant has no price for the event. */
#define FL_UNPRICED 4
/* Shapes, names or lengths do not fit together. */
#define FL_SHAPE 5
/* The part does not have an ability that was asked for. */
#define FL_LACKS 6
/* Numbers are no longer finite, such as those of a training. */
#define FL_DIVERGED 7

/* Noise follows the run's seed. */
#define FL_SEEDED 0u
/* Noise follows a key of the operating system, and is exact. */
#define FL_SYSTEM 1u

/* Tensors of `float`. */
#define FL_F32 0u
/* Tensors of `double`. */
#define FL_F64 1u
/* Tensors of `uint32_t`. */
#define FL_U32 2u
/* Tensors of bytes, one-dimensional and contiguous. */
#define FL_U8 3u
/* Tensors of `int64_t`. */
#define FL_I64 4u
/* Tensors of bits in row order, contiguous, eight in a byte, the first in the lowest bit. Strides
 * do not count, and what is left of the last byte is 0. */
#define FL_BITS 5u

/* Optional, of a library (`part` is NULL). Text `{"part": 0, "settings": {..}}`; gives the text
 * `{"settings": {..}}` with every default filled in, or
 * `{"mistakes": [{"path": ["net", 0], "text": "..", "on_key": false}]}`. Without it the host
 * checks settings by the `settings` of the description. */
#define FL_CHECK 1u
/* Optional. Gives a text: aggregators and attacks
 * `{"needs": [..], "claims": [..], "robustness": null, "folds": false}` with needs of `samples`,
 * `class_counts`, `training_loss`, `sent`, claims of `order_free`, `weight_scale_free`,
 * `weight_free`, `within_hull`, `of_mean`, and a robustness such as
 * `{"share": 0.1, "per_bad": 2, "besides": 1}`; selectors `{"draw": "unknown", "needs_scores": false}` with a draw as in
 * `FL_PRICE`; trainers
 * `{"parametric": false, "differentiable": false, "learns": ["CrossEntropy", "Mae", "Mse", {"Huber": {"delta": 1}}, "Norm", {"Kl": {"tau": 1}}], "feature_loss": false}`,
 * where no `learns` stands for all losses; with `"vocabulary": 1000` if samples must be numbers of
 * words from 0 to 999; with `"buffers": ["norm.running_var"]`, the parameters that are statistics
 * of data: they are averaged, and no server optimiser takes a step with them; with
 * `"least_batch": 2` if training skips mini-batches of fewer samples; with
 * `"schedule_length": 100` if a learning-rate schedule takes this number of mini-batches, and
 * `"schedule_end": 0.001` if the rate stays there after them; with
 * `"schedules_pass": true` if it falls along each training, or `"schedules_epoch": true` at the
 * end of each epoch and training; with `"step_momentum": 0.9` if each step is exactly
 * `v = 0.9 v + g`, `w = w - lr v`; with `"beside_gradient": ["dropout"]`, what training does and
 * FL_GRADIENT leaves out; with `"decays_weights": true` if steps have weight decay; with
 * `"starts_again": true` if each training starts again, and knows nothing of earlier ones; with
 * `"scales_rate": true` if FL_TRAIN and FL_DESCEND may scale its learning rate; with
 * `"gradient_terms": true` if FL_TRAIN may have `proximal`, `gradient_offset` and `clip`. */
#define FL_DESCRIBE 2u
/* Optional: the state kept between calls. Gives the tensor `state` (bytes), or none if there is no
 * state. */
#define FL_SAVE 3u
/* Takes back what `FL_SAVE` gave: one message with the tensor `state`. */
#define FL_LOAD 4u

/* Optional, of a library (`part` is NULL): the most bytes of one message of a kind that it
 * declares. Text
 * `{"kind": "spreads", "params": 9, "rows": 50, "inputs": 4, "outputs": 3, "classes": 3, "model": null}`,
 * where `model` is the bytes of a model in its own format; gives the text of a whole number, or
 * `null`. */
#define FL_BYTES 5u

/* Aggregator, and attack (role `attack`, signature `params`). The messages of an inbox, in client
 * order, finite and alike; text `{"number": 1, "last": false, "name": "round 1"}`, with
 * `"buffers": ["norm.running_var"]` if parameters have buffers, to be averaged only. Gives the
 * tensors of the result, and optionally a text
 * `{"notes": ["for the user"], "numbers": [["left-out", 2.0]]}`. */
#define FL_AGGREGATE 10u
/* Aggregator, optional: gives a new part that takes `FL_FOLD_ADD` for each message and then one
 * `FL_FOLD_FINISH`. Text as `FL_AGGREGATE`. */
#define FL_FOLD 11u
/* Takes one message in. */
#define FL_FOLD_ADD 12u
/* Gives the tensors of the result. */
#define FL_FOLD_FINISH 13u
/* Aggregator that needs `sent`. What the clients were sent in this round, one message, before
 * `FL_AGGREGATE` or `FL_FOLD`. */
#define FL_SENT 14u
/* Aggregator, optional: what becomes of a fold's result. One message, text as `FL_AGGREGATE`;
 * gives the tensors of the result. */
#define FL_UPDATE 15u

/* Selector, optional. One message: a client's own samples, the tensor `values` (`samples x ..`),
 * and `classes` (numbers), `multi-label` (floats: 1, 0, -1 for unknown), `pixels` (floats: the
 * classes of an image's pixels) or `images` (floats of 0 to 1,
 * `samples x channels x height x width`: those to be made); text `{"classes": 10, "samples": 7}`,
 * as in FL_TRAIN. */
#define FL_FIT 20u
/* Selector. One message: the tensors `clients` (numbers), `sizes` and `losses` (doubles, NaN where
 * unknown), or `values` of samples; text as `FL_AGGREGATE`. Gives the tensor `positions`
 * (numbers), ascending, and optionally a text as `FL_AGGREGATE`. */
#define FL_SELECT 21u
/* Selector of clients, optional. As `FL_SELECT`; gives the text of the numbers that it needs
 * before it selects, `{"wanted": "samples", "of": [0, 2]}` with positions, or `loss` in place of
 * `samples`, or `null`. It is called again with these numbers. */
#define FL_POLL 22u

/* Selector, optional. As `FL_SELECT`; gives the tensor `ranks` (doubles), a number for each of the
 * pool, higher for a preferred one, or none. For reports only. */
#define FL_RANK 23u

/* Mechanism. One message in, the bounded message out. */
#define FL_CLIP 30u
/* Mechanism, optional. One message in; gives the text of a number, or `null`. */
#define FL_RANGE 31u
/* Mechanism, optional. Text: the largest range of all clients. */
#define FL_AGREE 32u
/* Mechanism. One message in, text `{"clients": 10, "of": 20, "draw": "everyone"}`, where a draw is
 * `everyone`, `{"poisson": {"rate": 0.1}}`, `fixed-size` or `unknown`; gives the text of a privacy
 * event. */
#define FL_PRICE 33u
/* Mechanism. One message in, text as `FL_PRICE`; gives the message with noise, drawn with
 * `add_laplace`, `add_gaussian` or, for choices between labels, `fill_uniform`. */
#define FL_PERTURB 34u
/* Mechanism, optional. One message in; gives the text of a whole number. */
#define FL_QUERIES 35u
/* Mechanism, optional. One message in, text `{"queries": 3}`; gives the message with the first of
 * them. */
#define FL_TRUNCATE 36u
/* Mechanism, optional. Text: a privacy event; gives the text of the event to charge. */
#define FL_ACTUAL_COST 37u
/* Mechanism, optional. Gives the text of the largest Euclidean norm that `FL_CLIP` lets pass, if
 * that only shortens longer messages to it and replaces those that are not finite by zeros; or
 * `null`. */
#define FL_NORM_BOUND 38u

/* Accountant. Text: a privacy event. */
#define FL_CHARGE 40u
/* Accountant. Text: a privacy event, or `null`; gives the text of a guarantee. An `epsilon` of
 * `null` is infinite. */
#define FL_GUARANTEE 41u
/* Accountant. Text `{"ledgers": [{"client": 0, "events": []}], "how": "parallel"}`, or
 * `sequential`. */
#define FL_MERGE 42u

/* Generator. Text `{"samples": 64}`; gives the tensor `values`, `samples x ..`. */
#define FL_SAMPLE 50u
/* Generator. One message: `values` as sampled last, and `slope`, a number for each of theirs
 * (`samples x width`); text as in FL_PREDICT. */
#define FL_LEARN 51u

/* Trainer. A message with `values` and `target`, then the anchor's parameters if `proximal` is not
 * null, then the offset's if `gradient_offset` is true; text
 * `{"length": {"Steps": 5}, "batch": 16, "loss": "CrossEntropy", "fresh": false, "proximal": null, "gradient_offset": false, "clip": null, "target": "classes"}`,
 * where a target is of `classes`, `multi-label`, `pixels` (floats), `soft` or `scores` (also
 * numbers to predict, on the label's scale), and
 * `"samples": 7`, a number from 1 that no other samples of the program have: who keeps what it made
 * of samples, such as a copy on a card, knows them again. Gives the text
 * `{"steps": 5, "loss": 0.3}`, with `null` for a loss that is not finite, and if it knows whether the loss still fell at the end, `"falls":
 * true` or `false`. With `"rate": 0.5`, which only a trainer with `scales_rate` is told, its
 * learning rate is this times its own in this pass. With `"auxiliary": true`, which only a trainer with `FL_HEAD` is told, it asks
 * `FlHost.call` for a loss to add in every mini-batch: FL_AUXILIARY_LOSS. With `"feature_loss":
 * true`, which only a trainer is told that has it in the text of FL_DESCRIBE, for FL_FEATURE_LOSS. */
#define FL_TRAIN 60u
/* Trainer. One message with `values`, text `{"samples": 7}` as in FL_TRAIN; gives the tensor
 * `scores`, `samples x outputs`. */
#define FL_PREDICT 61u
/* Trainer, optional. As FL_PREDICT; gives the tensor `features`, or none. */
#define FL_FEATURES 62u
/* Trainer, optional. Model and optimiser: gives the tensor `state`. */
#define FL_SAVE_STATE 63u
/* Takes back what `FL_SAVE_STATE` gave. */
#define FL_LOAD_STATE 64u
/* Parametric trainer. Gives the parameters, one tensor of floats each. */
#define FL_PARAMS 65u
/* Parametric trainer. One message: the parameters. */
#define FL_SET_PARAMS 66u
/* Differentiable trainer. One message with `values` and `slope`, text as in FL_PREDICT; gives the
 * tensor `slopes`, `samples x width`. */
#define FL_VJP 67u
/* Parametric trainer, optional. One message with `values` and `target`, text
 * `{"loss": "CrossEntropy", "target": "classes"}`; gives the gradient of the mean loss, one tensor
 * of floats for each parameter. */
#define FL_GRADIENT 68u
/* Parametric trainer, optional. Gives the text of the present step size, or `null`. */
#define FL_STEP_SIZE 69u
/* Trainer, optional. What the client remembers beside model and optimiser, which outlasts a model
 * that is made anew for each question: gives the tensor `state`, or none. `FL_SAVE_STATE` holds it
 * too. */
#define FL_SAVE_MEMORY 70u
/* Takes back what `FL_SAVE_MEMORY` gave; model and optimiser stay as they are. */
#define FL_LOAD_MEMORY 71u
/* Parametric trainer, optional. One message: a gradient, named and shaped as `FL_PARAMS`; text
 * `{"at": 0, "of": 10}`. Takes one step of the optimiser along it, as after batch `at` of `of`; at
 * `"rate": 0.5` times its learning rate, as in FL_TRAIN. */
#define FL_DESCEND 72u
/* Trainer, optional. Gives the last layer on the features of `FL_FEATURES`: the tensors `weight`
 * (`outputs x features`) and `bias` of doubles, or none. */
#define FL_HEAD 73u
/* Parametric trainer, optional. As `FL_GRADIENT`, and the text has a `clip`: gives the sum of the
 * gradients of single samples, each shortened to this Euclidean norm, or no tensor. */
#define FL_CLIPPED_GRADIENTS 74u

/* Protocol. Gives the text of what it declares: `{"slots": [..], "exchanges": [..], "grows": null,
 * "begins_with": null, "loads": null, "pooled": false, "measures": null}`, as
 * fl-core/abi/src/declaration.rs has them. */
#define FL_DECLARE 80u
/* Protocol: the server's side. Text
 * `{"task": {..}, "filled": ["model"], "everyone": {"ids": [0, 1], "of": 2, "draw": "everyone"}}`.
 * All that it does goes through `FlHost.call`, from FL_MODEL on. An error has the text
 * `{"text": "..", "problem": null}` beside `FlHost.fail`. */
#define FL_LEAD 81u
/* Protocol: a client's answer. Text `{"label": "..", "round": 1, "task": {..}, "filled":
 * ["model"]}`, which is mostly that of the call before, and the message that was sent. The client is the sender of the
 * message, and its key is `FlHost.key`. Gives the tensors of the answer. As FL_LEAD otherwise. */
#define FL_ANSWER 82u
/* Protocol, optional. Text `{"filled": ["model", "data.public"]}`; gives a list of
 * `{"setting": null, "text": ".."}`. */
#define FL_CONFLICTS 83u
/* Protocol, optional. Text `{"kind": {"Classes": 10}, "filled": []}`; gives `null`, or the text of
 * what stands in the way. */
#define FL_SUITS 84u
/* Protocol, of a slot with `"own_task": true`. Text `{"slot": "..", "task": {..}}`; gives the task
 * of its parts. */
#define FL_TASK 85u
/* Of the side that called, in the middle of its call. A protocol's FL_RUN with `forms` asks it for
 * another form of an answer: one message, and its envelope as in FL_COLLECT. Gives the message, and
 * the text of its envelope. */
#define FL_FORM 91u
/* Of the side that called, in the middle of FL_TRAIN: a loss that is added to that of a mini-batch.
 * Text `{"target": "classes", "key": [..]}`, and one message with `weight`, `bias` (doubles, the
 * last layer before the step), `scores` (floats) and `target` (as in FL_TRAIN, but `multi-label` of
 * `int64_t` and `pixels` of numbers). Gives `loss` (one double), `by-scores` (floats), `weight` and
 * `bias`: the slopes of that loss. */
#define FL_AUXILIARY_LOSS 92u
/* As FL_AUXILIARY_LOSS, with `features` (floats, `samples x features`), `target`, and `rows`
 * (`uint32_t`: which samples of FL_TRAIN these are, from 0). Gives `loss` and `by-features`
 * (floats). */
#define FL_FEATURE_LOSS 93u

/* Of server and client: what a protocol asks of part 0 in the middle of FL_LEAD or FL_ANSWER. Text
 * `{"slot": "model"}`; gives the text of a number: the model in this slot takes the operations of
 * a trainer by that number, and then samples may be rows of a set that both sides know. The text
 * has `"set": 3` in place of `"samples": 7`, and `"first": 50` or the tensor `ids` in place of
 * `values`. Below, `samples` has the text of such samples, and `examples` has that and `labels`: a
 * number of the set's labels, or `null` and the tensor `labels`. A `round` is as FL_BEGIN_STEP
 * gives it, `kind` is that of the messages, and a number that JSON does not have is `null`. */
#define FL_MODEL 100u
/* Of server and client. As FL_MODEL, of a generator. */
#define FL_GENERATOR 101u
/* Of server and client. Gives the text `{"samples": {..}, "labelled": null, "truth": null}` of the
 * public data, the latter two as examples, and their tensors, whose names begin with `0/`, `1/`
 * and `2/`. */
#define FL_PUBLIC 102u
/* Of server and client. Text `{"set": 3}`; gives the tensor `set`: inputs, as Rust's `postcard`
 * writes them. */
#define FL_INPUTS 103u
/* Of server and client. Text `{"set": 3, "at": 0}`; as FL_INPUTS, labels. */
#define FL_LABELS 104u
/* Of server and client. Text of samples, and their message; gives the tensor `values`,
 * `samples x ..`. */
#define FL_VALUES 105u
/* Of server and client. Text of examples, `{"samples": {..}, "labels": 0}`, and their message;
 * gives the tensor `target`, and the text of its kind. */
#define FL_TARGETS 106u
/* Of server and client. Text `{"part": 1}`: the protocol needs the part with this number no more. */
#define FL_DROP 107u
/* Releases a message. Of a server: text `{"label": "..", "round": {..}, "kind": "params",
 * "cohort": {"ids": [0, 1], "of": 2, "draw": "everyone"}, "clip": true}`, by the mechanism of this
 * exchange. Of a client: text `{"slot": "privacy", "kind": "params"}`. Gives the message, and the
 * text of its kind. So do two operations of parts, for a server or client: FL_CLIP, of text
 * `{"slot": "privacy", "kind": "params", "agreed": null}`, and FL_AGGREGATE, of text `{"slot":
 * "aggregator", "round": {..}, "kind": "params", "shown": null}`, where `shown` is the kind of a
 * last message, which the round shows. */
#define FL_RELEASE 108u
/* Server. Text `{"slot": "model"}`; gives the list of the clients that have a part in this slot. */
#define FL_WHO 110u
/* Server. Text `{"at_least": 1}`; gives the cohort of the clients with this many examples. */
#define FL_WITH_EXAMPLES 111u
/* Server. Text `{"round": {..}, "label": ".."}`, and one message if a selector may request the
 * loss of a model: the model. Gives the cohort of this exchange. The server's FL_SELECT has the
 * text `{"slot": "selector", "round": {..}, "pool": "samples", "samples": {..}}`. */
#define FL_COHORT 112u
/* Server. Text `{"round": {..}, "label": "..", "to": [0, 1], "which": [0, 0]}`, where `which` has
 * the position of each client's message. Gives the list of answers, each as `{"from": 0, "weight":
 * 1.0, "class_counts": null, "training_loss": null}`, and their tensors, whose names begin with
 * their positions: `0/`. */
#define FL_COLLECT 113u
/* Server. Text `{"round": {..}, "label": "..", "cohort": {..}, "which": [0, 0], "shown": null,
 * "forms": false}`: collects, aggregates and releases. With `forms` the program asks back for
 * another form of each answer. Gives the message, and the text of its kind. */
#define FL_RUN 114u
/* Server. Text `{"slot": "privacy", "kind": "params", "cohort": {..}}`, and a message like that of
 * a release; fails if the budget does not pay for it. */
#define FL_AFFORDS 115u
/* Server. Text `{"slot": "privacy", "kind": "logits"}`; gives `true` if the mechanism wants a
 * range on which clients agree. A client's FL_RANGE, of the same text and with a message, gives
 * its own, or `null`. */
#define FL_WANTS_RANGE 116u
/* Server. Text `{"name": "round 1", "number": 1, "of": 10}`; gives `"skipped"`, `"restored"` with
 * the tensor `state`, or `{"attempt": {"round": {"name": "round 1", "number": 1, "last": false,
 * "key": [..]}, "undoable": false}}`. */
#define FL_BEGIN_STEP 117u
/* Server. Text `{"failed": null}`, or with the text of an error as in FL_LEAD; gives `"done"`,
 * `"undone"` or another attempt. */
#define FL_JUDGE_STEP 118u
/* Server. One message: the tensor `state`. */
#define FL_FINISH_STEP 119u
/* Server. Text `{"slot": "model", "round": {..}}`. */
#define FL_EVALUATE 120u
/* Server. Text as in FL_EVALUATE, with `"to": [0, 2]` if only these clients' models are meant,
 * and a message if models are to have these parameters. */
#define FL_EVALUATE_CLIENTS 121u
/* Server. Text `{"slot": "model", "round": {..}, "whose": [0, 0]}`, and a message for each model,
 * where `whose` has the position of each client's; gives the tensor `scores` (doubles). */
#define FL_EVALUATE_FOR_CLIENTS 122u
/* Server. Text `{"round": {..}, "name": "..", "value": 0.5}`. */
#define FL_RECORD 123u
/* Server. Text `{"round": {..}, "name": "..", "each": [0.5, null]}`, in the order of clients. */
#define FL_RECORD_EACH 124u
/* Server. Text `{"slot": "model", "name": ".."}`. */
#define FL_KEEP_MODEL 125u
/* Server. Text `{"slot": "generator"}`. */
#define FL_KEEP_GENERATOR 126u
/* Server. Text `{"name": "..", "samples": {..}}`, and their message. */
#define FL_KEEP_IMAGES 127u
/* Server. Text `{"slot": "model"}`, with `"to": [0, 2]` if only these clients' models are meant. */
#define FL_KEEP_CLIENTS 128u
/* Server. Text `{"text": ".."}`. */
#define FL_WARN 129u
/* Server. Text `{"slot": "model"}`; gives the number of a reader of models, for FL_READ. */
#define FL_READER 130u
/* Server. Text `{"part": 1, "client": 0}`, and the tensor `model`; gives the number of a model. */
#define FL_READ 131u
/* Client. Gives its examples. */
#define FL_OWN 140u
/* Client. Text `{"slot": "privacy"}`; gives the examples that the mechanism in this slot has
 * drawn. */
#define FL_PRIVATE 141u
/* Client. Text `{"slot": "privacy"}`. */
#define FL_DRAW_PRIVATE 142u
/* Client. Text `{"text": ".."}`. */
#define FL_NOTE 143u
/* Client. Text `{"name": "..", "value": 0.5}`. */
#define FL_MEASURE 144u
/* Client. Text `{"slot": "model", "index": 0}`; gives the number of a model. */
#define FL_NEW_MODEL 145u
/* Client. Text `{"slot": "model", "part": 1}`, with a number from FL_NEW_MODEL. */
#define FL_SET_MODEL 146u
/* Client. Text `{"value": 0.3}`: the mean loss of its training, or `null`. */
#define FL_FITTED 147u
/* Client. Text `{"slot": "selector"}`; gives `[1, "samples"]`, the number of a selector and its
 * pool. */
#define FL_TAKE_SELECTOR 148u
/* Client. Text `{"slot": "selector", "part": 1}`. */
#define FL_PUT_SELECTOR 149u
/* Client. Text `{"name": ".."}`, and the tensor `kept`. */
#define FL_STASH 150u
/* Client. Text `{"name": ".."}`; gives the tensor `kept`, or none. */
#define FL_STASHED 151u
/* Client. As FL_STASHED, and keeps it no more. */
#define FL_UNSTASH 152u
/* Client. Text `{"name": "..", "kind": "params"}`, and a message. */
#define FL_CACHE 153u
/* Client. As FL_STASHED, of a message. */
#define FL_CACHED 154u
/* Client. Text `{"slot": "privacy", "kind": "params"}`, and a message like those of the steps;
 * gives `[1, 100]`, the number of a mechanism and how many steps there are. */
#define FL_BEGIN_STEPS 155u
/* Client. Text `{"at": 0}`; gives the positions of the examples of this step. */
#define FL_DRAW_LOT 156u
/* Client. Text `{"at": 0, "part": 1, "kind": "params"}`, and a message; gives it as FL_RELEASE
 * does. */
#define FL_RELEASE_STEP 157u
/* Client. Text `{"slot": "privacy", "part": 1}`. */
#define FL_END_STEPS 158u
/* Client. Gives the rows that it has held back from its examples, if the exchange declares that it
 * uses them. */
#define FL_HELD_OUT 159u

/* UTF-8, not ended by a zero. Borrowed for the call, unless stated otherwise. */
typedef struct FlText FlText;
struct FlText {
  /* The first byte; may be NULL if there is none. */
  const uint8_t *data;
  /* Number of bytes. */
  size_t length;
};

/* A borrowed tensor, to be read only. */
typedef struct FlTensor FlTensor;
struct FlTensor {
  /* Its name, one of its kind in a message. */
  FlText name;
  /* The number at `0, 0, ..`. */
  const void *data;
  /* One number for each dimension. */
  const size_t *shape;
  /* How far apart neighbours are, in numbers, for each dimension; may be 0 or negative. */
  const ptrdiff_t *strides;
  /* How many dimensions; 0 for a single number. */
  uint32_t dimensions;
  /* FL_F32, FL_F64, FL_U32, FL_U8, FL_I64 or FL_BITS. */
  uint32_t dtype;
};

/* A message and its sender. */
typedef struct FlMessage FlMessage;
struct FlMessage {
  /* The sender's number. */
  uint32_t from;
  /* Length of `class_counts`. */
  uint32_t classes;
  /* How much it counts: finite, at least 0. */
  double weight;
  /* Examples of each class at the sender; NULL unless the part asked for them. */
  const uint32_t *class_counts;
  /* Its tensors. */
  const FlTensor *tensors;
  /* How many tensors. */
  size_t count;
  /* The mean loss of the training that made the message; NaN unless the part asked for it. */
  double training_loss;
};

/* What an operation is given. All of it is borrowed for the call. */
typedef struct FlInput FlInput;
struct FlInput {
  /* `sizeof(FlInput)` of the host. */
  size_t size;
  /* JSON; each operation describes its content. */
  FlText text;
  /* The messages. */
  const FlMessage *messages;
  /* How many messages. */
  size_t count;
};

/* What the host does for a library during one call, and only then. Every answer goes through it,
 * so no memory of the library is ever freed by the host. Any thread may call `log` and
 * `parallel_for`, the caller's thread all of them. */
typedef struct FlHost FlHost;
struct FlHost {
  /* `sizeof(FlHost)` of the host. */
  size_t size;
  /* To be handed back to every function here. */
  void *context;
  /* The key of this call's random stream; a library must draw from nothing else. */
  uint8_t key[32];
  /* Something for people to read. Level 1 is an error, 2 a warning, 3 information, 4 for those
   * who search. */
  void (*log)(void *context, uint32_t level, FlText text);
  /* Why the call fails, and which setting is to blame (`net[0].width`; empty: none). */
  void (*fail)(void *context, FlText setting, FlText text);
  /* The answer's text: JSON. */
  void (*text)(void *context, FlText json);
  /* Room for a tensor of the answer: in row order, zeros. Fill it before the call returns. NULL:
   * it was refused, and the call will be an error whatever it returns. */
  void *(*tensor)(void *context, FlText name, uint32_t dtype, uint32_t dimensions, const size_t *shape);
  /* A new part, which the host will `drop` one day: the answer of `create` and of `FL_FOLD`. */
  void (*part)(void *context, void *part);
  /* The next numbers of the call's stream, uniform in `[0, 1)`. */
  void (*fill_uniform)(void *context, double *out, size_t n);
  /* The next numbers of the call's stream, standard normal. Not for `FL_PERTURB` where `noise`
   * is FL_SYSTEM. */
  void (*fill_normal)(void *context, double *out, size_t n);
  /* Calls `work(argument, i, chunk, length)` for every chunk of `size` of the `n` numbers at
   * `data`, on the host's threads, in any order; returns when all is done. Results must not
   * depend on how the work is cut. */
  void (*parallel_for)(void *context, float *data, size_t n, size_t size, void (*work)(void *argument, size_t i, float *chunk, size_t length), void *argument);
  /* Where the noise of `FL_PERTURB` comes from: FL_SEEDED or FL_SYSTEM. */
  uint32_t noise;
  /* Adds Laplace noise of this scale to each of the `n` numbers at `values`. Noise of the system
   * is drawn on a grid, to which the numbers are moved first, towards 0. */
  void (*add_laplace)(void *context, double *values, size_t n, double scale);
  /* As `add_laplace`, with normal noise of this standard deviation. */
  void (*add_gaussian)(void *context, double *values, size_t n, double sigma);
  /* Asks the maker of this for an operation in the middle of the call, as `FlLibrary.call` asks a
   * library; `host` takes the answer, is one that the caller fills in, and has the key of the
   * operation's random stream. `part` is a number that FL_MODEL has given for a part of the
   * program, with which a protocol does the operations of its role, or 0. Right while a protocol
   * leads or answers or a trainer trains with an auxiliary loss, and then for the caller's
   * thread; NULL in other calls. */
  int32_t (*call)(void *context, uint64_t part, uint32_t operation, const FlInput *input, const FlHost *host);
};

/* What a library exports, under the name `fl_plugin`. Every function is needed.
 * 
 * A part may move between threads and is used by one at a time; different parts are used at the
 * same time. Every function must return: no exception and no `longjmp` may leave one, and the host
 * sets no time limit. */
typedef struct FlLibrary FlLibrary;
struct FlLibrary {
  /* FL_MAGIC. */
  uint64_t magic;
  /* FL_VERSION. */
  uint32_t version;
  /* `sizeof(FlLibrary)`. */
  uint32_t size;
  /* Describes every part, as JSON in the library's own memory, until `free`:
   * `{"parts": [{"role": "aggregator", "name": "my-mean", "signature": "params -> params", "doc": "One sentence.", "settings": [{"name": "trim", "doc": "One sentence.", "schema": {"type": "number", "default": 0.1, "minimum": 0}}]}]}`.
   * A setting without a default must be given. A group of settings has the schema
   * `{"type": "object", "settings": [..]}`, with settings like these. A part may have an
   * `index`: what `create` and FL_CHECK call it, if that is not its position here. `"from"` may
   * name its crate, and `"brought": true` says that it is there only because others of the
   * library use that crate:
   * it gives way to the same part of the same crate elsewhere. Kinds of messages of its own
   * stand beside the parts:
   * `"messages": [{"kind": "spreads", "doc": "One sentence.", "reach": "any", "tensors": [{"name": "spread", "type": "f64", "shape": "rows x 2", "doc": "One sentence."}]}]`.
   * A type is `f32`, `f64`, `i64`, `u32`, `u8` (one dimension) or `bits`. A shape is `any`, or
   * sizes, each a number or a name that stands for one size throughout a message. `reach` says
   * what one unit of data changes: `any` message becomes any other, a `sum` gains or loses its
   * own, or it is `stated` in the message. */
  int32_t (*describe)(const FlHost *host, FlText *json);
  /* Makes the part at this position of the description. `settings` is JSON with every default
   * filled in, `task` is `{"input": [1, 28, 28], "kind": {"Classes": 10}}`. */
  int32_t (*create)(uint32_t index, FlText settings, FlText task, const FlHost *host);
  /* Does one operation. */
  int32_t (*call)(void *part, uint32_t operation, const FlInput *input, const FlHost *host);
  /* Ends a part. */
  void (*drop)(void *part);
  /* Takes back what `describe` gave. */
  void (*free)(FlText json);
};

#if defined(_WIN32)
#define FL_EXPORT __declspec(dllexport)
#else
#define FL_EXPORT __attribute__((visibility("default")))
#endif

/* The one symbol of a library: `const FlLibrary fl_plugin = {FL_MAGIC, FL_VERSION, sizeof(FlLibrary), ..};` */
extern FL_EXPORT const FlLibrary fl_plugin;

/* A C string as a text. */
static inline FlText fl_text(const char *s) {
  FlText text;
  text.data = (const uint8_t *)s;
  text.length = strlen(s);
  return text;
}

/* Ends a call: `return fl_fail(host, "trim", "must be below 0.5");` */
static inline int32_t fl_fail(const FlHost *host, const char *setting, const char *why) {
  host->fail(host->context, fl_text(setting), fl_text(why));
  return FL_ERROR;
}

/* The number of a setting that is a number; the host has filled in its default, and has checked its range. `otherwise` if
 * it is something else. The name must not stand in a mapping among the settings too: this is no JSON parser. */
static inline double fl_number(FlText settings, const char *name, double otherwise) {
  size_t n = strlen(name), i, k;
  char digits[40], *end;
  double found;
  for (i = 0; i + n + 3 <= settings.length; i++) {
    const char *at = (const char *)settings.data + i;
    if (at[0] == '"' && memcmp(at + 1, name, n) == 0 && at[n + 1] == '"' && at[n + 2] == ':') {
      for (k = 0, i += n + 3; i < settings.length && k + 1 < sizeof digits; k++, i++) {
        digits[k] = (char)settings.data[i];
      }
      digits[k] = 0;
      found = strtod(digits, &end);
      return end == digits ? otherwise : found;
    }
  }
  return otherwise;
}

#ifdef __cplusplus
}
#endif

#endif
