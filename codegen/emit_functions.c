/* emit_functions.c: forward, backward and update: pointers into the arena, then a call per step with its line of the
   .dt file beside it; a repeat is a loop.

     static void forward(dtrt_Context *cx) {
       float *x = AT(65536);
       ...
       for (int64_t l = 0; l < 4; l++) {
         float *wq = AT(8192 + l * 65536);
         layer_n_21(cx, x, g1, n);                                                // charlm.dt:21
         dtrt_gemm(cx, false, false, 1024, 128, 128, 1.0f, n, 128, wq, 128, 0.0f, q, 128); // charlm.dt:22

   In CUDA these are functions of the host too, and a step is STEP("charlm.dt:22", dtrt_gemm(...)).                */
#include "emit_parts.h"

typedef struct Block Block;
struct Block {
  Emit *e;
  Names *names; /* of the function */
  Str head, body;
  const Region *region;
};

#define LINE(...) str_printf(b->e->a, &b->body, __VA_ARGS__)

/* A variable is declared in the block of its value's region, so all that may use it sees it. */
static void remember(Block *b, ValueId v, const char *name) {
  assert(b->e->m->values.at[v].region == b->region && "a block declares what its own region has");
  b->e->pointer[v] = name;
}

/* Where a value of type t lies; `typed`: as a pointer of its type. */
static const char *address(Block *b, const Place *p, const Type *t, bool typed) {
  Emit *e = b->e;
  Str s = {0};
  str_printf(e->a, &s, "%lld", (long long)p->offset);
  for (int i = 0; i < p->n; i++) str_printf(e->a, &s, " + %s * %lld", e->pointer[p->counter[i]], (long long)p->stride[i]);
  return e->d->address(e, typed ? emit_ctype(t->dtype) : NULL, s.at, cg_bytes(t));
}

/* The variable that points to v (a repeat's counter: the counter itself). */
static const char *pointer(Block *b, ValueId v) {
  Emit *e = b->e;
  const char *name = e->pointer[v];
  if (name) return name;
  const Place *p = &e->place[v];
  if (p->kind == PLACE_SETTING) return arena_printf(e->a, "&cx->setting[%d]", p->setting);
  if (p->kind != PLACE_ARENA) internal_error("%%%s is used and has no place", e->m->values.at[v].name);
  name = emit_name(e, b->names, e->m->values.at[v].name);
  const Type *t = &e->m->values.at[v].type;
  str_printf(e->a, &b->head, "%s *%s = %s;\n", emit_ctype(t->dtype), name, address(b, p, t, true));
  remember(b, v, name);
  return name;
}

static void comment(Block *b, const Op *op) {
  const char *where = emit_where(b->e, op);
  LINE("%s%s\n", *where ? " // " : "", where);
}

/* A step: one call, with the line of the .dt file that it comes from. */
static void say(Block *b, const Op *op, const char *call) { LINE("%s", b->e->d->step(b->e, op, call)); }

static void call(Block *b, const Kernel *k, const Op *op) {
  Arena *a = b->e->a;
  Str s = {0};
  if (k->piece[0]) {
    const ValueId v[] = {k->param.at[0].value, k->param.at[k->param.n > 2].value, k->param.at[k->param.n - 1].value};
    for (int i = 0; i < 3; i++) str_printf(a, &s, "%s%s", k->piece[i], pointer(b, v[i]));
    str_put(a, &s, k->piece[3]);
  } else {
    str_printf(a, &s, "%s(%s", k->name, k->needs_context ? "cx" : "");
    for (int i = 0; i < k->param.n; i++)
      str_printf(a, &s, "%s%s", i || k->needs_context ? ", " : "", pointer(b, k->param.at[i].value));
    str_put(a, &s, ")");
  }
  say(b, op, s.at);
}

