/* parse_op.c: one op behind its results, `nest sum[d: D=128] %n[b,t,d] * %wq[d,h,k]`, and its suffixes. */
#include "parser.h"

static void parse_result(Parser *p, Result *r) {
  r->loc = p->tok.loc;
  r->name = expect_value_name(p);
  if (!p->failed && ir_find_value(p->m, r->name) >= 0) parse_fail(p, "E0904", r->loc, "%%%s is defined twice", r->name);
  r->indexed = at_punct(p, "[") && !p->tok.spaced;
  if (r->indexed) {
    lex_next(p);
    do {
      if (r->n == MAX_RANK)
        parse_fail(p, "E0903", p->tok.loc, "more than %d dims", MAX_RANK);
      else
        r->index[r->n++] = expect_name(p, "an index");
    } while (accept_punct(p, ","));
    expect_punct(p, "]");
  }
  expect_punct(p, ":");
  r->type = parse_type(p);
}

void parse_results(Parser *p, Results *list) {
  do {
    if (list->n == MAX_TEXT_OPERANDS) return parse_fail(p, "E0903", p->tok.loc, "too many results");
    Result r = {0};
    parse_result(p, &r);
    for (int i = 0; i < list->n && !p->failed; i++)
      if (!strcmp(list->at[i].name, r.name)) parse_fail(p, "E0904", r.loc, "%%%s is defined twice", r.name);
    vec_push(p->a, *list, r);
  } while (accept_punct(p, ","));
  expect_punct(p, "=");
}

/* The space opens with the first result's dims under the names that stand behind it. */
static void begin_space(Parser *p, Op *op, const Result *r) {
  if (r->n != r->type.rank) return parse_fail(p, "E0901", r->loc, "%%%s has %d dims and %d indices", r->name, r->type.rank, r->n);
  for (int i = 0; i < r->n; i++) {
    Index x = {r->index[i], r->type.dim[i].name, r->type.dim[i].size, r->type.dim[i].split};
    add_index(p, &op->space, x, r->loc);
  }
  op->space.nout = op->space.n;
}

static void parse_values(Parser *p, Op *op) {
  VEC(ValueId) list = {0};
  do {
    if (list.n == MAX_TEXT_OPERANDS) return parse_fail(p, "E0903", p->tok.loc, "too many operands");
    vec_push(p->a, list, expect_value(p));
  } while (accept_punct(p, ","));
  op->in = list.at;
  op->nin = list.n;
}

/* ---- leaves --------------------------------------------------------------------------------------------------- */

static void parse_init(Parser *p, Op *op) {
  op->init = (InitKind)expect_one_of(p, INIT_TEXT, COUNT(INIT_TEXT), "zeros, ones, normal(s), uniform(a, b) or const(c)");
  double *to[] = {&op->init_a, &op->init_b};
  for (int i = 0; i < INIT_NARGS[op->init]; i++) {
    expect_punct(p, i ? "," : "(");
    *to[i] = expect_real(p, "a number");
  }
  if (INIT_NARGS[op->init]) expect_punct(p, ")");
}

static void parse_input(Parser *p, Op *op) {
  if (p->tok.kind == TOK_STRING) op->name = expect_string(p, "the input's name");
  static const char *const sources[] = {"next_token", "table"};
  op->source = (SourceKind)expect_one_of(p, sources, COUNT(sources), "table(\"file\") or next_token(\"file\")");
  bool table = op->source == SRC_TABLE;
  expect_punct(p, "(");
  op->file = expect_string(p, "the file's name");
  op->shuffle = !table;
  if (accept_punct(p, ",")) {
    expect_word(p, table ? "shuffle" : "sequential");
    op->shuffle = table;
  }
  expect_punct(p, ")");
  if (accept_word(p, "part")) op->source_part = (int)expect_int(p, 0, 1, "a part");
  if (accept_word(p, "limit")) op->limit_dim = parse_extent(p, &op->limit, NULL);
}

static void parse_leaf(Parser *p, Op *op) {
  if (op->kind == OP_INPUT) return parse_input(p, op);
  op->name = expect_string(p, "the leaf's name");
  if (op->kind == OP_SETTING) op->init_a = expect_real(p, "a number");
  if (op->kind == OP_PARAM) parse_init(p, op);
  op->frozen = op->kind == OP_PARAM && accept_word(p, "frozen");
  bool stacks = op->kind == OP_PARAM || op->kind == OP_STATE;
  if (stacks && accept_word(p, "stack")) op->nstack = (int)expect_int(p, 0, MAX_RANK, "a number of stacked dims");
}

/* ---- computation ------------------------------------------------------------------------------------------------ */

static void parse_random(Parser *p, Op *op) {
  static const char *const kinds[] = {"normal", "uniform"};
  op->init = expect_one_of(p, kinds, COUNT(kinds), "normal or uniform") ? INIT_UNIFORM : INIT_NORMAL;
  op->name = expect_string(p, "the site");
  if (accept_word(p, "step")) ir_in(p->m, op, expect_value(p));
  if (!accept_word(p, "at")) return;
  expect_punct(p, "(");
  do {
    if (op->nin == MAX_OPERANDS) return parse_fail(p, "E0903", p->tok.loc, "too many counters");
    ir_in(p->m, op, expect_value(p));
  } while (accept_punct(p, ","));
  expect_punct(p, ")");
}

static Expr *typed_dot(Expr *x, DType d) {
  if (x->op == EX_DOT) x->dtype = d;
  for (int i = 0; i < 3; i++)
    if (x->arg[i]) typed_dot(x->arg[i], d);
  bool follows = x->op < EX_LITERAL && x->op != EX_CAST && x->dtype != BOOL;
  if (follows) x->dtype = x->arg[x->op == EX_WHERE]->dtype;
  return x;
}

