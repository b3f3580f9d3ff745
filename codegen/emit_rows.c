/* emit_rows.c: one function for a group: loops over its rows, in them the loops of its segments, in those a statement
   per member. This file prints the statements; the loops are those of a thread in C and of teams of threads in CUDA.

     for (int64_t b = 0; b < 8; b++) {
       for (int64_t t = 0; t < 128; t++) {
         float ss = 0.0f;
         for (int64_t d = 0; d < 64; d++) ss += x[...] * x[...];
         const float r = dtrt_rsqrtf(ss / 64.0f + 1e-5f);
         for (int64_t d = 0; d < 64; d++) n[...] = x[...] * r * g[d];
       }
     }                                                                                                          */
#include "emit_rows.h"

const Type *rows_type(const Rows *r, const Member *x) { return &r->e->m->values.at[x->op->out[0]].type; }

Var rows_index(Rows *r, const Index *x, const char *name, int level) {
  Range *range = emit_range(r->k, x->range, &x->split, x->name);
  return (Var){name, range, level};
}

/* ---- values that are not in memory -------------------------------------------------------------------------- */

static const char *row_value(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix) {
  Rows *r = cx;
  int p = cg_member_of(&r->g, r->e->m, v);
  if (p < 0) return NULL;
  const Member *made = &r->g.member[p];
  if (r->scalar[p] && (made->segment == r->segment || cg_scalar_in_row(&r->g, made))) return r->scalar[p];
  if (!r->buffer[p]) return NULL;
  Type inner = *rows_type(r, made);
  for (int d = r->g.nrow; d < inner.rank; d++) inner.dim[d - r->g.nrow] = inner.dim[d];
  inner.rank -= r->g.nrow;
  return arena_printf(r->e->a, "%s[%s]", r->buffer[p], emit_offset(s, &inner, n - r->g.nrow, ix + r->g.nrow));
}

static int row_made_at(void *cx, ValueId v) {
  Rows *r = cx;
  int p = cg_member_of(&r->g, r->e->m, v);
  return p >= 0 && r->g.member[p].segment == r->segment ? MAX_INDEX + 1 : 0;
}

Scope rows_scope(Rows *r, const Member *x, Str *now) {
  Scope s = {
      .k = r->k, .op = x->op, .depth = r->depth, .pre = r->pre, .now = now, .value = row_value, .made_at = row_made_at, .cx = r};
  for (int i = 0; i < x->op->space.n; i++) s.var[i] = x->row[i] >= 0 ? r->row[x->row[i]] : r->loop[x->loop[i]];
  return s;
}

const char *rows_target(Rows *r, const Member *x, Scope *s) {
  int p = (int)(x - r->g.member);
  const Type *t = rows_type(r, x);
  if (r->column[p]) return arena_printf(r->e->a, "%s[%s]", r->column[p], emit_own_offset(s, t, 0));
  if (r->escapes[p]) {
    const char *ptr = emit_pointer(r->k, x->op->out[0], true);
    return arena_printf(r->e->a, "%s[%s]", ptr, emit_own_offset(s, t, 0));
  }
  if (!r->buffer[p]) return NULL;
  Scope inner = *s;
  for (int d = r->g.nrow; d < t->rank; d++) inner.var[d - r->g.nrow] = s->var[d];
  Type row = *t;
  for (int d = r->g.nrow; d < t->rank; d++) row.dim[d - r->g.nrow] = t->dim[d];
  row.rank -= r->g.nrow;
  return arena_printf(r->e->a, "%s[%s]", r->buffer[p], emit_own_offset(&inner, &row, 0));
}

/* ---- accumulators ----------------------------------------------------------------------------------------------- */

bool rows_ordered_bits(const Rows *r, const Op *op) {
  return r->e->m->target == TARGET_C && (op->reduce == RED_MAX || op->reduce == RED_MIN) && op->body->dtype == F32;
}

