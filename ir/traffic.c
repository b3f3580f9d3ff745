/* traffic.c: what a change of layout moves, without looking at every rank. Two layouts' axis parts are cut into atoms
   (atoms.h), and each dim is looked at by itself over the atoms that it uses:

     [8@(a, b)] -> [8@a]    both even, a common prefix: every rank wants 4 and holds 2 of them
     [8@a] -> [8@b]         both even, no prefix: some rank wants 4 and holds none of them
     [10@a:3] -> [10]       uneven: the ranks of a = 0 .. 3 want 10 and hold 3, 3, 3, 1

   So what costs time is the number of coordinates of uneven dims, not the number of devices. What depends on several
   dims that share atoms is found by walking these atoms, as long as there are at most MAX_WALK of their values; beyond
   that the dims count as independent, which is never less than the truth. */
#include "atoms.h"
#include "window.h"

enum { MAX_OPTIONS = 24, MAX_WALK = 1 << 12, MAX_SUM_WALK = 1 << 20, MAX_SENT_WALK = 1 << 18 };

/* ---- one dim ------------------------------------------------------------------------------------------------------ */

static bool plain_even(const Split *s, int64_t n) { return s->window.of == 0 && split_even(s, n); }

/* The ranges of a dim that the ranks of a walk have of it before and after. */
typedef struct {
  Walk w;
  Dealt from, to;
  int64_t lo, hi, l, h; /* had: [lo, hi), wanted: [l, h) */
} Ranges;

static void ranges_find(Ranges *r) {
  dealt_range(&r->from, r->w.rank, &r->lo, &r->hi);
  dealt_range(&r->to, r->w.rank, &r->l, &r->h);
}

/* All on which the two splits of a dim of n elements depend; the ranges are those of the first. */
static void ranges_start(Ranges *r, const Atoms *x, const Split *from, const Split *to, int64_t n) {
  walk_start(&r->w, x, split_mask(x, from) | split_mask(x, to), 0);
  r->from = dealt_out(x->mesh, from, n), r->to = dealt_out(x->mesh, to, n);
  ranges_find(r);
}

static bool ranges_next(Ranges *r) {
  if (!walk_next(&r->w)) return false;
  ranges_find(r);
  return true;
}

static int64_t common(int64_t lo, int64_t hi, int64_t l, int64_t h) { return max_i64(0, min_i64(h, hi) - max_i64(l, lo)); }

static int64_t ranges_common(const Ranges *r) { return common(r->lo, r->hi, r->l, r->h); }

/* How much of [lo, hi) is dealt out to the ranks that differ from `rank` in atoms of `mask`, together. */
static int64_t dealt_to_all(const Atoms *x, const Dealt *d, uint64_t mask, int64_t rank, int64_t lo, int64_t hi) {
  int64_t l, h, sum = 0;
  Walk w;
  walk_start(&w, x, mask, rank);
  do {
    dealt_range(d, w.rank, &l, &h);
    sum += common(lo, hi, l, h);
  } while (walk_next(&w));
  return sum;
}

/* How many major atoms two splits have in common, and their atoms; false where they have none to compare. */
static bool common_prefix(const Atoms *x, const Split *a, const Split *b, int *na, int *nb, int *same, int *aa, int *bb) {
  *na = split_atoms(x, a, aa), *nb = split_atoms(x, b, bb), *same = 0;
  if (*na < 0 || *nb < 0) return false;
  while (*same < *na && *same < *nb && aa[*same] == bb[*same]) ++*same;
  return true;
}

/* What ranks want of a dim, and how much of that they hold: the pairs that matter, those with more wanted or less held
   than every other. */
typedef struct {
  int dim;
  uint64_t atoms; /* on which it depends; 0: it is the same on every rank */
  bool steady;    /* what is wanted does not depend on atoms that other dims may use */
  int n;
  struct {
    int64_t want, held;
  } option[MAX_OPTIONS];
} Need;

