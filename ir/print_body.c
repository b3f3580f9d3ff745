/* print_body.c: names, numbers, types, index expressions and bodies as text. Names and strings that the grammar would
   misread are quoted, reals have the fewest digits that are exact, what is missing shows as `?`. */
#include "print.h"

#include <math.h>
#include <stdlib.h>

/* ---- names, strings, numbers ------------------------------------------------------------------------ */

/* Escapes what a string or a reason may not hold as it is. */
void irw_escaped(Printer *p, const char *s, bool quotes) {
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    char text[5] = {(char)c};
    if (c == '\\' || (c == '"' && quotes))
      text[0] = '\\', text[1] = (char)c;
    else if (c < 32 || c == 127)
      snprintf(text, sizeof text, "\\x%02x", c);
    puts_(p, text);
  }
}

void irw_quoted(Printer *p, const char *s) {
  puts_(p, "\"");
  irw_escaped(p, s, true);
  puts_(p, "\"");
}

void irw_int(Printer *p, int64_t v) {
  char text[24];
  char *at = text + sizeof text - 1;
  *at = 0;
  uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (v < 0) *--at = '-';
  puts_(p, at);
}

/* An index, a dim, an axis; the name of a value may also begin with a digit, it stands behind a %. */
void irw_name(Printer *p, const char *s) {
  if (s && is_name_start(*s) && all_chars(s, is_name_char))
    puts_(p, s);
  else
    irw_quoted(p, s ? s : "");
}

void irw_value(Printer *p, ValueId v) {
  puts_(p, "%");
  const char *name = in_table(v, p->m->values.n) ? p->m->values.at[v].name : "?";
  if (*name && all_chars(name, is_name_char))
    puts_(p, name);
  else
    irw_quoted(p, name);
}

void irw_values(Printer *p, const ValueId *v, int n) {
  for (int i = 0; i < n; i++) {
    if (i) puts_(p, ", ");
    irw_value(p, v[i]);
  }
}

void irw_real(Printer *p, double v, bool single) {
  static const int digits[] = {6, 7, 8, 9, 12, 15, 16, 17};
  char text[40];
  for (int i = 0; i < COUNT(digits); i++) {
    snprintf(text, sizeof text, "%.*g", digits[i], v);
    double back = strtod(text, NULL);
    if (back == v || (single && (float)back == (float)v)) break;
  }
  puts_(p, isnan(v) ? "nan" : text);
}

static void print_literal(Printer *p, const Expr *x) {
  if (x->dtype == BOOL) {
    puts_(p, x->ilit ? "true" : "false");
    return;
  }
  int start = p->s.n;
  if (dtype_is_int(x->dtype))
    put(p, "%lld", (long long)x->ilit);
  else
    irw_real(p, x->lit, x->dtype == F32);
  bool marked = dtype_is_int(x->dtype) || strpbrk(p->s.at + start, ".enf"); /* inf and nan have an n */
  put(p, "%s%s", marked ? "" : ".0", WORD(LITERAL_SUFFIX, x->dtype));
}

/* ---- types -------------------------------------------------------------------------------------------- */

static void print_part(Printer *p, AxisPart x) {
  const Mesh *m = &p->m->mesh;
  irw_name(p, in_table(x.axis, m->naxes) ? m->axis[x.axis].name : "?");
  bool whole = in_table(x.axis, m->naxes) && x.pre == 1 && x.size == m->axis[x.axis].size;
  if (!whole) put(p, "(%lld:%lld)", (long long)x.pre, (long long)x.size);
}

void irw_parts(Printer *p, const AxisPart *part, int n) {
  for (int i = 0; i < n; i++) {
    if (i) puts_(p, ", ");
    print_part(p, part[i]);
  }
}

void irw_split(Printer *p, const Split *s) {
  if (s->n > 1) puts_(p, "(");
  irw_parts(p, s->part, s->n);
  if (s->n > 1) puts_(p, ")");
}

/* `2*i - 1`, `7 - i` */
static void print_bound(Printer *p, int64_t mul, int64_t c) {
  bool first = mul == 0 || (mul < 0 && c > 0);
  if (first) irw_int(p, c);
  if (mul == 0) return;
  if (mul < 0) puts_(p, first ? " - " : "-");
  if (mul != 1 && mul != -1) irw_int(p, mul < 0 ? -mul : mul), puts_(p, "*");
  puts_(p, "i");
  if (c && !first) puts_(p, c < 0 ? " - " : " + "), irw_int(p, c < 0 ? -c : c);
}

/* ` window(i < 8: (2*i .. 2*i + 3) // 4)` */
static void print_window(Printer *p, const Window *w) {
  puts_(p, " window(i < ");
  irw_int(p, w->of);
  puts_(p, w->div == 1 ? ": " : ": (");
  print_bound(p, w->mul, w->lo);
  puts_(p, " .. ");
  print_bound(p, w->mul, w->hi);
  if (w->div != 1) put(p, ") // %lld", (long long)w->div);
  puts_(p, ")");
}

/* `B=8@data granule 2:4`; size and split of a dim or of an index; `~` where it is propagate's choice, not a wish. */
void irw_extent(Printer *p, const char *name, int64_t size, const Split *s) {
  if (name) {
    irw_name(p, name);
    puts_(p, "=");
  }
  irw_int(p, size);
  if (s->n == 0 && (s->fixed || split_windowed(s))) puts_(p, "@none");
  if (split_whole(s)) return;
  if (s->n > 0) puts_(p, p->m->stage == STAGE_ANNOTATED && !s->fixed ? "~" : "@");
  irw_split(p, s);
  if (s->n > 0 && s->granule > 1) put(p, " granule %lld", (long long)s->granule);
  if (split_windowed(s)) print_window(p, &s->window);
  if (p->m->stage >= STAGE_LOCAL) put(p, ":%lld", (long long)split_capacity(s, size));
}

