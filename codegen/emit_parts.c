/* emit_parts.c: CUDA: the optimizer's update of all parameters is one launch. Steps that follow each other in the update and
   compute element by element fall into parts that have no value in common, one for each parameter; parts whose kernels say the
   same about other tensors become one kernel with a table:

     struct wte_next_14_part {
       const float *d_wte;
       float *adamw_m_wte, *adamw_v_wte, *wte;
       int64_t n;
     };
     struct wte_next_14_parts { wte_next_14_part at[10]; };
     static __device__ void wte_next_14_one(int64_t n, const float *__restrict__ d_wte, ..., const float *__restrict__ beta1) {
       for (int64_t i_4 = dtcu_thread(); i_4 < n; i_4 += dtcu_threads()) { ... }
     }
     static __global__ void wte_next_14_kernel(const __grid_constant__ wte_next_14_parts parts, const float *beta1) {
       for (int i = 0; i < 10; i++) {
         const wte_next_14_part &part = parts.at[i];
         wte_next_14_one(part.n, part.d_wte, ..., beta1);
       }
     }

   Threads wait for nobody between parts, so that the end of one parameter leaves no multiprocessor idle. */
#include <ctype.h>

#include "emit_parts.h"

enum { TABLE_BYTES = 3500, MOST_BLOCKS = 2048 }; /* a launch has 4096 bytes of arguments */

typedef struct {
  Step step;
  Rows *rows;
  const char *text, *same; /* the kernel's body; with names numbered as they appear */
  int nparam;
  int param[MAX_FIELDS]; /* of the kernel, as they appear */
  bool taken;
} Part;
typedef VEC(Part) Parts;

/* ---- which steps ------------------------------------------------------------------------------------------------------ */

static bool is_map(Emit *e, const Step *s) {
  GroupPlan g;
  const Op *op = s->op[0];
  if (op->phase != PHASE_UPDATE || op_class(op->kind) == CLS_LEAF || !cg_can_group(e->m, op)) return false;
  if (!cg_plan_rows(e->a, e->m, s->op, s->n, &g) || g.nrow > 0 || g.nsegment != 1 || g.segment[0].n == 0) return false;
  for (int i = 0; i < g.nmember; i++)
    if (g.member[i].kind != MEMBER_MAP) return false;
  return true;
}

/* Ops that are linked by values: each op joins the parts that make what it reads. */
static void add_linked(Emit *e, Parts *parts, const Step *s) {
  int first = parts->n;
  for (int k = 0; k < s->n; k++) {
    Part own = {.step = {NEW_ARRAY(e->a, Op *, s->n), 0}};
    int n = first;
    for (int p = first; p < parts->n; p++) {
      Part *x = &parts->at[p];
      bool linked = false;
      for (int i = 0; i < s->op[k]->nin; i++)
        for (int o = 0; o < x->step.n; o++) linked |= e->m->values.at[s->op[k]->in[i]].def == x->step.op[o];
      for (int o = 0; linked && o < x->step.n; o++) own.step.op[own.step.n++] = x->step.op[o];
      if (!linked) parts->at[n++] = *x;
    }
    parts->n = n;
    own.step.op[own.step.n++] = s->op[k];
    vec_push(e->a, *parts, own);
  }
}

static bool overlap(const Emit *e, ValueId a, ValueId b) {
  const Place *x = &e->place[a], *y = &e->place[b];
  if (x->kind != PLACE_ARENA || y->kind != PLACE_ARENA) return false;
  if (x->n > 0 || y->n > 0) return true;
  return x->offset < y->offset + cg_bytes(&e->m->values.at[b].type) && y->offset < x->offset + cg_bytes(&e->m->values.at[a].type);
}

/* Nothing that x writes is read or written by y. */
static bool leaves_alone(const Emit *e, const Part *x, const Part *y) {
  for (int i = 0; i < x->step.n; i++)
    for (int j = 0; j < y->step.n; j++) {
      ValueId out = x->step.op[i]->out[0];
      if (overlap(e, out, y->step.op[j]->out[0])) return false;
      for (int k = 0; k < y->step.op[j]->nin; k++)
        if (overlap(e, out, y->step.op[j]->in[k])) return false;
    }
  return true;
}