static void add_option(Need *d, int64_t want, int64_t held) {
  int n = 0;
  for (int i = 0; i < d->n; i++) {
    if (d->option[i].want >= want && d->option[i].held <= held) return;
    if (!(want >= d->option[i].want && held <= d->option[i].held)) d->option[n++] = d->option[i];
  }
  d->n = n;
  if (n == MAX_OPTIONS) { /* the last one stands for both: never less than the truth */
    d->option[n - 1].want = max_i64(d->option[n - 1].want, want);
    d->option[n - 1].held = min_i64(d->option[n - 1].held, held);
    return;
  }
  d->option[n].want = want, d->option[n].held = held;
  d->n = n + 1;
}

static bool even_need(const Atoms *x, const Split *from, const Split *to, int64_t n, Need *out) {
  int a[MAX_ATOMS], b[MAX_ATOMS], na, nb, same;
  if (!plain_even(from, n) || !plain_even(to, n) || !common_prefix(x, from, to, &na, &nb, &same, a, b)) return false;
  int64_t want = n / split_count(to), held = n / split_count(from);
  bool nested = same == na || same == nb;
  add_option(out, want, nested ? min_i64(want, held) : 0);
  out->atoms = nested ? 0 : split_mask(x, from) | split_mask(x, to);
  return true;
}

/* A dim that stays as it is: all is held; its atoms occur in no other dim, and the first chunk is a full one. */
static bool equal_need(const Atoms *x, const Split *from, const Split *to, int64_t n, Need *out) {
  if (split_windowed(from) || !split_equal(from, to)) return false;
  add_option(out, split_capacity(to, n), split_capacity(to, n));
  out->atoms = plain_even(to, n) ? 0 : split_mask(x, to);
  out->steady = true;
  return true;
}

/* One side is whole: all that is wanted is held, or the last chunk is the least that is held of all. */
static bool whole_need(const Atoms *x, const Split *from, const Split *to, int64_t n, Need *out) {
  if (split_windowed(from) || split_windowed(to) || (from->n > 0 && to->n > 0)) return false;
  if (from->n == 0)
    add_option(out, split_capacity(to, n), split_capacity(to, n));
  else
    add_option(out, n, n - min_i64(n, (split_count(from) - 1) * split_capacity(from, n)));
  out->atoms = plain_even(from, n) && plain_even(to, n) ? 0 : split_mask(x, from) | split_mask(x, to);
  return true;
}

static void dim_need(const Atoms *x, const Split *from, const Split *to, int64_t n, Need *out) {
  out->n = 0, out->atoms = 0, out->steady = plain_even(to, n);
  if (equal_need(x, from, to, n, out) || even_need(x, from, to, n, out) || whole_need(x, from, to, n, out)) return;
  int64_t largest = split_capacity(to, n);
  int64_t want0 = -1, held0 = -1;
  bool varies = false;
  Ranges r;
  ranges_start(&r, x, from, to, n);
  do {
    int64_t want = r.h - r.l, held = ranges_common(&r);
    varies |= want0 >= 0 && (want != want0 || held != held0);
    want0 = want, held0 = held;
    add_option(out, want, held);
    if (want == largest && held == 0) varies = true; /* it rules all others */
  } while (!(out->n == 1 && out->option[0].want == largest && out->option[0].held == 0) && ranges_next(&r));
  if (varies) out->atoms = split_mask(x, from) | split_mask(x, to);
}

/* ---- the rank that lacks most -------------------------------------------------------------------------------------- */

typedef struct {
  int n;
  Need dim[MAX_RANK]; /* those that vary */
  int64_t want, held; /* of the others, multiplied */
  uint64_t atoms;
} Needs;

static void needs_of(const Atoms *x, const Type *from, const Type *to, Needs *s) {
  s->n = 0, s->want = s->held = 1, s->atoms = 0;
  for (int d = 0; d < to->rank; d++) {
    Need *need = &s->dim[s->n];
    dim_need(x, &from->dim[d].split, &to->dim[d].split, to->dim[d].size, need);
    need->dim = d;
    s->atoms |= need->atoms;
    if (need->atoms)
      s->n++;
    else
      s->want *= need->option[0].want, s->held *= need->option[0].held;
  }
}

