/* compile.c: emitted CUDA -> programs for the emulator of tests/cuda.

     namespace p0 {
     #include "/tmp/.../0.cu"
     }
     int main(int argc, char **argv) { return programs[std::atoi(argv[1])](argc - 1, argv + 1); }

   Many to a file: the headers take a large part of a file's time. */
#include <stdio.h>
#include <stdlib.h>

#include "emulated.h"
#include "program.h"
#include "unit.h"

const char *emulated_variant(void) {
  const char *variant = getenv("DTC_VARIANT");
  return variant && *variant ? variant : "plain";
}

bool emulate_all(const char *variant, bool fast, int n, const char *const *cu, const char *program) {
  const char *path = work_path("all.cu");
  FILE *f = fopen(path, "w");
  if (fast) fprintf(f, "#define DTCU_FAST\n");
  fprintf(f, "#include \"runtime/dtcu.h\"\n#include \"runtime/dtcu_attention.h\"\n#include <cstdlib>\n");
  for (int i = 0; i < n; i++) fprintf(f, "namespace p%d {\n#include \"%s\"\n}\n", i, cu[i]);
  fprintf(f, "static int (*const programs[])(int, char **) = {");
  for (int i = 0; i < n; i++) fprintf(f, "p%d::main, ", i);
  fprintf(f, "};\nint main(int argc, char **argv) { return programs[std::atoi(argv[1])](argc - 1, argv + 1); }\n");
  if (fclose(f)) return unit_fail(path, 1, "cannot be written"), false;
  char *output;
  int rc = RUN(work_folder(), &output, "/bin/sh", DTC_EMULATOR "/emulate.sh", variant, DTC_EMULATED, program, path);
  if (rc) unit_fail(cu[0], 1, "emitted CUDA is no C++ (exit %d):\n%.4000s", rc, output);
  return rc == 0;
}
