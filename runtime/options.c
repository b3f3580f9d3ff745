/* options.c: the command line of a training program, `./train --steps 200 --set optimizer.lr=1e-4`, into Options.
   Everything is checked here or named in one line; usage errors exit 2. File names are kept as they are: they are
   only ever opened. */
#define _GNU_SOURCE
#include "rt.h"

#include <argp.h>
#include <errno.h>
#include <math.h>

enum {
  OPT_STEPS = 256,
  OPT_DATA,
  OPT_DATA_DIR,
  OPT_SEED,
  OPT_SET,
  OPT_LOG,
  OPT_INIT,
  OPT_SAVE,
  OPT_SAVE_EVERY,
  OPT_RESUME,
  OPT_DUMP_GRADS,
  OPT_KEEP_GOING,
  OPT_OUTPUT,
  OPT_TIMEOUT,
  OPT_NO_GRAPH,
  OPT_VERSION
};

static const struct argp_option options[] = {
    {"steps", OPT_STEPS, "N", 0, "Train until step N", 0},
    {"data", OPT_DATA, "NAME=FILE", 0, "Read the input NAME from FILE", 0},
    {"data-dir", OPT_DATA_DIR, "DIR", 0, "Where the data files named in the program are", 0},
    {"seed", OPT_SEED, "S", 0, "Of initial values, data order and dropout (default 1)", 0},
    {"set", OPT_SET, "NAME=VALUE", 0, "Change a setting, e.g. optimizer.lr=1e-4", 0},
    {"log", OPT_LOG, "FILE.jsonl", 0, "Write a JSON line per step", 0},
    {"init", OPT_INIT, "FILE.safetensors", 0, "Start from these parameters", 0},
    {"save", OPT_SAVE, "FILE.safetensors", 0, "Save parameters, optimizer state and position at the end", 0},
    {"save-every", OPT_SAVE_EVERY, "N", 0, "Save every N steps too", 0},
    {"resume", OPT_RESUME, "FILE.safetensors", 0, "Continue from a saved file", 0},
    {"dump-grads", OPT_DUMP_GRADS, "FILE.safetensors", 0, "Write the first step's gradients, before clipping", 0},
    {"keep-going", OPT_KEEP_GOING, NULL, 0, "Go on when the loss is not finite", 0},
    {"output", OPT_OUTPUT, "NAME=FILE.npy", 0, "Write the output NAME to FILE", 0},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "End the run when ranks or GPUs are waited for so long (default 600, 0: never)", 0},
    {"no-graph", OPT_NO_GRAPH, NULL, 0, "On GPUs: launch every kernel of every step instead of recording a step once", 0},
    {"version", OPT_VERSION, NULL, 0, "Print what this program was compiled from", 0},
    {0},
};

typedef struct {
  const dtrt_Program *p;
  Options *o;
} Parsing;

static int64_t count(struct argp_state *s, const char *name, const char *text) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (errno || end == text || *end || v < 0) argp_error(s, "--%s needs a whole number, not '%s'", name, text);
  return v;
}

static uint64_t seed(struct argp_state *s, const char *text) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-') argp_error(s, "--seed needs a whole number, not '%s'", text);
  return v;
}

/* NAME=FILE; both parts must be there. */
static NamedFile named(struct argp_state *s, const char *option, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1]) argp_error(s, "--%s needs NAME=FILE, not '%s'", option, text);
  char *name = rt_alloc((size_t)(equals - text) + 1, 1);
  memcpy(name, text, (size_t)(equals - text));
  return (NamedFile){name, equals + 1};
}

static void push_named(NamedFile **at, int *n, NamedFile f) {
  NamedFile *grown = rt_alloc((size_t)*n + 1, sizeof *grown);
  if (*n) memcpy(grown, *at, (size_t)*n * sizeof *grown);
  grown[*n] = f;
  free(*at);
  *at = grown;
  ++*n;
}

static void set(struct argp_state *s, const Parsing *in, const char *text) {
  NamedFile f = named(s, "set", text);
  char known[512] = "", *end;
  errno = 0;
  double v = strtod(f.file, &end);
  if (end == f.file || *end || !isfinite(v)) argp_error(s, "--set %s needs a number, not '%s'", f.name, f.file);
  for (int i = 0; i < in->p->nsettings; i++) {
    if (strcmp(in->p->setting[i].name, f.name) == 0) {
      in->o->setting[i] = v;
      free((char *)(uintptr_t)f.name);
      return;
    }
    size_t n = strlen(known);
    snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", in->p->setting[i].name);
  }
  argp_error(s, "there is no setting '%s'; there are: %s", f.name, *known ? known : "none");
}

