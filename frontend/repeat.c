/* repeat.c: `x, aux = repeat(L) f(x, c, each d)` -> one repeat op whose region is f's body, lowered once.

     %x1: ..., %aux1: ... = repeat %l < L=4 carry(%x2 = %x) with(%c1 = %c) each(%d1 = %d, %w1 = %w) { ... yield %y stack(%a) }

   The first argument is carried; parameters of the body are leaves of the program with a first dim L, of which each
   round gets its slice; the step and outer counters come in as invariants when a random number wants them.          */
#include "blocks.h"

#include <ctype.h>

typedef struct {
  Ctx *cx, *in;
  const AstItem *it, *block;
  Extent trip;
  TensorRef *arg, *shape; /* as the caller has them; as the signature says */
  Type *type;
  Frame frame;
  Op *op;
} Repeat;

static bool repeat_dim(Repeat *r) {
  Lower *lw = r->cx->lw;
  AstName dim = r->it->repeat_dim;
  Symbol *s = scope_find(r->cx->scope, dim.text);
  if (r->it->repeat_axes.present) not_yet(lw, r->it->repeat_axes.loc, "`@` on a repeat");
  if (!s || s->kind != SYM_DIM) unknown_name(r->cx, dim.loc, "dim", dim.text, SYM_DIM);
  if (!s || s->kind != SYM_DIM || s->bad || r->it->repeat_axes.present) return false;
  r->trip = (Extent){s->name, s->size};
  return true;
}

static bool is_each(const Repeat *r, int i) { return r->it->value->args.at[i].each; }

/* What each round sees of an argument: all of it, or a slice. */
static bool slice_argument(Repeat *r, int i, TensorRef *slice) {
  Lower *lw = r->cx->lw;
  Loc loc = r->it->value->args.at[i].loc;
  *slice = r->arg[i];
  if (!is_each(r, i)) return true;
  if (i == 0) {
    fault(lw, "E0222", loc, "the first argument is carried from round to round; `each` is for the others");
    return false;
  }
  if (slice->rank == 0 || !extents_agree(slice->dim[0], r->trip)) {
    Diag *g =
        fault(lw, "E0222", loc, "`each` needs a first dim %s, this is %s", extent_text(lw->a, r->trip), shape_text(lw->a, slice));
    diag_label(lw->d, g, r->it->repeat_dim.loc, "every round gets its slice along %s", extent_text(lw->a, r->trip));
    return false;
  }
  slice->rank--;
  for (int k = 0; k < slice->rank; k++) slice->dim[k] = slice->dim[k + 1];
  return true;
}

/* `h = repeat(L) f(0, x)`: a number becomes a tensor of the argument's type. */
static bool starts_as_number(const Repeat *r, int i) {
  return i == 0 && r->arg[0].exact != TYPED && r->arg[0].rank == 0 && r->block->args.at[0].type.dims.n > 0;
}

static TensorRef fill(Repeat *r, const TensorRef *number, const TensorRef *shape) {
  Lower *lw = r->cx->lw;
  Op *op = ir_op(lw->m, OP_NEST, r->it->loc);
  Extent dim[MAX_RANK];
  for (int i = 0; i < shape->rank; i++) {
    dim[i] = block_outer_dim(r->in, shape->dim[i]);
    op->space.idx[i] = (Index){arena_printf(lw->a, "i%d", i), dim[i].name, dim[i].size, {0}};
  }
  op->space.n = op->space.nout = shape->rank;
  ir_in(lw->m, op, number->v);
  op->body = ex_cast(lw->a, shape->dtype, ex_read(lw->a, 0, number->dtype, 0, NULL, NULL));
  ValueId v = ir_out(lw->m, op, r->block->args.at[0].name.text, type_for(lw, shape->dtype, shape->rank, dim, r->it->loc));
  ir_append(lw->m, r->cx->fr->region, op);
  return tensor_of(v, shape->dtype, TYPED, shape->rank, dim);
}

