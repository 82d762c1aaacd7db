//// released_before_reading: consumers say that a stage is empty, then read it
//// launch: grid 1 block 64 args 4 f32[128] f32[128]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  int t = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + i % 2) : "memory");
      s[i % 2][t] = x[i * 32 + t];  // BUG: race @read
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + i % 2) : "memory");
    } else {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + i % 2) : "memory");
#ifndef FIXED
      if (i + 2 < n) asm volatile("bar.arrive %0, 64;" ::"r"(3 + i % 2) : "memory");
#endif
      y[i * 32 + t - 32] = s[i % 2][63 - t];  // @read
#ifdef FIXED
      if (i + 2 < n) asm volatile("bar.arrive %0, 64;" ::"r"(3 + i % 2) : "memory");
#endif
    }
  }
}
//// one_warp_not_counted: the barrier of empty stages leaves a warp out that reads them
//// launch: grid 1 block 96 args 4 f32[128] f32[256]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  int t = threadIdx.x;
#ifdef FIXED
  const int readers = 96;
#else
  const int readers = 64;
#endif
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      if (i >= 2) asm volatile("bar.sync %0, %1;" ::"r"(3 + i % 2), "r"(readers) : "memory");
      s[i % 2][t] = x[i * 32 + t];  // BUG: race @read
      asm volatile("bar.arrive %0, 96;" ::"r"(1 + i % 2) : "memory");
    } else {
      asm volatile("bar.sync %0, 96;" ::"r"(1 + i % 2) : "memory");
      y[i * 64 + t - 32] = s[i % 2][(t + 1) % 32];  // @read
      if (i + 2 < n && t < readers) asm volatile("bar.arrive %0, %1;" ::"r"(3 + i % 2), "r"(readers) : "memory");
    }
  }
}
//// one_barrier_for_two_stages: a producer that is ahead arrives for the next stage while the last is still waited for
//// launch: grid 2 block 64 args 4 f32[128] f32[256]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  int t = threadIdx.x;
#ifdef FIXED
  const int each = 2;
#else
  const int each = 1;
#endif
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + i % 2) : "memory");
      s[i % 2][t] = x[i * 32 + t];
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + i % each) : "memory");  // BUG: divergent-barrier @full
    } else {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + i % each) : "memory");  // @full
      y[(blockIdx.x * n + i) * 32 + t - 32] = s[i % 2][63 - t];
      if (i + 2 < n) asm volatile("bar.arrive %0, 64;" ::"r"(3 + i % 2) : "memory");
    }
  }
}
//// one_barrier_for_two_groups: each pair of warps means its own barrier, and all use the same
//// launch: grid 1 block 128 args f32[128] f32[128]
extern "C" __global__ void pairs(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x, pair = t / 64;
  s[t] = x[t];
#ifdef FIXED
  asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
#else
  asm volatile("bar.sync 1, 64;" ::: "memory");  // BUG: divergent-barrier
#endif
  y[t] = s[64 * pair + 63 - t % 64];
}
