/* diag_text.h: how one diagnostic looks to a person (diag_text.c). */
#ifndef DTC_DIAG_TEXT_H
#define DTC_DIAG_TEXT_H

#include "ir/diag.h"

void diag_text(Diags *d, const Diag *g, FILE *out);
/* Text that is safe on a terminal and in JSON: control characters, bidirectional overrides and bytes that are no
   UTF-8 are written as \x1b or \u{202e}. */
const char *diag_shown(Arena *a, const char *text);

#endif
