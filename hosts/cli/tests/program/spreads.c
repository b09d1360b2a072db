/* The parts of tests/stateful/src/spreads.rs in C: on a message that only this library declares. */
#include "fl_plugin.h"
#include <stdio.h>

static const char DESCRIPTION[] =
    "{\"messages\": [{\"kind\": \"test-spreads\", \"doc\": \"How far the scores of samples lie apart.\","
    "  \"tensors\": [{\"name\": \"spread\", \"type\": \"f64\", \"shape\": \"rows x 2\", \"doc\": \"lowest and highest score\"},"
    "              {\"name\": \"moves\", \"type\": \"i64\", \"shape\": \"rows\", \"doc\": \"changes of the class\"}]}],"
    " \"parts\": [{\"role\": \"aggregator\", \"name\": \"c-widest\", \"signature\": \"test-spreads -> test-spreads\","
    "  \"doc\": \"For each sample the lowest and the highest score of all clients, and all moves.\", \"settings\": []},"
    " {\"role\": \"privacy\", \"name\": \"c-blur\", \"signature\": \"test-spreads\","
    "  \"doc\": \"Bounds spreads and adds Laplace noise to them; moves become 0.\","
    "  \"settings\": [{\"name\": \"clip\", \"doc\": \"The largest absolute score.\","
    "    \"schema\": {\"type\": \"number\", \"default\": 1.0, \"exclusiveMinimum\": 0}},"
    "   {\"name\": \"scale\", \"doc\": \"The scale of the noise.\","
    "    \"schema\": {\"type\": \"number\", \"default\": 1.0, \"exclusiveMinimum\": 0}}]}]}";

typedef struct {
  uint32_t index;
  double clip, scale;
} Part;

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
  *json = fl_text(DESCRIPTION);
  return FL_OK;
}

static void free_description(FlText json) { (void)json; }

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  Part *part = calloc(1, sizeof *part);
  (void)task;
  if (part == NULL) return fl_fail(host, "", "there is no memory");
  part->index = index;
  part->clip = fl_number(settings, "clip", 1.0);
  part->scale = fl_number(settings, "scale", 1.0);
  host->part(host->context, part);
  return FL_OK;
}

static void drop(void *part) { free(part); }

/* The number at row `i`, column `j`. */
static double spread(const FlMessage *of, size_t i, size_t j) {
  const FlTensor *t = &of->tensors[0];
  return ((const double *)t->data)[(ptrdiff_t)i * t->strides[0] + (ptrdiff_t)j * t->strides[1]];
}

static int64_t moved(const FlMessage *of, size_t i) {
  const FlTensor *t = &of->tensors[1];
  return ((const int64_t *)t->data)[(ptrdiff_t)i * t->strides[0]];
}

static int32_t aggregate(const FlInput *input, const FlHost *host) {
  const FlMessage *first = &input->messages[0];
  size_t n = first->tensors[1].shape[0];
  size_t shape[2] = {n, 2};
  double *out = host->tensor(host->context, fl_text("spread"), FL_F64, 2, shape);
  int64_t *moves = host->tensor(host->context, fl_text("moves"), FL_I64, 1, shape);
  if (out == NULL || moves == NULL) return FL_ERROR;
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < input->count; k++) {
      const FlMessage *one = &input->messages[k];
      double low = spread(one, i, 0), high = spread(one, i, 1);
      out[2 * i] = k == 0 || low < out[2 * i] ? low : out[2 * i];
      out[2 * i + 1] = k == 0 || high > out[2 * i + 1] ? high : out[2 * i + 1];
      moves[i] += moved(one, i);
    }
  }
  return FL_OK;
}

/* The message within the bound, and with noise if `scale` is above 0. */
static int32_t bounded(const Part *part, const FlInput *input, const FlHost *host, double scale) {
  const FlMessage *given = &input->messages[0];
  size_t n = given->tensors[1].shape[0];
  size_t shape[2] = {n, 2};
  double *out = host->tensor(host->context, fl_text("spread"), FL_F64, 2, shape);
  int64_t *moves = host->tensor(host->context, fl_text("moves"), FL_I64, 1, shape);
  if (out == NULL || moves == NULL) return FL_ERROR;
  for (size_t i = 0; i < 2 * n; i++) {
    double x = spread(given, i / 2, i % 2);
    out[i] = x > part->clip ? part->clip : x < -part->clip ? -part->clip : x;
  }
  if (scale > 0.0) host->add_laplace(host->context, out, 2 * n, scale);
  return FL_OK;
}

static int32_t price(const Part *part, const FlInput *input, const FlHost *host) {
  char text[160];
  size_t n = 2 * input->messages[0].tensors[1].shape[0];
  snprintf(text, sizeof text, "{\"Laplace\": {\"sensitivity\": %.17g, \"scale\": %.17g, \"unit\": \"party\"}}",
           2.0 * part->clip * (double)n, part->scale);
  host->text(host->context, fl_text(text));
  return FL_OK;
}

static int32_t call(void *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  const Part *own = part;
  switch (operation) {
    case FL_DESCRIBE:
      if (own->index != 0) return FL_UNKNOWN;
      host->text(host->context, fl_text("{\"claims\": [\"order_free\", \"weight_free\"]}"));
      return FL_OK;
    case FL_AGGREGATE:
      return aggregate(input, host);
    case FL_CLIP:
      return bounded(own, input, host, 0.0);
    case FL_PRICE:
      return price(own, input, host);
    case FL_PERTURB:
      return bounded(own, input, host, own->scale);
    case FL_BYTES:
      return FL_UNKNOWN; /* the declared shapes say it */
    default:
      return FL_UNKNOWN;
  }
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
