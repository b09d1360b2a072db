/* Libraries that do what they must not. What is wrong before anything is made is chosen by macros, what goes wrong in a
 * call by the setting `mode`. */
#define _GNU_SOURCE
#include "fl_plugin.h"
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <signal.h>
#include <sys/syscall.h>
#endif

#ifdef REACHES
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#endif

#ifndef MAGIC
#define MAGIC FL_MAGIC
#endif
#ifndef VERSION
#define VERSION FL_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(FlLibrary)
#endif
#ifndef ROLE
#define ROLE "aggregator"
#endif
#ifndef NAME
#define NAME "hostile"
#endif
#ifndef SIGNATURE
#define SIGNATURE "params -> params"
#endif
#ifndef SETTING
#define SETTING "{\"name\": \"mode\", \"doc\": \"What goes wrong.\", \"schema\": {\"type\": \"string\", \"default\": \"\"}}"
#endif
#ifndef DOC
#define DOC "It does what it must not."
#endif
#define PART "{\"role\": \"" ROLE "\", \"name\": \"" NAME "\", \"signature\": \"" SIGNATURE "\", \"doc\": \"" DOC "\", \"settings\": [" SETTING "]}"
#ifndef PARTS
#define PARTS PART
#endif
#ifndef JSON
#define JSON "{\"parts\": [" PARTS "]}"
#endif

typedef struct {
  char mode[64];
} Part;

static int is(const Part *part, const char *mode) { return strcmp(part->mode, mode) == 0; }

static int32_t describe(const FlHost *host, FlText *json) {
  (void)host;
#if defined(DESCRIBE_FAILS)
  return fl_fail(host, "", "no wish to");
#elif defined(DESCRIBE_NULL)
  json->data = NULL;
  json->length = 100;
#elif defined(DESCRIBE_HUGE)
  *json = fl_text("x");
  json->length = (size_t)1 << 40;
#elif defined(MANY_SETTINGS)
  static char all[200000];
  size_t n = (size_t)sprintf(all, "{\"parts\": [{\"role\": \"accountant\", \"name\": \"p\", \"doc\": \"d\", \"settings\": [");
  for (int i = 0; i < 1500; i++) n += (size_t)sprintf(all + n, "%s{\"name\": \"s%d\", \"doc\": \"d\"}", i ? "," : "", i);
  sprintf(all + n, "]}]}");
  *json = fl_text(all);
#elif defined(MANY_PARTS)
  static char all[200000];
  size_t n = (size_t)sprintf(all, "{\"parts\": [");
  for (int i = 0; i < 1500; i++) {
    n += (size_t)sprintf(all + n, "%s{\"role\": \"accountant\", \"name\": \"p%d\", \"doc\": \"d\"}", i ? "," : "", i);
  }
  sprintf(all + n, "]}");
  *json = fl_text(all);
#else
  *json = fl_text(JSON);
#endif
  return FL_OK;
}

static void free_description(FlText json) { (void)json; }

static char many[1000];

static void drop(void *part) {
  if ((char *)part < many || (char *)part >= many + sizeof many) free(part);
}

static int32_t create(uint32_t index, FlText settings, FlText task, const FlHost *host) {
  Part *part = calloc(1, sizeof *part);
  char text[200] = {0};
  char *mode;
  (void)index;
  (void)task;
  memcpy(text, settings.data, settings.length < sizeof text ? settings.length : sizeof text - 1);
  mode = strstr(text, "\"mode\":\"");
  if (mode != NULL) sscanf(mode + 8, "%63[^\"]", part->mode);
  if (is(part, "create-fails")) {
    free(part);
    return fl_fail(host, "mode", "not this one");
  }
  if (is(part, "create-null")) host->part(host->context, NULL);
  if (is(part, "create-nothing") || is(part, "create-null")) {
    free(part);
    return FL_OK;
  }
  if (is(part, "create-same-twice")) host->part(host->context, part);
  if (is(part, "create-endless")) {
    for (int i = 0; i < 1000; i++) host->part(host->context, many + i);
  }
  if (is(part, "create-twice")) host->part(host->context, calloc(1, sizeof *part));
  host->part(host->context, part);
  return FL_OK;
}

