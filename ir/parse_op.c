/* parse_op.c: one op behind its results, `nest sum[d: D=128] %n[b,t,d] * %wq[d,h,k]`, and its suffixes. */
#include "parser.h"

static void parse_result(Parser *p, Result *r) {
  r->loc = p->tok.loc;
  r->name = irp_value_name(p);
  if (!p->failed && ir_find_value(p->m, r->name) >= 0) irp_fail(p, "E0904", r->loc, "%%%s is defined twice", r->name);
  r->indexed = irp_at(p, "[") && !p->tok.spaced;
  if (r->indexed) {
    irp_next(p);
    do {
      if (r->n == MAX_RANK)
        irp_fail(p, "E0903", p->tok.loc, "more than %d dims", MAX_RANK);
      else
        r->index[r->n++] = irp_name(p, "an index");
    } while (irp_take(p, ","));
    irp_need(p, "]");
  }
  irp_need(p, ":");
  r->type = irp_type(p);
}

void irp_results(Parser *p, Results *list) {
  do {
    if (list->n == MAX_TEXT_OPERANDS) return irp_fail(p, "E0903", p->tok.loc, "too many results");
    Result r = {0};
    parse_result(p, &r);
    for (int i = 0; i < list->n && !p->failed; i++)
      if (!strcmp(list->at[i].name, r.name)) irp_fail(p, "E0904", r.loc, "%%%s is defined twice", r.name);
    vec_push(p->a, *list, r);
  } while (irp_take(p, ","));
  irp_need(p, "=");
}

/* The space opens with the first result's dims under the names that stand behind it. */
static void begin_space(Parser *p, Op *op, const Result *r) {
  if (r->n != r->type.rank) return irp_fail(p, "E0901", r->loc, "%%%s has %d dims and %d indices", r->name, r->type.rank, r->n);
  for (int i = 0; i < r->n; i++) {
    Index x = {r->index[i], r->type.dim[i].name, r->type.dim[i].size, r->type.dim[i].split};
    irp_add_index(p, &op->space, x, r->loc);
  }
  op->space.nout = op->space.n;
}

static void parse_values(Parser *p, Op *op) {
  VEC(ValueId) list = {0};
  do {
    if (list.n == MAX_TEXT_OPERANDS) return irp_fail(p, "E0903", p->tok.loc, "too many operands");
    vec_push(p->a, list, irp_value(p));
  } while (irp_take(p, ","));
  op->in = list.at;
  op->nin = list.n;
}

/* ---- leaves --------------------------------------------------------------------------------------------------- */

static void parse_init(Parser *p, Op *op) {
  op->init = (InitKind)irp_one_of(p, INIT_TEXT, COUNT(INIT_TEXT), "zeros, ones, normal(s), uniform(a, b) or const(c)");
  double *to[] = {&op->init_a, &op->init_b};
  for (int i = 0; i < INIT_NARGS[op->init]; i++) {
    irp_need(p, i ? "," : "(");
    *to[i] = irp_real(p, "a number");
  }
  if (INIT_NARGS[op->init]) irp_need(p, ")");
}

static void parse_input(Parser *p, Op *op) {
  if (p->tok.kind == TOK_STRING) op->name = irp_string(p, "the input's name");
  static const char *const sources[] = {"next_token", "table"};
  op->source = (SourceKind)irp_one_of(p, sources, COUNT(sources), "table(\"file\") or next_token(\"file\")");
  bool table = op->source == SRC_TABLE;
  irp_need(p, "(");
  op->file = irp_string(p, "the file's name");
  op->shuffle = !table;
  if (irp_take(p, ",")) {
    irp_need_word(p, table ? "shuffle" : "sequential");
    op->shuffle = table;
  }
  irp_need(p, ")");
  if (irp_take_word(p, "part")) op->source_part = (int)irp_int(p, 0, 1, "a part");
  if (irp_take_word(p, "limit")) op->limit_dim = irp_extent(p, &op->limit, NULL);
}

static void parse_leaf(Parser *p, Op *op) {
  if (op->kind == OP_INPUT) return parse_input(p, op);
  op->name = irp_string(p, "the leaf's name");
  if (op->kind == OP_SETTING) op->init_a = irp_real(p, "a number");
  if (op->kind == OP_PARAM) parse_init(p, op);
  op->frozen = op->kind == OP_PARAM && irp_take_word(p, "frozen");
  bool stacks = op->kind == OP_PARAM || op->kind == OP_STATE;
  if (stacks && irp_take_word(p, "stack")) op->nstack = (int)irp_int(p, 0, MAX_RANK, "a number of stacked dims");
}

/* ---- computation ------------------------------------------------------------------------------------------------ */

