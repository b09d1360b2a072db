/* An aggregator in C that counts votes, each a thousand times: who relies on it relies on its word. */
#include "fl_plugin.h"

static const char DESCRIPTION[] =
    "{\"parts\": [{\"role\": \"aggregator\", \"name\": \"c-loud-vote\", \"signature\": \"votes -> counts\","
    " \"doc\": \"Counts each vote a thousand times.\", \"settings\": []}]}";

/* One part: it has no settings and keeps nothing. */
typedef struct {
  char nothing;
} Part;

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
  *json = fl_text(DESCRIPTION);
  return FL_OK;
}

/* The description is a constant. */
static void free_description(FlText json) { (void)json; }

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  Part *part = malloc(sizeof *part);
  (void)index; /* there is one part only */
  (void)settings;
  (void)task;
  if (part == NULL) return fl_fail(host, "", "there is no memory");
  host->part(host->context, part);
  return FL_OK;
}

static void drop(void *part) { free(part); }

static const FlTensor *named(const FlMessage *mail, const char *name) {
  for (size_t t = 0; t < mail->count; t++) {
    const FlText *found = &mail->tensors[t].name;
    if (found->length == strlen(name) && memcmp(found->data, name, found->length) == 0) return &mail->tensors[t];
  }
  return NULL;
}

static uint32_t at(const FlTensor *t, size_t row, size_t column) {
  ptrdiff_t k = (ptrdiff_t)row * t->strides[0];
  if (t->dimensions > 1) k += (ptrdiff_t)column * t->strides[1];
  return ((const uint32_t *)t->data)[k];
}

/* Every client votes on the same rows. */
static int32_t aggregate(const FlInput *input, const FlHost *host) {
  const FlTensor *rows = named(&input->messages[0], "rows");
  const FlTensor *classes = named(&input->messages[0], ".classes");
  if (rows == NULL || classes == NULL) return fl_fail(host, "", "these are no votes");
  const size_t shape[2] = {rows->shape[0], at(classes, 0, 0)};
  uint32_t *ids = host->tensor(host->context, rows->name, FL_U32, 1, shape);
  double *values = host->tensor(host->context, fl_text("values"), FL_F64, 2, shape);
  if (ids == NULL || values == NULL) return FL_ERROR;
  for (size_t row = 0; row < shape[0]; row++) ids[row] = at(rows, row, 0);
  for (size_t i = 0; i < shape[0] * shape[1]; i++) values[i] = 0.0;
  for (size_t k = 0; k < input->count; k++) {
    const FlTensor *labels = named(&input->messages[k], "labels");
    if (labels == NULL) return fl_fail(host, "", "these are no votes");
    for (size_t row = 0; row < shape[0]; row++) {
      for (size_t voter = 0; voter < labels->shape[1]; voter++) {
        values[row * shape[1] + at(labels, row, voter)] += 1000.0;
      }
    }
  }
  return FL_OK;
}

static int32_t call(void *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  (void)part;
  return operation == FL_AGGREGATE ? aggregate(input, host) : FL_UNKNOWN;
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