#ifdef EXITS_AT_LOAD
__attribute__((constructor)) static void at_load(void) { exit(0); }
#endif

#ifdef LEAVES_AT_LOAD
__attribute__((constructor)) static void leaves(void) { _exit(0); }
#endif

#ifdef HANGS_AT_LOAD
#include <signal.h>
static void outlived(int signal) {
  (void)signal;
  if (write(2, "outlived\n", 9) != 9) abort();
  _exit(1);
}
/* says that it has begun, and that it was not ended */
__attribute__((constructor)) static void hangs(void) {
  signal(SIGALRM, outlived);
  alarm(60);
#ifdef FORKS_FIRST
  if (fork() == 0)
    for (;;) pause();
#endif
  if (write(2, "begun\n", 6) != 6) abort();
  for (;;) pause();
}
#endif

#ifdef WRITES_AT_LOAD
__attribute__((constructor)) static void writes(void) { creat("written", 0600); }
#endif

#ifdef REACHES
static void *thread(void *out) {
  *(int *)out = 0;
  return NULL;
}

static void *waits(void *nothing) {
  for (;;) pause();
  return nothing;
}

extern char **environ;

/* Its socket to the program. */
static int channel(void) {
  int to = -1;
  for (int fd = 3; fd < 256; fd++) {
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) to = fd;
  }
  return to;
}

/* Begins a message of so many bytes to the program, and sends the first of them. */
static void begin_message(uint32_t bytes, unsigned int sent) {
  int to = channel();
  if (write(to, &bytes, sizeof bytes) != sizeof bytes) abort();
  for (; sent > 0; sent--) {
    if (write(to, "", 1) != 1) abort();
    usleep(20000);
  }
}

static void holds_its_thread(int signal) {
  (void)signal;
  for (;;) pause();
}

static void never_ends(void) { for (;;) sched_yield(); }

