/* parse_type.c: `f32[B=8@data, K=384@(pod, model(1:2)) granule 64]{model: sum}` and lists of indices,
   `[d: D=128@model, k: 32]`. */
#include "parser.h"

static AxisPart parse_part(Parser *p) {
  Loc loc = p->tok.loc;
  const char *name = irp_name(p, "a mesh axis");
  int axis = p->failed ? -1 : mesh_axis(&p->m->mesh, name);
  if (axis < 0) return irp_fail(p, "E0902", loc, "the mesh has no axis %s", name), (AxisPart){0, 1, 1};
  AxisPart part = axis_whole(&p->m->mesh, axis);
  if (!irp_take(p, "(")) return part;
  int64_t whole = part.size;
  part.pre = irp_int(p, 1, whole, "how many parts stand before this one");
  irp_need(p, ":");
  part.size = irp_int(p, 1, whole, "the size of a part of an axis");
  irp_need(p, ")");
  if (whole % ((int64_t)part.pre * part.size))
    irp_fail(p, "E0905", loc, "%s(%lld:%lld) is no part of an axis of %lld", name, (long long)part.pre, (long long)part.size,
             (long long)whole);
  return part;
}

static int parse_parts(Parser *p, AxisPart *part) {
  int n = 0;
  do {
    if (n == MAX_PARTS) return irp_fail(p, "E0903", p->tok.loc, "more than %d axes", MAX_PARTS), n;
    part[n++] = parse_part(p);
  } while (irp_take(p, ","));
  return n;
}

/* `2*i - 1`: the constant, with the index' coefficient in *mul. */
static int64_t parse_bound(Parser *p, int64_t *mul) {
  int64_t c = 0;
  *mul = 0;
  for (bool first = true;; first = false) {
    bool minus = irp_take(p, "-");
    if (!minus && !irp_take(p, "+") && !first) return c;
    int64_t k = irp_at_word(p, "i") ? 1 : irp_int(p, 0, MAX_SIZE, "a constant"), sign = minus ? -1 : 1;
    if (irp_take_word(p, "i") || (irp_take(p, "*") && (irp_need_word(p, "i"), true)))
      *mul = sat_add(*mul, sign * k);
    else
      c = sat_add(c, sign * k);
  }
}

/* Behind `window`: `(i < 8: 2*i - 1 .. 2*i + 1)`, `(i < 8: (i .. i + 3) // 4)`. */
static Window parse_window(Parser *p) {
  Window w = {.div = 1};
  irp_need(p, "(");
  irp_need_word(p, "i");
  irp_need(p, "<");
  w.of = irp_int(p, 1, MAX_SIZE, "the range of an index");
  irp_need(p, ":");
  bool divides = irp_take(p, "(");
  Loc loc = p->tok.loc;
  int64_t mul;
  w.lo = parse_bound(p, &w.mul);
  irp_need(p, "..");
  w.hi = parse_bound(p, &mul);
  if (mul != w.mul) irp_fail(p, "E0905", loc, "both ends of a window move alike: %lld*i", (long long)w.mul);
  if (divides) irp_need(p, ")"), irp_need(p, "//"), w.div = irp_int(p, 1, MAX_SIZE, "a divisor");
  irp_need(p, ")");
  return w;
}

/* Behind `@`, or behind `~` (not `wished`: propagate chose it). */
static void parse_split(Parser *p, Split *s, bool wished) {
  s->fixed = wished && p->m->stage == STAGE_ANNOTATED;
  bool none = wished && irp_take_word(p, "none"), several = !none && irp_take(p, "(");
  if (several)
    s->n = parse_parts(p, s->part);
  else if (!none)
    s->part[s->n++] = parse_part(p);
  if (several) irp_need(p, ")");
  if (!none && irp_take_word(p, "granule")) s->granule = irp_int(p, 1, MAX_SIZE, "a granule");
  if (p->m->stage != STAGE_ANNOTATED && irp_take_word(p, "window")) s->window = parse_window(p);
}

/* Products of sizes must not overflow: k counts parts. */
static bool parts_fit(const Split *s) {
  int64_t k = 1;
  for (int i = 0; i < s->n; i++)
    if (!checked_mul(k, s->part[i].size, &k) || k > MAX_DEVICES) return false;
  return true;
}

const char *irp_extent(Parser *p, int64_t *size, Split *s) {
  const char *name = NULL;
  if (p->tok.kind == TOK_NAME || p->tok.kind == TOK_STRING) {
    name = irp_name(p, "a dim");
    irp_need(p, "=");
  }
  Loc loc = p->tok.loc;
  *size = irp_int(p, 0, MAX_SIZE, "a size");
  bool chosen = s && p->m->stage == STAGE_ANNOTATED && irp_take(p, "~");
  if (!s || (!chosen && !irp_take(p, "@"))) return name;
  parse_split(p, s, !chosen);
  if (!parts_fit(s)) return irp_fail(p, "E0903", loc, "this dim is split into too many parts"), name;
  if (p->m->stage < STAGE_LOCAL || split_whole(s)) return name;
  irp_need(p, ":");
  int64_t capacity = split_capacity(s, *size), written = irp_int(p, 0, MAX_SIZE, "a capacity");
  if (written != capacity)
    irp_fail(p, "E0905", loc, "the capacity of this split is %lld, not %lld", (long long)capacity, (long long)written);
  return name;
}

static void parse_pending(Parser *p, Pending *g) {
  g->n = parse_parts(p, g->part);
  irp_need(p, ":");
  g->kind = irp_one_of(p, REDUCE_TEXT, COUNT(REDUCE_TEXT), "sum, max, min or prod");
  irp_need(p, "}");
}

Type irp_type(Parser *p) {
  Type t = {0};
  Loc loc = p->tok.loc;
  const char *name = irp_name(p, "a type");
  if (!p->failed && !dtype_by_name(name, &t.dtype)) irp_fail(p, "E0902", loc, "no type is called %s", name);
  int64_t bytes = 8;
  if (irp_take(p, "[")) {
    do {
      if (t.rank == MAX_RANK) return irp_fail(p, "E0903", p->tok.loc, "more than %d dims", MAX_RANK), t;
      Dim *d = &t.dim[t.rank++];
      d->name = irp_extent(p, &d->size, &d->split);
      if (!checked_mul(bytes, max_i64(d->size, 1), &bytes) || bytes > MAX_SIZE * 1024)
        irp_fail(p, "E0903", loc, "a tensor of this shape is too large");
    } while (irp_take(p, ","));
    irp_need(p, "]");
  }
  if (irp_at(p, "{") && !p->tok.spaced) {
    irp_next(p);
    parse_pending(p, &t.pending);
  }
  return t;
}

int irp_find_index(const Space *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->idx[i].name, name)) return i;
  return -1;
}

void irp_add_index(Parser *p, Space *s, Index i, Loc loc) {
  if (p->failed) return;
  if (s->n == MAX_INDEX)
    irp_fail(p, "E0903", loc, "more than %d indices", MAX_INDEX);
  else if (irp_find_index(s, i.name) >= 0)
    irp_fail(p, "E0904", loc, "index %s is declared twice", i.name);
  else
    s->idx[s->n++] = i;
}

void irp_space(Parser *p, Space *s) {
  irp_need(p, "[");
  if (irp_take(p, "]")) return;
  do {
    Index i = {0};
    Loc loc = p->tok.loc;
    i.name = irp_name(p, "an index");
    irp_need(p, ":");
    i.dim = irp_extent(p, &i.range, &i.split);
    irp_add_index(p, s, i, loc);
  } while (irp_take(p, ","));
  irp_need(p, "]");
}
