/* verify_op.c: what each kind of op must be made of: operands, results, space, body. */
#include "verify.h"

static const Type *in_type(const Check *c, int i) { return type_of(c, c->op->in[i]); }
static const Type *out_type(const Check *c, int i) { return type_of(c, c->op->out[i]); }

static bool check_counts(Check *c, int nin, int nout) {
  const Op *op = c->op;
  if (nin >= 0) LAW(c, op->nin == nin, "%s takes %d operands, not %d", op_text(op->kind), nin, op->nin);
  LAW(c, op->nout == nout, "%s has %d results, not %d", op_text(op->kind), nout, op->nout);
  return true;
}

/* ---- leaves and effects ---------------------------------------------------------------------------------------- */

static bool check_leaf(Check *c, bool in_repeat) {
  const Op *op = c->op;
  if (!check_counts(c, 0, 1)) return false;
  LAW(c, !in_repeat, "a leaf stands in the program, not in a repeat");
  LAW(c, op->name && *op->name, "a leaf has a name");
  const Type *t = out_type(c, 0);
  if (op->kind == OP_SETTING) LAW(c, is_scalar(t, F64), "a setting is f64, not %s", show_type(c, t));
  LAW(c, op->nstack >= 0 && op->nstack <= t->rank, "%d of %d dims are stacked", op->nstack, t->rank);
  if (op->kind != OP_INPUT) return true;
  LAW(c, op->file, "an input has a file");
  LAW(c, op->limit >= 0, "the limit of an input is %lld", (long long)op->limit);
  LAW(c, op->limit == 0 || t->dtype == I32 || t->dtype == I64, "only integers have a limit");
  return true;
}

static bool check_effect(Check *c, bool in_repeat) {
  const Op *op = c->op;
  if (op->kind == OP_WAIT) {
    LAW(c, c->m->stage == STAGE_SCHEDULED, "collectives are waited for at stage scheduled");
    return true;
  }
  if (!check_counts(c, op->kind == OP_UPDATE ? 2 : 1, 0)) return false;
  LAW(c, !in_repeat, "%s stands in the program, not in a repeat", op_text(op->kind));
  if (op->kind == OP_TAP) {
    LAW(c, (int)op->tap >= 0 && op->tap < COUNT(TAP_TEXT), "a tap shows one of a few things, not number %d", op->tap);
    LAW(c, !TAP_NAMED[op->tap] || op->name, "tap %s has a name", TAP_TEXT[op->tap]);
    bool scalar = op->tap != TAP_OUTPUT && op->tap != TAP_GRAD;
    LAW(c, !scalar || in_type(c, 0)->rank == 0, "tap %s shows a scalar, not %s", TAP_TEXT[op->tap], show_type(c, in_type(c, 0)));
    return true;
  }
  const Op *leaf = value_of(c, op->in[0])->def;
  LAW(c, leaf && (leaf->kind == OP_PARAM || leaf->kind == OP_STATE), "%s is updated: that must be a param or a state",
      show_value(c, op->in[0]));
  LAW(c, same_shape(in_type(c, 0), in_type(c, 1)), "%s is %s, its next value %s", show_value(c, op->in[0]),
      show_type(c, in_type(c, 0)), show_type(c, in_type(c, 1)));
  return true;
}

/* ---- ops with a space ------------------------------------------------------------------------------------------ */

static bool check_space(Check *c) {
  const Space *s = &c->op->space;
  LAW(c, s->n >= 0 && s->n <= MAX_INDEX && s->nout >= 0 && s->nout <= s->n, "a space of %d indices, %d of them the result's",
      s->n, s->nout);
  for (int i = 0; i < s->n; i++) {
    LAW(c, s->idx[i].name && *s->idx[i].name, "index number %d has no name", i);
    LAW(c, s->idx[i].range >= 0, "index %s has range %lld", s->idx[i].name, (long long)s->idx[i].range);
    for (int j = 0; j < i; j++) LAW(c, strcmp(s->idx[i].name, s->idx[j].name), "two indices are called %s", s->idx[i].name);
  }
  return true;
}

