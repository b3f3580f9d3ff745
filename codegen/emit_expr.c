/* emit_expr.c: bodies as C expressions, in the scope of loops over local coordinates.

     %x[b,t - 1] else 0.0    ->  (t - 1 >= 0 ? x[b * 128 + t - 1] : 0.0f)
     %wte[%tok[b,t], d]      ->  wte[row * 64 + d], after `const int64_t row = tok[...]` and its check
     idx(b) over a split b   ->  (int32_t)(b_lo + b)

     %x[2*i + p], i split    ->  x[2 * (i_lo + i) + p - x_lo]: x holds a window of its dim, x_lo is its first element

   A whole dim is addressed by the global value of its coordinate, one that is split as the index that reads it by the
   local index. Floating-point functions are those of runtime/dtrt_math.h, which vectorise; f64 uses libm's. */
#include <math.h>
#include <stdlib.h>

#include "emit.h"

enum { P_TERNARY = 3, P_OR = 4, P_AND = 5, P_EQ = 9, P_LT = 10, P_ADD = 12, P_MUL = 13, P_UNARY = 14, P_CALL = 15 };

const char *emit_sum(Emit *e, const char *a, const char *b) {
  if (!strcmp(a, "0")) return b;
  if (!strcmp(b, "0")) return a;
  return arena_printf(e->a, *b == '-' ? "%s - %s" : "%s + %s", a, *b == '-' ? b + 1 : b);
}

static bool is_atom(const char *x) {
  for (const char *c = x; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_')) return false;
  return true;
}

static const char *paren(Emit *e, const char *x) { return is_atom(x) ? x : arena_printf(e->a, "(%s)", x); }

static const char *times(Emit *e, int64_t k, const char *x) {
  if (k == 0 || !strcmp(x, "0")) return "0";
  if (k == 1) return x;
  if (k == -1) return arena_printf(e->a, "-%s", paren(e, x));
  return arena_printf(e->a, "%lld * %s", (long long)k, paren(e, x));
}

/* ---- index expressions ------------------------------------------------------------------------------------------ */

/* An index that a merged loop absorbed adds nothing: the loop that absorbed it runs on over its steps in every address,
   and cg_loop_order pins the indices that are needed as values. */
static const char *global_value(Scope *s, int i) {
  Var *v = &s->var[i];
  if (!v->name) return "0";
  return emit_sum(s->k->e, emit_lo(s->k, v->range), v->name);
}

static const char *read_value(Scope *s, const Expr *read);

static const char *term_text(Scope *s, const Term *t) {
  Emit *e = s->k->e;
  switch (t->kind) {
  case ATOM_INDEX: return global_value(s, t->index);
  case ATOM_VALUE: {
    Expr read = {.op = EX_READ,
                 .dtype = e->m->values.at[s->op->in[t->operand]].type.dtype,
                 .operand = t->operand,
                 .nix = t->nat,
                 .ix = t->at};
    return arena_printf(e->a, "(int64_t)%s", read_value(s, &read));
  }
  case ATOM_DIV:
  case ATOM_MOD: break;
  }
  int64_t lo, hi;
  ix_bounds(t->sub, &s->op->space, &lo, &hi);
  const char *sub = emit_index(s, t->sub);
  if (lo >= 0) return arena_printf(e->a, "%s %c %lld", paren(e, sub), t->kind == ATOM_DIV ? '/' : '%', (long long)t->k);
  return arena_printf(e->a, "dtrt_%s(%s, %lld)", t->kind == ATOM_DIV ? "floordiv" : "floormod", sub, (long long)t->k);
}

const char *emit_index(Scope *s, const IExpr *x) {
  Emit *e = s->k->e;
  const char *sum = "0";
  for (int i = 0; i < x->n; i++) {
    const char *atom = term_text(s, &x->term[i]);
    if (x->term[i].coef == 1 && x->term[i].kind != ATOM_INDEX && x->n > 1) atom = arena_printf(e->a, "(%s)", atom);
    sum = emit_sum(e, sum, times(e, x->term[i].coef, atom));
  }
  if (x->c == 0) return sum;
  return emit_sum(e, sum, arena_printf(e->a, "%lld", (long long)x->c));
}

/* ---- coordinates by value ---------------------------------------------------------------------------------------- */

static int level_of(Scope *s, const IExpr *x) {
  int level = 0;
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    int at = 0;
    if (t->kind == ATOM_INDEX) at = s->var[t->index].level;
    if (t->kind == ATOM_DIV || t->kind == ATOM_MOD) at = level_of(s, t->sub);
    if (t->kind == ATOM_VALUE) {
      if (s->made_at) at = s->made_at(s->cx, s->op->in[t->operand]);
      for (int k = 0; k < t->nat; k++) {
        int sub = level_of(s, t->at[k]);
        at = sub > at ? sub : at;
      }
    }
    level = at > level ? at : level;
  }
  return level;
}

