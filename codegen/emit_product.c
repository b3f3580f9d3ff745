/* emit_product.c: a matrix product as calls of dtrt_gemm. With constant sizes and nothing to loop over it is one call
   in the caller; else a function with the loops.

     dtrt_gemm(cx, false, false, 1024, 128, 128, 1.0f, n, 128, wq, 128, 0.0f, q, 128);                            */
#include "emit.h"

typedef struct {
  Emit *e;
  Kernel *k;
  const Op *op;
  Product p;
  const char *var[MAX_INDEX];
} Gemm;

static Range *range_of(Gemm *g, int i) {
  const Index *x = &g->op->space.idx[i];
  return emit_range(g->k, x->range, &x->split, x->name);
}

static const char *run_count(Gemm *g, const Run *r) {
  int64_t c = 1;
  const char *n = NULL;
  for (int i = 0; i < r->n; i++) {
    const Index *x = &g->op->space.idx[r->index[i]];
    if (cg_even(x))
      c *= cg_capacity(x);
    else
      n = emit_n(g->k, range_of(g, r->index[i]));
  }
  if (!n) return arena_printf(g->e->a, "%lld", (long long)c);
  return c == 1 ? n : arena_printf(g->e->a, "%s * %lld", n, (long long)c);
}

/* How far into a dim's part the index's part begins. */
static const char *origin(Gemm *g, int i, const Dim *dim) {
  Range *r = emit_range(g->k, dim->size, &dim->split, dim->name ? dim->name : "part");
  const char *lo = emit_lo(g->k, range_of(g, i)), *from = emit_lo(g->k, r);
  return strcmp(from, "0") ? emit_sum(g->e, lo, arena_printf(g->e->a, "-%s", from)) : lo;
}

/* Where an operand begins: its pointer, plus the outer loops, plus where the rank's indices begin in dims that are not
   split as they are. */
static const char *start(Gemm *g, const char *pointer, const int64_t *stride, const Dim *const *shift) {
  Emit *e = g->e;
  const char *sum = "0";
  for (int i = 0; i < g->op->space.n; i++) {
    if (stride[i] == 0) continue;
    const char *at = "0";
    if (shift && shift[i]) at = origin(g, i, shift[i]);
    if (g->var[i]) at = emit_sum(e, at, g->var[i]);
    if (!strcmp(at, "0")) continue;
    sum = emit_sum(e, sum,
                   stride[i] == 1 ? at
                                  : arena_printf(e->a, strchr(at, ' ') ? "(%s) * %lld" : "%s * %lld", at, (long long)stride[i]));
  }
  return strcmp(sum, "0") ? arena_printf(e->a, "%s + %s", pointer, sum) : pointer;
}

static const char *truth(bool b) { return b ? "true" : "false"; }

/* The call in four pieces, with the pointers to A, B and C between them. */
static void pieces(Gemm *g) {
  Emit *e = g->e;
  const Product *p = &g->p;
  const char *m = run_count(g, &p->m), *n = run_count(g, &p->n), *k = run_count(g, &p->k);
  const char *beta = p->accumulates ? "1.0f" : "0.0f";
  const char **piece = g->k->piece;
  if (p->batch < 0) {
    piece[0] = arena_printf(e->a, "dtrt_gemm(cx, %s, %s, %s, %s, %s, 1.0f, ", truth(p->ta), truth(p->tb), m, n, k);
    piece[1] = arena_printf(e->a, ", %lld, ", (long long)p->lda);
    piece[2] = arena_printf(e->a, ", %lld, %s, ", (long long)p->ldb, beta);
    piece[3] = arena_printf(e->a, ", %lld)", (long long)p->ldc);
    return;
  }
  int b = p->batch;
  piece[0] = arena_printf(e->a, "dtrt_gemm_batch(cx, %s, %s, %s, %s, %s, %s, 1.0f, ", emit_n(g->k, range_of(g, b)), truth(p->ta),
                          truth(p->tb), m, n, k);
  piece[1] = arena_printf(e->a, ", %lld, %lld, ", (long long)p->lda, (long long)p->sa[b]);
  piece[2] = arena_printf(e->a, ", %lld, %lld, %s, ", (long long)p->ldb, (long long)p->sb[b], beta);
  piece[3] = arena_printf(e->a, ", %lld, %lld)", (long long)p->ldc, (long long)p->sc[b]);
}

static bool needs_function(const Gemm *g) {
  for (int i = 0; i < g->k->range.n; i++)
    if (g->k->range.at[i]->used) return true;
  return g->p.nouter > (g->p.batch >= 0) || g->p.accumulates;
}

Kernel *emit_product(Emit *e, const Op *op) {
  Gemm g = {.e = e, .op = op};
  if (!cg_product(e->m, op, &g.p)) internal_error("not a matrix product");
  const Product *p = &g.p;
  g.k = NEW(e->a, Kernel);
  g.k->e = e;
  const char *a = emit_pointer(g.k, op->in[p->a], false), *b = emit_pointer(g.k, op->in[p->b], false),
             *c = emit_pointer(g.k, op->out[0], true);
  pieces(&g);
  bool shifted = strcmp(start(&g, "", p->sa, p->shift_a), "") || strcmp(start(&g, "", p->sb, p->shift_b), "");
  if (!needs_function(&g) && !shifted) return g.k;
  Kernel *named = emit_kernel(e, op, e->m->values.at[op->out[0]].name);
  g.k->name = named->name;
  Str *out = &g.k->body;
  g.k->on_host = true;
  if (p->accumulates) emit_zero(g.k, c, cg_bytes(&e->m->values.at[op->out[0]].type));
  int opened = 0;
  for (int i = 0; i < p->nouter; i++) {
    int x = p->outer[i];
    if (x == p->batch) continue;
    g.var[x] = emit_name(e, &g.k->local, op->space.idx[x].name);
    str_printf(e->a, out, "for (int64_t %s = 0; %s < %s; %s++) {\n", g.var[x], g.var[x], emit_n(g.k, range_of(&g, x)), g.var[x]);
    opened++;
  }
  const char **piece = g.k->piece;
  str_printf(e->a, out, "%s%s%s%s%s%s%s;\n", piece[0], start(&g, a, p->sa, p->shift_a), piece[1], start(&g, b, p->sb, p->shift_b),
             piece[2], start(&g, c, p->sc, NULL), piece[3]);
  piece[0] = NULL;
  for (; opened > 0; opened--) str_put(e->a, out, "}\n");
  emit_kernel_end(g.k, op, "a matrix product");
  return g.k;
}
