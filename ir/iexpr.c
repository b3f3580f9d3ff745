/* iexpr.c: index expressions, c + sum of coef * atom. Every constructor returns a normal form, so that equal
   expressions print alike and compare by their terms:

     ix_add(2*i + 1, i - 1)        = 3*i
     ix_div(4*i + j + 5, 4)        = i + (j + 1) // 4 + 1
     ix_mod(4*i + j + 5, 4)        = (j + 1) % 4
     ix_add(4*(i // 4), i % 4)     = i

   These rules hold for all integers, since // and % round toward minus infinity. Rules that need to know the
   range of an index are in ix_narrow. Arithmetic saturates at +-FAR: no dim is as large, so such an
   expression counts as out of bounds wherever it is used. */
#include "ir/ir.h"

static IExpr *with_room(Arena *a, int terms) {
  IExpr *r = NEW(a, IExpr);
  r->term = NEW_ARRAY(a, Term, terms);
  return r;
}

static bool same_lists(int n, IExpr *const *x, int m, IExpr *const *y) {
  if (n != m) return false;
  for (int i = 0; i < n; i++)
    if (!ix_equal(x[i], y[i])) return false;
  return true;
}

static bool same_atom(const Term *x, const Term *y) {
  if (x->kind != y->kind) return false;
  switch (x->kind) {
  case ATOM_INDEX: return x->index == y->index;
  case ATOM_DIV:
  case ATOM_MOD: return x->k == y->k && ix_equal(x->sub, y->sub);
  case ATOM_VALUE: return x->operand == y->operand && same_lists(x->nat, x->at, y->nat, y->at);
  }
  return false;
}

static int find_atom(const IExpr *x, const Term *t) {
  for (int i = 0; i < x->n; i++)
    if (same_atom(&x->term[i], t)) return i;
  return -1;
}

bool ix_equal(const IExpr *x, const IExpr *y) {
  if (x->c != y->c || x->n != y->n) return false;
  for (int i = 0; i < x->n; i++) {
    int j = find_atom(y, &x->term[i]);
    if (j < 0 || x->term[i].coef != y->term[j].coef) return false;
  }
  return true;
}

IExpr *ix_const(Arena *a, int64_t c) {
  IExpr *r = NEW(a, IExpr);
  r->c = sat_clamp(c);
  return r;
}

static IExpr *of_atom(Arena *a, Term t) {
  IExpr *r = with_room(a, 1);
  r->n = 1;
  t.coef = 1;
  r->term[0] = t;
  return r;
}

IExpr *ix_index(Arena *a, int index) { return of_atom(a, (Term){.kind = ATOM_INDEX, .index = index}); }

IExpr *ix_value(Arena *a, int operand, int n, IExpr **at) {
  IExpr **copy = NEW_ARRAY(a, IExpr *, n);
  for (int i = 0; i < n; i++) copy[i] = at[i];
  return of_atom(a, (Term){.kind = ATOM_VALUE, .operand = operand, .nat = n, .at = copy});
}

/* Appends coef * atom to r, which has room. */
static void add_term(IExpr *r, Term t) {
  int at = find_atom(r, &t);
  if (at < 0) {
    if (t.coef) r->term[r->n++] = t;
    return;
  }
  r->term[at].coef = sat_add(r->term[at].coef, t.coef);
  if (r->term[at].coef) return;
  r->n--;
  for (int i = at; i < r->n; i++) r->term[i] = r->term[i + 1];
}

/* f * k * (x // k) + f * (x % k) is f * x: what is left of a dim that was split and merged again. */
static IExpr *join_splits(Arena *a, IExpr *r) {
  for (int i = 0; i < r->n; i++) {
    if (r->term[i].kind != ATOM_MOD) continue;
    Term mod = r->term[i], div = mod;
    div.kind = ATOM_DIV;
    int j = find_atom(r, &div);
    if (j < 0 || r->term[j].coef != sat_mul(mod.coef, mod.k)) continue;
    IExpr *rest = with_room(a, r->n);
    rest->c = r->c;
    for (int k = 0; k < r->n; k++)
      if (k != i && k != j) rest->term[rest->n++] = r->term[k];
    return ix_add(a, rest, ix_scale(a, mod.sub, mod.coef));
  }
  return r;
}