static ValueId first_value(Scope *s, const IExpr *x) {
  for (int i = 0; i < x->n; i++) {
    const Term *t = &x->term[i];
    if (t->kind == ATOM_VALUE) return s->op->in[t->operand];
    if ((t->kind == ATOM_DIV || t->kind == ATOM_MOD) && ix_by_value(t->sub)) return first_value(s, t->sub);
  }
  return -1;
}

void emit_hoist_dim(Scope *s, const IExpr *x, const Type *t, int d, bool guarded) {
  Kernel *k = s->k;
  Emit *e = k->e;
  Str *to = s->pre && level_of(s, x) <= s->depth ? &s->pre[level_of(s, x)] : s->now;
  ValueId from = ix_by_value(x) ? first_value(s, x) : s->op->out[0];
  const char *name = emit_name(e, &k->local, arena_printf(e->a, "%s_at", e->m->values.at[from].name));
  if (guarded) {
    str_printf(e->a, to, "const int64_t %s = %s;\n", name, emit_index(s, x));
  } else {
    Str rest = {0};
    emit_string(e, &rest, e->m->values.at[from].name);
    str_printf(e->a, &rest, ", %d", s->op->loc.line);
    str_put(e->a, to, e->d->coordinate(e, name, emit_index(s, x), t->dim[d].size, rest.at));
  }
  Hoisted h = {x, name, name, NULL};
  if (cg_is_split(&t->dim[d].split)) {
    Range *r = emit_range(k, t->dim[d].size, &t->dim[d].split, t->dim[d].name ? t->dim[d].name : "row");
    const char *lo = emit_lo(k, r);
    h.here = arena_printf(e->a, "%s >= %s && %s < %s", name, lo, name, emit_sum(e, lo, emit_n(k, r)));
    h.local = arena_printf(e->a, "%s - %s", name, lo);
  }
  vec_push(e->a, s->hoisted, h);
}

static void hoist_read(void *cx, int operand, int n, IExpr *const *ix, const Expr *otherwise) {
  Scope *s = cx;
  for (int d = 0; d < n; d++)
    if (ix_by_value(ix[d])) emit_hoist_dim(s, ix[d], &s->k->e->m->values.at[s->op->in[operand]].type, d, otherwise != NULL);
}

void emit_hoist(Scope *s) { cg_reads(s->op, hoist_read, s); }

static const Hoisted *hoisted(const Scope *s, const IExpr *x) {
  for (int i = 0; i < s->hoisted.n; i++)
    if (s->hoisted.at[i].x == x) return &s->hoisted.at[i];
  return NULL;
}

/* ---- reads -------------------------------------------------------------------------------------------------------- */

static bool absorbed(const Scope *s, const IExpr *x) {
  int i = ix_single(x);
  return i >= 0 && !s->var[i].name;
}

/* x in the rank's part of the dim: an index that is split as the dim is counts from the same origin; anything else is
   its global value less the first element that the rank holds. */
