/* print.c: a module as text, as ir/README.md describes it. Whatever is printed parses back to the same module;
   names and strings that the grammar would misread are quoted, reals have the fewest digits that are exact.
   Also prints broken ops (the verifier shows them), with `?` for what is missing. */
#include "print.h"

/* ---- ops ---------------------------------------------------------------------------------------------------- */

static void print_space(Printer *p, const Op *op, const char *word, int from, int to) {
  puts_(p, word);
  puts_(p, "[");
  for (int i = from; i < to; i++) {
    if (i > from) puts_(p, ", ");
    irw_index_name(p, op, i);
    puts_(p, ": ");
    irw_extent(p, op->space.idx[i].dim, op->space.idx[i].range, &op->space.idx[i].split);
  }
  puts_(p, "]");
}

static void print_init(Printer *p, InitKind k, double a, double b) {
  puts_(p, WORD(INIT_TEXT, k));
  int n = in_table((int)k, COUNT(INIT_NARGS)) ? INIT_NARGS[k] : 0;
  for (int i = 0; i < n; i++) {
    puts_(p, i ? ", " : "(");
    irw_real(p, i ? b : a, false);
  }
  if (n) puts_(p, ")");
}

static void print_input(Printer *p, const Op *op) {
  if (op->name) {
    puts_(p, " ");
    irw_quoted(p, op->name);
  }
  bool table = op->source == SRC_TABLE;
  put(p, " %s(", table ? "table" : "next_token");
  irw_quoted(p, op->file ? op->file : "");
  if (op->shuffle == table) puts_(p, table ? ", shuffle" : ", sequential");
  puts_(p, ")");
  if (!table || op->source_part) put(p, " part %d", op->source_part);
  if (op->limit == 0) return;
  puts_(p, " limit ");
  irw_extent(p, op->limit_dim, op->limit, &(Split){0});
}

static void print_leaf(Printer *p, const Op *op) {
  if (op->kind == OP_INPUT) {
    print_input(p, op);
    return;
  }
  puts_(p, " ");
  irw_quoted(p, op->name ? op->name : "");
  if (op->kind == OP_SETTING) puts_(p, " "), irw_real(p, op->init_a, false);
  if (op->kind == OP_PARAM) puts_(p, " "), print_init(p, op->init, op->init_a, op->init_b);
  if (op->frozen) puts_(p, " frozen");
  if (op->nstack) put(p, " stack %d", op->nstack);
}

static void print_random(Printer *p, const Op *op) {
  put(p, " %s ", WORD(INIT_TEXT, op->init));
  irw_quoted(p, op->name ? op->name : "");
  if (op->nin) puts_(p, " step "), irw_value(p, op->in[0]);
  if (op->nin <= 1) return;
  puts_(p, " at(");
  irw_values(p, op->in + 1, op->nin - 1);
  puts_(p, ")");
}

static void print_attention(Printer *p, const Op *op) {
  const Space *s = &op->space;
  bool grad = op->kind == OP_ATTENTION_GRAD;
  if (grad) print_space(p, op, " over", 0, s->nout);
  print_space(p, op, " keys", s->nout, s->nout + op->nkey);
  print_space(p, op, " dot", s->nout + op->nkey, s->n);
  for (int i = 0; i < op_reads(op); i++) {
    put(p, " %s ", READ_TEXT[i]);
    irw_expr(p, op, op->read[i], 0);
  }
  puts_(p, " score ");
  irw_expr(p, op, op->body, 0);
  if (op->nwrt == 0) return;
  puts_(p, " wrt(");
  for (int i = 0; i < op->nwrt; i++) {
    if (i) puts_(p, ", ");
    irw_value(p, operand(op, op->wrt[i]));
  }
  puts_(p, ")");
}

static void print_scatter(Printer *p, const Op *op) {
  print_space(p, op, "", op->space.nout, op->space.n);
  puts_(p, " into [");
  if (op->into) irw_indices(p, op, op->into, op->space.nout);
  puts_(p, "]");
}

