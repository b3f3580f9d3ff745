/* epilogue.c: CUDA: what a product can do with its result before it stores it, so that what follows need not read it again:

     y[b,t,f] = sum[d] x[b,t,d] * w[d,f]          DTCU_GELU: stores y, which the gradient wants, and u
     u[b,t,f] = 0.5 * y * (1 + tanh(...))

   also y + bias[f], gelu(y + bias[f]) and y * gelu'(z). Whether a group's maps are one of these functions is found by
   computing them at some points: how they were written does not matter. Those that are leave the group. A value that is
   now stored a step earlier may not lie where something is that the two steps still read.

   And sums of what it reads: the gradient of a bias beside that of the weight. The two are a step from group.c on.

     dw[d,f] = sum[b,t] x[b,t,d] * dy[b,t,f]      DTCU_SUM_B: stores dw and db
     db[f]   = sum[b,t] dy[b,t,f]                                                                                  */
#include <math.h>

#include "cg.h"

enum { POINTS = 37 };

typedef struct {
  const Module *m;
  const Step *group;
  const Product *product;
  const Place *place;
  ValueId y, other; /* the product's result, and what else is read (-1: nothing yet) */
  bool by_element;  /* is `other` read element by element, or as a bias? */
  double at_y, at_other;
  bool failed;
} Function;

/* ---- the function that a map computes ------------------------------------------------------------------------------- */

static const Type *type_of(const Function *f, ValueId v) { return &f->m->values.at[v].type; }

static bool same_layout(const Type *a, const Type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int d = 0; d < a->rank; d++)
    if (a->dim[d].size != b->dim[d].size || !split_equal(&a->dim[d].split, &b->dim[d].split)) return false;
  return true;
}

/* Does it have an element for each of y, from those at the same indices? */
static bool is_map(const Function *f, const Op *op) {
  return op->kind == OP_NEST && op->reduce == RED_NONE && op->nout == 1 && op->space.n == op->space.nout &&
         same_layout(type_of(f, op->out[0]), type_of(f, f->y));
}

static const Op *member(const Function *f, ValueId v) {
  for (int i = 0; i < f->group->n; i++)
    if (f->group->op[i]->out[0] == v) return f->group->op[i];
  return NULL;
}

static bool reads_own_element(const Function *f, const Op *op, const Expr *x) {
  for (int d = 0; d < x->nix; d++)
    if (ix_single(x->ix[d]) != d) return false;
  return !x->otherwise && same_layout(type_of(f, op->in[x->operand]), type_of(f, f->y));
}

/* Reads b[n] where n are the product's columns. */
static bool reads_bias(const Function *f, const Op *op, const Expr *x) {
  const Run *n = &f->product->n;
  const Type *t = type_of(f, op->in[x->operand]);
  if (x->nix != n->n || x->otherwise || t->dtype != F32 || f->place[op->in[x->operand]].kind != PLACE_ARENA) return false;
  for (int d = 0; d < x->nix; d++)
    if (ix_single(x->ix[d]) != n->index[d] || !cg_same_part(&op->space.idx[n->index[d]], &t->dim[d]) ||
        op->space.idx[n->index[d]].range != t->dim[d].size)
      return false;
  return true;
}

static double value_of(Function *f, const Op *op, const Expr *x);

static double read(Function *f, const Op *op, const Expr *x) {
  ValueId v = op->in[x->operand];
  bool own = reads_own_element(f, op, x);
  const Op *made = member(f, v);
  if (own && v == f->y) return f->at_y;
  if (own && made && is_map(f, made)) return value_of(f, made, made->body);
  bool known = own ? f->place[v].kind == PLACE_ARENA && !made : reads_bias(f, op, x) && v != f->y && !made;
  if (!known || (f->other >= 0 && (f->other != v || f->by_element != own))) {
    f->failed = true;
    return 0;
  }
  f->other = v, f->by_element = own;
  return f->at_other;
}