static void parse_attention(Parser *p, Op *op) {
  Space *s = &op->space;
  if (op->kind == OP_ATTENTION_GRAD) {
    expect_word(p, "over");
    parse_space(p, s);
    s->nout = s->n;
  }
  expect_word(p, "keys");
  parse_space(p, s);
  op->nkey = s->n - s->nout;
  expect_word(p, "dot");
  parse_space(p, s);
  for (int i = 0; i < op_reads(op); i++) {
    expect_word(p, READ_TEXT[i]);
    Loc loc = p->tok.loc;
    op->read[i] = parse_expr(p);
    if (op->read[i]->op != EX_READ) parse_fail(p, "E0901", loc, "behind `%s` stands a read", READ_TEXT[i]);
  }
  expect_word(p, "score");
  op->body = typed_dot(parse_expr(p), op->read[0]->dtype);
  if (op->kind == OP_ATTENTION || !accept_word(p, "wrt")) return;
  expect_punct(p, "(");
  op->wrt = NEW_ARRAY(p->a, int, MAX_OPERANDS);
  do {
    Loc loc = p->tok.loc;
    if (op->nwrt == MAX_OPERANDS) return parse_fail(p, "E0903", loc, "too many operands");
    ValueId v = expect_value(p);
    if (!p->failed) op->wrt[op->nwrt++] = operand_number(p, v, loc);
  } while (accept_punct(p, ","));
  expect_punct(p, ")");
}

static void parse_into(Parser *p, Op *op) {
  expect_word(p, "into");
  Loc loc = p->tok.loc;
  op->into = NEW_ARRAY(p->a, IExpr *, MAX_RANK);
  int n = 0;
  if (op->space.nout)
    n = parse_indices(p, op->into, MAX_RANK);
  else
    expect_punct(p, "["), expect_punct(p, "]");
  if (n != op->space.nout) parse_fail(p, "E0901", loc, "the result has %d dims, `into` has %d", op->space.nout, n);
}

static void parse_computation(Parser *p, Op *op) {
  op->reverse = op->kind == OP_SCAN && accept_word(p, "reverse");
  switch (op->kind) {
  case OP_NEST:
  case OP_GATHER:
    for (int r = 0; r < COUNT(REDUCE_TEXT); r++) { /* sum[...] reduces; max(...) is a function of the body */
      if (!at_word(p, REDUCE_TEXT[r]) || p->at >= p->end || *p->at != '[') continue;
      lex_next(p);
      op->reduce = (Reduce)r;
      parse_space(p, &op->space);
    }
    break;
  case OP_RANDOM: return parse_random(p, op);
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: return parse_attention(p, op);
  case OP_SCAN: {
    expect_punct(p, "[");
    Loc loc = p->tok.loc;
    const char *name = expect_name(p, "an index");
    op->along = p->failed ? 0 : find_index(&op->space, name);
    if (op->along < 0) return parse_fail(p, "E0902", loc, "%s is not an index of the result", name);
    expect_punct(p, "]");
    break;
  }
  default: parse_space(p, &op->space);
  }
  if (op->kind == OP_SCATTER_ADD) parse_into(p, op);
  op->body = parse_expr(p);
}

/* ---- effects and suffixes ---------------------------------------------------------------------------------------- */

static void parse_effect(Parser *p, Op *op) {
  if (op->kind == OP_UPDATE) {
    ir_in(p->m, op, expect_value(p));
    expect_punct(p, "=");
  } else {
    op->tap = (TapKind)expect_one_of(p, TAP_TEXT, COUNT(TAP_TEXT), "loss, metric, output, grad, grad_norm or lr");
    if (TAP_NAMED[op->tap]) op->name = expect_string(p, "a name");
  }
  ir_in(p->m, op, expect_value(p));
}

void parse_suffixes(Parser *p, Op *op) {
  while (accept_punct(p, "[")) {
    static const char *const words[] = {"grad", "backward", "update", "group"};
    static const char *const of[] = {"input", "weight"};
    switch (expect_one_of(p, words, COUNT(words), "grad input, grad weight, backward, update or group")) {
    case 0: op->tag = expect_one_of(p, of, COUNT(of), "input or weight") ? TAG_WEIGHT_GRAD : TAG_INPUT_GRAD; break;
    case 1: op->phase = PHASE_BACKWARD; break;
    case 2: op->phase = PHASE_UPDATE; break;
    default: op->group = (int)expect_int(p, 1, INT32_MAX, "a group's number");
    }
    expect_punct(p, "]");
  }
}

void parse_op_text(Parser *p, Op *op, const Results *r) {
  p->op = op;
  p->nodes = p->depth = 0;
  bool indexed = op_class(op->kind) == CLS_SPACE && op->kind != OP_ATTENTION_GRAD;
  if (indexed) begin_space(p, op, &r->at[0]);
  for (int i = 0; i < r->n && !indexed; i++)
    if (r->at[i].indexed) parse_fail(p, "E0901", r->at[i].loc, "results of %s have no indices", op_text(op->kind));
  switch (op_class(op->kind)) {
  case CLS_LEAF: parse_leaf(p, op); break;
  case CLS_SPACE: parse_computation(p, op); break;
  case CLS_LAYOUT: parse_values(p, op); break;
  case CLS_EFFECT: parse_effect(p, op); break;
  case CLS_REGION: assert(0 && "a repeat is parsed with its body");
  }
}
