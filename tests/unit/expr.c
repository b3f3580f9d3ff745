/* expr.c: index expressions in normal form, their bounds and substitution; what folds in a body and what must not. */
#include "ir/ir.h"
#include "unit.h"

#include <math.h>

typedef struct {
  Arena *a;
  Space s; /* i: 8, j: 4, k: 3 */
  Module *m;
  Op *op;
} Fixture;

static Fixture fixture(void) {
  Fixture f = {.a = arena_new(), .s = {.n = 3, .nout = 3, .idx = {{"i", NULL, 8}, {"j", NULL, 4}, {"k", NULL, 3}}}};
  f.m = ir_module(f.a);
  f.op = ir_op(f.m, OP_NEST, (Loc){0});
  f.op->space = f.s;
  ir_in(f.m, f.op, ir_value(f.m, "x", (Type){F32, 1, {{NULL, 8, {0}}}, {0}}, (Loc){0}));
  return f;
}

static void check_body_text(Fixture *f, Expr *x, const char *expected) {
  f->op->body = x;
  const char *text = ir_print_op(f->m, f->op, f->a);
  CHECK_STR(text + strlen("nest "), expected);
}

static void check_index_text(Fixture *f, IExpr *x, const char *expected) {
  check_body_text(f, ex_index(f->a, x), arena_printf(f->a, "idx(%s)", expected));
}

#define I(n) ix_index(f.a, n)
#define C(n) ix_const(f.a, n)
#define ADD(x, y) ix_add(f.a, x, y)
#define MUL(x, n) ix_scale(f.a, x, n)
#define DIV(x, n) ix_div(f.a, x, n)
#define MOD(x, n) ix_mod(f.a, x, n)

UNIT(index_expressions_have_a_normal_form) {
  Fixture f = fixture();
  check_index_text(&f, ADD(ADD(MUL(I(0), 2), C(1)), ADD(I(0), C(-1))), "3*i");
  check_index_text(&f, ADD(I(0), MUL(I(0), -1)), "0");
  check_index_text(&f, ADD(C(7), MUL(I(0), -1)), "7 - i");
  check_index_text(&f, DIV(ADD(ADD(MUL(I(0), 4), I(1)), C(5)), 4), "i + (j + 1) // 4 + 1");
  check_index_text(&f, MOD(ADD(ADD(MUL(I(0), 4), I(1)), C(5)), 4), "(j + 1) % 4");
  check_index_text(&f, ADD(MUL(DIV(I(0), 4), 4), MOD(I(0), 4)), "i");
  check_index_text(&f, ADD(MOD(ADD(I(0), C(1)), 4), MUL(DIV(ADD(I(0), C(1)), 4), 4)), "i + 1");
  check_index_text(&f, DIV(DIV(I(0), 2), 3), "i // 6");
  check_index_text(&f, MOD(MOD(I(0), 6), 3), "i % 3");
  check_index_text(&f, DIV(I(0), 1), "i");
  check_index_text(&f, MOD(I(0), 1), "0");
  check_index_text(&f, DIV(C(-1), 4), "-1");
  check_index_text(&f, MOD(C(-1), 4), "3");
  CHECK(ix_equal(ADD(I(0), I(1)), ADD(I(1), I(0))));
  CHECK(!ix_equal(ADD(I(0), I(1)), ADD(I(1), MUL(I(0), 2))));
  CHECK_EQ(ix_single(ADD(I(2), C(0))), 2);
  CHECK_EQ(ix_single(MUL(I(2), 2)), -1);
  arena_free(f.a);
}

/* Every rule of the normal form against plain arithmetic: a random tree is built by the constructors and evaluated
   as built and as normalised, at points of all signs. */
static int64_t value(const IExpr *x, const int64_t *at) {
  int64_t v = x->c;
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    int64_t sub = t->sub ? value(t->sub, at) : at[t->index];
    v += t->coef * (t->kind == ATOM_DIV ? floor_div(sub, t->k) : t->kind == ATOM_MOD ? floor_mod(sub, t->k) : sub);
  }
  return v;
}