static int64_t most_apart(const Needs *s, int d, int64_t want, int64_t held) {
  if (want == 0) return 0;
  if (d == s->n) return want - held;
  int64_t most = 0;
  for (int i = 0; i < s->dim[d].n; i++)
    most = max_i64(most, most_apart(s, d + 1, want * s->dim[d].option[i].want, held * s->dim[d].option[i].held));
  return most;
}

/* May the dims be taken one by one? Where all want the same everywhere and one holds nothing, that one decides. */
static bool apart(const Needs *s) {
  uint64_t seen = 0;
  bool shared = false, single = true, nothing = false;
  for (int d = 0; d < s->n; d++) {
    shared |= (seen & s->dim[d].atoms) != 0;
    seen |= s->dim[d].atoms;
    single &= s->dim[d].n == 1 && s->dim[d].steady;
    nothing |= s->dim[d].option[0].held == 0;
  }
  return !shared || (single && nothing);
}

/* What each rank wants and holds of that, with all that is the same for all ranks made ready. */
typedef struct {
  int n;
  int64_t want, held;
  Dealt had[MAX_RANK], wanted[MAX_RANK]; /* the dims that vary */
} Ready;

static void make_ready(Ready *r, const Mesh *m, const Needs *s, const Type *from, const Type *to) {
  r->n = s->n, r->want = s->want, r->held = s->held;
  for (int i = 0; i < s->n; i++) {
    int d = s->dim[i].dim;
    r->had[i] = dealt_out(m, &from->dim[d].split, to->dim[d].size);
    r->wanted[i] = dealt_out(m, &to->dim[d].split, to->dim[d].size);
  }
}

static void look_up(const Ready *r, int64_t rank, int64_t *want, int64_t *held) {
  *want = r->want, *held = r->held;
  for (int i = 0; i < r->n; i++) {
    int64_t lo, hi, l, h;
    dealt_range(&r->had[i], rank, &lo, &hi);
    dealt_range(&r->wanted[i], rank, &l, &h);
    *want *= h - l, *held *= common(lo, hi, l, h);
  }
}

/* The most that a rank lacks, rank by rank. */
static int64_t most_together(const Atoms *x, const Needs *s, const Type *from, const Type *to) {
  Ready r;
  make_ready(&r, x->mesh, s, from, to);
  int64_t most = 0;
  Walk w;
  walk_start(&w, x, s->atoms, 0);
  do {
    int64_t want, held;
    look_up(&r, w.rank, &want, &held);
    most = max_i64(most, want - held);
  } while (walk_next(&w));
  return most;
}

int64_t move_most(const Mesh *m, const Type *from, const Type *to) {
  Atoms x;
  Needs s;
  atoms_of(&x, m, 2, (const Type *const[]){from, to});
  needs_of(&x, from, to, &s);
  if (apart(&s) || mask_count(&x, s.atoms) > MAX_WALK) return most_apart(&s, 0, s.want, s.held);
  return most_together(&x, &s, from, to);
}

/* Of a dim, over the ranks that differ from `rank` in atoms of `near`: what they want, and how much of that they hold. */
static void dim_together(const Atoms *x, const Split *from, const Split *to, int64_t n, int64_t rank, uint64_t near,
                         int64_t *want, int64_t *held) {
  Dealt had = dealt_out(x->mesh, from, n), wanted = dealt_out(x->mesh, to, n);
  int64_t l, h;
  Walk w;
  *want = *held = 0;
  walk_start(&w, x, split_mask(x, to) & near, rank);
  do {
    dealt_range(&wanted, w.rank, &l, &h);
    *want += h - l, *held += dealt_to_all(x, &had, split_mask(x, from) & near, rank, l, h);
  } while (walk_next(&w));
}

/* Chunks are disjoint and every atom splits one dim at most, so what a group wants and holds are products over dims. Looked
   at: the groups at the ends of the other axes, where no dim takes more than MAX_WALK comparisons. */
