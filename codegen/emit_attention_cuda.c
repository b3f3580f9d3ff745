/* emit_attention_cuda.c: what is an attention's own in CUDA, as a class for the kernels of runtime/dtcu_attention.h: the
   indices by kind, where elements lie, the score, its derivative, and what a mask lets be seen.

     struct a_21_attention : dtcu_Attention {
       const float *q, *k, *v;
       float *a, *a_lse;
       typedef float T;
       enum { LANES = 16, DOTS = 32, FEATURES = 32 };
       __device__ T load_q(int64_t outer, int64_t t, int64_t k1) const {
         const int64_t h = outer % 4, b = outer / 4;
         return q[b * 16384 + t * 128 + h * 32 + k1];
       }
       ...
     };

   Kinds: an index of the result that q has and k and v have not is a query's; those of lse that are no query's are outer;
   the rest of the result's are features. Several of a kind are one number, row-major. Reads that are not plain indices,
   and the like, go a row at a time (emit_attention_rows.c). */
#include "emit_attention.h"
#include "emit_spread.h"

/* Indices that count as one number. */
typedef struct {
  const char *word; /* the parameter that has the number; of a single index the index's own name */
  int n, index[MAX_INDEX];
  Extent x[MAX_INDEX];
} Kind;

typedef struct {
  Emit *e;
  Kernel *k;
  const Op *op;
  Scope s;
  AttentionShape shape;
  Kind outer, query, key, dot, feature;
  const char *type;
  Str text;
} Tiles;

enum { SMALL_TILE = 8, LARGE_TILE = 16, ALIGN = 256 };

#define LINE(...) str_printf(e->a, &t->text, __VA_ARGS__)

/* ---- does it apply, and its workspace ------------------------------------------------------------------------------- */

static bool reads(const Expr *read, int i) {
  for (int d = 0; d < read->nix; d++)
    if (ix_single(read->ix[d]) == i) return true;
  return false;
}

static bool reads_all(const Expr *read, int from, int to) {
  for (int i = from; i < to; i++)
    if (!reads(read, i)) return false;
  return true;
}

bool attention_tiles(const Module *m, const Op *op) {
  const Space *s = &op->space;
  int row[MAX_INDEX], nrow = attention_rows(op, row), dot = s->nout + op->nkey;
  if (m->target != TARGET_CUDA) return false;
  for (int r = 0; r < op_reads(op); r++)
    if (!attention_plain(op->read[r])) return false;
  if (!reads_all(op->read[READ_K], s->nout, s->n) || !reads_all(op->read[READ_Q], dot, s->n)) return false;
  for (int i = 0; i < s->nout; i++) {
    bool feature = true;
    for (int r = 0; r < nrow; r++) feature &= row[r] != i;
    if (feature && !reads(op->read[READ_V], i)) return false;
  }
  return reads_all(op->read[READ_V], s->nout, dot);
}

