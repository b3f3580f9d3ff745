/* sizes.c: numbers known when a file is compiled: dims, constants, the mesh, layout rules.

     mesh pod(data = 2)         --mesh data=4 makes it 4
     dim D = 128, K = D / 4     --set D=1024 makes K 256; a division that is not exact is an error
     normal(0.02 / sqrt(2 * L)) a real constant                                                                    */
#include "lower.h"

#include <math.h>

enum { MAX_DIM = INT32_MAX, MAX_DEVICES = 1 << 20 };

bool extents_agree(Extent x, Extent y) {
  if (x.name && y.name) return !strcmp(x.name, y.name);
  return x.size == y.size;
}

const char *extent_text(Arena *a, Extent x) { return x.name ? x.name : arena_printf(a, "%lld", (long long)x.size); }

/* ---- integers ----------------------------------------------------------------------------------------------- */

static bool dim_value(Ctx *cx, const AstExpr *e, int64_t *out) {
  Symbol *s = scope_find(cx->scope, e->name);
  if (!s || s->kind != SYM_DIM) {
    if (e->is_dim)
      unknown_name(cx, e->loc, "dim", e->name, SYM_DIM);
    else
      fault(cx->lw, "E0301", e->loc, "a size is made of dims and whole numbers; `%s` is neither", e->name);
    return false;
  }
  *out = s->size;
  return !s->bad;
}

static bool divide(Ctx *cx, const AstExpr *e, int64_t x, int64_t y, int64_t *out) {
  if (y <= 0) {
    fault(cx->lw, "E0302", e->head, "sizes are divided by positive numbers");
    return false;
  }
  if (x % y && !cx->lw->dry) {
    Diag *g = fault(cx->lw, "E0302", e->loc, "%lld / %lld is not a whole number", (long long)x, (long long)y);
    diag_mark(cx->lw->d, g, "sizes divide exactly");
    return false;
  }
  *out = x / y;
  return true;
}

static bool size_binary(Ctx *cx, const AstExpr *e, int64_t *out) {
  int64_t x, y;
  if (!size_of(cx, e->left, &x) | !size_of(cx, e->right, &y)) return false; /* both are checked */
  bool fits;
  switch (e->op) {
  case AST_ADD: fits = checked_add(x, y, out); break;
  case AST_SUB: fits = !__builtin_sub_overflow(x, y, out); break;
  case AST_MUL: fits = checked_mul(x, y, out); break;
  case AST_DIV: return divide(cx, e, x, y, out);
  default: fault(cx->lw, "E0301", e->head, "a size is made with + - * / only"); return false;
  }
  if (!fits) fault(cx->lw, "E0303", e->loc, "this number does not fit 64 bits");
  return fits;
}

bool size_of(Ctx *cx, const AstExpr *e, int64_t *out) {
  switch (e->kind) {
  case AST_INT: *out = e->ival; return true;
  case AST_NAME: return dim_value(cx, e, out);
  case AST_BINARY: return size_binary(cx, e, out);
  case AST_UNARY:
    if (e->op != AST_NEG) break;
    if (!size_of(cx, e->left, out)) return false;
    *out = *out == INT64_MIN ? INT64_MAX : -*out; /* neither is a size */
    return true;
  default: break;
  }
  fault(cx->lw, "E0301", e->loc, "a size is made of dims and whole numbers with + - * /");
  return false;
}

static bool positive(Ctx *cx, Loc loc, const char *what, int64_t n) {
  if (n >= 1 && n <= MAX_DIM) return true;
  fault(cx->lw, "E0303", loc, "%s is %lld; it must be between 1 and %d", what, (long long)n, MAX_DIM);
  return false;
}

bool extent_of(Ctx *cx, const AstExpr *e, Extent *out) {
  *out = (Extent){NULL, 1};
  if (!size_of(cx, e, &out->size)) return false;
  if (e->kind == AST_NAME) out->name = e->name;
  return positive(cx, e->loc, "this size", out->size);
}

/* ---- reals --------------------------------------------------------------------------------------------------- */

