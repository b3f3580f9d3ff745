/* whatif.h: edits of the text around a collective, planned again to see what they would change (whatif.c). */
#ifndef DTC_WHATIF_H
#define DTC_WHATIF_H

#include "moves.h"

typedef struct {
  PartEdit edit;
  bool valid;
  PartTotals totals;
} Trial;

typedef struct {
  const Moves *moves;
  const PartQuestion *q;
  Arena *a;
  PartTotals now;
  int around;        /* edits that are tried around a collective of more than one number */
  VEC(Trial) trials; /* each edit is planned once */
} WhatIf;

/* Shares out what may be tried in all among so many collectives. */
void whatif_share(WhatIf *w, int collectives);

/* Plans the edits around a collective: the tensors that it moves and that are made of it, each of their dims over the axes
   that it crosses, or whole. at: indices of w->trials, fewest bytes first. */
typedef VEC(int) TrialList;
TrialList whatif_around(WhatIf *w, const Transfer *v);
const char *whatif_text(const WhatIf *w, const PartEdit *e); /* "r[b, t @ model, d]" */

#endif
