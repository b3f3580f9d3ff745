/* explain.c: `dtc --explain E0113` -> the row of errors.def as text: title, meaning, the example, the example mended. */
#include "frontend/frontend.h"

enum { WIDTH = 80 };

static const struct {
  const char *code, *title, *text, *wrong, *right;
} table[] = {
#define ERR(code, title, text, wrong, right) {#code, title, text, wrong, right},
#include "errors.def"
};

static void put_wrapped(Arena *a, Str *s, const char *text) {
  int col = 0;
  while (*text) {
    int n = (int)strcspn(text, " ");
    bool fits = col == 0 || col + 1 + n <= WIDTH;
    str_put(a, s, col == 0 ? "" : fits ? " " : "\n");
    col = (fits && col ? col + 1 : 0) + n;
    str_printf(a, s, "%.*s", n, text);
    text += n + (text[n] == ' ');
  }
  str_put(a, s, "\n");
}

static void put_example(Arena *a, Str *s, const char *title, const char *text) {
  if (!text) return;
  str_printf(a, s, "\n%s:\n\n", title);
  while (*text) {
    int n = (int)strcspn(text, "\n");
    str_printf(a, s, "    %.*s\n", n, text);
    text += n + (text[n] == '\n');
  }
}

const char *frontend_explain(Arena *a, const char *code) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].code, code)) continue;
    Str s = {0};
    str_printf(a, &s, "%s: %s\n\n", table[i].code, table[i].title);
    put_wrapped(a, &s, table[i].text);
    put_example(a, &s, "Wrong", table[i].wrong);
    put_example(a, &s, "Right", table[i].right);
    return s.at;
  }
  return NULL;
}
