/* leaves.c: what exists before the step, and what is shown after it: input, param, metric, output.

     input tok, tgt: i32[B @ data, T] = next_token("corpus.txt")     two leaves, parts 0 and 1
     param w: f32[D, F] = normal(0.02)                               "layer.w"; [L, D, F] with stack 1 below a repeat     */
#include "lower.h"

#include <math.h>

static void declare_tensor(Ctx *cx, AstName name, TensorRef t) {
  Symbol *s = scope_declare(cx->lw, cx->scope, SYM_TENSOR, name);
  s->tensor = t;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

typedef struct {
  SourceKind kind;
  const char *file;
  bool shuffle;
} Source;

static bool source_word(Ctx *cx, const AstArg *x, Source *s) {
  const char *word = s->kind == SRC_TABLE ? "shuffle" : "sequential";
  if (!x->name.text && !x->each && x->value->kind == AST_NAME && !strcmp(x->value->name, word)) {
    s->shuffle = s->kind == SRC_TABLE;
    return true;
  }
  fault(cx->lw, "E0502", x->loc, "after the file's name only `%s` may stand", word);
  return false;
}

static bool source_of(Ctx *cx, const AstItem *it, Source *s) {
  Lower *lw = cx->lw;
  const AstExpr *e = it->value;
  static const char *const words[] = {"next_token", "table", NULL};
  if (e->kind != AST_CALL || (strcmp(e->name, "next_token") && strcmp(e->name, "table"))) {
    Diag *g = fault(lw, "E0501", e->loc, "an input comes from `next_token(\"file\")` or `table(\"file.npy\")`");
    const char *near = e->kind == AST_CALL ? ast_suggest(e->name, words) : NULL;
    if (near) diag_help(lw->d, g, "did you mean `%s`?", near);
    return false;
  }
  s->kind = *e->name == 't' ? SRC_TABLE : SRC_NEXT_TOKEN;
  s->shuffle = s->kind == SRC_NEXT_TOKEN;
  if (e->args.n < 1 || e->args.n > 2 || e->args.at[0].value->kind != AST_STRING) {
    fault(lw, "E0502", e->loc, "`%s` takes the name of a file: `%s(\"...\")`", e->name, e->name);
    return false;
  }
  s->file = e->args.at[0].value->name;
  return e->args.n == 1 || source_word(cx, &e->args.at[1], s);
}

static bool source_fits(Ctx *cx, const AstItem *it, const Source *s, const TensorRef *t) {
  Lower *lw = cx->lw;
  int most = s->kind == SRC_TABLE ? 1 : 2;
  if (it->names.n > most) {
    fault(lw, "E0502", it->names.at[most].loc,
          s->kind == SRC_TABLE ? "a table is one input; declare another for another file"
                               : "next_token gives two inputs: the tokens and the next ones");
    return false;
  }
  if (s->kind == SRC_NEXT_TOKEN && (t->rank != 2 || t->dtype != I32)) {
    fault(lw, "E0502", it->type.loc, "next_token gives windows of tokens, i32[B, T], not %s", shape_text(lw->a, t));
    return false;
  }
  if (t->rank == 0 || t->dtype == BOOL) {
    fault(lw, "E0502", it->type.loc, "a table's rows are read along a first dim of f32, i32 or i64, not %s",
          shape_text(lw->a, t));
    return false;
  }
  return true;
}

static ValueId input_leaf(Ctx *cx, const AstItem *it, int part, const Source *s, Type type) {
  Lower *lw = cx->lw;
  Op *op = ir_op(lw->m, OP_INPUT, it->names.at[part].loc);
  op->name = it->names.at[part].text;
  op->source = s->kind;
  op->file = s->file;
  op->shuffle = s->shuffle;
  op->source_part = part;
  ValueId v = ir_out(lw->m, op, op->name, type);
  ir_append(lw->m, cx->fr->region, op);
  origin_set(lw, v, op);
  return v;
}

void lower_input(Ctx *cx, const AstItem *it) {
  Type type;
  TensorRef t;
  Source s = {0};
  bool ok = type_of(cx, &it->type, true, &type, &t);
  ok &= source_of(cx, it, &s);
  ok = ok && source_fits(cx, it, &s, &t);
  for (int i = 0; i < it->names.n; i++) {
    if (ok) t.v = input_leaf(cx, it, i, &s, type);
    if (ok) written_type(cx, t.v, 0, it->names.at[i], &it->type, true);
    t.bad = !ok;
    declare_tensor(cx, it->names.at[i], t);
  }
}

/* ---- parameters --------------------------------------------------------------------------------------------------- */

typedef struct {
  InitKind kind;
  double a, b;
} Init;

typedef struct {
  const char *name; /* in full */
  Loc loc;
  Init init;
  bool frozen;
  int nstack;
  AstName short_name;
  const AstType *written;
} Leaf;

static const char *const INITIALISERS[] = {"zeros", "ones", "normal", "uniform", NULL};

static bool init_call(Ctx *cx, const AstExpr *e, Init *init) {
  Lower *lw = cx->lw;
  bool normal = !strcmp(e->name, "normal"), uniform = !strcmp(e->name, "uniform");
  const char *near = normal || uniform ? NULL : ast_suggest(e->name, INITIALISERS);
  if (near) {
    diag_help(lw->d, fault(lw, "E0503", e->head, "there is no initialiser `%s`", e->name), "did you mean `%s`?", near);
    return false;
  }
  if (!normal && !uniform) {
    init->kind = INIT_CONST;
    return real_of(cx, e, &init->a);
  }
  if (e->args.n != (normal ? 1 : 2)) {
    fault(lw, "E0503", e->loc, normal ? "`normal(s)` takes the standard deviation" : "`uniform(a, b)` takes both ends");
    return false;
  }
  init->kind = normal ? INIT_NORMAL : INIT_UNIFORM;
  bool ok = true;
  for (int i = 0; i < e->args.n; i++) ok &= real_of(cx, e->args.at[i].value, i ? &init->b : &init->a);
  if (ok && normal && !(init->a >= 0)) {
    fault(lw, "E0503", e->args.at[0].loc, "a standard deviation is not negative, this is %g", init->a);
    return false;
  }
  return ok;
}

static bool init_of(Ctx *cx, const AstExpr *e, Init *init) {
  if (e->kind == AST_CALL) return init_call(cx, e, init);
  if (e->kind != AST_NAME || e->is_dim || !strcmp(e->name, "inf") || !strcmp(e->name, "pi")) {
    init->kind = INIT_CONST;
    return real_of(cx, e, &init->a);
  }
  init->kind = !strcmp(e->name, "ones") ? INIT_ONES : INIT_ZEROS;
  if (!strcmp(e->name, "zeros") || !strcmp(e->name, "ones")) return true;
  Diag *g = fault(cx->lw, "E0503", e->loc, "there is no initialiser `%s`", e->name);
  const char *near = ast_suggest(e->name, INITIALISERS);
  diag_help(cx->lw->d, g, near ? "did you mean `%s`?" : "use zeros, ones, normal(s), uniform(a, b) or a number%s",
            near ? near : "");
  return false;
}

static bool init_sound(Ctx *cx, const AstExpr *e, const Init *init) {
  bool drawn = init->kind == INIT_NORMAL || init->kind == INIT_UNIFORM;
  const char *why = isnan(init->a) || isnan(init->b)                      ? "this initial value is not a number"
                    : drawn && (!isfinite(init->a) || !isfinite(init->b)) ? "random numbers are drawn between finite bounds"
                    : init->kind == INIT_UNIFORM && init->a > init->b     ? "`uniform(a, b)` runs from the lower end to the upper"
                                                                          : NULL;
  if (why) fault(cx->lw, "E0503", e->loc, "%s", why);
  return !why;
}

static int frames_of(const Frame *fr) {
  int n = 0;
  for (; fr->outer; fr = fr->outer) n++;
  return n;
}

/* What the frame's repeat needs so that each round gets a t: [L, ...]. */
static Type stacked_type(const Frame *fr, Type t) {
  for (int i = t.rank; i > 0; i--) t.dim[i] = t.dim[i - 1];
  t.dim[0] = (Dim){.name = fr->trip_dim, .size = fr->trip, .split = {.fixed = true}};
  t.rank++;
  return t;
}

static ValueId param_leaf(Ctx *cx, Frame *top, const Leaf *leaf, Type t) {
  Lower *lw = cx->lw;
  Op *op = ir_op(lw->m, OP_PARAM, leaf->loc);
  op->name = leaf->name;
  op->init = leaf->init.kind;
  op->init_a = leaf->init.a;
  op->init_b = leaf->init.b;
  op->frozen = leaf->frozen;
  op->nstack = leaf->nstack;
  ValueId v = ir_out(lw->m, op, leaf->name, t);
  ir_append(lw->m, top->region, op);
  return v;
}

/* The leaf's slice in this frame: each repeat on the way hands its rounds their part. */
static ValueId param_in(Ctx *cx, Frame *fr, const Leaf *leaf, Type t) {
  Lower *lw = cx->lw;
  int shift = t.rank - leaf->written->dims.n;
  if (!fr->outer) {
    ValueId v = param_leaf(cx, fr, leaf, t);
    written_type(cx, v, shift, leaf->short_name, leaf->written, true);
    return v;
  }
  ValueId outer = param_in(cx, fr->outer, leaf, stacked_type(fr, t));
  ValueId arg = ir_arg(lw->m, fr->region, lw->m->values.at[outer].name, t);
  vec_push(lw->a, fr->stacked_in, outer);
  vec_push(lw->a, fr->stacked_arg, arg);
  written_type(cx, arg, shift, leaf->short_name, leaf->written, true);
  return arg;
}

static bool param_type(Ctx *cx, const AstItem *it, const TensorRef *t, const Type *type) {
  Lower *lw = cx->lw;
  int depth = frames_of(cx->fr);
  if (t->dtype != F32) {
    fault(lw, "E0510", it->type.loc, "a parameter is a tensor of reals, f32, not %s", dtype_name(t->dtype));
    return false;
  }
  if (t->rank + depth > MAX_RANK) {
    fault(lw, "E0305", it->type.loc, "with %d repeats around it this parameter has more than %d dims", depth, MAX_RANK);
    return false;
  }
  Type all = *type;
  for (const Frame *fr = cx->fr; fr->outer; fr = fr->outer) all = stacked_type(fr, all);
  Extent dim[MAX_RANK];
  for (int i = 0; i < all.rank; i++) dim[i] = (Extent){all.dim[i].name, all.dim[i].size};
  type_for(lw, F32, all.rank, dim, it->type.loc); /* reports a size that overflows */
  return true;
}

void lower_param(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  Type type;
  TensorRef t;
  Init init = {0};
  bool ok = type_of(cx, &it->type, true, &type, &t);
  ok &= init_of(cx, it->value, &init) && init_sound(cx, it->value, &init);
  ok = ok && param_type(cx, it, &t, &type);
  for (int i = 0; i < it->names.n; i++) {
    Leaf leaf = {.loc = it->names.at[i].loc, .init = init, .frozen = it->frozen, .nstack = frames_of(cx->fr)};
    leaf.short_name = it->names.at[i];
    leaf.written = &it->type;
    leaf.name = arena_printf(lw->a, "%s%s", cx->path, it->names.at[i].text);
    if (ok) t.v = param_in(cx, cx->fr, &leaf, type);
    t.bad = !ok;
    declare_tensor(cx, it->names.at[i], t);
  }
}

/* ---- what is shown --------------------------------------------------------------------------------------------------- */

static void tap(Ctx *cx, TapKind kind, const char *name, ValueId v, Loc loc) {
  Op *op = ir_op(cx->lw->m, OP_TAP, loc);
  op->tap = kind;
  op->name = name;
  ir_in(cx->lw->m, op, v);
  ir_append(cx->lw->m, cx->fr->region, op);
}

bool is_number(Ctx *cx, const TensorRef *t, Loc loc) {
  if (t->dtype != BOOL) return true;
  Diag *g = fault(cx->lw, "E0210", loc, "a number is wanted here, this is true or false");
  diag_help(cx->lw->d, g, "a condition becomes a number by `where(c, 1, 0)` or `f32(c)`");
  return false;
}

/* The keys of a line of the log that are there without metrics. */
static bool on_step_line(const char *name) {
  static const char *const keys[] = {"step", "loss", "grad_norm", "lr", "ms", "tokens_per_s"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(name, keys[i])) return true;
  return false;
}

void lower_metric(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  TensorRef t = whole_value(cx, it->value, it->name.text, it->loc);
  if (on_step_line(it->name.text)) fault(lw, "E0202", it->name.loc, "the step line has a number `%s` of its own", it->name.text);
  for (int i = 0; i < lw->metrics.n; i++)
    if (!strcmp(lw->metrics.at[i], it->name.text)) fault(lw, "E0202", it->name.loc, "two metrics `%s`", it->name.text);
  vec_push(lw->a, lw->metrics, it->name.text);
  if (t.bad) return;
  if (t.rank) {
    Diag *g = fault(lw, "E0506", it->value->loc, "a metric is one number, this is %s", shape_text(lw->a, &t));
    diag_help(lw->d, g, "reduce it, e.g. `mean[b](...)`");
    return;
  }
  if (!is_number(cx, &t, it->value->loc)) return;
  if (t.dtype != F32) t = copy_as(cx, t, F32, NULL, it->name.text, it->loc);
  tap(cx, TAP_METRIC, it->name.text, t.v, it->loc);
}

static void output_one(Ctx *cx, AstName name, Loc loc) {
  Lower *lw = cx->lw;
  Symbol *s = scope_find(cx->scope, name.text);
  if (!s || s->kind != SYM_TENSOR) {
    unknown_name(cx, name.loc, "tensor", name.text, SYM_TENSOR);
    return;
  }
  for (int i = 0; i < lw->outputs.n; i++)
    if (!strcmp(lw->outputs.at[i], name.text)) fault(lw, "E0202", name.loc, "`%s` is an output twice", name.text);
  vec_push(lw->a, lw->outputs, name.text);
  TensorRef t = s->tensor;
  if (t.bad) return;
  if (t.exact == EXACT_REAL) t = copy_as(cx, t, F32, NULL, name.text, loc);
  tap(cx, TAP_OUTPUT, name.text, t.v, loc);
}

void lower_output(Ctx *cx, const AstItem *it) {
  for (int i = 0; i < it->names.n; i++) output_one(cx, it->names.at[i], it->loc);
}
