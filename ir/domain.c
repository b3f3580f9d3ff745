/* domain.c: the numbers that the interpreter computes with: one table, scalar operation x domain.

     f64    real arithmetic, or with noise as rounding makes it           for gradients and oracles
     small  integers, exact: every order of summation gives the same      for random programs
     mod    integers modulo p = 2^61 - 1                                  exact, with division and literals
     whole  i32, i64 and bool, true integers in every domain

   Modulo p: x / 0 is x times a hash, so that it is not x * 0; a double m * 2^e is exact (2^61 = 1, so a power of two is a shift);
   a scalar function is a keyed hash H of its argument. exp is H with exp(a - b) = H(a) / H(b) where the text subtracts, so that a
   softmax whose parts are merged over ranks agrees with the whole one and a forgotten rescaling does not.
   Order, for max, min, abs, argmax and topk, is that of k x, for a k that comes from the key, by representatives of least
   magnitude, in (-p/2, p/2): minus turns it round, and every input has another (of the representatives themselves 1.5,
   which is 3/2 mod p, is nearly the least, so that `x >= 1.5` would always hold; k is any residue, since with a small odd one
   1.5 is still among the least).
   A comparison written in the text has a truth t in the field: 0 or 1 for equal numbers and infinities, else a hash of the
   difference, so that `where(x > y, a, b)` = t a + (1 - t) b depends on both branches on every input (a branch that one
   bit decides would be seen on every other input only). x > y = y < x = 1 - (x <= y), and x + z > y + z. */
#include "eval.h"

#include <math.h>

#define P (((int64_t)1 << 61) - 1)
#define HALF (P / 2)
#define TOKENS ((int64_t)1 << 62) /* beyond: -inf, inf, NaN */

void domain_fail(Domain *d, const char *fmt, ...) {
  if (d->failed) return;
  d->failed = true;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(d->why, sizeof d->why, fmt, ap);
  va_end(ap);
}

static Num real(double x) { return (Num){.f = x}; }
static Num whole(int64_t x) { return (Num){.i = x}; }

/* ---- tokens: arithmetic with an infinity or NaN among the operands goes through double ---- */

static bool token(Num a) { return a.i >= TOKENS || a.i <= -TOKENS; }
static bool either(Num a, Num b) { return token(a) || token(b); }

static double to_double(Num a) {
  if (!token(a)) return (double)a.i;
  return a.i == TOKEN_POS_INF ? (double)INFINITY : a.i == TOKEN_NEG_INF ? -(double)INFINITY : (double)NAN;
}

static Num from_double(double x) {
  if (isnan(x)) return whole(TOKEN_NAN);
  if (isinf(x)) return whole(x > 0 ? TOKEN_POS_INF : TOKEN_NEG_INF);
  return whole((int64_t)x);
}

static bool is_nan(Num a) { return a.i == TOKEN_NAN; }

/* ---- f64 ---- */

/* Stochastic arithmetic, as in Parker's Monte Carlo arithmetic (1997): what was rounded is a little elsewhere each time. */
static Num rounded(Domain *d, double x) {
  if (d->noise == 0 || (double)(float)x == x) return real(x);
  return real(x * (1 + EVAL_NOISE * ldexp((double)(int64_t)random_mix(d->noise++), -63)));
}

#define F2(name, expression)                                                                                                     \
  static Num f_##name(Domain *d, Num x, Num y) {                                                                                 \
    (void)d;                                                                                                                     \
    double a = x.f, b = y.f;                                                                                                     \
    (void)b;                                                                                                                     \
    return expression;                                                                                                           \
  }
F2(add, rounded(d, a + b))
F2(sub, rounded(d, a - b))
F2(mul, rounded(d, a *b))
F2(div, rounded(d, a / b))
F2(floordiv, real(floor(a / b)))
F2(mod, real(a - b * floor(a / b)))
F2(pow, rounded(d, pow(a, b)))
F2(lt, whole(a < b))
F2(le, whole(a <= b))
F2(eq, whole(a == b))
F2(ne, whole(a != b))
F2(ge, whole(a >= b))
F2(gt, whole(a > b))
F2(exceeds, whole(a > b || (isnan(a) && !isnan(b)))) /* a NaN is above every number, so that it shows */
F2(neg, real(-a))
F2(min, real(isnan(a) || a <= b ? a : b))
F2(max, real(isnan(a) || a >= b ? a : b))
F2(abs, real(fabs(a)))
F2(floor, real(floor(a)))