IExpr *ix_add(Arena *a, const IExpr *x, const IExpr *y) {
  IExpr *r = with_room(a, x->n + y->n);
  r->c = sat_add(x->c, y->c);
  for (int i = 0; i < x->n; i++) add_term(r, x->term[i]);
  for (int i = 0; i < y->n; i++) add_term(r, y->term[i]);
  return join_splits(a, r);
}

IExpr *ix_scale(Arena *a, const IExpr *x, int64_t k) {
  IExpr *r = with_room(a, x->n);
  if (k == 0) return r;
  r->c = sat_mul(x->c, k);
  for (int i = 0; i < x->n; i++) {
    r->term[r->n] = x->term[i];
    r->term[r->n++].coef = sat_mul(x->term[i].coef, k);
  }
  return r;
}

/* x = k * whole + rest, where rest has the terms that k does not divide and a constant in [0, k). */
static void divide(Arena *a, const IExpr *x, int64_t k, IExpr **whole, IExpr **rest) {
  *whole = with_room(a, x->n);
  *rest = with_room(a, x->n);
  (*whole)->c = floor_div(x->c, k);
  (*rest)->c = floor_mod(x->c, k);
  for (int i = 0; i < x->n; i++) {
    bool divides = x->term[i].coef % k == 0;
    IExpr *to = divides ? *whole : *rest;
    to->term[to->n] = x->term[i];
    if (divides) to->term[to->n].coef /= k;
    to->n++;
  }
}

static const Term *lone_atom(const IExpr *x, AtomKind kind) {
  return x->n == 1 && x->c == 0 && x->term[0].coef == 1 && x->term[0].kind == kind ? &x->term[0] : NULL;
}

IExpr *ix_div(Arena *a, const IExpr *x, int64_t k) {
  assert(k > 0 && "// is by a positive constant");
  IExpr *whole, *rest;
  divide(a, x, k, &whole, &rest);
  if (rest->n == 0) return whole;
  const Term *inner = lone_atom(rest, ATOM_DIV); /* x // j // k = x // (j * k) */
  Term t = {.kind = ATOM_DIV, .sub = rest, .k = k};
  if (inner) t.sub = inner->sub, t.k = sat_mul(inner->k, k);
  return ix_add(a, whole, of_atom(a, t));
}

IExpr *ix_mod(Arena *a, const IExpr *x, int64_t k) {
  assert(k > 0 && "% is by a positive constant");
  IExpr *whole, *rest;
  divide(a, x, k, &whole, &rest);
  if (rest->n == 0) return ix_const(a, rest->c);
  const Term *inner = lone_atom(rest, ATOM_MOD); /* x % (j * k) % k = x % k */
  if (inner && inner->k % k == 0) return ix_mod(a, inner->sub, k);
  return of_atom(a, (Term){.kind = ATOM_MOD, .sub = rest, .k = k});
}

int ix_single(const IExpr *x) {
  const Term *t = lone_atom(x, ATOM_INDEX);
  return t ? t->index : -1;
}

bool ix_uses(const IExpr *x, int index) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_INDEX && t->index == index) return true;
    if (t->sub && ix_uses(t->sub, index)) return true;
    for (int j = 0; j < t->nat; j++)
      if (ix_uses(t->at[j], index)) return true;
  }
  return false;
}

bool ix_by_value(const IExpr *x) {
  for (int i = 0; i < x->n; i++)
    if (x->term[i].kind == ATOM_VALUE || (x->term[i].sub && ix_by_value(x->term[i].sub))) return true;
  return false;
}

