/* ast.c: the syntax tree as .dt text, every operator in parentheses, so that it can be read back and shows what binds
   to what (--emit=ast); and an expression as one would write it, for messages.

     y[b] = -x[b]**2 + 1   ->   y[b] = ((-(x[b] ** 2)) + 1)                                                   */
#include "ast.h"
#include "frontend/frontend.h"

typedef struct {
  Arena *a;
  Str s;
  bool full; /* parentheses around every operator */
} Out;

static const struct {
  const char *text;
  int level;
} op_table[] = {
    [AST_NEG] = {"-", 7},   [AST_NOT] = {"not", 3},     [AST_ADD] = {"+", 5}, [AST_SUB] = {"-", 5},  [AST_MUL] = {"*", 6},
    [AST_DIV] = {"/", 6},   [AST_FLOORDIV] = {"//", 6}, [AST_MOD] = {"%", 6}, [AST_POW] = {"**", 8}, [AST_LT] = {"<", 4},
    [AST_LE] = {"<=", 4},   [AST_EQ] = {"==", 4},       [AST_NE] = {"!=", 4}, [AST_GE] = {">=", 4},  [AST_GT] = {">", 4},
    [AST_AND] = {"and", 2}, [AST_OR] = {"or", 1},
};

const char *ast_op_text(AstOp op) { return op_table[op].text; }

static void put(Out *o, const char *text) { str_put(o->a, &o->s, text); }

/* ---- expressions ------------------------------------------------------------------------------------------ */

static void expr(Out *o, const AstExpr *e, int least);

static void arguments(Out *o, const AstExpr *e) {
  put(o, "(");
  for (int i = 0; i < e->args.n; i++) {
    AstArg g = e->args.at[i];
    put(o, i ? ", " : "");
    if (g.name.text) str_printf(o->a, &o->s, "%s = ", g.name.text);
    put(o, g.each ? "each " : "");
    expr(o, g.value, 0);
  }
  put(o, ")");
}

static void read(Out *o, const AstExpr *e) {
  put(o, e->otherwise ? "(" : "");
  put(o, e->name);
  for (int i = 0; i < e->index.n; i++) {
    put(o, i ? ", " : "[");
    expr(o, e->index.at[i], 0);
  }
  put(o, "]");
  if (!e->otherwise) return;
  put(o, " else ");
  expr(o, e->otherwise, 7);
  put(o, ")");
}

static void reduction(Out *o, const AstExpr *e) {
  put(o, e->micro ? "micro " : "");
  put(o, e->name);
  for (int i = 0; i < e->binds.n; i++) {
    put(o, i ? ", " : "[");
    put(o, e->binds.at[i].name.text);
    put(o, e->binds.at[i].range ? ": " : "");
    if (e->binds.at[i].range) expr(o, e->binds.at[i].range, 0);
  }
  put(o, "]");
  arguments(o, e);
}

/* An operand binds at least as tightly as its side asks: left of a left-associative operator its own level, right one
   more; ** the other way round, and comparisons do not chain. */
static void operation(Out *o, const AstExpr *e, int least) {
  int level = op_table[e->op].level;
  bool group = level < least || (o->full && least > 0);
  put(o, group ? "(" : "");
  if (e->kind == AST_UNARY) {
    put(o, e->op == AST_NOT ? "not " : "-");
    expr(o, e->left, level);
  } else {
    expr(o, e->left, level + (level == 8 || level == 4));
    str_printf(o->a, &o->s, " %s ", op_table[e->op].text);
    expr(o, e->right, level == 8 ? 7 : level + 1);
  }
  put(o, group ? ")" : "");
}

static void expr(Out *o, const AstExpr *e, int least) {
  switch (e->kind) {
  case AST_INT:
  case AST_FLOAT: put(o, e->text); break;
  case AST_STRING: str_printf(o->a, &o->s, "\"%s\"", e->name); break;
  case AST_NAME: put(o, e->name); break;
  case AST_READ: read(o, e); break;
  case AST_CALL:
    put(o, e->name);
    arguments(o, e);
    break;
  case AST_REDUCE: reduction(o, e); break;
  case AST_TUPLE: arguments(o, e); break;
  case AST_UNARY:
  case AST_BINARY: operation(o, e, least); break;
  }
}

const char *ast_expr_text(Arena *a, const AstExpr *e) {
  Out o = {.a = a};
  put(&o, "");
  expr(&o, e, 0);
  return o.s.at;
}

/* ---- parts of items --------------------------------------------------------------------------------------- */

static void names(Out *o, const AstNames *v) {
  for (int i = 0; i < v->n; i++) str_printf(o->a, &o->s, "%s%s", i ? ", " : "", v->at[i].text);
}

static void axes(Out *o, const AstAxes *x, const char *before) {
  if (!x->present) return;
  put(o, before);
  put(o, x->none ? "none" : x->names.n > 1 ? "(" : "");
  names(o, &x->names);
  put(o, x->names.n > 1 ? ")" : "");
}

static void type(Out *o, const AstType *t) {
  put(o, t->dtype.text);
  for (int i = 0; i < t->dims.n; i++) {
    put(o, i ? ", " : "[");
    expr(o, t->dims.at[i].size, 0);
    axes(o, &t->dims.at[i].axes, " @ ");
  }
  put(o, t->brackets ? "]" : "");
}

static void lhs(Out *o, const AstLhs *l) {
  put(o, l->name.text);
  for (int i = 0; i < l->index.n; i++) {
    AstLhsIndex x = l->index.at[i];
    put(o, i ? ", " : "[");
    expr(o, x.index, 0);
    put(o, x.range ? ": " : "");
    if (x.range) expr(o, x.range, 0);
    axes(o, &x.axes, " @ ");
  }
  put(o, l->brackets ? "]" : "");
}

