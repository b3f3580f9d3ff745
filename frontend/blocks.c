/* blocks.c: calls of blocks. The body is lowered once per call, with the call's sizes and under the call's name.

     block res(x: f32[B, S, C]) -> y { param w: f32[C, C] = ... }        S is not declared in the file: the block's own
     h = res(h)            S is bound to h's second dim; the parameter is "res.0.w" (the first of two calls)
     h = res(h) as stem    "stem.w"                                                                                     */
#include "blocks.h"

enum { MAX_CALL_DEPTH = 64 };

/* ---- signatures ------------------------------------------------------------------------------------------------- */

/* Dims that the signature uses and the file does not declare. */
static bool is_own_dim(Lower *lw, const AstExpr *e) {
  if (e->kind != AST_NAME || !e->is_dim) return false;
  Symbol *s = scope_find(lw->file, e->name);
  return !s || s->kind != SYM_DIM;
}

static Symbol *own_dim(Scope *scope, const char *name) {
  Symbol *s = scope_find(scope, name);
  return s && s->kind == SYM_DIM && s->own ? s : NULL;
}

static void declare_own(Ctx *in, const AstExpr *e, Extent x, Loc arg) {
  Symbol *s = NEW(in->lw->a, Symbol);
  *s = (Symbol){.kind = SYM_DIM, .name = e->name, .loc = e->loc, .size = x.size, .own = true, .outer = x.name, .bound = arg};
  scope_put(in->scope, s);
}

/* Binds the dim to what the argument has there, or checks that both agree. */
static bool bind_own(Ctx *in, const AstExpr *e, Extent x, Loc arg) {
  Lower *lw = in->lw;
  Symbol *s = own_dim(in->scope, e->name);
  if (!s) {
    declare_own(in, e, x, arg);
    return true;
  }
  if (extents_agree((Extent){s->outer, s->size}, x)) return true;
  Diag *g = fault(lw, "E0308", arg, "dim `%s` of the block would be both %s and %s", e->name,
                  extent_text(lw->a, (Extent){s->outer, s->size}), extent_text(lw->a, x));
  diag_label(lw->d, g, s->bound, "bound by this argument");
  diag_label(lw->d, g, e->loc, "`%s` in the block's signature", e->name);
  return false;
}

static bool argument_rank(Ctx *in, const AstParam *p, const TensorRef *t, Loc loc) {
  Lower *lw = in->lw;
  if (t->rank == p->type.dims.n) return true;
  Diag *g = fault(lw, "E0217", loc, "this argument is %s, `%s` has %d dim%s", shape_text(lw->a, t), p->name.text, p->type.dims.n,
                  p->type.dims.n == 1 ? "" : "s");
  diag_label(lw->d, g, p->type.loc, "the argument's type");
  return false;
}

bool block_bind_dims(Ctx *in, const AstParam *p, const TensorRef *t, Loc loc) {
  if (!argument_rank(in, p, t, loc)) return false;
  bool ok = true;
  for (int i = 0; i < t->rank; i++)
    if (is_own_dim(in->lw, p->type.dims.at[i].size)) ok &= bind_own(in, p->type.dims.at[i].size, t->dim[i], loc);
  return ok;
}

/* An exact number takes the declared type, but none that would change its value. */
static bool takes_type(const TensorRef *t, DType d) {
  if (t->exact == TYPED) return t->dtype == d;
  bool whole = dtype_is_int(d) && d != BOOL;
  return whole ? t->exact == EXACT_INT && (t->dtype == I32 || d == I64) : d != BOOL;
}