const char *rows_identity(Rows *r, const Op *op, bool bits) {
  DType d = op->body->dtype;
  switch (op->reduce) {
  case RED_PROD: return emit_literal(r->e, d, 1, 1);
  case RED_MAX:
  case RED_MIN: {
    bool max = op->reduce == RED_MAX;
    if (bits) return max ? "dtrt_order(-INFINITY)" : "dtrt_order(INFINITY)";
    if (d == F32 || d == F64) return max ? "-INFINITY" : "INFINITY";
    return d == BOOL ? max ? "false" : "true" : d == I32 ? max ? "INT32_MIN" : "INT32_MAX" : max ? "INT64_MIN" : "INT64_MAX";
  }
  default: return emit_literal(r->e, d, 0, 0);
  }
}

const char *rows_combine(Rows *r, const Op *op, const char *acc, const char *x, bool bits) {
  Emit *e = r->e;
  DType d = op->body->dtype;
  switch (op->reduce) {
  case RED_PROD: return arena_printf(e->a, "%s *= %s;\n", acc, x);
  case RED_MAX:
  case RED_MIN: {
    const char *f = op->reduce == RED_MAX ? "max" : "min";
    if (bits) return arena_printf(e->a, "%s = dtrt_i%s32(%s, dtrt_order(%s));\n", acc, f, acc, x);
    if (d == F32) return arena_printf(e->a, "%s = dtrt_%sf(%s, %s);\n", acc, f, acc, x);
    if (d == F64) return arena_printf(e->a, "%s = dtrt_%s(%s, %s);\n", acc, f, acc, x);
    return arena_printf(e->a, "%s = %s %c %s ? %s : %s;\n", acc, acc, op->reduce == RED_MAX ? '>' : '<', x, acc, x);
  }
  default: return arena_printf(e->a, "%s += %s;\n", acc, x);
  }
}

/* ---- statements --------------------------------------------------------------------------------------------------- */

static bool used_in_segment(const Rows *r, const Member *x) {
  for (int j = 0; j < r->g.nmember; j++)
    if (r->g.member[j].segment == x->segment)
      for (int n = 0; n < r->g.member[j].op->nin; n++)
        if (r->g.member[j].op->in[n] == x->op->out[0] && &r->g.member[j] != x) return true;
  return false;
}

/* In a kernel with values that stay inside it: looks at this one. A kernel in CUDA leaves what it writes to memory to the
   host's check: a call between its stores would keep the compiler from joining them. */
void rows_watch(Rows *r, const Member *x, const char *place, Str *body) {
  if (r->e->m->target == TARGET_CUDA && r->escapes[x - r->g.member]) return;
  if (r->k->sees && emit_watched(r->e, x->op, 0)) str_put(r->e->a, body, emit_watch(r->e, x->op, place));
}

/* Does the group read where x is written? */
static bool read_in_group(const Rows *r, const Member *x) {
  const Place *to = &r->e->place[x->op->out[0]];
  for (int j = 0; j < r->g.nmember && to->kind == PLACE_ARENA; j++)
    for (int n = 0; n < r->g.member[j].op->nin; n++)
      if (r->g.member[j].op->in[n] != x->op->out[0] && cg_same_place(&r->e->place[r->g.member[j].op->in[n]], to)) return true;
  return false;
}

/* What all threads of a team know one of them stores, when the others have read what may lie there. */
void rows_store(Rows *r, const Member *x, const char *to, const char *value, Str *body) {
  if (r->lane) {
    Emit *e = r->e;
    const char *name = emit_name(e, &r->k->local, arena_printf(e->a, "%s_4", e->m->values.at[x->op->out[0]].name));
    str_printf(e->a, &r->kept, "%s %s[4];\n", emit_ctype(rows_type(r, x)->dtype), name);
    str_printf(e->a, &r->stores, "%s = %s[%s];\n", to, name, r->lane);
    str_printf(e->a, body, "%s[%s] = %s;\n", name, r->lane, value);
    return;
  }
  if (r->one && read_in_group(r, x)) str_put(r->e->a, body, "__syncthreads();\n");
  str_printf(r->e->a, body, "%s%s = %s;\n", r->one ? r->one : "", to, value);
}