static bool independent(const Emit *e, const Parts *parts) {
  for (int i = 0; i < parts->n; i++)
    for (int j = 0; j < parts->n; j++)
      if (i != j && !leaves_alone(e, &parts->at[i], &parts->at[j])) return false;
  return true;
}

/* ---- what they have in common ------------------------------------------------------------------------------------------ */

static void number_names(Emit *e, Part *x) {
  Str s = {0};
  VEC(const char *) seen = {0};
  const Kernel *k = x->rows->k;
  for (const char *c = x->text; *c;) {
    size_t n = 0;
    while (isalnum((unsigned char)c[n]) || c[n] == '_') n++;
    const char *word = arena_printf(e->a, "%.*s", (int)(n ? n : 1), c);
    c += n ? n : 1;
    if (!emit_is_name(&k->local, word)) {
      str_put(e->a, &s, word);
      continue;
    }
    int at = 0;
    while (at < seen.n && strcmp(seen.at[at], word)) at++;
    str_printf(e->a, &s, "$%d", at);
    if (at < seen.n) continue;
    vec_push(e->a, seen, word);
    for (int p = 0; p < k->param.n && x->nparam < MAX_FIELDS; p++)
      if (!strcmp(k->param.at[p].name, word)) x->param[x->nparam++] = p;
  }
  for (int i = 0; i < x->nparam; i++) {
    const Param *p = &k->param.at[x->param[i]];
    str_printf(e->a, &s, "%s%s;", p->written ? "" : "const ", emit_ctype(p->dtype));
  }
  x->same = s.at;
}

/* Prints a part's kernel with a variable n for the count of its loop; false if its loops are not one. */
static bool look_at(Emit *e, Part *x) {
  Kernel *k = NEW(e->a, Kernel);
  k->e = e;
  emit_take(e, &k->local, "n");
  x->rows = rows_begin(e, &x->step, k);
  x->rows->count = "n";
  x->text = rows_text_cuda(x->rows);
  for (int p = 0; p < k->param.n; p++)
    if (k->param.at[p].place.kind != PLACE_ARENA) return false;
  number_names(e, x);
  return x->rows->counted > 0 && x->nparam == k->param.n && !k->sees;
}

static const Param *param(const Part *x, int i) { return &x->rows->k->param.at[x->param[i]]; }

/* ---- printing ------------------------------------------------------------------------------------------------------------ */

static void declare_table(Emit *e, const PartsCall *c, const Part *x) {
  Str *out = &e->kernels;
  str_printf(e->a, out, "struct %s_part {\n", c->name);
  for (int i = 0; i < x->nparam; i++)
    if (!c->common[i])
      str_printf(e->a, out, "%s%s *%s;\n", param(x, i)->written ? "" : "const ", emit_ctype(param(x, i)->dtype),
                 param(x, i)->name);
  str_printf(e->a, out, "int64_t n;\n};\nstruct %s_parts { %s_part at[%d]; };\n", c->name, c->name, c->nparts);
}

enum { OWN = 1, COMMON = 2 }; /* fields of a part, of all parts */

/* Fields as parameters or, with `of` NULL, arguments. */
static const char *fields(Emit *e, const PartsCall *c, const Part *x, int which, const char *pointer, const char *of) {
  Str s = {0};
  for (int i = 0; i < x->nparam; i++) {
    const Param *p = param(x, i);
    if (!((c->common[i] ? COMMON : OWN) & which)) continue;
    str_put(e->a, &s, ", ");
    if (pointer) str_printf(e->a, &s, "%s%s %s", p->written ? "" : "const ", emit_ctype(p->dtype), pointer);
    str_printf(e->a, &s, "%s%s", of && !c->common[i] ? of : "", p->name);
  }
  return s.at ? s.at : "";
}

