/* emit_tables.c: what the runtime has to know: leaves, settings, collectives, taps, and the program as a whole. */
#include "emit.h"

#define OUT(...) str_printf(e->a, out, __VA_ARGS__)

static const char *init_name(InitKind k) {
  static const char *const names[] = {"DTRT_ZEROS", "DTRT_ONES", "DTRT_NORMAL", "DTRT_UNIFORM", "DTRT_CONST"};
  return names[k];
}

static void leaf(Emit *e, Str *out, const Op *op) {
  static const char *const kinds[] = {[OP_PARAM] = "DTRT_PARAM", [OP_STATE] = "DTRT_STATE", [OP_INPUT] = "DTRT_INPUT"};
  const char *name = op->name ? op->name : e->m->values.at[op->out[0]].name;
  OUT("{.kind = %s, .name = ", kinds[op->kind]);
  emit_string(e, out, name);
  OUT(", .layout = ");
  emit_layout(e, out, &e->m->values.at[op->out[0]].type);
  OUT(", .offset = %lld", (long long)e->place[op->out[0]].offset);
  if (op->kind == OP_PARAM) OUT(", .init = %s, .a = %.17g, .b = %.17g", init_name(op->init), op->init_a, op->init_b);
  if (op->kind == OP_INPUT) {
    OUT(", .source = %s, .file = ", op->source == SRC_TABLE ? "DTRT_TABLE" : "DTRT_NEXT_TOKEN");
    emit_string(e, out, op->file);
    OUT(", .shuffle = %s, .part = %d, .limit = %lld, .limit_dim = ", op->shuffle ? "true" : "false", op->source_part,
        (long long)op->limit);
    emit_string(e, out, op->limit_dim);
  }
  OUT(", .line = %d},\n", op->loc.line);
}

