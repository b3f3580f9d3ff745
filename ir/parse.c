/* parse.c: the text of a module (ir/README.md) -> Module. Stops at the first fault: E0901 wrong syntax, E0902 an
   unknown name, E0903 too large, too many or too deep, E0904 defined twice, E0905 numbers that contradict each
   other. What it builds still has to pass ir_verify. */
#include "parser.h"

enum { MAX_REGIONS = 32 };

static void parse_region(Parser *p, Region *r, int depth);

/* ---- repeat -------------------------------------------------------------------------------------------------- */

typedef VEC(ValueId) Ids;

static ValueId new_argument(Parser *p, Region *b, const char *name, Loc loc, Type t) {
  if (p->failed) return -1;
  if (ir_find_value(p->m, name) >= 0) return irp_fail(p, "E0904", loc, "%%%s is defined twice", name), -1;
  return ir_arg(p->m, b, name, t);
}

/* `%x1: TYPE = %x`; without a type the operand's, for `each` without its dim 0. */
static void parse_argument(Parser *p, Region *b, Ids *in, bool slice) {
  Loc loc = p->tok.loc;
  const char *name = irp_value_name(p);
  bool written = irp_take(p, ":");
  Type t = {0};
  if (written) t = irp_type(p);
  irp_need(p, "=");
  ValueId v = irp_value(p);
  if (p->failed) return;
  const Type *from = &p->m->values.at[v].type;
  if (slice && from->rank == 0) return irp_fail(p, "E0905", loc, "a scalar has no slices");
  if (!written) t = *from;
  if (!written && slice) {
    t.rank--;
    for (int d = 0; d < t.rank; d++) t.dim[d] = t.dim[d + 1];
  }
  vec_push(p->a, *in, v);
  new_argument(p, b, name, loc, t);
}

static int parse_arguments_of(Parser *p, Region *b, Ids *in, const char *word) {
  int before = in->n;
  if (!irp_take_word(p, word)) return 0;
  irp_need(p, "(");
  if (irp_take(p, ")")) return 0;
  do {
    if (in->n == MAX_TEXT_OPERANDS) return irp_fail(p, "E0903", p->tok.loc, "too many operands"), 0;
    parse_argument(p, b, in, !strcmp(word, "each"));
  } while (irp_take(p, ","));
  irp_need(p, ")");
  return in->n - before;
}

static int parse_yields(Parser *p, Region *b, const char *word) {
  int before = b->yields.n;
  if (word && !irp_take_word(p, word)) return 0;
  if (word) irp_need(p, "(");
  if (p->tok.kind == TOK_VALUE) {
    do {
      if (b->yields.n == MAX_TEXT_OPERANDS) return irp_fail(p, "E0903", p->tok.loc, "too many yields"), 0;
      vec_push(p->a, b->yields, irp_value(p));
    } while (irp_take(p, ","));
  }
  if (word) irp_need(p, ")");
  return b->yields.n - before;
}

static void parse_repeat(Parser *p, Op *op, const Results *results, int depth) {
  if (depth == MAX_REGIONS) return irp_fail(p, "E0903", p->tok.loc, "more than %d repeats in one another", MAX_REGIONS);
  Loc head = p->tok.loc;
  Region *b = op->body_region = ir_region(p->m, op);
  op->reverse = irp_take_word(p, "reverse");
  Loc loc = p->tok.loc;
  const char *counter = irp_value_name(p);
  new_argument(p, b, counter, loc, (Type){.dtype = I64});
  irp_need(p, "<");
  op->trip_dim = irp_extent(p, &op->trip, NULL);
  Ids in = {0};
  op->ncarried = parse_arguments_of(p, b, &in, "carry");
  op->ninvariant = parse_arguments_of(p, b, &in, "with");
  op->nstacked = parse_arguments_of(p, b, &in, "each");
  op->in = in.at;
  op->nin = in.n;
  irp_suffixes(p, op);
  irp_need(p, "{");
  irp_place(p, &op->loc, &op->why);
  for (int i = 0; i < b->args.n; i++) p->m->values.at[b->args.at[i]].loc = op->loc; /* as ir_arg gives it */
  parse_region(p, b, depth + 1);
  irp_need_word(p, "yield");
  int carried = parse_yields(p, b, NULL), stacked = parse_yields(p, b, "stack");
  op->nsaved = parse_yields(p, b, "save");
  irp_need(p, "}");
  if (carried != op->ncarried)
    irp_fail(p, "E0905", head, "%d values are carried, %d are yielded", op->ncarried, carried);
  else if (results->n != carried + stacked + op->nsaved)
    irp_fail(p, "E0905", head, "the repeat has %d results, its body yields %d", results->n, carried + stacked + op->nsaved);
}

/* ---- statements ------------------------------------------------------------------------------------------------ */

static int find_op(const char *word) {
  for (int k = 0; k < OP_NKINDS; k++)
    if (!strcmp(op_text((OpKind)k), word)) return k;
  return -1;
}

