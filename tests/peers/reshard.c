/* reshard.c: what changes of layout cost, beside the least that is possible and beside XLA: every pair of layouts of
   [16,8,8] over 2 x 2 x 2, with and without pending sums, and seeded samples of other meshes and of uneven dims. Each plan
   is run by the interpreter on all ranks against the whole.

     dtc_reshard            the table, exit code 1 if a gate fails
     dtc_reshard --seed N   other samples

   Gates. Without pending sums: received = the largest part of a target shard that its rank does not hold; one collective at
   most, a standard one wherever one (after a free slice) meets that and lets nobody send more; nobody sends more than the best
   balance over replicas, a flow problem solved here. With pending sums: the optimum over all sequences of all steps, found here
   by all shortest paths over all layouts with bytes counted rank by rank, is printed beside what was planned. */
#include <math.h>
#include <stdlib.h>

#include "pair.h"

enum { MAX_STATES = 256, MAX_RANKS = 64, XLA_LAYOUTS = 106 };

typedef struct {
  int n;
  Type at[MAX_STATES];
} States;

static int faults;

__attribute__((format(printf, 1, 2))) static void fault(const char *fmt, ...) {
  va_list ap;
  if (faults++ >= 20) return;
  va_start(ap, fmt);
  printf("FAIL ");
  vprintf(fmt, ap);
  printf("\n");
  va_end(ap);
}

/* ---- what is possible, counted rank by rank ---------------------------------------------------------------------------- */

static int64_t common(const Box *a, const Box *b, int rank) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= max_i64(0, min_i64(a->hi[d], b->hi[d]) - max_i64(a->lo[d], b->lo[d]));
  return n;
}

static int64_t elements(const Box *b, int rank) { return common(b, b, rank); }

static int64_t bound_of(const Mesh *m, const Type *from, const Type *to) {
  int64_t most = 0;
  for (int64_t r = 0; r < mesh_devices(m); r++) {
    Box want = type_box(m, to, r), have = type_box(m, from, r);
    most = max_i64(most, elements(&want, to->rank) - common(&want, &have, to->rank));
  }
  return most * dtype_size(from->dtype);
}

/* A flow from those who lack to those who have, through the boxes of the source: can everybody be served when nobody sends
   more than `cap` elements? Ranks that hold equal boxes are replicas, and boxes are equal or disjoint. */
static bool flow_fits(int n, int64_t need[MAX_RANKS][MAX_RANKS], int box_of[MAX_RANKS], int nbox, int64_t cap) {
  int64_t sent[MAX_RANKS] = {0};
  for (int b = 0; b < nbox; b++)
    for (int r = 0; r < n; r++) {
      int64_t left = need[r][b];
      for (int q = 0; q < n && left > 0; q++) {
        if (box_of[q] != b) continue; /* a holder serves one box only, so any order of filling is a largest flow */
        int64_t take = min_i64(left, cap - sent[q]);
        sent[q] += take, left -= take;
      }
      if (left > 0) return false;
    }
  return true;
}

