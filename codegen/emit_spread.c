/* emit_spread.c: CUDA deals out several counts at once: their combinations are numbered row-major, a thread or a block
   takes every so many of them, and the counts are got back from the number.

     b < 8, t < 128, d < t_n     for (unsigned item = blockIdx.x * 256 + threadIdx.x; item < 8 * 128 * t_n; item += gridDim.x *
   256) { const int64_t d = item % t_n, t = item / t_n % 128, b = item / t_n / 128;

   Numbers have 32 bits where the most there can be allows it: division is several times faster. */
#include <stdlib.h>

#include "emit_spread.h"

enum { MOST_BLOCKS = 1 << 16 };

Extent emit_extent(Scope *s, int index) {
  const Var *v = &s->var[index];
  return (Extent){v->name, emit_n(s->k, v->range), cg_capacity(&s->op->space.idx[index])};
}

static bool is_word(const char *x) {
  return strspn(x, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == strlen(x);
}

bool emit_is_number(const char *x) { return strspn(x, "0123456789") == strlen(x); }

const char *emit_factor(Emit *e, const char *x) { return is_word(x) ? x : arena_printf(e->a, "(%s)", x); }

/* a * b, with ones and constants folded. */
static const char *product(Emit *e, const char *a, const char *b) {
  if (!strcmp(a, "1")) return b;
  if (!strcmp(b, "1")) return a;
  if (emit_is_number(a) && emit_is_number(b)) return arena_printf(e->a, "%lld", (long long)sat_mul(atoll(a), atoll(b)));
  return arena_printf(e->a, "%s * %s", a, emit_factor(e, b));
}

const char *emit_count(Emit *e, int n, const Extent *x) {
  const char *c = "1";
  for (int i = 0; i < n; i++) c = product(e, c, x[i].count);
  return c;
}

int64_t emit_most(int n, const Extent *x) {
  int64_t c = 1;
  for (int i = 0; i < n; i++) c = sat_mul(c, max_i64(1, x[i].most));
  return c;
}

const char *emit_number_type(int n, const Extent *x) { return emit_most(n, x) <= INT32_MAX ? "unsigned" : "int64_t"; }

/* What a number of so many bits is divided by has as many. */
static const char *divisor(Emit *e, const char *by, const char *type) {
  bool as_is = emit_is_number(by) || !strcmp(type, "int64_t");
  return as_is ? emit_factor(e, by) : arena_printf(e->a, "(%s)%s", type, emit_factor(e, by));
}

/* One of n coordinates that row-major number `number` stands for; `behind`: how many the later ones have together. */
static const char *coordinate_of(Emit *e, const char *number, int n, int i, const Extent *x, const char *behind) {
  if (!strcmp(x[i].count, "1")) return "0";
  const char *at = number, *type = emit_number_type(n, x);
  if (strcmp(behind, "1")) at = arena_printf(e->a, "%s / %s", at, divisor(e, behind, type));
  bool first = true; // what is left is less than the count
  for (int j = 0; j < i; j++) first &= !strcmp(x[j].count, "1");
  return first ? at : arena_printf(e->a, "%s %% %s", at, divisor(e, x[i].count, type));
}

void emit_unravel(Kernel *k, Str *out, const char *number, int n, const Extent *x, const char *user) {
  Emit *e = k->e;
  const char *behind = "1";
  Str line = {0};
  for (int i = n - 1; i >= 0; i--) {
    if ((!user || emit_uses(user, x[i].name)) && strcmp(x[i].name, number))
      str_printf(e->a, &line, "%s%s = %s", line.n ? ", " : "const int64_t ", x[i].name,
                 coordinate_of(e, number, n, i, x, behind));
    behind = product(e, behind, x[i].count);
  }
  if (line.n) str_printf(e->a, out, "%s;\n", line.at);
}

static const char *blocks(Emit *e, int64_t items, int64_t threads) {
  return arena_printf(e->a, "%lld", (long long)max_i64(1, min_i64(MOST_BLOCKS, (items + threads - 1) / threads)));
}

const char *emit_by_threads(Kernel *k, int threads, int n, const Extent *x, const Str *inside, int *opened) {
  Emit *e = k->e;
  *opened = e->m->target == TARGET_C ? n : 1;
  if (e->m->target == TARGET_C) {
    for (int i = 0; i < n; i++)
      str_printf(e->a, &k->body, "for (int64_t %s = 0; %s < %s; %s++) {\n%s", x[i].name, x[i].name, x[i].count, x[i].name,
                 inside && inside[i].at ? inside[i].at : "");
    return "";
  }
  const char *item = emit_name(e, &k->local, "item");
  str_printf(e->a, &k->body, "for (%s %s = blockIdx.x * %d + threadIdx.x; %s < %s; %s += gridDim.x * %d) {\n",
             emit_number_type(n, x), item, threads, item, emit_count(e, n, x), item, threads);
  emit_unravel(k, &k->body, item, n, x, NULL);
  if (inside && inside[0].at) str_put(e->a, &k->body, inside[0].at);
  return blocks(e, emit_most(n, x), threads);
}

const char *emit_by_blocks(Kernel *k, int n, const Extent *x) {
  Emit *e = k->e;
  const char *item = emit_name(e, &k->local, "item");
  str_printf(e->a, &k->body, "for (%s %s = blockIdx.x; %s < %s; %s += gridDim.x) {\n", emit_number_type(n, x), item, item,
             emit_count(e, n, x), item);
  emit_unravel(k, &k->body, item, n, x, NULL);
  return blocks(e, emit_most(n, x), 1);
}

int emit_threads(int64_t items) { return (int)max_i64(32, min_i64(256, (items + 31) / 32 * 32)); }
