/* emit_ops_cuda.c: the kernels of scatter_add, argmax, topk, scan, random and slice in CUDA. Each is dealt out over what it
   writes, so that nothing is written by two threads and every sum has one order:

     scatter_add   a block has a row of the result, looks through all that is added anywhere, 256 at a time, and adds what
                   is for its row, in order
     argmax, topk  a block has a row: its threads share what is selected from; topk is the largest, then the largest
                   behind that, and so on
     scan          a block has a line, and carries the sum from 256 elements to the next
     random        a thread has the four numbers that are drawn together
     slice         a thread has an element                                                                        */
#include "emit_ops.h"
#include "emit_spread.h"

#define LINE(...) str_printf(e->a, &k->body, __VA_ARGS__)

static const Type *out_type(const Emit *e, const Op *op, int i) { return &e->m->values.at[op->out[i]].type; }

static int extents(Scope *s, const int *index, int n, Extent *x) {
  for (int i = 0; i < n; i++) x[i] = emit_extent(s, index[i]);
  return n;
}

static int index_range(int from, int to, int *index) {
  for (int i = from; i < to; i++) index[i - from] = i;
  return to - from;
}

/* ---- scatter_add --------------------------------------------------------------------------------------------------- */

/* Which indices say what of the result a block has (rows, columns), and which what is added to it (items). */
typedef struct {
  int nrow, row[MAX_INDEX], ncolumn, column[MAX_INDEX], nitem, item[MAX_INDEX];
} Scatter;

/* A dim of the result is a column where no row depends on its index: threads lie along these. */
static Scatter scatter_shape(const Op *op) {
  Scatter t = {0};
  int first = op->space.nout;
  for (bool free = true; first > 0 && free; first -= free) {
    free = !ix_by_value(op->into[first - 1]);
    for (int d = 0; d < op->space.nout; d++) free &= !ix_by_value(op->into[d]) || !ix_uses(op->into[d], first - 1);
  }
  t.nrow = index_range(0, first, t.row);
  t.ncolumn = index_range(first, op->space.nout, t.column);
  t.nitem = index_range(op->space.nout, op->space.n, t.item);
  return t;
}

/* Is item number `number` added to this row? Prints what finds out and returns the condition. */
static const char *is_for_row(Scope *s, const Op *op, const Type *t) {
  Emit *e = s->k->e;
  Str c = {0};
  for (int d = 0; d < op->space.nout; d++) {
    if (!ix_by_value(op->into[d])) continue;
    emit_hoist_dim(s, op->into[d], t, d, false);
    str_printf(e->a, &c, "%s%s == %s", c.n ? " && " : "", s->hoisted.at[s->hoisted.n - 1].local, s->var[d].name);
  }
  return c.n ? c.at : "true";
}