static void statement(Out *o, const AstItem *it) {
  for (int i = 0; i < it->lhs.n; i++) {
    put(o, i ? ", " : "");
    lhs(o, &it->lhs.at[i]);
  }
  put(o, it->add ? " += " : " = ");
  if (it->repeat) {
    str_printf(o->a, &o->s, "repeat(%s", it->repeat_dim.text);
    axes(o, &it->repeat_axes, " @ ");
    put(o, ") ");
  }
  expr(o, it->value, 0);
  if (it->as.text) str_printf(o->a, &o->s, " as %s", it->as.text);
}

/* ---- items ------------------------------------------------------------------------------------------------ */

static void item(Out *o, const AstItem *it, const char *indent);

static void declaration(Out *o, const AstItem *it, const char *keyword) {
  put(o, keyword);
  names(o, &it->names);
  put(o, ": ");
  type(o, &it->type);
  put(o, " = ");
  expr(o, it->value, 0);
  put(o, it->frozen ? ", frozen" : "");
}

static void mesh(Out *o, const AstItem *it) {
  str_printf(o->a, &o->s, "mesh %s(", it->name.text);
  for (int i = 0; i < it->axes.n; i++)
    str_printf(o->a, &o->s, "%s%s = %lld", i ? ", " : "", it->axes.at[i].name.text, (long long)it->axes.at[i].size);
  put(o, ")");
}

static void layout(Out *o, const AstItem *it) {
  put(o, "layout {");
  for (int i = 0; i < it->rules.n; i++) {
    str_printf(o->a, &o->s, "%s %s", i ? "," : "", it->rules.at[i].dim.text);
    axes(o, &it->rules.at[i].axes, ": ");
  }
  put(o, " }");
}

static void dims(Out *o, const AstItem *it) {
  for (int i = 0; i < it->dims.n; i++) {
    str_printf(o->a, &o->s, "%s%s = ", i ? ", " : "dim ", it->dims.at[i].name.text);
    expr(o, it->dims.at[i].value, 0);
  }
}

static void function(Out *o, const AstItem *it) {
  str_printf(o->a, &o->s, "def %s(", it->name.text);
  names(o, &it->names);
  put(o, ") = ");
  expr(o, it->value, 0);
}

static void block(Out *o, const AstItem *it) {
  str_printf(o->a, &o->s, "block %s(", it->name.text);
  for (int i = 0; i < it->args.n; i++) {
    str_printf(o->a, &o->s, "%s%s: ", i ? ", " : "", it->args.at[i].name.text);
    type(o, &it->args.at[i].type);
  }
  put(o, it->names.n > 1 ? ") -> (" : ") -> ");
  names(o, &it->names);
  put(o, it->names.n > 1 ? ") {\n" : " {\n");
  for (int i = 0; i < it->body.n; i++) item(o, it->body.at[i], "  ");
  put(o, "}");
}

static void train(Out *o, const AstItem *it) {
  str_printf(o->a, &o->s, "train %s {\n", it->name.text);
  for (int i = 0; i < it->settings.n; i++) {
    AstSetting s = it->settings.at[i];
    str_printf(o->a, &o->s, "  %s = ", s.key.text);
    expr(o, s.value, 0);
    axes(o, &s.over, " over ");
    put(o, "\n");
  }
  put(o, "}");
}

static void item(Out *o, const AstItem *it, const char *indent) {
  put(o, indent);
  switch (it->kind) {
  case ITEM_MESH: mesh(o, it); break;
  case ITEM_LAYOUT: layout(o, it); break;
  case ITEM_DIM: dims(o, it); break;
  case ITEM_INPUT: declaration(o, it, "input "); break;
  case ITEM_PARAM: declaration(o, it, "param "); break;
  case ITEM_DEF: function(o, it); break;
  case ITEM_BLOCK: block(o, it); break;
  case ITEM_USE: str_printf(o->a, &o->s, "# use \"%s\"", it->path); break; /* what it brings stands before it */
  case ITEM_OUTPUT:
    put(o, "output ");
    names(o, &it->names);
    break;
  case ITEM_METRIC:
    str_printf(o->a, &o->s, "metric %s = ", it->name.text);
    expr(o, it->value, 0);
    break;
  case ITEM_TRAIN: train(o, it); break;
  case ITEM_STATEMENT: statement(o, it); break;
  }
  put(o, "\n");
}

const char *ast_print(Arena *a, const Ast *t) {
  Out o = {.a = a, .full = true};
  put(&o, "");
  for (int i = 0; i < t->items.n; i++) item(&o, t->items.at[i], "");
  return o.s.at;
}

const char *frontend_ast(Arena *a, Diags *d, int file, const char *path) {
  const Ast *t = ast_load(a, d, file, path);
  return d->nerrors ? NULL : ast_print(a, t);
}

/* ---- spans ------------------------------------------------------------------------------------------------ */

static int64_t rest_of_line(const SourceFile *f, Loc x) {
  const char *p = f->text, *end = f->text + f->len;
  for (int i = 1; i < x.line && p < end; i++) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    p = nl ? nl + 1 : end;
  }
  const char *nl = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
  return (nl ? nl : end) - p - (x.col - 1);
}

Loc loc_join(const Diags *d, Loc x, Loc y) {
  int64_t len = x.line == y.line ? (int64_t)y.col + y.len - x.col : rest_of_line(&d->files.at[x.file], x);
  x.len = (int)max_i64(x.len, len);
  return x;
}