static const char *coordinate(Scope *s, const Dim *dim, const IExpr *x) {
  const Hoisted *h = hoisted(s, x);
  if (h) return h->local;
  if (!cg_is_split(&dim->split)) return emit_index(s, x);
  int i = ix_single(x);
  if (i >= 0 && s->var[i].range->size == dim->size && split_equal(&s->var[i].range->split, &dim->split)) return s->var[i].name;
  Range *r = emit_range(s->k, dim->size, &dim->split, dim->name ? dim->name : "part");
  return emit_sum(s->k->e, emit_index(s, x), arena_printf(s->k->e->a, "-%s", emit_lo(s->k, r)));
}

const char *emit_offset(Scope *s, const Type *t, int n, IExpr *const *ix) {
  Emit *e = s->k->e;
  int64_t stride[MAX_RANK];
  cg_strides(t, stride);
  const char *sum = "0";
  for (int d = 0; d < n; d++) {
    if (absorbed(s, ix[d])) continue;
    const char *at = coordinate(s, &t->dim[d], ix[d]);
    if (stride[d] != 1 && strcmp(at, "0")) at = arena_printf(e->a, "%s * %lld", paren(e, at), (long long)stride[d]);
    sum = emit_sum(e, sum, at);
  }
  return sum;
}

const char *emit_own_offset(Scope *s, const Type *t, int first) {
  IExpr *ix[MAX_RANK];
  Type inner = *t;
  inner.rank = t->rank - first;
  for (int d = first; d < t->rank; d++) {
    inner.dim[d - first] = t->dim[d];
    ix[d - first] = ix_index(s->k->e->a, d);
  }
  return emit_offset(s, &inner, inner.rank, ix);
}

/* The conditions under which a read stays inside: guards where an expression can leave its dim, and the rank's part. */
static const char *conditions(Scope *s, const Expr *read, const Type *t, bool guards) {
  Emit *e = s->k->e;
  Str c = {0};
  for (int d = 0; d < read->nix; d++) {
    const Hoisted *h = hoisted(s, read->ix[d]);
    if (!guards) {
      if (h && h->here) str_printf(e->a, &c, "%s%s", c.n ? " && " : "", h->here);
      continue;
    }
    int64_t lo, hi;
    ix_bounds(read->ix[d], &s->op->space, &lo, &hi);
    if (lo >= 0 && hi < t->dim[d].size) continue;
    const char *x = h ? h->global : paren(e, emit_index(s, read->ix[d]));
    if (lo < 0) str_printf(e->a, &c, "%s%s >= 0", c.n ? " && " : "", x);
    if (hi >= t->dim[d].size) str_printf(e->a, &c, "%s%s < %lld", c.n ? " && " : "", x, (long long)t->dim[d].size);
  }
  return c.n ? c.at : NULL;
}

static const char *from_memory(Scope *s, const Expr *read, const Type *t) {
  Emit *e = s->k->e;
  ValueId v = s->op->in[read->operand];
  const Place *place = &e->place[v];
  if (place->kind == PLACE_SETTING) return arena_printf(e->a, "cx->setting[%d]", place->setting);
  const char *p = emit_pointer(s->k, v, false);
  if (place->kind == PLACE_COUNTER) return arena_printf(e->a, "%.*s", (int)strlen(p) - 3, p + 2);
  return arena_printf(e->a, "%s[%s]", p, emit_offset(s, t, read->nix, read->ix));
}

static const char *read_value(Scope *s, const Expr *read) {
  Emit *e = s->k->e;
  const Type *t = &e->m->values.at[s->op->in[read->operand]].type;
  const char *x = s->value ? s->value(s->cx, s, s->op->in[read->operand], read->nix, read->ix) : NULL;
  if (!x) x = from_memory(s, read, t);
  const char *here = conditions(s, read, t, false);
  if (here) x = arena_printf(e->a, "(%s ? %s : 0)", here, x);
  if (!read->otherwise) return x;
  const char *inside = conditions(s, read, t, true);
  return inside ? arena_printf(e->a, "(%s ? %s : %s)", inside, x, emit_expr(s, read->otherwise)) : x;
}

