/* main.c: the dtc command: options -> read -> frontend (or IR text) -> pipeline -> what was asked for.

     dtc charlm.dt -o train && ./train

   Only as much of the pipeline runs as what was asked for needs. Errors and warnings go to standard error. */
#include "codegen/codegen.h"
#include "driver.h"

#include <ctype.h>
#include <stdlib.h>

typedef struct {
  const Options *o;
  Arena *arena;
  Diags *diags;
  Clock clock;
  int file;
  Module *m;
  PassContext cx;
  Module *original; /* --explain: before the first pass */
  Type *home;       /* --explain: by value, before reshard */
  int nhome;
  PartRows *rows;        /* --diff: the plan */
  Module *source, *plan; /* for the certificate: before propagate, after localize */
  bool said;             /* something went to standard output */
  int code;
} Session;

static bool asked_for_nothing(const Options *o) {
  bool any = o->check || o->verify || o->certificate || o->explain || o->stop_after || o->print_after.n;
  for (int k = 0; k < EMIT_NKINDS; k++) any |= o->emit[k].wanted;
  return !any;
}

/* ---- what is asked for ------------------------------------------------------------------------------------ */

static int texts_asked(const Options *o) {
  int n = 0;
  for (int k = 0; k < EMIT_EXE; k++) n += o->emit[k].wanted;
  return n;
}

/* The place of a text: its own path, or -o if it is all that is asked for, else standard output. */
static const char *place(const Options *o, EmitKind k) {
  if (o->emit[k].path) return o->emit[k].path;
  return o->out && texts_asked(o) == 1 && !o->emit[EMIT_EXE].wanted ? o->out : "-";
}

static void write_text(Session *s, const char *path, const char *text) {
  s->said |= !strcmp(path, "-");
  if (!output_write(s->arena, path, text)) s->code = EXIT_ERRORS;
}

static void emit(Session *s, EmitKind k, const char *text) {
  if (s->o->emit[k].wanted) write_text(s, place(s->o, k), text);
}

/* Text of a program, or the program itself. */
static bool makes_program(const Options *o) {
  return o->emit[EMIT_C].wanted || o->emit[EMIT_CUDA].wanted || o->emit[EMIT_EXE].wanted;
}

/* The last pass that something asked for needs, -1 for none. */
static int last_pass(const Options *o) {
  const Emit *e = o->emit;
  if (o->stop_after) return pipeline_find(o->stop_after);
  if (o->check || e[EMIT_MEMORY].wanted || e[EMIT_MEMORY_JSON].wanted || makes_program(o)) return pipeline_length - 1;
  int last = e[EMIT_SCHEDULE].wanted || e[EMIT_SCHEDULE_JSON].wanted ? pipeline_find("schedule")
             : e[EMIT_SPMD].wanted || o->explain || o->certificate   ? pipeline_find("localize")
                                                                     : -1;
  for (int i = 0; i < o->print_after.n; i++) {
    bool all = !strcmp(o->print_after.at[i], "all");
    last = (int)max_i64(last, all ? pipeline_length - 1 : pipeline_find(o->print_after.at[i]));
  }
  return last;
}

/* ---- while the passes run --------------------------------------------------------------------------------- */

static bool printed_after(const Options *o, const char *pass) {
  for (int i = 0; i < o->print_after.n; i++)
    if (!strcmp(o->print_after.at[i], pass) || !strcmp(o->print_after.at[i], "all")) return true;
  return false;
}

/* How values were laid out before anything was moved. */
static void note_homes(Session *s, const Module *m) {
  if (!s->o->explain || m->stage != STAGE_ANNOTATED) return;
  s->home = NEW_ARRAY(s->arena, Type, m->values.n + 1);
  s->nhome = m->values.n;
  for (int v = 0; v < s->nhome; v++) s->home[v] = m->values.at[v].type;
}

