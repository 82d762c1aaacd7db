//// early_return: threads outside the matrix return before the barrier
//// launch: grid 1 block 64 args 40 f32[40] f32[40]
extern "C" __global__ void edge(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  s[t] = t < n ? x[t] : 0;
#else
  if (t >= n) return;
  s[t] = x[t];
#endif
  __syncthreads();  // BUG: divergent-barrier
  if (t < n) y[t] = s[n - 1 - t];
}
//// early_return_in_a_tile_loop: whole warps leave, the others go on through the loop
//// launch: grid 1 block 32,4 args 3 64 f32[192] f32[96]
extern "C" __global__ void tiles(int M, int K, const float* A, float* C) {
  __shared__ float s[4][32];
  int x = threadIdx.x, y = threadIdx.y;
#ifndef FIXED
  if (y >= M) return;
#endif
  float sum = 0;
#pragma unroll 1
  for (int k0 = 0; k0 < K; k0 += 32) {
    s[y][x] = y < M ? A[y * K + k0 + x] : 0;
    __syncthreads();  // BUG: divergent-barrier
    sum += s[y][31 - x];
    __syncthreads();  // BUG: divergent-barrier
  }
  if (y < M) C[y * 32 + x] = sum;
}
//// barrier_in_if: only the first half of a warp comes
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void half(const float* x, float* y) {
  __shared__ float s[16];
  int t = threadIdx.x;
#ifdef FIXED
  if (t < 16) s[t] = x[t];
  __syncthreads();
  if (t < 16) y[t] = s[15 - t];
#else
  if (t < 16) {
    s[t] = x[t];
    __syncthreads();  // BUG: divergent-barrier
    y[t] = s[15 - t];
  }
#endif
}
//// barrier_in_both_branches: two different barriers in if and else
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void branches(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  s[t] = t < 32 ? x[t] : 2 * x[t];
  __syncthreads();
#else
  if (t < 32) {
    s[t] = x[t];
    asm volatile("bar.sync 0;" ::: "memory");  // BUG: divergent-barrier @else
  } else {
    s[t] = 2 * x[t];
    asm volatile("bar.sync 0;" ::: "memory");  // @else
  }
#endif
  y[t] = s[63 - t];
}
//// barrier_in_loop: warps go round a loop with a barrier a different number of times
//// launch: grid 1 block 96 args f32[96] f32[96]
extern "C" __global__ void rounds(const float* x, float* y) {
  int t = threadIdx.x;
  float sum = 0;
#ifdef FIXED
  int rounds = 3;
#else
  int rounds = t / 32 + 1;
#endif
#pragma unroll 1
  for (int i = 0; i < rounds; i++) {
    sum += x[t];
    __syncthreads();  // BUG: divergent-barrier
  }
  y[t] = sum;
}
//// continue_past_the_barrier: warps with nothing to do skip the barrier and wait at the last one
//// launch: grid 1 block 64 args 3 f32[64] f32[64]
extern "C" __global__ void skip(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
#ifdef FIXED
    if (t < 32) s[t] += x[t];
#else
    if (t >= 32) continue;
    s[t] += x[t];
#endif
    __syncthreads();  // BUG: divergent-barrier @last; divergent-barrier
  }
  __syncthreads();  // BUG: divergent-barrier // @last
  y[t] = s[t];
}
//// named_barrier_too_many: the barrier expects 96 threads, 64 come
//// launch: grid 1 block 128 args f32[128] f32[128]
extern "C" __global__ void named(const float* x, float* y) {
  int t = threadIdx.x;
  if (t < 64) {
#ifdef FIXED
    asm volatile("bar.sync 1, 64;" ::: "memory");
#else
    asm volatile("bar.sync 1, 96;" ::: "memory");  // BUG: divergent-barrier
#endif
  }
  y[t] = x[t];
}
//// producer_uses_another_number: producers arrive at barrier 2, consumers wait at barrier 1
//// launch: grid 1 block 64 args f32[32] f32[32]
extern "C" __global__ void produce(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  if (t < 32) {
    s[t] = x[t];
#ifdef FIXED
    asm volatile("bar.arrive 1, 64;" ::: "memory");
#else
    asm volatile("bar.arrive 2, 64;" ::: "memory");
#endif
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");  // BUG: divergent-barrier
    y[t - 32] = s[63 - t];
  }
}
//// barrier_for_one_thread: the barrier stands inside the branch of thread 0
//// launch: grid 1 block 64 args f32[64]
extern "C" __global__ void single(float* y) {
  __shared__ float value;
  if (threadIdx.x == 0) {
    value = 3;
#ifndef FIXED
    __syncthreads();  // BUG: divergent-barrier
#endif
  }
#ifdef FIXED
  __syncthreads();
#endif
  if (threadIdx.x == 0) y[0] = value;
}
