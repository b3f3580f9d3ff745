/* runtime_toy.h: a hand-made training program for the runtime's tests. w[6, 4] over the ranks (uneven on four),
   tokens tok, tgt[4, 3] over the ranks:

     loss = sum of all tokens of the batch,  dw[e] = e + loss / 1024,  m = m / 2 + dw,  w = w - lr m

   metric first = tok[0, 0], and, on one rank, metric rows = sum[b] 2 ** tok[b, 0]. Everything is exact in f32, so any number of
   ranks gives the same bits. */
#ifndef DTC_RUNTIME_TOY_H
#define DTC_RUNTIME_TOY_H

#include "runtime_run.h"

enum { TOY_W = 24, TOY_TOKENS = 12 };

/* Valid until the next call. vocabulary: limit of the tokens; trains: with a train block. */
dtrt_Program *toy_program(int nranks, bool trains);
void toy_limit(int64_t vocabulary);
void toy_on_update(void (*f)(dtrt_Context *)); /* runs before each update, on all ranks */
/* Writes corpus.bin of n bytes (7 i + i / 5) % 31 into the test's folder. */
const char *toy_corpus(int n);

#endif
