/* train.c: the train block -> Module.train and a tap of the loss.

     train loss { optimizer = adamw(lr = 2e-3), lr = cosine(warmup = 50, steps = 1000, floor = 0.1), clip = 1.0 }       */
#include "lower.h"

/* ---- calls with named numbers: adamw(lr = 1e-3, betas = (0.9, 0.95)) -------------------------------------------------- */

typedef struct {
  const char *name;
  double *real; /* where a number goes, or */
  bool *flag;   /* true or false, or */
  double *pair; /* two numbers */
  const AstExpr *given;
} Slot;

static bool bad_value(Ctx *cx, const AstExpr *e, const char *what) {
  fault(cx->lw, "E0505", e->loc, "%s", what);
  return false;
}

static bool fill_slot(Ctx *cx, Slot *s, const AstExpr *e) {
  s->given = e;
  if (s->real) return real_of(cx, e, s->real);
  if (s->flag) {
    bool yes = e->kind == AST_NAME && !strcmp(e->name, "true"), no = e->kind == AST_NAME && !strcmp(e->name, "false");
    *s->flag = yes;
    return yes || no || bad_value(cx, e, "true or false is wanted here");
  }
  if (e->kind != AST_TUPLE || e->args.n != 2) return bad_value(cx, e, "two numbers are wanted here: `(0.9, 0.999)`");
  bool first = real_of(cx, e->args.at[0].value, &s->pair[0]);
  return real_of(cx, e->args.at[1].value, &s->pair[1]) && first;
}

static Slot *slot_named(Ctx *cx, const AstExpr *call, const AstArg *x, Slot *slots) {
  const char *words[16] = {0};
  for (int i = 0; slots[i].name; i++) {
    if (!strcmp(slots[i].name, x->name.text)) return &slots[i];
    words[i] = slots[i].name;
  }
  Diag *g = fault(cx->lw, "E0209", x->name.loc, "`%s` has no argument `%s`", call->name, x->name.text);
  const char *near = ast_suggest(x->name.text, words);
  if (near) diag_help(cx->lw->d, g, "did you mean `%s`?", near);
  return NULL;
}

/* Arguments without a name take the slots in order. */
static bool fill_slots(Ctx *cx, const AstExpr *call, Slot *slots) {
  bool ok = true;
  int next = 0;
  for (int i = 0; i < call->args.n; i++) {
    const AstArg *x = &call->args.at[i];
    Slot *s = x->name.text ? slot_named(cx, call, x, slots) : slots[next].name ? &slots[next++] : NULL;
    if (!s) {
      if (!x->name.text) fault(cx->lw, "E0208", x->loc, "`%s` takes fewer arguments", call->name);
      ok = false;
      continue;
    }
    if (s->given) fault(cx->lw, "E0202", x->loc, "`%s` is given twice", s->name), ok = false;
    ok &= fill_slot(cx, s, x->value);
  }
  return ok;
}

static void within(Ctx *cx, const Slot *s, const char *what, double v, double lo, double hi) {
  if (s->given && !(v >= lo && v <= hi))
    fault(cx->lw, "E0505", s->given->loc, "%s is %g; it must be between %g and %g", what, v, lo, hi);
}

/* ---- optimizer and schedule ------------------------------------------------------------------------------------------------ */

static const double BELOW_ONE = 0.9999999999; /* 1 - beta divides */

