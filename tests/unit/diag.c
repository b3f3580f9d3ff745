/* diag.c: what diagnostics look like. */
#include "ir/diag.h"
#include "unit.h"

#include <stdlib.h>

static const char *shown(Arena *a, Diags *d, DiagFormat f) {
  char *text = NULL;
  size_t n;
  FILE *out = open_memstream(&text, &n);
  diags_print(d, f, out);
  fclose(out);
  const char *copy = arena_strdup(a, text);
  free(text);
  return copy;
}

UNIT(two_places_of_one_file_stand_in_one_snippet) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", "dim B = 8\n\n\ny = x[b]\n", 20);
  Diag *g = diag_error(d, "E0999", (Loc){0, 4, 5, 4}, "%s", "wrong");
  diag_mark(d, g, "here");
  diag_label(d, g, (Loc){0, 1, 5, 1}, "declared here");
  diag_help(d, g, "mend it");
  CHECK_STR(shown(a, d, DIAG_TEXT), "error[E0999]: wrong\n"
                                    " --> a.dt:4:5\n"
                                    "  |\n"
                                    "1 | dim B = 8\n"
                                    "  |     - declared here\n"
                                    "...\n"
                                    "4 | y = x[b]\n"
                                    "  |     ^^^^ here\n"
                                    "  = help: mend it\n");
  arena_free(a);
}

UNIT(another_file_has_a_snippet_of_its_own) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", "x\n", 2);
  diags_add_file(d, "b.dt", "y\n", 2);
  diag_label(d, diag_warning(d, "W0999", (Loc){0, 1, 1, 1}, "odd"), (Loc){1, 1, 1, 1}, "there");
  CHECK_STR(shown(a, d, DIAG_TEXT),
            "warning[W0999]: odd\n --> a.dt:1:1\n  |\n1 | x\n  | ^\n ::: b.dt:1:1\n  |\n1 | y\n  | - there\n");
  arena_free(a);
}

UNIT(diagnostics_are_in_order_and_each_once) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", "x\ny\n", 4);
  diag_error(d, "E0002", (Loc){0, 2, 1, 1}, "second");
  diag_error(d, "E0001", (Loc){0, 1, 1, 1}, "first");
  diag_error(d, "E0002", (Loc){0, 2, 1, 1}, "second");
  diag_error(d, "E0000", (Loc){0}, "no place");
  CHECK_STR(shown(a, d, DIAG_TEXT), "error[E0000]: no place\n\n"
                                    "error[E0001]: first\n --> a.dt:1:1\n  |\n1 | x\n  | ^\n\n"
                                    "error[E0002]: second\n --> a.dt:2:1\n  |\n2 | y\n  | ^\n");
  arena_free(a);
}

UNIT(json_has_one_object_a_line_and_only_utf8) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a\xff.dt", "x\n", 2);
  diag_label(d, diag_error(d, "E0999", (Loc){0, 1, 1, 1}, "a \"b\" \x1b"), (Loc){0, 1, 1, 1}, "c");
  CHECK_STR(
      shown(a, d, DIAG_JSON),
      "{\"code\": \"E0999\", \"level\": \"error\", \"file\": \"a\\\\xff.dt\", \"line\": 1, \"col\": 1, \"len\": 1, \"message\": "
      "\"a \\\"b\\\" \\\\x1b\", \"label\": null, \"labels\": [{\"file\": \"a\\\\xff.dt\", \"line\": 1, \"col\": 1, \"len\": 1, "
      "\"text\": \"c\"}], \"help\": null}\n");
  arena_free(a);
}

UNIT(fifty_errors_are_enough) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  for (int i = 0; i < 60; i++) diag_error(d, "E0999", (Loc){0}, "wrong");
  const char *text = shown(a, d, DIAG_TEXT), *tail = "\n\nerror: 10 further errors are not shown\n";
  CHECK(strlen(text) > strlen(tail) && !strcmp(text + strlen(text) - strlen(tail), tail));
  arena_free(a);
}

UNIT(a_span_outside_its_line_is_harmless) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  diags_add_file(d, "a.dt", "x", 1);
  diag_error(d, "E0999", (Loc){0, 9, 70, 1000000}, "wrong");
  CHECK_STR(shown(a, d, DIAG_TEXT), "error[E0999]: wrong\n --> a.dt:9:70\n  |\n9 | \n  | ^\n");
  arena_free(a);
}