static void atom_range(const Term *t, const int64_t *lo, const int64_t *hi, int64_t *min, int64_t *max) {
  *min = -FAR, *max = FAR;
  if (t->kind == ATOM_INDEX) *min = lo[t->index], *max = max_i64(hi[t->index] - 1, lo[t->index]);
  if (t->kind != ATOM_DIV && t->kind != ATOM_MOD) return;
  int64_t from, to;
  ix_range(t->sub, lo, hi, &from, &to);
  int64_t qlo = floor_div(from, t->k), qhi = floor_div(to, t->k);
  if (t->kind == ATOM_DIV)
    *min = qlo, *max = qhi;
  else if (qlo == qhi)
    *min = floor_mod(from, t->k), *max = floor_mod(to, t->k);
  else
    *min = 0, *max = t->k - 1;
}

void ix_range(const IExpr *x, const int64_t *lo, const int64_t *hi, int64_t *min, int64_t *max) {
  *min = *max = x->c;
  for (int i = 0; i < x->n; i++) {
    int64_t from, to, k = x->term[i].coef;
    atom_range(&x->term[i], lo, hi, &from, &to);
    *min = sat_add(*min, sat_mul(k, k > 0 ? from : to));
    *max = sat_add(*max, sat_mul(k, k > 0 ? to : from));
  }
}

void ix_bounds(const IExpr *x, const Space *s, int64_t *min, int64_t *max) {
  int64_t lo[MAX_INDEX] = {0}, hi[MAX_INDEX];
  for (int i = 0; i < s->n; i++) hi[i] = s->idx[i].range;
  ix_range(x, lo, hi, min, max);
}

/* Rebuilds x with its atoms mapped bottom up: indices by by[], operands by map[], and, given a space, // and %
   dropped where bounds decide them. */
typedef struct {
  Arena *a;
  IExpr *const *by;
  const int *map;
  const Space *space;
} Rewrite;

static IExpr *rewrite(const Rewrite *w, const IExpr *x);

static IExpr *rewrite_split(const Rewrite *w, const Term *t) {
  IExpr *sub = rewrite(w, t->sub);
  int64_t lo = 0, hi = FAR;
  if (w->space) ix_bounds(sub, w->space, &lo, &hi);
  int64_t q = floor_div(lo, t->k);
  bool decided = w->space && q == floor_div(hi, t->k);
  if (t->kind == ATOM_DIV) return decided ? ix_const(w->a, q) : ix_div(w->a, sub, t->k);
  return decided ? ix_add(w->a, sub, ix_const(w->a, sat_mul(-q, t->k))) : ix_mod(w->a, sub, t->k);
}

static IExpr *rewrite_atom(const Rewrite *w, const Term *t) {
  if (t->kind == ATOM_INDEX) return w->by && w->by[t->index] ? w->by[t->index] : ix_index(w->a, t->index);
  if (t->kind != ATOM_VALUE) return rewrite_split(w, t);
  IExpr **at = NEW_ARRAY(w->a, IExpr *, t->nat);
  for (int i = 0; i < t->nat; i++) at[i] = rewrite(w, t->at[i]);
  return ix_value(w->a, w->map ? w->map[t->operand] : t->operand, t->nat, at);
}

static IExpr *rewrite(const Rewrite *w, const IExpr *x) {
  IExpr *r = ix_const(w->a, 0);
  for (int i = 0; i < x->n; i++) r = ix_add(w->a, r, ix_scale(w->a, rewrite_atom(w, &x->term[i]), x->term[i].coef));
  r->c = sat_add(r->c, x->c);
  return r;
}

IExpr *ix_substitute(Arena *a, const IExpr *x, IExpr *const *by, const int *operand_map) {
  return rewrite(&(Rewrite){a, by, operand_map, NULL}, x);
}

IExpr *ix_narrow(Arena *a, const IExpr *x, const Space *s) { return rewrite(&(Rewrite){a, NULL, NULL, s}, x); }