Kernel *emit_scatter_cuda(Emit *e, const Op *op) {
  Scope s;
  Kernel *k = emit_simple(e, op, "at from hit hits list total part column i shared", &s);
  const Type *t = out_type(e, op, 0);
  const char *out = emit_pointer(k, op->out[0], true), *type = emit_ctype(op->body->dtype);
  Scatter x = scatter_shape(op);
  Extent rows[MAX_INDEX + 1], columns[MAX_INDEX], items[MAX_INDEX];
  int nrow = extents(&s, x.row, x.nrow, rows), ncolumn = extents(&s, x.column, x.ncolumn, columns),
      nitem = extents(&s, x.item, x.nitem, items);
  // threads: `wide` columns, and what is left of the block shares the items
  int threads = emit_threads(max_i64(emit_most(ncolumn, columns), emit_most(nitem, items))),
      wide = (int)min_i64(emit_most(ncolumn, columns), threads), share = threads / wide;
  const char *ncol = emit_count(e, ncolumn, columns), *number = emit_number_type(nitem, items), *n = emit_count(e, nitem, items);
  long long parts = (emit_most(ncolumn, columns) + wide - 1) / wide;
  rows[nrow] = (Extent){"part", arena_printf(e->a, "%lld", parts), parts};
  const char *grid = emit_by_blocks(k, nrow + 1, rows);
  LINE("DTCU_SHARED(%s, list, %d);\n", number, threads);
  if (share > 1) LINE("DTCU_SHARED(%s, shared, %d);\n", type, threads);
  LINE("const int64_t column = part * %d + threadIdx.x %% %d;\n%s total = 0;\n", wide, wide, type);
  LINE("for (%s from = 0; from < %s; from += %d) {\nconst %s at = from + threadIdx.x;\nbool hit = false;\nif (at < %s) {\n",
       number, n, threads, number, n);
  Str now = {0};
  s.now = &now;
  const char *hit = is_for_row(&s, op, t);
  str_printf(e->a, &now, "hit = %s;\n}\n", hit);
  emit_unravel(k, &k->body, "at", nitem, items, now.at);
  LINE("%s", now.at);
  LINE("const int hits = dtcu_block_list(hit, at, list);\nif (column < %s) {\n", ncol);
  s.hoisted.n = 0;
  const char *value = emit_expr(&s, op->body);
  emit_unravel(k, &k->body, "column", ncolumn, columns, value);
  LINE("for (int i = threadIdx.x / %d; i < hits; i += %d) {\n", wide, share);
  emit_unravel(k, &k->body, "list[i]", nitem, items, value);
  LINE("total += %s;\n}\n}\n}\n", value);
  if (share > 1) {
    LINE("shared[threadIdx.x] = total;\n__syncthreads();\n");
    LINE("for (int i = threadIdx.x + %d; threadIdx.x < %d && i < %d; i += %d) total += shared[i];\n", wide, wide, share * wide,
         wide);
    LINE("__syncthreads();\n");
  }
  LINE("if (threadIdx.x < %d && column < %s) {\n", wide, ncol);
  emit_unravel(k, &k->body, "column", ncolumn, columns, NULL);
  LINE("%s[%s] = total;\n}\n}\n", out, emit_own_offset(&s, t, 0));
  emit_launch(k, grid, threads);
  emit_kernel_end(k, op, "adds by value, in order");
  return k;
}

/* ---- selection ------------------------------------------------------------------------------------------------------- */

/* A block goes through a row's candidates, each thread through every so many: opens the loop in which `x` and its
   number `place` are known. */
static void candidates(Scope *s, int threads) {
  Kernel *k = s->k;
  Emit *e = k->e;
  const Op *op = s->op;
  Extent x[MAX_INDEX];
  int index[MAX_INDEX], n = extents(s, index, index_range(op->space.nout, op->space.n, index), x);
  LINE("for (int64_t i = threadIdx.x; i < %s; i += %d) {\n", emit_count(e, n, x), threads);
  emit_unravel(k, &k->body, "i", n, x, NULL);
  emit_hoist(s);
  const char *value = emit_expr(s, op->body);
  LINE("const %s x = %s;\nconst int64_t place = %s;\n", emit_ctype(op->body->dtype), value, emit_reduced_number(s));
}

static int64_t ncandidates(const Op *op) {
  int64_t n = 1;
  for (int i = op->space.nout; i < op->space.n; i++) n = sat_mul(n, cg_capacity(&op->space.idx[i]));
  return n;
}

Kernel *emit_argmax_cuda(Emit *e, const Op *op) {
  Scope s;
  Kernel *k = emit_simple(e, op, "best at i x place", &s);
  const char *out = emit_pointer(k, op->out[0], true);
  int threads = emit_threads(ncandidates(op)), index[MAX_INDEX];
  Extent rows[MAX_INDEX];
  const char *grid = emit_by_blocks(k, extents(&s, index, index_range(0, op->space.nout, index), rows), rows);
  LINE("%s best = 0;\nint64_t at = -1;\n", emit_ctype(op->body->dtype));
  candidates(&s, threads);
  LINE("dtcu_first(&best, &at, x, place);\n}\ndtcu_block_first(&best, &at);\n");
  LINE("if (threadIdx.x == 0) %s[%s] = (int32_t)(at < 0 ? 0 : at);\n}\n", out, emit_own_offset(&s, out_type(e, op, 0), 0));
  emit_launch(k, grid, threads);
  emit_kernel_end(k, op, "where the largest is, the first among equals");
  return k;
}