static bool check_result_dims(Check *c, int result) {
  const Type *t = out_type(c, result);
  int index[MAX_INDEX], n = text_result_indices(c->op, result, index);
  LAW(c, t->rank == n, "%s has %d dims, the space gives it %d", show_value(c, c->op->out[result]), t->rank, n);
  for (int d = 0; d < n; d++) {
    const Index *x = &c->op->space.idx[index[d]];
    LAW(c, x->range == t->dim[d].size, "dim %d of %s has %lld elements, its index %s a range of %lld", d,
        show_value(c, c->op->out[result]), (long long)t->dim[d].size, x->name, (long long)x->range);
  }
  return true;
}

static bool check_result_body(Check *c) {
  const Op *op = c->op;
  LAW(c, op->body, "%s has no body", op_text(op->kind));
  if (!check_body(c, op->body)) return false;
  LAW(c, op->body->dtype == out_type(c, 0)->dtype, "the body gives %s, the result is %s", dtype_name(op->body->dtype),
      dtype_name(out_type(c, 0)->dtype));
  return true;
}

static bool check_no_reduced(Check *c) {
  LAW(c, c->op->space.n == c->op->space.nout, "%s has no reduced index", op_text(c->op->kind));
  return true;
}

static bool check_nest(Check *c) {
  const Op *op = c->op;
  LAW(c, (int)op->reduce >= 0 && op->reduce < COUNT(REDUCE_TEXT), "unknown reduction %d", op->reduce);
  if (op->reduce == RED_NONE && !check_no_reduced(c)) return false;
  LAW(c, op->reduce == RED_NONE || out_type(c, 0)->dtype != BOOL, "bool has no %s", REDUCE_TEXT[op->reduce]);
  return check_counts(c, -1, 1) && check_result_body(c);
}

static bool check_gather(Check *c) {
  const Op *op = c->op;
  if (!check_nest(c)) return false;
  bool by_value = false;
  for (int i = 0; op->body->op == EX_READ && i < op->body->nix; i++) by_value |= ix_by_value(op->body->ix[i]);
  LAW(c, by_value, "the body of a gather is one read with an index that is read by value");
  return true;
}

/* argmax: %i; topk: %v, %i, where the last index of the result counts the winners. */
static bool check_select(Check *c) {
  const Op *op = c->op;
  bool many = op->kind == OP_TOPK;
  if (!check_counts(c, -1, many ? 2 : 1)) return false;
  LAW(c, op->space.n > op->space.nout, "%s selects along at least one index", op_text(op->kind));
  LAW(c, out_type(c, many)->dtype == I32, "%s gives positions of type i32, not %s", op_text(op->kind),
      dtype_name(out_type(c, many)->dtype));
  LAW(c, op->body, "%s has no body", op_text(op->kind));
  if (!check_body(c, op->body)) return false;
  LAW(c, op->body->dtype != BOOL, "bool has no order");
  if (!many) return true;
  int last = op->space.nout - 1;
  LAW(c, last >= 0, "topk counts the winners by the last index of its result");
  LAW(c, !ex_uses(op->body, last), "index %s counts the winners, the body cannot use it", op->space.idx[last].name);
  LAW(c, op->body->dtype == out_type(c, 0)->dtype, "the body gives %s, the result is %s", dtype_name(op->body->dtype),
      dtype_name(out_type(c, 0)->dtype));
  int64_t points = 1;
  for (int i = op->space.nout; i < op->space.n; i++)
    LAW(c, checked_mul(points, op->space.idx[i].range, &points), "too many points to select from");
  LAW(c, op->space.idx[last].range <= points, "topk wants %lld of %lld", (long long)op->space.idx[last].range, (long long)points);
  return true;
}

static bool check_scan(Check *c) {
  const Op *op = c->op;
  if (!check_counts(c, -1, 1) || !check_no_reduced(c)) return false;
  LAW(c, op->along >= 0 && op->along < op->space.nout, "a scan runs along an index of its result");
  LAW(c, out_type(c, 0)->dtype != BOOL, "bool has no sum");
  return check_result_body(c);
}

static bool check_scatter(Check *c) {
  if (!check_counts(c, -1, 1)) return false;
  LAW(c, out_type(c, 0)->dtype != BOOL, "bool has no sum");
  return check_result_body(c) && check_into(c);
}

