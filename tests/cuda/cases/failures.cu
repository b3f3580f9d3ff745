/* failures.cu: what the environment can break on purpose. */
#include "cases.h"

static __global__ void fill(float *x) { x[threadIdx.x] = 1; }

CASE(no_device) {
  int n = 7;
  setenv("DTCU_DEVICES", "0", 1);
  EXPECT(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
  EXPECT(cudaSetDevice(0) == cudaErrorNoDevice);
}

CASE(no_driver) {
  int n;
  setenv("DTCU_NO_DRIVER", "1", 1);
  EXPECT(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver);
  EXPECT(cudaGetLastError() == cudaErrorInsufficientDriver && cudaGetLastError() == cudaSuccess);
}

CASE(too_little_memory) {
  void *p, *q;
  size_t left, all;
  setenv("DTCU_MEMORY", "65536", 1);
  CHECK(cudaMalloc(&p, 40000));
  EXPECT(cudaMalloc(&q, 40000) == cudaErrorMemoryAllocation && !q);
  CHECK(cudaMemGetInfo(&left, &all));
  EXPECT(left == 25536 && all == 65536);
  CHECK(cudaFree(p));
  CHECK(cudaMalloc(&q, 65536));
}

/* A kernel that fails takes the device with it. */
CASE(kernel_error) {
  setenv("DTCU_KERNEL_ERROR", "2", 1);
  float *x = device_floats(32);
  for (int i = 0; i < 3; i++) DTCU_LAUNCH_ON(0, fill, 1, 32, x);
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  EXPECT(cudaMemset(x, 0, 4) == cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
}

CASE(launch_too_large) {
  float *x = device_floats(32);
  DTCU_LAUNCH_ON(0, fill, 1, 2048, x);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  DTCU_LAUNCH_ON(0, fill, dim3(1, 70000), 32, x);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
}
