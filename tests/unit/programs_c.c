/* programs_c.c: a program of codegen.c as C: compiled with a plain driver (one rank, naive products), which prints what the
   program shows. */
#include <stdlib.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "programs.h"

const Target program_target = TARGET_C;

static const char DRIVER[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#define main unused_main\n#include \"program.c\"\n#undef main\n"
    "void dtrt_tap(dtrt_Context *cx, int id, const void *x) {\n"
    "  (void)cx;\n  const dtrt_Layout *l = &program.tap[id].layout;\n  int64_t n = 1;\n"
    "  for (int d = 0; d < l->rank; d++) n *= l->dim[d].chunk;\n"
    "  for (int64_t i = 0; i < n; i++) printf(\"%s %.17g\\n\", program.tap[id].name, l->dtype == DTRT_F32 ? (double)((float "
    "*)x)[i] : "
    "l->dtype == DTRT_F64 ? ((double *)x)[i] : l->dtype == DTRT_I32 ? ((int32_t *)x)[i] : l->dtype == DTRT_I64 ? "
    "(double)((int64_t *)x)[i] : ((bool *)x)[i]);\n}\n"
    "void dtrt_gemm(dtrt_Context *cx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t "
    "lda, const float *b, "
    "int64_t "
    "ldb, float beta, float *c, int64_t ldc) {\n"
    "  (void)cx;\n  for (int64_t i = 0; i < m; i++) for (int64_t j = 0; j < n; j++) {\n    float s = 0;\n"
    "    for (int64_t p = 0; p < k; p++) s += (ta ? a[p * lda + i] : a[i * lda + p]) * (tb ? b[j * ldb + p] : b[p * ldb + j]);\n"
    "    c[i * ldc + j] = alpha * s + (beta == 0 ? 0 : beta * c[i * ldc + j]);\n  }\n}\n"
    "void dtrt_gemm_batch(dtrt_Context *cx, int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const "
    "float *a, int64_t "
    "lda, "
    "int64_t sa, const float *b, int64_t ldb, int64_t sb, float beta, float *c, int64_t ldc, int64_t sc) {\n"
    "  for (int64_t i = 0; i < batch; i++) dtrt_gemm(cx, ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * "
    "sc, "
    "ldc);\n}\n"
    "void dtrt_collective(dtrt_Context *cx, int id, const void *const *s, void *const *d) { (void)cx, (void)id, (void)s, "
    "(void)d; abort(); }\n"
    "void dtrt_range(const dtrt_Context *cx, const dtrt_Dim *d, int64_t *lo, int64_t *n) { (void)cx, *lo = 0, *n = d->size; }\n"
    "void dtrt_check_part(dtrt_Context *cx, const float *x, const dtrt_Layout *y, const char *t, int l) { (void)cx, (void)x, "
    "(void)y, (void)t, (void)l; }\n"
    "void dtrt_part(dtrt_Context *cx, dtrt_part_kind part) { (void)cx, (void)part; }\n"
    "void dtrt_check_f32(dtrt_Context *cx, const float *x, int64_t n, const char *t, int l) { (void)cx, (void)x, (void)n, "
    "(void)t, (void)l; }\n"
    "void dtrt_out_of_range(dtrt_Context *cx, int64_t v, int64_t n, const char *t, int l) { (void)cx, (void)l; printf(\"%s: %lld "
    "of %lld\\n\", "
    "t, (long long)v, (long long)n); exit(1); }\n"
    "int dtrt_main(const dtrt_Program *p, int argc, char **argv) { (void)p, (void)argc, (void)argv; return 0; }\n"
    "int main(void) {\n  static double setting[64];\n  for (int i = 0; i < program.nsettings; i++) setting[i] = "
    "program.setting[i].value;\n"
    "  dtrt_Context cx = {.nranks = 1, .setting = setting, .seed = 5};\n"
    "  cx.arena = aligned_alloc(64, program.arena_bytes + 64);\n  cx.workspace = aligned_alloc(64, program.workspace_bytes + "
    "64);\n"
    "  memset(cx.arena, 0xff, program.arena_bytes);\n  memset(cx.workspace, 0xff, program.workspace_bytes);\n"
    "  for (int i = 0; i < program.nleaves; i++) if (program.leaf[i].kind == DTRT_STATE) memset(cx.arena + "
    "program.leaf[i].offset, 0, 8);\n"
    "  if (program.forward) program.forward(&cx);\n  if (program.backward) program.backward(&cx);\n"
    "  if (program.update) program.update(&cx);\n  return 0;\n}\n";

static void put_file(Arena *a, const char *folder, const char *name, const char *text) {
  FILE *f = fopen(arena_printf(a, "%s/%s", folder, name), "w");
  fputs(text, f);
  fclose(f);
}

const char *program_shown(Arena *a, const ProgramText *p, const Module *m) {
  (void)p;
  char folder[] = "/tmp/dtc-cg-XXXXXX";
  CHECK(mkdtemp(folder));
  put_file(a, folder, "program.c", cg_emit_c(m, a));
  put_file(a, folder, "driver.c", DRIVER);
  const char *command =
      arena_printf(a,
                   "cd %s && cc -O1 -Wall -Wno-unused -Werror -fno-math-errno -fno-trapping-math -I %s/../runtime/include "
                   "driver.c -o driver -lm 2>&1 && ./driver 2>&1",
                   folder, DTC_TESTS);
  FILE *printed = popen(command, "r");
  Str out = {0};
  char buffer[4096];
  while (fgets(buffer, sizeof buffer, printed)) str_put(a, &out, buffer);
  pclose(printed);
  if (system(arena_printf(a, "rm -rf %s", folder))) return NULL;
  return out.at ? out.at : "";
}
