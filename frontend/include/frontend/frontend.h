/* frontend.h: .dt text -> annotated IR. */
#ifndef DTC_FRONTEND_H
#define DTC_FRONTEND_H

#include "ir/ir.h"

/* Overrides from the command line: --mesh data=4 and --set D=1024. */
typedef struct {
  VEC(struct {
    const char *name;
    int64_t value;
  }) mesh, dims;
} FrontendOptions;

/* Parses, checks and lowers source file `file` of d (`use` reads others relative to `path`'s folder). NULL
   after errors, which are in d. The module's stage is annotated; its train block is filled in, its gradient
   not yet built. */
Module *frontend_module(Arena *a, Diags *d, int file, const char *path, const FrontendOptions *o);
/* The syntax tree as text (--emit=ast), or NULL after errors. */
const char *frontend_ast(Arena *a, Diags *d, int file, const char *path);
/* What `dtc --explain E0123` prints, or NULL for an unknown code. */
const char *frontend_explain(Arena *a, const char *code);

#endif