static void set_optimizer(Ctx *cx, const AstSetting *s, Train *t) {
  const AstExpr *e = s->value;
  bool sgd = e->kind == AST_CALL && !strcmp(e->name, "sgd"), adamw = e->kind == AST_CALL && !strcmp(e->name, "adamw");
  if (!sgd && !adamw) {
    static const char *const words[] = {"sgd", "adamw", NULL};
    Diag *g = fault(cx->lw, "E0505", e->loc, "an optimizer is `sgd(lr = ...)` or `adamw(lr = ...)`");
    const char *near = e->kind == AST_NAME || e->kind == AST_CALL ? ast_suggest(e->name, words) : NULL;
    if (near) diag_help(cx->lw->d, g, "did you mean `%s`?", near);
    return;
  }
  double betas[2] = {0.9, 0.999};
  t->optimizer = sgd ? OPT_SGD : OPT_ADAMW;
  t->eps = 1e-8;
  Slot for_sgd[] = {{"lr", .real = &t->lr},
                    {"momentum", .real = &t->momentum},
                    {"nesterov", .flag = &t->nesterov},
                    {"weight_decay", .real = &t->weight_decay},
                    {NULL}};
  Slot for_adamw[] = {{"lr", .real = &t->lr},
                      {"betas", .pair = betas},
                      {"eps", .real = &t->eps},
                      {"weight_decay", .real = &t->weight_decay},
                      {NULL}};
  Slot *slots = sgd ? for_sgd : for_adamw;
  if (!fill_slots(cx, e, slots)) return;
  t->beta1 = betas[0];
  t->beta2 = betas[1];
  if (!slots[0].given) fault(cx->lw, "E0505", e->loc, "`%s` needs a learning rate: `%s(lr = ...)`", e->name, e->name);
  within(cx, &slots[0], "lr", t->lr, 0, 1e30);
  within(cx, &slots[3], "weight_decay", t->weight_decay, 0, 1e30);
  if (sgd) return within(cx, &slots[1], "momentum", t->momentum, 0, 1);
  within(cx, &slots[1], "the first of betas", t->beta1, 0, BELOW_ONE);
  within(cx, &slots[1], "the second of betas", t->beta2, 0, BELOW_ONE);
  within(cx, &slots[2], "eps", t->eps, 0, 1e30);
}

static void set_schedule(Ctx *cx, const AstSetting *s, Train *t) {
  const AstExpr *e = s->value;
  const char *name = e->kind == AST_NAME || e->kind == AST_CALL ? e->name : "";
  bool constant = !strcmp(name, "constant"), cosine = !strcmp(name, "cosine"), linear = !strcmp(name, "linear");
  if (!constant && !cosine && !linear) {
    fault(cx->lw, "E0505", e->loc, "`lr` is `constant`, `cosine(warmup, steps, floor)` or `linear(warmup, steps, floor)`");
    return;
  }
  t->schedule = constant ? LR_CONSTANT : cosine ? LR_COSINE : LR_LINEAR;
  Slot slots[] = {{"warmup", .real = &t->warmup}, {"steps", .real = &t->schedule_steps}, {"floor", .real = &t->floor}, {NULL}};
  if (constant) slots[0].name = NULL;
  if (!fill_slots(cx, e, slots)) return;
  within(cx, &slots[0], "warmup", t->warmup, 0, 1e15);
  within(cx, &slots[1], "steps", t->schedule_steps, 1, 1e15);
  within(cx, &slots[2], "floor", t->floor, 0, 1);
}

/* ---- the other settings
 * -------------------------------------------------------------------------------------------------------- */

static void set_clip(Ctx *cx, const AstSetting *s, Train *t) {
  t->has_clip = real_of(cx, s->value, &t->clip);
  if (t->has_clip && !(t->clip > 0)) fault(cx->lw, "E0505", s->value->loc, "clip is a positive bound of the gradient's norm");
}

static void set_steps(Ctx *cx, const AstSetting *s, Train *t) {
  if (size_of(cx, s->value, &t->steps) && t->steps < 1) fault(cx->lw, "E0505", s->value->loc, "at least one step is trained");
}

/* `wq`, or "layer.wq", whose dot no name has. */
static bool names_parameter(const AstExpr *e) { return e->kind == AST_NAME || e->kind == AST_STRING; }

/* A parameter by its full name or by the last part of it. */
static bool decay_name(Ctx *cx, const AstExpr *e, Train *t) {
  Lower *lw = cx->lw;
  const Region *r = lw->m->programs.at[0].body;
  int found = 0;
  for (int i = 0; names_parameter(e) && i < r->ops.n; i++) {
    const Op *op = r->ops.at[i];
    if (op->kind != OP_PARAM) continue;
    const char *dot = strrchr(op->name, '.');
    if (strcmp(op->name, e->name) && (!dot || strcmp(dot + 1, e->name))) continue;
    vec_push(lw->a, t->decay_names, op->name);
    found++;
  }
  if (!found) fault(lw, "E0508", e->loc, "there is no parameter `%s`", ast_expr_text(lw->a, e));
  return found > 0;
}