/* Reaches for something outside of the process: says what came of it, as an error. */
static int32_t reach(const Part *part, const FlHost *host) {
  char text[200];
  long got = -2;
  errno = 0;
  if (is(part, "reads")) got = open("secret", O_RDONLY);
  if (is(part, "reads-what-it-may")) got = open("may/read", O_RDONLY);
  if (is(part, "writes")) got = open("written", O_WRONLY | O_CREAT, 0600);
  if (is(part, "writes-what-it-may-read")) got = open("may/read", O_WRONLY);
  if (is(part, "lists")) got = open(".", O_RDONLY | O_DIRECTORY);
  if (is(part, "removes")) got = unlink("secret");
  if (is(part, "renames")) got = rename("secret", "taken");
  if (is(part, "makes-a-folder")) got = mkdir("made", 0700);
  if (is(part, "links")) got = symlink("secret", "linked");
  if (is(part, "changes-rights")) got = chmod("secret", 0777);
  if (is(part, "cuts")) got = truncate("secret", 0);
  if (is(part, "connects")) got = socket(AF_INET, SOCK_STREAM, 0);
  if (is(part, "connects-here")) got = socket(AF_UNIX, SOCK_STREAM, 0);
  if (is(part, "netlinks")) got = socket(AF_NETLINK, SOCK_RAW, 0);
  if (is(part, "executes")) got = execl("/bin/true", "true", (char *)NULL);
  if (is(part, "runs-a-shell")) got = system("true") == 0 ? 0 : -1;
  if (is(part, "forks-a-child")) {
    got = fork();
    if (got == 0) _exit(0);
  }
  if (is(part, "forks-fast")) {
    got = vfork();
    if (got == 0) _exit(0);
  }
  if (is(part, "signals")) got = kill(getppid(), 0);
  if (is(part, "signals-all")) got = kill(-1, 0);
  if (is(part, "traces")) got = ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
  if (is(part, "looks-into-the-program")) {
    char memory[50];
    sprintf(memory, "/proc/%d/mem", (int)getppid());
    got = open(memory, O_RDONLY);
  }
  if (is(part, "keeps-memory")) got = memfd_create("mine", 0);
  if (is(part, "maps-other-memory")) got = syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
  if (is(part, "asks-in-a-ring")) got = syscall(SYS_io_uring_setup, 1, NULL);
  if (is(part, "raises-limits")) {
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    got = setrlimit(RLIMIT_AS, &most);
  }
  if (is(part, "cuts-the-log")) got = ftruncate(2, 0);
  if (is(part, "unblocks-the-log")) got = fcntl(2, F_SETFL, O_NONBLOCK);
  if (is(part, "begins-a-thread")) {
    pthread_t one;
    int out = -1;
    got = pthread_create(&one, NULL, thread, &out) == 0 && pthread_join(one, NULL) == 0 ? out : -1;
  }
  if (is(part, "begins-many-threads")) {
    pthread_t one;
    for (int i = 0; i < 40; i++) pthread_create(&one, NULL, waits, NULL);
    for (;;) pause();
  }
  if (is(part, "closes")) {
    for (int fd = 0; fd < 1000; fd++) close(fd);
    got = 0;
  }
  if (is(part, "sees-the-environment")) {
    errno = ENOENT;
    got = -1;
    for (char **one = environ; *one != NULL; one++)
      if (strncmp(*one, "SECRET_TOKEN=", 13) == 0) got = 0;
  }
  /* what the program was begun with */
  if (is(part, "has-a-file-of-the-shell")) {
    errno = ENOENT;
    got = -1;
    for (int fd = 3; fd < 256; fd++) {
      char link[64], name[4096] = "";
      sprintf(link, "/proc/self/fd/%d", fd);
      if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "secret") != NULL) got = 0;
    }
  }
  /* a pipe can be opened anew from its number, for reading too */
  if (is(part, "reads-the-output")) got = open("/proc/self/fd/2", O_RDONLY);
  if (is(part, "asks-out-of-turn")) {
    /* the length; a question for part 0, operation 1, with a key and nothing else */
    unsigned char asks[4 + 39] = {39, 0, 0, 0, 2, 0, 1, 32};
    if (write(channel(), asks, sizeof asks) != sizeof asks) abort();
    for (;;) pause();
  }
  /* no read of the program takes as long as the call */
  if (is(part, "drips")) begin_message(1000000, 1000000);
  if (is(part, "announces-too-much")) begin_message(20 << 20, 1);
  /* it takes the thread that would end it, and does not end when it is asked to */
  if (is(part, "outlives")) {
    struct sigaction holds = {.sa_handler = holds_its_thread};
    sigset_t mine;
    sigaction(SIGUSR1, &holds, NULL);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mine, NULL);
    for (int i = 1; i < 8; i++) syscall(SYS_tgkill, getpid(), getpid() + i, SIGUSR1);
    got = atexit(never_ends);
  }
  if (got == -2) return FL_UNKNOWN;
  sprintf(text, "%s: %s", part->mode, got < 0 ? strerror(errno) : "done");
  return fl_fail(host, "", text);
}
#endif

static float *room(const FlHost *host, const char *name, uint32_t dtype, uint32_t dimensions, const size_t *shape) {
  return host->tensor(host->context, fl_text(name), dtype, dimensions, shape);
}

/* What only a process of its own survives. */
static void ends(const Part *part, const FlHost *host) {
  if (is(part, "crashes")) {
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
  }
  if (is(part, "aborts")) {
    host->log(host->context, 1, fl_text("last words"));
    abort();
  }
  if (is(part, "overflows")) {
    volatile char deep[1 << 16];
    deep[0] = (char)part->mode[0];
    ends((const Part *)part, host);
    deep[1] = deep[0];
  }
  for (volatile int i = 0; is(part, "loops"); i++) {
  }
  while (is(part, "eats")) memset(malloc((size_t)16 << 20), 1, (size_t)16 << 20);
}