#define FN(op, name, value, ...)                                                                                                 \
  static double value_##op(double x) { return value; }                                                                           \
  static Num f_##op(Domain *d, Num a, Num b) {                                                                                   \
    (void)b;                                                                                                                     \
    return rounded(d, value_##op(a.f));                                                                                          \
  }
#include "ir/functions.def"

static Num same(Domain *d, Num a, Num b) {
  (void)d, (void)b;
  return a;
}

/* ---- order, for everything that is an int64_t ---- */

#define ORDER(name, op)                                                                                                          \
  static Num o_##name(Domain *d, Num a, Num b) {                                                                                 \
    (void)d;                                                                                                                     \
    return whole(!is_nan(a) && !is_nan(b) && a.i op b.i);                                                                        \
  }
ORDER(lt, <)
ORDER(le, <=)
ORDER(eq, ==)
ORDER(ge, >=)
ORDER(gt, >)
static Num o_ne(Domain *d, Num a, Num b) { return whole(!o_eq(d, a, b).i); }
static Num o_min(Domain *d, Num a, Num b) {
  (void)d;
  return is_nan(a) || is_nan(b) ? whole(TOKEN_NAN) : a.i <= b.i ? a : b;
}
static Num o_max(Domain *d, Num a, Num b) {
  (void)d;
  return is_nan(a) || is_nan(b) ? whole(TOKEN_NAN) : a.i >= b.i ? a : b;
}
static Num o_abs(Domain *d, Num a, Num b) {
  (void)d, (void)b;
  return is_nan(a) ? a : a.i == TOKEN_NEG_INF ? whole(TOKEN_POS_INF) : whole(a.i < 0 ? -a.i : a.i);
}
static Num o_neg(Domain *d, Num a, Num b) {
  (void)d, (void)b;
  return token(a) ? from_double(-to_double(a)) : whole(-a.i);
}

/* ---- true integers ---- */

#define WHOLE_CHECKED(name, builtin)                                                                                             \
  static Num i_##name(Domain *d, Num a, Num b) {                                                                                 \
    int64_t r;                                                                                                                   \
    if (builtin(a.i, b.i, &r)) domain_fail(d, "an integer left 64 bits in " #name);                                              \
    return whole(r);                                                                                                             \
  }
WHOLE_CHECKED(add, __builtin_add_overflow)
WHOLE_CHECKED(sub, __builtin_sub_overflow)
WHOLE_CHECKED(mul, __builtin_mul_overflow)

static Num i_neg(Domain *d, Num a, Num b) {
  (void)b;
  return i_sub(d, whole(0), a);
}
static Num i_floordiv(Domain *d, Num a, Num b) {
  if (b.i > 0) return whole(floor_div(a.i, b.i));
  domain_fail(d, "// by %lld, which is not positive", (long long)b.i);
  return whole(0);
}
static Num i_mod(Domain *d, Num a, Num b) {
  if (b.i > 0) return whole(floor_mod(a.i, b.i));
  domain_fail(d, "%% by %lld, which is not positive", (long long)b.i);
  return whole(0);
}
static Num i_pow(Domain *d, Num a, Num b) {
  if (b.i < 0 || b.i > 64) domain_fail(d, "power %lld of an integer", (long long)b.i);
  Num r = whole(1);
  for (int64_t i = 0; i < b.i && !d->failed; i++) r = i_mul(d, r, a);
  return r;
}
static Num i_div(Domain *d, Num a, Num b) {
  (void)a, (void)b;
  domain_fail(d, "/ on integers");
  return whole(0);
}
static Num i_lt(Domain *d, Num a, Num b) { return (void)d, whole(a.i < b.i); }
static Num i_le(Domain *d, Num a, Num b) { return (void)d, whole(a.i <= b.i); }
static Num i_eq(Domain *d, Num a, Num b) { return (void)d, whole(a.i == b.i); }
static Num i_ne(Domain *d, Num a, Num b) { return (void)d, whole(a.i != b.i); }
static Num i_ge(Domain *d, Num a, Num b) { return (void)d, whole(a.i >= b.i); }
static Num i_gt(Domain *d, Num a, Num b) { return (void)d, whole(a.i > b.i); }
static Num i_min(Domain *d, Num a, Num b) { return (void)d, a.i <= b.i ? a : b; }
static Num i_max(Domain *d, Num a, Num b) { return (void)d, a.i >= b.i ? a : b; }
static Num i_abs(Domain *d, Num a, Num b) { return a.i < 0 ? i_neg(d, a, b) : a; }