static int64_t best_balance(const Mesh *m, const Type *from, const Type *to) {
  int n = (int)mesh_devices(m), nbox = 0, box_of[MAX_RANKS];
  Box box[MAX_RANKS];
  int64_t need[MAX_RANKS][MAX_RANKS] = {{0}}, lo = 0, hi = type_elements(from) * n;
  for (int r = 0; r < n; r++) {
    Box have = type_box(m, from, r);
    int b = 0;
    while (b < nbox && memcmp(&box[b], &have, sizeof have)) b++;
    if (b == nbox) box[nbox++] = have;
    box_of[r] = b;
  }
  for (int r = 0; r < n; r++)
    for (int b = 0; b < nbox; b++) {
      Box want = type_box(m, to, r);
      if (b != box_of[r]) need[r][b] = common(&want, &box[b], to->rank);
    }
  while (lo < hi) {
    int64_t mid = (lo + hi) / 2;
    if (flow_fits(n, need, box_of, nbox, mid))
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo * dtype_size(from->dtype);
}

/* ---- standard collectives, by their definitions -------------------------------------------------------------------------- */

/* One step that a library offers, told by the boxes: every rank's box becomes another's (a permutation); or ranks form groups
   along axes in which boxes are put together to one (all-gather) or dealt out in equal pieces (all-to-all). */
static bool is_permutation(const Mesh *m, const Type *from, const Type *to) {
  int n = (int)mesh_devices(m), taken[MAX_RANKS] = {0};
  for (int r = 0; r < n; r++) {
    Box want = type_box(m, to, r);
    int q = 0;
    for (; q < n; q++) {
      Box have = type_box(m, from, q);
      if (!taken[q] && !memcmp(&want, &have, sizeof have)) break;
    }
    if (q == n) return false;
    taken[q] = 1;
  }
  return true;
}

static bool in_group(const Mesh *m, unsigned axes, int64_t a, int64_t b) {
  for (int x = 0; x < m->naxes; x++)
    if (!(axes >> x & 1) && part_coord(m, axis_whole(m, x), a) != part_coord(m, axis_whole(m, x), b)) return false;
  return true;
}

static bool is_grouped(const Mesh *m, const Type *from, const Type *to, unsigned axes, bool gather) {
  int64_t n = mesh_devices(m), g = 1;
  for (int x = 0; x < m->naxes; x++) g *= axes >> x & 1 ? m->axis[x].size : 1;
  for (int64_t r = 0; r < n; r++) {
    Box want = type_box(m, to, r);
    int64_t sum = 0;
    for (int64_t q = 0; q < n; q++) {
      if (!in_group(m, axes, r, q)) continue;
      Box have = type_box(m, from, q);
      int64_t both = common(&want, &have, to->rank), all = elements(&have, to->rank);
      if (gather ? both != all : both * g != all) return false;
      sum += both;
      for (int64_t p = 0; p < q; p++) { /* no piece comes twice */
        Box twin = type_box(m, from, p);
        if (in_group(m, axes, q, p) && !memcmp(&twin, &have, sizeof have)) return false;
      }
      for (int64_t p = 0; p < r && !gather; p++) { /* a sender deals out its box: nobody gets what another gets */
        Box other = type_box(m, to, p);
        for (int d = 0; d < to->rank; d++)
          other.lo[d] = max_i64(other.lo[d], have.lo[d]), other.hi[d] = max_i64(other.lo[d], min_i64(other.hi[d], have.hi[d]));
        if (in_group(m, axes, r, p) && common(&want, &other, to->rank)) return false;
      }
    }
    if (sum != elements(&want, to->rank)) return false;
  }
  return true;
}

static bool is_standard(const Mesh *m, const Type *from, const Type *to) {
  if (is_permutation(m, from, to)) return true;
  for (unsigned axes = 1; axes < 1u << m->naxes; axes++)
    if (is_grouped(m, from, to, axes, true) || is_grouped(m, from, to, axes, false)) return true;
  return false;
}

/* Does a standard collective, after a slice, receive no more than the bound? */
static bool standard_meets(const Mesh *m, const States *s, const Type *from, const Type *to, int64_t bound, int64_t balance) {
  for (int i = 0; i < s->n; i++)
    if (bound_of(m, from, &s->at[i]) == 0 && bound_of(m, &s->at[i], to) <= bound && is_standard(m, &s->at[i], to) &&
        best_balance(m, &s->at[i], to) <= balance)
      return true;
  return false;
}

/* ---- all layouts ------------------------------------------------------------------------------------------------------- */

static void add_layouts(const Mesh *m, const Type *t, int axis, bool pending, States *out) {
  if (axis == m->naxes) {
    assert(out->n < MAX_STATES && "three axes");
    out->at[out->n++] = *t;
    return;
  }
  AxisPart p = axis_whole(m, axis);
  add_layouts(m, t, axis + 1, pending, out);
  for (int d = 0; d < t->rank; d++)
    for (int at = 0; at <= t->dim[d].split.n; at++) { /* at every place among the axes that are there */
      Type one = *t;
      Split *s = &one.dim[d].split;
      for (int i = s->n++; i > at; i--) s->part[i] = s->part[i - 1];
      s->part[at] = p;
      add_layouts(m, &one, axis + 1, pending, out);
    }
  if (!pending) return;
  Type one = *t;
  pair_pend(&one, p);
  add_layouts(m, &one, axis + 1, pending, out);
}

/* ---- one pair ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  int pairs, moving, standard, exchanges;
  double ratio, sent_ratio;
  int collectives;
} Tally;

static void complete_pair(int naxes, const int64_t *axes, const Type *from, const Type *to, const States *all, Tally *t) {
  Arena *a = arena_new();
  Module *m = pair_mesh(a, naxes, axes);
  const char *f = pair_name(&m->mesh, from, a), *g = pair_name(&m->mesh, to, a);
  PairRun r = pair_run(m, from, to, "bytes");
  int64_t bound = bound_of(&m->mesh, from, to), balance = best_balance(&m->mesh, from, to);
  t->pairs++;
  if (r.fault) fault("%s -> %s: %s\n%s", f, g, r.fault, r.text);
  if (r.received != bound) fault("%s -> %s: %lld bytes of %lld", f, g, (long long)r.received, (long long)bound);
  if (r.sent > balance) fault("%s -> %s: a rank sends %lld bytes, %lld would do", f, g, (long long)r.sent, (long long)balance);
  if (r.collectives != (bound > 0)) fault("%s -> %s: %s", f, g, r.steps);
  if (bound > 0) {
    bool exchange = r.standard < r.collectives;
    if (all && exchange && standard_meets(&m->mesh, all, from, to, bound, balance))
      fault("%s -> %s: an exchange where a standard collective would do", f, g);
    t->moving++;
    t->exchanges += exchange;
    t->collectives += r.collectives;
    t->ratio += (double)r.received / (double)bound;
    t->sent_ratio += balance ? (double)r.sent / (double)balance : 1;
  }
  arena_free(a);
}

static void print_tally(const char *what, const Tally *t) {
  double n = t->moving ? t->moving : 1;
  printf("%-34s %6d %7d  %11.3f  %12.3f  %11.2f  %9d\n", what, t->pairs, t->moving, t->ratio / n, t->sent_ratio / n,
         t->collectives / n, t->exchanges);
}

/* ---- XLA's figures ------------------------------------------------------------------------------------------------------------
 */

/* The rest of a line behind its first field, which may be quoted. */
static char *behind_name(char *line) {
  bool quoted = false;
  for (; *line && (quoted || *line != ','); line++) quoted ^= *line == '"';
  return *line ? line + 1 : line;
}

static void xla_row(const char *folder) {
  char path[2][4096], *line[2] = {NULL, NULL};
  size_t cap[2] = {0, 0};
  FILE *f[2];
  double ratio = 0, collectives = 0;
  int moving = 0, pairs = 0, met = 0;
  snprintf(path[0], sizeof path[0], "%s/peers/xla/reshard_rank3.csv", folder);
  snprintf(path[1], sizeof path[1], "%s/peers/xla/reshard_rank3_plans.csv", folder);
  for (int i = 0; i < 2; i++)
    if (!(f[i] = fopen(path[i], "r"))) fault("cannot read %s", path[i]);
  Arena *a = arena_new();
  Module *m = pair_mesh(a, 3, (int64_t[]){2, 2, 2});
  Type shape = pair_shape(3, (int64_t[]){16, 8, 8});
  States s = {0};
  add_layouts(&m->mesh, &shape, 0, false, &s);
  char names[XLA_LAYOUTS][32];
  int n = 0;
  if (f[0] && getline(&line[0], &cap[0], f[0]) > 0) { /* the header: the targets, in order */
    for (char *at = behind_name(line[0]); *at && *at != '\n' && *at != '\r' && n < XLA_LAYOUTS; n++) {
      char *end = at;
      for (bool quoted = false; *end && *end != '\n' && *end != '\r' && (quoted || *end != ','); end++) quoted ^= *end == '"';
      snprintf(names[n], sizeof names[n], "%.*s", (int)(*at == '"' ? end - at - 2 : end - at), *at == '"' ? at + 1 : at);
      at = *end == ',' ? end + 1 : end;
    }
  }
  int at[XLA_LAYOUTS];
  for (int i = 0; i < n; i++) {
    at[i] = -1;
    for (int k = 0; k < s.n; k++)
      if (!strcmp(pair_name(&m->mesh, &s.at[k], a), names[i])) at[i] = k;
    if (at[i] < 0) fault("XLA's layout %s is none of ours", names[i]);
  }
  if (n != s.n) fault("XLA has %d layouts, we have %d", n, s.n);
  if (f[1] && getline(&line[1], &cap[1], f[1]) <= 0) fault("%s is empty", path[1]);
  for (int i = 0; i < n && faults == 0; i++) {
    if (getline(&line[0], &cap[0], f[0]) <= 0 || getline(&line[1], &cap[1], f[1]) <= 0) fault("rows are missing");
    char *bytes = behind_name(line[0]), *plan = behind_name(line[1]);
    for (int k = 0; k < n; k++) {
      double moved = strtod(bytes, &bytes);
      int steps = (int)strcspn(plan, ",\r\n");
      double bound = (double)bound_of(&m->mesh, &s.at[at[i]], &s.at[at[k]]);
      bytes += *bytes == ',', plan += steps, plan += *plan == ',';
      pairs++;
      if (bound == 0) continue;
      moving++, ratio += moved / bound, collectives += steps, met += moved == bound;
    }
  }
  printf("%-34s %6d %7d  %11.3f  %12s  %11.2f  %9s   (met the bound: %.0f%%)\n", "XLA (Shardy), the same pairs", pairs, moving,
         ratio / moving, "", collectives / moving, "", 100.0 * met / moving);
  if (collectives / moving < 1) fault("XLA's collectives do not add up");
  for (int i = 0; i < 2; i++) free(line[i]), f[i] ? fclose(f[i]) : 0;
  arena_free(a);
}

/* ---- pending sums: the optimum over all sequences of steps
 * ----------------------------------------------------------------------- */

static bool has(const Pending *p, AxisPart x) {
  bool found = false;
  for (int i = 0; i < p->n; i++) found |= part_equal(p->part[i], x);
  return found;
}

/* Bytes of the rank that receives most in one step, or INFINITY where no one step leads from one to the other. */
static double step_bytes(const Mesh *m, const Type *from, const Type *to) {
  int64_t g = 1, most = 0, size = dtype_size(from->dtype);
  for (int i = 0; i < to->pending.n; i++)
    if (!has(&from->pending, to->pending.part[i])) return INFINITY;
  for (int i = 0; i < from->pending.n; i++) g *= has(&to->pending, from->pending.part[i]) ? 1 : from->pending.part[i].size;
  if (g == 1) return (double)bound_of(m, from, to);
  bool same = true;
  for (int64_t r = 0; r < mesh_devices(m); r++) {
    Box want = type_box(m, to, r), have = type_box(m, from, r);
    same &= !memcmp(&want, &have, sizeof have);
    if (common(&want, &have, to->rank) < elements(&want, to->rank)) return INFINITY; /* reductions keep or narrow boxes */
    most = max_i64(most, elements(&want, to->rank));
  }
  return (double)(same ? 2 * (g - 1) * most * size / g : (g - 1) * most * size);
}

/* All shortest paths. */
static double *optima(const Mesh *m, const States *s, Arena *a) {
  int n = s->n;
  double *best = NEW_ARRAY(a, double, n *n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) best[i * n + k] = i == k ? 0 : step_bytes(m, &s->at[i], &s->at[k]);
  for (int via = 0; via < n; via++)
    for (int i = 0; i < n; i++)
      for (int k = 0; k < n; k++)
        if (best[i * n + via] + best[via * n + k] < best[i * n + k]) best[i * n + k] = best[i * n + via] + best[via * n + k];
  return best;
}

typedef struct {
  int n[6]; /* moved / optimum: 1, to 1.05, to 1.1, to 1.25, to 1.5, more */
  int pairs, met, run;
  double sum, worst, bound;
  char name[96];
} Spread;

static void note(Spread *s, double ratio, double to_bound, const char *from, const char *to) {
  static const double edges[5] = {1 + 1e-9, 1.05, 1.1, 1.25, 1.5};
  int i = 0;
  while (i < 5 && ratio > edges[i]) i++;
  s->n[i]++;
  s->pairs++;
  s->sum += ratio;
  s->bound += to_bound;
  s->met += to_bound < 1 + 1e-9;
  if (ratio <= s->worst) return;
  s->worst = ratio;
  snprintf(s->name, sizeof s->name, "%s -> %s", from, to);
}

static void pending_pair(int naxes, const int64_t *axes, const Type *from, const Type *to, double optimum, bool run, Spread *s) {
  Arena *a = arena_new();
  Module *m = pair_mesh(a, naxes, axes);
  const char *f = pair_name(&m->mesh, from, a), *g = pair_name(&m->mesh, to, a);
  Diags *d = diags_new(a);
  Price price;
  plan_find(plan_new(a, &m->mesh, cluster_find(a, d, &m->mesh, "bytes")), from, to, &price);
  if (price.bytes < optimum - 0.5) fault("%s -> %s: %.0f bytes, less than the optimum of %.0f", f, g, price.bytes, optimum);
  if (move_bound(&m->mesh, from, to) > optimum + 0.5)
    fault("%s -> %s: the optimum of %.0f is less than the bound of %.0f", f, g, optimum, move_bound(&m->mesh, from, to));
  if (optimum > 0) note(s, price.bytes / optimum, price.bytes / move_bound(&m->mesh, from, to), f, g);
  if (run && to->pending.n == 0) {
    PairRun r = pair_run(m, from, to, "bytes");
    s->run++;
    if (r.fault) fault("%s -> %s: %s\n%s", f, g, r.fault, r.text);
    if ((double)r.received > price.bytes + 0.5)
      fault("%s -> %s: %lld bytes, priced at %.0f", f, g, (long long)r.received, price.bytes);
  }
  arena_free(a);
}

static void all_pending(const char *what, int naxes, const int64_t *axes, const int64_t *sizes, int every) {
  Arena *a = arena_new();
  Module *m = pair_mesh(a, naxes, axes);
  Type shape = pair_shape(3, sizes);
  States *s = NEW(a, States);
  Spread spread = {0};
  add_layouts(&m->mesh, &shape, 0, true, s);
  double *best = optima(&m->mesh, s, a);
  int count = 0;
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->n; k++)
      if (s->at[i].pending.n > s->at[k].pending.n && best[i * s->n + k] < 1e300)
        pending_pair(naxes, axes, &s->at[i], &s->at[k], best[i * s->n + k], count++ % every == 0, &spread);
  printf("%-34s %6d %7d  %8.3f  %8.3f  %7.3f   %5.1f%%  ", what, spread.pairs, spread.run, spread.sum / spread.pairs,
         spread.worst, spread.bound / spread.pairs, 100.0 * spread.met / spread.pairs);
  for (int i = 0; i < 6; i++) printf(" %5d", spread.n[i]);
  printf("   %s\n", spread.worst > 1 + 1e-9 ? spread.name : "");
  arena_free(a);
}