static Kernel *kernel_of(Emit *e, const Step *s) {
  const Op *op = s->op[0];
  switch (op->kind) {
  case OP_NEST:
  case OP_GATHER: return cg_can_group(e->m, op) ? emit_rows(e, s) : emit_product(e, op);
  case OP_SCATTER_ADD: return emit_scatter(e, op);
  case OP_ARGMAX: return emit_argmax(e, op);
  case OP_TOPK: return emit_topk(e, op);
  case OP_SCAN: return emit_scan(e, op);
  case OP_RANDOM: return emit_random(e, op);
  case OP_SLICE: return emit_slice(e, op);
  case OP_ATTENTION: return emit_attention(e, op);
  case OP_ATTENTION_GRAD: return emit_attention_grad(e, op);
  default: internal_error("no C for %s", op_text(op->kind));
  }
}

/* ---- steps that are not kernels ---------------------------------------------------------------------------------- */

/* The number of a collective of the program, by the op that starts it. */
static const char *number_of(const Emit *e, const Op *op) {
  for (int i = 0; i < e->collectives.n; i++)
    if (e->collectives.at[i] == op) return e->collective_names.at[i];
  internal_error("a collective is waited for that was never started");
}

/* Starts a collective; `whole`: and waits for it at once. */
static void collective(Block *b, const Op *op, bool whole) {
  Emit *e = b->e;
  Str src = {0}, dst = {0};
  for (int i = 0; i < op->nin; i++) {
    str_printf(e->a, &src, "%s%s", i ? ", " : "", pointer(b, op->in[i]));
    str_printf(e->a, &dst, "%s%s", i ? ", " : "", pointer(b, op->out[i]));
  }
  const char *name = emit_name(e, &e->global, arena_printf(e->a, "%s_%s", op_text(op->kind), e->m->values.at[op->in[0]].name));
  say(b, op,
      arena_printf(e->a, "dtrt_%s(cx, %s, %s, %s)", whole ? "collective" : "start", name, e->d->pointers(e, src.at, false),
                   e->d->pointers(e, dst.at, true)));
  vec_push(e->a, e->collectives, op);
  vec_push(e->a, e->collective_names, name);
}

static void tap(Block *b, const Op *op) {
  const char *p = pointer(b, op->in[0]);
  bool counter = b->e->place[op->in[0]].kind == PLACE_COUNTER;
  const char *name = emit_name(b->e, &b->e->global, arena_printf(b->e->a, "show_%s", b->e->m->values.at[op->in[0]].name));
  say(b, op, arena_printf(b->e->a, "dtrt_tap(cx, %s, %s%s)", name, counter ? "&" : "", p));
  vec_push(b->e->a, b->e->taps, op);
  vec_push(b->e->a, b->e->tap_names, name);
}

static void copy(Block *b, const char *to, const char *from, const Type *t) {
  LINE("%s", b->e->d->copy(b->e, to, from, cg_bytes(t)));
}

/* A copy of a value of this block, which may be a counter. */
static void copy_value(Block *b, const char *to, ValueId v) {
  if (b->e->place[v].kind == PLACE_COUNTER)
    LINE("%s", b->e->d->put(b->e, to, pointer(b, v)));
  else
    copy(b, to, pointer(b, v), &b->e->m->values.at[v].type);
}

/* ---- checking: which tensor was the first that is not finite -------------------------------------------------------- */

static void check_result(Block *b, const Op *op, int i) {
  Emit *e = b->e;
  ValueId v = op->out[i];
  const Type *t = &e->m->values.at[v].type;
  if (e->place[v].kind != PLACE_ARENA || !emit_watched(e, op, i)) return;
  bool even = true;
  for (int d = 0; d < t->rank; d++) even &= split_even(&t->dim[d].split, t->dim[d].size);
  Str name = {0};
  emit_string(e, &name, e->m->values.at[v].name);
  if (even) {
    LINE("check(cx, %s, %lld, %s, %d);\n", pointer(b, v), (long long)type_capacity(t), name.at, op->loc.line);
  } else {
    const char *layout = emit_layout_table(e, t, arena_printf(e->a, "layout_%s", e->m->values.at[v].name));
    LINE("if (cx->checking) dtrt_check_part(cx, %s, &%s, %s, %d);\n", pointer(b, v), layout, name.at, op->loc.line);
  }
}