const char *emit_inside(Scope *s, const Expr *read) {
  return conditions(s, read, &s->k->e->m->values.at[s->op->in[read->operand]].type, true);
}

/* ---- scalar expressions --------------------------------------------------------------------------------------------- */

const char *emit_literal(Emit *e, DType d, double v, int64_t i) {
  if (d == BOOL) return i ? "true" : "false";
  if (d == I32) return arena_printf(e->a, i == INT32_MIN ? "INT32_MIN" : "%lld", (long long)i);
  if (d == I64)
    return i == INT64_MIN ? "INT64_MIN"
                          : arena_printf(e->a, i > INT32_MAX || i < -INT32_MAX ? "INT64_C(%lld)" : "%lld", (long long)i);
  const char *suffix = d == F64 ? "" : "f";
  if (isnan(v)) return d == F64 ? "(double)NAN" : "NAN";
  if (isinf(v)) return arena_printf(e->a, "%s%s", v < 0 ? "-" : "", d == F64 ? "(double)INFINITY" : "INFINITY");
  // the shortest decimal that reads back as the same number; no exponent where none is needed
  bool plain = v == 0 || (fabs(v) >= 1e-5 && fabs(v) < 1e9);
  const char *text = NULL;
  for (int digits = 1, last = d == F64 ? 17 : 9; digits <= last; digits++) {
    text = arena_printf(e->a, "%.*g", digits, v);
    bool exact = d == F64 ? strtod(text, NULL) == v : strtof(text, NULL) == (float)v;
    if (exact && !(plain && strchr(text, 'e'))) break;
  }
  return arena_printf(e->a, "%s%s%s", text, strpbrk(text, ".e") ? "" : ".0", suffix);
}

typedef struct {
  const char *text;
  int prec;
} C;

static C expr(Scope *s, const Expr *x);

static const char *within(Scope *s, const Expr *x, int prec) {
  C c = expr(s, x);
  return c.prec >= prec ? c.text : arena_printf(s->k->e->a, "(%s)", c.text);
}

static C infix(Scope *s, const Expr *x, const char *op, int prec) {
  // the right operand binds tighter: a - (b + c), a / (b * c)
  return (C){arena_printf(s->k->e->a, "%s %s %s", within(s, x->arg[0], prec), op, within(s, x->arg[1], prec + 1)), prec};
}
/* Compilers warn of `a && b || c` without parentheses. */
static C either(Scope *s, const Expr *x) {
  int left = x->arg[0]->op == EX_OR ? P_OR : P_AND + 1;
  return (C){arena_printf(s->k->e->a, "%s || %s", within(s, x->arg[0], left), within(s, x->arg[1], P_AND + 1)), P_OR};
}

static C call(Scope *s, const Expr *x, const char *f32, const char *f64) {
  Emit *e = s->k->e;
  const char *f = x->arg[0]->dtype == F64 ? f64 : f32;
  const char *a = expr(s, x->arg[0]).text;
  if (!x->arg[1]) return (C){arena_printf(e->a, "%s(%s)", f, a), P_CALL};
  return (C){arena_printf(e->a, "%s(%s, %s)", f, a, expr(s, x->arg[1]).text), P_CALL};
}

static C power(Scope *s, const Expr *x) {
  Emit *e = s->k->e;
  const char *base = within(s, x->arg[0], P_UNARY);
  if (ex_is_lit(x->arg[1], 2) && is_atom(base)) return (C){arena_printf(e->a, "%s * %s", base, base), P_MUL};
  if (ex_is_lit(x->arg[1], 2)) return (C){arena_printf(e->a, "dtrt_square%s(%s)", x->dtype == F64 ? "" : "f", base), P_CALL};
  if (ex_is_lit(x->arg[1], 0.5)) return (C){arena_printf(e->a, "__builtin_sqrt%s(%s)", x->dtype == F64 ? "" : "f", base), P_CALL};
  return call(s, x, "powf", "pow");
}

