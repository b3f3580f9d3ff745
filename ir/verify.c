/* verify.c: the laws of ir/README.md, checked between all passes. Here: values are defined once and before use, in
   their own region, under names of their own; buffers at stage scheduled. A broken law is shown with its op:

     pass reshard broke a law of stage sharded:
       %z[b]: f32[B=4] = nest exp(%y[b])   ; a.dt:7
     %y is a pending sum over model, the result is not                                                          */
#define XXH_INLINE_ALL
#include "verify.h"

#include <stdlib.h>
#include <xxhash.h>

bool broken(Check *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Str s = {0};
  str_vprintf(c->scratch, &s, fmt, ap);
  va_end(ap);
  if (!c->why) c->why = s.at;
  return false;
}

/* ---- showing ------------------------------------------------------------------------------------------------ */

const char *show_value(Check *c, ValueId v) {
  return v >= 0 && v < c->m->values.n && value_of(c, v)->name ? arena_printf(c->scratch, "%%%s", value_of(c, v)->name) : "%?";
}

const char *show_type(Check *c, const Type *t) { return ir_print_type(c->m, t, c->scratch); }

const char *show_index(Check *c, const IExpr *x) { return text_index(c->m, c->op, x, c->scratch); }

const char *show_parts(Check *c, const AxisPart *part, int n) { return n ? text_parts(c->m, part, n, c->scratch) : "nothing"; }

/* ---- values ---------------------------------------------------------------------------------------------------- */

typedef struct {
  Check *c;
  const Region **where; /* per value: the region that has defined it so far */
} Scope;

static bool check_type(Check *c, ValueId v) {
  const Type *t = type_of(c, v);
  LAW(c, (int)t->dtype >= 0 && t->dtype < NDTYPES, "%s has the unknown dtype %d", show_value(c, v), t->dtype);
  LAW(c, t->rank >= 0 && t->rank <= MAX_RANK, "%s has %d dims", show_value(c, v), t->rank);
  for (int d = 0; d < t->rank; d++)
    LAW(c, t->dim[d].size >= 0, "dim %d of %s has %lld elements", d, show_value(c, v), (long long)t->dim[d].size);
  return check_type_layout(c, v);
}

static bool define(Scope *s, ValueId v, const Op *def, const Region *r, int at) {
  Check *c = s->c;
  LAW(c, v >= 0 && v < c->m->values.n, "value number %d of %d is defined", v, c->m->values.n);
  const Value *x = value_of(c, v);
  LAW(c, x->name && *x->name, "a value has no name");
  LAW(c, !s->where[v], "%s is defined twice", show_value(c, v));
  bool current = x->def == def && x->region == r && x->result == at;
  LAW(c, current, "what %s knows of its definition is out of date: ir_number was not called after an edit", show_value(c, v));
  s->where[v] = r;
  return check_type(c, v);
}

static bool use(Scope *s, ValueId v, const Region *r) {
  Check *c = s->c;
  LAW(c, v >= 0 && v < c->m->values.n, "value number %d of %d is used", v, c->m->values.n);
  LAW(c, s->where[v], "%s is used before it is defined", show_value(c, v));
  LAW(c, s->where[v] == r, "%s is used in another region than its own: a repeat's body sees only its arguments",
      show_value(c, v));
  return true;
}

static bool check_region(Scope *s, const Region *r, const Op *parent);

static bool check_one(Scope *s, const Region *r, const Op *op, int order) {
  Check *c = s->c;
  c->op = op;
  LAW(c, op->order == order, "the op is number %d of its region, it says %d: ir_number was not called after an edit", order,
      op->order);
  for (int i = 0; i < op->nin; i++)
    if (!use(s, op->in[i], r)) return false;
  LAW(c, (op->kind == OP_REPEAT) == (op->body_region != NULL), "a repeat, and nothing else, has a body of ops");
  if (op->body_region && !check_region(s, op->body_region, op)) return false;
  c->op = op;
  for (int i = 0; i < op->nout; i++)
    if (!define(s, op->out[i], op, r, i)) return false;
  if (!check_op(c, r->parent != NULL)) return false;
  return c->m->stage == STAGE_ANNOTATED || check_layout(c);
}

