/* options.c: the command line -> Options. What is wrong with it ends dtc with exit code 2 and a message.

     dtc charlm.dt --mesh data=4 --emit=schedule,c=model.c -o train                                          */
#include "driver.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static const char *const emit_names[EMIT_NKINDS] = {"ast",    "ir",          "spmd", "schedule", "schedule-json",
                                                    "memory", "memory-json", "c",    "cuda",     "exe"};

enum {
  KEY_MESH = 256,
  KEY_SET,
  KEY_EMIT,
  KEY_PRINT_AFTER,
  KEY_FROM,
  KEY_STOP_AFTER,
  KEY_TIME,
  KEY_GATHERED,
  KEY_CLUSTER,
  KEY_MEMORY,
  KEY_PARTITION,
  KEY_ERRORS,
  KEY_CC,
  KEY_TARGET,
  KEY_ARCH,
  KEY_TF32,
  KEY_FAST,
  KEY_NVCC,
  KEY_CERTIFICATE,
  KEY_EXPLAIN,
  KEY_DIFF,
  KEY_STRICT,
  KEY_VERSION
};

static const struct argp_option option_table[] = {
    {"output", 'o', "OUT", 0, "the program to make (train), or the file for the one text that --emit asks for", 0},
    {"mesh", KEY_MESH, "AXIS=N,...", 0, "sizes of mesh axes, in place of those in FILE", 0},
    {"set", KEY_SET, "DIM=N,...", 0, "sizes of dims, in place of those in FILE", 0},
    {"emit", KEY_EMIT, "KIND[=PATH],...", 0,
     "what to make: see below. Text without a PATH goes to standard output, as does PATH -", 0},
    {"cc", KEY_CC, "PATH", 0, "the C compiler for exe; with --target=cuda the one that nvcc uses", 0},
    {"target", KEY_TARGET, "c|cuda", 0, "what the program runs on: the cores of a machine (the default), or NVIDIA GPUs", 0},
    {"arch", KEY_ARCH, "sm_NN,...", 0, "CUDA: the GPUs to compile for (sm_80,sm_90); later ones than the last can run it, too",
     0},
    {"tf32", KEY_TF32, NULL, 0, "CUDA: products may round their operands to TF32", 0},
    {"fast", KEY_FAST, NULL, 0, "CUDA: sums may be in any order; runs no longer repeat bit for bit", 0},
    {"nvcc", KEY_NVCC, "PATH", 0, "CUDA: its compiler", 0},
    {"cluster", KEY_CLUSTER, "NAME|FILE.json", 0,
     "what links and devices can do: host (the default), bytes (fewest bytes), h100, a100, or a file", 0},
    {"memory-limit", KEY_MEMORY, "SIZE", 0, "bytes of a device, with K, M, G or T: nothing larger is made on the way", 0},
    {"partition", KEY_PARTITION, "global|propagate", 0,
     "how open layouts are chosen: for the whole program by cost (the default), or by spreading what is given", 0},
    {"keep-gathered", KEY_GATHERED, NULL, 0, "keep gathered values for the backward pass instead of gathering them again", 0},
    {"certificate", KEY_CERTIFICATE, "PATH", 0,
     "write down that the plan computes what FILE says, with all that `dtc verify PATH` needs to repeat it", 0},
    {NULL, 0, NULL, 0, "Messages:", 1},
    {"error-format", KEY_ERRORS, "text|json", 0, "how errors are printed; json: one object per line", 1},
    {"explain", KEY_EXPLAIN, "LINE|%VALUE|CODE", OPTION_ARG_OPTIONAL,
     "why FILE's tensors are laid out as they are and what each collective is for: all, or of one line or value; of an error "
     "code: what it means, with an example",
     1},
    {"diff", KEY_DIFF, NULL, 0, "two files, OLD NEW: what changes in the plan", 1},
    {"strict", KEY_STRICT, NULL, 0, "a collective that the file does not spell is an error", 1},
    {NULL, 'W', "NAME", OPTION_ARG_OPTIONAL,
     "all warnings, or NAME; -Wno-NAME not that one, -Werror all as errors, -Werror=NAME that one. Names: unused-parameter, "
     "implicit-gather, replicated, padding",
     1},
    {"version", KEY_VERSION, NULL, 0, "print the version; with --verbose also compiler, BLAS and paths", 1},
    {"verbose", 'v', NULL, 0, "say more: which attention was not recognised and why; with --version, the paths", 1},
    {NULL, 0, NULL, 0, "Looking inside:", 2},
    {"print-after", KEY_PRINT_AFTER, "PASS|all", 0, "print the IR after a pass", 2},
    {"stop-after", KEY_STOP_AFTER, "PASS", 0, "stop there and print the IR", 2},
    {"from", KEY_FROM, "STAGE|PASS", 0, "FILE is IR text: begin with the first pass that takes STAGE, or with PASS", 2},
    {"time-passes", KEY_TIME, NULL, 0, "print how long each pass took", 2},
    {0}};