int64_t move_lacking(const Mesh *m, const Type *from, const Type *to, unsigned near) {
  if (type_windowed(from) || type_windowed(to)) return 0;
  Atoms x;
  uint64_t mask = 0;
  int64_t most = 0;
  atoms_of(&x, m, 2, (const Type *const[]){from, to});
  for (int i = 0; i < x.n; i++)
    if (near >> x.at[i].part.axis & 1) mask |= UINT64_C(1) << i;
  for (int d = 0; d < to->rank; d++) {
    uint64_t had = split_mask(&x, &from->dim[d].split) & mask, wanted = split_mask(&x, &to->dim[d].split) & mask;
    if (mask_count(&x, had) > MAX_WALK / mask_count(&x, wanted)) return 0;
  }
  for (unsigned end = 0; end < 1u << m->naxes; end++) {
    int64_t rank = 0, want = 1, held = 1;
    bool other = true;
    for (int a = 0; a < m->naxes; a++) {
      bool last = end >> a & 1;
      rank = rank * m->axis[a].size + (last ? m->axis[a].size - 1 : 0);
      other &= !last || (m->axis[a].size > 1 && !(near >> a & 1));
    }
    if (!other) continue;
    for (int d = 0; d < to->rank && want > 0; d++) {
      int64_t w, h;
      dim_together(&x, &from->dim[d].split, &to->dim[d].split, to->dim[d].size, rank, mask, &w, &h);
      want *= w, held *= h;
    }
    most = max_i64(most, want - held);
  }
  return most;
}

/* On every rank what `to` holds of the dim lies inside what `from` holds. */
static bool dim_inside(const Atoms *x, const Split *from, const Split *to, int64_t n) {
  Need even = {0};
  if (!split_windowed(from) && (from->n == 0 || split_equal(from, to))) return true;
  if (even_need(x, from, to, n, &even)) return even.option[0].want == even.option[0].held;
  Ranges r;
  ranges_start(&r, x, from, to, n);
  do
    if (r.l < r.h && (r.l < r.lo || r.h > r.hi)) return false;
  while (ranges_next(&r));
  return true;
}

/* May a rank hold nothing? Then it does not matter what it would hold of other dims. */
static bool may_be_empty(const Split *s, int64_t n) {
  return split_windowed(s) || split_capacity(s, n) * (split_count(s) - 1) >= n;
}

bool type_inside(const Mesh *m, const Type *inner, const Type *outer) {
  int unsure[MAX_RANK], n = 0;
  for (int d = 0; d < inner->rank; d++)
    if (!split_nests(&inner->dim[d].split, &outer->dim[d].split, inner->dim[d].size)) unsure[n++] = d;
  if (n == 0) return true;
  Atoms x;
  bool inside = true, empty = false;
  atoms_of(&x, m, 2, (const Type *const[]){outer, inner});
  for (int i = 0; i < n && inside; i++) {
    int d = unsure[i];
    inside = dim_inside(&x, &outer->dim[d].split, &inner->dim[d].split, inner->dim[d].size);
  }
  for (int d = 0; d < inner->rank && !inside; d++) empty |= may_be_empty(&inner->dim[d].split, inner->dim[d].size);
  return inside || (empty && move_most(m, outer, inner) == 0);
}

int64_t move_neighbours(const Mesh *m, const Split *from, const Split *to, int64_t n) {
  Type a = {.rank = 1, .dim = {{.size = n, .split = *from}}}, b = {.rank = 1, .dim = {{.size = n, .split = *to}}};
  Atoms x;
  Ranges r;
  int64_t most = 0, chunk = split_capacity(from, n);
  atoms_of(&x, m, 2, (const Type *const[]){&a, &b});
  ranges_start(&r, &x, from, to, n);
  do {
    if (r.l >= r.h) continue;
    int64_t touched = (r.h - 1) / chunk - r.l / chunk + 1;
    most = max_i64(most, touched - (r.lo < r.h && r.l < r.hi));
  } while (ranges_next(&r));
  return most;
}

/* ---- the groups in which it moves ------------------------------------------------------------------------------------ */