static bool check_region(Scope *s, const Region *r, const Op *parent) {
  Check *c = s->c;
  LAW(c, r->parent == parent, "a region's parent is out of date: ir_number was not called after an edit");
  for (int i = 0; i < r->args.n; i++)
    if (!define(s, r->args.at[i], NULL, r, i)) return false;
  for (int i = 0; i < r->ops.n; i++)
    if (!check_one(s, r, r->ops.at[i], i)) return false;
  c->op = parent;
  for (int i = 0; i < r->yields.n; i++)
    if (!use(s, r->yields.at[i], r)) return false;
  return c->m->stage < STAGE_SCHEDULED || check_waits(c, r);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool check_names(Scope *s) {
  Check *c = s->c;
  size_t room = 16;
  while (room < 2 * (size_t)c->m->values.n) room *= 2;
  const Value **live = NEW_ARRAY(c->scratch, const Value *, room); /* by the hash of their names, or behind that */
  for (int v = 0; v < c->m->values.n; v++) {
    if (!s->where[v]) continue;
    const Value *x = value_of(c, v);
    size_t at = XXH3_64bits(x->name, strlen(x->name)) & (room - 1);
    c->op = x->def;
    for (; live[at]; at = (at + 1) & (room - 1))
      LAW(c, strcmp(live[at]->name, x->name), "two values are called %%%s", x->name);
    live[at] = x;
  }
  return true;
}

static bool check_leaves(Check *c) {
  Leaves l = ir_leaves(c->m, c->scratch);
  for (int i = 1; i < l.n; i++) {
    c->op = l.at[i];
    bool same = l.at[i - 1]->kind == c->op->kind && !strcmp(l.at[i - 1]->name, c->op->name);
    LAW(c, !same, "two leaves are called %s \"%s\"", op_text(c->op->kind), c->op->name);
  }
  return true;
}

static int by_first_operand(const void *a, const void *b) {
  const Op *const *x = a, *const *y = b;
  return (*x)->in[0] - (*y)->in[0];
}

static bool check_updates(Check *c) {
  VEC(const Op *) list = {0};
  for (int p = 0; p < c->m->programs.n; p++) {
    const Region *r = c->m->programs.at[p].body;
    for (int i = 0; i < r->ops.n; i++)
      if (r->ops.at[i]->kind == OP_UPDATE) vec_push(c->scratch, list, r->ops.at[i]);
  }
  if (list.n) qsort(list.at, (size_t)list.n, sizeof *list.at, by_first_operand);
  for (int i = 1; i < list.n; i++) {
    c->op = list.at[i];
    LAW(c, list.at[i - 1]->in[0] != list.at[i]->in[0], "%s is updated twice", show_value(c, list.at[i]->in[0]));
  }
  return true;
}

/* ---- buffers ------------------------------------------------------------------------------------------------------- */

/* A value that only ops of its own group use lives in registers; everything else that ops compute has a buffer. */
static void mark_escaping(const Region *r, const Module *m, bool *escapes) {
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    for (int k = 0; k < op->nin; k++) {
      const Op *def = m->values.at[op->in[k]].def;
      if (!def || !def->group || def->group != op->group) escapes[op->in[k]] = true;
    }
    if (op->body_region) mark_escaping(op->body_region, m, escapes);
  }
  for (int i = 0; i < r->yields.n; i++) escapes[r->yields.at[i]] = true;
}