static void explain(Session *s, const Module *m) {
  const char *what = s->o->explain;
  int first = s->o->from ? pipeline_start(s->o->from) : 0;
  Replan again = {s->original, &s->cx, first};
  PartQuestion q = {.origins = s->cx.origins, .home = s->home, .nhome = s->nhome, .replan = replan, .env = &again};
  if (*what == '%') q.value = what + 1;
  if (isdigit((unsigned char)*what)) q.line = atoi(what);
  const char *text = part_explain(m, &q, s->arena);
  if (text)
    write_text(s, s->o->out ? s->o->out : "-", text);
  else
    diag_error(s->diags, "E0606", (Loc){0}, q.value ? "there is no tensor `%s`" : "nothing is made on line %s", what);
}

/* Whoever gets something that was made of a schedule has it checked. */
static bool certifies(const Options *o) {
  bool made = !o->check && !o->stop_after && last_pass(o) >= pipeline_find("schedule");
  return made || (o->certificate && !o->stop_after);
}

static void keep_for_certificate(Session *s, const Module *m, int pass) {
  if (!certifies(s->o)) return;
  if (pass + 1 == pipeline_find("propagate")) s->source = ir_clone(m, s->arena);
  if (pass == pipeline_find("localize")) s->plan = ir_clone(m, s->arena);
}

static void seen(void *env, const Module *m, int pass) {
  Session *s = env;
  const char *name = pipeline[pass].name;
  note_homes(s, m);
  keep_for_certificate(s, m, pass);
  if (printed_after(s->o, name)) write_text(s, "-", arena_printf(s->arena, "# after %s\n%s", name, ir_print(m, s->arena)));
  if (!strcmp(name, "schedule")) {
    if (s->o->emit[EMIT_SCHEDULE].wanted) emit(s, EMIT_SCHEDULE, part_report(m, s->arena, false));
    if (s->o->emit[EMIT_SCHEDULE_JSON].wanted) emit(s, EMIT_SCHEDULE_JSON, part_report(m, s->arena, true));
  }
  if (strcmp(name, "localize")) return;
  part_warn(m, s->diags, !s->o->from);
  if (s->o->explain) explain(s, m);
  if (s->o->diff) s->rows = part_rows(m, s->arena);
  if (s->o->strict) part_strict(m, s->diags, !s->o->from);
  if (s->o->emit[EMIT_SPMD].wanted) emit(s, EMIT_SPMD, ir_print(m, s->arena));
}

/* What was not done, and why: for those who ask. */
static void print_notes(const Session *s, const PassContext *cx) {
  for (int i = 0; s->o->verbose && i < cx->notes.n; i++) {
    Loc at = cx->notes.at[i].loc;
    if (at.line) fprintf(stderr, "%s:%d: ", s->m->files.at[at.file], at.line);
    fprintf(stderr, "note: %s\n", cx->notes.at[i].text);
  }
}

static bool compile(Session *s) {
  const Options *o = s->o;
  s->cx = (PassContext){.diags = s->diags, .keep_gathered = o->keep_gathered, .propagate_only = o->propagate_only};
  s->cx.memory_limit = o->memory_limit;
  s->cx.cluster = cluster_find(s->arena, s->diags, &s->m->mesh, o->cluster ? o->cluster : "host");
  if (!s->cx.cluster) return false;
  if (o->explain) s->cx.origins = part_origins_new(s->arena);
  if (o->explain) s->original = ir_clone(s->m, s->arena);
  int first = o->from ? pipeline_start(o->from) : 0, last = last_pass(o);
  if (o->emit[EMIT_IR].wanted) emit(s, EMIT_IR, ir_print(s->m, s->arena));
  keep_for_certificate(s, s->m, first - 1);
  clock_start(&s->clock);
  bool ok = pipeline_run(s->m, &s->cx, first, last, &s->clock, seen, s);
  print_notes(s, &s->cx);
  return ok;
}

/* ---- after them ------------------------------------------------------------------------------------------- */

static void tell_size(const Session *s, const char *out) {
  double kib = (double)(s->m->arena_bytes + s->m->workspace_bytes) / 1024;
  long long ranks = mesh_devices(&s->m->mesh);
  bool big = kib >= 1024;
  fprintf(s->said ? stderr : stdout, "%s: %lld rank%s, %.1f %s each\n", out, ranks, ranks == 1 ? "" : "s", big ? kib / 1024 : kib,
          big ? "MiB" : "KiB");
}

