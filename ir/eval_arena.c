/* eval_arena.c: the planned arena of a scheduled program, byte by byte. Every cell starts as poison; writing an
   element marks all its bytes, so that a buffer which is reused too early, a partly overwritten element or an
   element of another size reads as poison:

     write f32 at 8:  cells 8..11 are parts 0..3 of one element      read f64 at 8:  poison

   Module.buffers places a value for the first iteration of every loop. In a body the argument of a carried value
   lies where the repeat's result does, an invariant's where its operand does, a slice's at operand + counter * size;
   a value that is yielded to a stacked result and shares its buffer is written straight into its slice.

   Local buffers are row-major over the capacities. Before an op runs, the bytes of its results are lost, unless
   the operand that lies there is read exactly where the result is written: the one way in which emitted code may
   work in place.

   A collective takes its operands from the arena, and writes its results, only when it is waited for. Until then the
   cells of its results are marked, so that a buffer which is reused while it is under way is seen: the operand's by a
   wrong value, the result's by a mark that is gone. */
#include "eval.h"

static const Type *type_of(const EvalRun *r, ValueId v) { return &r->m->values.at[v].type; }

static bool in_arena(const EvalRun *r, ValueId v) { return r->o.in_arena && r->place[v] >= 0; }

static int64_t bytes_of(const Module *m, ValueId v) {
  const Type *t = &m->values.at[v].type;
  return type_capacity(t) * dtype_size(t->dtype);
}

static int64_t local_bytes(const EvalRun *r, ValueId v) { return bytes_of(r->m, v); }

/* Byte offsets, from the value's place, of what a rank holds, element by element. */
typedef struct {
  int rank;
  int64_t at, size[MAX_RANK], step[MAX_RANK], digit[MAX_RANK];
} Cells;

static Cells cells_of(const Type *t, const Held *h) {
  Cells c = {.rank = h->rank};
  int64_t step = dtype_size(t->dtype);
  for (int k = h->rank - 1; k >= 0; step *= split_capacity(&t->dim[k].split, t->dim[k].size), k--)
    c.size[k] = h->size[k], c.step[k] = step;
  return c;
}

static void next_cell(Cells *c) {
  for (int k = c->rank - 1; k >= 0; k--) {
    c->at += c->step[k];
    if (++c->digit[k] < c->size[k]) return;
    c->at -= c->step[k] * c->size[k];
    c->digit[k] = 0;
  }
}

static void check_place(const EvalRun *r, ValueId v, int64_t at, int64_t size) {
  if (at < 0 || at + size > r->m->arena_bytes)
    internal_error("the buffer of %%%s leaves the arena of %lld bytes", r->m->values.at[v].name, (long long)r->m->arena_bytes);
}

void arena_load(EvalRun *r, ValueId v) {
  if (!in_arena(r, v)) return;
  DType d = type_of(r, v)->dtype;
  int64_t size = dtype_size(d);
  for (int rank = 0; rank < r->nranks; rank++) {
    Held *h = held_of(r, v, rank);
    Cells walk = cells_of(type_of(r, v), h);
    for (int64_t e = 0; e < h->n; e++, next_cell(&walk)) {
      int64_t at = r->place[v] + walk.at;
      check_place(r, v, at, size);
      const Cell *c = &r->cells[rank][at];
      bool good = true;
      for (int64_t b = 0; b < size; b++) good = good && c[b].size == size && c[b].off == b;
      h->at[e] = good ? c->v : domain_poison(r->d.kind, d, r->o.seed + (uint64_t)at);
    }
  }
}

static void store_at(EvalRun *r, ValueId v, int64_t place) {
  int64_t size = dtype_size(type_of(r, v)->dtype);
  for (int rank = 0; rank < r->nranks; rank++) {
    Held *h = held_of(r, v, rank);
    Cells walk = cells_of(type_of(r, v), h);
    for (int64_t e = 0; e < h->n; e++, next_cell(&walk)) {
      int64_t at = place + walk.at;
      check_place(r, v, at, size);
      for (int64_t b = 0; b < size; b++) r->cells[rank][at + b] = (Cell){h->at[e], (uint8_t)size, (uint8_t)b};
    }
  }
}

void arena_store(EvalRun *r, ValueId v) {
  if (in_arena(r, v)) store_at(r, v, r->place[v]);
}

/* ---- loops ---- */

/* Places the body's values for one iteration. */
void arena_enter(EvalRun *r, const Op *op, int64_t counter) {
  if (!r->o.in_arena) return;
  const Region *g = op->body_region;
  for (int i = 0; i < op->nin; i++) {
    ValueId arg = g->args.at[1 + i];
    if (i < op->ncarried)
      r->place[arg] = r->place[op->out[i]];
    else
      r->place[arg] = r->place[op->in[i]];
    bool slice = i >= op->ncarried + op->ninvariant;
    if (slice && r->place[arg] >= 0) r->place[arg] += counter * local_bytes(r, arg);
  }
  for (int i = op->ncarried; i < op->nout; i++) {
    ValueId y = g->yields.at[i];
    bool shares =
        r->m->values.at[y].def && r->m->buffers[y].offset >= 0 && r->m->buffers[y].offset == r->m->buffers[op->out[i]].offset;
    if (shares) r->place[y] = r->place[op->out[i]] + counter * local_bytes(r, y);
  }
}