static void set_decay(Ctx *cx, const AstSetting *s, Train *t) {
  const AstExpr *e = s->value;
  bool word = e->kind == AST_NAME && !e->parens;
  if (word && (!strcmp(e->name, "all") || !strcmp(e->name, "matrices"))) {
    t->decay = *e->name == 'a' ? DECAY_ALL : DECAY_MATRICES;
    return;
  }
  t->decay = DECAY_NAMES;
  if (e->kind == AST_TUPLE)
    for (int i = 0; i < e->args.n; i++) decay_name(cx, e->args.at[i].value, t);
  else if (names_parameter(e))
    decay_name(cx, e, t);
  else
    fault(cx->lw, "E0505", e->loc, "`decay` is `all`, `matrices` or names of parameters: `(wq, wk)`");
}

/* ---- settings of later versions: the value is checked, and what changes nothing is accepted ---------------------------- */

static bool is_word(const AstExpr *e, const char *word) { return e->kind == AST_NAME && !e->parens && !strcmp(e->name, word); }

/* One of the words (NULL at the end); the first is what dtc does anyway. */
static void set_words(Ctx *cx, const AstSetting *s, const char *const *words, const char *what) {
  for (int i = 0; words[i]; i++) {
    if (!is_word(s->value, words[i])) continue;
    if (i > 0) not_yet(cx->lw, s->key.loc, arena_printf(cx->lw->a, "`%s`", s->key.text));
    return;
  }
  Diag *g = fault(cx->lw, "E0505", s->value->loc, "`%s` is %s", s->key.text, what);
  const char *near = s->value->kind == AST_NAME ? ast_suggest(s->value->name, words) : NULL;
  if (near) diag_help(cx->lw->d, g, "did you mean `%s`?", near);
}

static void set_precision(Ctx *cx, const AstSetting *s, Train *t) {
  static const char *const words[] = {"f32", "bf16", NULL};
  (void)t;
  set_words(cx, s, words, "`f32` or `bf16`");
}

static void set_pipeline(Ctx *cx, const AstSetting *s, Train *t) {
  static const char *const words[] = {"none", "1f1b", "gpipe", "interleaved", NULL};
  (void)t;
  set_words(cx, s, words, "`none` or a schedule such as `1f1b`");
}

/* `none`, or the block whose values are computed again. */
static void set_recompute(Ctx *cx, const AstSetting *s, Train *t) {
  const AstExpr *e = s->value;
  (void)t;
  if (is_word(e, "none")) return;
  Symbol *block = e->kind == AST_NAME ? scope_function(cx->scope, e->name) : NULL;
  if (block && block->kind == SYM_BLOCK)
    not_yet(cx->lw, s->key.loc, "`recompute`");
  else if (e->kind == AST_NAME)
    unknown_name(cx, e->loc, "block", e->name, SYM_BLOCK);
  else
    fault(cx->lw, "E0505", e->loc, "`recompute` is `none` or the name of a block");
}

static void set_microbatches(Ctx *cx, const AstSetting *s, Train *t) {
  int64_t n;
  (void)t;
  if (!size_of(cx, s->value, &n)) return;
  if (n < 1 || n > INT32_MAX)
    fault(cx->lw, "E0505", s->value->loc, "a step has between 1 and %d microbatches, not %lld", INT32_MAX, (long long)n);
  else if (n > 1)
    not_yet(cx->lw, s->key.loc, "`microbatches`");
}

static void set_zero(Ctx *cx, const AstSetting *s, Train *t) {
  Lower *lw = cx->lw;
  int64_t level = 0;
  (void)t;
  if (is_word(s->value, "none") && !s->over.present) return;
  if (is_word(s->value, "none") || !size_of(cx, s->value, &level) || level < 0 || level > 3) {
    fault(lw, "E0505", s->value->loc, "`zero` is `none`, or 1, 2 or 3 `over` axes: `zero = 1 over data`");
    return;
  }
  bool known = true;
  for (int i = 0; i < s->over.names.n; i++) {
    AstName name = s->over.names.at[i];
    known &= axis_named(cx, name) >= 0;
    for (int k = 0; k < i; k++)
      if (!strcmp(s->over.names.at[k].text, name.text))
        fault(lw, "E0402", name.loc, "axis `%s` stands twice here", name.text), known = false;
  }
  if (level > 0 && !s->over.names.n)
    fault(lw, "E0505", s->value->loc, "`zero` needs the axes that share the state: `zero = %lld over data`", (long long)level);
  else if (level > 0 && known)
    not_yet(lw, s->key.loc, "`zero`");
}