static C cast(Scope *s, const Expr *x) {
  return (C){arena_printf(s->k->e->a, "(%s)%s", emit_ctype(x->dtype), within(s, x->arg[0], P_UNARY)), P_UNARY};
}

static C expr(Scope *s, const Expr *x) {
  Emit *e = s->k->e;
  bool integer = dtype_is_int(x->dtype);
#define FN(op, name, value, f32, f64, ...)                                                                                       \
  case EX_##op: return call(s, x, f32, f64);
  switch (x->op) {
  case EX_LITERAL: {
    const char *text = emit_literal(e, x->dtype, x->lit, x->ilit);
    return (C){text, *text == '-' ? P_UNARY : P_CALL};
  }
  case EX_INDEX: {
    const char *i = emit_index(s, x->ix[0]);
    return (C){arena_printf(e->a, "(int32_t)%s", paren(e, i)), P_UNARY};
  }
  case EX_READ: return (C){read_value(s, x), P_CALL};
  case EX_DOT: return (C){s->value(s->cx, s, -1, 0, NULL), P_CALL};
  case EX_ADD: return infix(s, x, "+", P_ADD);
  case EX_SUB: return infix(s, x, "-", P_ADD);
  case EX_MUL: return infix(s, x, "*", P_MUL);
  case EX_DIV: return integer ? call(s, x, "dtrt_div", "dtrt_div") : infix(s, x, "/", P_MUL);
  case EX_FLOORDIV:
    return integer ? call(s, x, "dtrt_floordiv", "")
                   : (C){arena_printf(e->a, "__builtin_floor%s(%s)", x->dtype == F64 ? "" : "f", infix(s, x, "/", P_MUL).text),
                         P_CALL};
  case EX_MOD: return integer ? call(s, x, "dtrt_floormod", "") : call(s, x, "dtrt_fmodf", "dtrt_fmod");
  case EX_POW: return power(s, x);
  case EX_LT: return infix(s, x, "<", P_LT);
  case EX_LE: return infix(s, x, "<=", P_LT);
  case EX_GE: return infix(s, x, ">=", P_LT);
  case EX_GT: return infix(s, x, ">", P_LT);
  case EX_EQ: return infix(s, x, "==", P_EQ);
  case EX_NE: return infix(s, x, "!=", P_EQ);
  case EX_AND: return infix(s, x, "&&", P_AND);
  case EX_OR: return either(s, x);
  case EX_NOT: return (C){arena_printf(e->a, "!%s", within(s, x->arg[0], P_CALL)), P_UNARY};
  case EX_NEG: return (C){arena_printf(e->a, "-%s", within(s, x->arg[0], P_CALL)), P_UNARY};
  case EX_WHERE:
    return (C){
        arena_printf(e->a, "%s ? %s : %s", within(s, x->arg[0], P_OR), within(s, x->arg[1], P_OR), within(s, x->arg[2], P_OR)),
        P_TERNARY};
  case EX_MIN: return integer ? call(s, x, "dtrt_imin", "") : call(s, x, "dtrt_minf", "dtrt_min");
  case EX_MAX: return integer ? call(s, x, "dtrt_imax", "") : call(s, x, "dtrt_maxf", "dtrt_max");
  case EX_ABS: return integer ? call(s, x, "dtrt_iabs", "") : call(s, x, "__builtin_fabsf", "__builtin_fabs");
  case EX_FLOOR: return integer ? expr(s, x->arg[0]) : call(s, x, "__builtin_floorf", "__builtin_floor");
#include "ir/functions.def"
  case EX_STOP: return expr(s, x->arg[0]);
  case EX_CAST: return cast(s, x);
  case EX_NOPS: break;
  }
  internal_error("no C for this operation");
}

const char *emit_expr(Scope *s, const Expr *x) { return within(s, x, P_TERNARY + 1); }
