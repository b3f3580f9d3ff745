// layout.c of the runtime: replicas share what has to be sent. For random pairs of complete layouts on 2 x 3 x 2 ranks, what
// all ranks fetch from each is counted: nobody sends more than an equal share of what is wanted of its box.
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"
#include "unit.h"

enum { RANKS = 12, DIMS = 2 };
static const dtrt_Digit DIGITS[3] = {{6, 2}, {2, 3}, {1, 2}};

static dtrt_Layout random_layout(const int64_t *sizes, unsigned *seed) {
  dtrt_Layout l = {.dtype = DTRT_F32, .rank = DIMS};
  for (int d = 0; d < DIMS; d++) l.dim[d] = (dtrt_Dim){.size = sizes[d], .chunk = sizes[d]};
  for (int i = 0; i < 3; i++) {
    int d = rand_r(seed) % (DIMS + 1);
    if (d == DIMS) continue;
    l.dim[d].digit[l.dim[d].n++] = DIGITS[i];
  }
  for (int d = 0; d < DIMS; d++) {
    int64_t k = 1;
    for (int i = 0; i < l.dim[d].n; i++) k *= l.dim[d].digit[i].size;
    l.dim[d].chunk = (sizes[d] + k - 1) / k;
  }
  return l;
}

// Everything that others want of the box that `rank` holds, by its holders, rounded up.
static int64_t fair_share(const dtrt_Layout *from, const dtrt_Layout *to, int rank) {
  RtBox box = rt_box(from, rank);
  int64_t wanted = 0, holders = 0;
  for (int q = 0; q < RANKS; q++) {
    RtBox theirs = rt_box(from, q), want = rt_box(to, q), both = rt_box_meet(&want, &box, DIMS);
    bool holds = !memcmp(&theirs, &box, sizeof box);
    holders += holds;
    wanted += holds ? 0 : rt_box_elements(&both, DIMS);
  }
  return (wanted + holders - 1) / holders;
}

static void try_layouts(const int64_t *sizes, unsigned seed) {
  unsigned s = seed;
  int member[RANKS];
  int64_t sent[RANKS] = {0};
  dtrt_Layout from = random_layout(sizes, &s), to = random_layout(sizes, &s);
  for (int r = 0; r < RANKS; r++) member[r] = r;
  for (int r = 0; r < RANKS; r++) {
    Plan p;
    int64_t all = 0;
    CHECK(rt_plan(&from, &to, RANKS, member, r, &p));
    for (int k = 0; k < p.npieces; k++) {
      all += p.piece[k].elements;
      if (p.piece[k].src[0] != r) sent[p.piece[k].src[0]] += p.piece[k].elements;
    }
    CHECK_EQ(all, p.elements);
    rt_plan_free(&p);
  }
  for (int r = 0; r < RANKS; r++)
    if (sent[r] > fair_share(&from, &to, r))
      unit_fail(__FILE__, __LINE__, "seed %u: rank %d sends %lld, its share is %lld", seed, r, (long long)sent[r],
                (long long)fair_share(&from, &to, r));
}

UNIT(replicas_send_equal_shares) {
  for (unsigned seed = 0; seed < 300; seed++) try_layouts((int64_t[]){12, 6}, seed);
  for (unsigned seed = 0; seed < 300; seed++) try_layouts((int64_t[]){7, 5}, seed);
}