static int32_t aggregate(Part *part, const FlInput *input, const FlHost *host) {
  const FlTensor *like = &input->messages[0].tensors[0];
  size_t two[1] = {2}, three[1] = {3}, huge[1] = {(size_t)1 << 40}, large[1] = {(size_t)1 << 30}, most[2] = {SIZE_MAX, SIZE_MAX}, many[100] = {1};
  float *out;
  if (is(part, "exits")) exit(0);
  if (is(part, "leaves")) _exit(0);
  if (is(part, "becomes")) execl("/bin/true", "true", (char *)NULL);
#ifdef REACHES
  int32_t reached = reach(part, host);
  if (reached != FL_UNKNOWN) return reached;
#endif
  ends(part, host);
  /* the copy answers when its original has long done so */
  if (is(part, "forks")) {
    pid_t copy = fork();
    if (copy < 0) return fl_fail(host, "", "it could not fork");
    if (copy == 0) usleep(20000);
  }
#ifdef __linux__
  /* without the C library, which would know of it */
  if (is(part, "forks-raw")) {
    long copy = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (copy < 0) return fl_fail(host, "", "it could not fork");
    if (copy == 0) usleep(20000);
  }
#endif
  if (is(part, "rounds-up") || is(part, "as-it-is") || is(part, "forks") || is(part, "forks-raw")) {
    /* a model that the next round's training moves, in numbers that have to be rounded */
    for (size_t t = 0; t < input->messages[0].count; t++) {
      const FlTensor *of = &input->messages[0].tensors[t];
      size_t n = 1;
      for (uint32_t d = 0; d < of->dimensions; d++) n *= of->shape[d];
      out = host->tensor(host->context, of->name, FL_F32, of->dimensions, of->shape);
      for (size_t i = 0; i < n; i++) out[i] = 0.1f;
    }
    if (is(part, "rounds-up")) fesetround(FE_UPWARD);
    return FL_OK;
  }
  if (is(part, "forges")) host->log(host->context, 1, fl_text("fine\nerror: forged \x1b[2J"));
  if (is(part, "endless-error")) {
    size_t n = (size_t)64 << 20;
    char *text = malloc(n);
    memset(text, 'a', n);
    FlText all = fl_text("");
    all.data = (const uint8_t *)text;
    all.length = n;
    for (int i = 0; i < 3; i++) host->fail(host->context, fl_text(""), all);
    free(text);
    return FL_ERROR;
  }
  if (is(part, "error-not-utf8")) return fl_fail(host, "", "bad \xff\xfe text");
  if (is(part, "error-without-reason")) return 99;
  if (is(part, "error-is-null")) {
    FlText none;
    none.data = NULL;
    none.length = 1000;
    host->fail(host->context, none, none);
    return FL_ERROR;
  }
  if (is(part, "error-with-escape")) return fl_fail(host, "a\rb", "\x1b]0;title\x07red \x1b[31m");
  if (is(part, "unknown-operation")) return FL_UNKNOWN;
  if (is(part, "says-it-panicked")) {
    fl_fail(host, "", "out of cheese");
    return FL_PANIC;
  }
  if (is(part, "no-output")) return FL_OK;
  if (is(part, "wrong-shape")) return room(host, "w", FL_F32, 1, three) ? FL_OK : FL_ERROR;
  if (is(part, "wrong-name")) return room(host, "v", FL_F32, 1, two) ? FL_OK : FL_ERROR;
  if (is(part, "wrong-dtype")) return room(host, "w", FL_F64, 1, two) ? FL_OK : FL_ERROR;
  if (is(part, "unknown-dtype")) return room(host, "w", 77, 1, two) ? FL_OK : FL_OK;
  if (is(part, "huge-shape")) return room(host, "w", FL_F32, 1, huge) ? FL_OK : FL_OK;
  if (is(part, "4-GiB-untouched")) return room(host, "w", FL_F32, 1, large) ? FL_OK : FL_ERROR;
  if (is(part, "20000-tensors")) {
    for (int i = 0; i < 20000; i++) {
      char name[20];
      sprintf(name, "w%d", i);
      room(host, name, FL_F32, 1, two);
    }
    return FL_OK;
  }
  if (is(part, "name-with-escape")) return room(host, "w\x1b[31m", FL_F32, 1, two) ? FL_OK : FL_OK;
  if (is(part, "overflowing-shape")) return room(host, "w", FL_F32, 2, most) ? FL_OK : FL_OK;
  if (is(part, "hundred-dimensions")) return room(host, "w", FL_F32, 100, many) ? FL_OK : FL_OK;
  if (is(part, "no-shape")) return room(host, "w", FL_F32, 1, NULL) ? FL_OK : FL_OK;
  if (is(part, "name-not-utf8")) return room(host, "w\xff", FL_F32, 1, two) ? FL_OK : FL_OK;
  if (is(part, "gives-itself")) host->part(host->context, part);
  if (is(part, "gives-a-part")) host->part(host->context, calloc(1, sizeof *part));
  if (is(part, "no-context")) host->tensor(NULL, fl_text("w"), FL_F32, 1, two);
  out = room(host, "w", FL_F32, like->dimensions, like->shape);
  if (out == NULL) return FL_ERROR;
  out[0] = is(part, "nan") ? NAN : 1.0f;
  if (is(part, "twice")) room(host, "w", FL_F32, like->dimensions, like->shape);
  if (is(part, "text-not-utf8")) host->text(host->context, fl_text("\xff"));
  if (is(part, "draws")) {
    double noise[3];
    host->fill_normal(host->context, noise, 3);
    host->fill_uniform(host->context, NULL, 3);
    out[1] = (float)noise[2];
  }
  return FL_OK;
}