static void print_computation(Printer *p, const Op *op) {
  if (op->reverse) puts_(p, " reverse");
  switch (op->kind) {
  case OP_NEST:
  case OP_GATHER:
    if (op->reduce == RED_NONE && op->space.n == op->space.nout) break;
    puts_(p, " ");
    print_space(p, op, WORD(REDUCE_TEXT, op->reduce), op->space.nout, op->space.n);
    break;
  case OP_SCATTER_ADD: print_scatter(p, op); break;
  case OP_SCAN:
    puts_(p, "[");
    irw_index_name(p, op, op->along);
    puts_(p, "]");
    break;
  case OP_RANDOM: print_random(p, op); return;
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: print_attention(p, op); return;
  default: print_space(p, op, "", op->space.nout, op->space.n);
  }
  puts_(p, " ");
  irw_expr(p, op, op->body, 0);
}

static void print_effect(Printer *p, const Op *op) {
  puts_(p, " ");
  if (op->kind == OP_UPDATE) {
    irw_value(p, operand(op, 0));
    puts_(p, " = ");
    irw_value(p, operand(op, 1));
    return;
  }
  if (op->kind == OP_WAIT) {
    irw_values(p, op->in, op->nin);
    return;
  }
  puts_(p, WORD(TAP_TEXT, op->tap));
  if (in_table((int)op->tap, COUNT(TAP_NAMED)) && TAP_NAMED[op->tap]) {
    puts_(p, " ");
    irw_quoted(p, op->name ? op->name : "");
  }
  puts_(p, " ");
  irw_values(p, op->in, op->nin);
}

/* ---- repeat ---------------------------------------------------------------------------------------------------- */

/* What an argument's type is unless it is written: the operand's, without dim 0 for a slice. */
static Type argument_type(const Module *m, const Op *op, int i) {
  Type t = m->values.at[op->in[i]].type;
  if (i < op->ncarried + op->ninvariant || t.rank == 0) return t;
  t.rank--;
  for (int d = 0; d < t.rank; d++) t.dim[d] = t.dim[d + 1];
  return t;
}

static const char *type_text(Printer *p, const Type *t) {
  Printer q = {p->m, p->a, {0}};
  irw_type(&q, t);
  return q.s.at;
}

static void print_arguments(Printer *p, const Op *op, const char *word, int from, int n) {
  if (n == 0) return;
  put(p, " %s(", word);
  const Region *b = op->body_region;
  for (int i = from; i < from + n && i < op->nin; i++) {
    if (i > from) puts_(p, ", ");
    ValueId arg = 1 + i < b->args.n ? b->args.at[1 + i] : -1;
    irw_value(p, arg);
    Type t = argument_type(p->m, op, i);
    const char *written = arg < 0 ? "?" : type_text(p, &p->m->values.at[arg].type);
    if (strcmp(type_text(p, &t), written)) put(p, ": %s", written);
    puts_(p, " = ");
    irw_value(p, op->in[i]);
  }
  puts_(p, ")");
}

static void print_repeat_head(Printer *p, const Op *op) {
  const Region *b = op->body_region;
  puts_(p, op->reverse ? " reverse " : " ");
  irw_value(p, b->args.n ? b->args.at[0] : -1);
  puts_(p, " < ");
  irw_extent(p, op->trip_dim, op->trip, &(Split){0});
  print_arguments(p, op, "carry", 0, op->ncarried);
  print_arguments(p, op, "with", op->ncarried, op->ninvariant);
  print_arguments(p, op, "each", op->ncarried + op->ninvariant, op->nstacked);
}

static void print_region(Printer *p, const Region *r, int indent);