/* ---- small integers ---- */

static Num checked(Domain *d, Num a) {
  if (a.i > d->exact || a.i < -d->exact)
    domain_fail(d, "an integer left the exact range: |%lld| > %lld", (long long)a.i, (long long)d->exact);
  return a;
}
static Num s_add(Domain *d, Num a, Num b) {
  return either(a, b) ? from_double(to_double(a) + to_double(b)) : checked(d, whole(a.i + b.i));
}
static Num s_sub(Domain *d, Num a, Num b) {
  return either(a, b) ? from_double(to_double(a) - to_double(b)) : checked(d, whole(a.i - b.i));
}
static Num s_mul(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(to_double(a) * to_double(b));
  int64_t r;
  if (__builtin_mul_overflow(a.i, b.i, &r)) r = TOKENS;
  return checked(d, whole(r));
}
static Num s_div(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(to_double(a) / to_double(b));
  if (b.i != 0 && a.i % b.i == 0) return whole(a.i / b.i);
  domain_fail(d, "%lld / %lld is not exact on integers", (long long)a.i, (long long)b.i);
  return whole(0);
}
static Num s_floordiv(Domain *d, Num a, Num b) { return either(a, b) ? whole(TOKEN_NAN) : i_floordiv(d, a, b); }
static Num s_mod(Domain *d, Num a, Num b) { return either(a, b) ? whole(TOKEN_NAN) : i_mod(d, a, b); }
static Num s_pow(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(pow(to_double(a), to_double(b)));
  if (b.i < 0) return s_div(d, whole(1), s_pow(d, a, whole(-b.i)));
  if (b.i > 64) domain_fail(d, "power %lld is not exact on integers", (long long)b.i);
  Num r = whole(1);
  for (int64_t i = 0; i < b.i && !d->failed; i++) r = s_mul(d, r, a);
  return r;
}

/* A scalar function is exact where its double is an integer and not by rounding: exp(0), exp(-inf), log(1),
   tanh(inf), the square root of a square. */
static Num small_function(Domain *d, const char *name, double (*f)(double), Num a) {
  double r = f(to_double(a));
  if (isfinite(r) && (r != floor(r) || (!token(a) && a.i != 0 && a.i != 1 && r * r != (double)a.i)))
    domain_fail(d, "%s of %lld is not exact on integers", name, (long long)a.i);
  return from_double(r);
}
#define FN(op, name, ...)                                                                                                        \
  static Num s_##op(Domain *d, Num a, Num b) { return (void)b, small_function(d, name, value_##op, a); }
#include "ir/functions.def"

/* ---- modulo p ---- */

static Num mod_signed(int64_t r) { return whole(r > HALF ? r - P : r); } /* of r in [0, p) */
static int64_t mod_positive(Num a) { return a.i < 0 ? a.i + P : a.i; }

