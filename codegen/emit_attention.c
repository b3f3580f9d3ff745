/* emit_attention.c: attention, for every combination of the outer rows (batch, head) by blocks of queries:

     S = q k^T          dtrt_gemm into the workspace, only keys that some query of the block can see
     s = score(S)       where(u <= t, S * c, -inf) and the like, with the row's maximum
     p = exp(s - max)   and its sum; lse = max + log(sum); a row of only -inf: p = 0, lse = -inf
     a = p v / sum      dtrt_gemm, rows scaled afterwards

   and backwards, with p = exp(s - lse) made again from lse and D = sum over features of da * a:

     dP = da v^T    dS = p * (dP - D) * dscore/dS    dq = dS k    dk += dS^T q    dv += p^T da

   (Dao et al., "FlashAttention", 2022, for the recomputation.) What q, k, v look like decides the form: one query
   index, one key index, one contracted index and one feature at unit distance go through the BLAS as above; anything
   else takes plain loops over the same formulas, one row at a time (emit_attention_rows.c). */
#include "emit_attention.h"

static const Type *type_of(const Module *m, const Op *op, int read) {
  return &m->values.at[op->in[op->read[read]->operand]].type;
}

/* Which dim of a read is exactly index i, or -1. */
static int dim_of(const Expr *read, int i) {
  for (int d = 0; d < read->nix; d++)
    if (ix_single(read->ix[d]) == i) return d;
  return -1;
}

bool attention_plain(const Expr *read) {
  for (int d = 0; d < read->nix; d++) {
    int i = ix_single(read->ix[d]);
    if (i < 0 || dim_of(read, i) != d) return false;
  }
  return read->op == EX_READ && !read->otherwise;
}

static int64_t stride_of(const Module *m, const Op *op, int read, int i) {
  int64_t stride[MAX_RANK];
  cg_strides(type_of(m, op, read), stride);
  int d = dim_of(op->read[read], i);
  return d < 0 ? 0 : stride[d];
}

/* The query index: a row that q has and k and v have not. */
static int query_index(const Op *op, const AttentionShape *a) {
  int best = -1;
  for (int r = 0; r < a->nrow; r++) {
    int i = a->row[r];
    if (dim_of(op->read[READ_Q], i) < 0 || dim_of(op->read[READ_K], i) >= 0 || dim_of(op->read[READ_V], i) >= 0) continue;
    if (best < 0 || op->space.idx[i].range > op->space.idx[best].range) best = i;
  }
  return best;
}

AttentionShape attention_shape(const Module *m, const Op *op) {
  AttentionShape a = {.query = -1};
  a.nrow = attention_rows(op, a.row);
  bool row[MAX_INDEX] = {false};
  for (int r = 0; r < a.nrow; r++) row[a.row[r]] = true;
  for (int i = 0; i < op->space.nout; i++)
    if (!row[i]) a.feature[a.nfeature++] = i;
  int ndot = op->space.n - op->space.nout - op->nkey;
  a.nkeys = 1;
  for (int i = 0; i < op->nkey; i++) a.nkeys *= cg_capacity(&op->space.idx[op->space.nout + i]);
  a.pitch = ((a.nkeys + 15) / 16 | 1) * 16;
  if (m->target != TARGET_C) return a; // blocks call products from inside their loops
  if (op->nkey != 1 || ndot != 1 || a.nfeature != 1 || op->body->dtype != F32) return a;
  for (int r = 0; r < op_reads(op); r++)
    if (!attention_plain(op->read[r]) || op->read[r]->dtype != F32) return a;
  a.key = op->space.nout, a.dot = op->space.nout + 1;
  if (cg_is_split(&op->space.idx[a.key].split)) return a;
  bool unit =
      stride_of(m, op, READ_Q, a.dot) == 1 && stride_of(m, op, READ_K, a.dot) == 1 && stride_of(m, op, READ_V, a.feature[0]) == 1;
  if (!unit || !stride_of(m, op, READ_K, a.key) || !stride_of(m, op, READ_V, a.key)) return a;
  int64_t out[MAX_RANK];
  cg_strides(&m->values.at[op->out[0]].type, out);
  if (op->kind == OP_ATTENTION && out[a.feature[0]] != 1) return a;
  if (op->kind == OP_ATTENTION_GRAD &&
      (stride_of(m, op, READ_DA, a.feature[0]) != 1 || stride_of(m, op, READ_A, a.feature[0]) != 1))
    return a;
  a.query = query_index(op, &a);
  if (a.query >= 0) {
    int64_t fit = ATTENTION_BYTES / 4 / a.pitch;
    a.block = max_i64(16, min_i64(64, fit / 16 * 16));
    a.block = min_i64(a.block, max_i64(1, cg_capacity(&op->space.idx[a.query])));
  }
  return a;
}