static bool prepare_argument(Repeat *r, int i) {
  const AstParam *p = &r->block->args.at[i];
  Loc loc = r->it->value->args.at[i].loc;
  if (!type_of(r->in, &p->type, false, &r->type[i], &r->shape[i])) return false;
  if (starts_as_number(r, i)) {
    r->arg[i] = fill(r, &r->arg[i], &r->shape[i]);
    return true;
  }
  TensorRef slice;
  if (!slice_argument(r, i, &slice) || !block_check_argument(r->in, p, &slice, &r->shape[i], loc)) return false;
  if (is_each(r, i) || i == 0) { /* its pins stand on the region's argument */
    if (r->arg[i].exact != TYPED) r->arg[i] = copy_as(r->cx, r->arg[i], r->shape[i].dtype, NULL, p->name.text, r->it->loc);
  } else {
    r->arg[i] = block_convert(r->cx, r->arg[i], &r->type[i], p->name.text, r->it->loc);
  }
  return true;
}

static bool prepare_arguments(Repeat *r) {
  int n = r->block->args.n;
  bool ok = true;
  for (int i = 0; i < n; i++) {
    const AstArg *x = &r->it->value->args.at[i];
    r->arg[i] = whole_value(r->cx, x->value, arena_printf(r->cx->lw->a, "%s.arg", r->it->value->name), r->it->loc);
    ok &= !r->arg[i].bad;
  }
  if (n == 0) fault(r->cx->lw, "E0221", r->it->value->loc, "a repeat carries its block's first argument; this block has none");
  for (int i = 0; ok && i < n; i++) {
    TensorRef slice;
    if (starts_as_number(r, i)) continue;
    ok = slice_argument(r, i, &slice) && block_bind_dims(r->in, &r->block->args.at[i], &slice, r->it->value->args.at[i].loc);
  }
  for (int i = 0; ok && i < n; i++) ok = prepare_argument(r, i);
  return ok && n > 0;
}

/* ---- the region ----------------------------------------------------------------------------------------------------- */

static void open_region(Repeat *r) {
  Lower *lw = r->cx->lw;
  r->op = ir_op(lw->m, OP_REPEAT, r->it->loc);
  r->op->trip = r->trip.size;
  r->op->trip_dim = r->trip.name;
  r->op->body_region = ir_region(lw->m, r->op);
  char *counter = arena_printf(lw->a, "%s", r->trip.name);
  *counter = (char)tolower((unsigned char)*counter);
  r->frame =
      (Frame){.outer = r->cx->fr, .region = r->op->body_region, .trip = r->trip.size, .trip_dim = r->trip.name, .step = -1};
  r->frame.counter = ir_arg(lw->m, r->frame.region, counter, (Type){.dtype = I64});
  r->in->fr = &r->frame;
}

static void bind_region_arguments(Repeat *r) {
  Lower *lw = r->cx->lw;
  for (int i = 0; i < r->block->args.n; i++) {
    TensorRef t = r->shape[i];
    const AstParam *p = &r->block->args.at[i];
    t.v = ir_arg(lw->m, r->frame.region, p->name.text, r->type[i]);
    written_type(r->in, t.v, 0, p->name, &p->type, false);
    origin_set(lw, t.v, i ? origin_of(lw, r->arg[i].v) : NULL);
    if (i && is_each(r, i)) {
      vec_push(lw->a, r->frame.stacked_in, r->arg[i].v);
      vec_push(lw->a, r->frame.stacked_arg, t.v);
    } else if (i) {
      vec_push(lw->a, r->frame.invariant_in, r->arg[i].v);
      vec_push(lw->a, r->frame.invariant_arg, t.v);
    }
    block_bind_argument(r->in, &r->block->args.at[i], t, &r->shape[i]);
  }
}

static bool carried_fits(Repeat *r, const TensorRef *y) {
  Lower *lw = r->cx->lw;
  const TensorRef *x = &r->shape[0];
  bool fits = y->rank == x->rank && (y->exact != TYPED || y->dtype == x->dtype);
  for (int i = 0; fits && i < x->rank; i++) fits = extents_agree(x->dim[i], y->dim[i]);
  if (fits) return true;
  Diag *g = fault(lw, "E0221", r->it->value->loc, "a repeat hands `%s` back as `%s`: both need one type",
                  r->block->names.at[0].text, r->block->args.at[0].name.text);
  diag_label(lw->d, g, r->block->names.at[0].loc, "the result is %s", shape_text(lw->a, y));
  diag_label(lw->d, g, r->block->args.at[0].type.loc, "the argument is %s", shape_text(lw->a, x));
  return false;
}

