/* parse_expr.c: expressions, by precedence climbing.

     where(u <= t, sum[k](q[b,t,k] * k[b,u,k]) / sqrt(K), -inf)

   From loose to tight: or; and; not; < <= == != >= > (no chains); + -; * / // %; unary -; ** (right to left, tighter
   than a minus before it: -x**2 = -(x**2)); a read with its else. Every node counts its depth, and so does every open
   rule, so that neither this parser nor a walk over its tree can exhaust the stack. */
#include "parse.h"

typedef struct {
  AstOp op;
  int level; /* 0: no infix operator */
} Infix;
enum { OR = 1, AND, NOT, COMPARE, SUM, TERM };

static Infix infix(TokKind k) {
  switch (k) {
  case TOK_OR: return (Infix){AST_OR, OR};
  case TOK_AND: return (Infix){AST_AND, AND};
  case TOK_LT: return (Infix){AST_LT, COMPARE};
  case TOK_LE: return (Infix){AST_LE, COMPARE};
  case TOK_EQ: return (Infix){AST_EQ, COMPARE};
  case TOK_NE: return (Infix){AST_NE, COMPARE};
  case TOK_GE: return (Infix){AST_GE, COMPARE};
  case TOK_GT: return (Infix){AST_GT, COMPARE};
  case TOK_PLUS: return (Infix){AST_ADD, SUM};
  case TOK_MINUS: return (Infix){AST_SUB, SUM};
  case TOK_STAR: return (Infix){AST_MUL, TERM};
  case TOK_SLASH: return (Infix){AST_DIV, TERM};
  case TOK_FLOORDIV: return (Infix){AST_FLOORDIV, TERM};
  case TOK_PERCENT: return (Infix){AST_MOD, TERM};
  default: return (Infix){0};
  }
}

static AstExpr *climb(Parser *p, int least);
static AstExpr *unary(Parser *p);

/* ---- nodes ------------------------------------------------------------------------------------------------ */

static AstExpr *node(Parser *p, AstExprKind kind, Loc head) {
  AstExpr *e = NEW(p->a, AstExpr);
  e->kind = kind;
  e->head = head;
  e->depth = 1;
  return e;
}

static void deepen(AstExpr *e, const AstExpr *child) {
  if (child && child->depth >= e->depth) e->depth = child->depth + 1;
}

static AstExpr *too_deep(Parser *p, Loc loc) {
  Diag *g = syn_fail(p, "E0106", loc, "this expression is nested more than %d deep", AST_MAX_DEPTH);
  if (g) diag_help(p->d, g, "give a part of it a name in a statement of its own");
  return p->dummy;
}

/* Ends a node that began at `start`: its span, and its depth against the limit. */
static AstExpr *finish(Parser *p, AstExpr *e, Loc start) {
  e->loc = syn_span(p, start);
  deepen(e, e->left);
  deepen(e, e->right);
  deepen(e, e->otherwise);
  for (int i = 0; i < e->index.n; i++) deepen(e, e->index.at[i]);
  for (int i = 0; i < e->binds.n; i++) deepen(e, e->binds.at[i].range);
  for (int i = 0; i < e->args.n; i++) deepen(e, e->args.at[i].value);
  if (p->panic) return p->dummy;
  return e->depth > AST_MAX_DEPTH ? too_deep(p, e->head) : e;
}

/* Where an expression began in the text, its parentheses included. */
static Loc start_of(const Parser *p, int token) { return p->lexed.tokens.at[token].loc; }

/* ---- calls, reads, reductions ----------------------------------------------------------------------------- */

static AstArg argument(Parser *p) {
  AstArg g = {.loc = syn_token(p)->loc};
  if (syn_at(p, TOK_STRING)) {
    Token t = syn_need(p, TOK_STRING, "a string");
    g.value = node(p, AST_STRING, t.loc);
    g.value->name = t.text;
    g.value = finish(p, g.value, t.loc);
  } else if (syn_at(p, TOK_NAME) && syn_next(p)->kind == TOK_ASSIGN) {
    g.name = syn_name(p, "a name");
    syn_take(p, TOK_ASSIGN);
    g.value = syn_expr(p);
  } else {
    g.each = syn_take(p, TOK_EACH);
    g.value = syn_expr(p);
  }
  g.loc = syn_span(p, g.loc);
  return g;
}