static void check_step(Block *b, const Step *s) {
  if (s->op[0]->phase != PHASE_FORWARD) return;
  for (int k = 0; k < s->n; k++)
    for (int i = 0; i < s->op[k]->nout; i++) check_result(b, s->op[k], i);
}

/* ---- repeat ----------------------------------------------------------------------------------------------------------- */

static void steps_of(Block *b, const Steps *steps, int from, int to);

/* Where a stacked result's slice of this iteration lies. */
static const char *slice(Block *b, const Op *op, int out, ValueId y) {
  Place p = b->e->place[op->out[out]];
  p.counter[p.n] = op->body_region->args.at[0];
  p.stride[p.n++] = cg_bytes(&b->e->m->values.at[y].type);
  return address(b, &p, &b->e->m->values.at[y].type, false);
}

static void copies_at_start(Block *b, const Op *op) {
  for (int i = op->ncarried; i < op->nout; i++) {
    ValueId y = op->body_region->yields.at[i];
    if (!b->e->m->values.at[y].def) copy_value(b, slice(b, op, i, y), y);
  }
}

static void copies_at_end(Block *b, const Op *op) {
  Emit *e = b->e;
  const Region *body = op->body_region;
  for (int i = op->ncarried; i < op->nout; i++) {
    ValueId y = body->yields.at[i];
    if (!e->m->values.at[y].def) continue;
    Place p = e->place[op->out[i]];
    p.counter[p.n] = body->args.at[0];
    p.stride[p.n++] = cg_bytes(&e->m->values.at[y].type);
    if (!cg_same_place(&p, &e->place[y])) copy(b, slice(b, op, i, y), pointer(b, y), &e->m->values.at[y].type);
  }
  // carried values that are other arguments move at once: first aside, then into place
  int64_t aside = 0;
  for (int pass = 0; pass < 2; pass++, aside = 0)
    for (int i = 0; i < op->ncarried; i++) {
      ValueId y = body->yields.at[i], now = body->args.at[1 + i];
      const Type *t = &e->m->values.at[y].type;
      if (cg_same_place(&e->place[y], &e->place[now])) continue;
      const char *side = NULL;
      if (!e->m->values.at[y].def) {
        side = arena_printf(e->a, "cx->workspace + %lld", (long long)aside);
        aside += (cg_bytes(t) + 63) / 64 * 64;
        if (pass == 0) copy_value(b, side, y);
      }
      if (pass == 1 && side) copy(b, pointer(b, now), side, t);
      if (pass == 1 && !side) copy_value(b, pointer(b, now), y);
    }
}

static void repeat(Block *b, const Op *op) {
  Emit *e = b->e;
  const Region *body = op->body_region;
  for (int i = 0; i < op->ncarried; i++)
    if (!cg_same_place(&e->place[op->in[i]], &e->place[op->out[i]])) copy_value(b, pointer(b, op->out[i]), op->in[i]);
  ValueId counter = body->args.at[0];
  const char *l = emit_name(e, b->names, e->m->values.at[counter].name);
  Block inner = {.e = e, .names = b->names, .region = body};
  remember(&inner, counter, l);
  for (int i = op->ncarried; i < op->ncarried + op->ninvariant; i++)
    if (e->place[op->in[i]].kind == PLACE_COUNTER) remember(&inner, body->args.at[1 + i], pointer(b, op->in[i]));
  copies_at_start(&inner, op);
  Steps steps = cg_steps(body, e->a);
  steps_of(&inner, &steps, 0, steps.n);
  copies_at_end(&inner, op);
  if (op->reverse)
    LINE("for (int64_t %s = %lld; %s >= 0; %s--) {", l, (long long)op->trip - 1, l, l);
  else
    LINE("for (int64_t %s = 0; %s < %lld; %s++) {", l, l, (long long)op->trip, l);
  comment(b, op);
  LINE("%s%s}\n", inner.head.at ? inner.head.at : "", inner.body.at ? inner.body.at : "");
}

