/* types.c: types as written -> shapes, dtypes and where the user pinned them.

     f32[B @ data, T, 2 * K @ (pod, model)]     dims B, T and a literal size; B and the last one fixed, T open
                                                (an input or a parameter: T unsplit, or by a layout rule)            */
#include "lower.h"

TensorRef tensor_of(ValueId v, DType d, Exactness x, int rank, const Extent *dim) {
  TensorRef t = {.v = v, .dtype = d, .exact = x, .rank = rank};
  for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
  return t;
}

const char *shape_text(Arena *a, const TensorRef *t) {
  Str s = {0};
  str_put(a, &s, t->exact == TYPED ? dtype_name(t->dtype) : "number");
  for (int i = 0; i < t->rank; i++) str_printf(a, &s, "%s%s", i ? ", " : "[", extent_text(a, t->dim[i]));
  if (t->rank) str_put(a, &s, "]");
  return s.at;
}

bool dtype_supported(Ctx *cx, DType d, Loc loc) {
  if (d != BF16 && d != F16 && d != F64) return true;
  not_yet(cx->lw, loc, arena_printf(cx->lw->a, "computing in %s", dtype_name(d)));
  return false;
}

/* A tensor's bytes must fit; no dim is negative, so the product only grows. */
static bool fits(const Type *t) {
  int64_t n = 16;
  for (int i = 0; i < t->rank; i++)
    if (!checked_mul(n, t->dim[i].size, &n)) return false;
  return true;
}

Type type_for(Lower *lw, DType d, int rank, const Extent *dim, Loc loc) {
  Type t = {.dtype = d, .rank = rank};
  for (int i = 0; i < rank; i++) t.dim[i] = (Dim){.name = dim[i].name, .size = dim[i].size};
  if (!fits(&t)) {
    fault(lw, "E0303", loc, "a tensor of this shape has more bytes than 64 bits can count");
    for (int i = 0; i < rank; i++) t.dim[i].size = 1;
  }
  return t;
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

int axis_named(Ctx *cx, AstName name) {
  Lower *lw = cx->lw;
  int axis = mesh_axis(&lw->m->mesh, name.text);
  if (axis >= 0) return axis;
  Diag *g = fault(lw, "E0401", name.loc, "the mesh has no axis `%s`", name.text);
  const char *words[MAX_AXES + 1] = {0};
  for (int k = 0; k < lw->m->mesh.naxes; k++) words[k] = lw->m->mesh.axis[k].name;
  const char *near = ast_suggest(name.text, words);
  if (near) diag_help(lw->d, g, "did you mean `%s`?", near);
  if (lw->mesh_loc.line)
    diag_label(lw->d, g, lw->mesh_loc, "the mesh");
  else
    diag_help(lw->d, g, "the file has no mesh: add `mesh pod(%s = 2)`", name.text);
  return -1;
}

static void add_part(Ctx *cx, AstName name, Dim *dim, Type *whole, Loc where) {
  Lower *lw = cx->lw;
  int axis = axis_named(cx, name);
  if (axis < 0) return;
  AxisPart part = axis_whole(&lw->m->mesh, axis);
  if (type_uses(whole, part)) {
    if (split_uses(&dim->split, part) && where.line) return; /* reported where the rule stands */
    bool here = split_uses(&dim->split, part);
    Diag *g = fault(lw, "E0402", where.line ? where : name.loc,
                    here ? "axis `%s` splits one dim twice" : "axis `%s` splits two dims of one tensor", name.text);
    diag_mark(lw->d, g, "an axis may appear once per tensor");
    if (where.line) diag_label(lw->d, g, name.loc, "this rule splits %s over it too", dim->name);
    return;
  }
  if (dim->split.n < MAX_PARTS) dim->split.part[dim->split.n++] = part;
}

static void pin(Ctx *cx, const AstAxes *axes, Dim *dim, Type *whole, Loc where) {
  dim->split.fixed = true;
  if (axes->none) return;
  for (int i = 0; i < axes->names.n; i++) add_part(cx, axes->names.at[i], dim, whole, where);
}

void pin_dim(Ctx *cx, const AstAxes *axes, Dim *dim, Type *whole) { pin(cx, axes, dim, whole, (Loc){0}); }

static void apply_rule(Ctx *cx, Dim *dim, Type *whole, Loc where) {
  dim->split.fixed = true;
  for (int i = 0; dim->name && i < cx->lw->rules.n; i++)
    if (!strcmp(cx->lw->rules.at[i].dim.text, dim->name)) pin(cx, cx->lw->rules.at[i].axes, dim, whole, where);
}

/* ---- types ----------------------------------------------------------------------------------------------------------- */

static bool dtype_of(Ctx *cx, AstName name, DType *d) {
  static const char *const words[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "bool", NULL};
  if (!dtype_by_name(name.text, d)) {
    Diag *g = fault(cx->lw, "E0207", name.loc, "there is no type `%s`", name.text);
    const char *near = ast_suggest(name.text, words);
    diag_help(cx->lw->d, g, near ? "did you mean `%s`?" : "types are %s", near ? near : "f32, i32, i64, bool, bf16, f16, f64");
    return false;
  }
  return dtype_supported(cx, *d, name.loc);
}

bool type_of(Ctx *cx, const AstType *t, bool closed, Type *type, TensorRef *shape) {
  DType d = F32;
  bool ok = dtype_of(cx, t->dtype, &d);
  int rank = t->dims.n;
  if (rank > MAX_RANK) {
    fault(cx->lw, "E0305", t->loc, "a tensor has at most %d dims, this one has %d", MAX_RANK, rank);
    return false;
  }
  Extent dim[MAX_RANK];
  for (int i = 0; i < rank; i++) ok &= extent_of(cx, t->dims.at[i].size, &dim[i]);
  *type = type_for(cx->lw, d, rank, dim, t->loc);
  for (int i = 0; i < rank; i++)
    if (t->dims.at[i].axes.present) pin_dim(cx, &t->dims.at[i].axes, &type->dim[i], type);
  for (int i = 0; closed && i < rank; i++)
    if (!t->dims.at[i].axes.present) apply_rule(cx, &type->dim[i], type, t->dims.at[i].size->loc);
  *shape = tensor_of(-1, d, TYPED, rank, dim);
  return ok;
}