static Num mod_reduce(unsigned __int128 x) { /* x < 2^122: its two halves of 61 bits, since 2^61 = 1 */
  uint64_t r = (uint64_t)(x & (unsigned __int128)P) + (uint64_t)(x >> 61);
  if (r >= (uint64_t)P) r -= (uint64_t)P;
  return mod_signed((int64_t)r);
}
static Num m_add(Domain *d, Num a, Num b) {
  (void)d;
  if (either(a, b)) return from_double(to_double(a) + to_double(b));
  int64_t r = a.i + b.i;
  return whole(r > HALF ? r - P : r < -HALF ? r + P : r);
}
static Num m_sub(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(to_double(a) - to_double(b));
  return m_add(d, a, whole(-b.i));
}
static Num m_mul(Domain *d, Num a, Num b) {
  (void)d;
  if (either(a, b)) return from_double(to_double(a) * to_double(b));
  return mod_reduce((unsigned __int128)mod_positive(a) * (unsigned __int128)mod_positive(b));
}
static Num mod_hash(Domain *d, int which, Num a, Num b) { /* never 0 */
  if (is_nan(a) || is_nan(b)) return whole(TOKEN_NAN);
  uint64_t h = random_mix(random_mix(d->key + (uint64_t)which) ^ (uint64_t)a.i);
  h = random_mix(h + 0x2545f4914f6cdd1du * (uint64_t)b.i);
  return mod_signed((int64_t)(1 + h % (uint64_t)(P - 1)));
}
static Num mod_inverse(Domain *d, Num a) { /* Euclid; of 0 a hash */
  if (a.i == 0) return mod_hash(d, EX_DIV, a, a);
  if (a.i == d->divisor.i) return d->inverse; /* rows are divided by one number */
  int64_t r0 = P, r1 = mod_positive(a), t0 = 0, t1 = 1;
  while (r1 != 0) {
    int64_t q = r0 / r1, r2 = r0 - q * r1, t2 = t0 - q * t1;
    r0 = r1, r1 = r2, t0 = t1, t1 = t2;
  }
  d->divisor = a, d->inverse = mod_signed(t0 < 0 ? t0 + P : t0);
  return d->inverse;
}
static int64_t m_order(Domain *d, Num a) {
  return token(a) ? a.i : m_mul(d, a, mod_signed((int64_t)(1 + d->key % (uint64_t)(P - 1)))).i;
}
static Num m_exceeds(Domain *d, Num a, Num b) { return whole(!is_nan(a) && !is_nan(b) && m_order(d, a) > m_order(d, b)); }
static Num m_min(Domain *d, Num a, Num b) {
  return is_nan(a) || is_nan(b) ? whole(TOKEN_NAN) : m_order(d, a) <= m_order(d, b) ? a : b;
}
static Num m_max(Domain *d, Num a, Num b) {
  return is_nan(a) || is_nan(b) ? whole(TOKEN_NAN) : m_order(d, a) >= m_order(d, b) ? a : b;
}
static Num m_abs(Domain *d, Num a, Num b) {
  if (token(a)) return o_abs(d, a, b);
  return m_order(d, a) < 0 ? whole(-a.i) : a;
}
static Num m_div(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(to_double(a) / to_double(b));
  return m_mul(d, a, mod_inverse(d, b));
}
/* The truth of a < b: of b - a > 0, which is 1 less that of a - b > 0. */
static Num mod_less(Domain *d, Num a, Num b, bool equal) {
  if (either(a, b) || a.i == b.i) return whole(!is_nan(a) && !is_nan(b) && (a.i < b.i || (equal && a.i == b.i)));
  Num difference = m_sub(d, b, a), t = mod_hash(d, EX_LT, m_abs(d, difference, b), whole(0));
  return m_order(d, difference) > 0 ? t : m_sub(d, whole(1), t);
}
static Num m_lt(Domain *d, Num a, Num b) { return mod_less(d, a, b, false); }
static Num m_le(Domain *d, Num a, Num b) { return mod_less(d, a, b, true); }
static Num m_gt(Domain *d, Num a, Num b) { return mod_less(d, b, a, false); }
static Num m_ge(Domain *d, Num a, Num b) { return mod_less(d, b, a, true); }

/* Of truths, 0 and 1 in the other domains, where this is what it always is. */
static Num t_and(Domain *d, Num a, Num b) { return m_mul(d, a, b); }
static Num t_or(Domain *d, Num a, Num b) { return m_sub(d, m_add(d, a, b), m_mul(d, a, b)); }
static Num t_not(Domain *d, Num a, Num b) {
  (void)b;
  return m_sub(d, whole(1), a);
}