bool block_check_argument(Ctx *in, const AstParam *p, const TensorRef *t, const TensorRef *shape, Loc loc) {
  Lower *lw = in->lw;
  for (int i = 0; i < t->rank; i++) {
    Symbol *own = shape->dim[i].name ? own_dim(in->scope, shape->dim[i].name) : NULL;
    Extent want = own ? (Extent){own->outer, own->size} : shape->dim[i];
    if (extents_agree(want, t->dim[i])) continue;
    Diag *g =
        fault(lw, "E0217", loc, "this argument is %s, `%s` is %s", shape_text(lw->a, t), p->name.text, shape_text(lw->a, shape));
    diag_mark(lw->d, g, "dim %d is %s, not %s", i + 1, extent_text(lw->a, t->dim[i]), extent_text(lw->a, want));
    diag_label(lw->d, g, p->type.loc, "the argument's type");
    return false;
  }
  if (takes_type(t, shape->dtype)) return true;
  Diag *g =
      fault(lw, "E0217", loc, "this argument is %s, `%s` is %s", shape_text(lw->a, t), p->name.text, shape_text(lw->a, shape));
  diag_label(lw->d, g, p->type.loc, "the argument's type");
  diag_help(lw->d, g, "cast it: `%s(...)`", dtype_name(shape->dtype));
  return false;
}

/* In the caller's names: the block's own dims are what they were bound to. */
Extent block_outer_dim(const Ctx *in, Extent x) {
  Symbol *own = x.name ? own_dim(in->scope, x.name) : NULL;
  return own ? (Extent){own->outer, x.size} : x;
}

void block_bind_argument(Ctx *in, const AstParam *p, TensorRef t, const TensorRef *shape) {
  Symbol *s = scope_declare(in->lw, in->scope, SYM_TENSOR, p->name);
  for (int i = 0; i < t.rank; i++) t.dim[i] = shape->dim[i];
  s->tensor = t;
}

static bool has_pins(const Type *t) {
  for (int i = 0; i < t->rank; i++)
    if (t->dim[i].split.fixed) return true;
  return false;
}

/* A value of the argument's declared type: cast from an exact number, pinned where the type says so. */
TensorRef block_convert(Ctx *cx, TensorRef t, const Type *type, const char *name, Loc loc) {
  if (t.dtype == type->dtype && t.exact == TYPED && !has_pins(type)) return t;
  return copy_as(cx, t, type->dtype, type, name, loc);
}

/* ---- names of calls ------------------------------------------------------------------------------------------------ */

/* f for one call in this list of statements, f.0, f.1, ... for several; calls with a name of their own do not count. */
static const char *call_stem(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  if (it->as.text) return arena_printf(lw->a, "%s%s", cx->path, it->as.text);
  int calls = 0, this = 0;
  for (int i = 0; i < cx->nitems; i++) {
    const AstItem *x = cx->items[i];
    if (x->kind != ITEM_STATEMENT || x->as.text || x->value->kind != AST_CALL || strcmp(x->value->name, it->value->name))
      continue;
    if (x == it) this = calls;
    calls++;
  }
  return calls > 1 ? arena_printf(lw->a, "%s%s.%d", cx->path, it->value->name, this)
                   : arena_printf(lw->a, "%s%s", cx->path, it->value->name);
}

enum { CALL_PRICE = 200 }; /* of a call, in nodes: what it allocates before it lowers anything */

static bool claim_stem(Ctx *cx, const AstItem *it, const char *stem) {
  Lower *lw = cx->lw;
  lw->fuel -= CALL_PRICE;
  if (scope_find(lw->stems, stem)) {
    Diag *g = fault(lw, "E0220", it->as.text ? it->as.loc : it->value->loc, "two calls are named `%s`", stem);
    diag_help(lw->d, g, "a call's name begins the names of its parameters: choose another after `as`");
    return false;
  }
  Symbol *s = NEW(lw->a, Symbol);
  *s = (Symbol){.kind = SYM_TENSOR, .name = stem};
  scope_put(lw->stems, s);
  return true;
}

