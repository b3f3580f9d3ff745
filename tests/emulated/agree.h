/* agree.h: models as C beside the same models as emulated CUDA, see agree.c. */
#ifndef DTC_TEST_AGREE_H
#define DTC_TEST_AGREE_H

#include <stdbool.h>

enum { MAX_AXES = 3, MAX_MESHES = 20 };

typedef struct {
  const char *dt, *set, *oracle; /* in tests/; --set to make it small, or NULL; folder of peers/numeric, or NULL */
  bool fast;                     /* CUDA with --fast */
} Model;

typedef struct {
  const Model *model;
  const char *mesh; /* NULL: as written */
} Case;

void agree_all(const char *variant, int n, const Case *c);
/* All meshes of 1, 2, 4, 8 ranks: 4 of one axis, 10 of two, 20 of three. */
int all_meshes(const Model *m, const char *mesh[MAX_MESHES]);

#endif