/* Of two splits of a dim, what follows the common major atoms. */
static uint64_t differing(const Atoms *x, const Split *from, const Split *to) {
  int a[MAX_ATOMS], b[MAX_ATOMS], na, nb, same;
  if (!common_prefix(x, from, to, &na, &nb, &same, a, b))
    return split_equal(from, to) ? 0 : split_mask(x, from) | split_mask(x, to);
  uint64_t mask = 0;
  for (int i = same; i < na; i++) mask |= UINT64_C(1) << a[i];
  for (int i = same; i < nb; i++) mask |= UINT64_C(1) << b[i];
  return mask;
}

/* Do ranks that differ only in the atoms `over` hold between them all that each of them wants of this dim? The chunks of
   a split without a window are disjoint. More than MAX_WALK comparisons count as no. */
static bool dim_covered(const Atoms *x, const Split *from, const Split *to, int64_t n, uint64_t over) {
  uint64_t all = split_mask(x, from), by = all & over;
  if (by == all || (plain_even(from, n) && plain_even(to, n))) return true;
  if (mask_count(x, all | split_mask(x, to)) * mask_count(x, by) > MAX_WALK) return false;
  Walk r;
  Dealt has = dealt_out(x->mesh, from, n), wants = dealt_out(x->mesh, to, n);
  walk_start(&r, x, all | split_mask(x, to), 0);
  do {
    int64_t l, h;
    dealt_range(&wants, r.rank, &l, &h);
    if (dealt_to_all(x, &has, by, r.rank, l, h) < h - l) return false;
  } while (walk_next(&r));
  return true;
}

/* Where chunks do not nest, the neighbours' axes are crossed as well, the minor ones first. */
static uint64_t cover_dim(const Atoms *x, const Split *from, const Split *to, int64_t n, uint64_t over) {
  for (int i = from->n - 1; i >= 0 && !dim_covered(x, from, to, n, over); i--) over |= parts_mask(x, 1, &from->part[i]);
  return over;
}

static uint64_t move_mask(const Atoms *x, const Type *from, const Type *to) {
  uint64_t over = parts_mask(x, from->pending.n, from->pending.part) & ~parts_mask(x, to->pending.n, to->pending.part);
  for (int d = 0; d < to->rank; d++) over |= differing(x, &from->dim[d].split, &to->dim[d].split);
  for (int d = 0; d < to->rank; d++) over = cover_dim(x, &from->dim[d].split, &to->dim[d].split, to->dim[d].size, over);
  return over;
}

Pending move_axes(const Mesh *m, const Type *from, const Type *to) {
  Atoms x;
  Pending p = {.kind = RED_NONE};
  atoms_of(&x, m, 2, (const Type *const[]){from, to});
  uint64_t over = move_mask(&x, from, to);
  for (int i = 0; i < x.n; i++) {
    if (!(over >> i & 1)) continue;
    AxisPart a = x.at[i].part, *last = p.n ? &p.part[p.n - 1] : NULL;
    if (last && last->axis == a.axis && (last->pre * last->size == a.pre || p.n == MAX_PARTS)) {
      last->size = a.pre * a.size / last->pre; /* they follow each other; or there is no place for what lies between */
    } else {
      assert(p.n < MAX_PARTS && "a mesh has at most MAX_AXES axes");
      p.part[p.n++] = a;
    }
  }
  return p;
}

/* ---- bytes ---------------------------------------------------------------------------------------------------------- */

static int64_t box_count(const Mesh *m, const Type *t, int64_t rank) {
  Box b = type_box(m, t, rank);
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++) n *= b.hi[d] - b.lo[d];
  return n;
}

/* How many contributions are summed. */
static int64_t contributors(const Type *from, const Type *to) {
  int64_t g = 1;
  for (int i = 0; i < from->pending.n; i++) g *= from->pending.part[i].size;
  for (int i = 0; i < to->pending.n; i++) g /= to->pending.part[i].size;
  return g;
}

int64_t move_received(const Mesh *m, OpKind kind, const Type *from, const Type *to, int64_t rank) {
  int64_t size = dtype_size(from->dtype), g = contributors(from, to);
  if (kind == OP_SLICE) return 0;
  if (kind == OP_ALL_REDUCE) return 2 * (g - 1) * box_count(m, from, rank) * size / g;
  if (kind == OP_REDUCE_SCATTER) return (g - 1) * box_count(m, to, rank) * size;
  return move_elements(m, from, to, rank) * size;
}

