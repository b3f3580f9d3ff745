/* programs.c: programs of codegen.c from text to schedule; what they show beside what the interpreter says. */
#include "programs.h"

#include <math.h>
#include <string.h>

#include "codegen/codegen.h"

enum { MAX_PROGRAMS = 256 };
static ProgramText programs[MAX_PROGRAMS];
static int count;

void program_add(const char *name, const char *text) {
  if (count < MAX_PROGRAMS) programs[count++] = (ProgramText){name, text};
}

int program_count(void) { return count; }
const ProgramText *program_at(int i) { return &programs[i]; }

Module *program_scheduled(Arena *a, const ProgramText *p) {
  Diags *d = diags_new(a);
  const char *whole = arena_printf(a, "stage local\nmesh m(a = 1)\nprogram stage 0 {\n%s}\n", p->text);
  Module *m = ir_parse(a, d, diags_add_file(d, "test", whole, strlen(whole)));
  if (!m) {
    diags_print(d, DIAG_TEXT, stderr);
    unit_fail(__FILE__, __LINE__, "%s is not parsed", p->name);
    return NULL;
  }
  PassContext cx = {.diags = d};
  m->target = program_target;
  cg_group(m, &cx);
  cg_schedule(m, &cx);
  cg_buffers(m, &cx);
  ir_verify(m, "buffers", NULL);
  return m;
}

static const char *emitted(const Module *m, Arena *a) { return m->target == TARGET_C ? cg_emit_c(m, a) : cg_emit_cuda(m, a); }

/* The lines of one output; where the next one's begin, or NULL after a failure. */
static const char *compare_output(Arena *a, const Module *m, const Op *op, Tensor t, const char *line) {
  bool integer = dtype_is_int(m->values.at[op->in[0]].type.dtype);
  int64_t n = 1;
  for (int k = 0; k < t.rank; k++) n *= t.size[k];
  for (int64_t e = 0; e < n; e++) {
    double want = integer ? (double)t.at[e].i : t.at[e].f, got = NAN;
    char name[64] = "";
    if (sscanf(line, "%63s %lf", name, &got) != 2 || strcmp(name, op->name)) {
      unit_fail(__FILE__, __LINE__, "output %s[%lld] is missing: %.2000s", op->name, (long long)e, line);
      return NULL;
    }
    bool same = want == got || (isnan(want) && isnan(got)) || fabs(want - got) <= 2e-6 * (1 + fabs(want));
    if (!same) {
      unit_fail(__FILE__, __LINE__, "%s[%lld] is %.9g, expected %.9g\n%.7000s", op->name, (long long)e, got, want, emitted(m, a));
      return NULL;
    }
    line = strchr(line, '\n') + 1;
  }
  return line;
}

static void compare(Arena *a, const Module *m, EvalRun *r, const char *line) {
  const Region *body = m->programs.at[0].body;
  for (int i = 0; line && i < body->ops.n; i++) {
    const Op *op = body->ops.at[i];
    if (op->kind == OP_TAP) line = compare_output(a, m, op, eval_tap(r, op->tap, op->name), line);
  }
}

static double no_setting(void *cx, const char *name, double otherwise) { return (void)cx, (void)name, otherwise; }

/* Interpreted as a whole, and in the planned arena. */
static void agrees(Arena *a, const ProgramText *p) {
  Module *m = program_scheduled(a, p);
  if (!m) return;
  const EvalOptions how[2] = {{.domain = DOMAIN_F64, .seed = 5, .setting = no_setting},
                              {.domain = DOMAIN_F64, .seed = 5, .setting = no_setting, .ranks = true, .in_arena = true}};
  const char *shown = program_shown(a, p, m), *why = NULL;
  for (int i = 0; i < 2; i++) {
    EvalRun *r = eval_new(m, a, how[i]);
    if (!eval_step(r, &why))
      unit_fail(__FILE__, __LINE__, "the interpreter says: %s", why);
    else
      compare(a, m, r, shown);
  }
}

void program_agrees(const char *name) {
  Arena *a = arena_new();
  for (int i = 0; i < count; i++)
    if (!strcmp(programs[i].name, name)) agrees(a, &programs[i]);
  arena_free(a);
}