static bool real_call(Ctx *cx, const AstExpr *e, double *out) {
  static const struct {
    const char *name;
    double (*f)(double);
  } table[] = {{"sqrt", sqrt}, {"exp", exp}, {"log", log}, {"abs", fabs}, {"sin", sin}, {"cos", cos}, {"tanh", tanh}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(e->name, table[i].name) && e->args.n == 1) {
      if (!real_of(cx, e->args.at[0].value, out)) return false;
      *out = table[i].f(*out);
      return true;
    }
  fault(cx->lw, "E0213", e->loc, "a constant is wanted here; `%s` gives none", e->name);
  return false;
}

static bool real_binary(Ctx *cx, const AstExpr *e, double *out) {
  double x, y;
  if (!real_of(cx, e->left, &x) | !real_of(cx, e->right, &y)) return false;
  switch (e->op) {
  case AST_ADD: *out = x + y; return true;
  case AST_SUB: *out = x - y; return true;
  case AST_MUL: *out = x * y; return true;
  case AST_DIV: *out = x / y; return true;
  case AST_FLOORDIV: *out = floor(x / y); return true;
  case AST_MOD: *out = x - y * floor(x / y); return true;
  case AST_POW: *out = pow(x, y); return true;
  default: fault(cx->lw, "E0213", e->loc, "a number is wanted here"); return false;
  }
}

bool real_of(Ctx *cx, const AstExpr *e, double *out) {
  switch (e->kind) {
  case AST_INT: *out = (double)e->ival; return true;
  case AST_FLOAT: *out = e->fval; return true;
  case AST_BINARY: return real_binary(cx, e, out);
  case AST_CALL: return real_call(cx, e, out);
  case AST_UNARY:
    if (e->op != AST_NEG) break;
    if (!real_of(cx, e->left, out)) return false;
    *out = -*out;
    return true;
  case AST_NAME:
    if (!strcmp(e->name, "inf") || !strcmp(e->name, "pi")) {
      *out = *e->name == 'i' ? INFINITY : M_PI;
      return true;
    }
    int64_t n;
    if (!e->is_dim) break;
    if (!dim_value(cx, e, &n)) return false;
    *out = (double)n;
    return true;
  default: break;
  }
  fault(cx->lw, "E0213", e->loc, "a constant is wanted here: a number, made of literals and dims");
  return false;
}

/* ---- dims ------------------------------------------------------------------------------------------------------ */

static bool override(const FrontendOptions *o, bool mesh, const char *name, int64_t *out) {
  bool found = false;
  int n = !o ? 0 : mesh ? o->mesh.n : o->dims.n;
  for (int i = 0; i < n; i++) {
    const char *key = mesh ? o->mesh.at[i].name : o->dims.at[i].name;
    if (!strcmp(key, name)) *out = mesh ? o->mesh.at[i].value : o->dims.at[i].value, found = true;
  }
  return found;
}

void lower_dims(Ctx *cx, const AstItem *it) {
  for (int i = 0; i < it->dims.n; i++) {
    const AstDimDef *def = &it->dims.at[i];
    int64_t size = 1;
    bool set = override(cx->lw->o, false, def->name.text, &size), ok = set || size_of(cx, def->value, &size);
    if (ok) ok = positive(cx, def->value->loc, arena_printf(cx->lw->a, "%s%s", def->name.text, set ? ", by --set," : ""), size);
    Symbol *s = scope_declare(cx->lw, cx->scope, SYM_DIM, def->name);
    s->size = ok ? size : 1;
    s->bad = !ok;
  }
}

/* ---- mesh and layout --------------------------------------------------------------------------------------------- */

static void add_axis(Ctx *cx, Mesh *m, const AstAxis *x) {
  Lower *lw = cx->lw;
  if (mesh_axis(m, x->name.text) >= 0) {
    fault(lw, "E0403", x->name.loc, "the mesh has two axes `%s`", x->name.text);
    return;
  }
  if (m->naxes == MAX_AXES) {
    fault(lw, "E0404", x->name.loc, "a mesh has at most %d axes", MAX_AXES);
    return;
  }
  int64_t size = x->size, all = mesh_devices(m);
  bool set = override(lw->o, true, x->name.text, &size);
  if (size < 1 || size > MAX_DEVICES || !checked_mul(all, size, &all) || all > MAX_DEVICES) {
    fault(lw, "E0303", x->size_loc, "axis `%s` has size %lld%s: a mesh has between 1 and %d devices in all", x->name.text,
          (long long)size, set ? ", by --mesh" : "", MAX_DEVICES);
    size = 1;
  }
  m->axis[m->naxes++] = (Axis){x->name.text, size};
}

