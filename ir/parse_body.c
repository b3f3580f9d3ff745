/* parse_body.c: index expressions, `2*i + p - 1`, `%tok[b,t]`, `(i + 1) // 4`, and bodies: infix as in .dt, calls,
   literals, reads `%x[b,t]` and guarded reads `(%x[b, t - 1] else 0.0)`, `idx(t + 1)` for an index as a value.
   The brackets of a read stand directly behind its name. */
#include "parser.h"

#include <math.h>

static bool enter(Parser *p) {
  if (p->depth++ < MAX_DEPTH && p->nodes++ < MAX_NODES) return true;
  irp_fail(p, "E0903", p->tok.loc, "this expression is too deep or too long");
  return false;
}

int irp_operand(Parser *p, ValueId v, Loc loc) {
  for (int i = 0; i < p->op->nin; i++)
    if (p->op->in[i] == v) return i;
  if (p->op->nin == MAX_OPERANDS) return irp_fail(p, "E0903", loc, "more than %d operands", MAX_OPERANDS), 0;
  ir_in(p->m, p->op, v);
  return p->op->nin - 1;
}

/* `%x`: the operand, and whether [ follows. */
static int parse_operand(Parser *p, ValueId *v, bool *indexed) {
  Loc loc = p->tok.loc;
  *v = irp_value(p);
  *indexed = irp_at(p, "[") && !p->tok.spaced;
  return p->failed ? 0 : irp_operand(p, *v, loc);
}

int irp_indices(Parser *p, IExpr **ix, int max) {
  int n = 0;
  irp_need(p, "[");
  do {
    if (n == max) return irp_fail(p, "E0903", p->tok.loc, "more than %d indices", max), n;
    ix[n++] = irp_index(p);
  } while (irp_take(p, ","));
  irp_need(p, "]");
  return n;
}

static IExpr *parse_index_value(Parser *p) {
  ValueId v;
  bool indexed;
  int operand = parse_operand(p, &v, &indexed), n = 0;
  IExpr *ix[MAX_RANK];
  if (indexed) n = irp_indices(p, ix, MAX_RANK);
  return ix_value(p->a, operand, n, ix);
}

static IExpr *parse_index_factor(Parser *p) {
  Tok t = p->tok;
  if (irp_take(p, "-")) return ix_scale(p->a, parse_index_factor(p), -1);
  if (irp_take(p, "(")) {
    IExpr *x = irp_index(p);
    irp_need(p, ")");
    return x;
  }
  if (t.kind == TOK_VALUE) return parse_index_value(p);
  if (t.kind == TOK_NUMBER) return ix_const(p->a, irp_int(p, 0, MAX_SIZE, "an integer"));
  const char *name = irp_name(p, "an index");
  int i = p->failed ? -1 : irp_find_index(&p->op->space, name);
  if (i < 0) irp_fail(p, "E0902", t.loc, "%s is not an index of this op", name);
  return i < 0 ? ix_const(p->a, 0) : ix_index(p->a, i);
}

static IExpr *parse_index_product(Parser *p) {
  IExpr *x = parse_index_factor(p);
  for (;;) {
    Loc loc = p->tok.loc;
    if (irp_take(p, "//"))
      x = ix_div(p->a, x, irp_int(p, 1, MAX_SIZE, "a divisor"));
    else if (irp_take(p, "%"))
      x = ix_mod(p->a, x, irp_int(p, 1, MAX_SIZE, "a divisor"));
    else if (irp_take(p, "*")) {
      IExpr *y = parse_index_factor(p);
      if (x->n && y->n) irp_fail(p, "E0901", loc, "an index may be multiplied only by a constant");
      x = x->n ? ix_scale(p->a, x, y->c) : ix_scale(p->a, y, x->c);
    } else
      return x;
    if (p->nodes++ > MAX_NODES) irp_fail(p, "E0903", loc, "this index is too long");
  }
}

IExpr *irp_index(Parser *p) {
  if (!enter(p)) return ix_const(p->a, 0);
  IExpr *x = parse_index_product(p);
  for (;;) {
    bool minus = irp_at(p, "-");
    if (!minus && !irp_at(p, "+")) break;
    irp_next(p);
    IExpr *y = parse_index_product(p);
    x = ix_add(p->a, x, minus ? ix_scale(p->a, y, -1) : y);
    if (p->nodes++ > MAX_NODES) irp_fail(p, "E0903", p->tok.loc, "this index is too long");
  }
  p->depth--;
  return x;
}

/* ---- bodies ------------------------------------------------------------------------------------------------- */

static DType suffix_dtype(const Tok *t) {
  for (int d = 0; d < COUNT(LITERAL_SUFFIX); d++)
    if (t->suffix && LITERAL_SUFFIX[d][0] == t->suffix) return (DType)d;
  return t->real ? F32 : I32;
}

static Expr *parse_number(Parser *p, bool minus) {
  Tok t = p->tok;
  DType d = suffix_dtype(&t);
  irp_next(p);
  if (t.real != !dtype_is_int(d)) irp_fail(p, "E0901", t.loc, "a real is written with . or e, an integer without");
  if (!dtype_is_int(d)) return ex_lit(p->a, d, minus ? -t.number : t.number);
  uint64_t limit = (d == I32 ? (uint64_t)INT32_MAX : (uint64_t)INT64_MAX) + minus;
  if (t.whole > limit) irp_fail(p, "E0903", t.loc, "this integer does not fit %s", dtype_name(d));
  return ex_int(p->a, d, minus ? (int64_t)-t.whole : (int64_t)t.whole);
}

