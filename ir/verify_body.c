/* verify_body.c: a body's dtypes agree, and what it reads is there: an index stays inside the dim that it reads for
   every value of the space's indices, unless the read has an `else` or reads by value (that is checked when it runs). */
#include "verify.h"

static bool is_number(DType d) { return d != BOOL; }
static bool is_real(DType d) { return !dtype_is_int(d); }

static bool check_index(Check *c, const IExpr *x, bool by_value) {
  const Space *s = &c->op->space;
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    LAW(c, t->coef != 0, "an index expression has a zero coefficient: it was not built by ix_*");
    if (t->kind == ATOM_INDEX)
      LAW(c, t->index >= 0 && t->index < s->n, "an index expression uses index number %d of a space of %d", t->index, s->n);
    if (t->kind == ATOM_DIV || t->kind == ATOM_MOD) {
      LAW(c, t->k > 0, "// and %% are by a positive constant, not %lld", (long long)t->k);
      if (!check_index(c, t->sub, by_value)) return false;
    }
    if (t->kind != ATOM_VALUE) continue;
    LAW(c, by_value, "only gather's read and scatter_add's `into` may have an index that is read by value");
    LAW(c, t->operand >= 0 && t->operand < c->op->nin, "an index reads operand number %d of %d", t->operand, c->op->nin);
    DType d = type_of(c, c->op->in[t->operand])->dtype;
    LAW(c, d == I32 || d == I64, "%s is read as an index: that is an integer, not %s", show_value(c, c->op->in[t->operand]),
        dtype_name(d));
    for (int j = 0; j < t->nat; j++)
      if (!check_index(c, t->at[j], false)) return false;
    if (!check_read(c, t->operand, t->nat, t->at, false)) return false;
  }
  return true;
}

bool check_read(Check *c, int operand, int n, IExpr *const *ix, bool guarded) {
  LAW(c, operand >= 0 && operand < c->op->nin, "the body reads operand number %d of %d", operand, c->op->nin);
  ValueId v = c->op->in[operand];
  const Type *t = type_of(c, v);
  LAW(c, n == t->rank, "%s has %d dims and is read with %d indices", show_value(c, v), t->rank, n);
  for (int i = 0; i < c->op->space.n; i++)
    if (c->op->space.idx[i].range == 0) return true; /* never read */
  for (int d = 0; d < n; d++) {
    int64_t min, max, size = t->dim[d].size;
    if (guarded || ix_by_value(ix[d])) continue;
    ix_bounds(ix[d], &c->op->space, &min, &max);
    LAW(c, min >= 0 && max < size, "dim %d of %s has %lld elements; its index %s runs from %lld to %lld: give the read an `else`",
        d, show_value(c, v), (long long)size, show_index(c, ix[d]), (long long)min, (long long)max);
  }
  return true;
}

static bool check_read_node(Check *c, const Expr *x) {
  for (int i = 0; i < x->nix; i++)
    if (!check_index(c, x->ix[i], c->op->kind == OP_GATHER)) return false;
  if (!check_read(c, x->operand, x->nix, x->ix, x->otherwise)) return false;
  ValueId v = c->op->in[x->operand];
  LAW(c, x->dtype == type_of(c, v)->dtype, "the body reads %s as %s, it is %s", show_value(c, v), dtype_name(x->dtype),
      dtype_name(type_of(c, v)->dtype));
  if (!x->otherwise) return true;
  LAW(c, x->otherwise->dtype == x->dtype, "`else` gives %s for a read of %s", dtype_name(x->otherwise->dtype),
      dtype_name(x->dtype));
  return check_body(c, x->otherwise);
}

static bool check_literal(Check *c, const Expr *x) {
  if (x->dtype == BOOL) LAW(c, x->ilit == 0 || x->ilit == 1, "a bool literal is %lld", (long long)x->ilit);
  if (x->dtype == I32)
    LAW(c, x->ilit >= INT32_MIN && x->ilit <= INT32_MAX, "the literal %lld does not fit i32", (long long)x->ilit);
  return true;
}