static void wait(Block *b, const Op *op) {
  const Op *started = b->e->m->values.at[op->in[0]].def;
  say(b, started, arena_printf(b->e->a, "dtrt_wait(cx, %s)", number_of(b->e, started)));
  check_step(b, &(Step){(Op *[]){(Op *)started}, 1});
}

static bool waits_for(const Emit *e, const Step *s, const Op *op) {
  return s->op[0]->kind == OP_WAIT && e->m->values.at[s->op[0]->in[0]].def == op;
}

/* A product with what it does besides. */
static void say_product(Block *b, const Op *op, const Epilogue *x) {
  static const char *const kinds[] = {"DTCU_BIAS", "DTCU_GELU", "DTCU_GELU_BIAS", "DTCU_DGELU", "DTCU_SUM_A", "DTCU_SUM_B"},
                           PLAIN[] = "dtrt_gemm(cx, ";
  Emit *e = b->e;
  const Kernel *k = emit_product(e, op);
  assert(k->piece[0] && !strncmp(k->piece[0], PLAIN, strlen(PLAIN)) && "a product of even runs and no outer loops is one call");
  const char *bias = x->bias >= 0 ? pointer(b, x->bias) : "nullptr", *aux = x->aux >= 0 ? pointer(b, x->aux) : "nullptr";
  const char *left = pointer(b, k->param.at[0].value), *right = pointer(b, k->param.at[k->param.n > 2].value);
  say(b, op,
      arena_printf(e->a, "dtcu_gemm(cx, %s, %s, %s, %s%s%s%s%s%s%s", kinds[x->kind], bias, aux, k->piece[0] + strlen(PLAIN), left,
                   k->piece[1], right, k->piece[2], pointer(b, x->c), k->piece[3]));
}

/* A product that sums up one of its operands. */
static void product_with_sum(Block *b, const Step *s) {
  Epilogue x = {.c = s->op[0]->out[0], .aux = -1, .bias = s->op[1]->out[0], .also = -1};
  if (s->n != 2 || !cg_sums_operand(b->e->m, b->e->a, s->op[0], s->op[1], &x.kind))
    internal_error("a product is grouped with what is no sum of its operand");
  say_product(b, s->op[0], &x);
}

static void step(Block *b, const Step *s) {
  const Op *op = s->op[0];
  if (op_class(op->kind) == CLS_LEAF || op->kind == OP_UPDATE) return;
  if (op->kind == OP_REPEAT) {
    repeat(b, op);
    return;
  }
  if (op->kind == OP_TAP) {
    tap(b, op);
    return;
  }
  if (op->kind == OP_WAIT) {
    wait(b, op);
    return;
  }
  if (s->n > 1 && !cg_can_group(b->e->m, op))
    product_with_sum(b, s);
  else
    call(b, kernel_of(b->e, s), s->op[s->n - 1]);
  check_step(b, s);
}

/* `wte_next_14(cx, {{{d_wte, wte, 4096}, {d_wpe, wpe, 512}}}, beta1)`: a table of what differs, then what is shared. */
static void call_parts(Block *b, const PartsCall *c) {
  Arena *a = b->e->a;
  Str table = {0}, shared = {0};
  if (c->kernel) {
    call(b, c->kernel, c->op);
    return;
  }
  for (int p = 0; p < c->nparts; p++) {
    str_printf(a, &table, "%s{", p ? ", " : "");
    for (int i = 0; i < c->nfield; i++)
      if (!c->common[i]) str_printf(a, &table, "%s, ", pointer(b, c->value[p * c->nfield + i]));
    str_printf(a, &table, "%lld}", (long long)c->n[p]);
  }
  for (int i = 0; i < c->nfield; i++)
    if (c->common[i]) str_printf(a, &shared, ", %s", pointer(b, c->value[i]));
  say(b, c->op, arena_printf(a, "%s(cx, {{%s}}%s)", c->name, table.at, shared.at ? shared.at : ""));
}

