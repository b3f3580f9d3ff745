/* runtime_toy.c: the hand-made program described in runtime_toy.h. */
#include "runtime_toy.h"

#include <math.h>
#include <string.h>

enum { AT_W = 0, AT_M = 128, AT_STEP = 256, AT_TOK = 320, AT_TGT = 384, AT_LOSS = 448, AT_G = 512, AT_END = 1024 };
enum { TAP_LOSS, TAP_FIRST, TAP_ROWS, TAP_GRAD, TAP_NORM, TAP_LR, TAP_OUT };

static struct {
  dtrt_Program program;
  dtrt_Leaf leaf[5];
  dtrt_Tap tap[7];
  dtrt_Collective coll;
  dtrt_Layout from, to;
  dtrt_Setting setting[2];
  void (*on_update)(dtrt_Context *);
} toy;

static int64_t local(const dtrt_Context *cx, const dtrt_Layout *l, int64_t *lo) {
  int64_t n;
  dtrt_range(cx, &l->dim[0], lo, &n);
  return n;
}

static void forward(dtrt_Context *cx) {
  int64_t lo, rows = local(cx, &toy.leaf[3].layout, &lo);
  const int32_t *tok = (const int32_t *)(cx->arena + AT_TOK), *tgt = (const int32_t *)(cx->arena + AT_TGT);
  float *loss = (float *)(cx->arena + AT_LOSS);
  double first = lo == 0 && rows ? tok[0] : 0, set = 0;
  for (int64_t i = 0; i < rows; i++) set += exp2(tok[i * 3]);
  *loss = 0 * *(const float *)(cx->arena + AT_W);
  for (int64_t i = 0; i < rows * 3; i++) *loss += (float)(tok[i] * (3 * lo + i + 1) + tgt[i]);
  if (cx->setting[1] == (double)cx->step + 1 && cx->rank == cx->nranks - 1) *loss = NAN;
  if (cx->checking) dtrt_check_f32(cx, loss, 1, "h", 12);
  dtrt_collective(cx, 0, (const void *[]){loss}, (void *[]){loss});
  if (cx->checking) dtrt_check_f32(cx, loss, 1, "loss", 13);
  dtrt_tap(cx, TAP_LOSS, loss);
  dtrt_tap(cx, TAP_FIRST, &first);
  dtrt_tap(cx, TAP_ROWS, &set);
  if (!toy.program.trains) dtrt_tap(cx, TAP_OUT, cx->arena + AT_W);
}

static void backward(dtrt_Context *cx) {
  int64_t lo, rows = local(cx, &toy.leaf[0].layout, &lo);
  float *g = (float *)(cx->arena + AT_G);
  for (int64_t i = 0; i < rows * 4; i++) g[i] = (float)(lo * 4 + i) + *(float *)(cx->arena + AT_LOSS) / 1024;
  dtrt_tap(cx, TAP_GRAD, g);
}

static void update(dtrt_Context *cx) {
  int64_t lo, rows = local(cx, &toy.leaf[0].layout, &lo);
  float *w = (float *)(cx->arena + AT_W), *m = (float *)(cx->arena + AT_M), *g = (float *)(cx->arena + AT_G);
  if (toy.on_update) toy.on_update(cx);
  for (int64_t i = 0; i < rows * 4; i++) {
    m[i] = m[i] / 2 + g[i];
    w[i] -= (float)cx->setting[0] * m[i];
  }
  ++*(int64_t *)(cx->arena + AT_STEP);
  double lr = cx->setting[0];
  float norm = 1.5f;
  dtrt_tap(cx, TAP_LR, &lr);
  dtrt_tap(cx, TAP_NORM, &norm);
  dtrt_tap(cx, TAP_OUT, w);
}

static dtrt_Layout split(dtrt_Layout l, int nranks) {
  if (nranks > 1) run_split(&l, 0, 1, nranks);
  return l;
}

dtrt_Program *toy_program(int nranks, bool trains) {
  memset(&toy, 0, sizeof toy);
  dtrt_Layout w = split(LAYOUT(DTRT_F32, 6, 4), nranks), tokens = split(LAYOUT(DTRT_I32, 4, 3), nranks),
              scalar = LAYOUT(DTRT_F32);
  dtrt_Leaf leaf[] = {
      {DTRT_PARAM, "w", w, AT_W, .init = DTRT_NORMAL, .a = 1, .line = 3},
      {DTRT_STATE, "m.w", w, AT_M},
      {DTRT_STATE, "step", LAYOUT(DTRT_I64), AT_STEP},
      {DTRT_INPUT, "tok", tokens, AT_TOK, .source = DTRT_NEXT_TOKEN, .file = "corpus.bin", .shuffle = true, .limit_dim = "V",
       .line = 2},
      {DTRT_INPUT, "tgt", tokens, AT_TGT, .source = DTRT_NEXT_TOKEN, .file = "corpus.bin", .shuffle = true, .part = 1,
       .limit_dim = "V", .line = 2},
  };
  memcpy(toy.leaf, leaf, sizeof leaf);
  toy.from = toy.to = scalar;
  if (nranks > 1) toy.from.pending[toy.from.npending++] = (dtrt_Digit){1, nranks};
  toy.coll = (dtrt_Collective){"all_reduce", "data", "toy.dt", 13, 1, &toy.from, &toy.to, nranks > 1, {{1, nranks}}};
  dtrt_Tap tap[] = {
      {DTRT_TAP_LOSS, "loss", scalar}, {DTRT_TAP_METRIC, "first", LAYOUT(DTRT_F64)}, {DTRT_TAP_METRIC, "rows", LAYOUT(DTRT_F64)},
      {DTRT_TAP_GRAD, "w", w},         {DTRT_TAP_GRAD_NORM, "norm", scalar},         {DTRT_TAP_LR, "lr", LAYOUT(DTRT_F64)},
      {DTRT_TAP_OUTPUT, "y", w}};
  memcpy(toy.tap, tap, sizeof tap);
  toy.setting[0] = (dtrt_Setting){"optimizer.lr", 0.25};
  toy.setting[1] = (dtrt_Setting){"bomb", -1};
  toy.program = (dtrt_Program){.abi = DTRT_ABI,
                               .source = "toy.dt",
                               .version = "test",
                               .naxes = 1,
                               .axis = {"data"},
                               .axis_size = {nranks},
                               .nranks = nranks,
                               .arena_bytes = AT_END,
                               .nleaves = 5,
                               .leaf = toy.leaf,
                               .nsettings = 2,
                               .setting = toy.setting,
                               .ncollectives = 1,
                               .collective = &toy.coll,
                               .ntaps = 7,
                               .tap = toy.tap,
                               .steps = 10,
                               .tokens = TOY_TOKENS,
                               .unit = "tokens",
                               .parameters = TOY_W,
                               .trains = trains,
                               .forward = forward,
                               .backward = trains ? backward : NULL,
                               .update = trains ? update : NULL};
  return &toy.program;
}

void toy_limit(int64_t vocabulary) { toy.leaf[3].limit = toy.leaf[4].limit = vocabulary; }
void toy_on_update(void (*f)(dtrt_Context *)) { toy.on_update = f; }

const char *toy_corpus(int n) {
  unsigned char bytes[4096];
  for (int i = 0; i < n; i++) bytes[i] = (unsigned char)((7 * i + i / 5) % 31);
  const char *path = run_path("corpus.bin");
  run_write(path, bytes, (size_t)n);
  return path;
}
