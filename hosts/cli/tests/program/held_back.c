/* A protocol in C whose clients count the rows that they learn from and those that they have held
 * back, by class 0 or not. */
#include "fl_plugin.h"
#include <stdio.h>

static const char DESCRIPTION[] =
    "{\"parts\": [{\"role\": \"protocol\", \"name\": \"c-held-back\","
    " \"doc\": \"Each client tells how many of its held-out rows are of class 0.\","
    " \"settings\": [{\"name\": \"declares\", \"doc\": \"Whether it declares that it uses them.\","
    "   \"schema\": {\"type\": \"boolean\", \"default\": true}}]}]}";

static const char DECLARES[] =
    "{\"slots\": [], \"exchanges\": [{\"label\": \"count\", \"down\": \"nothing\", \"up\": \"scalar\", \"times\": 1, \"rows\": 0,"
    " \"voices\": 1, \"copies\": 1, \"model\": \"model\", \"held_out\": %s}], \"grows\": null, \"begins_with\": null,"
    " \"loads\": null, \"pooled\": false, \"measures\": [{\"of\": \"each\", \"name\": \"own\"},"
    " {\"of\": \"each\", \"name\": \"held\"}, {\"of\": \"each\", \"name\": \"held.first\"}]}";

enum { TENSORS = 4, DIMENSIONS = 4, TEXT = 4096 };

typedef struct {
  int declares;
} Part;

/* What the program has answered to a question. */
typedef struct {
  const FlHost *host; /* of the call in which it was asked */
  char text[TEXT];
  FlTensor tensors[TENSORS];
  size_t shapes[TENSORS][DIMENSIONS];
  ptrdiff_t strides[TENSORS][DIMENSIONS];
  char names[TENSORS][32];
  size_t count;
} Answer;

static void take_log(void *context, uint32_t level, FlText text) {
  const FlHost *host = ((Answer *)context)->host;
  host->log(host->context, level, text);
}

static void take_failure(void *context, FlText setting, FlText text) {
  const FlHost *host = ((Answer *)context)->host;
  host->fail(host->context, setting, text);
}

static void take_text(void *context, FlText json) {
  Answer *answer = context;
  size_t n = json.length < TEXT - 1 ? json.length : TEXT - 1;
  memcpy(answer->text, json.data, n);
  answer->text[n] = 0;
}

static void *take_tensor(void *context, FlText name, uint32_t dtype, uint32_t dimensions, const size_t *shape) {
  static const size_t BYTES[] = {4, 8, 4, 1, 8, 1};
  Answer *answer = context;
  size_t at = answer->count, n = 1;
  if (at == TENSORS || dimensions > DIMENSIONS || name.length >= sizeof answer->names[at] || dtype > FL_BITS) return NULL;
  for (uint32_t d = dimensions; d-- > 0;) {
    answer->shapes[at][d] = shape[d];
    answer->strides[at][d] = (ptrdiff_t)n;
    n *= shape[d];
  }
  memcpy(answer->names[at], name.data, name.length);
  void *data = calloc(n + 1, BYTES[dtype]);
  if (data == NULL) return NULL;
  FlText kept = {(const uint8_t *)answer->names[at], name.length};
  FlTensor tensor = {kept, data, answer->shapes[at], answer->strides[at], dimensions, dtype};
  answer->tensors[at] = tensor;
  answer->count++;
  return data;
}

static void drop_answer(Answer *answer) {
  for (size_t t = 0; t < answer->count; t++) free((void *)answer->tensors[t].data);
  answer->count = 0;
}

/* Asks the program for an operation with a text and one message of these tensors. */
static int32_t ask(const FlHost *host, uint32_t operation, const char *text, const FlTensor *tensors, size_t count,
                   Answer *answer) {
  FlMessage message = {0};
  FlInput input = {sizeof input, fl_text(text), &message, 1};
  FlHost mine = *host;
  message.tensors = tensors;
  message.count = count;
  memset(answer, 0, sizeof *answer);
  answer->host = host;
  mine.context = answer;
  mine.log = take_log;
  mine.fail = take_failure;
  mine.text = take_text;
  mine.tensor = take_tensor;
  mine.call = NULL;
  return host->call(host->context, 0, operation, &input, &mine);
}

/* Copies the list or the mapping at `"key":` in a text. */
static int copied(const char *text, const char *key, char *out, size_t most) {
  const char *at = strstr(text, key);
  size_t depth = 0, n = 0;
  if (at == NULL) return 0;
  for (at += strlen(key); *at != 0 && n + 1 < most; at++) {
    out[n++] = *at;
    depth += *at == '{' || *at == '[';
    if ((*at == '}' || *at == ']') && --depth == 0) {
      out[n] = 0;
      return 1;
    }
  }
  return 0;
}

