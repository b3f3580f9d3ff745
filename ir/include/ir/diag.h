/* diag.h: what is wrong with a user's file. Errors and warnings are collected (the compiler goes on after
   one), sorted by position and rendered as text with carets or as JSON lines.

   A diagnostic has a stable code (E0123, W0012), a primary span, any number of labels at other spans, an
   optional help line (the edit that mends it). */
#ifndef DTC_DIAG_H
#define DTC_DIAG_H

#include "ir/base.h"

/* A place in a user's file: 1-based line and column (bytes), `len` bytes long. file is an index into
   Diags.files; line 0 means "no place". */
typedef struct {
  int file, line, col, len;
} Loc;

typedef struct {
  Loc loc;
  const char *text;
} DiagLabel;

typedef struct {
  const char *code; /* "E0101" or "W0101" */
  const char *name; /* of a warning, see warnings.def; NULL: an error by nature */
  bool warning;     /* false for one that -Werror made an error */
  Loc loc;
  const char *message;
  const char *label; /* text under the caret, or NULL */
  VEC(DiagLabel) labels;
  const char *help; /* or NULL */
} Diag;

typedef struct {
  const char *name; /* as shown to the user */
  const char *text; /* whole contents, NUL-terminated */
  size_t len;
} SourceFile;

enum {
#define WARN(code, name, on) WARN_##code,
#include "ir/warnings.def"
  NWARNINGS
};

typedef struct {
  Arena *arena;
  VEC(SourceFile) files;
  VEC(Diag *) list;
  int nerrors, nwarnings;
  struct {
    bool said, on, error; /* said: the user named it, or all */
  } policy[NWARNINGS];
} Diags;

Diags *diags_new(Arena *a);
int diags_add_file(Diags *d, const char *name, const char *text, size_t len);

/* What stands behind -W on the command line: "", "all", "error", NAME, "no-NAME", "error=NAME", "no-error=NAME"; later ones
   rule. False if there is no such warning. */
bool diag_policy(Diags *d, const char *option);
bool diag_wanted(const Diags *d, const char *code); /* is the warning shown at all? */
bool diag_asked(const Diags *d, const char *code);  /* and did the user ask for it? */

/* Adds a diagnostic and returns it, so that labels and a help line can be hung on. A warning that is not wanted is not listed. */
Diag *diag_error(Diags *d, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
Diag *diag_warning(Diags *d, const char *code, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void diag_mark(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));           /* text under the caret */
void diag_label(Diags *d, Diag *g, Loc loc, const char *fmt, ...) __attribute__((format(printf, 4, 5))); /* a second place */
void diag_help(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

typedef enum { DIAG_TEXT, DIAG_JSON } DiagFormat;
/* Prints all, sorted by position, at most 50 errors; one JSON object per line for DIAG_JSON:
   {"code","level","name" (a warning),"file","line","col","len","message","label","labels":[{file,line,col,len,text}],"help"}. */
void diags_print(Diags *d, DiagFormat format, FILE *out);

#endif
