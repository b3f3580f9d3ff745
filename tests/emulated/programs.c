/* programs.c: the programs of tests/unit/codegen.c as CUDA: all in one file, compiled once for the emulator; each runs by itself
   under the runtime, whose .npy files of outputs are read back. */
#include "programs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/codegen.h"
#include "emulated.h"
#include "program.h"

const Target program_target = TARGET_CUDA;

/* The compiled file, or NULL after a failure. */
static const char *all_compiled(void) {
  static const char *all;
  static bool tried;
  if (tried) return all;
  tried = true;
  Arena *a = arena_new();
  const char **cu = calloc((size_t)program_count(), sizeof *cu), *out = work_path("programs");
  bool ok = true;
  for (int i = 0; i < program_count() && ok; i++) {
    const Module *m = program_scheduled(a, program_at(i));
    cu[i] = work_path("%s.cu", program_at(i)->name);
    ok = m && write_text(cu[i], cg_emit_cuda(m, a));
  }
  if (ok && emulate_all(emulated_variant(), false, program_count(), cu, out)) all = out;
  free(cu);
  arena_free(a);
  return all;
}

static double element(DType d, const char *at) {
  float f;
  double g;
  int32_t i;
  int64_t l;
  switch (d) {
  case F32: return memcpy(&f, at, sizeof f), f;
  case F64: return memcpy(&g, at, sizeof g), g;
  case I32: return memcpy(&i, at, sizeof i), i;
  case BOOL: return *at;
  default: return memcpy(&l, at, sizeof l), (double)l;
  }
}

/* NAME.npy in the folder -> lines; a header's length stands in its bytes 8 and 9. */
static void put_output(Arena *a, Str *s, const char *folder, const char *name, const Type *t) {
  size_t n = 0;
  const char *npy = read_bytes(arena_printf(a, "%s/%s.npy", folder, name), &n);
  size_t head = npy && n >= 10 ? 10 + (size_t)(unsigned char)npy[8] + 256 * (size_t)(unsigned char)npy[9] : 0,
         each = (size_t)dtype_size(t->dtype);
  if (!npy || n != head + (size_t)type_elements(t) * each) {
    str_printf(a, s, "no file of %s, or of another size\n", name);
    return;
  }
  for (int64_t i = 0; i < type_elements(t); i++)
    str_printf(a, s, "%s %.17g\n", name, element(t->dtype, npy + head + (size_t)i * each));
}

const char *program_shown(Arena *a, const ProgramText *p, const Module *m) {
  const char *all = all_compiled(), *folder = work_path("%s", p->name);
  int number = 0;
  char *output;
  if (!all) return "the programs were not compiled";
  while (strcmp(program_at(number)->name, p->name)) number++;
  mkdir(folder, 0700);
  int rc = RUN(folder, &output, all, arena_printf(a, "%d", number), "--steps", "1", "--seed", "5");
  if (rc) return arena_printf(a, "it exits %d: %s", rc, output);
  Str shown = {0};
  const Region *body = m->programs.at[0].body;
  for (int i = 0; i < body->ops.n; i++) {
    const Op *op = body->ops.at[i];
    if (op->kind == OP_TAP) put_output(a, &shown, folder, op->name, &m->values.at[op->in[0]].type);
  }
  return shown.n ? shown.at : "";
}

/* What the library does behind a product is done by kernels of the runtime where it finds no algorithm. */
UNIT(products_whose_epilogues_the_library_refuses) {
  int products = 0;
  setenv("DTCU_NO_EPILOGUE", "1", 1);
  for (int i = 0; all_compiled() && i < program_count(); i++) {
    if (!strstr(read_text(work_path("%s.cu", program_at(i)->name)), "dtcu_gemm(")) continue;
    program_agrees(program_at(i)->name);
    products++;
  }
  unsetenv("DTCU_NO_EPILOGUE");
  CHECK(products > 0);
}