static double value_of(Function *f, const Op *op, const Expr *e) {
  if (e->op == EX_READ) return read(f, op, e);
  double x = e->arg[0] && e->op != EX_WHERE ? value_of(f, op, e->arg[0]) : 0;
  double y = e->arg[1] && e->op != EX_WHERE ? value_of(f, op, e->arg[1]) : 0;
#define FN(op, name, value, ...)                                                                                                 \
  case EX_##op: return value;
  switch (e->op) {
  case EX_LITERAL: return e->lit;
  case EX_ADD: return x + y;
  case EX_SUB: return x - y;
  case EX_MUL: return x * y;
  case EX_DIV: return x / y;
  case EX_NEG: return -x;
  case EX_POW: return pow(x, y);
#include "ir/functions.def"
  case EX_STOP: return x;
  default: f->failed = true; return 0;
  }
}

/* ---- which of the known functions it is ------------------------------------------------------------------------------ */

static double gelu(double x, double *slope) {
  const double c = 0.7978845608028654, t = tanh(c * (x + 0.044715 * x * x * x));
  *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
  return 0.5 * x * (1 + t);
}

static double known(EpilogueKind kind, double y, double other) {
  double slope, z = gelu(kind == EPILOGUE_DGELU ? other : kind == EPILOGUE_GELU ? y : y + other, &slope);
  return kind == EPILOGUE_BIAS ? y + other : kind == EPILOGUE_DGELU ? y * slope : z;
}