/* One part is a function of its own: its pointers point to nothing that another one of them points to. */
static void print_kernel(Emit *e, const PartsCall *c, const Part *x, int threads, long long blocks) {
  Str *out = &e->kernels;
  const char *where = emit_where(e, c->op), *name = c->name, *line = arena_printf(e->a, "%s%s", where, *where ? ": " : "");
  bool context = emit_uses(x->text, "cx");
  str_printf(e->a, out, "\n// %s%s, and %d more like them\n", line, rows_description(x->rows), c->nparts - 1);
  declare_table(e, c, x);
  str_printf(e->a, out, "static __device__ __forceinline__ void %s_one(%sint64_t n%s) {\n%s}\n", name,
             context ? "const dtcu_Context *cx, " : "", fields(e, c, x, OWN | COMMON, "*__restrict__ ", NULL), x->text);
  str_printf(e->a, out, "static __global__ void __launch_bounds__(%d) %s_kernel(%sconst __grid_constant__ %s_parts parts%s) {\n",
             threads, name, context ? "const dtcu_Context *cx, " : "", name, fields(e, c, x, COMMON, "*", NULL));
  str_printf(e->a, out, "for (int i = 0; i < %d; i++) {\nconst %s_part &part = parts.at[i];\n%s_one(%spart.n%s);\n}\n}\n",
             c->nparts, name, name, context ? "cx, " : "", fields(e, c, x, OWN | COMMON, NULL, "part."));
  str_printf(e->a, out, "static void %s(dtrt_Context *cx, const %s_parts &parts%s) {\n", name, name,
             fields(e, c, x, COMMON, "*", NULL));
  str_printf(e->a, out, "DTCU_LAUNCH(cx, %s_kernel, %lld, %d, %sparts%s);\n}\n", name, blocks, threads,
             context ? "dtcu_device(cx), " : "", fields(e, c, x, COMMON, NULL, NULL));
}

/* The parts from `first` on that say the same, as many as a table holds. */
static PartsCall share(Emit *e, Parts *parts, int first) {
  Part *x = &parts->at[first];
  PartsCall c = {.nfield = x->nparam, .nparts = 0};
  VEC(Part *) all = {0};
  for (int i = first; i < parts->n && all.n < TABLE_BYTES / 8 / (x->nparam + 1); i++)
    if (!parts->at[i].taken && !strcmp(parts->at[i].same, x->same)) vec_push(e->a, all, &parts->at[i]);
  c.nparts = all.n;
  for (int i = 0; i < c.nfield; i++) {
    c.common[i] = true;
    for (int p = 0; p < all.n; p++) c.common[i] &= param(all.at[p], i)->value == param(x, i)->value;
  }
  c.value = NEW_ARRAY(e->a, ValueId, c.nparts * c.nfield + 1);
  c.n = NEW_ARRAY(e->a, int64_t, c.nparts + 1);
  int64_t blocks = 1;
  int threads = 32;
  for (int p = 0; p < all.n; p++) {
    all.at[p]->taken = true;
    c.n[p] = all.at[p]->rows->counted;
    for (int i = 0; i < c.nfield; i++) c.value[p * c.nfield + i] = param(all.at[p], i)->value;
    blocks = max_i64(blocks, all.at[p]->rows->teams.blocks);
    threads = (int)max_i64(threads, all.at[p]->rows->teams.threads);
  }
  c.op = x->step.op[x->step.n - 1];
  if (c.nparts == 1) {
    c.kernel = emit_rows(e, &x->step);
    return c;
  }
  c.name = emit_kernel(e, rows_name_giver(x->rows), e->m->values.at[rows_name_giver(x->rows)->out[0]].name)->name;
  print_kernel(e, &c, x, threads, min_i64(blocks, MOST_BLOCKS));
  return c;
}

int emit_parts(Emit *e, const Steps *steps, int from, int to, PartsCalls *calls) {
  Parts parts = {0};
  int end = from;
  for (; end < to; end++) {
    if (steps->at[end].op[0]->kind == OP_UPDATE) continue; // says that a leaf has its next value, and nothing is done
    if (!is_map(e, &steps->at[end])) break;
    add_linked(e, &parts, &steps->at[end]);
  }
  if (parts.n < 2 || !independent(e, &parts)) return 0;
  for (int i = 0; i < parts.n; i++)
    if (!look_at(e, &parts.at[i])) return 0;
  for (int i = 0; i < parts.n; i++) {
    if (parts.at[i].taken) continue;
    PartsCall c = share(e, &parts, i);
    vec_push(e->a, *calls, c);
  }
  return end - from;
}