static const char *file_of(Emit *e, const Op *op) {
  Str s = {0};
  emit_string(e, &s, emit_file(e, op));
  return s.at;
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

static void layouts(Emit *e, Str *out, const char *what, int id, const ValueId *v, int n) {
  OUT("static const dtrt_Layout %s_%d[] = {\n", what, id);
  for (int i = 0; i < n; i++) {
    emit_layout(e, out, &e->m->values.at[v[i]].type);
    OUT(",\n");
  }
  OUT("};\n");
}

/* "data,model": the axes that a collective runs over. */
static const char *axes_of(Emit *e, const Pending *over) {
  Str axes = {0};
  for (int x = 0; x < e->m->mesh.naxes; x++)
    for (int j = 0; j < over->n; j++) {
      if (over->part[j].axis != x) continue;
      str_printf(e->a, &axes, "%s%s", axes.n ? "," : "", e->m->mesh.axis[x].name);
      break;
    }
  return axes.at ? axes.at : "";
}

static void collectives(Emit *e, Str *out) {
  if (!e->collectives.n) return;
  OUT("\n");
  for (int i = 0; i < e->collectives.n; i++) {
    const Op *op = e->collectives.at[i];
    layouts(e, out, "from", i, op->in, op->nin);
    layouts(e, out, "to", i, op->out, op->nout);
  }
  OUT("static const dtrt_Collective collectives[] = {\n");
  for (int i = 0; i < e->collectives.n; i++) {
    const Op *op = e->collectives.at[i];
    Pending over = cg_over(e->m, op);
    OUT("{\"%s\", ", op_text(op->kind));
    emit_string(e, out, axes_of(e, &over));
    OUT(", %s, %d, %d, from_%d, to_%d, %d, ", file_of(e, op), op->loc.line, op->nin, i, i, over.n);
    Split s = {.n = over.n};
    memcpy(s.part, over.part, sizeof s.part);
    emit_digits(e, out, &s);
    OUT("},\n");
  }
  OUT("};\n");
}

/* Bytes that the rank that receives most receives in one step. */
static double received(const Emit *e) {
  VEC(Traffic) moves = {0};
  for (int i = 0; i < e->collectives.n; i++) {
    const Op *op = e->collectives.at[i];
    double times = 1;
    for (const Region *r = e->m->values.at[op->in[0]].region; r && r->parent; r = e->m->values.at[r->parent->out[0]].region)
      times *= (double)r->parent->trip;
    for (int k = 0; k < op->nin; k++)
      vec_push(e->a, moves, ((Traffic){op->kind, &e->m->values.at[op->in[k]].type, &e->m->values.at[op->out[k]].type, times}));
  }
  return moves_most(e->a, &e->m->mesh, moves.n, moves.at);
}

/* ---- the file's end ------------------------------------------------------------------------------------------------ */

void emit_tables(Emit *e, Str *out) {
  static const char *const taps[] = {"DTRT_TAP_LOSS", "DTRT_TAP_METRIC",    "DTRT_TAP_OUTPUT",
                                     "DTRT_TAP_GRAD", "DTRT_TAP_GRAD_NORM", "DTRT_TAP_LR"};
  const Region *r = e->m->programs.at[0].body;
  int nleaf = 0, nsetting = 0;
  for (int i = 0; i < r->ops.n; i++) {
    OpKind k = r->ops.at[i]->kind;
    if (op_class(k) == CLS_LEAF && k != OP_SETTING) nleaf++;
    nsetting += k == OP_SETTING;
  }
  if (nleaf) {
    OUT("\nstatic const dtrt_Leaf leaves[] = {\n");
    for (int i = 0; i < r->ops.n; i++)
      if (op_class(r->ops.at[i]->kind) == CLS_LEAF && r->ops.at[i]->kind != OP_SETTING) leaf(e, out, r->ops.at[i]);
    OUT("};\n");
  }
  if (nsetting) {
    OUT("\nstatic const dtrt_Setting settings[] = {\n");
    for (int i = 0; i < r->ops.n; i++) {
      if (r->ops.at[i]->kind != OP_SETTING) continue;
      OUT("{");
      emit_string(e, out, r->ops.at[i]->name);
      OUT(", %s},\n", emit_literal(e, F64, r->ops.at[i]->init_a, 0));
    }
    OUT("};\n");
  }
  collectives(e, out);
  if (!e->taps.n) return;
  OUT("\nstatic const dtrt_Tap taps[] = {\n");
  for (int i = 0; i < e->taps.n; i++) {
    const Op *op = e->taps.at[i];
    OUT("{%s, ", taps[op->tap]);
    emit_string(e, out, op->name);
    OUT(", ");
    emit_layout(e, out, &e->m->values.at[op->in[0]].type);
    OUT("},\n");
  }
  OUT("};\n");
}

/* What tokens/s counts: the elements of the first input if it holds integers (tokens, one by one), else its rows. */
static int64_t count_tokens(const Type *t, bool *rows) {
  *rows = t->rank > 0 && (!dtype_is_int(t->dtype) || t->rank == 1);
  return *rows ? t->dim[0].size : type_elements(t);
}

void emit_program(Emit *e, Str *out, const bool has[3]) {
  const Module *m = e->m;
  const Region *r = m->programs.at[0].body;
  int64_t tokens = 0, parameters = 0, nranks = mesh_devices(&m->mesh);
  int nleaf = 0, nsetting = 0;
  bool rows = false;
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    if (op->kind == OP_INPUT && !tokens) tokens = count_tokens(&m->values.at[op->out[0]].type, &rows);
    if (op->kind == OP_PARAM) parameters += type_elements(&m->values.at[op->out[0]].type);
    if (op_class(op->kind) == CLS_LEAF && op->kind != OP_SETTING) nleaf++;
    nsetting += op->kind == OP_SETTING;
  }
  OUT("\nstatic const dtrt_Program program = {\n.abi = DTRT_ABI,\n.level = DTRT_LEVEL,\n.source = ");
  emit_string(e, out, m->files.n ? m->files.at[0] : "");
  OUT(",\n.version = DTC_VERSION,\n.naxes = %d,\n.axis = {", m->mesh.naxes);
  for (int i = 0; i < m->mesh.naxes; i++) {
    OUT(i ? ", " : "");
    emit_string(e, out, m->mesh.axis[i].name);
  }
  OUT("%s},\n.axis_size = {", m->mesh.naxes ? "" : "0");
  for (int i = 0; i < m->mesh.naxes; i++) OUT("%s%lld", i ? ", " : "", (long long)m->mesh.axis[i].size);
  OUT("%s},\n.nranks = %lld,\n", m->mesh.naxes ? "" : "0", (long long)nranks);
  OUT(".arena_bytes = %lld,\n.workspace_bytes = %lld,\n", (long long)m->arena_bytes, (long long)m->workspace_bytes);
  if (m->target == TARGET_CUDA)
    OUT(".staging_bytes = %lld,\n.library_bytes = %lld,\n", (long long)cg_staging_bytes(m), (long long)cg_library_bytes(m));
  if (nleaf) OUT(".nleaves = %d,\n.leaf = leaves,\n", nleaf);
  if (nsetting) OUT(".nsettings = %d,\n.setting = settings,\n", nsetting);
  if (e->collectives.n) OUT(".ncollectives = %d,\n.collective = collectives,\n", e->collectives.n);
  if (e->taps.n) OUT(".ntaps = %d,\n.tap = taps,\n", e->taps.n);
  OUT(".steps = %lld,\n.tokens = %lld,\n.unit = \"%s\",\n.parameters = %lld,\n.plan_bytes = %.0f,\n", (long long)m->train.steps,
      (long long)tokens, rows ? "rows" : "tokens", (long long)parameters, received(e));
  OUT(".trains = %s,\n", m->train.present ? "true" : "false");
  if (m->tf32) OUT(".tf32 = true,\n");
  static const char *const names[] = {"forward", "backward", "update"};
  for (int i = 0; i < 3; i++)
    if (has[i]) OUT(".%s = %s,\n", names[i], names[i]);
  OUT("};\n\nint main(int argc, char **argv) { return dtrt_main(&program, argc, argv); }\n");
}
