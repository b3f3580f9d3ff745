/* parse_type.c: `f32[B=8@data, K=384@(pod, model(1:2)) granule 64]{model: sum}` and lists of indices,
   `[d: D=128@model, k: 32]`. */
#include "parser.h"

static AxisPart parse_part(Parser *p) {
  Loc loc = p->tok.loc;
  const char *name = expect_name(p, "a mesh axis");
  int axis = p->failed ? -1 : mesh_axis(&p->m->mesh, name);
  if (axis < 0) return parse_fail(p, "E0902", loc, "the mesh has no axis %s", name), (AxisPart){0, 1, 1};
  AxisPart part = axis_whole(&p->m->mesh, axis);
  if (!accept_punct(p, "(")) return part;
  int64_t whole = part.size;
  part.pre = expect_int(p, 1, whole, "how many parts stand before this one");
  expect_punct(p, ":");
  part.size = expect_int(p, 1, whole, "the size of a part of an axis");
  expect_punct(p, ")");
  if (whole % (part.pre * part.size))
    parse_fail(p, "E0905", loc, "%s(%lld:%lld) is no part of an axis of %lld", name, (long long)part.pre, (long long)part.size,
               (long long)whole);
  return part;
}

static int parse_parts(Parser *p, AxisPart *part) {
  int n = 0;
  do {
    if (n == MAX_PARTS) return parse_fail(p, "E0903", p->tok.loc, "more than %d axes", MAX_PARTS), n;
    part[n++] = parse_part(p);
  } while (accept_punct(p, ","));
  return n;
}

static void parse_split(Parser *p, Split *s) {
  s->fixed = p->m->stage == STAGE_ANNOTATED;
  if (accept_word(p, "none")) return;
  bool several = accept_punct(p, "(");
  if (several)
    s->n = parse_parts(p, s->part);
  else
    s->part[s->n++] = parse_part(p);
  if (several) expect_punct(p, ")");
  if (accept_word(p, "granule")) s->granule = expect_int(p, 1, MAX_SIZE, "a granule");
}

/* Products of sizes must not overflow: k counts parts. */
static bool parts_fit(const Split *s) {
  int64_t k = 1;
  for (int i = 0; i < s->n; i++)
    if (!checked_mul(k, s->part[i].size, &k) || k > MAX_DEVICES) return false;
  return true;
}

const char *parse_extent(Parser *p, int64_t *size, Split *s) {
  const char *name = NULL;
  if (p->tok.kind == TOK_NAME || p->tok.kind == TOK_STRING) {
    name = expect_name(p, "a dim");
    expect_punct(p, "=");
  }
  Loc loc = p->tok.loc;
  *size = expect_int(p, 0, MAX_SIZE, "a size");
  if (!s || !accept_punct(p, "@")) return name;
  parse_split(p, s);
  if (!parts_fit(s)) return parse_fail(p, "E0903", loc, "this dim is split into too many parts"), name;
  if (p->m->stage < STAGE_LOCAL || s->n == 0) return name;
  expect_punct(p, ":");
  int64_t capacity = split_capacity(s, *size), written = expect_int(p, 0, MAX_SIZE, "a capacity");
  if (written != capacity)
    parse_fail(p, "E0905", loc, "the capacity of this split is %lld, not %lld", (long long)capacity, (long long)written);
  return name;
}

static void parse_pending(Parser *p, Pending *g) {
  g->n = parse_parts(p, g->part);
  expect_punct(p, ":");
  g->kind = expect_one_of(p, REDUCE_TEXT, COUNT(REDUCE_TEXT), "sum, max, min or prod");
  expect_punct(p, "}");
}

Type parse_type(Parser *p) {
  Type t = {0};
  Loc loc = p->tok.loc;
  const char *name = expect_name(p, "a type");
  if (!p->failed && !dtype_by_name(name, &t.dtype)) parse_fail(p, "E0902", loc, "no type is called %s", name);
  int64_t bytes = 8;
  if (accept_punct(p, "[")) {
    do {
      if (t.rank == MAX_RANK) return parse_fail(p, "E0903", p->tok.loc, "more than %d dims", MAX_RANK), t;
      Dim *d = &t.dim[t.rank++];
      d->name = parse_extent(p, &d->size, &d->split);
      if (!checked_mul(bytes, max_i64(d->size, 1), &bytes) || bytes > MAX_SIZE * 1024)
        parse_fail(p, "E0903", loc, "a tensor of this shape is too large");
    } while (accept_punct(p, ","));
    expect_punct(p, "]");
  }
  if (at_punct(p, "{") && !p->tok.spaced) {
    lex_next(p);
    parse_pending(p, &t.pending);
  }
  return t;
}

int find_index(const Space *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->idx[i].name, name)) return i;
  return -1;
}

void add_index(Parser *p, Space *s, Index i, Loc loc) {
  if (p->failed) return;
  if (s->n == MAX_INDEX)
    parse_fail(p, "E0903", loc, "more than %d indices", MAX_INDEX);
  else if (find_index(s, i.name) >= 0)
    parse_fail(p, "E0904", loc, "index %s is declared twice", i.name);
  else
    s->idx[s->n++] = i;
}

void parse_space(Parser *p, Space *s) {
  expect_punct(p, "[");
  if (accept_punct(p, "]")) return;
  do {
    Index i = {0};
    Loc loc = p->tok.loc;
    i.name = expect_name(p, "an index");
    expect_punct(p, ":");
    i.dim = parse_extent(p, &i.range, &i.split);
    add_index(p, s, i, loc);
  } while (accept_punct(p, ","));
  expect_punct(p, "]");
}