/* ---- values ----------------------------------------------------------------------------------------------- */

/* Takes the next item of a list from *rest; NULL at its end. */
static char *next_item(char **rest) {
  char *item = *rest;
  if (!item || !*item) return NULL;
  char *comma = strchr(item, ',');
  if (comma) *comma = 0;
  *rest = comma ? comma + 1 : NULL;
  return item;
}

static bool is_name(const char *s) {
  if (!isalpha((unsigned char)*s) && *s != '_') return false;
  while (isalnum((unsigned char)*s) || *s == '_') s++;
  return *s == 0;
}

static bool positive(const char *s, int64_t *out) {
  char *end;
  errno = 0;
  long long v = strtoll(s, &end, 10);
  *out = v;
  return isdigit((unsigned char)*s) && *end == 0 && errno == 0 && v > 0;
}

/* `80G`: units of 1024. */
static int64_t size_value(const char *text, struct argp_state *state) {
  static const char units[] = "KMGT";
  size_t n = strlen(text);
  const char *unit = n > 1 && text[n - 1] ? strchr(units, text[n - 1]) : NULL;
  char digits[32] = "";
  int64_t bytes = 0;
  n -= unit != NULL;
  if (n < sizeof digits) memcpy(digits, text, n), digits[n] = 0;
  bool ok = positive(digits, &bytes);
  for (const char *u = units; unit && u <= unit; u++) ok = ok && checked_mul(bytes, 1024, &bytes);
  if (!ok) argp_error(state, "--memory-limit: expected a number of bytes, such as 512M or 80G, not `%s`", text);
  return bytes;
}

static bool propagates(const char *text, struct argp_state *state) {
  if (strcmp(text, "global") && strcmp(text, "propagate"))
    argp_error(state, "--partition is global or propagate, not `%s`", text);
  return !strcmp(text, "propagate");
}

static Target target_value(const char *text, struct argp_state *state) {
  if (strcmp(text, "c") && strcmp(text, "cuda")) argp_error(state, "--target is c or cuda, not `%s`", text);
  return strcmp(text, "c") ? TARGET_CUDA : TARGET_C;
}

/* `sm_80,sm_90` */
static void add_archs(Options *o, const char *text, struct argp_state *state) {
  for (char *rest = arena_strdup(o->arena, text), *item; (item = next_item(&rest));) {
    int64_t number = 0;
    bool ok = !strncmp(item, "sm_", 3) && strlen(item) <= 6 && positive(item + 3, &number) && number >= 10;
    if (!ok) argp_error(state, "--arch: expected names such as sm_80, not `%s`", item);
    vec_push(o->arena, o->arch, item + 3);
  }
  if (!o->arch.n) argp_error(state, "--arch: expected names such as sm_80, not `%s`", text);
}

/* `data=4,model=2`; lists of FrontendOptions have no type of their own, hence a macro. */
#define PUSH_SIZES(o, list, text, what, state)                                                                                   \
  for (char *rest_ = arena_strdup((o)->arena, (text)), *item_; (item_ = next_item(&rest_));) {                                   \
    char *eq_ = strchr(item_, '=');                                                                                              \
    int64_t n_ = 0;                                                                                                              \
    if (eq_) *eq_ = 0;                                                                                                           \
    if (!eq_ || !is_name(item_) || !positive(eq_ + 1, &n_))                                                                      \
      argp_error((state), "%s: expected NAME=SIZE with a size of at least 1, not `%s%s%s`", (what), item_, eq_ ? "=" : "",       \
                 eq_ ? eq_ + 1 : "");                                                                                            \
    vec_grow((o)->arena, (void **)&(list).at, (list).n, &(list).cap, sizeof *(list).at);                                         \
    (list).at[(list).n].name = item_;                                                                                            \
    (list).at[(list).n++].value = n_;                                                                                            \
  }

