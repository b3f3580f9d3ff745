/* gaps.c: gaps of the arena against a table of bytes and ticks, on spans enough for several pages. */
#include "codegen/cg.h"

#include "unit.h"

enum { TICKS = 12, SPANS = 700, BYTES = 4096 };

static bool taken[TICKS][BYTES];

static bool free_at(int start, int end, int64_t byte) {
  for (int t = start; t <= end; t++)
    if (taken[t][byte]) return false;
  return true;
}

/* The same question, byte by byte. Behind what is taken the gap is endless, and taken only if there is no other. */
static int64_t slow_gap(int start, int end, int64_t bytes) {
  int64_t best = -1, best_size = INT64_MAX;
  for (int64_t at = 0, next; at < BYTES; at = next + 1) {
    for (next = at; next < BYTES && free_at(start, end, next); next++) {
    }
    if (next == BYTES) return best >= 0 ? best : at;
    if (next - at >= bytes && next - at < best_size) best = at, best_size = next - at;
  }
  return best;
}

UNIT(gaps_agree_with_a_table_of_bytes) {
  Arena *a = arena_new();
  Gaps g = {0};
  memset(taken, 0, sizeof taken);
  uint64_t seed = 7;
  for (int i = 0; i < SPANS; i++) {
    seed = random_mix(seed);
    int start = (int)(seed % TICKS), end = (int)((seed >> 8) % TICKS);
    if (end < start) end = start;
    int64_t bytes = 1 + (int64_t)((seed >> 16) % 24), at = cg_gap(&g, start, end, bytes, 0);
    CHECK_EQ(at, slow_gap(start, end, bytes));
    CHECK(at + bytes < BYTES);
    cg_gap_take(a, &g, start, end, at, at + bytes);
    for (int t = start; t <= end; t++) memset(&taken[t][at], 1, (size_t)bytes);
  }
  CHECK(g.n > 2);
  arena_free(a);
}