static bool collect_yields(Repeat *r, TensorRef *y) {
  Lower *lw = r->cx->lw;
  bool ok = true;
  for (int i = 0; i < r->block->names.n; i++) ok &= block_result(r->in, r->block, i, &y[i]);
  if (!ok || !carried_fits(r, &y[0])) return false;
  if (y[0].exact != TYPED) y[0] = copy_as(r->in, y[0], r->shape[0].dtype, NULL, r->block->names.at[0].text, r->it->loc);
  for (int i = 1; i < r->block->names.n; i++)
    if (y[i].rank == MAX_RANK) {
      fault(lw, "E0305", r->it->loc, "stacked results would have more than %d dims", MAX_RANK);
      return false;
    }
  for (int i = 0; i < r->block->names.n; i++) vec_push(lw->a, r->frame.region->yields, y[i].v);
  return true;
}

/* ---- the op ------------------------------------------------------------------------------------------------------------- */

/* Operands and region arguments came as they were met; now they stand in order. */
static void order_operands(Repeat *r) {
  Lower *lw = r->cx->lw;
  Frame *f = &r->frame;
  Region *region = f->region;
  ValueId carried = region->args.at[1];
  region->args.n = 0;
  vec_push(lw->a, region->args, f->counter);
  vec_push(lw->a, region->args, carried);
  ir_in(lw->m, r->op, r->arg[0].v);
  for (int i = 0; i < f->invariant_in.n; i++) {
    ir_in(lw->m, r->op, f->invariant_in.at[i]);
    vec_push(lw->a, region->args, f->invariant_arg.at[i]);
  }
  for (int i = 0; i < f->stacked_in.n; i++) {
    ir_in(lw->m, r->op, f->stacked_in.at[i]);
    vec_push(lw->a, region->args, f->stacked_arg.at[i]);
  }
  for (int i = 0; i < region->args.n; i++) lw->m->values.at[region->args.at[i]].result = i;
  r->op->ncarried = 1;
  r->op->ninvariant = f->invariant_in.n;
  r->op->nstacked = f->stacked_in.n;
}

static TensorRef stacked(Repeat *r, TensorRef t) {
  for (int i = t.rank; i > 0; i--) t.dim[i] = t.dim[i - 1];
  t.dim[0] = r->trip;
  t.rank++;
  return t;
}

static void add_results(Repeat *r, const TensorRef *y, TensorRef *out) {
  Lower *lw = r->cx->lw;
  for (int i = 0; i < r->block->names.n; i++) {
    TensorRef t = block_to_caller(r->in, y[i]);
    if (i) t = stacked(r, t);
    Type type = type_for(lw, t.dtype, t.rank, t.dim, r->it->loc);
    for (int k = 0; !i && k < t.rank; k++) type.dim[k].split = r->type[0].dim[k].split;
    t.v = ir_out(lw->m, r->op, r->it->lhs.at[i].name.text, type);
    out[i] = t;
  }
  ir_append(lw->m, r->cx->fr->region, r->op);
}

bool repeat_call(Ctx *cx, Ctx *in, const AstItem *it, Symbol *block, TensorRef *out) {
  Arena *a = cx->lw->a;
  int n = block->item->args.n + 1;
  Repeat r = {.cx = cx, .in = in, .it = it, .block = block->item};
  r.arg = NEW_ARRAY(a, TensorRef, n);
  r.shape = NEW_ARRAY(a, TensorRef, n);
  r.type = NEW_ARRAY(a, Type, n);
  if (!repeat_dim(&r) || !prepare_arguments(&r)) return false;
  open_region(&r);
  bind_region_arguments(&r);
  block->used = true;
  lower_items(in, in->items, in->nitems);
  TensorRef *y = NEW_ARRAY(a, TensorRef, block->item->names.n);
  if (!collect_yields(&r, y)) return false;
  order_operands(&r);
  add_results(&r, y, out);
  return true;
}
