/* An aggregator called `c-mean`, in C: the weighted mean of the clients' parameters, times a
 * factor.
 *
 * Build it with -ffp-contract=off: a product must be rounded before it is added, as everywhere in
 * fl, or the bits depend on the machine. */
#include "fl_plugin.h"

static const char DESCRIPTION[] =
    "{\"parts\": [{\"role\": \"aggregator\", \"name\": \"c-mean\", \"signature\": \"params -> params\","
    " \"doc\": \"Mean of the clients' parameters, weighted by their numbers of examples, times a factor.\","
    " \"settings\": [{\"name\": \"shrink\", \"doc\": \"Factor on the mean; below 1 it decays.\","
    "   \"schema\": {\"type\": \"number\", \"default\": 1.0, \"exclusiveMinimum\": 0, \"maximum\": 1}}]}]}";

static const char ABOUT[] =
    "{\"needs\": [\"samples\"], \"claims\": [\"order_free\", \"weight_scale_free\"], \"folds\": false}";

/* One part: its settings, and what it keeps from round to round (here: nothing). */
typedef struct {
  double shrink;
} Part;

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
  *json = fl_text(DESCRIPTION);
  return FL_OK;
}

/* The description is a constant. */
static void free_description(FlText json) { (void)json; }

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  Part *part = calloc(1, sizeof *part);
  (void)index; /* there is one part only */
  (void)task;
  if (part == NULL) return fl_fail(host, "", "there is no memory");
  part->shrink = fl_number(settings, "shrink", 1.0);
  host->part(host->context, part);
  return FL_OK;
}

static void drop(void *part) { free(part); }

static size_t count(const FlTensor *t) {
  size_t n = 1;
  for (uint32_t d = 0; d < t->dimensions; d++) n *= t->shape[d];
  return n;
}

/* The number at position `i` in row order, wherever it lies. */
static double at(const FlTensor *t, size_t i) {
  ptrdiff_t k = 0;
  for (uint32_t d = t->dimensions; d-- > 0;) {
    k += (ptrdiff_t)(i % t->shape[d]) * t->strides[d];
    i /= t->shape[d];
  }
  return (double)((const float *)t->data)[k];
}

/* The inbox is never empty, its messages have the same tensors in the same order, and every number
 * is finite. */
static int32_t aggregate(const Part *part, const FlInput *input, const FlHost *host) {
  const FlMessage *first = &input->messages[0];
  double total = 0.0;
  for (size_t k = 0; k < input->count; k++) total += input->messages[k].weight;
  for (size_t t = 0; t < first->count; t++) {
    const FlTensor *like = &first->tensors[t];
    float *out = host->tensor(host->context, like->name, FL_F32, like->dimensions, like->shape);
    if (out == NULL) return FL_ERROR;
    for (size_t i = 0, n = count(like); i < n; i++) {
      double sum = 0.0;
      for (size_t k = 0; k < input->count; k++) {
        sum += input->messages[k].weight * at(&input->messages[k].tensors[t], i);
      }
      out[i] = (float)(sum / total * part->shrink);
    }
  }
  return FL_OK;
}

static int32_t call(void *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  switch (operation) {
    case FL_DESCRIBE:
      host->text(host->context, fl_text(ABOUT));
      return FL_OK;
    case FL_AGGREGATE:
      return aggregate(part, input, host);
    default:
      return FL_UNKNOWN;
  }
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