static const struct {
  const char *key;
  void (*set)(Ctx *, const AstSetting *, Train *);
} KEYS[] = {{"optimizer", set_optimizer}, {"lr", set_schedule},
            {"clip", set_clip},           {"steps", set_steps},
            {"decay", set_decay},         {"zero", set_zero},
            {"precision", set_precision}, {"reduce", set_precision},
            {"recompute", set_recompute}, {"microbatches", set_microbatches},
            {"pipeline", set_pipeline}};
enum { NKEYS = sizeof KEYS / sizeof *KEYS, KEY_OPTIMIZER = 0, KEY_LR = 1 };

static void set_one(Ctx *cx, const AstSetting *s, Train *t, Loc *given) {
  Lower *lw = cx->lw;
  const char *words[NKEYS + 1] = {0};
  for (int i = 0; i < NKEYS; i++) {
    words[i] = KEYS[i].key;
    if (strcmp(KEYS[i].key, s->key.text)) continue;
    if (given[i].line)
      diag_label(lw->d, fault(lw, "E0202", s->key.loc, "`%s` is set twice", s->key.text), given[i], "the first time");
    given[i] = s->key.loc;
    KEYS[i].set(cx, s, t);
    return;
  }
  Diag *g = fault(lw, "E0504", s->key.loc, "there is no setting `%s`", s->key.text);
  const char *near = ast_suggest(s->key.text, words);
  if (near) diag_help(lw->d, g, "did you mean `%s`?", near);
}

/* ---- the block
 * ---------------------------------------------------------------------------------------------------------------------- */

static bool loss_of(Ctx *cx, const AstItem *it, Train *t) {
  Lower *lw = cx->lw;
  Symbol *s = scope_find(cx->scope, it->name.text);
  if (!s || s->kind != SYM_TENSOR) {
    unknown_name(cx, it->name.loc, "tensor", it->name.text, SYM_TENSOR);
    return false;
  }
  TensorRef loss = s->tensor;
  if (loss.bad || !is_number(cx, &loss, it->name.loc)) return false;
  if (loss.rank) {
    Diag *g = fault(lw, "E0506", it->name.loc, "a loss is one number, `%s` is %s", it->name.text, shape_text(lw->a, &loss));
    diag_label(lw->d, g, s->loc, "`%s` is made here", it->name.text);
    diag_help(lw->d, g, "reduce it, e.g. `mean[b](...)`");
    return false;
  }
  if (loss.dtype != F32) loss = copy_as(cx, loss, F32, NULL, it->name.text, it->loc);
  t->loss = loss.v;
  Op *op = ir_op(lw->m, OP_TAP, it->loc);
  op->tap = TAP_LOSS;
  ir_in(lw->m, op, loss.v);
  ir_append(lw->m, cx->fr->region, op);
  return true;
}

static void default_steps(Ctx *cx, Loc lr, Train *t) {
  if (!t->steps) t->steps = t->schedule_steps > 0 ? (int64_t)t->schedule_steps : 100;
  if (!t->schedule_steps) t->schedule_steps = (double)t->steps;
  if (t->schedule == LR_CONSTANT || t->schedule_steps > t->warmup) return;
  fault(cx->lw, "E0505", lr, "the schedule has %g steps of which %g are warmup", t->schedule_steps, t->warmup);
}

void lower_train(Ctx *cx, const AstItem *it) {
  Lower *lw = cx->lw;
  Train *t = &lw->m->train;
  *t = (Train){.present = true, .loss = -1, .loc = it->loc, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  Loc given[NKEYS] = {{0}};
  loss_of(cx, it, t);
  int faults = lw->faults;
  for (int i = 0; i < it->settings.n; i++) set_one(cx, &it->settings.at[i], t, given);
  if (lw->faults > faults) return; /* the settings that are missing may be those */
  if (!given[KEY_OPTIMIZER].line) {
    Diag *g = fault(lw, "E0509", it->head, "a train block needs an optimizer");
    diag_help(lw->d, g, "add `optimizer = adamw(lr = 1e-3)`");
  }
  default_steps(cx, given[KEY_LR], t);
}
