/* module.c: a .dt file -> a module of annotated IR: the declarations first (mesh, dims, layout rules, defs, blocks), which
   may be used before their line, then inputs, parameters and statements in order, then blocks that nobody calls, which
   are checked all the same, and the train block, which speaks of all parameters.                                       */
#include "lower.h"

enum { FUEL = 2000000 }; /* nodes and ops that one file may become */

static void declare_block(Ctx *cx, const AstItem *it) {
  for (int i = 1; i < it->names.n; i++)
    for (int j = 0; j < i; j++) names_differ(cx->lw, it->names.at[j], it->names.at[i]);
  scope_declare(cx->lw, cx->scope, SYM_BLOCK, it->name)->item = it;
}

static void declare(Ctx *cx, const AstItem *it) {
  switch (it->kind) {
  case ITEM_MESH: lower_mesh(cx, it); return;
  case ITEM_DIM: lower_dims(cx, it); return;
  case ITEM_LAYOUT: lower_layout(cx, it); return;
  case ITEM_DEF: scope_declare(cx->lw, cx->scope, SYM_DEF, it->name)->item = it; return;
  case ITEM_BLOCK: declare_block(cx, it); return;
  default: return;
  }
}

static void note_train(Lower *lw, const AstItem *it) {
  if (!lw->train) {
    lw->train = it;
    return;
  }
  Diag *g = fault(lw, "E0507", it->head, "a file has one train block");
  diag_label(lw->d, g, lw->train->head, "the other one");
}

static void lower_item(Ctx *cx, const AstItem *it) {
  switch (it->kind) {
  case ITEM_INPUT: lower_input(cx, it); return;
  case ITEM_PARAM: lower_param(cx, it); return;
  case ITEM_STATEMENT: lower_statement(cx, it); return;
  case ITEM_METRIC: lower_metric(cx, it); return;
  case ITEM_OUTPUT: lower_output(cx, it); return;
  case ITEM_TRAIN: note_train(cx->lw, it); return;
  default: return;
  }
}

void lower_items(Ctx *cx, const AstItem *const *items, int n) {
  for (int i = 0; i < n && !cx->lw->spent; i++) lower_item(cx, items[i]);
}

/* Each def and block that was declared without a clash. */
static void for_functions(Ctx *cx, const Ast *ast, AstItemKind kind, void (*f)(Ctx *, Symbol *)) {
  for (int i = 0; i < ast->items.n; i++) {
    const AstItem *it = ast->items.at[i];
    Symbol *s = it->kind == kind ? scope_function(cx->scope, it->name.text) : NULL;
    if (s && s->item == it) f(cx, s);
  }
}

static void check_if_uncalled(Ctx *cx, Symbol *block) {
  if (!block->used && !cx->lw->spent) check_uncalled(cx, block);
}

static void lower_file(Ctx *cx, const Ast *ast) {
  Lower *lw = cx->lw;
  for (int i = 0; i < ast->items.n; i++)
    if (ast->items.at[i]->kind == ITEM_MESH) declare(cx, ast->items.at[i]);
  for (int i = 0; i < ast->items.n; i++)
    if (ast->items.at[i]->kind != ITEM_MESH) declare(cx, ast->items.at[i]);
  check_overrides(cx, ast);
  check_rules(cx);
  for_functions(cx, ast, ITEM_DEF, check_def);
  lower_items(cx, cx->items, cx->nitems);
  for_functions(cx, ast, ITEM_BLOCK, check_if_uncalled);
  if (lw->train && !lw->spent) lower_train(cx, lw->train);
}

Module *frontend_module(Arena *a, Diags *d, int file, const char *path, const FrontendOptions *o) {
  int before = d->nerrors;
  Ast *ast = ast_load(a, d, file, path);
  Lower lw = {.a = a, .d = d, .m = ir_module(a), .o = o, .fuel = FUEL, .lossy = d->nerrors > before};
  lw.m->mesh.name = "mesh";
  lw.file = scope_new(a, NULL);
  lw.stems = scope_new(a, NULL);
  Frame top = {.region = lw.m->programs.at[0].body, .step = -1};
  Ctx cx = {.lw = &lw, .fr = &top, .scope = lw.file, .path = "", .site = ""};
  cx.items = (const AstItem *const *)ast->items.at;
  cx.nitems = ast->items.n;
  lower_file(&cx, ast);
  for (int i = 0; i < d->files.n; i++) {
    const char *name = d->files.at[i].name, *slash = strrchr(name, '/');
    vec_push(a, lw.m->files, slash ? slash + 1 : name); /* schedules and emitted code say charlm.dt:21, wherever it was */
  }
  ir_number(lw.m);
  return d->nerrors > before ? NULL : lw.m;
}