static bool check_random(Check *c) {
  const Op *op = c->op;
  if (!check_counts(c, -1, 1) || !check_no_reduced(c)) return false;
  LAW(c, op->init == INIT_NORMAL || op->init == INIT_UNIFORM, "random draws normal or uniform numbers");
  LAW(c, op->name, "random has a site");
  LAW(c, op->nin >= 1, "random has the step as its operand");
  LAW(c, !dtype_is_int(out_type(c, 0)->dtype), "random numbers are real, not %s", dtype_name(out_type(c, 0)->dtype));
  for (int i = 0; i < op->nin; i++)
    LAW(c, is_scalar(in_type(c, i), I64), "the step and the counters are i64, %s is %s", show_value(c, op->in[i]),
        show_type(c, in_type(c, i)));
  return true;
}

static bool check_attention_reads(Check *c) {
  const Op *op = c->op;
  const Space *s = &op->space;
  LAW(c, op->nkey >= 1 && op->nkey <= s->n - s->nout, "%d of %d reduced indices are keys", op->nkey, s->n - s->nout);
  for (int i = 0; i < op_reads(op); i++) {
    LAW(c, op->read[i] && op->read[i]->op == EX_READ && !op->read[i]->otherwise, "`%s` is a read without `else`", READ_TEXT[i]);
    if (!check_body(c, op->read[i])) return false;
  }
  LAW(c, op->body, "attention has no score");
  if (!check_body(c, op->body)) return false;
  DType d = op->read[0]->dtype;
  LAW(c, !dtype_is_int(d) && op->read[1]->dtype == d && op->read[2]->dtype == d && op->body->dtype == d,
      "q, k, v and the score of an attention are real and of one type");
  for (int i = s->nout; i < s->n; i++) {
    bool key = i < s->nout + op->nkey;
    LAW(c, !key || !ex_uses(op->read[0], i), "q cannot depend on the key %s", s->idx[i].name);
    LAW(c, key || !ex_uses(op->read[2], i), "v cannot depend on the contracted index %s", s->idx[i].name);
    LAW(c, key || !ex_uses(op->body, i), "the score sees the contracted index %s only through `dot`", s->idx[i].name);
    for (int r = 3; r < op_reads(op); r++)
      LAW(c, !ex_uses(op->read[r], i), "`%s` cannot depend on the reduced index %s", READ_TEXT[r], s->idx[i].name);
  }
  return true;
}

static bool check_attention(Check *c) {
  const Op *op = c->op;
  if (!check_counts(c, -1, 2) || !check_attention_reads(c)) return false;
  for (int r = 0; r < 2; r++)
    LAW(c, out_type(c, r)->dtype == op->read[0]->dtype, "%s is %s, q is %s", show_value(c, op->out[r]),
        dtype_name(out_type(c, r)->dtype), dtype_name(op->read[0]->dtype));
  return true;
}

static bool check_attention_grad(Check *c) {
  const Op *op = c->op;
  if (!check_counts(c, -1, 3 + op->nwrt) || !check_attention_reads(c)) return false;
  for (int r = 0; r < op->nout; r++) {
    int operand = r < 3 ? op->read[r]->operand : op->wrt[r - 3];
    LAW(c, operand >= 0 && operand < op->nin, "wrt names operand number %d of %d", operand, op->nin);
    LAW(c, same_shape(out_type(c, r), in_type(c, operand)), "%s is the gradient of %s, %s", show_value(c, op->out[r]),
        show_value(c, op->in[operand]), show_type(c, in_type(c, operand)));
  }
  return true;
}

static bool check_computation(Check *c) {
  const Op *op = c->op;
  LAW(c, op->nout >= 1, "%s has a result", op_text(op->kind));
  if (!check_space(c)) return false;
  bool ok = false;
  switch (op->kind) {
  case OP_NEST: ok = check_nest(c); break;
  case OP_GATHER: ok = check_gather(c); break;
  case OP_SCATTER_ADD: ok = check_scatter(c); break;
  case OP_ARGMAX:
  case OP_TOPK: ok = check_select(c); break;
  case OP_SCAN: ok = check_scan(c); break;
  case OP_RANDOM: ok = check_random(c); break;
  case OP_ATTENTION: ok = check_attention(c); break;
  case OP_ATTENTION_GRAD: return check_attention_grad(c);
  default: return broken(c, "%s is no op with a space", op_text(op->kind));
  }
  for (int r = 0; ok && r < op->nout; r++) ok = check_result_dims(c, r);
  return ok;
}