static void arguments(Parser *p, AstExpr *e) {
  Token open = syn_need(p, TOK_LPAREN, "`(`");
  if (!syn_at(p, TOK_RPAREN)) do {
      AstArg g = argument(p);
      vec_push(p->a, e->args, g);
    } while (syn_take(p, TOK_COMMA));
  syn_close(p, TOK_RPAREN, &open);
}

static AstExpr *call(Parser *p, Token name) {
  AstExpr *e = node(p, AST_CALL, name.loc);
  e->name = name.text;
  arguments(p, e);
  return finish(p, e, name.loc);
}

typedef VEC(AstBind) Binds;

/* What stands in the brackets after a name: expressions, each with a range where `: range` follows. Whether it is a
   read or a reduction is known by what comes behind the bracket. */
static void bracketed(Parser *p, AstExpr *e, Binds *ranges) {
  Token open = syn_need(p, TOK_LBRACKET, "`[`");
  do {
    AstExpr *x = syn_expr(p);
    AstBind b = {.name = {x->name, x->loc}};
    if (syn_take(p, TOK_COLON)) b.range = syn_expr(p);
    vec_push(p->a, e->index, x);
    vec_push(p->a, *ranges, b);
  } while (syn_take(p, TOK_COMMA));
  syn_close(p, TOK_RBRACKET, &open);
}

static AstExpr *read(Parser *p, AstExpr *e, const Binds *ranges) {
  for (int i = 0; i < ranges->n; i++) {
    if (!ranges->at[i].range) continue;
    Diag *g = syn_fail(p, "E0107", ranges->at[i].range->loc, "a range cannot stand in a read");
    if (g)
      diag_help(p->d, g, "a range stands where its index is bound: on the left side, or in a reduction: `sum[%s: ...](...)`",
                ranges->at[i].name.text ? ranges->at[i].name.text : "i");
  }
  return finish(p, e, e->head);
}

static AstExpr *reduction(Parser *p, AstExpr *e, const Binds *ranges, Loc start) {
  e->kind = AST_REDUCE;
  for (int i = 0; i < ranges->n; i++) {
    const AstExpr *x = e->index.at[i];
    bool bare = x->kind == AST_NAME && !x->is_dim && !x->parens;
    if (!bare) syn_fail(p, "E0108", x->loc, "a reduction needs the names of indices here, as in `sum[i, j](...)`");
    vec_push(p->a, e->binds, ranges->at[i]);
  }
  e->index.n = 0;
  arguments(p, e);
  return finish(p, e, start);
}

static AstExpr *read_or_reduction(Parser *p, Token name) {
  AstExpr *e = node(p, AST_READ, name.loc);
  Binds ranges = {0};
  e->name = name.text;
  bracketed(p, e, &ranges);
  return syn_at(p, TOK_LPAREN) ? reduction(p, e, &ranges, name.loc) : read(p, e, &ranges);
}

static AstExpr *micro(Parser *p) {
  Token t = syn_need(p, TOK_MICRO, "`micro`"), name = syn_need(p, TOK_NAME, "a reduction");
  AstExpr *e = read_or_reduction(p, name);
  if (e->kind != AST_REDUCE) syn_fail(p, "E0108", e->loc, "`micro` stands before a reduction: `micro mean[b](...)`");
  e->micro = true;
  return finish(p, e, t.loc);
}

/* ---- primary ---------------------------------------------------------------------------------------------- */

static AstExpr *number(Parser *p) {
  Token t = *syn_token(p);
  AstExpr *e = node(p, t.kind == TOK_INT ? AST_INT : AST_FLOAT, t.loc);
  e->ival = t.ival;
  e->fval = t.fval;
  e->text = t.text;
  syn_take(p, t.kind);
  return finish(p, e, t.loc);
}