/* A selector: the positions are wrong. */
static int32_t choose(Part *part, const FlHost *host) {
  size_t two[1] = {2};
  int odd = is(part, "positions-as-floats");
  uint32_t *out;
  if (is(part, "no-positions")) return FL_OK;
  out = (uint32_t *)room(host, "positions", odd ? FL_F32 : FL_U32, 1, two);
  if (out == NULL) return FL_ERROR;
  out[0] = is(part, "descending") ? 1 : 0;
  out[1] = is(part, "beyond-the-pool") ? 4000000000u : is(part, "descending") ? 0 : 1;
  if (is(part, "same-twice")) out[1] = 0;
  return FL_OK;
}

/* A mechanism: what it gives is no bounded message, or its price no event. */
static int32_t protect(Part *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  const FlTensor *like = &input->messages[0].tensors[0];
  size_t three[1] = {3};
  int other = operation == FL_CLIP ? is(part, "bound-shape") : is(part, "perturb-shape");
  float *out;
#ifdef REACHES
  int32_t reached = operation == FL_CLIP ? reach(part, host) : FL_UNKNOWN;
  if (reached != FL_UNKNOWN) return reached;
#endif
  if (is(part, "is-held")) {
    /* what it gets, once nothing holds it */
    while (operation == FL_CLIP && access("hold", F_OK) == 0) {
      close(creat("held", 0600));
      usleep(1000);
    }
    for (size_t i = 0; operation != FL_PRICE && i < input->messages[0].count; i++) {
      const FlTensor *from = &input->messages[0].tensors[i];
      size_t numbers = 1;
      for (uint32_t k = 0; k < from->dimensions; k++) numbers *= from->shape[k];
      out = host->tensor(host->context, from->name, FL_F32, from->dimensions, from->shape);
      if (out == NULL) return FL_ERROR;
      memcpy(out, from->data, numbers * sizeof *out);
    }
    if (operation != FL_PRICE) return FL_OK;
  }
  ends(part, host);
  if (operation == FL_PRICE) {
    const char *price = "{\"Laplace\": {\"sensitivity\": 1, \"scale\": 1, \"unit\": \"party\"}}";
    if (is(part, "price-unknown")) price = "{\"Bribe\": {}}";
    if (is(part, "price-infinite")) price = "{\"Laplace\": {\"sensitivity\": 1e999, \"scale\": 1, \"unit\": \"party\"}}";
    if (is(part, "no-price")) return FL_UNKNOWN;
    host->text(host->context, fl_text(price));
    return FL_OK;
  }
  out = room(host, "w", FL_F32, like->dimensions, other ? three : like->shape);
  if (out == NULL) return FL_ERROR;
  if (operation == FL_CLIP && is(part, "bound-nan")) out[0] = NAN;
  return FL_OK;
}

