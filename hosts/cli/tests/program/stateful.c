/* Parts that keep something, one of each role that does: those of tests/stateful, in C. With
 * `forgets: true` they keep nothing. */
#include "fl_plugin.h"
#include <stdio.h>

#define MOST 64

#define KEEPS \
  "\"settings\": [{\"name\": \"forgets\", \"doc\": \"Keep nothing.\", " \
  "\"schema\": {\"type\": \"boolean\", \"default\": false}}]}"

static const char DESCRIPTION[] =
    "{\"parts\": ["
    "{\"role\": \"trainer\", \"name\": \"c-trainer\", \"signature\": \"\", \"doc\": \"Scores.\", " KEEPS ","
    "{\"role\": \"aggregator\", \"name\": \"c-aggregator\", \"signature\": \"params -> params\", \"doc\": \"A mean.\", " KEEPS ","
    "{\"role\": \"selector\", \"name\": \"c-selector\", \"signature\": \"clients\", \"doc\": \"Turns.\", " KEEPS ","
    "{\"role\": \"privacy\", \"name\": \"c-privacy\", \"signature\": \"params\", \"doc\": \"Noise.\", " KEEPS ","
    "{\"role\": \"generator\", \"name\": \"c-generator\", \"signature\": \"\", \"doc\": \"Inputs.\", " KEEPS ","
    "{\"role\": \"accountant\", \"name\": \"c-accountant\", \"signature\": \"\", \"doc\": \"Counts.\", " KEEPS "]}";

enum { TRAINER, AGGREGATOR, SELECTOR, PRIVACY, GENERATOR, ACCOUNTANT };

typedef struct {
  uint32_t role, forgets, outputs, uses;
  float scores[MOST], moment[MOST];
  size_t shape[8], dimensions;
} Part;

static int holds(FlText text, const char *what) {
  size_t n = strlen(what);
  for (size_t i = 0; i + n <= text.length; i++) {
    if (memcmp(text.data + i, what, n) == 0) return 1;
  }
  return 0;
}

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
  *json = fl_text(DESCRIPTION);
  return FL_OK;
}

static void free_description(FlText json) { (void)json; }

/* The numbers of `"input":[1,28,28]`. */
static void input_shape(Part *part, FlText task) {
  static const char name[] = "\"input\":[";
  size_t i = 0, n = sizeof name - 1;
  while (i + n <= task.length && memcmp(task.data + i, name, n) != 0) i++;
  for (i += n; i < task.length && task.data[i - 1] != ']' && part->dimensions < 7; i++) {
    size_t number = 0;
    for (; i < task.length && task.data[i] >= '0' && task.data[i] <= '9'; i++) number = 10 * number + task.data[i] - '0';
    part->shape[++part->dimensions] = number;
  }
}

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  Part *part = calloc(1, sizeof *part);
  if (part == NULL) return fl_fail(host, "", "there is no memory");
  part->role = index;
  part->forgets = (uint32_t)holds(settings, "true");
  part->outputs = (uint32_t)fl_number(task, "Classes", 0.0);
  input_shape(part, task);
  if (index == TRAINER && (part->outputs == 0 || part->outputs > MOST)) {
    free(part);
    return fl_fail(host, "", "it learns 1 to 64 classes");
  }
  host->part(host->context, part);
  return FL_OK;
}

static void drop(void *part) { free(part); }

static uint32_t next(Part *part) { return part->uses += !part->forgets; }

static size_t count(const FlTensor *t) {
  size_t n = 1;
  for (uint32_t d = 0; d < t->dimensions; d++) n *= t->shape[d];
  return n;
}

static size_t place(const FlTensor *t, size_t i) {
  ptrdiff_t k = 0;
  for (uint32_t d = t->dimensions; d-- > 0;) {
    k += (ptrdiff_t)(i % t->shape[d]) * t->strides[d];
    i /= t->shape[d];
  }
  return (size_t)k;
}

static const FlTensor *named(const FlInput *input, const char *name) {
  for (size_t t = 0; t < input->messages[0].count; t++) {
    const FlTensor *tensor = &input->messages[0].tensors[t];
    if (tensor->name.length == strlen(name) && memcmp(tensor->name.data, name, tensor->name.length) == 0) return tensor;
  }
  return NULL;
}

