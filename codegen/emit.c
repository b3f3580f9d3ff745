/* emit.c: a scheduled module as one C or CUDA file against runtime/dtrt.h or dtcu.h: tables of dims, a function per group of ops,
   then forward, backward and update with a call per step, and the tables that the runtime reads. */
#include "emit.h"

enum { COLUMNS = 130 };

/* Where to break a line of n characters so that at most `room` stay: behind a comma, else before an operator, never
   inside quotes; n if it is short or has no such place. */
static size_t break_at(const char *line, size_t n, size_t room) {
  if (n <= room) return n;
  size_t comma = 0, blank = 0;
  bool quoted = false;
  for (size_t i = 0; i < room && i + 1 < n; i++) {
    if (line[i] == '\\' && quoted)
      i++;
    else if (line[i] == '"')
      quoted = !quoted;
    else if (!quoted && line[i] == '/' && line[i + 1] == '/')
      break;
    else if (!quoted && line[i] == ' ' && i > 0)
      blank = i, comma = line[i - 1] == ',' ? i : comma;
  }
  return comma > room / 3 ? comma + 1 : blank > room / 3 ? blank + 1 : n;
}

static void put_line(Arena *a, Str *out, int indent, const char *line, size_t n) {
  for (bool first = true; n > 0; first = false) {
    int margin = first ? indent : indent + 4;
    size_t take = break_at(line, n, COLUMNS - (size_t)margin), shown = take;
    while (shown > 0 && line[shown - 1] == ' ') shown--;
    str_printf(a, out, "%*s%.*s\n", margin, "", (int)shown, line);
    line += take, n -= take;
  }
}

/* Lines are indented by the braces before them and broken where they are too long; comments and strings do not
   count as braces. */
static const char *indented(Arena *a, const char *text) {
  Str out = {0};
  int depth = 0;
  for (const char *line = text; *line;) {
    const char *end = strchr(line, '\n');
    size_t n = end ? (size_t)(end - line) : strlen(line);
    bool quoted = false;
    int change = 0, lowest = 0;
    for (size_t i = 0; i < n; i++) {
      if (line[i] == '\\' && quoted)
        i++;
      else if (line[i] == '"')
        quoted = !quoted;
      else if (!quoted && line[i] == '/' && i + 1 < n && line[i + 1] == '/')
        break;
      else if (!quoted && line[i] == '{')
        change++;
      else if (!quoted && line[i] == '}')
        change--;
      lowest = change < lowest ? change : lowest;
    }
    if (n)
      put_line(a, &out, 2 * (depth + lowest), line, n);
    else
      str_put(a, &out, "\n");
    depth += change;
    line += n + (end != NULL);
  }
  return out.at ? out.at : "";
}

static void put_tables(Emit *e, Str *out) {
  if (e->dims.n + e->layouts.n) str_put(e->a, out, "\n");
  for (int i = 0; i < e->dims.n; i++)
    str_printf(e->a, out, "static const dtrt_Dim %s = %s;\n", e->dim_names.at[i], e->dims.at[i]);
  for (int i = 0; i < e->layouts.n; i++)
    str_printf(e->a, out, "static const dtrt_Layout %s = %s;\n", e->layout_names.at[i], e->layouts.at[i]);
}

static void header(Emit *e, Str *out) {
  const Module *m = e->m;
  Names none = {0};
  str_put(e->a, out, "// The training program of ");
  for (const char *c = m->files.n ? m->files.at[0] : "a model"; *c; c++)
    str_printf(e->a, out, "%c", *c > 32 && *c < 127 && *c != '\\' && *c != '?' ? *c : '_');
  str_put(e->a, out, ", written by dtc: what one rank of the mesh does in a step.\n// Mesh:");
  for (int i = 0; i < m->mesh.naxes; i++)
    str_printf(e->a, out, " %s = %lld", emit_name(e, &none, m->mesh.axis[i].name), (long long)m->mesh.axis[i].size);
  str_printf(e->a, out, "%s. Memory per rank: %lld bytes, and %lld of workspace.\n", m->mesh.naxes ? "" : " one device",
             (long long)m->arena_bytes, (long long)m->workspace_bytes);
  e->d->head(e, out);
  str_put(e->a, out, "#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\" // tables leave out zeros at their end\n");
  str_put(e->a, out, "\n#ifndef DTC_VERSION\n#define DTC_VERSION \"\"\n#endif\n");
  if (m->target == TARGET_C) str_put(e->a, out, "#define AT(offset) ((void *)(cx->arena + (offset)))\n");
}

/* The numbers of collectives or taps, by name. */
static void numbers(Emit *e, Str *out, const char *what, const NameList *names) {
  if (!names->n) return;
  str_printf(e->a, out, "\nenum { // %s\n", what);
  for (int i = 0; i < names->n; i++) str_printf(e->a, out, "%s,\n", names->at[i]);
  str_put(e->a, out, "};\n");
}

static const char CHECK[] = "\n// After a loss that is not finite the step is run again to find where it began.\n"
                            "static void check(dtrt_Context *cx, const float *x, int64_t n, const char *tensor, int line) {\n"
                            "if (cx->checking) dtrt_check_f32(cx, x, n, tensor, line);\n"
                            "}\n";

/* Reassociation and contraction are free, infinities and NaN keep their meaning: -inf masks a softmax. Unrolling takes
   three quarters of the compiler's time and no time off a step, most of which is spent in products. */
const char *const *cg_c_flags(void) {
  static const char *const flags[] = {"-O3",
                                      "-fno-unroll-loops",
                                      "-march=native",
                                      "-std=gnu17",
                                      "-fno-math-errno",
                                      "-fno-trapping-math",
                                      "-fassociative-math",
                                      "-fno-signed-zeros",
                                      "-ffp-contract=fast",
                                      NULL};
  return flags;
}

static const char *emit_text(const Module *m, Arena *a, const Dialect *d) {
  Emit *e = NEW(a, Emit);
  *e = (Emit){.m = m, .a = a, .d = d, .users = cg_users(m, a), .place = cg_places(m, a)};
  e->infinite = NEW_ARRAY(a, char, m->values.n);
  for (const char *const *n = (const char *const[]){"leaves", "settings", "collectives", "taps", "program", NULL}; *n; n++)
    emit_take(e, &e->global, *n);
  Str functions = {0}, tables = {0}, out = {0};
  bool has[3];
  emit_functions(e, &functions, has);
  emit_tables(e, &tables);
  emit_program(e, &tables, has);
  header(e, &out);
  put_tables(e, &out);
  numbers(e, &out, "collectives", &e->collective_names);
  numbers(e, &out, "values that are shown", &e->tap_names);
  str_put(a, &out, e->kernels.at ? e->kernels.at : "");
  str_put(a, &out, CHECK);
  str_put(a, &out, functions.at ? functions.at : "");
  str_put(a, &out, tables.at);
  return indented(a, out.at);
}

const char *cg_emit_c(const Module *m, Arena *a) {
  assert(m->target == TARGET_C && "the workspace is planned for one target");
  return emit_text(m, a, &emit_dialect_c);
}

const char *cg_emit_cuda(const Module *m, Arena *a) {
  assert(m->target == TARGET_CUDA && "the workspace is planned for one target");
  return emit_text(m, a, &emit_dialect_cuda);
}
