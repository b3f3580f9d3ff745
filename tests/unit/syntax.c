/* syntax.c: lexer and parser over whole files, right, wrong and hostile. */
#include "frontend/ast.h"
#include "frontend/frontend.h"
#include "unit.h"

#include <glob.h>
#include <stdlib.h>

static Diags *file(Arena *a, const char *text, size_t len) {
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", text, len);
  return d;
}

static const char *printed(Arena *a, const char *text) {
  Diags *d = file(a, text, strlen(text));
  const char *out = ast_print(a, ast_parse(a, d, 0));
  return d->nerrors ? "errors" : out;
}

/* The right side of `y = TEXT` with every operator in parentheses. */
static const char *grouped(Arena *a, const char *text) {
  const char *out = printed(a, arena_printf(a, "y = %s\n", text));
  return strncmp(out, "y = ", 4) ? out : arena_strndup(a, out + 4, strlen(out) - 5);
}

UNIT(what_binds_to_what) {
  Arena *a = arena_new();
  CHECK_STR(grouped(a, "a + b * c - d"), "(a + (b * c)) - d");
  CHECK_STR(grouped(a, "-x**2"), "-(x ** 2)");
  CHECK_STR(grouped(a, "2 ** -x ** 3"), "2 ** (-(x ** 3))");
  CHECK_STR(grouped(a, "a / b * c // d % e"), "(((a / b) * c) // d) % e");
  CHECK_STR(grouped(a, "not a < b and c or d"), "((not (a < b)) and c) or d");
  CHECK_STR(grouped(a, "not not a"), "not (not a)");
  CHECK_STR(grouped(a, "2 * x[i] else 1"), "2 * (x[i] else 1)");
  CHECK_STR(grouped(a, "x[i] else -1 ** 2"), "(x[i] else (-1)) ** 2");
  CHECK_STR(grouped(a, "sum[i: N, j](x[i, 2*j - 1])"), "sum[i: N, j](x[i, (2 * j) - 1])");
  CHECK_STR(grouped(a, "f(x, eps = 1e-6)"), "f(x, eps = 1e-6)");
  arena_free(a);
}

UNIT(a_line_goes_on_in_brackets_and_after_operators) {
  Arena *a = arena_new();
  CHECK_STR(printed(a, "y = a + # more\n\n  b\nz = f(a\n  , b)\n"), "y = a + b\nz = f(a, b)\n");
  CHECK_STR(printed(a, "x, y =\n f(a)"), "x, y = f(a)\n");
  CHECK_STR(printed(a, "dim A = 1,\n  B = 2\r\n"), "dim A = 1, B = 2\n");
  arena_free(a);
}

UNIT(items_print_as_they_are_read) {
  Arena *a = arena_new();
  const char *text = "mesh pod(data = 2, model = 4)\n"
                     "layout { F: model, V: (data, model), D: none }\n"
                     "input tok, tgt: i32[B @ (pod, data), T] = next_token(\"corpus.txt\", sequential)\n"
                     "param w: f32[D, 4 * D @ none] = normal(0.02 / sqrt(2 * L)), frozen\n"
                     "block f(x: f32[B], c: f32) -> (y, z) {\n"
                     "  y[b @ data, i: S @ seq] = x[b]\n"
                     "  z[e[n]: E, d] += x[n, d]\n"
                     "}\n"
                     "x, aux = repeat(L @ pipe) f(x, each c)\n"
                     "h = res(h) as stem\n"
                     "output x, aux\n"
                     "metric acc = micro mean[b](h[b])\n"
                     "train loss {\n"
                     "  optimizer = adamw(lr = 2e-3, betas = (0.9, 0.95))\n"
                     "  decay = (w, \"f.w\")\n"
                     "  zero = 1 over (pod, data)\n"
                     "  pipeline = 1f1b\n"
                     "}\n";
  CHECK_STR(printed(a, text), text);
  arena_free(a);
}

UNIT(messages_show_expressions_as_one_writes_them) {
  Arena *a = arena_new();
  const char *text = "y = (a + b) * -c ** 2 - (d - e) ** f\n";
  Diags *d = file(a, text, strlen(text));
  CHECK_STR(ast_expr_text(a, ast_parse(a, d, 0)->items.at[0]->value), "(a + b) * -c ** 2 - (d - e) ** f");
  arena_free(a);
}

UNIT(spans_are_exact) {
  Arena *a = arena_new();
  const char *text = "y[b] = x[b] +\n  f(x[b],\n w)\n";
  Diags *d = file(a, text, strlen(text));
  const AstItem *it = ast_parse(a, d, 0)->items.at[0];
  const AstExpr *sum = it->value, *call = sum->right;
  CHECK_EQ(sum->loc.col, 8);
  CHECK_EQ(sum->loc.len, (int)strlen(text) - 8);
  CHECK_EQ(sum->head.col, 13);
  CHECK_EQ(call->loc.line, 2);
  CHECK_EQ(call->loc.len, (int)strlen("f(x[b],\n w)"));
  CHECK_EQ(it->lhs.at[0].loc.len, 4);
  CHECK_EQ(loc_join(d, it->lhs.at[0].loc, it->value->left->loc).len, 11);
  arena_free(a);
}

UNIT(a_slip_is_recognised_and_another_word_is_not) {
  const char *words[] = {"param", "input", "metric", "def", NULL};
  CHECK_STR(ast_suggest("parm", words), "param");
  CHECK_STR(ast_suggest("inptu", words), "input");
  CHECK(ast_suggest("loss", words) == NULL);
  CHECK(ast_suggest("x", words) == NULL);
}