int64_t move_bytes(const Mesh *m, OpKind kind, const Type *from, const Type *to) {
  int64_t size = dtype_size(from->dtype), g = contributors(from, to);
  if (kind == OP_SLICE) return 0;
  if (kind == OP_ALL_REDUCE) return 2 * (g - 1) * type_capacity(from) * size / g;
  if (kind == OP_REDUCE_SCATTER) return (g - 1) * type_capacity(to) * size;
  return move_most(m, from, to) * size;
}

/* A rank needs every element that it wants at least once, because another's contribution is missing; and all transfers of
   an element are (contributors - 1) + (ranks that want it - 1) at least, shared by all ranks. */
double move_bound(const Mesh *m, const Type *from, const Type *to) {
  double size = (double)dtype_size(from->dtype), g = (double)contributors(from, to), want = 1, whole = 1;
  if (g < 2) return (double)move_most(m, from, to) * size;
  double ranks = (double)mesh_devices(m);
  for (int i = 0; i < to->pending.n; i++) ranks /= (double)to->pending.part[i].size; /* each of these sums is one of its own */
  for (int d = 0; d < to->rank; d++) {
    whole *= (double)to->dim[d].size;
    want *= (double)to->dim[d].size / (double)split_count(&to->dim[d].split);
  }
  double all = want + whole * (g - 2) / ranks, one = type_windowed(to) ? 0 : (double)type_capacity(to);
  return (all > one ? all : one) * size;
}

/* ---- who sends: of a box of the source, the elements that others of the group want make a line, which is cut into equal
   shares for the ranks that hold it. What a rank sends is a product over dims of sums over the coordinates that want. ---- */

typedef struct {
  uint64_t from, to, ended; /* atoms: the source's, the target's, the sums' that end */
  int rank;
  struct {
    Dealt had, wanted;
    uint64_t to; /* atoms */
  } dim[MAX_RANK];
} Sides;

static Sides sides_of(const Atoms *x, const Type *from, const Type *to) {
  Sides s = {.rank = to->rank};
  s.ended = parts_mask(x, from->pending.n, from->pending.part) & ~parts_mask(x, to->pending.n, to->pending.part);
  for (int d = 0; d < to->rank; d++) {
    const Split *had = &from->dim[d].split, *wanted = &to->dim[d].split;
    s.dim[d].had = dealt_out(x->mesh, had, to->dim[d].size), s.dim[d].wanted = dealt_out(x->mesh, wanted, to->dim[d].size);
    s.dim[d].to = split_mask(x, wanted);
    s.from |= split_mask(x, had), s.to |= s.dim[d].to;
  }
  return s;
}

/* Over the ranks that differ from `rank` in atoms of `free`: the sum of what they want of what it holds. */
static double wanted_of(const Atoms *x, const Sides *s, int64_t rank, uint64_t free) {
  double all = 1;
  for (int d = 0; d < s->rank && all > 0; d++) {
    int64_t lo, hi;
    dealt_range(&s->dim[d].had, rank, &lo, &hi);
    all *= (double)dealt_to_all(x, &s->dim[d].wanted, s->dim[d].to & free, rank, lo, hi);
  }
  return all;
}

static double sent_by(const Atoms *x, const Sides *s, int64_t rank) {
  uint64_t fixed = s->from | s->ended, free = s->to & ~fixed;
  double all = wanted_of(x, s, rank, s->to) * (double)mask_count(x, fixed & ~s->to);
  double own = wanted_of(x, s, rank, free), share = (all - own) / (double)mask_count(x, free);
  return (double)(int64_t)(share + 0.999999);
}