static Ctx callee(Ctx *cx, Symbol *block, const char *stem) {
  Arena *a = cx->lw->a;
  Ctx in = *cx;
  in.scope = scope_new(a, cx->lw->file);
  in.path = arena_printf(a, "%s.", stem);
  in.site = arena_printf(a, "%s/", stem);
  in.depth++;
  in.items = (const AstItem *const *)block->item->body.at;
  in.nitems = block->item->body.n;
  return in;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

bool block_result(Ctx *in, const AstItem *block, int i, TensorRef *out) {
  AstName name = block->names.at[i];
  if (in->lw->spent) return false;
  Symbol *s = scope_find(in->scope, name.text);
  if (!s || s->kind != SYM_TENSOR) {
    Diag *g = fault(in->lw, "E0219", name.loc, "the block never gives `%s` a value", name.text);
    diag_label(in->lw->d, g, block->name.loc, "the block");
    return false;
  }
  *out = s->tensor;
  return !s->tensor.bad;
}

TensorRef block_to_caller(const Ctx *in, TensorRef t) {
  for (int i = 0; i < t.rank; i++) t.dim[i] = block_outer_dim(in, t.dim[i]);
  return t;
}

static bool plain_arguments(Ctx *cx, const AstItem *it, TensorRef *out) {
  bool ok = true;
  const AstExpr *e = it->value;
  for (int i = 0; i < e->args.n; i++) {
    const AstArg *x = &e->args.at[i];
    if (x->each) {
      fault(cx->lw, "E0222", x->loc, "`each` hands slices to a repeat; this is a plain call");
      ok = false;
      continue;
    }
    out[i] = whole_value(cx, x->value, arena_printf(cx->lw->a, "%s.arg", e->name), it->loc);
    ok &= !out[i].bad;
  }
  return ok;
}

/* Converts the arguments and binds them to their names in the block. */
static bool bind_arguments(Ctx *cx, Ctx *in, const AstItem *it, const AstItem *block, const TensorRef *t) {
  bool ok = true;
  for (int i = 0; i < block->args.n; i++) ok &= block_bind_dims(in, &block->args.at[i], &t[i], it->value->args.at[i].loc);
  for (int i = 0; ok && i < block->args.n; i++) {
    const AstParam *p = &block->args.at[i];
    Type type;
    TensorRef shape;
    Loc loc = it->value->args.at[i].loc;
    ok = type_of(in, &p->type, false, &type, &shape) && block_check_argument(in, p, &t[i], &shape, loc);
    if (ok) block_bind_argument(in, p, block_convert(cx, t[i], &type, p->name.text, it->loc), &shape);
  }
  return ok;
}

static bool plain_call(Ctx *cx, Ctx *in, const AstItem *it, Symbol *block, TensorRef *out) {
  TensorRef *args = NEW_ARRAY(cx->lw->a, TensorRef, block->item->args.n + 1);
  if (!plain_arguments(cx, it, args) || !bind_arguments(cx, in, it, block->item, args)) return false;
  block->used = true;
  lower_items(in, in->items, in->nitems);
  bool ok = true;
  for (int i = 0; i < block->item->names.n; i++) {
    ok &= block_result(in, block->item, i, &out[i]);
    out[i] = block_to_caller(in, out[i]);
  }
  return ok;
}

static Symbol *called_block(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  const AstExpr *e = it->value;
  Symbol *s = scope_function(cx->scope, e->name);
  if (!s || s->kind != SYM_BLOCK) {
    Diag *g = NULL;
    if (s || builtin_find(e->name))
      g = fault(lw, "E0216", e->loc, "`%s` is no block: `repeat` and `as` are for calls of blocks", e->name);
    else
      unknown_name(cx, e->head, "block", e->name, SYM_BLOCK);
    if (g && s) diag_label(lw->d, g, s->loc, "`%s` is declared here", e->name);
    return NULL;
  }
  return s;
}

static bool call_fits(Ctx *cx, const AstItem *it, Symbol *s) {
  Lower *lw = cx->lw;
  const AstExpr *e = it->value;
  const AstItem *block = s->item;
  bool ok = true;
  if (e->args.n != block->args.n) {
    Diag *g = fault(lw, "E0208", e->loc, "`%s` takes %d argument%s, not %d", e->name, block->args.n,
                    block->args.n == 1 ? "" : "s", e->args.n);
    diag_label(lw->d, g, s->loc, "the block");
    ok = false;
  }
  for (int i = 0; i < e->args.n; i++)
    if (e->args.at[i].name.text || e->args.at[i].value->kind == AST_STRING)
      fault(lw, "E0209", e->args.at[i].loc, "arguments of a block are given in order, as tensors"), ok = false;
  if (it->lhs.n != block->names.n) {
    Diag *g = fault(lw, "E0218", it->loc, "`%s` gives %d result%s, %d name%s on the left side", e->name, block->names.n,
                    block->names.n == 1 ? "" : "s", it->lhs.n, it->lhs.n == 1 ? " stands" : "s stand");
    diag_label(lw->d, g, s->loc, "the block");
    ok = false;
  }
  if (s->busy) fault(lw, "E0206", e->loc, "block `%s` calls itself", e->name), ok = false;
  if (!s->busy && cx->depth >= MAX_CALL_DEPTH) fault(lw, "E0223", e->loc, "blocks call each other too deep here"), ok = false;
  return ok;
}

void lower_call_statement(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  Symbol *s = called_block(cx, it);
  TensorRef *out = NEW_ARRAY(lw->a, TensorRef, it->lhs.n + 1);
  bool ok = s && call_fits(cx, it, s);
  if (it->add) ok = false, fault(lw, "E0318", it->head, "`+=` adds values by index; a call of a block is assigned with `=`");
  if (ok) {
    const char *stem = call_stem(cx, it);
    Ctx in = callee(cx, s, stem);
    ok = claim_stem(cx, it, stem);
    s->busy = true;
    ok = ok && (it->repeat ? repeat_call(cx, &in, it, s, out) : plain_call(cx, &in, it, s, out));
    s->busy = false;
  }
  for (int i = 0; i < it->lhs.n; i++) assign_result(cx, &it->lhs.at[i], ok ? out[i] : (TensorRef){.bad = true}, it->loc);
}

/* ---- blocks that nobody calls --------------------------------------------------------------------------------------------- */

/* Their own dims have this size, which most divisors divide; what depends on it is not reported. */
enum { ANY_SIZE = 5040 };

void check_uncalled(Ctx *cx, Symbol *block) {
  Lower *lw = cx->lw, was = *lw;
  const AstItem *b = block->item;
  lw->m = ir_module(lw->a);
  lw->m->mesh = was.m->mesh;
  lw->dry = true;
  memset(&lw->pure, 0, sizeof lw->pure);
  memset(&lw->origin, 0, sizeof lw->origin);
  memset(&lw->operand, 0, sizeof lw->operand);
  lw->stems = scope_new(lw->a, NULL);
  Frame fr = {.region = lw->m->programs.at[0].body, .step = -1};
  Ctx in = callee(cx, block, block->name);
  in.fr = &fr;
  for (int i = 0; i < b->args.n; i++)
    for (int k = 0; k < b->args.at[i].type.dims.n; k++) {
      const AstExpr *e = b->args.at[i].type.dims.at[k].size;
      if (is_own_dim(lw, e) && !own_dim(in.scope, e->name)) declare_own(&in, e, (Extent){NULL, ANY_SIZE}, e->loc);
    }
  for (int i = 0; i < b->args.n; i++) {
    Type type;
    TensorRef shape;
    bool ok = type_of(&in, &b->args.at[i].type, false, &type, &shape);
    shape.v = ir_arg(lw->m, fr.region, b->args.at[i].name.text, type);
    shape.bad = !ok;
    block_bind_argument(&in, &b->args.at[i], shape, &shape);
  }
  block->busy = true;
  lower_items(&in, in.items, in.nitems);
  block->busy = false;
  TensorRef t;
  for (int i = 0; i < b->names.n; i++) block_result(&in, b, i, &t);
  int64_t fuel = lw->fuel;
  *lw = was;
  lw->fuel = fuel;
}