void irw_type(Printer *p, const Type *t) {
  puts_(p, in_table((int)t->dtype, NDTYPES) ? dtype_name(t->dtype) : "?");
  for (int i = 0; i < t->rank; i++) {
    puts_(p, i ? ", " : "[");
    irw_extent(p, t->dim[i].name, t->dim[i].size, &t->dim[i].split);
  }
  if (t->rank) puts_(p, "]");
  if (t->pending.n == 0) return;
  puts_(p, "{");
  irw_parts(p, t->pending.part, t->pending.n);
  put(p, ": %s}", WORD(REDUCE_TEXT, t->pending.kind));
}

/* ---- index expressions and bodies ------------------------------------------------------------------------ */

void irw_index_name(Printer *p, const Op *op, int i) {
  if (in_table(i, op->space.n) && op->space.idx[i].name)
    irw_name(p, op->space.idx[i].name);
  else
    puts_(p, "?");
}

void irw_indices(Printer *p, const Op *op, IExpr *const *ix, int n) {
  bool plain = true;
  for (int i = 0; i < n; i++) plain &= ix_single(ix[i]) >= 0;
  for (int i = 0; i < n; i++) {
    if (i) puts_(p, plain ? "," : ", ");
    irw_index(p, op, ix[i]);
  }
}

static void print_read(Printer *p, const Op *op, int in, IExpr *const *ix, int n) {
  irw_value(p, operand(op, in));
  if (n == 0) return;
  puts_(p, "[");
  irw_indices(p, op, ix, n);
  puts_(p, "]");
}

static void print_atom(Printer *p, const Op *op, const Term *t, bool scaled) {
  if (t->kind == ATOM_INDEX) irw_index_name(p, op, t->index);
  if (t->kind == ATOM_VALUE) print_read(p, op, t->operand, t->at, t->nat);
  if (t->kind != ATOM_DIV && t->kind != ATOM_MOD) return;
  bool bare = t->sub->n == 1 && t->sub->c == 0 && t->sub->term[0].coef == 1 && !t->sub->term[0].sub;
  if (scaled) puts_(p, "(");
  if (!bare) puts_(p, "(");
  irw_index(p, op, t->sub);
  if (!bare) puts_(p, ")");
  put(p, " %s %lld", t->kind == ATOM_DIV ? "//" : "%", (long long)t->k);
  if (scaled) puts_(p, ")");
}

/* `2*i + p - 1`; `7 - i` where the first term is negative and the constant is not. */
void irw_index(Printer *p, const Op *op, const IExpr *x) {
  bool constant_first = x->n == 0 || (x->c > 0 && x->term[0].coef < 0);
  if (constant_first) irw_int(p, x->c);
  for (int i = 0; i < x->n; i++) {
    int64_t k = x->term[i].coef, size = k < 0 ? -k : k;
    bool first = i == 0 && !constant_first;
    puts_(p, first ? (k < 0 ? "-" : "") : k < 0 ? " - " : " + ");
    if (size != 1) irw_int(p, size), puts_(p, "*");
    print_atom(p, op, &x->term[i], size != 1 || (first && k < 0));
  }
  if (x->c && !constant_first) put(p, " %c %lld", x->c < 0 ? '-' : '+', (long long)(x->c < 0 ? -x->c : x->c));
}

static void print_call(Printer *p, const Op *op, const Expr *x) {
  const ExText *t = &EX_TEXT[x->op];
  put(p, "%s(", x->op == EX_CAST ? dtype_name(x->dtype) : t->name);
  for (int i = 0; i < t->nargs; i++) {
    if (i) puts_(p, ", ");
    irw_expr(p, op, x->arg[i], 0);
  }
  puts_(p, ")");
}

/* Comparisons (precedence 4) do not associate; the others associate to the left. */
static void print_infix(Printer *p, const Op *op, const Expr *x, int prec) {
  const ExText *t = &EX_TEXT[x->op];
  if (t->prec < prec) puts_(p, "(");
  irw_expr(p, op, x->arg[0], t->prec == 4 ? 5 : t->prec);
  puts_(p, " "), puts_(p, t->name), puts_(p, " ");
  irw_expr(p, op, x->arg[1], t->prec + 1);
  if (t->prec < prec) puts_(p, ")");
}

void irw_expr(Printer *p, const Op *op, const Expr *x, int prec) {
  if (!x) {
    puts_(p, "?");
    return;
  }
  switch (x->op) {
  case EX_LITERAL: print_literal(p, x); return;
  case EX_DOT: puts_(p, "dot"); return;
  case EX_INDEX:
    puts_(p, "idx(");
    irw_index(p, op, x->ix[0]);
    puts_(p, ")");
    return;
  case EX_READ:
    if (x->otherwise) puts_(p, "(");
    print_read(p, op, x->operand, x->ix, x->nix);
    if (!x->otherwise) return;
    puts_(p, " else ");
    irw_expr(p, op, x->otherwise, 0);
    puts_(p, ")");
    return;
  default:
    if (EX_TEXT[x->op].prec)
      print_infix(p, op, x, prec);
    else
      print_call(p, op, x);
  }
}
