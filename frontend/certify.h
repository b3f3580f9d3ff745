/* certify.h: is a plan the program that it was made of? certify.c checks, certificate.c writes it down, repeats it from
   the file and makes a small reproducer of a mismatch. */
#ifndef DTC_CERTIFY_H
#define DTC_CERTIFY_H

#include "ir/ir.h"

enum { CERTIFY_RANKS = 64 /* on larger meshes the axes shrink, too */, CERTIFY_INPUTS = 64 /* at most, while they are cheap */ };

typedef enum { CERTIFY_EQUAL, CERTIFY_MISMATCH, CERTIFY_UNKNOWN } CertifyResult;

typedef struct {
  const Module *source;    /* annotated, as it was before propagate */
  const Module *plan;      /* local */
  const Module *scheduled; /* the same plan at full size, with buffers, or NULL */
  PassContext *cx;
  uint64_t seed;
} CertifyInput;

typedef struct {
  CertifyResult result;
  const char *why; /* a mismatch, or why nothing can be said */
  uint64_t seeds[CERTIFY_INPUTS];
  int inputs;                       /* random inputs on which plan and source are equal */
  int64_t ranks, calls;             /* of the problem that was run; collectives in order */
  bool arena, buffers, order;       /* the arena of the problem that was run; buffers at full size; order of collectives */
  bool smaller_mesh, planned_again; /* the axes shrank; and the plan could not: it was made again, for the small mesh */
  const char *sizes;                /* "B 8 to 4, T 128 to 2"; "" if nothing shrank */
  const char *text;                 /* one line that says all this */
} Certificate;

Certificate certify(Arena *a, const CertifyInput *in);

#endif
