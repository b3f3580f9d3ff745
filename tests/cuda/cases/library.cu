/* library.cu: the runtime's device side: reductions, lists, second passes, exact sums, faults, random numbers. Values are
   whole numbers, so that every order of summation has the same result. */
#include "cases.h"

#include "runtime/dtcu.h"
#include "runtime/dtcu_finish.h"
#include "runtime/dtcu_tile.h"

extern "C" {
cudaStream_t dtcu_stream(const dtrt_Context *) { return 0; }
void dtcu_launched(dtrt_Context *, const char *) {}
}

template <typename T> static T *device(int n) {
  T *x;
  CHECK(cudaMalloc(&x, (size_t)n * sizeof(T)));
  CHECK(cudaMemset(x, 0, (size_t)n * sizeof(T)));
  return x;
}
template <typename T> static T at(const T *x, int i) {
  T v;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&v, x + i, sizeof v, cudaMemcpyDeviceToHost));
  return v;
}

/* What thread t of 96 has. */
static __host__ __device__ int value(int t) { return t * 7 % 31 - 9; }

static __global__ void reduce(double *out) {
  const int t = (int)threadIdx.x, x = value(t);
  int total;
  const int before = dtcu_block_scan(x, &total), sum = dtcu_block_sum(x), most = dtcu_block_max(x);
  const double least = dtcu_block_min((double)x);
  const float two = dtcu_block_prod(t % 40 == 0 ? 2.0f : 1.0f);
  const int64_t wide = dtcu_block_sum((int64_t)x << 40);
  const bool any = dtcu_block_max(x == -9);
  const int warp = dtcu_warp_sum(t);
  if (t == 95) out[0] = before, out[1] = total, out[2] = sum, out[3] = most;
  if (t == 50) out[4] = least, out[5] = two, out[6] = (double)(wide >> 40), out[7] = any, out[8] = warp, out[9] = before;
}
CASE(reductions) {
  double *out = device<double>(10);
  DTCU_LAUNCH_ON(0, reduce, 1, 96, out);
  int sum = 0, to_50 = 0, most = -100;
  for (int t = 0; t < 96; t++) {
    sum += value(t), most = value(t) > most ? value(t) : most;
    if (t <= 50) to_50 += value(t);
  }
  const int expected[] = {sum, sum, sum, most, -9, 8, sum, 1, 47 * 32 + 16, to_50};
  for (int i = 0; i < 10; i++) EXPECT(at(out, i) == expected[i]);
}

/* Of equals the first place; a NaN is above everything; a thread may have none. */
static __global__ void firsts(int64_t *out) {
  const int t = (int)threadIdx.x;
  float x = t % 50 == 3 ? 5.0f : 1.0f;
  int64_t place = t % 50 == 3 ? 100 - t : 1000 + t;
  dtcu_block_first(&x, &place);
  float y = t == 77 ? NAN : (float)t;
  int64_t there = t == 95 ? -1 : t;
  dtcu_block_first(&y, &there);
  DTCU_SHARED(int, list, 96);
  const int n = dtcu_block_list(t % 10 == 7, t, list);
  if (t == 64) out[0] = place, out[1] = (int64_t)x, out[2] = there, out[3] = n, out[4] = list[0], out[5] = list[8];
}
CASE(first_of_a_block) {
  int64_t *out = device<int64_t>(6);
  DTCU_LAUNCH_ON(0, firsts, 1, 96, out);
  const int64_t expected[] = {47, 5, 77, 9, 7, 87};
  for (int i = 0; i < 6; i++) EXPECT(at(out, i) == expected[i]);
}

static __global__ void fill(float *x, int n) {
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x)) x[i] = (float)(i % 1000);
}
CASE(second_passes) {
  enum { MOST = 300 * 70 };
  float *partial = device<float>(MOST), *out = device<float>(100);
  DTCU_LAUNCH_ON(0, fill, 4, 64, partial, MOST);
  const int shape[][2] = {{1, 1}, {300, 1}, {300, 70}, {5, 65}, {260, 3}};
  for (const auto &s : shape) {
    dtcu_finish_sum((dtrt_Context *)nullptr, partial, s[0], s[1], out);
    for (int i : {0, s[1] - 1}) {
      int sum = 0;
      for (int p = 0; p < s[0]; p++) sum += (p * s[1] + i) % 1000;
      EXPECT(at(out, i) == (float)sum);
    }
  }
  dtcu_finish_max((dtrt_Context *)nullptr, partial, 300, 70, out);
  EXPECT(at(out, 5) == 995);
}