static Num m_pow(Domain *d, Num a, Num b) {
  if (either(a, b)) return from_double(pow(to_double(a), to_double(b)));
  if (b.i < 0 && b.i >= -64) return mod_inverse(d, m_pow(d, a, whole(-b.i)));
  if (b.i < 0 || b.i > 64) return mod_hash(d, EX_POW, a, b);
  Num r = whole(1);
  for (int64_t i = 0; i < b.i; i++) r = m_mul(d, r, a);
  return r;
}
static Num m_floordiv(Domain *d, Num a, Num b) { return mod_hash(d, EX_FLOORDIV, a, b); }
static Num m_mod(Domain *d, Num a, Num b) { return mod_hash(d, EX_MOD, a, b); }

/* A hash, except where the argument is an infinity (then the double's value, if that is an integer or infinite) or
   0 (exp and cos 1; tanh, erf, sin, log1p and sqrt 0). log(0) is a hash, as 1/0 is: infinities, over which sums do
   not distribute, come only from the text. */
static Num mod_function(Domain *d, ExprOp op, double (*f)(double), Num a) {
  if (op == EX_RSQRT) return m_div(d, whole(1), mod_function(d, EX_SQRT, value_SQRT, a));
  if (!token(a) && a.i != 0) return mod_hash(d, op, a, whole(0));
  double r = f(to_double(a));
  bool plain = token(a) ? !isfinite(r) || r == floor(r) : isfinite(r) && r == floor(r);
  return plain ? from_double(r) : mod_hash(d, op, a, whole(0));
}
#define FN(op, name, ...)                                                                                                        \
  static Num m_##op(Domain *d, Num a, Num b) { return (void)b, mod_function(d, EX_##op, value_##op, a); }
#include "ir/functions.def"
static Num m_floor(Domain *d, Num a, Num b) { return (void)b, mod_function(d, EX_FLOOR, floor, a); }

/* ---- the table ---- */

typedef struct {
  ScalarFn *fn[4]; /* f64, small, mod, whole */
} Row;
static const Row TABLE[EX_NOPS] = {
    [EX_ADD] = {{f_add, s_add, m_add, i_add}},
    [EX_SUB] = {{f_sub, s_sub, m_sub, i_sub}},
    [EX_MUL] = {{f_mul, s_mul, m_mul, i_mul}},
    [EX_DIV] = {{f_div, s_div, m_div, i_div}},
    [EX_FLOORDIV] = {{f_floordiv, s_floordiv, m_floordiv, i_floordiv}},
    [EX_MOD] = {{f_mod, s_mod, m_mod, i_mod}},
    [EX_POW] = {{f_pow, s_pow, m_pow, i_pow}},
    [EX_LT] = {{f_lt, o_lt, m_lt, i_lt}},
    [EX_LE] = {{f_le, o_le, m_le, i_le}},
    [EX_EQ] = {{f_eq, o_eq, o_eq, i_eq}},
    [EX_NE] = {{f_ne, o_ne, o_ne, i_ne}},
    [EX_GE] = {{f_ge, o_ge, m_ge, i_ge}},
    [EX_GT] = {{f_gt, o_gt, m_gt, i_gt}},
    [EX_AND] = {{NULL, NULL, NULL, t_and}},
    [EX_OR] = {{NULL, NULL, NULL, t_or}},
    [EX_NOT] = {{NULL, NULL, NULL, t_not}},
    [EX_NEG] = {{f_neg, o_neg, o_neg, i_neg}},
    [EX_MIN] = {{f_min, o_min, m_min, i_min}},
    [EX_MAX] = {{f_max, o_max, m_max, i_max}},
    [EX_ABS] = {{f_abs, o_abs, m_abs, i_abs}},
    [EX_FLOOR] = {{f_floor, same, m_floor, same}},
#define FN(op, ...) [EX_##op] = {{f_##op, s_##op, m_##op, NULL}},
#include "ir/functions.def"
    [EX_STOP] = {{same, same, same, same}},
};

