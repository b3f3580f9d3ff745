/* ir.c: building and editing modules.

     Module *m = ir_module(a);                         a module with one program, stage annotated
     Op *op = ir_op(m, OP_NEST, loc);                  an op; then its operands, results, space and body:
     ir_in(m, op, x);  ValueId y = ir_out(m, op, "y", type);
     ir_append(m, m->programs.at[0].body, op);                                                              */
#include "ir/ir.h"

#include <stdlib.h>

/* uthash takes its memory from the arena that is in scope as `arena`, and never gives it back. */
#define uthash_malloc(size) arena_alloc(arena, (size))
#define uthash_free(p, size) ((void)(p), (void)(size))
#include <uthash.h>

typedef struct {
  const char *name;
  ValueId value;
  int next; /* the first suffix that was not tried yet */
  UT_hash_handle hh;
} Name;

struct NameTable {
  Name *all;
  int seen; /* values [0, seen) are in it */
};

static Name *find_name(const struct NameTable *t, const char *name) {
  Name *n = NULL;
  HASH_FIND_STR(t->all, name, n);
  return n;
}

static Name *take_name(Arena *arena, struct NameTable *t, const char *name, ValueId v) {
  Name *n = NEW(arena, Name);
  n->name = name;
  n->value = v;
  n->next = 1;
  HASH_ADD_KEYPTR(hh, t->all, n->name, strlen(n->name), n);
  return n;
}

/* Passes may push values on their own; the table catches up whenever a name is wanted. */
static struct NameTable *name_table(Module *m) {
  if (!m->names) m->names = NEW(m->arena, struct NameTable);
  for (; m->names->seen < m->values.n; m->names->seen++) {
    const char *name = m->values.at[m->names->seen].name;
    if (!find_name(m->names, name)) take_name(m->arena, m->names, name, m->names->seen);
  }
  return m->names;
}

static const char *unique_name(Module *m, const char *name, ValueId v) {
  struct NameTable *t = name_table(m);
  if (!name || !*name) name = "v";
  Name *taken = find_name(t, name);
  if (!taken) return take_name(m->arena, t, arena_strdup(m->arena, name), v)->name;
  for (;;) {
    char *longer = arena_printf(m->arena, "%s.%d", name, taken->next++);
    if (!find_name(t, longer)) return take_name(m->arena, t, longer, v)->name;
  }
}

Module *ir_module(Arena *a) {
  Module *m = NEW(a, Module);
  m->arena = a;
  m->train.loss = -1;
  vec_push(a, m->programs, ((Program){0, ir_region(m, NULL)}));
  return m;
}

Region *ir_region(Module *m, Op *parent) {
  Region *r = NEW(m->arena, Region);
  r->parent = parent;
  return r;
}

ValueId ir_value(Module *m, const char *name, Type t, Loc loc) {
  const char *unique = unique_name(m, name, m->values.n);
  vec_push(m->arena, m->values, ((Value){.name = unique, .type = t, .result = -1, .loc = loc}));
  m->names->seen = m->values.n;
  return m->values.n - 1;
}

void ir_rename(Module *m, ValueId v, const char *name) {
  if (strcmp(m->values.at[v].name, name)) m->values.at[v].name = unique_name(m, name, v);
}

ValueId ir_find_value(Module *m, const char *name) {
  Name *n = find_name(name_table(m), name);
  return n && !strcmp(m->values.at[n->value].name, name) ? n->value : -1; /* it may have been renamed */
}

Op *ir_op(Module *m, OpKind kind, Loc loc) {
  Op *op = NEW(m->arena, Op);
  op->kind = kind;
  op->loc = loc;
  return op;
}

static void push_id(Module *m, ValueId **list, int *n, ValueId v) {
  ValueId *longer = NEW_ARRAY(m->arena, ValueId, *n + 1);
  for (int i = 0; i < *n; i++) longer[i] = (*list)[i];
  longer[(*n)++] = v;
  *list = longer;
}

void ir_in(Module *m, Op *op, ValueId v) { push_id(m, &op->in, &op->nin, v); }

ValueId ir_out(Module *m, Op *op, const char *name, Type t) {
  ValueId v = ir_value(m, name, t, op->loc);
  m->values.at[v].def = op;
  m->values.at[v].result = op->nout;
  push_id(m, &op->out, &op->nout, v);
  return v;
}

void ir_append(Module *m, Region *r, Op *op) { ir_insert(m, r, r->ops.n, op); }