static AstExpr *name_or_more(Parser *p) {
  Token t = *syn_token(p);
  syn_take(p, t.kind);
  if (syn_at(p, TOK_LBRACKET)) return read_or_reduction(p, t);
  if (syn_at(p, TOK_LPAREN)) return call(p, t);
  AstExpr *e = node(p, AST_NAME, t.loc);
  e->name = t.text;
  e->is_dim = t.kind == TOK_DIM;
  return finish(p, e, t.loc);
}

/* Settings know lists: `betas = (0.9, 0.95)`, `decay = (w1, "layer.w2")`. */
static AstExpr *tuple(Parser *p, Token open, AstExpr *first) {
  AstExpr *e = node(p, AST_TUPLE, open.loc);
  AstArg g = {.value = first, .loc = first->loc};
  vec_push(p->a, e->args, g);
  while (syn_take(p, TOK_COMMA)) {
    g.value = syn_expr(p);
    g.loc = g.value->loc;
    vec_push(p->a, e->args, g);
  }
  syn_close(p, TOK_RPAREN, &open);
  return finish(p, e, open.loc);
}

static AstExpr *parenthesized(Parser *p) {
  Token open = syn_need(p, TOK_LPAREN, "`(`");
  AstExpr *e = syn_expr(p);
  if (p->in_setting && syn_at(p, TOK_COMMA)) return tuple(p, open, e);
  syn_close(p, TOK_RPAREN, &open);
  e->parens = true;
  return e;
}

static AstExpr *no_primary(Parser *p) {
  const Token *t = syn_token(p);
  Diag *g = NULL;
  if (t->kind == TOK_WORD) {
    g = syn_fail(p, "E0109", t->loc, "`%s` is neither a number nor a name", t->text);
    if (g) diag_help(p->d, g, "names begin with a letter; a product needs its `*`");
  } else if (t->kind == TOK_NOT) {
    g = syn_fail(p, "E0110", t->loc, "`not` binds less tightly than the operator before it");
    if (g) diag_help(p->d, g, "put it in parentheses: `(not ...)`");
  } else if (t->kind == TOK_STRING) {
    syn_fail(p, "E0110", t->loc, "a string is no value");
  } else {
    g = syn_expected(p, "an expression");
    if (g && t->kind == TOK_PLUS) diag_help(p->d, g, "there is no unary `+`");
  }
  return p->dummy;
}

/* Words that only settings know: `pipeline = 1f1b`, `zero = none`, names of parameters as strings. */
static AstExpr *setting_word(Parser *p) {
  Token t = *syn_token(p);
  AstExpr *e = node(p, t.kind == TOK_STRING ? AST_STRING : AST_NAME, t.loc);
  e->name = t.text;
  syn_take(p, t.kind);
  return finish(p, e, t.loc);
}

static AstExpr *primary(Parser *p) {
  TokKind k = syn_token(p)->kind;
  if (p->in_setting && (k == TOK_WORD || k == TOK_STRING || k == TOK_NONE)) return setting_word(p);
  switch (k) {
  case TOK_INT:
  case TOK_FLOAT: return number(p);
  case TOK_NAME:
  case TOK_DIM: return name_or_more(p);
  case TOK_MICRO: return micro(p);
  case TOK_LPAREN: return parenthesized(p);
  default: return no_primary(p);
  }
}

/* ---- operators -------------------------------------------------------------------------------------------- */

static AstExpr *negated(Parser *p, Token minus, AstExpr *x) {
  AstExpr *e = node(p, AST_UNARY, minus.loc);
  e->op = AST_NEG;
  e->left = x;
  return finish(p, e, minus.loc);
}