/* In f32 formulas of one function differ by some 1e-7; gelu with erf is 5e-4 from this one. */
static bool computes(Function *f, const Op *op, EpilogueKind kind) {
  f->other = -1, f->failed = !is_map(f, op) || op->body->dtype != F32;
  for (int i = 0; i < POINTS && !f->failed; i++) {
    f->at_y = 0.37 * (i - POINTS / 2), f->at_other = 0.61 * ((i * 7) % 13 - 6);
    double x = value_of(f, op, op->body), expected = known(kind, f->at_y, f->at_other);
    if (!(fabs(x - expected) <= 1e-5 * (1 + fabs(expected)))) return false;
  }
  if (f->failed || (f->other >= 0) != (kind != EPILOGUE_GELU)) return false;
  return f->other < 0 || f->by_element == (kind == EPILOGUE_DGELU);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

/* The bytes of a value over all iterations of the loops it moves with. */
static void span(const Module *m, const Place *p, ValueId v, int64_t *lo, int64_t *hi) {
  *lo = p->offset, *hi = p->offset + cg_bytes(&m->values.at[v].type);
  for (int i = 0; i < p->n; i++) *hi += p->stride[i] * max_i64(0, m->values.at[p->counter[i]].region->parent->trip - 1);
}

static bool apart(const Function *f, ValueId a, ValueId b) {
  int64_t alo, ahi, blo, bhi;
  if (f->place[a].kind != PLACE_ARENA || f->place[b].kind != PLACE_ARENA) return true;
  span(f->m, &f->place[a], a, &alo, &ahi);
  span(f->m, &f->place[b], b, &blo, &bhi);
  return ahi <= blo || bhi <= alo;
}

/* May `v` be stored by the product? Nothing lies there that the product or what is left of the group still reads. */
static bool stored_early(const Function *f, const Op *product, const Epilogue *e, ValueId v) {
  if (f->place[v].kind != PLACE_ARENA) return false;
  for (int i = 0; i < product->nin; i++)
    if (!apart(f, v, product->in[i])) return false;
  if (e->bias >= 0 && !apart(f, v, e->bias)) return false;
  for (int i = 0; i < e->rest.n; i++)
    for (int k = 0; k < e->rest.op[i]->nin; k++)
      if (e->rest.op[i]->in[k] != v && !apart(f, v, e->rest.op[i]->in[k])) return false;
  return true;
}

/* cuBLASLt wants aux at 16 bytes, and rows of it at 8 elements. */
static bool aligned(const Function *f, ValueId v) {
  bool ok = f->place[v].kind == PLACE_ARENA && f->place[v].offset % 16 == 0 && f->product->ldc % 8 == 0;
  for (int i = 0; i < f->place[v].n; i++) ok &= f->place[v].stride[i] % 16 == 0;
  return ok;
}

/* ---- the product and its group ----------------------------------------------------------------------------------------- */

static bool plain(const Module *m, const Op *op, Product *p) {
  if (op->kind != OP_NEST || cg_can_group(m, op) || !cg_product(m, op, p) || p->nouter || p->accumulates) return false;
  for (int i = 0; i < op->space.n; i++)
    if (!cg_even(&op->space.idx[i]) || p->shift_a[i] || p->shift_b[i]) return false;
  return m->values.at[op->out[0]].type.dtype == F32;
}

/* The sum of the product's operand A or B over k: the operand's dims as indices of `sum`, if it has just those. Kept ones are
   the operand's in their order, and so those of the product's run. */
static bool dims_in_sum(Arena *a, const Op *product, const Product *p, bool b, const Op *sum, IExpr *dims[MAX_RANK]) {
  const Expr *read = product->body->arg[0];
  int kept = 0, reduced = sum->space.nout;
  if (read->operand != (b ? p->b : p->a)) read = product->body->arg[1];
  for (int d = 0; d < read->nix; d++) {
    int i = ix_single(read->ix[d]), j = i < product->space.nout ? kept++ : reduced++;
    if (j >= (i < product->space.nout ? sum->space.nout : sum->space.n)) return false;
    if (!cg_same_index(&product->space.idx[i], &sum->space.idx[j])) return false;
    dims[d] = ix_index(a, j);
  }
  return kept == sum->space.nout && reduced == sum->space.n;
}

/* Is x what v is, where it stands: at v's dims, the body of the map that makes it? Then v is complete: a sum that is pending
   may come in other ways than by what is summed. */
static bool is_what_makes(const Module *m, Arena *a, ValueId v, const Op *sum, IExpr *const *dims) {
  const Op *def = m->values.at[v].def;
  if (!def || def->kind != OP_NEST || def->reduce != RED_NONE || m->values.at[v].type.pending.n > 0) return false;
  int *operand = NEW_ARRAY(a, int, def->nin + 1);
  for (int i = 0; i < def->nin; i++) {
    operand[i] = 0;
    while (operand[i] < sum->nin && sum->in[operand[i]] != def->in[i]) operand[i]++;
    if (operand[i] == sum->nin) return false;
  }
  return ex_equal(sum->body, ex_substitute(a, def->body, dims, operand));
}

static bool reads_whole(const Op *sum, ValueId v, int rank, IExpr *const *dims) {
  const Expr *x = sum->body;
  if (x->op != EX_READ || x->otherwise || sum->in[x->operand] != v) return false;
  for (int d = 0; d < rank; d++)
    if (!ix_equal(x->ix[d], dims[d])) return false;
  return true;
}

static bool summed_operand(const Module *m, Arena *a, const Op *product, const Op *sum, bool inlined, IExpr *dims[MAX_RANK],
                           EpilogueKind *kind) {
  Product p;
  if (m->target != TARGET_CUDA || sum->kind != OP_NEST || sum->reduce != RED_SUM || sum->body->dtype != F32) return false;
  if (!plain(m, product, &p) || product->in[p.a] == product->in[p.b]) return false;
  for (int b = 0; b < 2; b++) {
    ValueId v = product->in[b ? p.b : p.a];
    if (!dims_in_sum(a, product, &p, b, sum, dims)) continue;
    *kind = b ? EPILOGUE_SUM_B : EPILOGUE_SUM_A;
    if (reads_whole(sum, v, m->values.at[v].type.rank, dims) || (inlined && is_what_makes(m, a, v, sum, dims))) return true;
  }
  return false;
}

bool cg_sums_operand(const Module *m, Arena *a, const Op *product, const Op *sum, EpilogueKind *kind) {
  IExpr *dims[MAX_RANK];
  return summed_operand(m, a, product, sum, false, dims, kind);
}

bool cg_make_operands_sum(Module *m, const Op *product, Op *sum) {
  IExpr **dims = NEW_ARRAY(m->arena, IExpr *, MAX_RANK);
  EpilogueKind kind;
  Product p;
  if (!summed_operand(m, m->arena, product, sum, true, dims, &kind) || !plain(m, product, &p)) return false;
  ValueId v = product->in[kind == EPILOGUE_SUM_B ? p.b : p.a];
  sum->nin = 0;
  ir_in(m, sum, v);
  sum->body = ex_read(m->arena, 0, F32, m->values.at[v].type.rank, dims, NULL);
  return true;
}

/* Who is left when `out` and (or -1) `also` are the product's: maps that read nothing that is no longer in memory. */
static bool leave(const Function *f, Arena *a, ValueId out, ValueId also, bool keeps_y, Step *rest) {
  *rest = (Step){.op = NEW_ARRAY(a, Op *, f->group->n)};
  for (int i = 0; i < f->group->n; i++) {
    Op *op = f->group->op[i];
    if (op->out[0] != out && op->out[0] != also) rest->op[rest->n++] = op;
  }
  for (int i = 0; i < rest->n; i++) {
    if (rest->op[i]->kind != OP_NEST || rest->op[i]->reduce != RED_NONE) return false;
    for (int k = 0; k < rest->op[i]->nin; k++) {
      ValueId v = rest->op[i]->in[k];
      if ((v == f->y && !keeps_y) || (v == also && f->place[v].kind != PLACE_ARENA)) return false;
    }
  }
  GroupPlan plan;
  return rest->n == 0 || cg_plan_rows(a, f->m, rest->op, rest->n, &plan);
}

static bool is_member(const Function *f, const Op *op) {
  for (int i = 0; i < f->group->n; i++)
    if (f->group->op[i] == op) return true;
  return false;
}

static bool only_in_group(const Function *f, const Users *users, ValueId v) {
  for (int i = 0; i < users[v].op.n; i++)
    if (!is_member(f, users[v].op.at[i])) return false;
  return !users[v].yielded;
}

/* The member that is y + bias, if there is one. */
static ValueId before_gelu(Function f, ValueId bias) {
  for (int i = 0; i < f.group->n; i++)
    if (computes(&f, f.group->op[i], EPILOGUE_BIAS) && f.other == bias) return f.group->op[i]->out[0];
  return -1;
}

static bool fits(Function *f, Arena *a, const Users *users, const Op *product, const Op *op, EpilogueKind kind, Epilogue *e) {
  if (!computes(f, op, kind)) return false;
  bool by_element = f->by_element;
  *e = (Epilogue){.kind = kind, .c = op->out[0], .aux = -1, .bias = f->other >= 0 && !by_element ? f->other : -1, .also = -1};
  if (kind == EPILOGUE_GELU_BIAS) e->also = before_gelu(*f, e->bias);
  // y itself is gone, unless gelu's epilogue keeps it
  bool gone = only_in_group(f, users, f->y) && leave(f, a, e->c, e->also, false, &e->rest);
  e->keeps = !gone;
  if (!gone && (kind != EPILOGUE_GELU || !leave(f, a, e->c, -1, true, &e->rest))) return false;
  if (kind == EPILOGUE_GELU && e->keeps) e->aux = f->y;
  if (kind == EPILOGUE_DGELU) e->aux = f->other;
  if (e->also >= 0 && f->place[e->also].kind == PLACE_ARENA) e->aux = e->also;
  if (!stored_early(f, product, e, e->c)) return false;
  if (e->aux >= 0 && (!aligned(f, e->aux) || !apart(f, e->c, e->aux))) return false;
  return e->aux < 0 || e->aux != e->also || stored_early(f, product, e, e->also);
}

bool cg_epilogue(const Module *m, Arena *a, const Users *users, const Place *place, const Op *product, const Step *group,
                 Epilogue *out) {
  static const EpilogueKind kinds[] = {EPILOGUE_GELU, EPILOGUE_GELU_BIAS, EPILOGUE_DGELU, EPILOGUE_BIAS};
  Product p;
  if (m->target != TARGET_CUDA || !cg_can_group(m, group->op[0]) || !plain(m, product, &p)) return false;
  Function f = {.m = m, .group = group, .product = &p, .place = place, .y = product->out[0]};
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < group->n; i++)
      if (fits(&f, a, users, product, group->op[i], kinds[k], out)) return true;
  return false;
}
