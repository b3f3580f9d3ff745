/* relate.c: the same layouts said in another way make the same program. Each relation edits the annotated module, which
   is then planned and checked as the first was:

     rename     other names of the axes            the plan is the same to the byte, but for the names
     divide     x = 4 becomes x.0 = 2, x.1 = 2     a rank receives no more than before, where plans are best: counted
     permute    the axes in another order          other ranks do the same
     pin        a pin to the layout that it has
     idle       reshards to the layout that it has    as many bytes as before                               */
#include "fuzz.h"

typedef bool Edit(Module *m, Module *planned, Rng *r); /* false: it changes nothing here */

static const char *const RENAMED[MAX_AXES] = {"renamed0", "renamed1", "renamed2", "renamed3",
                                              "renamed4", "renamed5", "renamed6", "renamed7"};

static bool rename_axes(Module *m, Module *planned, Rng *r) {
  (void)planned, (void)r;
  for (int a = 0; a < m->mesh.naxes; a++) m->mesh.axis[a].name = RENAMED[a];
  return true;
}

/* The parts of `s` by the axes' new numbers: axis a is now a + (a > from), and `from` the product of two, the major of
   size `major`; major = 0: by[a]. */
static Split translate(const Split *s, int from, int64_t major, const int *by) {
  Split t = *s;
  t.n = 0;
  for (int i = 0; i < s->n; i++) {
    AxisPart p = s->part[i];
    if (major == 0)
      t.part[t.n++] = (AxisPart){by[p.axis], p.pre, p.size};
    else if (p.axis != from || p.pre >= major)
      t.part[t.n++] = p.axis < from ? p : (AxisPart){p.axis + 1, p.axis == from ? p.pre / major : p.pre, p.size};
    else if (p.pre * p.size <= major)
      t.part[t.n++] = p;
    else {
      t.part[t.n++] = (AxisPart){from, p.pre, major / p.pre};
      t.part[t.n++] = (AxisPart){from + 1, 1, p.pre * p.size / major};
    }
  }
  return t;
}

static void translate_all(Module *m, int from, int64_t major, const int *by) {
  for (ValueId v = 0; v < m->values.n; v++)
    for (int k = 0; k < m->values.at[v].type.rank; k++) {
      Split *s = &m->values.at[v].type.dim[k].split;
      *s = translate(s, from, major, by);
    }
}

static bool divide_axis(Module *m, Module *planned, Rng *r) {
  (void)planned, (void)r;
  Mesh *mesh = &m->mesh;
  int a = 0;
  while (a < mesh->naxes && (mesh->axis[a].size < 4 || mesh->axis[a].size % 2)) a++;
  if (a == mesh->naxes || mesh->naxes == MAX_AXES) return false;
  for (int k = mesh->naxes++; k > a; k--) mesh->axis[k] = mesh->axis[k - 1];
  mesh->axis[a + 1] = (Axis){arena_printf(m->arena, "%s.1", mesh->axis[a].name), mesh->axis[a].size / 2};
  mesh->axis[a] = (Axis){arena_printf(m->arena, "%s.0", mesh->axis[a].name), 2};
  translate_all(m, a, 2, NULL);
  return true;
}

static bool permute_axes(Module *m, Module *planned, Rng *r) {
  (void)planned;
  Mesh old = m->mesh;
  int by[MAX_AXES], n = old.naxes;
  if (n < 2) return false;
  for (int a = 0; a < n; a++) by[a] = a;
  for (int a = n - 1; a > 0; a--) {
    int j = rng_below(r, a + 1), t = by[a];
    by[a] = by[j], by[j] = t;
  }
  for (int a = 0; a < n; a++) m->mesh.axis[by[a]] = old.axis[a];
  translate_all(m, 0, 0, by);
  return true;
}

static bool pin_result(Module *m, Module *planned, Rng *r) {
  int found = -1, n = 0;
  for (ValueId v = 0; v < m->values.n; v++) {
    const Value *x = &m->values.at[v];
    ValueId is = ir_find_value(planned, x->name);
    if (!x->def || op_class(x->def->kind) != CLS_SPACE || x->result > 0 || is < 0) continue;
    if (planned->values.at[is].type.pending.n == 0 && x->type.rank > 0 && rng_below(r, ++n) == 0) found = v;
  }
  if (found < 0) return false;
  Type *t = &m->values.at[found].type;
  const Type *is = &planned->values.at[ir_find_value(planned, m->values.at[found].name)].type;
  for (int k = 0; k < t->rank; k++) {
    t->dim[k].split = is->dim[k].split;
    t->dim[k].split.fixed = true;
  }
  return true;
}

static const struct Relation {
  const char *name;
  Edit *edit;
  bool same_text, same_bytes, divides;
} RELATIONS[] = {
    {"rename", rename_axes, true, true, false},
    {"divide", divide_axis, false, false, true},
    {"permute", permute_axes, false, false, false},
    {"pin", pin_result, false, false, false},
    {"idle", NULL, false, true, false},
};

/* The printed module with its axes' first names. */
static const char *by_first_names(const Module *m, const Mesh *first, Arena *a) {
  Str s = {0};
  for (const char *p = ir_print(m, a); *p;) {
    if (!strncmp(p, "renamed", 7) && p[7] >= '0' && p[7] < '0' + MAX_AXES) {
      str_printf(a, &s, "%s", first->axis[p[7] - '0'].name);
      p += 8;
    } else {
      str_printf(a, &s, "%c", *p++);
    }
  }
  return s.at;
}

__attribute__((format(printf, 3, 4))) static bool differs(Verdict *out, const char *relation, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = snprintf(out->text, sizeof out->text, "%s: ", relation);
  vsnprintf(out->text + n, sizeof out->text - (size_t)n, fmt, ap);
  va_end(ap);
  out->result = CHECK_DIFFERS;
  return false;
}

static bool holds(const struct Relation *rel, Module *planned, const Module *again, Arena *a, Verdict *out) {
  int64_t before = fuzz_bytes(planned), after = fuzz_bytes(again);
  if (rel->divides) out->divided = true, out->worse = after > before;
  if (rel->same_bytes && after != before)
    return differs(out, rel->name, "a rank receives %lld bytes, before it %lld", (long long)after, (long long)before);
  if (!rel->same_text) return true;
  const char *x = ir_print(planned, a), *y = by_first_names(again, &planned->mesh, a), *p = x, *q = y;
  if (!strcmp(x, y)) return true;
  for (; *p && *p == *q; p++, q++)
    if (*p == '\n') x = p + 1, y = q + 1;
  return differs(out, rel->name, "another plan:\n%.*s\n%.*s", (int)strcspn(x, "\n"), x, (int)strcspn(y, "\n"), y);
}

void fuzz_relate(const Module *m, Module *planned, Arena *a, CheckOptions o, Verdict *out) {
  for (size_t i = 0; i < sizeof RELATIONS / sizeof *RELATIONS; i++) {
    const struct Relation *rel = &RELATIONS[i];
    Rng r = {random_mix(o.seed + i)};
    Module *again = ir_clone(m, a);
    CheckOptions how = o;
    how.idle = !rel->edit;
    if (rel->edit && !rel->edit(again, planned, &r)) continue;
    Verdict v;
    fuzz_check(again, a, how, &v);
    if (v.result != CHECK_AGREES) {
      differs(out, rel->name, "%.3900s", v.text);
      out->result = v.result;
      return;
    }
    if (!holds(rel, planned, again, a, out)) return;
  }
}
