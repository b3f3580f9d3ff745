/* window.h: what shard.c asks window.c. Private to ir/. */
#ifndef DTC_IR_WINDOW_H
#define DTC_IR_WINDOW_H

#include "ir/ir.h"

/* What the indices a .. b - 1 read of a dim of n elements. */
void window_range(const Window *w, int64_t a, int64_t b, int64_t n, int64_t *lo, int64_t *hi);
/* An upper bound of what `chunk` indices in a row read, exact but where the division rounds. */
int64_t window_capacity(const Window *w, int64_t chunk, int64_t n);

#endif
