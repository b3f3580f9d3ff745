/* scope.c: what a name stands for, and the errors about names.

     file scope          dims B, T    defs gelu    blocks layer    tensors wte, x
     scope of a call     dims S (own) tensors x, n, q, y           sees the file's dims, defs and blocks, not its tensors

   Tensors and dims share one table (they differ by their first letter), defs and blocks another: `f[i]` and `f(x)` are
   told apart by where they stand. */
#include "lower.h"

#include <stdlib.h>

#define uthash_malloc(size) arena_alloc(arena, (size))
#define uthash_free(p, size) ((void)(p), (void)(size))
#include <uthash.h>

typedef struct {
  const char *name;
  Symbol *sym;
  UT_hash_handle hh;
} Entry;

struct Scope {
  Arena *arena;
  Scope *outer;
  Entry *table[2]; /* 0: dims and tensors, 1: defs and blocks */
};

Scope *scope_new(Arena *a, Scope *outer) {
  Scope *s = NEW(a, Scope);
  s->arena = a;
  s->outer = outer;
  return s;
}

static Symbol *find_here(const Scope *s, int table, const char *name) {
  Entry *e = NULL;
  HASH_FIND_STR(s->table[table], name, e);
  return e ? e->sym : NULL;
}

Symbol *scope_find(Scope *s, const char *name) {
  for (Scope *at = s; at; at = at->outer) {
    Symbol *sym = find_here(at, 0, name);
    if (sym && (at == s || sym->kind != SYM_TENSOR)) return sym;
  }
  return NULL;
}

Symbol *scope_function(Scope *s, const char *name) {
  for (; s; s = s->outer) {
    Symbol *sym = find_here(s, 1, name);
    if (sym) return sym;
  }
  return NULL;
}

/* What scope_find hides, for messages. */
static Symbol *scope_outer_tensor(Scope *s, const char *name) {
  for (s = s->outer; s; s = s->outer) {
    Symbol *sym = find_here(s, 0, name);
    if (sym && sym->kind == SYM_TENSOR) return sym;
  }
  return NULL;
}

void scope_put(Scope *s, Symbol *sym) {
  Arena *arena = s->arena;
  int table = sym->kind == SYM_DEF || sym->kind == SYM_BLOCK;
  Entry *e = NULL;
  HASH_FIND_STR(s->table[table], sym->name, e);
  if (e) {
    e->sym = sym;
    return;
  }
  e = NEW(arena, Entry);
  e->name = sym->name;
  e->sym = sym;
  HASH_ADD_KEYPTR(hh, s->table[table], e->name, strlen(e->name), e);
}

static const char *kind_text(const Symbol *s) {
  static const char *const text[] = {"dim", "tensor", "def", "block"};
  return text[s->kind];
}

Symbol *scope_declare(Lower *lw, Scope *s, SymKind kind, AstName name) {
  Symbol *sym = NEW(lw->a, Symbol);
  *sym = (Symbol){.kind = kind, .name = name.text, .loc = name.loc, .declared = true};
  if (name_reserved(name.text) && !(kind == SYM_DEF && builtin_find(name.text))) { /* a def may replace a scalar function */
    Diag *g = fault(lw, "E0203", name.loc, "`%s` is the name of a built-in function", name.text);
    diag_mark(lw->d, g, "choose another name");
    return sym;
  }
  int table = kind == SYM_DEF || kind == SYM_BLOCK;
  Symbol *old = find_here(s, table, name.text);
  if (old) {
    Diag *g = fault(lw, "E0202", name.loc, "`%s` is declared twice", name.text);
    diag_label(lw->d, g, old->loc, "the %s `%s` is declared here", kind_text(old), name.text);
    return sym;
  }
  scope_put(s, sym);
  return sym;
}

void names_differ(Lower *lw, AstName first, AstName second) {
  if (strcmp(first.text, second.text)) return;
  Diag *g = fault(lw, "E0202", second.loc, "two results are called `%s`", second.text);
  diag_label(lw->d, g, first.loc, "the first one");
}

void scope_assign(Lower *lw, Scope *s, AstName name, TensorRef t) {
  if (name_reserved(name.text)) {
    Diag *g = fault(lw, "E0203", name.loc, "`%s` is the name of a built-in function", name.text);
    diag_mark(lw->d, g, "choose another name for the tensor");
  }
  Symbol *sym = NEW(lw->a, Symbol);
  *sym = (Symbol){.kind = SYM_TENSOR, .name = name.text, .loc = name.loc, .tensor = t, .hidden = find_here(s, 0, name.text)};
  scope_put(s, sym);
}

/* ---- errors ------------------------------------------------------------------------------------------------ */

static bool same_loc(Loc x, Loc y) { return x.file == y.file && x.line == y.line && x.col == y.col && x.len == y.len; }

Diag *fault(Lower *lw, const char *code, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Str text = {0};
  str_vprintf(lw->a, &text, fmt, ap);
  va_end(ap);
  lw->faults++;
  for (int i = 0; i < lw->d->list.n; i++) {
    const Diag *g = lw->d->list.at[i];
    if (!strcmp(g->code, code) && same_loc(g->loc, loc)) return NEW(lw->a, Diag);
  }
  return diag_error(lw->d, code, loc, "%s", text.at ? text.at : "");
}

Diag *not_yet(Lower *lw, Loc loc, const char *what) { return fault(lw, "E0299", loc, "%s is not supported yet", what); }