/* Counts the rows that an operation gives, and those of class 0. */
static int32_t counted(const FlHost *host, uint32_t operation, size_t *all, size_t *first) {
  Answer examples, targets;
  int32_t code = ask(host, operation, "{}", NULL, 0, &examples);
  *all = *first = 0;
  if (code == FL_OK) {
    code = ask(host, FL_TARGETS, examples.text, examples.tensors, examples.count, &targets);
    if (code == FL_OK && targets.count != 1) code = fl_fail(host, "", "the examples have no classes");
    if (code == FL_OK) {
      const FlTensor *target = &targets.tensors[0];
      *all = target->shape[0];
      for (size_t i = 0; i < *all; i++) *first += ((const uint32_t *)target->data)[i] == 0;
    }
    drop_answer(&targets);
  }
  drop_answer(&examples);
  return code;
}

static int32_t measure(const FlHost *host, const char *name, size_t value) {
  char text[100];
  Answer none;
  snprintf(text, sizeof text, "{\"name\": \"%s\", \"value\": %zu}", name, value);
  return ask(host, FL_MEASURE, text, NULL, 0, &none);
}

/* A client's answer. */
static int32_t answer(const FlHost *host) {
  size_t own, held, first, one = 1;
  int32_t code = counted(host, FL_OWN, &own, &first);
  if (code == FL_OK) code = measure(host, "own", own);
  if (code == FL_OK) code = counted(host, FL_HELD_OUT, &held, &first);
  if (code == FL_OK) code = measure(host, "held", held);
  if (code == FL_OK) code = measure(host, "held.first", first);
  if (code != FL_OK) return code;
  float *out = host->tensor(host->context, fl_text("value"), FL_F32, 1, &one);
  if (out == NULL) return FL_ERROR;
  *out = (float)first;
  return FL_OK;
}

/* The server's side: one step, in which it asks every client. */
static int32_t lead(const FlInput *input, const FlHost *host) {
  char given[TEXT], round[TEXT], to[TEXT / 4], which[TEXT / 4], text[2 * TEXT];
  uint8_t nothing = 0;
  size_t none = 0, n = input->text.length < TEXT - 1 ? input->text.length : TEXT - 1;
  ptrdiff_t stride = 1;
  FlTensor state = {fl_text("state"), &nothing, &none, &stride, 1, FL_U8};
  Answer answered;
  memcpy(given, input->text.data, n);
  given[n] = 0;
  int32_t code = ask(host, FL_BEGIN_STEP, "{\"name\": \"counting\", \"number\": 0, \"of\": 0}", NULL, 0, &answered);
  if (code != FL_OK) return code;
  if (!copied(answered.text, "\"round\":", round, sizeof round)) {
    drop_answer(&answered);
    return FL_OK; /* it was done before */
  }
  if (!copied(given, "\"ids\":", to, sizeof to)) return fl_fail(host, "", "the text names no clients");
  /* each gets the first message */
  n = 0;
  for (const char *at = to; *at != 0; at++) {
    if (*at < '0' || *at > '9') which[n++] = *at;
    else if (n == 0 || which[n - 1] != '0') which[n++] = '0';
  }
  which[n] = 0;
  snprintf(text, sizeof text, "{\"round\": %s, \"label\": \"count\", \"to\": %s, \"which\": %s}", round, to, which);
  code = ask(host, FL_COLLECT, text, NULL, 0, &answered);
  drop_answer(&answered);
  if (code != FL_OK) return code;
  code = ask(host, FL_JUDGE_STEP, "{\"failed\": null}", NULL, 0, &answered);
  if (code != FL_OK) return code;
  return ask(host, FL_FINISH_STEP, "{}", &state, 1, &answered);
}

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
  *json = fl_text(DESCRIPTION);
  return FL_OK;
}

static void free_description(FlText json) { (void)json; }

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  static const char NO[] = "\"declares\":false";
  Part *part = malloc(sizeof *part);
  (void)index;
  (void)task;
  if (part == NULL) return fl_fail(host, "", "there is no memory");
  part->declares = 1;
  for (size_t i = 0; i + sizeof NO - 1 <= settings.length; i++) {
    if (memcmp(settings.data + i, NO, sizeof NO - 1) == 0) part->declares = 0;
  }
  host->part(host->context, part);
  return FL_OK;
}

static void drop(void *part) { free(part); }

static int32_t call(void *pointer, uint32_t operation, const FlInput *input, const FlHost *host) {
  const Part *part = pointer;
  char text[sizeof DECLARES + 8];
  switch (operation) {
    case FL_DECLARE:
      snprintf(text, sizeof text, DECLARES, part->declares ? "true" : "false");
      host->text(host->context, fl_text(text));
      return FL_OK;
    case FL_LEAD:
      return lead(input, host);
    case FL_ANSWER:
      return answer(host);
    default:
      return FL_UNKNOWN;
  }
}

const FlLibrary fl_plugin = {
    FL_MAGIC, FL_VERSION, sizeof(FlLibrary), describe, create, call, drop, free_description,
};
