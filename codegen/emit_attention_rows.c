/* emit_attention_rows.c: attention of any shape, a row at a time: the scores of all keys of a row lie in the workspace,
   numbered row-major over the key indices. Used where the form with blocks (emit_attention.c) does not apply. */
#include "emit_attention.h"

#define LINE(...) str_printf(e->a, &k->body, __VA_ARGS__)

typedef struct {
  Blocks b;
  const char *s, *p, *type, *n; /* scores, probabilities; keys counted so far */
  bool wide;                    /* f64 */
} RowsOf;

static const char *dot_text(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix) {
  (void)s, (void)n, (void)ix;
  return v < 0 ? ((RowsOf *)cx)->b.dot : NULL;
}

static void for_all(RowsOf *r, const int *index, int n) {
  for (int i = 0; i < n; i++) emit_for(&r->b.scope, index[i]);
}

static void key_loops(RowsOf *r) {
  Emit *e = r->b.e;
  Kernel *k = r->b.k;
  LINE("%s = 0;\n", r->n);
  for (int i = 0; i < r->b.op->nkey; i++) emit_for(&r->b.scope, r->b.op->space.nout + i);
}

static void close_keys(RowsOf *r) {
  Emit *e = r->b.e;
  Kernel *k = r->b.k;
  LINE("%s++;\n", r->n);
  emit_close(k, r->b.op->nkey);
}

static void dot_loops(RowsOf *r, int *n) {
  *n = 0;
  for (int i = r->b.op->space.nout + r->b.op->nkey; i < r->b.op->space.n; i++, (*n)++) emit_for(&r->b.scope, i);
}

static void begin(RowsOf *r, Emit *e, const Op *op) {
  r->b.e = e, r->b.op = op;
  r->b.shape = attention_shape(e->m, op);
  Kernel *k = r->b.k = emit_simple(e, op, "score prob n dot top sum shift i acc lse mean slope g gd", &r->b.scope);
  r->b.scope.value = dot_text, r->b.scope.cx = r;
  r->b.dot = "dot";
  r->wide = op->body->dtype == F64;
  r->type = emit_ctype(op->body->dtype);
  r->s = "score", r->p = "prob", r->n = "n";
  const char *kind = arena_printf(e->a, "%s *%s", r->type, e->d->restricted);
  LINE("%s %s = (%s *)cx->workspace;\n%s %s = %s + %lld;\nint64_t %s;\n", kind, r->s, r->type, kind, r->p, r->s,
       (long long)r->b.shape.nkeys, r->n);
}

/* score[n] of every key of the row. */
static void row_scores(RowsOf *r) {
  Emit *e = r->b.e;
  Kernel *k = r->b.k;
  int dots;
  key_loops(r);
  LINE("%s dot = 0;\n", r->type);
  dot_loops(r, &dots);
  LINE("dot += %s * %s;\n", emit_expr(&r->b.scope, r->b.op->read[READ_Q]), emit_expr(&r->b.scope, r->b.op->read[READ_K]));
  emit_close(k, dots);
  emit_hoist(&r->b.scope);
  LINE("%s[%s] = %s;\n", r->s, r->n, emit_expr(&r->b.scope, r->b.op->body));
  close_keys(r);
}

static const char *row_offset(RowsOf *r, ValueId lse) {
  IExpr *ix[MAX_RANK];
  for (int i = 0; i < r->b.shape.nrow; i++) ix[i] = ix_index(r->b.e->a, r->b.shape.row[i]);
  return emit_offset(&r->b.scope, &r->b.e->m->values.at[lse].type, r->b.shape.nrow, ix);
}