static uint64_t next(uint64_t *seed) { return (*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 33; }

enum { POINTS = 12 };
static IExpr *random_index(Arena *a, uint64_t *seed, int depth, int64_t at[POINTS][3], int64_t *out) {
  uint64_t kind = depth ? next(seed) % 6 : next(seed) % 2, n = next(seed) % 3;
  if (kind == 0) {
    for (int p = 0; p < POINTS; p++) out[p] = (int64_t)n * 3 - 2;
    return ix_const(a, (int64_t)n * 3 - 2);
  }
  if (kind == 1) {
    for (int p = 0; p < POINTS; p++) out[p] = at[p][n];
    return ix_index(a, (int)n);
  }
  int64_t other[POINTS], k = (int64_t)(1 + next(seed) % 6);
  IExpr *x = random_index(a, seed, depth - 1, at, out);
  IExpr *y = kind == 2 || kind == 3 ? random_index(a, seed, depth - 1, at, other) : NULL;
  for (int p = 0; p < POINTS; p++) {
    if (y)
      out[p] += other[p];
    else if (n == 0)
      out[p] *= k - 3;
    else
      out[p] = n == 1 ? floor_div(out[p], k) : floor_mod(out[p], k);
  }
  return y ? ix_add(a, x, y) : n == 0 ? ix_scale(a, x, k - 3) : n == 1 ? ix_div(a, x, k) : ix_mod(a, x, k);
}

UNIT(normal_forms_mean_what_was_built) {
  uint64_t seed = 7;
  Space s = {.n = 3, .nout = 3, .idx = {{"i", NULL, 8}, {"j", NULL, 4}, {"k", NULL, 3}}};
  for (int round = 0; round < 3000; round++) {
    Arena *a = arena_new();
    int64_t at[POINTS][3], expected[POINTS], min, max;
    for (int p = 0; p < POINTS; p++)
      for (int i = 0; i < 3; i++) at[p][i] = (int64_t)(next(&seed) % (uint64_t)s.idx[i].range);
    IExpr *x = random_index(a, &seed, 4, at, expected);
    IExpr *same = ix_substitute(a, x, NULL, NULL), *narrow = ix_narrow(a, x, &s);
    ix_bounds(x, &s, &min, &max);
    CHECK(ix_equal(x, same));
    for (int p = 0; p < POINTS; p++) {
      CHECK_EQ(value(x, at[p]), expected[p]);
      CHECK_EQ(value(narrow, at[p]), expected[p]);
      CHECK(min <= expected[p] && expected[p] <= max);
    }
    arena_free(a);
  }
}

UNIT(index_expressions_come_back_from_their_text) {
  uint64_t seed = 3;
  Space s = {.n = 3, .nout = 3, .idx = {{"i", NULL, 8}, {"j", NULL, 4}, {"k", NULL, 3}}};
  for (int round = 0; round < 1000; round++) {
    Arena *a = arena_new();
    int64_t at[POINTS][3] = {0}, expected[POINTS];
    Module *m = ir_module(a);
    m->mesh.name = "m";
    Op *op = ir_op(m, OP_NEST, (Loc){0});
    op->space = s;
    op->body = ex_index(a, random_index(a, &seed, 5, at, expected));
    ir_out(m, op, "y", (Type){I32, 3, {{NULL, 8, {0}}, {NULL, 4, {0}}, {NULL, 3, {0}}}, {0}});
    ir_append(m, m->programs.at[0].body, op);
    const char *text = ir_print(m, a);
    Diags *d = diags_new(a);
    Module *back = ir_parse(a, d, diags_add_file(d, "t.ir", text, strlen(text)));
    CHECK(back != NULL);
    if (back) CHECK(ix_equal(back->programs.at[0].body->ops.at[0]->body->ix[0], op->body->ix[0]));
    if (back) CHECK_STR(ir_print(back, a), text);
    arena_free(a);
  }
}

static void check_bounds(Fixture *f, IExpr *x, int64_t lo, int64_t hi) {
  int64_t min, max;
  ix_bounds(x, &f->s, &min, &max);
  CHECK_EQ(min, lo);
  CHECK_EQ(max, hi);
}

UNIT(bounds_and_saturation) {
  Fixture f = fixture();
  check_bounds(&f, ADD(I(0), MUL(I(1), -2)), -6, 7);
  check_bounds(&f, DIV(ADD(I(0), C(-1)), 4), -1, 1);
  check_bounds(&f, MOD(ADD(I(1), C(8)), 16), 8, 11);
  check_bounds(&f, MOD(ADD(I(0), C(1)), 8), 0, 7);
  int64_t min, max, large = (int64_t)1 << 61;
  ix_bounds(ix_value(f.a, 0, 1, (IExpr *[]){I(0)}), &f.s, &min, &max);
  CHECK(min <= -large && max >= large);
  IExpr *huge = C(large);
  for (int i = 0; i < 10; i++) huge = ADD(MUL(huge, large), huge);
  CHECK_EQ(huge->c, large);
  arena_free(f.a);
}

UNIT(narrowing_drops_what_ranges_decide) {
  Fixture f = fixture();
  check_index_text(&f, ix_narrow(f.a, DIV(ADD(MUL(I(0), 4), I(1)), 4), &f.s), "i");
  check_index_text(&f, ix_narrow(f.a, MOD(ADD(I(1), C(4)), 16), &f.s), "j + 4");
  check_index_text(&f, ix_narrow(f.a, DIV(I(0), 4), &f.s), "i // 4");
  arena_free(f.a);
}

UNIT(substitution_reaches_every_index_and_operand) {
  Fixture f = fixture();
  ir_in(f.m, f.op, ir_value(f.m, "n", (Type){I32, 1, {{NULL, 8, {0}}}, {0}}, (Loc){0}));
  IExpr *at[] = {I(0)}, *by[] = {ADD(I(1), C(1)), NULL, NULL};
  Expr *x =
      ex_read(f.a, 0, F32, 1, (IExpr *[]){ADD(ix_value(f.a, 1, 1, at), DIV(I(0), 2))}, ex_cast(f.a, F32, ex_index(f.a, I(0))));
  check_body_text(&f, x, "(%x[%n[i] + i // 2] else f32(idx(i)))");
  check_body_text(&f, ex_substitute(f.a, x, by, NULL), "(%x[%n[j + 1] + (j + 1) // 2] else f32(idx(j + 1)))");
  int swap[] = {1, 0};
  check_body_text(&f, ex_substitute(f.a, x, NULL, swap), "(%n[%x[i] + i // 2] else f32(idx(i)))");
  CHECK(ex_equal(x, ex_substitute(f.a, x, NULL, NULL)));
  CHECK(ex_uses(x, 0) && !ex_uses(x, 1));
  arena_free(f.a);
}

#define X ex_read(f.a, 0, F32, 1, (IExpr *[]){I(0)}, NULL)
#define L(v) ex_lit(f.a, F32, v)
#define SIMPLE(x, text) check_body_text(&f, ex_simplify(f.a, x), text)

UNIT(simplify_keeps_every_value) {
  Fixture f = fixture();
  SIMPLE(ex_2(f.a, EX_MUL, L(1), X), "%x[i]");
  SIMPLE(ex_2(f.a, EX_DIV, X, L(1)), "%x[i]");
  SIMPLE(ex_2(f.a, EX_SUB, X, L(0)), "%x[i]");
  SIMPLE(ex_2(f.a, EX_ADD, X, L(0)), "%x[i] + 0.0");
  SIMPLE(ex_2(f.a, EX_SUB, X, L(-0.0)), "%x[i] - -0.0");
  SIMPLE(ex_2(f.a, EX_MUL, X, L(0)), "%x[i] * 0.0");
  SIMPLE(ex_2(f.a, EX_SUB, X, X), "%x[i] - %x[i]");
  SIMPLE(ex_1(f.a, EX_NEG, ex_1(f.a, EX_NEG, X)), "%x[i]");
  SIMPLE(ex_where(f.a, ex_int(f.a, BOOL, 1), X, L(2)), "%x[i]");
  SIMPLE(ex_where(f.a, ex_2(f.a, EX_LT, X, L(0)), L(2), L(2)), "2.0");
  SIMPLE(ex_2(f.a, EX_AND, ex_2(f.a, EX_LT, L(1), L(2)), ex_2(f.a, EX_LT, X, L(0))), "%x[i] < 0.0");
  SIMPLE(ex_2(f.a, EX_ADD, ex_index(f.a, I(0)), ex_int(f.a, I32, 0)), "idx(i)");
  SIMPLE(ex_2(f.a, EX_MAX, L(NAN), L(1)), "max(nan, 1.0)");
  SIMPLE(ex_2(f.a, EX_FLOORDIV, ex_int(f.a, I32, -7), ex_int(f.a, I32, 2)), "-4");
  SIMPLE(ex_2(f.a, EX_FLOORDIV, ex_int(f.a, I32, 7), ex_int(f.a, I32, 0)), "7 // 0");
  SIMPLE(ex_2(f.a, EX_ADD, ex_int(f.a, I32, INT32_MAX), ex_int(f.a, I32, 1)), "2147483647 + 1");
  SIMPLE(ex_cast(f.a, I32, L(-1.9)), "-1");
  SIMPLE(ex_cast(f.a, I32, L(3e9)), "i32(3e+09)");
  SIMPLE(ex_cast(f.a, F32, ex_index(f.a, C(3))), "3.0");
  arena_free(f.a);
}

/* f64 until it meets a typed value, then rounded once: 1 / sqrt(3) in f32 arithmetic would give 0.57735026. */
UNIT(constants_fold_in_their_own_type) {
  Fixture f = fixture();
  Expr *root = ex_1(f.a, EX_SQRT, ex_lit(f.a, F64, 3));
  SIMPLE(ex_cast(f.a, F32, ex_2(f.a, EX_DIV, ex_lit(f.a, F64, 1), root)), "0.57735026");
  SIMPLE(ex_2(f.a, EX_ADD, L(0.1), L(0.2)), "0.3");
  SIMPLE(ex_2(f.a, EX_ADD, ex_lit(f.a, F64, 0.1), ex_lit(f.a, F64, 0.2)), "0.30000000000000004d");
  arena_free(f.a);
}

UNIT(linear_in_what_is_pending) {
  Fixture f = fixture();
  bool in_x[] = {true}, in_nothing[] = {false};
  CHECK(ex_linear_in(X, in_x));
  CHECK(!ex_linear_in(X, in_nothing));
  CHECK(!ex_linear_in(L(0), in_x));
  CHECK(ex_linear_in(ex_2(f.a, EX_ADD, X, ex_2(f.a, EX_MUL, L(2), X)), in_x));
  CHECK(!ex_linear_in(ex_2(f.a, EX_ADD, X, L(2)), in_x));
  CHECK(ex_linear_in(ex_2(f.a, EX_ADD, X, L(0)), in_x));
  CHECK(!ex_linear_in(ex_2(f.a, EX_DIV, L(2), X), in_x));
  CHECK(!ex_linear_in(ex_1(f.a, EX_ABS, X), in_x));
  CHECK(ex_linear_in(ex_cast(f.a, F64, X), in_x));
  CHECK(!ex_linear_in(ex_cast(f.a, I32, X), in_x));
  arena_free(f.a);
}
