/* cpu.c: does this processor have what the program and the runtime were compiled for? One clear line instead of an
   illegal instruction. This file is compiled for any x86-64, and nothing else runs before it.

     ./train: compiled for a processor with AVX-512, which this one does not have: compile the model here          */
#include "rt.h"

static bool has_level(int level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool sse = __builtin_cpu_supports("sse4.2"),
       avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"),
       avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
  return level <= 1 || (level == 2 && sse) || (level == 3 && avx2) || (level == 4 && avx512);
#else
  return level == 0;
#endif
}

int dtrt_main(const dtrt_Program *p, int argc, char **argv) {
  static const char *const names[] = {"another instruction set", "x86-64", "SSE4.2", "AVX2", "AVX-512"};
  int level = p->level > rt_level ? p->level : rt_level;
  if (has_level(level)) return rt_main(p, argc, argv);
  fprintf(stderr, "%s: compiled for a processor with %s, which this one does not have: compile the model here\n", argv[0],
          names[level >= 0 && level <= 4 ? level : 0]);
  return EXIT_DATA;
}