int64_t move_sent(const Mesh *m, OpKind kind, const Type *from, const Type *to) {
  if (kind == OP_SLICE || kind == OP_ALL_REDUCE) return move_bytes(m, kind, from, to);
  Atoms x;
  Needs needs;
  atoms_of(&x, m, 2, (const Type *const[]){from, to});
  needs_of(&x, from, to, &needs);
  if (needs.atoms == 0 && kind != OP_REDUCE_SCATTER) return move_bytes(m, kind, from, to); /* all ranks are alike */
  Sides s = sides_of(&x, from, to);
  if (mask_count(&x, s.from | s.ended) * mask_count(&x, s.to) > MAX_SENT_WALK) return -1;
  double most = 0;
  Walk w;
  walk_start(&w, &x, s.from | s.ended, 0);
  do {
    double sent = sent_by(&x, &s, w.rank);
    most = sent > most ? sent : most;
  } while (walk_next(&w));
  return (int64_t)most * dtype_size(from->dtype);
}

/* ---- sums over several moves ------------------------------------------------------------------------------------------ */

/* What ranks receive in one of them. */
typedef struct {
  Traffic move;
  int64_t contributors;
  uint64_t mask; /* the atoms on which it depends */
  Ready ready;
} Received;

static void received_start(Received *r, const Atoms *x, const Traffic *v) {
  Needs s;
  const Type *t = v->kind == OP_ALL_REDUCE ? v->from : v->to;
  const Type *had = v->kind == OP_ALL_REDUCE || v->kind == OP_REDUCE_SCATTER ? t : v->from;
  r->move = *v;
  r->contributors = contributors(v->from, v->to);
  if (v->kind == OP_SLICE) return;
  needs_of(x, had, t, &s);
  r->mask = s.atoms;
  make_ready(&r->ready, x->mesh, &s, had, t);
}

/* move_received, times how often. */
static double received_by(const Received *r, int64_t rank) {
  int64_t size = dtype_size(r->move.from->dtype), g = r->contributors, want, held, bytes;
  if (r->move.kind == OP_SLICE) return 0;
  look_up(&r->ready, rank, &want, &held);
  if (r->move.kind == OP_ALL_REDUCE)
    bytes = 2 * (g - 1) * want * size / g;
  else if (r->move.kind == OP_REDUCE_SCATTER)
    bytes = (g - 1) * want * size;
  else
    bytes = (want - held) * size;
  return r->move.times * (double)bytes;
}

/* The moves whose atoms hang together with `group` (which grows to all of these), by the rank that receives most. */
static double group_most(const Atoms *x, int n, const Received *move, uint64_t *group) {
  int64_t count = 0;
  double most = 0;
  for (uint64_t before = 0; before != *group;) {
    before = *group;
    for (int i = 0; i < n; i++)
      if (move[i].mask & *group) *group |= move[i].mask;
  }
  for (int i = 0; i < n; i++) count += (move[i].mask & *group) != 0;
  if (count * mask_count(x, *group) > MAX_SUM_WALK) {
    for (int i = 0; i < n; i++) {
      const Traffic *v = &move[i].move;
      if (move[i].mask & *group) most += v->times * (double)move_bytes(x->mesh, v->kind, v->from, v->to);
    }
    return most;
  }
  Walk w;
  walk_start(&w, x, *group, 0);
  do {
    double sum = 0;
    for (int i = 0; i < n; i++)
      if (move[i].mask & *group) sum += received_by(&move[i], w.rank);
    most = sum > most ? sum : most;
  } while (walk_next(&w));
  return most;
}

double moves_most(Arena *a, const Mesh *m, int n, const Traffic *move) {
  Atoms x;
  const Type **types = NEW_ARRAY(a, const Type *, 2 * (int64_t)n + 1);
  Received *all = NEW_ARRAY(a, Received, n + 1);
  uint64_t done = 0;
  double sum = 0;
  for (int i = 0; i < n; i++) types[2 * i] = move[i].from, types[2 * i + 1] = move[i].to;
  atoms_of(&x, m, 2 * n, types);
  for (int i = 0; i < n; i++) {
    received_start(&all[i], &x, &move[i]);
    if (!all[i].mask) sum += received_by(&all[i], 0);
  }
  for (int i = 0; i < n; i++) {
    if (!all[i].mask || (all[i].mask & done)) continue;
    uint64_t group = all[i].mask;
    sum += group_most(&x, n, all, &group);
    done |= group;
  }
  return sum;
}