static void check_data_name(struct argp_state *s, const Parsing *in, const char *name) {
  char known[512] = "";
  for (int i = 0; i < in->p->nleaves; i++) {
    if (in->p->leaf[i].kind != DTRT_INPUT) continue;
    if (strcmp(in->p->leaf[i].name, name) == 0) return;
    size_t n = strlen(known);
    snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", in->p->leaf[i].name);
  }
  argp_error(s, "there is no input '%s'; there are: %s", name, *known ? known : "none");
}

static void check_output_name(struct argp_state *s, const Parsing *in, const char *name) {
  for (int i = 0; i < in->p->ntaps; i++)
    if (in->p->tap[i].kind == DTRT_TAP_OUTPUT && strcmp(in->p->tap[i].name, name) == 0) return;
  argp_error(s, "there is no output '%s'", name);
}

static void check_all(struct argp_state *s, const Parsing *in) {
  const Options *o = in->o;
  if (o->resume && o->init) argp_error(s, "--init and --resume exclude each other");
  if (o->save_every && !o->save) argp_error(s, "--save-every needs --save");
  for (int i = 0; i < o->ndata; i++) check_data_name(s, in, o->data[i].name);
  for (int i = 0; i < o->noutput; i++) check_output_name(s, in, o->output[i].name);
}

static error_t parse(int key, char *arg, struct argp_state *s) {
  Parsing *in = s->input;
  Options *o = in->o;
  switch (key) {
  case OPT_STEPS: o->steps = count(s, "steps", arg); break;
  case OPT_DATA: push_named(&o->data, &o->ndata, named(s, "data", arg)); break;
  case OPT_DATA_DIR: o->data_dir = arg; break;
  case OPT_SEED: o->seed = seed(s, arg), o->seed_given = true; break;
  case OPT_SET: set(s, in, arg); break;
  case OPT_LOG: o->log = arg; break;
  case OPT_INIT: o->init = arg; break;
  case OPT_SAVE: o->save = arg; break;
  case OPT_SAVE_EVERY:
    o->save_every = count(s, "save-every", arg);
    if (!o->save_every) argp_error(s, "--save-every needs a number above 0");
    break;
  case OPT_RESUME: o->resume = arg; break;
  case OPT_DUMP_GRADS: o->dump_grads = arg; break;
  case OPT_KEEP_GOING: o->keep_going = true; break;
  case OPT_OUTPUT: push_named(&o->output, &o->noutput, named(s, "output", arg)); break;
  case OPT_TIMEOUT: o->timeout = count(s, "timeout", arg); break;
  case OPT_NO_GRAPH: o->no_graph = true; break;
  case OPT_VERSION: printf("%s, compiled by dtc %s\n", in->p->source, in->p->version); exit(0);
  case ARGP_KEY_ARG: argp_error(s, "unexpected argument '%s'", arg); break;
  case ARGP_KEY_END: check_all(s, in); break;
  default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

void rt_options(const dtrt_Program *p, int argc, char **argv, Options *o) {
  const char *slash = argc ? strrchr(argv[0], '/') : NULL, *profile = getenv("DTRT_PROFILE"), *trace = getenv("DTRT_TRACE");
  *o = (Options){.argv0 = slash ? slash + 1 : argc ? argv[0] : "train", .steps = p->steps, .seed = 1, .timeout = 600};
  o->trace = trace && *trace ? trace : NULL;
  o->profile = profile && *profile && strcmp(profile, "0");
  o->setting = rt_alloc((size_t)p->nsettings, sizeof *o->setting);
  for (int i = 0; i < p->nsettings; i++) o->setting[i] = p->setting[i].value;
  Parsing in = {p, o};
  const struct argp argp = {
      options,
      parse,
      NULL,
      "Trains the model that this program was compiled from. Exit codes: 0 done, 1 an error in data, files or "
      "numbers, 2 usage, 70 a fault of the program itself, 75 interrupted and saved.",
      NULL,
      NULL,
      NULL};
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(&argp, argc, argv, 0, NULL, &in);
}
