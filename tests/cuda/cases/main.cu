/* main.cu: runs one case: `cases NAME [bug]`; without arguments lists them. */
#include "cases.h"

#include <cstring>
#include <vector>

static Case *first;
Case::Case(const char *name, void (*run)(bool)) : name(name), run(run), next(first) { first = this; }

float *device_floats(int n, float (*value)(int)) {
  float *x;
  CHECK(cudaMalloc(&x, (size_t)n * 4));
  std::vector<float> host;
  for (int i = 0; value && i < n; i++) host.push_back(value(i));
  if (value) CHECK(cudaMemcpy(x, host.data(), (size_t)n * 4, cudaMemcpyHostToDevice));
  return x;
}

double sum_of(const float *x, int n) {
  std::vector<float> host((size_t)n);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host.data(), x, (size_t)n * 4, cudaMemcpyDeviceToHost));
  double s = 0;
  for (float v : host) s += v;
  return s;
}

int main(int argc, char **argv) {
  for (Case *c = first; c; c = c->next) {
    if (argc < 2) puts(c->name);
    if (argc < 2 || strcmp(c->name, argv[1])) continue;
    c->run(argc > 2 && !strcmp(argv[2], "bug"));
    return 0;
  }
  if (argc > 1) fprintf(stderr, "no case %s\n", argv[1]);
  return argc > 1;
}
