/* moves.c: the collectives of a local module, each with what it moves, for whom, and whether the reader could have had it
   as it was.

     %n[b,t@model,d] = ...   %n.1 = all_gather %n   %v, %i = topk[t] %n.1    =>  source %n, reader topk, which cannot run
                                                                                split along t                               */
#include "moves.h"

static const Type *type_at(const Moves *s, ValueId v) { return &s->m->values.at[v].type; }

static ValueId source_of(const Module *m, ValueId v) {
  const Op *def = m->values.at[v].def;
  while (def && op_class(def->kind) == CLS_LAYOUT && def->nin > m->values.at[v].result) {
    v = def->in[m->values.at[v].result];
    def = m->values.at[v].def;
  }
  return v;
}

static void note(void *cx, Region *r, Op *op, int64_t times) {
  (void)r;
  Moves *s = cx;
  for (int i = 0; i < op->nin; i++) vec_push(s->a, s->reads[op->in[i]], ((Reader){op, i}));
  for (int i = 0; op->body_region && i < op->body_region->yields.n; i++)
    vec_push(s->a, s->reads[op->body_region->yields.at[i]], ((Reader){op, -1}));
  if (op_class(op->kind) == CLS_SPACE) {
    vec_grow(s->a, (void **)&s->ops.at, s->ops.n, &s->ops.cap, sizeof *s->ops.at);
    s->ops.at[s->ops.n].op = op;
    s->ops.at[s->ops.n++].times = times;
  }
  for (int i = 0; op_is_collective(op->kind) && i < op->nin && i < op->nout; i++) {
    Transfer v = {.op = op, .slot = i, .times = times, .from = type_at(s, op->in[i]), .to = type_at(s, op->out[i])};
    v.source = source_of(s->m, op->in[i]);
    v.bytes = move_bytes(&s->m->mesh, op->kind, v.from, v.to);
    v.axes = move_axes(&s->m->mesh, v.from, v.to);
    vec_push(s->a, s->list, v);
  }
}

Moves *moves_new(const Module *m, Arena *a) {
  Moves *s = NEW(a, Moves);
  *s = (Moves){.m = m, .a = a, .reads = NEW_ARRAY(a, Readers, m->values.n + 1), .written = NEW_ARRAY(a, int, m->values.n + 1)};
  for (int v = 0; v < m->values.n; v++) s->written[v] = -1;
  for (int i = m->written.n - 1; i >= 0; i--) s->written[m->written.at[i].v] = i;
  for (int i = 0; i < m->programs.n; i++) part_visit(m->programs.at[i].body, 1, note, s);
  return s;
}

static void add_readers(const Moves *s, ValueId v, Readers *out) {
  for (int i = 0; i < s->reads[v].n; i++) {
    Reader r = s->reads[v].at[i];
    bool through = r.slot >= 0 && op_class(r.op->kind) == CLS_LAYOUT && r.slot < r.op->nout;
    if (through)
      add_readers(s, r.op->out[r.slot], out);
    else
      vec_push(s->a, *out, r);
  }
}

Readers moves_readers(const Moves *s, const Transfer *v) {
  Readers out = {0};
  add_readers(s, v->op->out[v->slot], &out);
  return out;
}

bool moves_gathers(const Type *from, const Type *to, int d) {
  for (int i = 0; i < from->dim[d].split.n; i++)
    if (!split_uses(&to->dim[d].split, from->dim[d].split.part[i])) return true;
  return false;
}

/* Read through an expression, could d of the operand stay where it lies, as a window? */
static bool carries(const Reader *r, const Factors *f, const Type *t, int d) {
  Split out[MAX_INDEX] = {0};
  part_carry(r->op, &f->in[r->slot], t, d, out);
  for (int i = 0; i < r->op->space.n; i++)
    if (out[i].n > 0) return true;
  return false;
}

Reader moves_obstacle(const Moves *s, const Transfer *v, int *d, int *index) {
  Readers readers = moves_readers(s, v);
  for (int i = 0; i < readers.n; i++) {
    Reader r = readers.at[i];
    if (r.slot < 0 || op_class(r.op->kind) != CLS_SPACE) continue;
    const Factors *f = part_factors(s->m, r.op, s->a);
    for (*d = 0; *d < v->from->rank; ++*d) {
      int k = f->in[r.slot].index[*d];
      if (!moves_gathers(v->from, v->to, *d) || (k != NO_FACTOR ? f->splits[k] : carries(&r, f, v->from, *d))) continue;
      *index = k == NO_FACTOR || k >= r.op->space.n ? -1 : k;
      return r;
    }
  }
  return (Reader){NULL, -1};
}

const Written *moves_written(const Moves *s, ValueId v) { return s->written[v] < 0 ? NULL : &s->m->written.at[s->written[v]]; }

const char *moves_spelling(const Module *m, const Written *w, const Type *t, int only, Arena *a) {
  Str s = {0};
  str_put(a, &s, w->name);
  for (int i = 0; i < w->rank; i++) {
    const char *axes = ir_print_split(m, &t->dim[i + w->shift].split, a);
    str_printf(a, &s, "%s%s", i ? ", " : "[", w->dim[i].name);
    if (only < 0 || only == i + w->shift) str_printf(a, &s, " @ %s", *axes ? axes : "none");
  }
  str_put(a, &s, w->rank ? "]" : "");
  return s.at;
}

const char *moves_place(const Module *m, Loc loc, Arena *a) {
  if (loc.line == 0) return "-";
  const char *file = loc.file >= 0 && loc.file < m->files.n ? m->files.at[loc.file] : "line";
  return arena_printf(a, "%s:%d", file, loc.line);
}