int64_t cg_attention_workspace(const Module *m, const Op *op) {
  if (attention_tiles(m, op)) return attention_tiles_workspace(m, op);
  AttentionShape a = attention_shape(m, op);
  int matrices = op->kind == OP_ATTENTION ? 1 : 2;
  if (a.query >= 0) return matrices * a.block * a.pitch * 4 + 2 * a.block * 4 + 192;
  return 3 * a.nkeys * dtype_size(op->body->dtype) + 192;
}

/* ---- printing ------------------------------------------------------------------------------------------------------------ */

#define LINE(...) str_printf(e->a, &k->body, __VA_ARGS__)

static const char *dot_value(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix) {
  (void)s, (void)n, (void)ix;
  Blocks *b = cx;
  return v < 0 ? b->dot : NULL;
}

/* Where a read begins at the block: query at `first`, keys at `lo`, contracted and feature indices at 0. */
static const char *base(Blocks *b, int read, const Type *t, const char *pointer) {
  Scope s = b->scope;
  const AttentionShape *a = &b->shape;
  s.var[a->query].name = b->first;
  s.var[a->key].name = b->lo;
  s.var[a->dot].name = "0";
  s.var[a->feature[0]].name = "0";
  const Expr *x = b->op->read[read];
  const char *at = emit_offset(&s, t, x->nix, x->ix);
  return strcmp(at, "0") ? arena_printf(b->e->a, "%s + %s", pointer, at) : pointer;
}

static const char *read_base(Blocks *b, int read) {
  const Op *op = b->op;
  return base(b, read, type_of(b->e->m, op, read), emit_pointer(b->k, op->in[op->read[read]->operand], false));
}

static long long ld(Blocks *b, int read, int i) { return stride_of(b->e->m, b->op, read, i); }

static void begin_blocks(Blocks *b) {
  Emit *e = b->e;
  Kernel *k = b->k;
  const AttentionShape *a = &b->shape;
  for (int r = 0; r < a->nrow; r++) {
    if (a->row[r] == a->query) continue;
    emit_for(&b->scope, a->row[r]);
    b->opened++;
  }
  const Var *t = &b->scope.var[a->query];
  b->first = emit_name(e, &k->local, arena_printf(e->a, "%s_from", t->name));
  b->count = emit_name(e, &k->local, arena_printf(e->a, "%s_count", t->name));
  const char *n = emit_n(k, t->range);
  LINE("for (int64_t %s = 0; %s < %s; %s += %lld) {\n", b->first, b->first, n, b->first, (long long)a->block);
  LINE("const int64_t %s = dtrt_imin(%lld, %s - %s);\n", b->count, (long long)a->block, n, b->first);
  b->opened++;
  Visible box = {.index = a->key};
  box.first[a->query] = b->first, box.end[a->query] = arena_printf(e->a, "%s + %s", b->first, b->count);
  const char *lo, *hi;
  attention_visible(&b->scope, &box, &lo, &hi);
  b->lo = "0";
  const char *u = b->scope.var[a->key].name;
  if (strcmp(lo, "0")) {
    b->lo = emit_name(e, &k->local, arena_printf(e->a, "%s_from", u));
    LINE("const int64_t %s = %s;\n", b->lo, lo);
  }
  b->keys = emit_name(e, &k->local, arena_printf(e->a, "%s_count", u));
  const char *keys = strcmp(b->lo, "0") ? arena_printf(e->a, "%s - %s", hi, b->lo) : hi;
  LINE("const int64_t %s = dtrt_imax(0, %s);\n", b->keys, keys);
}

static Blocks *begin(Emit *e, const Op *op) {
  Blocks *b = NEW(e->a, Blocks);
  b->e = e, b->op = op;
  b->shape = attention_shape(e->m, op);
  b->k = emit_simple(e, op, "sr top_bits top shift sum p j f i pr dr delta lse s prob g", &b->scope);
  b->scope.value = dot_value, b->scope.cx = b;
  return b;
}

/* The row's loop over a block's queries; the query's own index counts from the block's beginning. */
static void for_queries(Blocks *b) {
  Emit *e = b->e;
  Kernel *k = b->k;
  b->i = emit_name(e, &k->local, "row");
  const char *t = b->scope.var[b->shape.query].name;
  LINE("for (int64_t %s = 0; %s < %s; %s++) {\nconst int64_t %s = %s + %s;\n", b->i, b->i, b->count, b->i, t, b->first, b->i);
}

