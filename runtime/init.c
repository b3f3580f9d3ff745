/* init.c: initial values of parameters, each element a pure function of seed, the parameter's full name and its
   global index, so that every mesh starts from the same bits.

     param wq: f32[D, H @ model, K] = normal(0.02)      element e is 0.02 * standard normal number e of site "wq" */
#include "rt.h"

#include "runtime/dtrt_random.h"

enum { STRIP = 256 };

static void put(dtrt_dtype t, char *dst, double v) {
  switch (t) {
  case DTRT_I32: *(int32_t *)dst = (int32_t)v; return;
  case DTRT_I64: *(int64_t *)dst = (int64_t)v; return;
  case DTRT_BOOL: *(bool *)dst = v != 0; return;
  default: rt_convert(t, dst, DTRT_F64, &v, 1); return;
  }
}

/* Elements [first, first + n) of the whole parameter. */
static void draw(const dtrt_Leaf *l, dtrt_Random site, int64_t first, int64_t n, char *dst) {
  size_t size = rt_dtype_size(l->layout.dtype);
  float drawn[STRIP] = {0};
  double a = 0, b = l->init == DTRT_ONES ? 1 : l->init == DTRT_CONST ? l->a : 0; /* a * drawn + b */
  if (l->init == DTRT_NORMAL) a = l->a;
  if (l->init == DTRT_UNIFORM) a = l->b - l->a, b = l->a;
  for (int64_t at = 0; at < n; at += STRIP) {
    int64_t k = n - at < STRIP ? n - at : STRIP;
    if (l->init == DTRT_NORMAL) dtrt_random_normal(site, drawn, k, first + at);
    if (l->init == DTRT_UNIFORM) dtrt_random_uniform(site, drawn, k, first + at);
    for (int64_t i = 0; i < k; i++) put(l->layout.dtype, dst + (size_t)(at + i) * size, b + a * (double)drawn[i]);
  }
}

void rt_draw(Rt *rt, const dtrt_Leaf *l) {
  dtrt_Layout whole = rt_unsplit(&l->layout);
  RtBox all = rt_box(&whole, rt->rank), mine = rt_box(&l->layout, rt->rank);
  Piece p = rt_piece(&mine, &all, &whole, &mine, &l->layout); /* source offsets are global element numbers */
  dtrt_Random site = dtrt_random_site(rt->o.seed, l->name, 0, 0, NULL);
  size_t bytes = (size_t)rt_local_elements(&l->layout) * rt_dtype_size(l->layout.dtype);
  char *dst = rt_borrow(rt, rt->cx.arena + l->offset, bytes, false);
  for (Runs r = rt_runs(&p, 0, p.elements); rt_next_run(&r);)
    draw(l, site, r.s, r.n, dst + (size_t)r.d * rt_dtype_size(l->layout.dtype));
  rt_return(rt, rt->cx.arena + l->offset, dst, bytes);
}