static void parse_random(Parser *p, Op *op) {
  static const char *const kinds[] = {"normal", "uniform"};
  op->init = irp_one_of(p, kinds, COUNT(kinds), "normal or uniform") ? INIT_UNIFORM : INIT_NORMAL;
  op->name = irp_string(p, "the site");
  if (irp_take_word(p, "step")) ir_in(p->m, op, irp_value(p));
  if (!irp_take_word(p, "at")) return;
  irp_need(p, "(");
  do {
    if (op->nin == MAX_OPERANDS) return irp_fail(p, "E0903", p->tok.loc, "too many counters");
    ir_in(p->m, op, irp_value(p));
  } while (irp_take(p, ","));
  irp_need(p, ")");
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
    irp_need_word(p, "over");
    irp_space(p, s);
    s->nout = s->n;
  }
  irp_need_word(p, "keys");
  irp_space(p, s);
  op->nkey = s->n - s->nout;
  irp_need_word(p, "dot");
  irp_space(p, s);
  for (int i = 0; i < op_reads(op); i++) {
    irp_need_word(p, READ_TEXT[i]);
    Loc loc = p->tok.loc;
    op->read[i] = irp_expr(p);
    if (op->read[i]->op != EX_READ) irp_fail(p, "E0901", loc, "behind `%s` stands a read", READ_TEXT[i]);
  }
  irp_need_word(p, "score");
  op->body = typed_dot(irp_expr(p), op->read[0]->dtype);
  if (op->kind == OP_ATTENTION || !irp_take_word(p, "wrt")) return;
  irp_need(p, "(");
  op->wrt = NEW_ARRAY(p->a, int, MAX_OPERANDS);
  do {
    Loc loc = p->tok.loc;
    if (op->nwrt == MAX_OPERANDS) return irp_fail(p, "E0903", loc, "too many operands");
    ValueId v = irp_value(p);
    if (!p->failed) op->wrt[op->nwrt++] = irp_operand(p, v, loc);
  } while (irp_take(p, ","));
  irp_need(p, ")");
}

static void parse_into(Parser *p, Op *op) {
  irp_need_word(p, "into");
  Loc loc = p->tok.loc;
  op->into = NEW_ARRAY(p->a, IExpr *, MAX_RANK);
  int n = 0;
  if (op->space.nout)
    n = irp_indices(p, op->into, MAX_RANK);
  else
    irp_need(p, "["), irp_need(p, "]");
  if (n != op->space.nout) irp_fail(p, "E0901", loc, "the result has %d dims, `into` has %d", op->space.nout, n);
}

static void parse_computation(Parser *p, Op *op) {
  op->reverse = op->kind == OP_SCAN && irp_take_word(p, "reverse");
  switch (op->kind) {
  case OP_NEST:
  case OP_GATHER:
    for (int r = 0; r < COUNT(REDUCE_TEXT); r++) { /* sum[...] reduces; max(...) is a function of the body */
      if (!irp_at_word(p, REDUCE_TEXT[r]) || p->at >= p->end || *p->at != '[') continue;
      irp_next(p);
      op->reduce = (Reduce)r;
      irp_space(p, &op->space);
    }
    break;
  case OP_RANDOM: return parse_random(p, op);
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: return parse_attention(p, op);
  case OP_SCAN: {
    irp_need(p, "[");
    Loc loc = p->tok.loc;
    const char *name = irp_name(p, "an index");
    op->along = p->failed ? 0 : irp_find_index(&op->space, name);
    if (op->along < 0) return irp_fail(p, "E0902", loc, "%s is not an index of the result", name);
    irp_need(p, "]");
    break;
  }
  default: irp_space(p, &op->space);
  }
  if (op->kind == OP_SCATTER_ADD) parse_into(p, op);
  op->body = irp_expr(p);
}

/* ---- effects and suffixes ---------------------------------------------------------------------------------------- */

static void parse_effect(Parser *p, Op *op) {
  if (op->kind == OP_WAIT) return parse_values(p, op);
  if (op->kind == OP_UPDATE) {
    ir_in(p->m, op, irp_value(p));
    irp_need(p, "=");
  } else {
    op->tap = (TapKind)irp_one_of(p, TAP_TEXT, COUNT(TAP_TEXT), "loss, metric, output, grad, grad_norm or lr");
    if (TAP_NAMED[op->tap]) op->name = irp_string(p, "a name");
  }
  ir_in(p->m, op, irp_value(p));
}

void irp_suffixes(Parser *p, Op *op) {
  while (irp_take(p, "[")) {
    static const char *const words[] = {"grad", "backward", "update", "group"};
    static const char *const of[] = {"input", "weight"};
    switch (irp_one_of(p, words, COUNT(words), "grad input, grad weight, backward, update or group")) {
    case 0: op->tag = irp_one_of(p, of, COUNT(of), "input or weight") ? TAG_WEIGHT_GRAD : TAG_INPUT_GRAD; break;
    case 1: op->phase = PHASE_BACKWARD; break;
    case 2: op->phase = PHASE_UPDATE; break;
    default: op->group = (int)irp_int(p, 1, INT32_MAX, "a group's number");
    }
    irp_need(p, "]");
  }
}

void irp_op(Parser *p, Op *op, const Results *r) {
  p->op = op;
  p->nodes = p->depth = 0;
  bool indexed = op_class(op->kind) == CLS_SPACE && op->kind != OP_ATTENTION_GRAD;
  if (indexed) begin_space(p, op, &r->at[0]);
  for (int i = 0; i < r->n && !indexed; i++)
    if (r->at[i].indexed) irp_fail(p, "E0901", r->at[i].loc, "results of %s have no indices", op_text(op->kind));
  switch (op_class(op->kind)) {
  case CLS_LEAF: parse_leaf(p, op); break;
  case CLS_SPACE: parse_computation(p, op); break;
  case CLS_LAYOUT: parse_values(p, op); break;
  case CLS_EFFECT: parse_effect(p, op); break;
  case CLS_REGION: assert(0 && "a repeat is parsed with its body");
  }
}