static void for_keys(Blocks *b) {
  Emit *e = b->e;
  Kernel *k = b->k;
  if (!b->j) b->j = emit_name(e, &k->local, "j");
  const char *u = b->scope.var[b->shape.key].name;
  LINE("for (int64_t %s = 0; %s < %s; %s++) {\n", b->j, b->j, b->keys, b->j);
  if (!ex_uses(b->op->body, b->shape.key)) return; /* the score alone: neither masked nor biased by the key */
  if (strcmp(b->lo, "0"))
    LINE("const int64_t %s = %s + %s;\n", u, b->lo, b->j);
  else
    LINE("const int64_t %s = %s;\n", u, b->j);
}

static const char *lse_offset(Blocks *b, const Type *t) {
  Scope s = b->scope;
  IExpr *ix[MAX_RANK];
  for (int r = 0; r < b->shape.nrow; r++) ix[r] = ix_index(b->e->a, b->shape.row[r]);
  return emit_offset(&s, t, b->shape.nrow, ix);
}

static void scores(Blocks *b, const char *s) {
  Emit *e = b->e;
  Kernel *k = b->k;
  const AttentionShape *a = &b->shape;
  LINE("dtrt_gemm(cx, false, true, %s, %s, %lld, 1.0f, %s, %lld, %s, %lld, 0.0f, %s, %lld);\n", b->count, b->keys,
       (long long)cg_capacity(&b->op->space.idx[a->dot]), read_base(b, READ_Q), ld(b, READ_Q, a->query), read_base(b, READ_K),
       ld(b, READ_K, a->key), s, (long long)a->pitch);
}

Kernel *emit_attention(Emit *e, const Op *op) {
  if (attention_tiles(e->m, op)) return emit_attention_tiles(e, op);
  if (attention_shape(e->m, op).query < 0) return emit_attention_by_rows(e, op);
  Blocks *b = begin(e, op);
  Kernel *k = b->k;
  const AttentionShape *a = &b->shape;
  const Type *out = &e->m->values.at[op->out[0]].type, *lse = &e->m->values.at[op->out[1]].type;
  int64_t stride[MAX_RANK];
  cg_strides(out, stride);
  const char *s = emit_name(e, &k->local, "score"), *inv = emit_name(e, &k->local, "inverse"),
             *y = emit_pointer(k, op->out[0], true), *l = emit_pointer(k, op->out[1], true);
  LINE("float *restrict %s = (float *)cx->workspace;\n", s);
  LINE("float *restrict %s = %s + %lld;\n", inv, s, (long long)(a->block * a->pitch));
  begin_blocks(b);
  scores(b, s);
  for_queries(b);
  LINE("float *restrict sr = %s + %s * %lld;\nint32_t top_bits = dtrt_order(-INFINITY);\n", s, b->i, (long long)a->pitch);
  b->dot = "sr[j]", b->j = "j";
  for_keys(b);
  Str here = {0};
  b->scope.now = &here;
  emit_hoist(&b->scope);
  const char *score = emit_expr(&b->scope, op->body);
  if (here.at) LINE("%s", here.at);
  LINE("sr[j] = %s;\ntop_bits = dtrt_imax32(top_bits, dtrt_order(sr[j]));\n}\n", score);
  LINE("const float top = dtrt_unorder(top_bits), shift = top == -INFINITY ? 0.0f : top;\nfloat sum = 0.0f;\n");
  LINE("for (int64_t j = 0; j < %s; j++) {\nconst float p = dtrt_expf(sr[j] - shift);\nsr[j] = p;\nsum += p;\n}\n", b->keys);
  LINE("%s[%s] = sum != 0.0f ? 1.0f / sum : 0.0f;\n", inv, b->i);
  LINE("%s[%s] = sum != 0.0f ? shift + dtrt_logf(sum) : -INFINITY;\n}\n", l, lse_offset(b, lse));
  // the result's own dims, with the query at the block's beginning
  Scope at = b->scope;
  at.var[a->query].name = b->first;
  at.var[a->feature[0]].name = "0";
  const char *start = emit_own_offset(&at, out, 0);
  long long ldo = stride[a->query], features = cg_capacity(&op->space.idx[a->feature[0]]);
  const char *nf = emit_n(k, b->scope.var[a->feature[0]].range);
  LINE("dtrt_gemm(cx, false, false, %s, %s, %s, 1.0f, %s, %lld, %s, %lld, 0.0f, %s + %s, %lld);\n", b->count, nf, b->keys, s,
       (long long)a->pitch, read_base(b, READ_V), ld(b, READ_V, a->key), y, start, ldo);
  (void)features;
  LINE("for (int64_t i = 0; i < %s; i++) {\nfor (int64_t f = 0; f < %s; f++) %s[%s + i * %lld + f] *= %s[i];\n}\n", b->count, nf,
       y, start, ldo, inv);
  emit_close(k, b->opened);
  emit_kernel_end(k, op, "attention by blocks of queries");
  return k;
}