static void make_program(Session *s) {
  const Options *o = s->o;
  bool cuda = s->m->target == TARGET_CUDA;
  const char *text = cuda ? cg_emit_cuda(s->m, s->arena) : cg_emit_c(s->m, s->arena);
  const char *out = o->emit[EMIT_EXE].path ? o->emit[EMIT_EXE].path : o->out ? o->out : "train";
  clock_step(&s->clock, s->arena, "emit");
  emit(s, cuda ? EMIT_CUDA : EMIT_C, text);
  if (!o->emit[EMIT_EXE].wanted || s->code) return;
  clock_start(&s->clock);
  s->code = build_program(s->arena, o, s->m->target, text, out);
  clock_step(&s->clock, s->arena, cuda ? "nvcc" : "clang");
  if (s->code == EXIT_DONE) tell_size(s, out);
}

/* False when nothing may be made: the plan is wrong, or its certificate could not be written. */
static bool certificate(Session *s) {
  if (!certifies(s->o)) return true;
  if (!s->source) {
    fprintf(stderr, "certificate: none, because the passes begin behind propagate\n");
    return true;
  }
  const char *path = s->o->certificate;
  s->said |= path && !strcmp(path, "-");
  CertifyInput in = {.source = s->source, .plan = s->plan, .scheduled = s->m->buffers ? s->m : NULL, .cx = &s->cx};
  clock_start(&s->clock);
  s->code = certificate_make(s->arena, &in, path);
  clock_step(&s->clock, s->arena, "certify");
  return s->code == EXIT_DONE;
}