/* All blocks add to the same cells, halves and quarters; the largest is 3. */
static __global__ void add_up(unsigned long long *cell, unsigned long long *largest, bool adding) {
  const double x = (double)((int)(threadIdx.x % 13) - 6) / (1 << blockIdx.x % 3);
  if (adding)
    dtcu_add(cell + threadIdx.x % 4, x, dtcu_exact_units(largest, 10));
  else
    atomicMax(largest, dtcu_magnitude(x));
}
static __global__ void add_end(const unsigned long long *cell, const unsigned long long *largest, double *out) {
  if (threadIdx.x < 4) out[threadIdx.x] = dtcu_exact_sum(cell[threadIdx.x], largest, 10);
  if (threadIdx.x == 4) {
    const unsigned long long infinite = dtcu_magnitude(-INFINITY), none = 0;
    out[4] = dtcu_exact_sum(5, &infinite, 10), out[5] = dtcu_exact_sum(0, &none, 10);
  }
}
CASE(exact_sums) {
  unsigned long long *cell = device<unsigned long long>(5);
  double *out = device<double>(6);
  for (int adding = 0; adding < 2; adding++) DTCU_LAUNCH_ON(0, add_up, 9, 64, cell, cell + 4, (bool)adding);
  DTCU_LAUNCH_ON(0, add_end, 1, 32, (const unsigned long long *)cell, (const unsigned long long *)cell + 4, out);
  for (int c = 0; c < 4; c++) {
    double sum = 0;
    for (int b = 0; b < 9; b++)
      for (int t = c; t < 64; t += 4) sum += (double)(t % 13 - 6) / (1 << b % 3);
    EXPECT(at(out, c) == sum);
  }
  EXPECT(at(out, 4) != at(out, 4) && at(out, 5) == 0);
}

/* Threads find faults in any order; the one of the lowest line and value stays. */
static __global__ void faults(const dtcu_Context *cx, int64_t *out) {
  const int t = (int)threadIdx.x, b = (int)blockIdx.x;
  int64_t row = t == 40 ? 1000 + b : t;
  if (row >= 64) row = dtcu_out_of_range(cx, row, 64, b ? "tok" : "label", b ? 12 : 30);
  out[b * 64 + t] = row;
}
CASE(lowest_fault) {
  dtcu_Fault *fault;
  CHECK(cudaHostAlloc((void **)&fault, sizeof *fault, cudaHostAllocMapped));
  memset(fault, 0, sizeof *fault);
  dtcu_Context host = {}, *cx = device<dtcu_Context>(1);
  host.fault = fault;
  CHECK(cudaMemcpy(cx, &host, sizeof host, cudaMemcpyHostToDevice));
  int64_t *out = device<int64_t>(5 * 64);
  DTCU_LAUNCH_ON(0, faults, 5, 64, (const dtcu_Context *)cx, out);
  EXPECT(at(out, 40) == 0 && at(out, 41) == 41);
  EXPECT(fault->kind == DTCU_OUT_OF_RANGE && fault->line == 12 && fault->value == 1001 && fault->limit == 64);
  EXPECT(!strcmp(fault->tensor, "tok"));
}

/* A run of numbers that begins in the middle of a quad. */
static __global__ void draw(dtrt_Random site, bool normal, float *out, int64_t n, int64_t first) {
  for (int64_t quad = threadIdx.x; quad < n / 4 + 2; quad += blockDim.x) dtcu_random_quad(site, normal, out, n, first, quad);
}
CASE(random_numbers) {
  enum { N = 50 };
  const int64_t counter[] = {3};
  const dtrt_Random site = dtrt_random_site(7, "layer.drop", 11, 1, counter);
  float *out = device<float>(N), host[N];
  for (int normal = 0; normal < 2; normal++)
    for (int64_t first : {0, 5, 4098}) {
      DTCU_LAUNCH_ON(0, draw, 1, 32, site, (bool)normal, out, (int64_t)N, first);
      dtrt_random_fill(site, host, N, first, normal);
      for (int i = 0; i < N; i++) EXPECT(at(out, i) == host[i]);
    }
}