static bool check_buffers(Scope *s) {
  Check *c = s->c;
  const Module *m = c->m;
  if (!m->buffers) return true; /* between the passes schedule and buffers */
  LAW(c, m->arena_bytes >= 0 && m->workspace_bytes >= 0, "an arena of %lld and a workspace of %lld bytes",
      (long long)m->arena_bytes, (long long)m->workspace_bytes);
  bool *escapes = NEW_ARRAY(c->scratch, bool, m->values.n + 1);
  for (int p = 0; p < m->programs.n; p++) mark_escaping(m->programs.at[p].body, m, escapes);
  for (int v = 0; v < m->values.n; v++) {
    if (!s->where[v]) continue;
    const Value *x = value_of(c, v);
    const Buffer *b = &m->buffers[v];
    c->op = x->def;
    bool computed = x->def && (op_class(x->def->kind) == CLS_SPACE || op_class(x->def->kind) == CLS_LAYOUT);
    LAW(c, b->offset >= 0 || !computed || !escapes[v], "%s is used outside of its group and has no buffer", show_value(c, v));
    if (b->offset < 0) continue;
    int64_t end, need;
    LAW(c, b->bytes >= 0 && checked_add(b->offset, b->bytes, &end) && end <= m->arena_bytes,
        "the buffer of %s, %lld+%lld, leaves the arena of %lld bytes", show_value(c, v), (long long)b->offset,
        (long long)b->bytes, (long long)m->arena_bytes);
    need = type_capacity(&x->type) * dtype_size(x->type.dtype);
    LAW(c, b->bytes >= need, "the buffer of %s has %lld bytes, it needs %lld", show_value(c, v), (long long)b->bytes,
        (long long)need);
  }
  return true;
}

/* ---- the module ------------------------------------------------------------------------------------------------------ */

static bool check_module(Check *c) {
  const Module *m = c->m;
  LAW(c, (int)m->stage >= 0 && m->stage <= STAGE_SCHEDULED, "unknown stage %d", m->stage);
  LAW(c, m->mesh.naxes >= 0 && m->mesh.naxes <= MAX_AXES, "a mesh of %d axes", m->mesh.naxes);
  for (int i = 0; i < m->mesh.naxes; i++)
    LAW(c, m->mesh.axis[i].name && m->mesh.axis[i].size >= 1, "axis number %d of the mesh has no name or no devices", i);
  LAW(c, m->programs.n >= 1, "the module has no program");
  Scope s = {c, NEW_ARRAY(c->scratch, const Region *, m->values.n + 1)};
  for (int i = 0; i < m->programs.n; i++) {
    const Region *r = m->programs.at[i].body;
    LAW(c, r->args.n == 0 && r->yields.n == 0, "a program has no arguments and yields nothing");
    if (!check_region(&s, r, NULL)) return false;
    c->op = NULL;
  }
  if (!check_names(&s) || !check_leaves(c) || !check_updates(c)) return false;
  c->op = NULL;
  if (m->train.present)
    LAW(c, m->train.loss >= 0 && m->train.loss < m->values.n && s.where[m->train.loss],
        "the loss of the train block is not defined");
  return m->stage < STAGE_SCHEDULED || check_buffers(&s);
}

bool ir_verify(const Module *m, const char *pass, const char **why) {
  Arena *scratch = arena_new();
  Check c = {.m = m, .scratch = scratch};
  bool ok = check_module(&c);
  if (ok) return arena_free(scratch), true;
  bool known = (int)m->stage >= 0 && m->stage <= STAGE_SCHEDULED;
  const char *op = c.op ? arena_printf(scratch, "  %s\n", ir_print_op(m, c.op, scratch)) : "";
  const char *stage = known ? STAGE_TEXT[m->stage] : "?";
  const char *who = pass ? arena_printf(scratch, "pass %s broke a law of stage %s:\n", pass, stage) : "";
  char *text = arena_printf(m->arena, "%s%s%s", who, op, c.why);
  arena_free(scratch);
  if (!why) internal_error("%s", text);
  *why = text;
  return false;
}