/* Further results have indices, too: those of the space that the kind says. */
static void check_indices(Parser *p, const Op *op, const Results *results) {
  for (int r = 1; r < results->n && !p->failed; r++) {
    const Result *x = &results->at[r];
    int index[MAX_INDEX], n = text_result_indices(op, r, index);
    bool same = n == x->n;
    for (int i = 0; same && i < n; i++) same = !strcmp(x->index[i], op->space.idx[index[i]].name);
    if (!same)
      irp_fail(p, "E0905", x->loc, "%%%s must have %d indices, those that %s gives it, in the order of the first result", x->name,
               n, op_text(op->kind));
  }
}

static void define_results(Parser *p, Op *op, const Results *results) {
  ValueId *out = NEW_ARRAY(p->a, ValueId, results->n);
  for (int i = 0; i < results->n; i++) {
    const Result *r = &results->at[i];
    if (ir_find_value(p->m, r->name) >= 0) return irp_fail(p, "E0904", r->loc, "%%%s is defined twice", r->name);
    out[i] = ir_value(p->m, r->name, r->type, op->loc);
  }
  op->out = out;
  op->nout = results->n;
}

/* `room` is where the results are kept meanwhile; all statements of a region share it, a result is large. */
static void parse_statement(Parser *p, Region *r, Results *room, int depth) {
  room->n = 0;
  if (p->tok.kind == TOK_VALUE) irp_results(p, room);
  Loc loc = p->tok.loc;
  const char *word = irp_name(p, "an op");
  int kind = p->failed ? -1 : find_op(word);
  if (kind < 0) return irp_fail(p, "E0902", loc, "no op is called %s", word);
  if ((op_class((OpKind)kind) == CLS_EFFECT) != (room->n == 0))
    return irp_fail(p, "E0901", loc, "%s has %s", word, room->n ? "no results" : "results");
  Op *op = ir_op(p->m, (OpKind)kind, (Loc){0});
  if (op->kind == OP_REPEAT)
    parse_repeat(p, op, room, depth);
  else {
    irp_op(p, op, room);
    check_indices(p, op, room);
    irp_suffixes(p, op);
    irp_place(p, &op->loc, &op->why);
  }
  if (p->failed) return;
  define_results(p, op, room);
  ir_append(p->m, r, op);
}