/* ---- laws ------------------------------------------------------------------------------------------------- */

static const char *const models[] = {"peers/numeric/charlm/model.dt", "peers/numeric/conv/model.dt",
                                     "peers/numeric/llama/model.dt", "peers/numeric/mlp/model.dt"};

static const char *model(Arena *a, int i, size_t *len) {
  const char *why = NULL, *text = read_whole_file(a, arena_printf(a, "%s/%s", DTC_TESTS, models[i]), len, &why);
  if (!text) unit_fail(models[i], 1, "%s", why);
  return text;
}

UNIT(what_is_printed_parses_to_the_same) {
  for (int i = 0; i < (int)(sizeof models / sizeof *models); i++) {
    Arena *a = arena_new();
    size_t len = 0;
    const char *text = model(a, i, &len);
    const char *once = text ? printed(a, text) : "";
    CHECK_STR(printed(a, once), once);
    CHECK(strcmp(once, "errors"));
    arena_free(a);
  }
}

/* Bytes changed, doubled, dropped and swapped: there is always a tree, and one without errors prints back. */
static void mutate(char *text, size_t *len, unsigned *seed) {
  static const char odd[] = "()[]{}=+-*/%<>@:,.#\"\n \t\r0a_A\0\x80\xff";
  size_t at = (size_t)rand_r(seed) % *len, from = (size_t)rand_r(seed) % *len;
  switch (rand_r(seed) % 4) {
  case 0: text[at] = odd[(size_t)rand_r(seed) % sizeof odd]; break;
  case 1: text[at] = text[from]; break;
  case 2: memmove(text + at, text + at + 1, *len - at - 1), text[--*len] = 0; break;
  default: memmove(text + (at < from ? at : from), text + from, *len - from); break;
  }
}

UNIT(mutated_files_are_parsed_or_refused) {
  unsigned seed = 1;
  for (int i = 0; i < 400; i++) {
    Arena *a = arena_new();
    size_t len = 0;
    char *text = (char *)model(a, i % 4, &len);
    for (int k = rand_r(&seed) % 8; text && k >= 0; k--) mutate(text, &len, &seed);
    Diags *d = file(a, text, len);
    const char *once = ast_print(a, ast_parse(a, d, 0));
    if (!d->nerrors) CHECK_STR(printed(a, once), once);
    arena_free(a);
  }
}

/* ---- errors.def ------------------------------------------------------------------------------------------- */

static const struct {
  const char *code, *wrong, *right;
} rows[] = {
#define ERR(code, title, text, wrong, right) {#code, wrong, right},
#include "frontend/errors.def"
};

static Diags *compiled(Arena *a, const char *code, const char *text) {
  static const FrontendOptions none;
  Diags *d = file(a, text, strlen(text));
  bool syntax = !strncmp(code, "E01", 3) || !strncmp(code, "E06", 3);
  if (syntax)
    ast_load(a, d, 0, "a.dt");
  else if (!strncmp(code, "E09", 3))
    ir_parse(a, d, 0);
  else {
    Module *m = frontend_module(a, d, 0, "a.dt", &none);
    if (m && *code == 'W') ir_gradient(m, &(PassContext){.diags = d});
  }
  return d;
}

static bool has(const Diags *d, const char *code) {
  for (int i = 0; i < d->list.n; i++)
    if (!strcmp(d->list.at[i]->code, code)) return true;
  return false;
}

UNIT(examples_of_errors_are_what_they_say) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Arena *a = arena_new();
    if (rows[i].wrong && !has(compiled(a, rows[i].code, rows[i].wrong), rows[i].code))
      unit_fail("errors.def", 1, "the wrong example of %s does not have it", rows[i].code);
    if (rows[i].right && compiled(a, rows[i].code, rows[i].right)->nerrors)
      unit_fail("errors.def", 1, "the right example of %s has errors", rows[i].code);
    arena_free(a);
  }
}

UNIT(codes_are_unique_and_explained) {
  Arena *a = arena_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CHECK(frontend_explain(a, rows[i].code));
    for (size_t j = 0; j < i; j++) CHECK(strcmp(rows[i].code, rows[j].code));
  }
  CHECK(frontend_explain(a, "E0000") == NULL);
  arena_free(a);
}

/* Codes stand in the sources as "E0123"; a new one needs its row. */
static void check_source(Arena *a, const char *path) {
  size_t len;
  const char *why = NULL, *text = read_whole_file(a, path, &len, &why);
  for (const char *p = text ? text + 1 : NULL; p && (p = strpbrk(p, "EW")); p++) {
    bool code = p[-1] == '"' && strspn(p + 1, "0123456789") == 4 && p[5] == '"' && strncmp(p, "E0000", 5);
    if (code && !frontend_explain(a, arena_strndup(a, p, 5))) unit_fail(path, 1, "%.5s has no row in errors.def", p);
  }
}

UNIT(every_code_that_is_used_is_explained) {
  static const char *const folders[] = {"ir", "frontend", "partitioner", "codegen"};
  for (int i = 0; i < 4; i++) {
    Arena *a = arena_new();
    glob_t g;
    CHECK_EQ(glob(arena_printf(a, "%s/../%s/*.c", DTC_TESTS, folders[i]), 0, NULL, &g), 0);
    for (size_t k = 0; k < g.gl_pathc; k++) check_source(a, g.gl_pathv[k]);
    globfree(&g);
    arena_free(a);
  }
}