/* Puts what was yielded into its slice of a stacked result, unless it was written there. */
bool arena_put_slice(EvalRun *r, ValueId stacked, ValueId slice, int64_t counter) {
  if (!in_arena(r, stacked)) return false;
  int64_t to = r->place[stacked] + counter * local_bytes(r, slice);
  if (r->place[slice] == to) return true;
  arena_load(r, slice);
  store_at(r, slice, to);
  return true;
}

void arena_poison_all(EvalRun *r) {
  for (int rank = 0; rank < r->nranks && r->o.in_arena; rank++)
    memset(r->cells[rank], 0, sizeof(Cell) * (size_t)r->m->arena_bytes);
}

static void arena_poison(EvalRun *r, ValueId v) {
  int64_t bytes = local_bytes(r, v);
  check_place(r, v, r->place[v], bytes);
  for (int rank = 0; rank < r->nranks; rank++) memset(r->cells[rank] + r->place[v], 0, sizeof(Cell) * (size_t)bytes);
}

typedef struct {
  const Op *op;
  ValueId in;
  bool same; /* every read of `in` so far is x[i] at result index i */
} InPlace;

static void look_at(InPlace *p, int operand, int n, IExpr *const *ix);

static void look_within(InPlace *p, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_VALUE) look_at(p, t->operand, t->nat, t->at);
    if (t->sub) look_within(p, t->sub);
  }
}

static void look_at(InPlace *p, int operand, int n, IExpr *const *ix) {
  bool same = p->op->in[operand] != p->in || n == p->op->space.nout;
  for (int k = 0; k < n; k++) {
    if (p->op->in[operand] == p->in) same = same && ix_single(ix[k]) == k;
    look_within(p, ix[k]);
  }
  p->same = p->same && same;
}

static void look(void *cx, const Expr *read) { look_at(cx, read->operand, read->nix, read->ix); }

/* May `out` lie on `in`? A map that reads it where it writes; a layout op between equal buffers. */
static bool in_place(const Module *m, const Op *op, ValueId in, ValueId out, const int64_t *place) {
  bool same = place[in] == place[out] && dtype_size(m->values.at[in].type.dtype) == dtype_size(m->values.at[out].type.dtype);
  if (!same) return false;
  if (op_class(op->kind) == CLS_LAYOUT) return true;
  if ((op->kind != OP_NEST && op->kind != OP_GATHER) || op->reduce) return false;
  InPlace p = {op, in, true};
  ex_reads(op->body, look, &p);
  return p.same;
}

bool arena_in_place(const Module *m, const Op *op, ValueId out, const int64_t *place) {
  int64_t from = place[out], to = from + bytes_of(m, out);
  for (int i = 0; i < op->nin; i++) {
    int64_t at = place[op->in[i]];
    bool shared = at >= 0 && at < to && from < at + bytes_of(m, op->in[i]);
    if (shared && in_place(m, op, op->in[i], out, place)) return true;
  }
  return false;
}

/* ---- collectives under way ---- */

static bool lies_on_operand(const EvalRun *r, const Op *op, int i) { return r->place[op->in[i]] == r->place[op->out[i]]; }

/* The element of the result is under way: neither poison nor a value, and whoever writes there is seen. */
static const Cell UNDER_WAY = {.size = UINT8_MAX};

void arena_take_off(EvalRun *r, const Op *op) {
  for (int i = 0; i < op->nout; i++) {
    ValueId v = op->out[i];
    if (!in_arena(r, v) || lies_on_operand(r, op, i)) continue;
    int64_t bytes = local_bytes(r, v);
    check_place(r, v, r->place[v], bytes);
    for (int rank = 0; rank < r->nranks; rank++)
      for (int64_t b = 0; b < bytes; b++) r->cells[rank][r->place[v] + b] = UNDER_WAY;
  }
}

void arena_land(EvalRun *r, const Op *op) {
  for (int i = 0; i < op->nout; i++) {
    ValueId v = op->out[i];
    if (!in_arena(r, v) || lies_on_operand(r, op, i)) continue;
    bool free = true;
    int64_t bytes = local_bytes(r, v);
    for (int rank = 0; rank < r->nranks; rank++)
      for (int64_t b = 0; b < bytes; b++) free = free && r->cells[rank][r->place[v] + b].size == UNDER_WAY.size;
    if (!free) domain_fail(&r->d, "the buffer of %%%s was written while it was under way", r->m->values.at[v].name);
    arena_poison(r, v);
  }
  for (int i = 0; i < op->nin; i++) arena_load(r, op->in[i]);
}

void arena_before(EvalRun *r, const Op *op) {
  if (!r->o.in_arena) return;
  for (int i = 0; i < op->nout; i++)
    if (in_arena(r, op->out[i]) && !arena_in_place(r->m, op, op->out[i], r->place)) arena_poison(r, op->out[i]);
  for (int i = 0; i < op->nin; i++) arena_load(r, op->in[i]);
}