/* ---- gradient ------------------------------------------------------------------------------------------------------------- */

static const char *gradient_base(Blocks *b, int read) {
  ValueId v = b->op->out[read];
  return base(b, read, &b->e->m->values.at[v].type, emit_pointer(b->k, v, true));
}

/* A product into the gradient of read `read`, whose rows are index i: added, since several rows may meet there. */
static void gradient_product(Blocks *b, int read, int i, bool ta, const char *m, const char *n, const char *inner,
                             const char *left, const char *right, long long ldr) {
  Emit *e = b->e;
  Kernel *k = b->k;
  LINE("dtrt_gemm(cx, %s, false, %s, %s, %s, 1.0f, %s, %lld, %s, %lld, 1.0f, %s, %lld);\n", ta ? "true" : "false", m, n, inner,
       left, (long long)b->shape.pitch, right, ldr, gradient_base(b, read), ld(b, read, i));
}

static void zero_gradients(Blocks *b) {
  Emit *e = b->e;
  Kernel *k = b->k;
  for (int i = 0; i < b->op->nout; i++)
    emit_zero(k, emit_pointer(k, b->op->out[i], true), cg_bytes(&e->m->values.at[b->op->out[i]].type));
}

Kernel *emit_attention_grad(Emit *e, const Op *op) {
  if (attention_tiles(e->m, op)) return emit_attention_grad_tiles(e, op);
  if (attention_shape(e->m, op).query < 0) return emit_attention_grad_by_rows(e, op);
  Blocks *b = begin(e, op);
  Kernel *k = b->k;
  const AttentionShape *a = &b->shape;
  const char *s = emit_name(e, &k->local, "probs"), *ds = emit_name(e, &k->local, "ds");
  long long matrix = a->block * a->pitch;
  zero_gradients(b);
  LINE("float *restrict %s = (float *)cx->workspace;\nfloat *restrict %s = %s + %lld;\n", s, ds, s, matrix);
  begin_blocks(b);
  scores(b, s);
  const char *nf = emit_n(k, b->scope.var[a->feature[0]].range);
  LINE("dtrt_gemm(cx, false, true, %s, %s, %s, 1.0f, %s, %lld, %s, %lld, 0.0f, %s, %lld);\n", b->count, b->keys, nf,
       read_base(b, READ_DA), ld(b, READ_DA, a->query), read_base(b, READ_V), ld(b, READ_V, a->key), ds, (long long)a->pitch);
  for_queries(b);
  LINE("float *restrict pr = %s + %s * %lld, *restrict dr = %s + %s * %lld;\n", s, b->i, (long long)a->pitch, ds, b->i,
       (long long)a->pitch);
  LINE("float delta = 0.0f;\n");
  b->dot = "pr[j]", b->j = "j";
  emit_for(&b->scope, a->feature[0]);
  Str here = {0};
  b->scope.now = &here;
  emit_hoist(&b->scope);
  LINE("delta += %s * %s;\n}\n", emit_expr(&b->scope, op->read[READ_DA]), emit_expr(&b->scope, op->read[READ_A]));
  LINE("const float lse = %s, shift = lse == -INFINITY ? 0.0f : lse;\n", emit_expr(&b->scope, op->read[READ_LSE]));
  for_keys(b);
  if (here.at) LINE("%s", here.at);
  LINE("const float s = %s;\n", emit_expr(&b->scope, op->body));
  LINE("const float prob = s == -INFINITY ? 0.0f : dtrt_expf(s - shift), g = prob * (dr[j] - delta);\n");
  attention_slopes(&b->scope, "g", attention_add_slope, NULL);
  Expr *slope = attention_slope(e->a, op->body, NULL);
  LINE("dr[j] = %s;\npr[j] = prob;\n}\n}\n", attention_gradient_text(&b->scope, slope, "g"));
  const char *nd = emit_n(k, b->scope.var[a->dot].range);
  gradient_product(b, READ_Q, a->query, false, b->count, nd, b->keys, ds, read_base(b, READ_K), ld(b, READ_K, a->key));
  gradient_product(b, READ_K, a->key, true, b->keys, nd, b->count, ds, read_base(b, READ_Q), ld(b, READ_Q, a->query));
  gradient_product(b, READ_V, a->key, true, b->keys, nf, b->count, s, read_base(b, READ_DA), ld(b, READ_DA, a->query));
  emit_close(k, b->opened);
  emit_kernel_end(k, op, "gradient of attention, scores made again by blocks");
  return k;
}