static void finish(Session *s) {
  const Options *o = s->o;
  if (!certificate(s)) return;
  if (o->stop_after) {
    write_text(s, o->out && !texts_asked(o) ? o->out : "-", ir_print(s->m, s->arena));
    return;
  }
  if (o->check) return;
  if (o->emit[EMIT_MEMORY].wanted) emit(s, EMIT_MEMORY, cg_memory_report(s->m, s->arena, false));
  if (o->emit[EMIT_MEMORY_JSON].wanted) emit(s, EMIT_MEMORY_JSON, cg_memory_report(s->m, s->arena, true));
  if (makes_program(o)) make_program(s);
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

static bool read_source(Session *s) {
  size_t len = 0;
  const char *why = NULL, *path = s->o->file;
  const char *text = read_whole_file(s->arena, path, &len, &why);
  if (!text) {
    diag_error(s->diags, "E0602", (Loc){0}, "cannot read %s: %s", path, why);
    diags_print(s->diags, s->o->errors, stderr);
    return false;
  }
  s->file = diags_add_file(s->diags, strcmp(path, "-") ? path : "<stdin>", text, len);
  return true;
}

/* The tree has diagnostics of its own, because the module's frontend reads the same text once more. */
static bool emit_ast(Session *s) {
  if (!s->o->emit[EMIT_AST].wanted) return true;
  Diags *d = diags_new(s->arena);
  SourceFile f = s->diags->files.at[s->file];
  const char *text = frontend_ast(s->arena, d, diags_add_file(d, f.name, f.text, f.len), s->o->file);
  if (text)
    emit(s, EMIT_AST, text);
  else
    diags_print(d, s->o->errors, stderr);
  return text != NULL;
}

/* Where the text begins, behind blanks and comments, with the length of its first word. */
static Loc first_word(const Session *s) {
  SourceFile f = s->diags->files.at[s->file];
  Loc at = {.file = s->file, .line = 1, .col = 1};
  size_t i = 0;
  for (; i < f.len && (isspace((unsigned char)f.text[i]) || f.text[i] == '#'); i++, at.col++) {
    if (f.text[i] == '#')
      while (i + 1 < f.len && f.text[i + 1] != '\n') i++;
    if (f.text[i] == '\n') at.line++, at.col = 0;
  }
  while (i + (size_t)at.len < f.len && isalpha((unsigned char)f.text[i + (size_t)at.len])) at.len++;
  return at;
}

/* IR text begins `stage annotated`; nothing in .dt text has two names in a row. */
static bool is_ir(const Session *s, Loc word) {
  const char *p = s->diags->files.at[s->file].text;
  for (int line = 1; line < word.line; line++) p = strchr(p, '\n') + 1;
  p += word.col - 1;
  if (word.len != 5 || strncmp(p, "stage", 5)) return false;
  size_t gap = strspn(p + 5, " \t");
  return gap > 0 && isalpha((unsigned char)p[5 + gap]);
}

/* One error about the kind of text instead of hundreds about its words. */
static bool right_kind(Session *s) {
  Loc word = first_word(s);
  bool ir = is_ir(s, word);
  if (ir == (s->o->from != NULL)) return true;
  if (ir) {
    Diag *g = diag_error(s->diags, "E0608", word, "this is IR text, not a model");
    diag_help(s->diags, g, "`dtc --from=STAGE` reads it");
  } else {
    Diag *g = diag_error(s->diags, "E0608", word, "IR text begins with `stage`");
    diag_help(s->diags, g, "a model (.dt) is read without --from");
  }
  return false;
}

/* The pass to begin with where the text shows that an earlier one has run; these append to the program each time. */
static int next_pass(const Module *m) {
  const Region *r = m->programs.at[0].body;
  int next = 0;
  for (int i = 0; i < r->ops.n && m->train.present; i++) {
    const Op *op = r->ops.at[i];
    if (op->kind == OP_UPDATE) return pipeline_find("update") + 1;
    if (op->kind == OP_TAP && op->tap == TAP_GRAD) next = pipeline_find("gradient") + 1;
  }
  return next;
}

/* IR text is the user's: what breaks a law of its stage is an error in the file. */
static Module *read_ir(Session *s) {
  Module *m = ir_parse(s->arena, s->diags, s->file);
  const char *why = NULL;
  if (!m || s->diags->nerrors) return NULL;
  int first = pipeline_start(s->o->from);
  Loc stage = first_word(s);
  if (m->stage != pipeline[first].before) {
    diag_error(s->diags, "E0603", stage, "this module is not at the stage that %s takes", pipeline[first].name);
  } else if (!ir_verify(m, NULL, &why)) {
    diag_error(s->diags, "E0604", stage, "the module breaks a law of its stage:\n%s", why);
  } else if (first < next_pass(m)) {
    const char *done = pipeline[next_pass(m) - 1].name, *next = pipeline[next_pass(m)].name;
    Diag *g = diag_error(s->diags, "E0603", stage, "this module has been through %s already", done);
    diag_help(s->diags, g, "`--from=%s` goes on from there", next);
  }
  return m;
}

static bool only_ast(const Options *o) {
  return o->emit[EMIT_AST].wanted && texts_asked(o) == 1 && !o->emit[EMIT_EXE].wanted && !o->stop_after && !o->print_after.n &&
         !o->check;
}

/* A program that shows nothing and changes nothing is nobody's intention. */
static bool does_something(const Module *m) {
  const Region *r = m->programs.at[0].body;
  bool found = m->train.present;
  for (int i = 0; i < r->ops.n; i++) found |= op_class(r->ops.at[i]->kind) == CLS_EFFECT;
  return found;
}

static void take_target(Module *m, const Options *o) {
  if (o->target_given) m->target = o->target;
  m->tf32 = m->target == TARGET_CUDA && (m->tf32 || o->tf32);
  m->fast = m->target == TARGET_CUDA && (m->fast || o->fast);
}

static bool read_module(Session *s) {
  clock_start(&s->clock);
  if (!right_kind(s)) return false;
  s->m = s->o->from ? read_ir(s) : frontend_module(s->arena, s->diags, s->file, s->o->file, &s->o->frontend);
  clock_step(&s->clock, s->arena, "parse");
  if (!s->m || s->diags->nerrors) return false;
  take_target(s->m, s->o);
  if (!s->o->from) ir_verify(s->m, "the frontend", NULL);
  if (!s->o->emit[EMIT_EXE].wanted || does_something(s->m)) return true;
  diag_error(s->diags, "E0605", (Loc){0}, "%s has neither `train` nor `output`: its program would do nothing",
             s->diags->files.at[s->file].name);
  return false;
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

static int session(Arena *a, const Options *o) {
  Session s = {.o = o, .arena = a, .diags = diags_new(a)};
  for (int i = 0; i < o->warnings.n; i++) diag_policy(s.diags, o->warnings.at[i]);
  if (!read_source(&s)) return EXIT_ERRORS;
  if (o->verify) {
    s.code = certificate_verify(a, s.diags, s.file, o->file);
    diags_print(s.diags, o->errors, stderr);
    return s.code;
  }
  if (!emit_ast(&s)) return EXIT_ERRORS;
  if (only_ast(o)) return s.code;
  bool ok = read_module(&s) && compile(&s) && !s.diags->nerrors;
  diags_print(s.diags, o->errors, stderr);
  if (ok) finish(&s);
  if (o->time_passes) clock_print(&s.clock, stderr);
  return ok ? s.code : EXIT_ERRORS;
}

/* ---- two plans -------------------------------------------------------------------------------------------- */

/* Plans one file with the options of both. */
static bool plan_of(Arena *a, const Options *both, const char *file, Session *s) {
  Options *o = NEW(a, Options);
  *o = *both;
  memset(o->emit, 0, sizeof o->emit);
  o->file = file;
  o->check = true;
  o->explain = o->stop_after = NULL;
  *s = (Session){.o = o, .arena = a, .diags = diags_new(a)};
  for (int i = 0; i < both->warnings.n; i++) diag_policy(s->diags, both->warnings.at[i]);
  if (!read_source(s)) return false;
  bool ok = read_module(s) && compile(s) && !s->diags->nerrors;
  diags_print(s->diags, both->errors, stderr);
  return ok;
}

static int compare(Arena *a, const Options *o) {
  Session old, new;
  bool ok = plan_of(a, o, o->diff, &old);
  if (!plan_of(a, o, o->file, &new) || !ok) return EXIT_ERRORS;
  const char *text = part_diff(old.rows, new.rows, a);
  long long was = old.m->arena_bytes + old.m->workspace_bytes, is = new.m->arena_bytes + new.m->workspace_bytes;
  if (!text && was == is) return EXIT_DONE;
  if (text) printf("%s", text);
  printf("memory per rank: %lld -> %lld bytes\n", was, is);
  return EXIT_DIFFER;
}

static int print_version(Arena *a, const Options *o) {
  printf("dtc %s\n", DTC_VERSION);
  if (!o->verbose) return EXIT_DONE;
  Runtime r = {0}, cuda = {0};
  bool found = build_runtime(a, TARGET_C, &r), has_cuda = *DTC_NVCC && build_runtime(a, TARGET_CUDA, &cuda);
  printf("C compiler: %s\nBLAS: %s\n", build_compiler(o, TARGET_C), DTC_BLAS);
  printf("CUDA compiler: %s\n", *DTC_NVCC ? build_compiler(o, TARGET_CUDA) : "none (" DTC_NO_CUDA ")");
  if (*DTC_NVCC) printf("cuBLASLt: %s\nNCCL: %s\n", DTC_CUBLASLT, DTC_NCCL);
  if (found) printf("runtime: %s\nheaders: %s\n", r.library, r.include);
  if (has_cuda) printf("CUDA runtime: %s\n", cuda.library);
  return found ? EXIT_DONE : EXIT_USAGE;
}

static int print_explanation(Arena *a, const Options *o) {
  const char *text = frontend_explain(a, o->explain);
  if (text)
    fputs(text, stdout);
  else
    fprintf(stderr, "dtc: there is no error code `%s`\n", o->explain);
  return text ? EXIT_DONE : EXIT_USAGE;
}

/* --explain of something that is neither a line nor a value. */
static bool asks_code(const Options *o) {
  return o->explain && *o->explain && *o->explain != '%' && !isdigit((unsigned char)*o->explain);
}

int main(int argc, char **argv) {
  arena_keep_memory();
  Arena *a = arena_new();
  Options o = options_parse(a, argc, argv);
  if (asked_for_nothing(&o)) o.emit[EMIT_EXE].wanted = true;
  int code = o.version       ? print_version(a, &o)
             : asks_code(&o) ? print_explanation(a, &o)
             : o.diff        ? compare(a, &o)
                             : session(a, &o);
  if (fflush(stdout) != 0 && code == EXIT_DONE) code = EXIT_ERRORS;
  arena_free(a);
  return code;
}
