/* moves.h: what moves between ranks, and from whom to whom: the collectives of a local module as messages need them. */
#ifndef DTC_MOVES_H
#define DTC_MOVES_H

#include "part.h"

typedef struct {
  const Op *op;
  int slot; /* a combined collective moves several values */
} Reader;   /* slot -1: op is a repeat whose body yields the value */

typedef VEC(Reader) Readers;

typedef struct {
  const Op *op;
  int slot;
  int64_t times, bytes; /* per step; received each time by the rank that receives most */
  const Type *from, *to;
  ValueId source; /* what is moved, as the op that computes it makes it */
  Pending axes;
} Transfer;

typedef struct {
  const Module *m;
  Arena *a;
  VEC(Transfer) list; /* in the order of the program */
  Readers *reads;     /* by value: the ops that read it */
  int *written;       /* by value: the first of Module.written that is about it, or -1 */
  VEC(struct {
    const Op *op;
    int64_t times;
  })
  ops; /* all with an index space */
} Moves;

Moves *moves_new(const Module *m, Arena *a);
/* Who uses what the move makes, seen through further collectives and slices. */
Readers moves_readers(const Moves *s, const Transfer *v);
/* The first reader that cannot have dim d of what it reads split (d was, and is not any more), or one with op NULL; *index: the
   index of that op that runs along d, or -1 where it reads d by an expression. */
Reader moves_obstacle(const Moves *s, const Transfer *v, int *d, int *index);
/* Does a dim lose parts by it? */
bool moves_gathers(const Type *from, const Type *to, int d);
/* What the user's text says of a value or, if it has no name there, NULL. */
const Written *moves_written(const Moves *s, ValueId v);
/* The left side or type that spells a layout: "r[b @ data, t @ none, d @ none]"; only: the dim to spell, -1 for all. */
const char *moves_spelling(const Module *m, const Written *w, const Type *t, int only, Arena *a);
const char *moves_place(const Module *m, Loc loc, Arena *a); /* "charlm.dt:21" */

#endif