/* ANCHOR: bytes */
static int32_t give(const FlHost *host, const void *data, size_t bytes) {
  uint8_t *out = host->tensor(host->context, fl_text("state"), FL_U8, 1, &bytes);
  if (out == NULL) return FL_ERROR;
  memcpy(out, data, bytes);
  return FL_OK;
}

/* The bytes of a state, if there are as many as are due. */
static int32_t take(const FlInput *input, const FlHost *host, void *data, size_t bytes) {
  const FlTensor *state = named(input, "state");
  if (state == NULL || count(state) != bytes) return fl_fail(host, "", "a state of another length");
  for (size_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = ((const uint8_t *)state->data)[place(state, i)];
  return FL_OK;
}

/* ANCHOR_END: bytes */
/* Every tensor of the messages' mean, as it becomes. */
static int32_t mean(const FlInput *input, const FlHost *host, double factor, double more) {
  for (size_t t = 0; t < input->messages[0].count; t++) {
    const FlTensor *like = &input->messages[0].tensors[t];
    float *out = host->tensor(host->context, like->name, FL_F32, like->dimensions, like->shape);
    if (out == NULL) return FL_ERROR;
    for (size_t i = 0, n = count(like); i < n; i++) {
      double sum = 0.0;
      for (size_t k = 0; k < input->count; k++) {
        const FlTensor *tensor = &input->messages[k].tensors[t];
        sum += (double)((const float *)tensor->data)[place(tensor, i)];
      }
      out[i] = (float)(sum / (double)input->count * factor + more);
    }
  }
  return FL_OK;
}

static int32_t train(Part *part, const FlInput *input, const FlHost *host) {
  const FlTensor *target = named(input, "target");
  float shares[MOST] = {0}, rate, loss = 0.0f;
  char text[80];
  size_t n;
  if (!holds(input->text, "\"target\":\"classes\"") || target == NULL) return FL_LACKS;
  if (holds(input->text, "\"fresh\":true")) memset(part->moment, 0, sizeof part->moment);
  n = count(target);
  for (size_t i = 0; i < n; i++) {
    uint32_t class = ((const uint32_t *)target->data)[place(target, i)];
    if (class >= part->outputs) return FL_SHAPE;
    shares[class] += 1.0f / (float)n;
  }
  rate = 0.1f / (1.0f + (float)next(part));
  for (uint32_t c = 0; c < part->outputs; c++) {
    float slope = part->scores[c] - shares[c];
    loss += slope * slope;
    part->moment[c] = 0.5f * part->moment[c] + slope;
    part->scores[c] -= rate * part->moment[c];
  }
  snprintf(text, sizeof text, "{\"steps\": 1, \"loss\": %.9g}", (double)loss);
  host->text(host->context, fl_text(text));
  return FL_OK;
}

static int32_t of_trainer(Part *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  size_t bytes = part->outputs * sizeof(float), shape[2] = {0, part->outputs};
  float state[2 * MOST + 1], *out;
  const FlTensor *given;
  switch (operation) {
    case FL_DESCRIBE:
      host->text(host->context, fl_text("{\"parametric\": true, \"learns\": [\"CrossEntropy\"]}"));
      return FL_OK;
    case FL_TRAIN:
      return train(part, input, host);
    case FL_PREDICT:
      given = named(input, "values");
      if (given == NULL) return FL_SHAPE;
      shape[0] = given->shape[0];
      out = host->tensor(host->context, fl_text("scores"), FL_F32, 2, shape);
      if (out == NULL) return FL_ERROR;
      for (size_t i = 0; i < shape[0]; i++) memcpy(out + i * part->outputs, part->scores, bytes);
      return FL_OK;
    case FL_PARAMS:
      out = host->tensor(host->context, fl_text("w"), FL_F32, 1, &shape[1]);
      if (out == NULL) return FL_ERROR;
      memcpy(out, part->scores, bytes);
      return FL_OK;
    case FL_SET_PARAMS:
      given = named(input, "w");
      if (given == NULL || count(given) != part->outputs) return FL_SHAPE;
      for (uint32_t c = 0; c < part->outputs; c++) part->scores[c] = ((const float *)given->data)[place(given, c)];
      return FL_OK;
    case FL_SAVE:
      return give(host, part->scores, bytes);
    case FL_LOAD:
      return take(input, host, part->scores, bytes);
    case FL_SAVE_STATE:
      memcpy(state, part->scores, bytes);
      memcpy(state + part->outputs, part->moment, bytes);
      memcpy(state + 2 * part->outputs, &part->uses, sizeof part->uses);
      return give(host, state, 2 * bytes + sizeof part->uses);
    case FL_LOAD_STATE: {
      int32_t code = take(input, host, state, 2 * bytes + sizeof part->uses);
      if (code != FL_OK) return code;
      memcpy(part->scores, state, bytes);
      memcpy(part->moment, state + part->outputs, bytes);
      memcpy(&part->uses, state + 2 * part->outputs, sizeof part->uses);
      return FL_OK;
    }
    case FL_SAVE_MEMORY:
      return part->uses == 0 ? FL_OK : give(host, &part->uses, sizeof part->uses);
    case FL_LOAD_MEMORY:
      return take(input, host, &part->uses, sizeof part->uses);
    default:
      return FL_UNKNOWN;
  }
}

static int32_t select_two(Part *part, const FlInput *input, const FlHost *host) {
  const FlTensor *clients = named(input, "clients");
  size_t n = clients == NULL ? 0 : count(clients), two = n < 2 ? n : 2;
  uint32_t *out = host->tensor(host->context, fl_text("positions"), FL_U32, 1, &two);
  uint32_t first = n == 0 ? 0 : next(part) % (uint32_t)n, other = n == 0 ? 0 : (first + 1) % (uint32_t)n;
  if (out == NULL) return FL_ERROR;
  if (two > 0) out[0] = first < other ? first : other;
  if (two > 1) out[1] = first < other ? other : first;
  return FL_OK;
}

static int32_t sample(Part *part, const FlInput *input, const FlHost *host) {
  size_t n = 1;
  double *numbers;
  float *out;
  part->shape[0] = (size_t)fl_number(input->text, "samples", 0.0);
  for (size_t d = 0; d <= part->dimensions; d++) n *= part->shape[d];
  out = host->tensor(host->context, fl_text("values"), FL_F32, (uint32_t)part->dimensions + 1, part->shape);
  numbers = malloc((n + 1) * sizeof *numbers);
  if (out == NULL || numbers == NULL) {
    free(numbers);
    return FL_ERROR;
  }
  host->fill_normal(host->context, numbers, n);
  for (size_t i = 0; i < n; i++) out[i] = (float)(numbers[i] + 0.01 * part->uses);
  free(numbers);
  return FL_OK;
}

static int32_t guarantee(const Part *part, const FlInput *input, const FlHost *host) {
  uint32_t events = part->uses + !holds(input->text, "null");
  char text[160];
  snprintf(text, sizeof text,
           "{\"epsilon\": %u, \"delta\": 0.0, \"unit\": \"party\", \"data_dependent\": false, \"noise\": \"seeded\"}", events);
  host->text(host->context, fl_text(text));
  return FL_OK;
}

static int32_t call(void *pointer, uint32_t operation, const FlInput *input, const FlHost *host) {
  Part *part = pointer;
  if (part == NULL) return FL_UNKNOWN;
  if (part->role == TRAINER) return of_trainer(part, operation, input, host);
  switch (operation) {
    case FL_AGGREGATE:
      return mean(input, host, 1.0 + 0.1 * next(part), 0.0);
    case FL_SELECT:
      return select_two(part, input, host);
    case FL_CLIP:
      return mean(input, host, 1.0, 0.0);
    case FL_PRICE:
      host->text(host->context, fl_text("{\"Gaussian\": {\"sensitivity\": 1.0, \"sigma\": 1.0, \"unit\": \"party\"}}"));
      return FL_OK;
    case FL_PERTURB:
      return mean(input, host, 1.0, 0.01 * next(part));
    case FL_SAMPLE:
      return sample(part, input, host);
    case FL_LEARN:
    case FL_CHARGE:
      next(part);
      return FL_OK;
    case FL_GUARANTEE:
      return guarantee(part, input, host);
    case FL_MERGE:
      /* one for each event */
      for (size_t i = 0; i + 13 < input->text.length; i++) {
        if (memcmp(input->text.data + i, "\"sensitivity\"", 13) == 0) next(part);
      }
      return FL_OK;
    /* ANCHOR: state */
    case FL_SAVE:
      if (part->role == ACCOUNTANT) return FL_UNKNOWN;
      return part->uses == 0 ? FL_OK : give(host, &part->uses, sizeof part->uses);
    case FL_LOAD:
      return take(input, host, &part->uses, sizeof part->uses);
    /* ANCHOR_END: state */
    default:
      return FL_UNKNOWN;
  }
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