static void parse_region(Parser *p, Region *r, int depth) {
  Results room = {0};
  while (!p->failed && !irp_at(p, "}") && !irp_at_word(p, "yield")) parse_statement(p, r, &room, depth);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static void parse_mesh(Parser *p) {
  Mesh *m = &p->m->mesh;
  irp_need_word(p, "mesh");
  m->name = irp_name(p, "the mesh's name");
  irp_need(p, "(");
  int64_t devices = 1;
  while (!p->failed && !irp_at(p, ")")) {
    Loc loc = p->tok.loc;
    if (m->naxes == MAX_AXES) return irp_fail(p, "E0903", loc, "more than %d axes", MAX_AXES);
    const char *name = irp_name(p, "an axis");
    if (mesh_axis(m, name) >= 0) return irp_fail(p, "E0904", loc, "axis %s is declared twice", name);
    irp_need(p, "=");
    Axis axis = {name, irp_int(p, 1, MAX_DEVICES, "an axis' size")};
    devices *= axis.size;
    if (devices > MAX_DEVICES) return irp_fail(p, "E0903", loc, "the mesh has more than %d devices", MAX_DEVICES);
    m->axis[m->naxes++] = axis;
    if (!irp_take(p, ",")) break;
  }
  irp_need(p, ")");
}

static double named_real(Parser *p, const char *name, bool first) {
  if (!first) irp_need(p, ",");
  irp_need_word(p, name);
  irp_need(p, "=");
  return irp_real(p, "a number");
}

static void parse_optimizer(Parser *p, Train *t) {
  static const char *const kinds[] = {"sgd", "adamw"}, *const truths[] = {"false", "true"};
  irp_need_word(p, "optimizer");
  irp_need(p, "=");
  t->optimizer = (OptimizerKind)irp_one_of(p, kinds, COUNT(kinds), "sgd or adamw");
  irp_need(p, "(");
  t->lr = named_real(p, "lr", true);
  if (t->optimizer == OPT_ADAMW) {
    t->beta1 = named_real(p, "beta1", false);
    t->beta2 = named_real(p, "beta2", false);
    t->eps = named_real(p, "eps", false);
  } else {
    t->momentum = named_real(p, "momentum", false);
    irp_need(p, ",");
    irp_need_word(p, "nesterov");
    irp_need(p, "=");
    t->nesterov = irp_one_of(p, truths, COUNT(truths), "true or false");
  }
  t->weight_decay = named_real(p, "weight_decay", false);
  irp_need(p, ")");
}

static void parse_schedule(Parser *p, Train *t) {
  static const char *const kinds[] = {"constant", "cosine", "linear"};
  irp_need_word(p, "lr");
  irp_need(p, "=");
  t->schedule = (LrKind)irp_one_of(p, kinds, COUNT(kinds), "constant, cosine or linear");
  if (t->schedule == LR_CONSTANT) return;
  irp_need(p, "(");
  t->warmup = named_real(p, "warmup", true);
  t->schedule_steps = named_real(p, "steps", false);
  t->floor = named_real(p, "floor", false);
  irp_need(p, ")");
}

static void parse_decay(Parser *p, Train *t) {
  static const char *const kinds[] = {"all", "matrices"};
  irp_need_word(p, "decay");
  irp_need(p, "=");
  if (!irp_take(p, "(")) {
    t->decay = (DecayKind)irp_one_of(p, kinds, COUNT(kinds), "all, matrices or a list of names");
    return;
  }
  t->decay = DECAY_NAMES;
  while (!p->failed && !irp_at(p, ")")) {
    vec_push(p->a, t->decay_names, irp_string(p, "a parameter's name"));
    if (!irp_take(p, ",")) break;
  }
  irp_need(p, ")");
}

/* The loss is defined by the program that follows: its name and place are kept until then. */
static void parse_train(Parser *p, Tok *loss) {
  Train *t = &p->m->train;
  t->present = true;
  *loss = p->tok;
  irp_value_name(p);
  irp_need(p, "{");
  parse_optimizer(p, t);
  irp_need(p, ",");
  parse_schedule(p, t);
  irp_need(p, ",");
  if (irp_at_word(p, "clip")) {
    t->has_clip = true;
    t->clip = named_real(p, "clip", true);
    irp_need(p, ",");
  }
  parse_decay(p, t);
  irp_need(p, ",");
  irp_need_word(p, "steps");
  irp_need(p, "=");
  t->steps = irp_int(p, 0, MAX_SIZE, "steps");
  irp_need(p, "}");
  irp_place(p, &t->loc, NULL);
}

static void parse_program(Parser *p) {
  irp_need_word(p, "program");
  irp_need_word(p, "stage");
  Program g = {(int)irp_int(p, 0, INT32_MAX, "a stage"), ir_region(p->m, NULL)};
  irp_need(p, "{");
  parse_region(p, g.body, 0);
  irp_need(p, "}");
  vec_push(p->a, p->m->programs, g);
}

static void parse_buffers(Parser *p) {
  Module *m = p->m;
  m->buffers = NEW_ARRAY(p->a, Buffer, m->values.n);
  for (int i = 0; i < m->values.n; i++) m->buffers[i].offset = -1;
  irp_need(p, "{");
  while (!p->failed && !irp_at(p, "}")) {
    ValueId v = irp_value(p);
    irp_need(p, ":");
    Buffer b = {.offset = irp_int(p, 0, MAX_SIZE, "an offset")};
    irp_need(p, "+");
    b.bytes = irp_int(p, 0, MAX_SIZE, "a size");
    if (!p->failed) m->buffers[v] = b;
  }
  irp_need(p, "}");
  irp_need_word(p, "arena");
  m->arena_bytes = irp_int(p, 0, MAX_SIZE, "the arena's size");
  irp_need_word(p, "workspace");
  m->workspace_bytes = irp_int(p, 0, MAX_SIZE, "the workspace's size");
}

static void parse_target(Parser *p) {
  if (!irp_take_word(p, "target")) return;
  irp_need_word(p, "cuda");
  p->m->target = TARGET_CUDA;
  p->m->tf32 = irp_take_word(p, "tf32");
  p->m->fast = irp_take_word(p, "fast");
}

static void parse_module(Parser *p) {
  Tok loss = {0};
  irp_need_word(p, "stage");
  p->m->stage = (Stage)irp_one_of(p, STAGE_TEXT, COUNT(STAGE_TEXT), "annotated, sharded, collected, local or scheduled");
  parse_mesh(p);
  parse_target(p);
  if (irp_take_word(p, "train")) parse_train(p, &loss);
  p->m->programs.n = 0; /* ir_module begins with an empty one */
  do parse_program(p);
  while (!p->failed && irp_at_word(p, "program"));
  if (p->m->stage == STAGE_SCHEDULED && irp_take_word(p, "buffers")) parse_buffers(p);
  if (p->tok.kind != TOK_END) irp_expected(p, "the end of the text");
  if (!p->m->train.present || p->failed) return;
  p->m->train.loss = ir_find_value(p->m, loss.text);
  if (p->m->train.loss < 0) irp_fail(p, "E0902", loss.loc, "no value is called %%%s", loss.text);
}

Module *ir_parse(Arena *a, Diags *d, int file) {
  SourceFile f = d->files.at[file];
  Parser p = {
      .a = a, .d = d, .m = ir_module(a), .file = file, .at = f.text, .end = f.text + f.len, .line_start = f.text, .line = 1};
  for (int i = 0; i < d->files.n; i++) vec_push(a, p.m->files, d->files.at[i].name);
  irp_next(&p);
  parse_module(&p);
  if (p.failed) return NULL;
  ir_number(p.m);
  return p.m;
}