void rows_map(Rows *r, const Member *x, Str *body) {
  Emit *e = r->e;
  int p = (int)(x - r->g.member);
  Scope s = rows_scope(r, x, body);
  emit_hoist(&s);
  const char *value = emit_expr(&s, x->op->body), *to = rows_target(r, x, &s);
  if (used_in_segment(r, x) || cg_scalar_in_row(&r->g, x)) {
    DType d = rows_type(r, x)->dtype;
    const char *name = emit_name(e, &r->k->local, e->m->values.at[x->op->out[0]].name);
    str_printf(e->a, body, "const %s %s = %s;\n", emit_ctype(d), name, value);
    r->scalar[p] = value = name;
  }
  if (to) rows_store(r, x, to, value, body);
  rows_watch(r, x, to && !r->one ? to : value, body);
}

void rows_accumulate(Rows *r, const Member *x, Str *body) {
  int p = (int)(x - r->g.member);
  Scope s = rows_scope(r, x, body);
  emit_hoist(&s);
  const char *value = emit_expr(&s, x->op->body);
  bool in_memory = !r->acc[p];
  const char *acc = in_memory ? rows_target(r, x, &s) : r->acc[p];
  str_put(r->e->a, body, rows_combine(r, x->op, acc, value, !in_memory && rows_ordered_bits(r, x->op)));
}

/* ---- the group --------------------------------------------------------------------------------------------------------- */

const Op *rows_name_giver(const Rows *r) {
  for (int p = r->g.nmember - 1; p >= 0; p--)
    if (r->escapes[p] && !cg_scalar_in_row(&r->g, &r->g.member[p])) return r->g.member[p].op;
  return r->g.member[r->g.nmember - 1].op;
}

const char *rows_description(Rows *r) {
  Str s = {0};
  int n = 0;
  for (int p = 0; p < r->g.nmember; p++) {
    if (!r->escapes[p]) continue;
    if (n++ == 4) {
      str_put(r->e->a, &s, ", ...");
      break;
    }
    Names none = {0};
    str_printf(r->e->a, &s, "%s%s", n > 1 ? ", " : "",
               emit_name(r->e, &none, r->e->m->values.at[r->g.member[p].op->out[0]].name));
  }
  return s.at ? s.at : "";
}

Rows *rows_begin(Emit *e, const Step *step, Kernel *k) {
  Rows *r = NEW(e->a, Rows);
  *r = (Rows){.e = e, .k = k, .out = &k->body};
  if (!cg_plan_rows(e->a, e->m, step->op, step->n, &r->g)) internal_error("a group of ops that fit no loop nest");
  if (e->m->target == TARGET_CUDA) {
    r->teams = cg_teams(&r->g, e->m, e->users, e->a);
    r->g = r->teams.g;
  }
  int n = r->g.nmember;
  r->escapes = NEW_ARRAY(e->a, bool, n);
  r->scalar = NEW_ARRAY(e->a, const char *, n);
  r->buffer = NEW_ARRAY(e->a, const char *, n);
  r->column = NEW_ARRAY(e->a, const char *, n);
  r->acc = NEW_ARRAY(e->a, const char *, n);
  r->total = NEW_ARRAY(e->a, const char *, n);
  for (int p = 0; p < n; p++) {
    r->escapes[p] = cg_escapes(&r->g, e->m, e->users, r->g.member[p].op->out[0]);
    k->sees |= !r->escapes[p] && emit_watched(e, r->g.member[p].op, 0);
  }
  if (k->sees) emit_take(e, &k->local, "see");
  return r;
}

Kernel *emit_rows(Emit *e, const Step *step) {
  Kernel *k = NEW(e->a, Kernel);
  k->e = e;
  Rows *r = rows_begin(e, step, k);
  const Op *named = rows_name_giver(r);
  k->name = emit_kernel(e, named, e->m->values.at[named->out[0]].name)->name;
  e->d->rows(r);
  emit_kernel_end(k, named, rows_description(r));
  return k;
}
