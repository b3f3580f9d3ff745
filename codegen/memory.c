/* memory.c: what a rank's memory is spent on: `--emit=memory` for people, `--emit=memory-json` for programs.

     {"arena_bytes", "workspace_bytes", "params", "state", "inputs", "saved", "temporaries",
      "buffers": [{"name", "kind", "offset", "bytes", "line"}]}

   and, of a program for GPUs, "staging_bytes" and "library_bytes" behind "workspace_bytes".

   All in bytes of one rank (the same on every rank). `saved` are values that a repeat keeps for its reverse;
   `temporaries` is what is left of the arena, where buffers overlap in space but not in time. */
#include "cg.h"

typedef enum { KIND_PARAM, KIND_STATE, KIND_INPUT, KIND_SAVED, KIND_TEMPORARY, NKINDS } BufferKind;
static const char *const kind_names[] = {"param", "state", "input", "saved", "temporary"};

static BufferKind kind_of(const Module *m, ValueId v) {
  const Value *x = &m->values.at[v];
  if (!x->def) return KIND_TEMPORARY;
  switch (x->def->kind) {
  case OP_PARAM: return KIND_PARAM;
  case OP_STATE: return KIND_STATE;
  case OP_INPUT: return KIND_INPUT;
  case OP_REPEAT: return x->result >= x->def->nout - x->def->nsaved ? KIND_SAVED : KIND_TEMPORARY;
  default: return KIND_TEMPORARY;
  }
}

/* Arguments and slices of a repeat share their bytes with what they come from, updated leaves with the leaf. */
static bool own_bytes(const Module *m, ValueId v) {
  const Value *x = &m->values.at[v];
  if (m->buffers[v].offset < 0 || !x->def || !x->region) return false;
  const Op *parent = x->region->parent;
  for (int i = 0; parent && i < parent->nout; i++)
    if (m->buffers[parent->out[i]].offset == m->buffers[v].offset) return false;
  return true;
}

static int64_t padded(int64_t n) { return (n + 63) / 64 * 64; }

typedef struct {
  int64_t kind[NKINDS];
  VEC(ValueId) shown;
} Memory;

static Memory add_up(const Module *m, Arena *a) {
  Memory t = {0};
  int64_t known = 0;
  for (ValueId v = 0; v < m->values.n; v++) {
    if (!own_bytes(m, v)) continue;
    vec_push(a, t.shown, v);
    if (kind_of(m, v) == KIND_TEMPORARY) continue;
    t.kind[kind_of(m, v)] += padded(m->buffers[v].bytes);
    known += padded(m->buffers[v].bytes);
  }
  t.kind[KIND_TEMPORARY] = max_i64(0, m->arena_bytes - known);
  return t;
}

static void json_string(Arena *a, Str *s, const char *text) {
  str_put(a, s, "\"");
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c < 32 || *c == '"' || *c == '\\')
      str_printf(a, s, "\\u%04x", *c);
    else
      str_printf(a, s, "%c", *c);
  }
  str_put(a, s, "\"");
}

static const char *as_json(const Module *m, Arena *a, const Memory *t) {
  Str s = {0};
  str_printf(a, &s, "{\"arena_bytes\": %lld, \"workspace_bytes\": %lld, ", (long long)m->arena_bytes,
             (long long)m->workspace_bytes);
  if (m->target == TARGET_CUDA)
    str_printf(a, &s, "\"staging_bytes\": %lld, \"library_bytes\": %lld, ", (long long)cg_staging_bytes(m),
               (long long)cg_library_bytes(m));
  str_printf(a, &s, "\"params\": %lld, \"state\": %lld, \"inputs\": %lld, ", (long long)t->kind[KIND_PARAM],
             (long long)t->kind[KIND_STATE], (long long)t->kind[KIND_INPUT]);
  str_printf(a, &s, "\"saved\": %lld, \"temporaries\": %lld,\n \"buffers\": [", (long long)t->kind[KIND_SAVED],
             (long long)t->kind[KIND_TEMPORARY]);
  for (int i = 0; i < t->shown.n; i++) {
    const Value *x = &m->values.at[t->shown.at[i]];
    str_put(a, &s, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
    json_string(a, &s, x->name);
    str_printf(a, &s, ", \"kind\": \"%s\", \"offset\": %lld, \"bytes\": %lld, \"line\": %d}",
               kind_names[kind_of(m, t->shown.at[i])], (long long)m->buffers[t->shown.at[i]].offset,
               (long long)m->buffers[t->shown.at[i]].bytes, x->def->loc.line);
  }
  str_put(a, &s, "]}\n");
  return s.at;
}

static const char *human(Arena *a, int64_t bytes) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes;
  int u = 0;
  for (; x >= 1024 && u < 4; u++) x /= 1024;
  return arena_printf(a, u ? "%.1f %s" : "%.0f %s", x, unit[u]);
}

enum { LARGEST = 20 };

static const char *as_text(const Module *m, Arena *a, const Memory *t) {
  static const char *const titles[] = {"parameters", "optimizer state", "inputs", "saved for backward", "temporaries"};
  Str s = {0};
  str_put(a, &s, "memory per rank\n");
  for (int k = 0; k < NKINDS; k++) str_printf(a, &s, "  %-20s %12s\n", titles[k], human(a, t->kind[k]));
  str_printf(a, &s, "  %-20s %12s  (%lld bytes)\n", "arena", human(a, m->arena_bytes), (long long)m->arena_bytes);
  str_printf(a, &s, "  %-20s %12s  (%lld bytes)\n", "workspace", human(a, m->workspace_bytes), (long long)m->workspace_bytes);
  if (m->target == TARGET_CUDA) {
    str_printf(a, &s, "  %-20s %12s  (%lld bytes)\n", "staging", human(a, cg_staging_bytes(m)), (long long)cg_staging_bytes(m));
    str_printf(a, &s, "  %-20s %12s  (%lld bytes)\n", "library workspace", human(a, cg_library_bytes(m)),
               (long long)cg_library_bytes(m));
  }
  str_put(a, &s, "largest buffers\n");
  bool *done = NEW_ARRAY(a, bool, t->shown.n + 1);
  for (int n = 0; n < LARGEST && n < t->shown.n; n++) {
    int best = -1;
    for (int i = 0; i < t->shown.n; i++)
      if (!done[i] && (best < 0 || m->buffers[t->shown.at[i]].bytes > m->buffers[t->shown.at[best]].bytes)) best = i;
    done[best] = true;
    ValueId v = t->shown.at[best];
    const Value *x = &m->values.at[v];
    str_printf(a, &s, "  %-20s %12s  at %-12lld %-9s", x->name, human(a, m->buffers[v].bytes), (long long)m->buffers[v].offset,
               kind_names[kind_of(m, v)]);
    if (x->def->loc.line > 0) str_printf(a, &s, " line %d", x->def->loc.line);
    str_put(a, &s, "\n");
  }
  return s.at;
}

const char *cg_memory_report(const Module *m, Arena *a, bool json) {
  Memory t = add_up(m, a);
  return json ? as_json(m, a, &t) : as_text(m, a, &t);
}
