/* A trainer that learns a number: a linear model, from 0, by descent on the mean squared error. Its
 * mini-batches are the rows in their order. A setting is the learning rate, which a pass may scale. */
#include "fl_plugin.h"
#include <stdio.h>

static const char DESCRIPTION[] =
    "{\"parts\": [{\"role\": \"trainer\", \"name\": \"c-least-squares\", \"signature\": \"\", "
    "\"doc\": \"Linear regression by descent on the mean squared error.\", \"settings\": [{\"name\": \"lr\", "
    "\"doc\": \"Learning rate.\", \"schema\": {\"type\": \"number\", \"default\": 0.1, \"exclusiveMinimum\": 0}}]}]}";

typedef struct {
  size_t inputs;
  double lr;
  /* one weight for each input, then the bias */
  float numbers[];
} Model;

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

/* The product of the numbers of `"input":[1,28,28]`. */
static size_t input_width(FlText task) {
  static const char name[] = "\"input\":[";
  size_t i = 0, n = sizeof name - 1, width = 1;
  while (i + n <= task.length && memcmp(task.data + i, name, n) != 0) i++;
  for (i += n; i < task.length && task.data[i - 1] != ']'; i++) {
    size_t number = 0;
    for (; i < task.length && task.data[i] >= '0' && task.data[i] <= '9'; i++) number = 10 * number + task.data[i] - '0';
    width *= number;
  }
  return width;
}

static int32_t lacks(const FlHost *host, const char *why) {
  fl_fail(host, "", why);
  return FL_LACKS;
}

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  size_t inputs = input_width(task);
  Model *model;
  (void)index;
  if (!holds(task, "\"Numbers\"") || fl_number(task, "outputs", 0.0) != 1.0) {
    return lacks(host, "it learns one number, and the task is another: give the label `kind: number`");
  }
  model = calloc(1, sizeof *model + (inputs + 1) * sizeof(float));
  if (model == NULL) return fl_fail(host, "", "there is no memory");
  model->inputs = inputs;
  model->lr = fl_number(settings, "lr", 0.1);
  host->part(host->context, model);
  return FL_OK;
}

static void drop(void *model) { free(model); }

static const FlTensor *named(const FlInput *input, const char *name) {
  for (size_t t = 0; input->count > 0 && t < input->messages[0].count; t++) {
    const FlTensor *tensor = &input->messages[0].tensors[t];
    if (tensor->name.length == strlen(name) && memcmp(tensor->name.data, name, tensor->name.length) == 0) return tensor;
  }
  return NULL;
}

static size_t count(const FlTensor *t) {
  size_t n = 1;
  for (uint32_t d = 0; d < t->dimensions; d++) n *= t->shape[d];
  return n;
}

/* The `i`-th number in row order. */
static float at(const FlTensor *t, size_t i) {
  ptrdiff_t k = 0;
  for (uint32_t d = t->dimensions; d-- > 0;) {
    k += (ptrdiff_t)(i % t->shape[d]) * t->strides[d];
    i /= t->shape[d];
  }
  return ((const float *)t->data)[k];
}

static double predicted(const Model *model, const FlTensor *values, size_t row) {
  double sum = (double)model->numbers[model->inputs];
  for (size_t j = 0; j < model->inputs; j++) sum += (double)model->numbers[j] * (double)at(values, row * model->inputs + j);
  return sum;
}

/* One step on `batch` rows from `first`; gives their mean squared error before it. */
static double step(Model *model, const FlTensor *values, const FlTensor *target, size_t first, size_t batch, double rate, double *slope) {
  double loss = 0.0;
  memset(slope, 0, (model->inputs + 1) * sizeof *slope);
  for (size_t row = first; row < first + batch; row++) {
    double off = predicted(model, values, row) - (double)at(target, row);
    loss += off * off / (double)batch;
    for (size_t j = 0; j < model->inputs; j++) slope[j] += 2.0 * off * (double)at(values, row * model->inputs + j) / (double)batch;
    slope[model->inputs] += 2.0 * off / (double)batch;
  }
  for (size_t j = 0; j <= model->inputs; j++) model->numbers[j] -= (float)(rate * model->lr * slope[j]);
  return loss;
}