ScalarFn *domain_fn(DomainKind k, DType of, ExprOp op) {
  ScalarFn *fn = TABLE[op].fn[dtype_is_int(of) ? 3 : (int)k];
  if (!fn) internal_error("the interpreter has no scalar operation %d on %s", op, dtype_name(of));
  return fn;
}

ScalarFn *domain_exceeds(DomainKind k, DType of) {
  if (dtype_is_int(of)) return domain_fn(k, of, EX_GT);
  return k == DOMAIN_MOD ? m_exceeds : k == DOMAIN_F64 ? f_exceeds : domain_fn(k, of, EX_GT);
}

ScalarFn *domain_reduce(DomainKind k, DType of, Reduce r) {
  static const ExprOp OP_OF[] = {[RED_SUM] = EX_ADD, [RED_MAX] = EX_MAX, [RED_MIN] = EX_MIN, [RED_PROD] = EX_MUL};
  assert(r != RED_NONE && "a reduction has a kind");
  return domain_fn(k, of, OP_OF[r]);
}

static int64_t int_extreme(DType of, bool max) {
  switch (of) {
  case I32: return max ? INT32_MAX : INT32_MIN;
  case BOOL: return max;
  default: return max ? INT64_MAX : INT64_MIN;
  }
}

Num domain_identity(DomainKind k, DType of, Reduce r) {
  bool is_real = !dtype_is_int(of);
  switch (r) {
  case RED_PROD: return is_real && k == DOMAIN_F64 ? real(1) : whole(1);
  case RED_MAX:
  case RED_MIN:
    if (!is_real) return whole(int_extreme(of, r == RED_MIN));
    if (k == DOMAIN_F64) return real(r == RED_MIN ? (double)INFINITY : -(double)INFINITY);
    return whole(r == RED_MIN ? TOKEN_POS_INF : TOKEN_NEG_INF);
  default: return is_real && k == DOMAIN_F64 ? real(0) : whole(0);
  }
}

/* Thirty-two products of representatives, each less than 2^120, are added up before anything is taken off. That a token is
   among the factors shows in a bit above the 61 of any representative + 2^60. */
static bool mod_add_products(Num *sum, int64_t n, Strip a, Strip b) {
  const uint64_t shift = (uint64_t)1 << 60;
  uint64_t seen = (uint64_t)sum->i + shift;
  __int128 all = sum->i;
  for (int64_t i = 0; i < n;) {
    for (int64_t end = min_i64(n, i + 32); i < end; i++, a.at += a.step, b.at += b.step) {
      seen |= ((uint64_t)a.at->i + shift) | ((uint64_t)b.at->i + shift);
      all += (__int128)a.at->i * b.at->i;
    }
    all += (__int128)P << 65; /* not below 0 */
    all = (all & P) + (all >> 61);
  }
  if (seen >> 61) return false;
  if (n) *sum = mod_reduce((unsigned __int128)all);
  return true;
}

Num domain_add_products(Domain *d, DType of, Num sum, int64_t n, Strip a, Strip b) {
  bool residues = d->kind == DOMAIN_MOD && !dtype_is_int(of);
  if (residues && mod_add_products(&sum, n, a, b)) return sum;
  ScalarFn *add = domain_fn(d->kind, of, EX_ADD), *mul = domain_fn(d->kind, of, EX_MUL);
  for (int64_t i = 0; i < n; i++) sum = add(d, sum, mul(d, a.at[i * a.step], b.at[i * b.step]));
  return sum;
}

/* ---- literals, casts ---- */

Num domain_real(Domain *d, double v) {
  if (d->kind == DOMAIN_F64) return rounded(d, v);
  if (!isfinite(v)) return from_double(v);
  if (d->kind == DOMAIN_INT) {
    if (v != floor(v) || fabs(v) > (double)d->exact) domain_fail(d, "the number %.9g is not exact on integers", v);
    return whole((int64_t)v);
  }
  int e;
  int64_t mantissa = (int64_t)ldexp(frexp(v, &e), 53); /* v = mantissa * 2^(e - 53) */
  return m_mul(d, whole(mantissa), mod_signed((int64_t)1 << floor_mod(e - 53, 61)));
}

