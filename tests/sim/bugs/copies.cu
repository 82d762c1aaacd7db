//// no_wait: the copy is started and committed, nobody waits
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = 0;
  __syncthreads();
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
  asm volatile("cp.async.commit_group;" ::: "memory");
#ifdef FIXED
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
  __syncthreads();
  y[t] = s[63 - t];  // BUG: missing-wait @copy
}
//// wait_too_lax: wait_group 1 leaves the only group under way
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = 0;
  __syncthreads();
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
  asm volatile("cp.async.commit_group;" ::: "memory");
#ifdef FIXED
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#else
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
  __syncthreads();
  y[t] = s[63 - t];  // BUG: missing-wait @copy
}
//// commit_forgotten: a copy outside every group is not waited for
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = 0;
  __syncthreads();
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
#ifdef FIXED
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  y[t] = s[63 - t];  // BUG: missing-wait @copy
}
//// wait_without_barrier: everybody waits for their own copy and reads another thread's
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
  asm volatile("cp.async.wait_all;" ::: "memory");
#ifdef FIXED
  __syncthreads();
#endif
  y[t] = s[63 - t];  // BUG: race @copy
}
//// barrier_before_wait: the right two lines in the wrong order
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
#ifdef FIXED
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
#else
  __syncthreads();
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  y[t] = s[63 - t];  // BUG: race @copy
}
//// copy_into_tile_in_use: the next copy starts while others still read the tile
//// launch: grid 1 block 64 args 3 f32[192] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + i * 64 + t) : "memory");  // BUG: race @read
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    sum += s[63 - t];  // @read
#ifdef FIXED
    __syncthreads();
#endif
  }
  y[t] = sum;
}
//// pipeline_tail: the last round commits nothing, so wait_group 1 lets the last copy run on
//// launch: grid 1 block 64 args 4 f32[256] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(&s[0][t]);
  float sum = 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (i + 1 < n) {
      unsigned next = to + (i + 1) % 2 * 256;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(next), "l"(x + i * 64 + 64 + t) : "memory");  // @copy
#ifndef FIXED
      asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    }
#ifdef FIXED
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    sum += s[i % 2][63 - t];  // BUG: missing-wait @copy
    __syncthreads();
  }
  y[t] = sum;
}
//// store_under_copy: a thread writes where its copy has not landed
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // @copy
#ifdef FIXED
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  if (x[t] == 0) s[t] = 1;  // BUG: missing-wait @copy
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  y[t] = s[63 - t];
}