/* ---- the table
 * ------------------------------------------------------------------------------------------------------------------- */

static void all_complete(void) {
  static const int64_t axes[3] = {2, 2, 2}, sizes[3] = {16, 8, 8};
  Arena *a = arena_new();
  Module *m = pair_mesh(a, 3, axes);
  Type shape = pair_shape(3, sizes);
  States *s = NEW(a, States);
  Tally t = {0};
  add_layouts(&m->mesh, &shape, 0, false, s);
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->n; k++) complete_pair(3, axes, &s->at[i], &s->at[k], s, &t);
  print_tally("[16,8,8] over 2x2x2, all", &t);
  arena_free(a);
}

static void samples(const char *what, int naxes, const int64_t *axes, const int64_t *sizes, unsigned *seed, int n) {
  Tally t = {0};
  for (int i = 0; i < n; i++) {
    Arena *a = arena_new();
    Module *m = pair_mesh(a, naxes, axes);
    Type shape = pair_shape(3, sizes), from = pair_random(m, &shape, seed, false), to = pair_random(m, &shape, seed, false);
    complete_pair(naxes, axes, &from, &to, NULL, &t);
    arena_free(a);
  }
  print_tally(what, &t);
}

int main(int argc, char **argv) {
  unsigned seed = argc == 3 && !strcmp(argv[1], "--seed") ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
  printf("%-34s %6s %7s  %11s  %12s  %11s  %9s\n", "complete layouts", "pairs", "moving", "moved/bound", "sent/balance",
         "collectives", "exchanges");
  all_complete();
  xla_row(DTC_TESTS);
  samples("[16,8,8] over 2x3 (uneven)", 2, (int64_t[]){2, 3}, (int64_t[]){16, 8, 8}, &seed, 500);
  samples("[16,8,8] over 4x2x2", 3, (int64_t[]){4, 2, 2}, (int64_t[]){16, 8, 8}, &seed, 500);
  samples("[16,16,16] over 2x2x2x2", 4, (int64_t[]){2, 2, 2, 2}, (int64_t[]){16, 16, 16}, &seed, 300);
  samples("[5,3,7] over 2x2x2 (uneven)", 3, (int64_t[]){2, 2, 2}, (int64_t[]){5, 3, 7}, &seed, 500);
  samples("[5,3,7] over 2x3x2 (uneven)", 3, (int64_t[]){2, 3, 2}, (int64_t[]){5, 3, 7}, &seed, 500);
  printf("\n%-34s %6s %7s  %8s  %8s  %7s   %6s   %5s %5s %5s %5s %5s %5s\n", "pending sums: moved/optimum", "pairs", "run",
         "mean", "worst", "/bound", "met", "=1", "1.05", "1.1", "1.25", "1.5", "more");
  all_pending("[16,8,8] over 2x2x2, all", 3, (int64_t[]){2, 2, 2}, (int64_t[]){16, 8, 8}, 1);
  all_pending("[16,8,8] over 4x2, all", 2, (int64_t[]){4, 2}, (int64_t[]){16, 8, 8}, 1);
  all_pending("[12,6,6] over 3x2, all", 2, (int64_t[]){3, 2}, (int64_t[]){12, 6, 6}, 1);
  all_pending("[5,3,7] over 2x3 (uneven), all", 2, (int64_t[]){2, 3}, (int64_t[]){5, 3, 7}, 1);
  if (faults) printf("%d faults\n", faults);
  return faults != 0;
}