static int64_t aligned(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Of the gradient: D by row; the largest of each bias' gradient, then its cells. */
static int64_t bias_offset(const Module *m, const Op *op, int w) {
  int64_t at = aligned(cg_bytes(&m->values.at[op->in[op->read[READ_LSE]->operand]].type));
  if (w < 0) return at;
  at += aligned(8 * op->nwrt);
  for (int i = 0; i < w; i++) at += aligned(8 * type_capacity(&m->values.at[op->out[3 + i]].type));
  return at;
}

int64_t attention_tiles_workspace(const Module *m, const Op *op) {
  return op->kind == OP_ATTENTION ? 0 : bias_offset(m, op, op->nwrt);
}

/* ---- indices by kind -------------------------------------------------------------------------------------------------- */

static void add_index(Tiles *t, Kind *k, int i) {
  k->x[k->n] = emit_extent(&t->s, i);
  k->index[k->n++] = i;
}

static void find_kinds(Tiles *t) {
  const Op *op = t->op;
  t->outer.word = "outer", t->query.word = "query", t->key.word = "key", t->dot.word = "depth", t->feature.word = "feature";
  for (int r = 0; r < t->shape.nrow; r++) {
    int i = t->shape.row[r];
    bool shared = reads(op->read[READ_K], i) || reads(op->read[READ_V], i);
    add_index(t, !shared && reads(op->read[READ_Q], i) ? &t->query : &t->outer, i);
  }
  for (int r = 0; r < t->shape.nfeature; r++) add_index(t, &t->feature, t->shape.feature[r]);
  for (int i = op->space.nout; i < op->space.n; i++) add_index(t, i < op->space.nout + op->nkey ? &t->key : &t->dot, i);
  Kind *all[] = {&t->outer, &t->query, &t->key, &t->dot, &t->feature};
  for (int i = 0; i < 5; i++)
    if (all[i]->n == 1) all[i]->word = all[i]->x[0].name;
}

static const char *count(Tiles *t, const Kind *k) { return emit_count(t->e, k->n, k->x); }

/* The outer indices that a read has, or (others) has not. */
static Kind part_of_outer(Tiles *t, const Expr *read, bool others) {
  Kind part = {.word = others ? "round" : "kept"};
  for (int i = 0; i < t->outer.n; i++)
    if (reads(read, t->outer.index[i]) != others) part.x[part.n] = t->outer.x[i], part.index[part.n++] = t->outer.index[i];
  return part;
}

/* ---- members ------------------------------------------------------------------------------------------------------------ */

/* A member function of numbers of some kinds; `body` sees the indices behind them. */
static void member(Tiles *t, const char *head, int n, const Kind *const *kind, const char *tail, const char *body) {
  Emit *e = t->e;
  Str indices = {0};
  for (int i = 0; i < n; i++) emit_unravel(t->k, &indices, kind[i]->word, kind[i]->n, kind[i]->x, body);
  LINE("__device__ %s(", head);
  for (int i = 0; i < n; i++) LINE("%sint64_t %s", i ? ", " : "", kind[i]->word);
  bool one = !indices.n && strchr(body, '\n') == body + strlen(body) - 1;
  if (one)
    LINE("%s) const { %.*s }\n", tail, (int)strlen(body) - 1, body);
  else
    LINE("%s) const {\n%s%s}\n", tail, indices.at ? indices.at : "", body);
}

static void load(Tiles *t, const char *what, int read, const Kind *row, const Kind *column) {
  Emit *e = t->e;
  const Kind *kind[] = {&t->outer, row, column};
  member(t, arena_printf(e->a, "T load_%s", what), column ? 3 : 2, kind, "",
         arena_printf(e->a, "return %s;\n", emit_expr(&t->s, t->op->read[read])));
}

static void place(Tiles *t, const char *what, const Kind *outer, const Kind *row, const Kind *column, const char *element) {
  const Kind *kind[] = {outer, row, column};
  member(t, arena_printf(t->e->a, "T &%s_at", what), column ? 3 : 2, kind, "", arena_printf(t->e->a, "return %s;\n", element));
}

/* lse's dims, and those of what is kept of every row in the workspace, are the rows. */
static const char *row_offset(Tiles *t, const Type *type) {
  IExpr *ix[MAX_RANK];
  for (int r = 0; r < t->shape.nrow; r++) ix[r] = ix_index(t->e->a, t->shape.row[r]);
  return emit_offset(&t->s, type, t->shape.nrow, ix);
}

/* The first and last of a kind's outermost index in [from, end) of its numbers; the others have all their values. */
static void box_of(Tiles *t, const Kind *k, Visible *box) {
  Emit *e = t->e;
  const char *inner = emit_count(e, k->n - 1, k->x + 1);
  for (int i = 0; i < k->n; i++) box->first[k->index[i]] = "0", box->end[k->index[i]] = k->x[i].count;
  bool one = !strcmp(inner, "1");
  inner = emit_factor(e, inner);
  box->first[k->index[0]] = one ? "from" : arena_printf(e->a, "from / %s", inner);
  box->end[k->index[0]] = one ? "end" : arena_printf(e->a, "((end - 1) / %s + 1)", inner);
}

/* Which of `what` some of `seen_from` in [from, end) can see. */
static void visible(Tiles *t, const char *name, const Kind *what, const Kind *seen_from) {
  Emit *e = t->e;
  Visible box = {0};
  const char *lo, *hi;
  if (!what->n || !seen_from->n) return;
  box_of(t, what, &box);
  box_of(t, seen_from, &box);
  box.index = what->index[0];
  attention_visible(&t->s, &box, &lo, &hi);
  if (!strcmp(lo, "0") && !strcmp(hi, what->x[0].count)) return;
  const char *inner = emit_count(e, what->n - 1, what->x + 1),
             *each = strcmp(inner, "1") ? arena_printf(e->a, " * %s", emit_factor(e, inner)) : "";
  const Kind *kind[] = {&t->outer};
  member(t, arena_printf(e->a, "void visible_%s", name), 1, kind, ", int64_t from, int64_t end, int64_t *lo, int64_t *hi",
         arena_printf(e->a, "*lo = %s%s;\n*hi = %s%s;\n", lo, each, hi, each));
}

static const char *dot_value(void *cx, Scope *s, ValueId v, int n, IExpr *const *ix) {
  (void)cx, (void)s, (void)n, (void)ix;
  return v < 0 ? "dot" : NULL;
}

/* ---- the class ---------------------------------------------------------------------------------------------------------- */

static Tiles *begin(Emit *e, const Op *op) {
  Tiles *t = NEW(e->a, Tiles);
  t->e = e, t->op = op;
  t->shape = attention_shape(e->m, op);
  t->k =
      emit_simple(e, op,
                  "T LANES DOTS FEATURES BIASES COUNT_BITS outers queries keys dots features outer query key depth feature kept "
                  "round from end lo hi dot g sum at load_q load_k load_v load_a load_da load_lse score slope biases a_at lse_at "
                  "mean_at dq_at dk_at dv_at visible_keys visible_queries looped_q looped_k looped_v kept_q kept_k kept_v "
                  "outer_q outer_k outer_v bias_cells bias_largest bias_elements bias_put",
                  &t->s);
  t->s.value = dot_value;
  t->type = emit_ctype(op->body->dtype);
  find_kinds(t);
  int64_t most = max_i64(emit_most(t->query.n, t->query.x), emit_most(t->key.n, t->key.x));
  bool small = op->body->dtype == F64 || most <= 4 * SMALL_TILE;
  LINE("typedef %s T;\nenum { LANES = %d, DOTS = %lld, FEATURES = %lld", t->type, small ? SMALL_TILE : LARGE_TILE,
       (long long)emit_most(t->dot.n, t->dot.x), (long long)emit_most(t->feature.n, t->feature.x));
  if (op->nwrt) {
    int64_t points =
        sat_mul(emit_most(t->outer.n, t->outer.x), sat_mul(emit_most(t->query.n, t->query.x), emit_most(t->key.n, t->key.x)));
    int bits = 1;
    while (bits < 40 && (INT64_C(1) << bits) < points) bits++;
    LINE(", BIASES = %d, COUNT_BITS = %d", op->nwrt, bits);
  }
  LINE(" };\n");
  visible(t, "keys", &t->key, &t->query);
  load(t, "q", READ_Q, &t->query, &t->dot);
  load(t, "k", READ_K, &t->key, &t->dot);
  load(t, "v", READ_V, &t->key, &t->feature);
  const Kind *kind[] = {&t->outer, &t->query, &t->key};
  member(t, "T score", 3, kind, ", T dot", arena_printf(e->a, "return %s;\n", emit_expr(&t->s, op->body)));
  return t;
}

typedef struct {
  Emit *e;
  Str fields, values;
  const char *type; /* of the field before */
} Fields;

static void field(Fields *f, const char *type, const char *star, const char *name, const char *value) {
  Arena *a = f->e->a;
  if (f->type && !strcmp(f->type, type))
    str_printf(a, &f->fields, ", %s%s", star, name);
  else
    str_printf(a, &f->fields, "%s%s %s%s", f->type ? ";\n" : "", type, star, name);
  str_printf(a, &f->values, ", %s", value);
  f->type = type;
}

/* Those of the kernel's parameters and ranges that the class uses. */
static Fields fields(Tiles *t) {
  Emit *e = t->e;
  Kernel *k = t->k;
  Fields f = {.e = e};
  if (emit_uses(t->text.at, "cx")) field(&f, "const dtcu_Context", "*", "cx", "dtcu_device(cx)");
  for (int i = 0; i < k->param.n; i++) {
    const Param *p = &k->param.at[i];
    bool counter = p->place.kind == PLACE_COUNTER;
    if (!emit_uses(t->text.at, p->name)) continue;
    field(&f, counter ? "int64_t" : arena_printf(e->a, "%s%s", p->written ? "" : "const ", emit_ctype(p->dtype)),
          counter ? "" : "*", p->name, p->name);
  }
  for (int i = 0; i < k->range.n; i++) {
    const char *range[] = {k->range.at[i]->name, k->range.at[i]->count};
    for (int j = 0; j < 2; j++)
      if (range[j] && emit_uses(t->text.at, range[j])) field(&f, "int64_t", "", range[j], range[j]);
  }
  return f;
}

/* Declares the class, and makes one for `call`. */
static void end(Tiles *t, const char *call) {
  Emit *e = t->e;
  Kernel *k = t->k;
  const char *name = emit_name(e, &e->global, arena_printf(e->a, "%s_attention", k->name));
  Fields f = fields(t);
  str_printf(e->a, &k->device, "struct %s : dtcu_Attention {\n%s;\n%s};\n", name, f.fields.at, t->text.at);
  str_printf(e->a, &k->host, "const %s attention = {{%s, %s, %s, %s, %s}%s};\n%s", name, count(t, &t->outer), count(t, &t->query),
             count(t, &t->key), count(t, &t->dot), count(t, &t->feature), f.values.at, call);
}

Kernel *emit_attention_tiles(Emit *e, const Op *op) {
  Tiles *t = begin(e, op);
  const Type *out = &e->m->values.at[op->out[0]].type, *lse = &e->m->values.at[op->out[1]].type;
  place(t, "a", &t->outer, &t->query, &t->feature,
        arena_printf(e->a, "%s[%s]", emit_pointer(t->k, op->out[0], true), emit_own_offset(&t->s, out, 0)));
  place(t, "lse", &t->outer, &t->query, NULL,
        arena_printf(e->a, "%s[%s]", emit_pointer(t->k, op->out[1], true), row_offset(t, lse)));
  end(t, "dtcu_attention(cx, attention);\n");
  emit_kernel_end(t->k, op, "attention by tiles");
  return t->k;
}

/* ---- the gradient -------------------------------------------------------------------------------------------------------- */

/* Is every element of the gradient of a read written? */
static bool complete(const Op *op, const Expr *read, const Type *t) {
  for (int d = 0; d < read->nix; d++)
    if (!cg_same_part(&op->space.idx[ix_single(read->ix[d])], &t->dim[d]) ||
        op->space.idx[ix_single(read->ix[d])].range != t->dim[d].size)
      return false;
  return true;
}

/* Where the gradient of a read goes, and which outer indices it is added up over. */
static void gradient_of(Tiles *t, const char *what, int read, const Kind *row, const Kind *column) {
  Emit *e = t->e;
  const Expr *x = t->op->read[read];
  const Type *type = &e->m->values.at[t->op->out[read]].type;
  const char *p = emit_pointer(t->k, t->op->out[read], true);
  Kind kept = part_of_outer(t, x, false), looped = part_of_outer(t, x, true);
  if (!complete(t->op, x, type)) emit_zero(t->k, p, cg_bytes(type));
  place(t, arena_printf(e->a, "d%s", what), looped.n ? &kept : &t->outer, row, column,
        arena_printf(e->a, "%s[%s]", p, emit_offset(&t->s, type, x->nix, x->ix)));
  if (!looped.n) return;
  const char *outer = "0"; // its number, row-major
  for (int i = 0; i < t->outer.n; i++) {
    const Extent *o = &t->outer.x[i];
    outer = i == 0 ? o->name : arena_printf(e->a, "%s * %s + %s", emit_factor(e, outer), emit_factor(e, o->count), o->name);
  }
  const Kind *both[] = {&kept, &looped};
  LINE("__host__ __device__ int64_t looped_%s() const { return %s; }\n", what, count(t, &looped));
  LINE("__host__ __device__ int64_t kept_%s(int64_t) const { return %s; }\n", what, count(t, &kept));
  member(t, arena_printf(e->a, "int64_t outer_%s", what), 2, both, "", arena_printf(e->a, "return %s;\n", outer));
}

static void put_bias(void *cx, Scope *s, int w, const char *inside, const char *at, const char *value) {
  Str *out = cx;
  if (inside) str_printf(s->k->e->a, out, "if (%s) ", inside);
  str_printf(s->k->e->a, out, "sum[%d].put(%s, %s);\n", w, at, value);
}

/* Gradients of what the score reads besides `dot`. */
static void biases(Tiles *t) {
  Emit *e = t->e;
  const Op *op = t->op;
  Str puts = {0}, cells = {0}, elements = {0}, back = {0};
  const Kind *kind[] = {&t->outer, &t->query, &t->key};
  attention_slopes(&t->s, "g", put_bias, &puts);
  member(t, "void biases", 3, kind, ", T dot, T g, dtcu_BiasSum *sum", puts.at ? puts.at : "");
  for (int w = 0; w < op->nwrt; w++) {
    const Value *v = &e->m->values.at[op->out[3 + w]];
    const char *last = w + 1 < op->nwrt ? arena_printf(e->a, "at == %d ? ", w) : "";
    const char *then = *last ? " : " : "";
    str_printf(e->a, &cells, "%s%lld%s", last, (long long)bias_offset(e->m, op, w), then);
    str_printf(e->a, &elements, "%s%lld%s", last, (long long)type_capacity(&v->type), then);
    str_printf(e->a, &back, "if (at == %d) %s[element] = (%s)x;\n", w, emit_pointer(t->k, op->out[3 + w], true),
               emit_ctype(v->type.dtype));
  }
  long long largest = bias_offset(e->m, op, -1);
  LINE("__device__ unsigned long long *bias_cells(int at) const { return (unsigned long long *)(cx->workspace + (%s)); }\n",
       cells.at);
  LINE(
      "__device__ unsigned long long *bias_largest(int at) const { return (unsigned long long *)(cx->workspace + %lld) + at; }\n",
      largest);
  LINE("int64_t bias_elements(int at) const { return %s; }\n", elements.at);
  LINE("__device__ void bias_put(int at, int64_t element, double x) const {\n%s}\n", back.at);
  str_printf(e->a, &t->k->host, "dtcu_zero(cx, cx->workspace + %lld, %lld);\n", largest,
             (long long)bias_offset(e->m, op, op->nwrt) - largest);
}

Kernel *emit_attention_grad_tiles(Emit *e, const Op *op) {
  Tiles *t = begin(e, op);
  const Type *lse = &e->m->values.at[op->in[op->read[READ_LSE]->operand]].type;
  visible(t, "queries", &t->query, &t->key);
  load(t, "a", READ_A, &t->query, &t->feature);
  load(t, "da", READ_DA, &t->query, &t->feature);
  load(t, "lse", READ_LSE, &t->query, NULL);
  place(t, "mean", &t->outer, &t->query, NULL, arena_printf(e->a, "((T *)cx->workspace)[%s]", row_offset(t, lse)));
  const Kind *kind[] = {&t->outer, &t->query, &t->key};
  Expr *slope = attention_slope(e->a, op->body, NULL);
  member(t, "T slope", 3, kind, ", T dot, T g", arena_printf(e->a, "return %s;\n", attention_gradient_text(&t->s, slope, "g")));
  gradient_of(t, "q", READ_Q, &t->query, &t->dot);
  gradient_of(t, "k", READ_K, &t->key, &t->dot);
  gradient_of(t, "v", READ_V, &t->key, &t->feature);
  if (op->nwrt) biases(t);
  end(t, op->nwrt ? "dtcu_attention_grad(cx, attention);\ndtcu_attention_bias_grad(cx, attention);\n"
                  : "dtcu_attention_grad(cx, attention);\n");
  emit_kernel_end(t->k, op, "gradient of attention, scores made again by tiles");
  return t->k;
}