/* Winner j is the first in descending order that comes behind winner j - 1. */
Kernel *emit_topk_cuda(Emit *e, const Op *op) {
  Scope s;
  Kernel *k = emit_simple(e, op, "best at last last_at i x place", &s);
  int j = op->space.nout - 1, threads = emit_threads(ncandidates(op)), index[MAX_INDEX];
  const char *type = emit_ctype(op->body->dtype), *v = emit_pointer(k, op->out[0], true), *w = emit_pointer(k, op->out[1], true);
  Extent rows[MAX_INDEX];
  const char *grid = emit_by_blocks(k, extents(&s, index, index_range(0, j, index), rows), rows);
  LINE("%s last = 0;\nint64_t last_at = -1;\n", type);
  emit_for(&s, j);
  LINE("%s best = 0;\nint64_t at = -1;\n", type);
  candidates(&s, threads);
  LINE("if (last_at < 0 || dtcu_before(last, last_at, x, place)) dtcu_first(&best, &at, x, place);\n}\n");
  LINE("dtcu_block_first(&best, &at);\nlast = best, last_at = at;\nif (threadIdx.x == 0) {\n");
  LINE("%s[%s] = best;\n%s[%s] = (int32_t)at;\n}\n}\n}\n", v, emit_own_offset(&s, out_type(e, op, 0), 0), w,
       emit_own_offset(&s, out_type(e, op, 1), 0));
  emit_launch(k, grid, threads);
  emit_kernel_end(k, op, "the largest, in descending order");
  return k;
}

/* ---- scan -------------------------------------------------------------------------------------------------------------- */

Kernel *emit_scan_cuda(Emit *e, const Op *op) {
  Scope s;
  Kernel *k = emit_simple(e, op, "from step carry total sum here", &s);
  const char *out = emit_pointer(k, op->out[0], true), *type = emit_ctype(op->body->dtype), *i = s.var[op->along].name;
  Extent lines[MAX_INDEX], along = emit_extent(&s, op->along);
  int n = 0, threads = emit_threads(along.most);
  for (int o = 0; o < op->space.nout; o++)
    if (o != op->along) lines[n++] = emit_extent(&s, o);
  const char *grid = emit_by_blocks(k, n, lines);
  LINE("%s carry = 0;\nfor (int64_t from = 0; from < %s; from += %d) {\n", type, along.count, threads);
  LINE("const int64_t step = from + threadIdx.x, %s = %s%s;\nconst bool here = step < %s;\n", i,
       op->reverse ? arena_printf(e->a, "%s - 1 - ", along.count) : "", "step", along.count);
  LINE("%s sum = 0, total;\nif (here) {\n", type);
  emit_hoist(&s);
  const char *value = emit_expr(&s, op->body);
  LINE("sum = %s;\n}\nsum = carry + dtcu_block_scan(sum, &total);\ncarry += total;\n", value);
  LINE("if (here) %s[%s] = sum;\n}\n}\n", out, emit_own_offset(&s, out_type(e, op, 0), 0));
  emit_launch(k, grid, threads);
  emit_kernel_end(k, op, "running sums");
  return k;
}

/* ---- random ------------------------------------------------------------------------------------------------------------ */

/* The last dims whose elements are numbered one after the other on this rank as in the whole are one run. */
Kernel *emit_random_cuda(Emit *e, const Op *op) {
  Scope s;
  Kernel *k = emit_simple(e, op, "site counter quad run", &s);
  const char *out = emit_pointer(k, op->out[0], true);
  int first = max_i64(op->space.nout - 1, 0);
  while (first > 0 && !cg_is_split(&op->space.idx[first].split)) first--;
  Extent x[MAX_INDEX + 1], run[MAX_INDEX];
  int index[MAX_INDEX], n = extents(&s, index, index_range(0, first, index), x),
                        nrun = extents(&s, index, index_range(first, op->space.nout, index), run);
  x[n] = (Extent){"quad", arena_printf(e->a, "(%s / 4 + 2)", emit_count(e, nrun, run)), emit_most(nrun, run) / 4 + 2};
  int opened;
  emit_random_site(k, op, "site", "counter");
  const char *grid = emit_by_threads(k, 256, n + 1, x, NULL, &opened);
  for (int i = first; i < op->space.nout; i++) s.var[i].name = "0";
  LINE("dtcu_random_quad(site, %s, %s + %s, %s, %s, quad);\n}\n", op->init == INIT_NORMAL ? "true" : "false", out,
       emit_own_offset(&s, out_type(e, op, 0), 0), emit_count(e, nrun, run), emit_index(&s, emit_element_number(e, op)));
  emit_launch(k, grid, 256);
  emit_kernel_end(k, op, "random numbers");
  return k;
}