/* inf, infd, nan, nanb, ...; NULL for another word. */
static Expr *infinite(Parser *p, const char *word, bool minus) {
  double v = !strncmp(word, "inf", 3) ? INFINITY : NAN;
  if (strncmp(word, "inf", 3) && strncmp(word, "nan", 3)) return NULL;
  for (int d = 0; d < COUNT(LITERAL_SUFFIX); d++)
    if (!dtype_is_int((DType)d) && !strcmp(word + 3, LITERAL_SUFFIX[d])) return ex_lit(p->a, (DType)d, minus ? -v : v);
  return NULL;
}

static Expr *parse_read(Parser *p) {
  ValueId v;
  bool indexed;
  int operand = parse_operand(p, &v, &indexed), n = 0;
  IExpr *ix[MAX_RANK];
  if (indexed) n = irp_indices(p, ix, MAX_RANK);
  DType d = p->failed ? F32 : p->m->values.at[v].type.dtype;
  return ex_read(p->a, operand, d, n, ix, NULL);
}

static Expr *parse_group(Parser *p) {
  Loc loc = p->tok.loc;
  irp_need(p, "(");
  Expr *x = irp_expr(p);
  if (irp_take_word(p, "else")) {
    if (x->op != EX_READ || x->otherwise)
      irp_fail(p, "E0901", loc, "`else` belongs to a read: (%%x[i] else 0.0)");
    else
      x->otherwise = irp_expr(p);
  }
  irp_need(p, ")");
  return x;
}

static Expr *new_node(Parser *p, int op, DType d) {
  Expr *x = NEW(p->a, Expr);
  x->op = (ExprOp)op;
  x->dtype = d;
  return x;
}

/* A comparison, a connective or not gives bool, where the type of its branches, the others that of an operand. */
static DType result_dtype(int op, Expr *const *arg) {
  bool truth = op == EX_NOT || (op >= EX_LT && op <= EX_OR);
  return truth ? BOOL : arg[op == EX_WHERE]->dtype;
}

static Expr *parse_arguments(Parser *p, int op, const DType *cast) {
  int n = EX_TEXT[op].nargs;
  Expr *arg[3];
  irp_need(p, "(");
  for (int i = 0; i < n; i++) {
    if (i) irp_need(p, ",");
    arg[i] = irp_expr(p);
  }
  irp_need(p, ")");
  Expr *x = new_node(p, op, cast ? *cast : result_dtype(op, arg));
  for (int i = 0; i < n; i++) x->arg[i] = arg[i];
  return x;
}

static Expr *parse_word(Parser *p) {
  Tok t = p->tok;
  DType d;
  irp_next(p);
  Expr *x = infinite(p, t.text, false);
  if (x) return x;
  if (!strcmp(t.text, "true") || !strcmp(t.text, "false")) return ex_int(p->a, BOOL, t.text[0] == 't');
  if (!strcmp(t.text, "dot")) return new_node(p, EX_DOT, F32); /* typed by q, once that is known */
  if (!strcmp(t.text, "idx")) {
    irp_need(p, "(");
    IExpr *ix = irp_index(p);
    irp_need(p, ")");
    return ex_index(p->a, ix);
  }
  if (dtype_by_name(t.text, &d)) return parse_arguments(p, EX_CAST, &d);
  for (int i = 0; i < COUNT(EX_TEXT); i++)
    if (!EX_TEXT[i].prec && i != EX_CAST && !strcmp(EX_TEXT[i].name, t.text)) return parse_arguments(p, i, NULL);
  irp_fail(p, "E0902", t.loc, "no function is called %s; an index as a value is written idx(%s), a tensor %%%s", t.text, t.text,
           t.text);
  return ex_int(p->a, I32, 0);
}

static Expr *parse_negative(Parser *p) {
  if (p->tok.kind == TOK_NUMBER) return parse_number(p, true);
  Expr *x = p->tok.kind == TOK_NAME ? infinite(p, p->tok.text, true) : NULL;
  if (x)
    irp_next(p);
  else
    irp_expected(p, "a number behind this minus; negation is written neg(x)");
  return x ? x : ex_int(p->a, I32, 0);
}

static Expr *parse_primary(Parser *p) {
  switch (p->tok.kind) {
  case TOK_NUMBER: return parse_number(p, false);
  case TOK_VALUE: return parse_read(p);
  case TOK_NAME: return parse_word(p);
  default: break;
  }
  if (irp_at(p, "(")) return parse_group(p);
  if (irp_take(p, "-")) return parse_negative(p);
  irp_expected(p, "an expression");
  return ex_int(p->a, I32, 0);
}

static int infix_here(const Parser *p) {
  if (p->tok.kind != TOK_PUNCT && p->tok.kind != TOK_NAME) return -1;
  for (int i = 0; i < COUNT(EX_TEXT); i++)
    if (EX_TEXT[i].prec && EX_TEXT[i].name[0] == p->tok.text[0] && !strcmp(EX_TEXT[i].name, p->tok.text)) return i;
  return -1;
}

static Expr *parse_infix(Parser *p, int min_prec) {
  if (!enter(p)) return ex_int(p->a, I32, 0);
  Expr *x = parse_primary(p);
  for (int op; (op = infix_here(p)) >= 0 && EX_TEXT[op].prec >= min_prec;) {
    Loc loc = p->tok.loc;
    irp_next(p);
    Expr *arg[2] = {x, parse_infix(p, EX_TEXT[op].prec + 1)};
    x = new_node(p, op, result_dtype(op, arg));
    x->arg[0] = arg[0], x->arg[1] = arg[1];
    int next = infix_here(p);
    if (EX_TEXT[op].prec == 4 && next >= 0 && EX_TEXT[next].prec == 4) irp_fail(p, "E0901", loc, "comparisons do not associate");
  }
  p->depth--;
  return x;
}

Expr *irp_expr(Parser *p) { return parse_infix(p, 1); }