/* An accountant: its guarantee is none. */
static int32_t account(Part *part, const FlHost *host) {
  const char *text = "{\"epsilon\": 1, \"delta\": 0, \"unit\": \"party\", \"data_dependent\": false, \"noise\": \"Seeded\"}";
  if (is(part, "guarantee-no-unit")) text = "{\"epsilon\": 1}";
  if (is(part, "guarantee-below-0")) text = "{\"epsilon\": -1, \"delta\": 0, \"unit\": \"party\", \"data_dependent\": false, \"noise\": \"seeded\"}";
  host->text(host->context, fl_text(text));
  return FL_OK;
}

/* The check of settings: mistakes at paths that do not exist. */
static int32_t check(const FlHost *host) {
#if defined(CHECK_DEEP)
  static char all[4000000];
  size_t n = (size_t)sprintf(all, "{\"mistakes\": [{\"text\": \"deep\", \"path\": [0");
  for (int i = 0; i < 1500000; i++) n += (size_t)sprintf(all + n, ",0");
  sprintf(all + n, "]}]}");
  host->text(host->context, fl_text(all));
  return FL_OK;
#elif defined(CHECK)
  host->text(host->context, fl_text(CHECK));
  return FL_OK;
#else
  (void)host;
  return FL_UNKNOWN;
#endif
}

static int32_t call(void *part, uint32_t operation, const FlInput *input, const FlHost *host) {
  if (part == NULL) return operation == FL_CHECK ? check(host) : FL_UNKNOWN;
  switch (operation) {
    case FL_SELECT:
      return choose(part, host);
    case FL_CLIP:
    case FL_PRICE:
    case FL_PERTURB:
      return protect(part, operation, input, host);
    case FL_CHARGE:
      return FL_OK;
    case FL_GUARANTEE:
      return account(part, host);
    case FL_DESCRIBE:
      if (is(part, "about-no-json")) host->text(host->context, fl_text("{needs"));
      else if (is(part, "about-unknown-claim")) host->text(host->context, fl_text("{\"claims\": [\"perfect\"]}"));
      else if (is(part, "about-no-text")) return FL_OK;
      else if (is(part, "about-draws")) host->fill_uniform(host->context, (double[1]){0}, 1);
      else return FL_UNKNOWN;
      return FL_OK;
    case FL_AGGREGATE:
      return aggregate(part, input, host);
    default:
      return FL_UNKNOWN;
  }
}

#if defined(NO_SYMBOL)
int something_else = 1;
#elif !defined(NO_DESCRIBE) && !defined(NO_CREATE) && !defined(NO_CALL) && !defined(NO_DROP) && !defined(NO_FREE)
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, describe, create, call, drop, free_description};
#elif defined(NO_DESCRIBE)
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, NULL, create, call, drop, free_description};
#elif defined(NO_CREATE)
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, describe, NULL, call, drop, free_description};
#elif defined(NO_CALL)
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, describe, create, NULL, drop, free_description};
#elif defined(NO_DROP)
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, describe, create, call, NULL, free_description};
#else
const FlLibrary fl_plugin = {MAGIC, VERSION, SIZE, describe, create, call, drop, NULL};
#endif
