/* window.h: what shard.c, window.c and traffic.c ask each other. Private to ir/. */
#ifndef DTC_IR_WINDOW_H
#define DTC_IR_WINDOW_H

#include "ir/ir.h"

/* What the indices a .. b - 1 read of a dim of n elements. */
void window_range(const Window *w, int64_t a, int64_t b, int64_t n, int64_t *lo, int64_t *hi);
/* An upper bound of what `chunk` indices in a row read, exact but where the division rounds. */
int64_t window_capacity(const Window *w, int64_t chunk, int64_t n);

/* A dim of n elements that s splits, made ready to be asked for many ranks. shard.c */
typedef struct {
  int64_t n, all, chunk; /* all: what is dealt out, in chunks */
  const Window *window;  /* or NULL */
  int parts;
  int64_t step[MAX_PARTS], size[MAX_PARTS]; /* a rank's coordinate along part i: rank / step % size */
} Dealt;
Dealt dealt_out(const Mesh *m, const Split *s, int64_t n);
void dealt_range(const Dealt *d, int64_t rank, int64_t *lo, int64_t *hi); /* as split_range */

#endif