/* What an operation takes and gives, besides that its operands agree. */
static bool operand_fits(ExprOp op, DType d) {
  switch (op) {
  case EX_AND:
  case EX_OR:
  case EX_NOT: return d == BOOL;
  case EX_FLOORDIV:
  case EX_MOD: return d == I32 || d == I64;
  case EX_EQ:
  case EX_NE:
  case EX_WHERE:
  case EX_STOP:
  case EX_CAST: return true;
  case EX_DIV:
  case EX_FLOOR:
#define FN(op, ...) case EX_##op:
#include "ir/functions.def"
    return is_real(d);
  default: return is_number(d);
  }
}

static bool gives_bool(ExprOp op) { return op == EX_NOT || (op >= EX_LT && op <= EX_OR); }

static bool check_dtypes(Check *c, const Expr *x) {
  const char *name = EX_TEXT[x->op].name;
  int first = x->op == EX_WHERE;
  DType d = x->arg[first]->dtype;
  if (first) LAW(c, x->arg[0]->dtype == BOOL, "the condition of where is %s, not bool", dtype_name(x->arg[0]->dtype));
  LAW(c, operand_fits(x->op, d), "`%s` does not take %s", name, dtype_name(d));
  for (int i = first + 1; i < EX_TEXT[x->op].nargs; i++)
    LAW(c, x->arg[i]->dtype == d, "the operands of `%s` are %s and %s", name, dtype_name(d), dtype_name(x->arg[i]->dtype));
  if (x->op == EX_CAST) return true;
  DType gives = gives_bool(x->op) ? BOOL : d;
  LAW(c, x->dtype == gives, "`%s` of %s gives %s, the node says %s", name, dtype_name(d), dtype_name(gives),
      dtype_name(x->dtype));
  return true;
}

bool check_body(Check *c, const Expr *x) {
  LAW(c, (int)x->op >= 0 && x->op < EX_NOPS, "a node of the body has the unknown operation %d", x->op);
  LAW(c, (int)x->dtype >= 0 && x->dtype < NDTYPES, "a node of the body has the unknown dtype %d", x->dtype);
  if (x->op == EX_LITERAL) return check_literal(c, x);
  if (x->op == EX_READ) return check_read_node(c, x);
  if (x->op == EX_DOT) {
    bool attends = c->op->kind == OP_ATTENTION || c->op->kind == OP_ATTENTION_GRAD;
    LAW(c, attends, "`dot` stands only in the score of an attention");
    LAW(c, x->dtype == c->op->read[0]->dtype, "`dot` is %s, q is %s", dtype_name(x->dtype), dtype_name(c->op->read[0]->dtype));
    return true;
  }
  if (x->op == EX_INDEX) {
    LAW(c, x->nix == 1 && x->dtype == I32, "an index as a value is one index expression of type i32");
    return check_index(c, x->ix[0], false);
  }
  for (int i = 0; i < 3; i++)
    LAW(c, (i < EX_TEXT[x->op].nargs) == (x->arg[i] != NULL), "`%s` takes %d operands", EX_TEXT[x->op].name,
        EX_TEXT[x->op].nargs);
  for (int i = 0; i < EX_TEXT[x->op].nargs; i++)
    if (!check_body(c, x->arg[i])) return false;
  return check_dtypes(c, x);
}

/* A dim of scatter_add's result that is not added to at its own index has an index that only stands for the row. */
bool check_into(Check *c) {
  const Op *op = c->op;
  LAW(c, op->into, "scatter_add has no `into`");
  for (int d = 0; d < op->space.nout; d++) {
    if (!check_index(c, op->into[d], true)) return false;
    if (ix_single(op->into[d]) == d) continue;
    const char *name = op->space.idx[d].name;
    LAW(c, ix_by_value(op->into[d]), "dim %d is added to at %s: that is its own index, %s, or read by value", d,
        show_index(c, op->into[d]), name);
    LAW(c, !ex_uses(op->body, d), "index %s stands for a row that is added to by value; the body cannot use it", name);
    for (int e = 0; e < op->space.nout; e++)
      LAW(c, !ix_uses(op->into[e], d), "index %s stands for a row that is added to by value; `into` cannot use it", name);
  }
  return true;
}