static void add_emits(Options *o, const char *text, struct argp_state *state) {
  if (!*text) argp_error(state, "--emit needs a kind");
  for (char *rest = arena_strdup(o->arena, text), *item; (item = next_item(&rest));) {
    char *path = strchr(item, '=');
    if (path) *path++ = 0;
    int k = 0;
    while (k < EMIT_NKINDS && strcmp(item, emit_names[k])) k++;
    if (k == EMIT_NKINDS) argp_error(state, "--emit: there is no `%s`", item);
    if (path && !*path) argp_error(state, "--emit: %s= needs a path", item);
    if (k == EMIT_EXE && path && !strcmp(path, "-")) argp_error(state, "--emit: a program cannot go to standard output");
    o->emit[k] = (Emit){true, path};
  }
}

static void add_warning(Options *o, const char *text, struct argp_state *state) {
  if (!diag_policy(diags_new(o->arena), text)) argp_error(state, "-W%s: there is no such warning", text);
  vec_push(o->arena, o->warnings, text);
}

static void need_pass(const char *option, const char *pass, struct argp_state *state) {
  if (pipeline_find(pass) < 0) argp_error(state, "%s: there is no pass `%s`", option, pass);
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

/* `--explain E0123` in two words. */
static bool is_code(const char *s) {
  bool digits = (*s == 'E' || *s == 'W') && strlen(s) == 5;
  for (int i = 1; digits && i < 5; i++) digits = isdigit((unsigned char)s[i]);
  return digits;
}

static void take_file(Options *o, const char *text, struct argp_state *state) {
  if (o->explain && !*o->explain && is_code(text))
    o->explain = text;
  else if (o->diff && !o->file && state->arg_num == 0)
    o->diff = o->file = text;
  else if (o->diff && o->file == o->diff)
    o->file = text;
  else if (state->arg_num == 0 && !strcmp(text, "check"))
    o->check = true;
  else if (state->arg_num == 0 && !strcmp(text, "verify"))
    o->verify = true;
  else if (o->file)
    argp_error(state, "more than one file: %s and %s", o->file, text);
  else
    o->file = text;
}

/* --emit=c and cuda also say what the target is. What is only for CUDA is an error elsewhere; IR text may name its target itself.
 */
static void finish_target(Options *o, struct argp_state *state) {
  bool text = o->emit[EMIT_C].wanted || o->emit[EMIT_CUDA].wanted;
  if (text && !o->target_given) o->target = o->emit[EMIT_CUDA].wanted ? TARGET_CUDA : TARGET_C, o->target_given = true;
  bool cuda = o->target == TARGET_CUDA, open = o->from && !o->target_given;
  if (o->emit[EMIT_C].wanted && cuda) argp_error(state, "--emit=c is the text of --target=c");
  if (o->emit[EMIT_CUDA].wanted && !cuda) argp_error(state, "--emit=cuda is the text of --target=cuda");
  const char *extra = o->arch.n ? "arch" : o->tf32 ? "tf32" : o->fast ? "fast" : o->nvcc ? "nvcc" : NULL;
  if (extra && !cuda && !open && !o->version) argp_error(state, "--%s is for --target=cuda", extra);
}

static void finish(Options *o, struct argp_state *state) {
  finish_target(o, state);
  bool code = o->explain && *o->explain && *o->explain != '%' && !isdigit((unsigned char)*o->explain);
  if (!o->file && !code && !o->version) argp_error(state, "no file is given");
  if (o->diff && o->diff == o->file) argp_error(state, "--diff compares two files: OLD NEW");
  int first = o->from ? pipeline_start(o->from) : 0, last = o->stop_after ? pipeline_find(o->stop_after) : pipeline_length;
  if (first > last) argp_error(state, "%s comes after %s", o->from, o->stop_after);
  if (o->from && o->emit[EMIT_AST].wanted) argp_error(state, "--emit=ast is of .dt text");
  if (o->from && (o->frontend.mesh.n || o->frontend.dims.n)) argp_error(state, "--mesh and --set are for .dt text");
  bool program = o->emit[EMIT_EXE].wanted || o->emit[EMIT_C].wanted || o->emit[EMIT_CUDA].wanted;
  if (o->stop_after && program) argp_error(state, "--stop-after makes no program");
  if (o->check && o->emit[EMIT_EXE].wanted) argp_error(state, "check makes no program");
}

static error_t parse(int key, char *text, struct argp_state *state) {
  Options *o = state->input;
  switch (key) {
  case 'o': o->out = text; break;
  case 'v': o->verbose = true; break;
  case KEY_MESH: PUSH_SIZES(o, o->frontend.mesh, text, "--mesh", state); break;
  case KEY_SET: PUSH_SIZES(o, o->frontend.dims, text, "--set", state); break;
  case KEY_EMIT: add_emits(o, text, state); break;
  case KEY_CC: o->cc = text; break;
  case KEY_TARGET: o->target = target_value(text, state), o->target_given = true; break;
  case KEY_ARCH: add_archs(o, text, state); break;
  case KEY_TF32: o->tf32 = true; break;
  case KEY_FAST: o->fast = true; break;
  case KEY_NVCC: o->nvcc = text; break;
  case KEY_CLUSTER: o->cluster = text; break;
  case KEY_MEMORY: o->memory_limit = size_value(text, state); break;
  case KEY_PARTITION: o->propagate_only = propagates(text, state); break;
  case KEY_CERTIFICATE: o->certificate = text; break;
  case KEY_GATHERED: o->keep_gathered = true; break;
  case KEY_EXPLAIN: o->explain = text ? text : ""; break;
  case KEY_DIFF: o->diff = ""; break;
  case KEY_STRICT: o->strict = true; break;
  case 'W': add_warning(o, text ? text : "", state); break;
  case KEY_VERSION: o->version = true; break;
  case KEY_TIME: o->time_passes = true; break;
  case KEY_ERRORS:
    if (strcmp(text, "text") && strcmp(text, "json")) argp_error(state, "--error-format is text or json, not `%s`", text);
    o->errors = strcmp(text, "json") ? DIAG_TEXT : DIAG_JSON;
    break;
  case KEY_PRINT_AFTER:
    if (strcmp(text, "all")) need_pass("--print-after", text, state);
    vec_push(o->arena, o->print_after, text);
    break;
  case KEY_STOP_AFTER:
    need_pass("--stop-after", text, state);
    o->stop_after = text;
    break;
  case KEY_FROM:
    if (pipeline_start(text) < 0) argp_error(state, "--from: there is no stage or pass `%s`", text);
    o->from = text;
    break;
  case ARGP_KEY_ARG: take_file(o, text, state); break;
  case ARGP_KEY_END: finish(o, state); break;
  default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* The end of --help: the kinds, and the pipeline as its table says it. The text is freed by argp. */
static char *help(int key, const char *text, void *input) {
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)text;
  char *all = NULL;
  size_t n;
  FILE *f = open_memstream(&all, &n);
  if (!f) return NULL;
  fputs("Kinds of --emit:\n"
        "  ast            the syntax tree as text, every operator in parentheses\n"
        "  ir             the IR as the file says it, annotated\n"
        "  spmd           the IR of one device, after localize\n"
        "  schedule       every collective: bytes, times per step, line and why\n"
        "  schedule-json  the same for programs\n"
        "  memory         what the bytes of a device hold\n"
        "  memory-json    the same for programs\n"
        "  c              the training program as C\n"
        "  cuda           the training program as CUDA\n"
        "  exe            the training program; made if nothing else is asked for\n\nPasses:\n",
        f);
  for (int i = 0; i < pipeline_length; i++) fprintf(f, "  %-10s %s\n", pipeline[i].name, pipeline[i].does);
  fputs("\nExit codes: 0 done, 1 errors in FILE or a file that cannot be read or written, 2 wrong usage, 3 plans that differ "
        "(--diff), 70 a fault of dtc.",
        f);
  fclose(f);
  return all;
}

Options options_parse(Arena *a, int argc, char **argv) {
  static const struct argp parser = {.options = option_table,
                                     .parser = parse,
                                     .args_doc = "FILE\ncheck FILE\nverify CERTIFICATE",
                                     .doc =
                                         "Compiles a model in FILE (- for standard input) into a distributed training program.\v",
                                     .help_filter = help};
  Options o = {.arena = a};
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(&parser, argc, argv, 0, NULL, &o);
  return o;
}