/* ---- repeat and layout ------------------------------------------------------------------------------------------- */

static bool agree(Check *c, const char *what, ValueId x, ValueId y) {
  LAW(c, same_shape(type_of(c, x), type_of(c, y)), "%s %s is %s, %s is %s", what, show_value(c, x), show_type(c, type_of(c, x)),
      show_value(c, y), show_type(c, type_of(c, y)));
  return true;
}

/* whole[l, ...] has the slice. */
static bool stacks(Check *c, ValueId whole, ValueId slice) {
  const Type *w = type_of(c, whole), *s = type_of(c, slice);
  bool ok = w->dtype == s->dtype && w->rank == s->rank + 1 && w->dim[0].size == c->op->trip;
  for (int d = 0; ok && d < s->rank; d++) ok = w->dim[d + 1].size == s->dim[d].size;
  LAW(c, ok, "%s, %s, is not %lld times %s, %s", show_value(c, whole), show_type(c, w), (long long)c->op->trip,
      show_value(c, slice), show_type(c, s));
  return true;
}

static bool check_repeat(Check *c) {
  const Op *op = c->op;
  const Region *b = op->body_region;
  LAW(c, b, "a repeat has a body");
  LAW(c, op->trip >= 0, "a repeat runs %lld times", (long long)op->trip);
  int carried = op->ncarried, invariant = op->ninvariant;
  LAW(c, carried >= 0 && invariant >= 0 && op->nstacked >= 0 && op->nsaved >= 0, "a count of the repeat's operands is negative");
  LAW(c, op->nin == carried + invariant + op->nstacked, "%d operands, but %d carried, %d invariant and %d stacked", op->nin,
      carried, invariant, op->nstacked);
  LAW(c, b->args.n == 1 + op->nin, "the body has %d arguments for a counter and %d operands", b->args.n, op->nin);
  LAW(c, b->yields.n == op->nout, "the body yields %d values, the repeat has %d results", b->yields.n, op->nout);
  LAW(c, op->nout >= carried + op->nsaved, "%d results, but %d carried and %d saved", op->nout, carried, op->nsaved);
  LAW(c, is_scalar(type_of(c, b->args.at[0]), I64), "the counter is i64, not %s", show_type(c, type_of(c, b->args.at[0])));
  for (int i = 0; i < op->nin; i++)
    if (i < carried + invariant ? !agree(c, i < carried ? "carried" : "invariant", b->args.at[1 + i], op->in[i])
                                : !stacks(c, op->in[i], b->args.at[1 + i]))
      return false;
  for (int i = 0; i < op->nout; i++) {
    bool ok = i >= carried ? stacks(c, op->out[i], b->yields.at[i])
                           : agree(c, "carried", op->out[i], op->in[i]) && agree(c, "carried", b->yields.at[i], op->in[i]);
    if (!ok) return false;
  }
  return true;
}

static bool check_change_of_layout(Check *c) {
  const Op *op = c->op;
  LAW(c, op->nin >= 1, "%s has an operand", op_text(op->kind));
  if (!check_counts(c, -1, op->nin)) return false;
  for (int i = 0; i < op->nin; i++)
    if (!agree(c, op_text(op->kind), op->out[i], op->in[i])) return false;
  LAW(c, c->m->stage >= (op->kind == OP_RESHARD ? STAGE_ANNOTATED : STAGE_COLLECTED), "collectives appear at stage collected");
  LAW(c, op->kind != OP_RESHARD || c->m->stage <= STAGE_SHARDED, "no reshard is left at stage collected");
  LAW(c, !op_is_collective(op->kind) || op->why, "a collective says why it is there");
  return true;
}

bool check_op(Check *c, bool in_repeat) {
  LAW(c, (int)c->op->kind >= 0 && c->op->kind < OP_NKINDS, "unknown kind of op %d", c->op->kind);
  LAW(c, c->op->group >= 0, "group %d", c->op->group);
  switch (op_class(c->op->kind)) {
  case CLS_LEAF: return check_leaf(c, in_repeat);
  case CLS_SPACE: return check_computation(c);
  case CLS_REGION: return check_repeat(c);
  case CLS_LAYOUT: return check_change_of_layout(c);
  case CLS_EFFECT: return check_effect(c, in_repeat);
  }
  return false;
}