void lower_mesh(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  Mesh *m = &lw->m->mesh;
  if (lw->mesh_loc.line) {
    Diag *g = fault(lw, "E0403", it->name.loc, "a file has one mesh");
    diag_label(lw->d, g, lw->mesh_loc, "the other one");
    return;
  }
  lw->mesh_loc = it->name.loc;
  m->name = it->name.text;
  for (int i = 0; i < it->axes.n; i++) add_axis(cx, m, &it->axes.at[i]);
}

void lower_layout(Ctx *cx, const AstItem *it) {
  for (int i = 0; i < it->rules.n; i++) {
    const AstRule *r = &it->rules.at[i];
    bool twice = false;
    for (int j = 0; j < cx->lw->rules.n && !twice; j++) {
      AstName old = cx->lw->rules.at[j].dim;
      twice = !strcmp(old.text, r->dim.text);
      if (twice)
        diag_label(cx->lw->d, fault(cx->lw, "E0202", r->dim.loc, "two rules for `%s`", old.text), old.loc, "the first one");
    }
    if (!twice) vec_push(cx->lw->a, cx->lw->rules, ((LayoutRule){r->dim, &r->axes}));
  }
}

void check_rules(Ctx *cx) {
  for (int i = 0; i < cx->lw->rules.n; i++) {
    const LayoutRule *r = &cx->lw->rules.at[i];
    const Symbol *s = scope_find(cx->scope, r->dim.text);
    if (!s || s->kind != SYM_DIM) unknown_name(cx, r->dim.loc, "dim", r->dim.text, SYM_DIM);
    for (int k = 0; k < r->axes->names.n; k++) {
      AstName name = r->axes->names.at[k];
      bool twice = false;
      for (int j = 0; j < k; j++) twice |= !strcmp(r->axes->names.at[j].text, name.text);
      if (axis_named(cx, name) >= 0 && twice) fault(cx->lw, "E0402", name.loc, "axis `%s` splits one dim twice", name.text);
    }
  }
}

/* ---- overrides ----------------------------------------------------------------------------------------------------- */

static bool declares_dim(const Ast *ast, const char *name) {
  for (int i = 0; i < ast->items.n; i++)
    for (int j = 0; j < ast->items.at[i]->dims.n; j++)
      if (!strcmp(ast->items.at[i]->dims.at[j].name.text, name)) return true;
  return false;
}

static Loc mesh_place(Lower *lw) { return lw->mesh_loc.line ? lw->mesh_loc : (Loc){.file = 0, .line = 1, .col = 1, .len = 1}; }

void check_overrides(Ctx *cx, const Ast *ast) {
  Lower *lw = cx->lw;
  if (!lw->o) return;
  for (int i = 0; i < lw->o->mesh.n; i++) {
    const char *name = lw->o->mesh.at[i].name;
    if (mesh_axis(&lw->m->mesh, name) >= 0) continue;
    Diag *g = fault(lw, "E0304", mesh_place(lw), "--mesh sets `%s`, but the mesh has no such axis", name);
    const char *words[MAX_AXES + 1] = {0};
    for (int k = 0; k < lw->m->mesh.naxes; k++) words[k] = lw->m->mesh.axis[k].name;
    const char *near = ast_suggest(name, words);
    if (near) diag_help(lw->d, g, "did you mean `%s`?", near);
  }
  for (int i = 0; i < lw->o->dims.n; i++) {
    const char *name = lw->o->dims.at[i].name;
    if (!declares_dim(ast, name))
      fault(lw, "E0304", (Loc){.file = 0, .line = 1, .col = 1, .len = 1}, "--set sets `%s`, but the file has no such dim", name);
  }
}