static int32_t train(Model *model, const FlInput *input, const FlHost *host) {
  const FlTensor *values = named(input, "values"), *target = named(input, "target");
  size_t rows, batch = (size_t)fl_number(input->text, "batch", 1.0), steps = (size_t)fl_number(input->text, "Steps", 0.0), first = 0;
  size_t epoch, counted;
  double *slope, sum = 0.0, rate = fl_number(input->text, "rate", 1.0);
  char text[80];
  if (!holds(input->text, "\"target\":\"scores\"") || !holds(input->text, "\"loss\":\"Mse\"")) {
    return lacks(host, "it learns numbers by the squared error");
  }
  if (values == NULL || target == NULL || values->dimensions == 0) return FL_SHAPE;
  rows = values->shape[0];
  if (count(values) != rows * model->inputs || count(target) != rows) return FL_SHAPE;
  if (batch > rows) batch = rows;
  epoch = batch > 0 ? (rows + batch - 1) / batch : 0;
  if (!holds(input->text, "\"Steps\"")) steps = (size_t)fl_number(input->text, "Epochs", 0.0) * epoch;
  if (rows == 0) steps = 0;
  /* the loss is that of the last epoch */
  counted = steps < epoch ? steps : epoch;
  slope = malloc((model->inputs + 1) * sizeof *slope);
  if (slope == NULL) return fl_fail(host, "", "there is no memory");
  for (size_t taken = 0; taken < steps; taken++) {
    size_t here = rows - first < batch ? rows - first : batch;
    double loss = step(model, values, target, first, here, rate, slope);
    if (taken + counted >= steps) sum += loss;
    first = first + here < rows ? first + here : 0;
  }
  free(slope);
  snprintf(text, sizeof text, "{\"steps\": %zu, \"loss\": %.17g}", steps, counted == 0 ? 0.0 : sum / (double)counted);
  host->text(host->context, fl_text(text));
  return FL_OK;
}

static int32_t give(const Model *model, const FlHost *host, const char *name, size_t from, size_t n) {
  float *out = host->tensor(host->context, fl_text(name), FL_F32, 1, &n);
  if (out == NULL) return FL_ERROR;
  memcpy(out, model->numbers + from, n * sizeof *out);
  return FL_OK;
}

static int32_t take(Model *model, const FlInput *input, const char *name, size_t from, size_t n) {
  const FlTensor *given = named(input, name);
  if (given == NULL || given->dtype != FL_F32 || count(given) != n) return FL_SHAPE;
  for (size_t i = 0; i < n; i++) model->numbers[from + i] = at(given, i);
  return FL_OK;
}

static int32_t call(void *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  Model *model = part;
  const FlTensor *given;
  size_t bytes, shape[2] = {0, 1};
  uint8_t *state;
  int32_t code;
  float *scores;
  if (model == NULL) return FL_UNKNOWN;
  bytes = (model->inputs + 1) * sizeof(float);
  switch (operation) {
    case FL_DESCRIBE:
      host->text(host->context, fl_text("{\"parametric\": true, \"scales_rate\": true, \"learns\": [\"Mse\"]}"));
      return FL_OK;
    case FL_TRAIN:
      return train(model, input, host);
    case FL_PREDICT:
      given = named(input, "values");
      if (given == NULL || given->dimensions == 0 || count(given) != given->shape[0] * model->inputs) return FL_SHAPE;
      shape[0] = given->shape[0];
      scores = host->tensor(host->context, fl_text("scores"), FL_F32, 2, shape);
      if (scores == NULL) return FL_ERROR;
      for (size_t row = 0; row < shape[0]; row++) scores[row] = (float)predicted(model, given, row);
      return FL_OK;
    case FL_PARAMS:
      code = give(model, host, "weight", 0, model->inputs);
      return code != FL_OK ? code : give(model, host, "bias", model->inputs, 1);
    case FL_SET_PARAMS:
      code = take(model, input, "weight", 0, model->inputs);
      return code != FL_OK ? code : take(model, input, "bias", model->inputs, 1);
    case FL_SAVE:
      state = host->tensor(host->context, fl_text("state"), FL_U8, 1, &bytes);
      if (state == NULL) return FL_ERROR;
      memcpy(state, model->numbers, bytes);
      return FL_OK;
    case FL_LOAD:
      given = named(input, "state");
      if (given == NULL || given->dtype != FL_U8 || count(given) != bytes) return FL_SHAPE;
      memcpy(model->numbers, given->data, bytes);
      return FL_OK;
    default:
      return FL_UNKNOWN;
  }
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