static void print_yield(Printer *p, const Op *op, int indent) {
  const Region *b = op->body_region;
  put(p, "%*syield", indent, "");
  int ends[] = {0, op->ncarried, b->yields.n - op->nsaved, b->yields.n};
  static const char *const words[] = {"", "stack", "save"};
  for (int i = 0; i < 3; i++) {
    if (ends[i] >= ends[i + 1]) continue;
    put(p, " %s%s", words[i], i ? "(" : "");
    irw_values(p, b->yields.at + ends[i], ends[i + 1] - ends[i]);
    if (i) puts_(p, ")");
  }
  puts_(p, "\n");
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

int text_result_indices(const Op *op, int result, int *index) {
  bool plain = op_class(op->kind) == CLS_SPACE && op->kind != OP_ATTENTION_GRAD;
  if (!plain) return 0;
  if (op->kind == OP_ATTENTION && result == 1) return op->read[0] && op->read[1] && op->body ? attention_rows(op, index) : 0;
  for (int i = 0; i < op->space.nout; i++) index[i] = i;
  return op->space.nout;
}

static void print_results(Printer *p, const Op *op) {
  for (int r = 0; r < op->nout; r++) {
    if (r) puts_(p, ", ");
    irw_value(p, op->out[r]);
    int index[MAX_INDEX], n = text_result_indices(op, r, index);
    for (int i = 0; i < n; i++) {
      puts_(p, i ? "," : "[");
      irw_index_name(p, op, index[i]);
    }
    puts_(p, n ? "]: " : ": ");
    if (in_table(op->out[r], p->m->values.n)) irw_type(p, &p->m->values.at[op->out[r]].type);
  }
  if (op->nout) puts_(p, " = ");
}

static void print_place(Printer *p, Loc loc, const char *why) {
  if (loc.line <= 0 && !why) return;
  puts_(p, "   ; ");
  if (loc.line > 0) {
    const char *file = in_table(loc.file, p->m->files.n) ? p->m->files.at[loc.file] : "";
    if (*file && all_chars(file, is_file_char))
      puts_(p, file);
    else
      irw_quoted(p, file);
    puts_(p, ":"), irw_int(p, loc.line);
    if (loc.col > 0) puts_(p, ":"), irw_int(p, loc.col);
    if (why) puts_(p, ", ");
  }
  if (!why) return;
  puts_(p, "because "); /* what follows, up to the line's end, is the reason */
  irw_escaped(p, why, false);
}

static void print_suffixes(Printer *p, const Op *op) {
  if (op->tag) put(p, " [grad %s]", op->tag == TAG_INPUT_GRAD ? "input" : "weight");
  if (op->phase) put(p, " [%s]", op->phase == PHASE_BACKWARD ? "backward" : "update");
  if (op->group) put(p, " [group %d]", op->group);
}

static void print_op(Printer *p, const Op *op, int indent, bool with_body) {
  put(p, "%*s", indent, "");
  print_results(p, op);
  puts_(p, op_text(op->kind));
  bool repeat = op->kind == OP_REPEAT && op->body_region;
  switch (op_class(op->kind)) {
  case CLS_LEAF: print_leaf(p, op); break;
  case CLS_SPACE: print_computation(p, op); break;
  case CLS_REGION:
    if (repeat) print_repeat_head(p, op);
    break;
  case CLS_LAYOUT:
    puts_(p, " ");
    irw_values(p, op->in, op->nin);
    break;
  case CLS_EFFECT: print_effect(p, op); break;
  }
  print_suffixes(p, op);
  if (repeat) puts_(p, with_body ? " {" : " { ... }");
  print_place(p, op->loc, op->why);
  if (!repeat || !with_body) return;
  puts_(p, "\n");
  print_region(p, op->body_region, indent + 2);
  print_yield(p, op, indent + 2);
  put(p, "%*s}", indent, "");
}

static void print_region(Printer *p, const Region *r, int indent) {
  for (int i = 0; i < r->ops.n; i++) {
    print_op(p, r->ops.at[i], indent, true);
    puts_(p, "\n");
  }
}

/* ---- the module ------------------------------------------------------------------------------------------------ */

static void print_setting(Printer *p, const char *name, double v, bool first) {
  put(p, "%s%s = ", first ? "" : ", ", name);
  irw_real(p, v, false);
}

static void print_optimizer(Printer *p, const Train *t) {
  bool adam = t->optimizer == OPT_ADAMW;
  put(p, "optimizer = %s(", adam ? "adamw" : "sgd");
  print_setting(p, "lr", t->lr, true);
  if (adam) {
    print_setting(p, "beta1", t->beta1, false);
    print_setting(p, "beta2", t->beta2, false);
    print_setting(p, "eps", t->eps, false);
  } else {
    print_setting(p, "momentum", t->momentum, false);
    put(p, ", nesterov = %s", t->nesterov ? "true" : "false");
  }
  print_setting(p, "weight_decay", t->weight_decay, false);
  puts_(p, ")");
}

static void print_schedule(Printer *p, const Train *t) {
  puts_(p, ", lr = ");
  if (t->schedule == LR_CONSTANT) {
    puts_(p, "constant");
    return;
  }
  puts_(p, t->schedule == LR_COSINE ? "cosine(" : "linear(");
  print_setting(p, "warmup", t->warmup, true);
  print_setting(p, "steps", t->schedule_steps, false);
  print_setting(p, "floor", t->floor, false);
  puts_(p, ")");
}

static void print_train(Printer *p, const Train *t) {
  puts_(p, "train ");
  irw_value(p, t->loss);
  puts_(p, " { ");
  print_optimizer(p, t);
  print_schedule(p, t);
  if (t->has_clip) print_setting(p, "clip", t->clip, false);
  puts_(p, ", decay = ");
  if (t->decay == DECAY_NAMES)
    puts_(p, "(");
  else
    puts_(p, t->decay == DECAY_ALL ? "all" : "matrices");
  for (int i = 0; t->decay == DECAY_NAMES && i < t->decay_names.n; i++) {
    if (i) puts_(p, ", ");
    irw_quoted(p, t->decay_names.at[i]);
  }
  if (t->decay == DECAY_NAMES) puts_(p, ")");
  put(p, ", steps = %lld }", (long long)t->steps);
  print_place(p, t->loc, NULL);
  puts_(p, "\n");
}

static void print_mesh(Printer *p) {
  const Mesh *m = &p->m->mesh;
  puts_(p, "mesh ");
  irw_name(p, m->name);
  puts_(p, "(");
  for (int i = 0; i < m->naxes; i++) {
    if (i) puts_(p, ", ");
    irw_name(p, m->axis[i].name);
    put(p, " = %lld", (long long)m->axis[i].size);
  }
  puts_(p, ")\n");
}

static void print_target(Printer *p) {
  if (p->m->target == TARGET_CUDA) put(p, "target cuda%s%s\n", p->m->tf32 ? " tf32" : "", p->m->fast ? " fast" : "");
}

static void print_buffer(Printer *p, ValueId v) {
  if (p->m->buffers[v].offset < 0) return;
  puts_(p, "  ");
  irw_value(p, v);
  put(p, ": %lld+%lld\n", (long long)p->m->buffers[v].offset, (long long)p->m->buffers[v].bytes);
}

/* In the order of the program, which is the same after reading back; ids need not be. */
static void print_buffers_of(Printer *p, const Region *r) {
  for (int i = 0; i < r->args.n; i++) print_buffer(p, r->args.at[i]);
  for (int i = 0; i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    for (int k = 0; k < op->nout; k++) print_buffer(p, op->out[k]);
    if (op->body_region) print_buffers_of(p, op->body_region);
  }
}

static void print_buffers(Printer *p) {
  puts_(p, "\nbuffers {\n");
  for (int i = 0; i < p->m->programs.n; i++) print_buffers_of(p, p->m->programs.at[i].body);
  put(p, "} arena %lld workspace %lld\n", (long long)p->m->arena_bytes, (long long)p->m->workspace_bytes);
}

static const char *text_of(Printer *p) { return p->s.at ? p->s.at : ""; }

const char *ir_print(const Module *m, Arena *a) {
  Printer p = {m, a, {0}};
  put(&p, "stage %s\n", WORD(STAGE_TEXT, m->stage));
  print_mesh(&p);
  print_target(&p);
  if (m->train.present) print_train(&p, &m->train);
  for (int i = 0; i < m->programs.n; i++) {
    put(&p, "\nprogram stage %d {\n", m->programs.at[i].stage);
    print_region(&p, m->programs.at[i].body, 2);
    puts_(&p, "}\n");
  }
  if (m->stage >= STAGE_SCHEDULED && m->buffers) print_buffers(&p);
  return text_of(&p);
}

const char *ir_print_op(const Module *m, const Op *op, Arena *a) {
  Printer p = {m, a, {0}};
  print_op(&p, op, 0, false);
  return text_of(&p);
}

const char *ir_print_type(const Module *m, const Type *t, Arena *a) {
  Printer p = {m, a, {0}};
  irw_type(&p, t);
  return text_of(&p);
}

const char *ir_print_split(const Module *m, const Split *s, Arena *a) {
  Printer p = {m, a, {0}};
  irw_split(&p, s);
  return text_of(&p);
}

const char *text_index(const Module *m, const Op *op, const IExpr *x, Arena *a) {
  Printer p = {m, a, {0}};
  irw_index(&p, op, x);
  return text_of(&p);
}

const char *text_parts(const Module *m, const AxisPart *part, int n, Arena *a) {
  Printer p = {m, a, {0}};
  irw_parts(&p, part, n);
  return text_of(&p);
}