bool spend(Lower *lw, Loc loc) {
  if (lw->fuel-- > 0) return true;
  if (!lw->spent) fault(lw, "E0223", loc, "the program becomes too large here: calls of blocks or defs multiply");
  lw->spent = true;
  return false;
}

static const char *const OTHERS[] = {"sum",     "mean",        "max",     "min",       "prod",   "argmax", "topk",
                                     "softmax", "log_softmax", "rmsnorm", "layernorm", "cumsum", "xent",   NULL};

enum { MAX_WORDS = 4000 }; /* that are considered for a suggestion */

static void offer_scope(const Scope *s, SymKind kind, bool inner, const char **words, int *n) {
  Entry *e, *next;
  HASH_ITER(hh, s->table[kind == SYM_DEF || kind == SYM_BLOCK], e, next) {
    bool fits = e->sym->kind == kind || (kind == SYM_DEF && e->sym->kind == SYM_BLOCK);
    if (fits && (inner || kind != SYM_TENSOR) && *n < MAX_WORDS) words[(*n)++] = e->name;
  }
}

/* Where a statement or declaration further down gives that name, or nowhere: line 0. */
static Loc given_below(const Ctx *cx, Loc use, const char *name) {
  for (int i = 0; i < cx->nitems; i++) {
    const AstItem *it = cx->items[i];
    if (it->loc.file != use.file || it->loc.line < use.line) continue;
    for (int k = 0; k < it->lhs.n; k++)
      if (!strcmp(it->lhs.at[k].name.text, name)) return it->lhs.at[k].name.loc;
    for (int k = 0; k < it->names.n && it->kind != ITEM_OUTPUT; k++)
      if (!strcmp(it->names.at[k].text, name)) return it->names.at[k].loc;
    for (int k = 0; k < it->dims.n; k++)
      if (!strcmp(it->dims.at[k].name.text, name)) return it->dims.at[k].name.loc;
  }
  return (Loc){0};
}

void unknown_name(Ctx *cx, Loc loc, const char *what, const char *name, SymKind kind) {
  Lower *lw = cx->lw;
  if (lw->lossy) {
    lw->faults++; /* what depends on it stays silent */
    return;
  }
  Diag *g = fault(lw, "E0201", loc, "there is no %s `%s`", what, name);
  Symbol *hidden = kind == SYM_TENSOR ? scope_outer_tensor(cx->scope, name) : NULL;
  if (hidden) {
    diag_mark(lw->d, g, "a block sees dims, defs and its arguments, nothing else");
    diag_label(lw->d, g, hidden->loc, "this `%s` belongs to the file: pass it as an argument", name);
    return;
  }
  Loc below = given_below(cx, loc, name);
  if (below.line) {
    diag_label(lw->d, g, below, "`%s` is made here, further down", name);
    diag_help(lw->d, g, "statements and dims stand above what uses them");
    return;
  }
  const char **words = NEW_ARRAY(lw->a, const char *, MAX_WORDS + 100);
  int n = 0;
  for (Scope *s = cx->scope; s; s = s->outer) offer_scope(s, kind, s == cx->scope, words, &n);
  if (kind == SYM_DEF) {
    for (int i = 0; OTHERS[i]; i++) words[n++] = OTHERS[i];
    for (const Builtin *b = builtin_find(NULL); b->name; b++) words[n++] = b->name;
  }
  words[n] = NULL;
  const char *near = ast_suggest(name, words);
  if (near) diag_help(lw->d, g, "did you mean `%s`?", near);
}

/* ---- built-in functions -------------------------------------------------------------------------------------- */

static const Builtin BUILTINS[] = {
    {"where", 3, EX_NOPS, false},         {"abs", 1, EX_ABS, false},     {"floor", 1, EX_FLOOR, true},
#define FN(op, name, ...) {name, 1, EX_##op, true},
#include "ir/functions.def"
    {"relu", 1, EX_NOPS, false},          {"silu", 1, EX_NOPS, true},    {"gelu", 1, EX_NOPS, true},
    {"gelu_erf", 1, EX_NOPS, true},       {"min", 2, EX_MIN, false},     {"max", 2, EX_MAX, false},
    {"stop_gradient", 1, EX_STOP, false}, {"dropout", 2, EX_NOPS, true}, {"uniform", 0, EX_NOPS, false},
    {"normal", 0, EX_NOPS, false},        {"bce", 2, EX_NOPS, true},     {NULL, 0, EX_NOPS, false},
};

/* The whole table for NULL. */
const Builtin *builtin_find(const char *name) {
  if (!name) return BUILTINS;
  for (const Builtin *b = BUILTINS; b->name; b++)
    if (!strcmp(b->name, name)) return b;
  return NULL;
}

static bool in_list(const char *name, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(*list, name)) return true;
  return false;
}

bool is_reduction(const char *name) {
  static const char *const list[] = {"sum", "mean", "max", "min", "prod", "argmax", "topk", NULL};
  return in_list(name, list);
}

bool is_normaliser(const char *name) {
  static const char *const list[] = {"softmax", "log_softmax", "rmsnorm", "layernorm", "cumsum", "xent", NULL};
  return in_list(name, list);
}

bool name_reserved(const char *name) {
  DType d;
  return builtin_find(name) || in_list(name, OTHERS) || dtype_by_name(name, &d) || !strcmp(name, "inf") || !strcmp(name, "pi");
}