/* orelse = read "else" ["-"] primary | primary */
static AstExpr *or_else(Parser *p, const Token *minus) {
  int first = p->at;
  AstExpr *e = primary(p);
  if (!syn_at(p, TOK_ELSE)) return e;
  Loc word = syn_token(p)->loc;
  if (e->kind != AST_READ || e->parens) {
    Diag *g = syn_fail(p, "E0111", word, "`else` belongs to a read directly before it");
    if (g) diag_help(p->d, g, "write `(x[i - 1] else 0)`");
  }
  if (minus) {
    Diag *g = syn_fail(p, "E0112", minus->loc, "is this minus for the read, or for all up to the `else` value?");
    if (g) diag_help(p->d, g, "write `-(%s[...] else ...)` or `(-%s[...])`", e->name, e->name);
  }
  syn_take(p, TOK_ELSE);
  Token sign = *syn_token(p);
  bool negative = syn_take(p, TOK_MINUS);
  AstExpr *x = primary(p);
  e->otherwise = negative ? negated(p, sign, x) : x;
  return finish(p, e, start_of(p, first));
}

static AstExpr *power(Parser *p, const Token *minus) {
  int first = p->at;
  AstExpr *x = or_else(p, minus);
  Token t = *syn_token(p);
  if (!syn_take(p, TOK_POW)) return x;
  if (p->depth >= AST_MAX_DEPTH) return too_deep(p, t.loc);
  p->depth++;
  AstExpr *e = node(p, AST_BINARY, t.loc);
  e->op = AST_POW;
  e->left = x;
  e->right = unary(p);
  p->depth--;
  return finish(p, e, start_of(p, first));
}

static AstExpr *unary(Parser *p) {
  if (!syn_at(p, TOK_MINUS)) return power(p, NULL);
  if (p->depth >= AST_MAX_DEPTH) return too_deep(p, syn_token(p)->loc);
  p->depth++;
  Token minus = *syn_token(p);
  syn_take(p, TOK_MINUS);
  AstExpr *x = syn_at(p, TOK_MINUS) ? unary(p) : power(p, &minus);
  p->depth--;
  return negated(p, minus, x);
}

static AstExpr *negation(Parser *p) {
  if (!syn_at(p, TOK_NOT)) return unary(p);
  if (p->depth >= AST_MAX_DEPTH) return too_deep(p, syn_token(p)->loc);
  p->depth++;
  AstExpr *e = node(p, AST_UNARY, syn_token(p)->loc);
  e->op = AST_NOT;
  syn_take(p, TOK_NOT);
  e->left = climb(p, NOT);
  p->depth--;
  return finish(p, e, e->head);
}

static AstExpr *binary(Parser *p, int first, AstExpr *left, Infix f) {
  AstExpr *e = node(p, AST_BINARY, syn_token(p)->loc);
  e->op = f.op;
  e->left = left;
  syn_take(p, syn_token(p)->kind);
  e->right = climb(p, f.level + 1);
  if (f.level == COMPARE && infix(syn_token(p)->kind).level == COMPARE) {
    Diag *g = syn_fail(p, "E0113", syn_token(p)->loc, "comparisons do not chain");
    if (g) diag_help(p->d, g, "write `a < b and b < c`");
  }
  return finish(p, e, start_of(p, first));
}

/* An expression of operators at `least` and tighter. */
static AstExpr *climb(Parser *p, int least) {
  int first = p->at;
  AstExpr *left = least <= NOT ? negation(p) : unary(p);
  for (Infix f = infix(syn_token(p)->kind); f.level && f.level >= least; f = infix(syn_token(p)->kind))
    left = binary(p, first, left, f);
  return left;
}

AstExpr *syn_expr(Parser *p) {
  if (p->depth >= AST_MAX_DEPTH) return too_deep(p, syn_token(p)->loc);
  p->depth++;
  AstExpr *e = climb(p, OR);
  p->depth--;
  return e;
}

AstExpr *syn_call(Parser *p, const char *what) {
  if (!syn_at(p, TOK_NAME) || syn_next(p)->kind != TOK_LPAREN) {
    syn_expected(p, what);
    return p->dummy;
  }
  return name_or_more(p);
}

AstExpr *syn_setting(Parser *p) {
  p->in_setting = true;
  AstExpr *e = syn_expr(p);
  p->in_setting = false;
  return e;
}