Kernel *emit_attention_by_rows(Emit *e, const Op *op) {
  RowsOf *r = NEW(e->a, RowsOf);
  begin(r, e, op);
  Kernel *k = r->b.k;
  const AttentionShape *a = &r->b.shape;
  const char *y = emit_pointer(k, op->out[0], true), *l = emit_pointer(k, op->out[1], true), *f = r->wide ? "" : "f";
  for_all(r, a->row, a->nrow);
  row_scores(r);
  LINE("%s top = -INFINITY, sum = 0;\n", r->type);
  LINE("for (int64_t i = 0; i < n; i++) top = dtrt_max%s(top, score[i]);\n", f);
  LINE("const %s shift = top == -INFINITY ? 0 : top;\n", r->type);
  LINE("for (int64_t i = 0; i < n; i++) sum += prob[i] = %s(score[i] - shift);\n", r->wide ? "exp" : "dtrt_expf");
  LINE("%s[%s] = sum != 0 ? shift + %s(sum) : -INFINITY;\n", l, row_offset(r, op->out[1]), r->wide ? "log" : "dtrt_logf");
  for_all(r, a->feature, a->nfeature);
  LINE("%s acc = 0;\n", r->type);
  key_loops(r);
  LINE("acc += prob[n] * %s;\n", emit_expr(&r->b.scope, op->read[READ_V]));
  close_keys(r);
  LINE("%s[%s] = sum != 0 ? acc / sum : 0;\n", y, emit_own_offset(&r->b.scope, &e->m->values.at[op->out[0]].type, 0));
  emit_close(k, a->nfeature + a->nrow);
  emit_kernel_end(k, op, "attention row by row");
  return k;
}

static const char *gradient_at(RowsOf *r, int read) {
  ValueId v = r->b.op->out[read];
  const Expr *x = r->b.op->read[read];
  const Type *t = &r->b.e->m->values.at[v].type;
  return arena_printf(r->b.e->a, "%s[%s]", emit_pointer(r->b.k, v, true), emit_offset(&r->b.scope, t, x->nix, x->ix));
}

Kernel *emit_attention_grad_by_rows(Emit *e, const Op *op) {
  RowsOf *r = NEW(e->a, RowsOf);
  begin(r, e, op);
  Kernel *k = r->b.k;
  Scope *s = &r->b.scope;
  const AttentionShape *a = &r->b.shape;
  for (int i = 0; i < op->nout; i++) emit_zero(k, emit_pointer(k, op->out[i], true), cg_bytes(&e->m->values.at[op->out[i]].type));
  for_all(r, a->row, a->nrow);
  row_scores(r);
  const char *da = emit_expr(s, op->read[READ_DA]), *v = emit_expr(s, op->read[READ_V]);
  LINE("const %s lse = %s;\n%s mean = 0;\n", r->type, emit_expr(s, op->read[READ_LSE]), r->type);
  LINE("for (int64_t i = 0; i < n; i++) prob[i] = score[i] == -INFINITY ? 0 : %s(score[i] - lse);\n",
       r->wide ? "exp" : "dtrt_expf");
  for_all(r, a->feature, a->nfeature);
  LINE("mean += %s * %s;\n", da, emit_expr(s, op->read[READ_A]));
  emit_close(k, a->nfeature);
  key_loops(r);
  LINE("%s slope = -mean, dot = 0;\n", r->type);
  for_all(r, a->feature, a->nfeature);
  LINE("slope += %s * %s;\n%s += prob[n] * %s;\n", da, v, gradient_at(r, READ_V), da);
  emit_close(k, a->nfeature);
  int dots;
  dot_loops(r, &dots);
  const char *q = emit_expr(s, op->read[READ_Q]), *key = emit_expr(s, op->read[READ_K]);
  LINE("dot += %s * %s;\n", q, key);
  emit_close(k, dots);
  LINE("const %s g = prob[n] * slope;\nif (score[n] != -INFINITY) {\n", r->type);
  emit_hoist(s);
  attention_slopes(&r->b.scope, "g", attention_add_slope, NULL);
  LINE("const %s gd = %s;\n(void)dot;\n", r->type, attention_gradient_text(s, attention_slope(e->a, op->body, NULL), "g"));
  dot_loops(r, &dots);
  LINE("%s += gd * %s;\n%s += gd * %s;\n", gradient_at(r, READ_Q), key, gradient_at(r, READ_K), q);
  emit_close(k, dots);
  LINE("}\n");
  close_keys(r);
  emit_close(k, a->nrow);
  emit_kernel_end(k, op, "gradient of attention row by row");
  return k;
}
