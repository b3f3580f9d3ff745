/* faults.h: is the certificate to be trusted? Plans of random programs and of models get a fault (mutate.c) or a change that
   keeps what they compute (vary.c); judge.c says by f64 at full size whether the meaning changed; main.c, dtc_faults,
   asks verifier and certificate and prints a table. */
#ifndef DTC_FAULTS_H
#define DTC_FAULTS_H

#include "../fuzz/fuzz.h"

typedef struct {
  Arena *a;
  Module *m;
  Rng rng;
} Edit;

/* Edits the module somewhere; false: there is no place for it. */
typedef bool EditFn(Edit *e);
typedef struct {
  const char *name;
  EditFn *fn;
  Stage stage; /* of the module: local, or scheduled with buffers */
} EditRow;

extern const EditRow faults[], variants[];
extern const int nfaults, nvariants;

/* ---- what both kinds of edits need: mutate.c ---- */
typedef struct {
  Region *region;
  Op *op;
} Site;
typedef bool SiteFn(const Edit *e, const Site *s);
bool edit_site(Edit *e, SiteFn *fits, Site *out);              /* a random op that fits */
void edit_replace(Region *r, int from, ValueId v, ValueId by); /* what ops behind `from` and the yields use */

/* ---- judge.c ---- */
enum { JUDGE_INPUTS = 8 };
typedef enum { JUDGE_SAME, JUDGE_DIFFERS, JUDGE_CRASHES, JUDGE_CANNOT /* the source itself does not run */ } Judgement;
typedef struct {
  EvalRun *run, *moved; /* without noise and with; NULL where it does not run */
} Seen;
typedef struct {
  const Module *source;
  uint64_t seed[JUDGE_INPUTS];
  Seen source_on[JUDGE_INPUTS]; /* once for all plans */
} Judge;
Judge judge_new(Arena *a, const Module *source, uint64_t seed);
Judgement judge(const Judge *of, const Module *plan);
Judgement judge_apart(const Judge *of, const Module *plan); /* in a child: the plan may be unlawful */

#endif