/* CUDA: steps of the update that are one launch; returns how many. */
static int parts_of(Block *b, const Steps *steps, int from, int to) {
  PartsCalls calls = {0};
  int n = b->e->m->target == TARGET_CUDA ? emit_parts(b->e, steps, from, to, &calls) : 0;
  for (int i = 0; i < calls.n; i++) call_parts(b, &calls.at[i]);
  return n;
}

/* A product that does part of the group behind it: one call, then what is left of the group. */
static bool product_with_epilogue(Block *b, const Step *s, const Step *group) {
  Emit *e = b->e;
  Epilogue x;
  if (s->n != 1 || !cg_epilogue(e->m, e->a, e->users, e->place, s->op[0], group, &x)) return false;
  say_product(b, s->op[0], &x);
  if (x.keeps) check_step(b, s);
  if (x.also >= 0 && x.aux == x.also) check_step(b, &(Step){&e->m->values.at[x.also].def, 1});
  check_step(b, &(Step){&e->m->values.at[x.c].def, 1});
  if (x.rest.n) step(b, &x.rest);
  return true;
}

static void steps_of(Block *b, const Steps *steps, int from, int to) {
  for (int i = from; i < to; i++) {
    int parts = parts_of(b, steps, i, to);
    if (parts > 0) {
      i += parts - 1;
      continue;
    }
    const Step *s = &steps->at[i];
    bool starts = op_is_collective(s->op[0]->kind), whole = starts && i + 1 < to && waits_for(b->e, s + 1, s->op[0]);
    if (!starts && i + 1 < to && product_with_epilogue(b, s, s + 1)) {
      i++;
      continue;
    }
    if (starts)
      collective(b, s->op[0], whole);
    else
      step(b, s);
    if (!whole) continue;
    check_step(b, s);
    i++;
  }
}

/* ---- the three functions --------------------------------------------------------------------------------------------- */

/* Next values that could not be written over their leaf go there now. */
static void updates(Block *b) {
  Emit *e = b->e;
  for (int i = 0; i < b->region->ops.n; i++) {
    const Op *op = b->region->ops.at[i];
    if (op->kind != OP_UPDATE || cg_same_place(&e->place[op->in[0]], &e->place[op->in[1]])) continue;
    copy_value(b, pointer(b, op->in[0]), op->in[1]);
  }
}

void emit_functions(Emit *e, Str *out, bool has[3]) {
  static const char *const names[] = {"forward", "backward", "update"};
  const Region *r = e->m->programs.at[0].body;
  Steps steps = cg_steps(r, e->a);
  e->pointer = NEW_ARRAY(e->a, const char *, e->m->values.n + 1);
  for (int phase = 0, at = 0; phase < 3; phase++) {
    Names taken = {0};
    Block b = {.e = e, .names = &taken, .region = r};
    e->function = &taken;
    memset(e->pointer, 0, (size_t)e->m->values.n * sizeof *e->pointer);
    int end = at;
    while (end < steps.n &&
           (phase == 2 || op_class(steps.at[end].op[0]->kind) == CLS_LEAF || (int)steps.at[end].op[0]->phase <= phase))
      end++;
    steps_of(&b, &steps, at, end);
    at = end;
    if (phase == 2) updates(&b);
    has[phase] = b.body.n > 0;
    if (has[phase])
      str_printf(e->a, out, "\nstatic void %s(dtrt_Context *cx) {\n%s%s}\n", names[phase], b.head.at ? b.head.at : "", b.body.at);
  }
}