Num domain_literal(Domain *d, const Expr *lit) { return dtype_is_int(lit->dtype) ? whole(lit->ilit) : domain_real(d, lit->lit); }

static Num to_integer(Domain *d, DType to, Num v) { /* of a real, toward zero */
  double x = d->kind == DOMAIN_F64 ? v.f : to_double(v);
  if (d->kind == DOMAIN_MOD && !token(v) && (v.i > INT32_MAX || v.i < INT32_MIN))
    return whole(mod_positive(mod_hash(d, EX_CAST, v, whole(0))) % 65536);
  double limit = to == I32 ? 2147483648.0 : 9223372036854775808.0;
  if (!(x > -limit - (to == I32) && x < limit)) {
    domain_fail(d, "%.9g does not fit %s", x, dtype_name(to));
    return whole(0);
  }
  return d->kind == DOMAIN_F64 ? whole((int64_t)x) : v;
}

Num domain_cast(Domain *d, DType from, DType to, Num v) {
  bool from_int = dtype_is_int(from), to_int = dtype_is_int(to);
  if (to == BOOL) return whole(from_int || d->kind != DOMAIN_F64 ? v.i != 0 : v.f != 0);
  if (from_int && to_int) {
    if (to == I32 && (v.i > INT32_MAX || v.i < INT32_MIN)) domain_fail(d, "%lld does not fit i32", (long long)v.i);
    return v;
  }
  if (to_int) return to_integer(d, to, v);
  if (!from_int) return v;
  switch (d->kind) {
  case DOMAIN_F64: return real((double)v.i);
  case DOMAIN_INT: return checked(d, v);
  default: return mod_signed(floor_mod(v.i, P));
  }
}

Num domain_exp_difference(Domain *d, Num a, Num b) {
  if (d->kind == DOMAIN_F64) return rounded(d, a.f == -(double)INFINITY ? 0 : exp(a.f - b.f));
  if (a.i == TOKEN_NEG_INF) return whole(0);
  if (d->kind == DOMAIN_INT) return s_EXP(d, s_sub(d, a, b), whole(0));
  return m_div(d, m_EXP(d, a, whole(0)), m_EXP(d, b, whole(0)));
}

/* ---- random values, poison, equality ---- */

/* What an initialiser or a `random` op draws. In f64 the number that the runtime draws; small integers in
   [-3, 3] or, uniform, {0, 1}; modulo p any residue. Constants are drawn too, but not in f64. */
Num domain_draw(Domain *d, DType of, InitKind kind, RandomSite s, uint64_t element, double a, double b) {
  uint32_t w = random_word(s, element);
  if (dtype_is_int(of)) return whole(w % 4);
  if (d->kind == DOMAIN_INT) return whole(kind == INIT_UNIFORM ? w % 2 : (int64_t)(w % 7) - 3);
  if (d->kind == DOMAIN_MOD) return mod_hash(d, EX_NOPS, whole((int64_t)random_mix(s.key + element) >> 4), whole(w));
  switch (kind) {
  case INIT_ONES: return real(1);
  case INIT_CONST: return real(a);
  case INIT_NORMAL: return real(a * (double)random_normal(s, element));
  case INIT_UNIFORM: return real(a + (b - a) * (double)random_uniform(s, element));
  default: return real(0);
  }
}

Num domain_where(Domain *d, DType of, Num truth, Num a, Num b) {
  bool decided = d->kind != DOMAIN_MOD || truth.i == 0 || truth.i == 1;
  if (decided || dtype_is_int(of) || either(a, b)) return truth.i & 1 ? a : b;
  return m_add(d, b, m_mul(d, truth, m_sub(d, a, b)));
}

bool domain_equal(DomainKind k, DType of, Num a, Num b) {
  if (k == DOMAIN_F64 && !dtype_is_int(of)) return a.f == b.f || (isnan(a.f) && isnan(b.f));
  return a.i == b.i;
}

Num domain_poison(DomainKind k, DType of, uint64_t salt) {
  if (dtype_is_int(of)) return whole((int64_t)(random_mix(salt) >> 34) | 0x20000000);
  return k == DOMAIN_F64 ? real((double)NAN) : whole(TOKEN_NAN);
}
