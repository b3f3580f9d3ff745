/* gaps.c: which bytes of the arena are free during an interval of time.

     taken: bytes 0-64 at ticks 1-3, 64-128 at 2-9, 192-256 at 2-2
     64 bytes for ticks 2-2: between 128 and 192, the smallest gap that holds them; for ticks 4-5: at 0

   Spans lie on pages in the order of their first byte, so that a question is one pass over them, without sorting, and a
   page that holds nothing of that time is skipped. */
#include "cg.h"

enum { PAGE = 256 };

typedef struct {
  int64_t lo, hi;
  int start, end;
} Span;

struct GapPage {
  int n;
  int start, end; /* all ticks of its spans */
  Span span[PAGE];
};

static bool meets(int start, int end, int from, int to) { return start <= to && from <= end; }

int64_t cg_gap(const Gaps *g, int start, int end, int64_t bytes, int64_t floor) {
  int64_t at = floor, best = -1, best_size = INT64_MAX;
  for (int i = 0; i < g->n; i++) {
    const struct GapPage *page = g->at[i];
    if (!meets(start, end, page->start, page->end)) continue;
    for (int k = 0; k < page->n; k++) {
      const Span *s = &page->span[k];
      if (!meets(start, end, s->start, s->end)) continue;
      int64_t gap = s->lo - at;
      if (gap >= bytes && gap < best_size) best = at, best_size = gap;
      at = max_i64(at, s->hi);
    }
  }
  return best >= 0 ? best : at;
}

/* The page on which a span from byte lo belongs: the last one that begins before it. */
static int page_of(const Gaps *g, int64_t lo) {
  int i = 0;
  while (i + 1 < g->n && g->at[i + 1]->span[0].lo <= lo) i++;
  return i;
}

static void insert_page(Arena *a, Gaps *g, int at, struct GapPage *page) {
  vec_push(a, *g, page);
  for (int i = g->n - 1; i > at; i--) g->at[i] = g->at[i - 1];
  g->at[at] = page;
}

/* Moves the later half of a full page to one of its own; both keep the times of the whole. */
static void divide(Arena *a, Gaps *g, int at) {
  struct GapPage *page = g->at[at], *more = NEW(a, struct GapPage);
  *more = (struct GapPage){.n = PAGE / 2, .start = page->start, .end = page->end};
  page->n -= more->n;
  memcpy(more->span, page->span + page->n, (size_t)more->n * sizeof *more->span);
  insert_page(a, g, at + 1, more);
}

void cg_gap_take(Arena *a, Gaps *g, int start, int end, int64_t lo, int64_t hi) {
  if (!g->n) {
    insert_page(a, g, 0, NEW(a, struct GapPage));
    *g->at[0] = (struct GapPage){.start = start, .end = end};
  }
  if (g->at[page_of(g, lo)]->n == PAGE) divide(a, g, page_of(g, lo));
  struct GapPage *page = g->at[page_of(g, lo)];
  int k = page->n++;
  for (; k > 0 && page->span[k - 1].lo > lo; k--) page->span[k] = page->span[k - 1];
  page->span[k] = (Span){lo, hi, start, end};
  page->start = start < page->start ? start : page->start;
  page->end = end > page->end ? end : page->end;
}
