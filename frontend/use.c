/* use.c: a file and all that it uses -> one tree.

     use "blocks.dt"   ->   dims, defs and blocks of blocks.dt (Loc.file set), then the ITEM_USE itself

   A used file stands in the folder of the file that names it, or below: what a model reads is seen by looking at its
   folder. Each file counts once however often and in whatever circle it is used. */
#include "ast.h"

#include <limits.h>
#include <stdlib.h>

enum { MAX_CHAIN = 64 }; /* files that use each other in a row; 64 MiB of text are more than any model */
static const size_t max_text = (size_t)64 << 20;

typedef struct {
  Arena *a;
  Diags *d;
  VEC(const char *) seen; /* real paths */
  Ast *out;
} Loader;

static void load(Loader *x, int file, const char *path, int chain);

static const char *folder(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return !strcmp(path, "-") || !slash ? "" : arena_strndup(a, path, (size_t)(slash - path) + 1);
}

static const char *real(Arena *a, const char *path) {
  char *p = realpath(*path ? path : ".", NULL);
  const char *copy = p ? arena_strdup(a, p) : NULL;
  free(p);
  return copy;
}

/* Has the path a part `..`? */
static bool climbs(const char *path) {
  for (const char *p = path; p; p = strchr(p, '/')) {
    p += *p == '/';
    if (!strncmp(p, "..", 2) && (p[2] == '/' || p[2] == 0)) return true;
  }
  return false;
}

/* Does a real path stand in a real folder or below, links followed? */
static bool below(const char *path, const char *dir) {
  size_t n = strlen(dir);
  return !strncmp(path, dir, n) && (path[n] == '/' || (n > 0 && dir[n - 1] == '/'));
}

static bool seen(Loader *x, const char *path) {
  for (int i = 0; i < x->seen.n; i++)
    if (!strcmp(x->seen.at[i], path)) return true;
  vec_push(x->a, x->seen, path);
  return false;
}

static void outside(Loader *x, const AstItem *use) {
  Diag *g = diag_error(x->d, "E0601", use->name.loc, "a used file stands in the same folder or below");
  diag_help(x->d, g, "no absolute names, no `..` and no links that lead out of the folder");
}

static void bring(Loader *x, const AstItem *use, const char *from, int chain) {
  const char *dir = folder(x->a, from), *path = arena_printf(x->a, "%s%s", dir, use->path), *why = NULL;
  if (*use->path == '/' || *use->path == 0 || climbs(use->path)) {
    outside(x, use);
    return;
  }
  const char *target = real(x->a, path), *home = real(x->a, dir);
  if (target && home && !below(target, home)) {
    outside(x, use);
    return;
  }
  if (target && seen(x, target)) return;
  size_t len = 0;
  char *text = read_whole_file(x->a, path, &len, &why);
  if (!text)
    diag_error(x->d, "E0602", use->name.loc, "cannot read %s: %s", path, why);
  else if (chain == MAX_CHAIN)
    diag_error(x->d, "E0602", use->name.loc, "more than %d files use each other in a row", MAX_CHAIN);
  else
    load(x, diags_add_file(x->d, path, text, len), path, chain + 1);
}

static void load(Loader *x, int file, const char *path, int chain) {
  if (x->d->files.at[file].len > max_text) {
    diag_error(x->d, "E0602", (Loc){0}, "%s has more than 64 MiB", path);
    return;
  }
  Ast *t = ast_parse(x->a, x->d, file);
  for (int i = 0; i < t->items.n; i++) {
    AstItem *it = t->items.at[i];
    bool brought = it->kind == ITEM_DIM || it->kind == ITEM_DEF || it->kind == ITEM_BLOCK;
    if (it->kind == ITEM_USE) bring(x, it, path, chain);
    if (chain == 0 || brought) vec_push(x->a, x->out->items, it);
  }
}

Ast *ast_load(Arena *a, Diags *d, int file, const char *path) {
  Loader x = {.a = a, .d = d, .out = NEW(a, Ast)};
  const char *self = strcmp(path, "-") ? real(a, path) : NULL;
  if (self) vec_push(a, x.seen, self);
  load(&x, file, path, 0);
  return x.out;
}