void ir_insert(Module *m, Region *r, int at, Op *op) {
  assert(at >= 0 && at <= r->ops.n && "an op is inserted between ops of the region");
  vec_push(m->arena, r->ops, op);
  for (int i = r->ops.n - 1; i > at; i--) r->ops.at[i] = r->ops.at[i - 1];
  r->ops.at[at] = op;
  op->order = at;
  for (int i = 0; i < op->nout; i++) {
    m->values.at[op->out[i]].def = op;
    m->values.at[op->out[i]].result = i;
    m->values.at[op->out[i]].region = r;
  }
}

ValueId ir_arg(Module *m, Region *r, const char *name, Type t) {
  ValueId v = ir_value(m, name, t, r->parent ? r->parent->loc : (Loc){0});
  m->values.at[v].result = r->args.n;
  m->values.at[v].region = r;
  vec_push(m->arena, r->args, v);
  return v;
}

static void number_region(Module *m, Region *r, Op *parent) {
  r->parent = parent;
  for (int i = 0; i < r->args.n; i++) {
    Value *v = &m->values.at[r->args.at[i]];
    v->region = r, v->result = i;
  }
  for (int i = 0; i < r->ops.n; i++) {
    Op *op = r->ops.at[i];
    op->order = i;
    for (int k = 0; k < op->nout; k++) {
      Value *v = &m->values.at[op->out[k]];
      v->def = op, v->region = r, v->result = k;
    }
    if (op->body_region) number_region(m, op->body_region, op);
  }
}

/* A value that no op and no region has is left with def and region NULL. */
void ir_number(Module *m) {
  for (int i = 0; i < m->values.n; i++) {
    Value *v = &m->values.at[i];
    v->def = NULL, v->region = NULL, v->result = -1;
  }
  for (int i = 0; i < m->programs.n; i++) number_region(m, m->programs.at[i].body, NULL);
}

/* attention_grad has no result dims that are indices of the space; its indices follow the operands read. */
void ir_sync_space(Module *m, Op *op) {
  if (op_class(op->kind) != CLS_SPACE || op->nout == 0 || op->kind == OP_ATTENTION_GRAD) return;
  const Type *t = &m->values.at[op->out[0]].type;
  assert(op->space.nout == t->rank && "a space opens with the result's dims");
  for (int i = 0; i < t->rank; i++) op->space.idx[i].split = t->dim[i].split;
}

int attention_rows(const Op *op, int *index) {
  int n = 0;
  for (int i = 0; i < op->space.nout; i++)
    if (ex_uses(op->read[0], i) || ex_uses(op->read[1], i) || ex_uses(op->body, i)) index[n++] = i;
  return n;
}

int op_reads(const Op *op) { return op->kind == OP_ATTENTION ? 3 : op->kind == OP_ATTENTION_GRAD ? 6 : 0; }

OpClass op_class(OpKind k) {
  static const OpClass class[] = {
#define OP(K, text, cls, fn) [OP_##K] = CLS_##cls,
#include "ir/ops.def"
  };
  return class[k];
}

const char *op_text(OpKind k) {
  static const char *const text[] = {
#define OP(K, text, cls, fn) [OP_##K] = text,
#include "ir/ops.def"
  };
  return text[k];
}

bool op_is_collective(OpKind k) { return op_class(k) == CLS_LAYOUT && k != OP_RESHARD && k != OP_SLICE; }

static int by_kind_and_name(const void *a, const void *b) {
  const Op *x = *(Op *const *)a, *y = *(Op *const *)b;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  int name = strcmp(x->name, y->name);
  return name ? name : x->order - y->order;
}

Leaves ir_leaves(const Module *m, Arena *a) {
  Leaves l = {0};
  for (int p = 0; p < m->programs.n; p++) {
    const Region *r = m->programs.at[p].body;
    for (int i = 0; i < r->ops.n; i++)
      if (op_class(r->ops.at[i]->kind) == CLS_LEAF) vec_push(a, l, r->ops.at[i]);
  }
  if (l.n) qsort(l.at, (size_t)l.n, sizeof *l.at, by_kind_and_name);
  return l;
}

Op *ir_find_leaf(const Leaves *l, OpKind kind, const char *name) {
  int lo = 0, hi = l->n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    const Op *op = l->at[mid];
    bool before = op->kind != kind ? op->kind < kind : strcmp(op->name, name) < 0;
    *(before ? &lo : &hi) = before ? mid + 1 : mid;
  }
  return lo < l->n && l->at[lo]->kind == kind && !strcmp(l->at[lo]->name, name) ? l->at[lo] : NULL;
}
