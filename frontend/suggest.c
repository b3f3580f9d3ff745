/* suggest.c: which known word was meant. Distance is the number of letters to insert, drop, change or swap with a
   neighbour (Damerau 1964, each pair swapped once): `parm` is 1 from `param`, `inptu` 1 from `input`. */
#include "ast.h"

enum { LONGEST = 32 };

static int least(int x, int y) { return x < y ? x : y; }

static int distance(const char *x, int n, const char *y, int m) {
  int d[LONGEST + 1][LONGEST + 1];
  for (int i = 0; i <= n; i++) d[i][0] = i;
  for (int j = 0; j <= m; j++) d[0][j] = j;
  for (int i = 1; i <= n; i++)
    for (int j = 1; j <= m; j++) {
      d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (x[i - 1] != y[j - 1]));
      bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
      if (swapped) d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[n][m];
}

/* A third of the letters may be wrong, but in a word of one or two letters none. */
const char *ast_suggest(const char *word, const char *const *words) {
  size_t n = strlen(word);
  const char *best = NULL;
  int nearest = (int)(n < 3 ? 0 : n < 6 ? 1 : n / 3) + 1;
  for (; n <= LONGEST && *words; words++) {
    size_t m = strlen(*words);
    int far = m > LONGEST ? nearest : distance(word, (int)n, *words, (int)m);
    if (far >= nearest || far == 0) continue;
    nearest = far;
    best = *words;
  }
  return best;
}
