//// producer_and_consumers: one warp fills two stages, three warps empty them; named barriers say full and empty
//// launch: grid 2 block 128 args 6 f32[384] f32[192]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  int t = threadIdx.x, stage;
  float sum = 0;
  for (int i = 0; i < n; i++) {
    stage = i % 2;
    if (t < 32) {
      if (i >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + stage) : "memory");
      s[stage][t] = x[(blockIdx.x * n + i) * 32 + t];
      asm volatile("bar.arrive %0, 128;" ::"r"(1 + stage) : "memory");
    } else {
      asm volatile("bar.sync %0, 128;" ::"r"(1 + stage) : "memory");
      sum += s[stage][(t + i) % 32] * (t / 32);
      if (i + 2 < n) asm volatile("bar.arrive %0, 128;" ::"r"(3 + stage) : "memory");
    }
  }
  if (t >= 32) y[blockIdx.x * 96 + t - 32] = sum;
}
//// halves_apart: each half of the block has a barrier of its own
//// launch: grid 1 block 128 args f32[128] f32[128]
extern "C" __global__ void halves(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x, half = t / 64;
  s[t] = x[t];
  asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
  y[t] = s[64 * half + 63 - t % 64];
}
//// ping_pong: two groups of warps take turns at one buffer
//// launch: grid 1 block 64 args 4 f32[256] f32[256]
extern "C" __global__ void turns(int n, const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x, me = t / 32, lane = t % 32;
  for (int i = 0; i < n; i++) {
    if (me == 0 && i > 0 || me == 1) asm volatile("bar.sync %0, 64;" ::"r"(1 + me) : "memory");
    s[lane] = x[(2 * i + me) * 32 + lane];
    __syncwarp();
    y[(2 * i + me) * 32 + lane] = s[31 - lane];
    if (me == 0 || i + 1 < n) asm volatile("bar.arrive %0, 64;" ::"r"(2 - me) : "memory");
  }
}
//// warp_synchronous_tree: the last levels of a reduction with __syncwarp()
//// launch: grid 2 block 128 args f32[256] f32[2]
extern "C" __global__ void tree(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  if (t < 64) s[t] += s[t + 64];
  __syncthreads();
  if (t < 32) {
    float sum = s[t] + s[t + 32];
    __syncwarp();
    for (int h = 16; h; h /= 2) {
      s[t] = sum;
      __syncwarp();
      sum += s[(t + h) % 32];
      __syncwarp();
    }
    if (t == 0) y[blockIdx.x] = sum;
  }
}
//// halves_of_a_warp: 16 lanes each, with masks of their own
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void exchange(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned mask = t % 32 < 16 ? 0x0000ffff : 0xffff0000;
  s[t] = x[t];
  __syncwarp(mask);
  y[t] = s[t ^ 15];
}
//// masked_tail: the lanes that have work vote before they call
//// launch: grid 1 block 64 args 45 f32[64] zero_f32[64]
extern "C" __global__ void tail(int n, const float* x, float* y) {
  int t = threadIdx.x;
  unsigned mask = __ballot_sync(0xffffffff, t < n);
  if (t < n) {
    float other = __shfl_xor_sync(mask, x[t], 1);
    y[t] = (t ^ 1) < n ? other : x[t];
    __syncwarp(mask);
  }
}
//// early_leavers: threads beyond the end leave, the rest of the warp goes on
//// launch: grid 2 block 64 args 100 f32[128] zero_f32[128]
extern "C" __global__ void leave(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (i >= n) return;
  s[t] = x[i];
  __syncwarp();
  y[i] = s[t ^ 1];
}
//// row_per_warp: matrix times vector, a warp for each row
//// launch: grid 4 block 64 args 96 f32[768] f32[96] f32[8]
extern "C" __global__ void gemv(int n, const float* A, const float* x, float* y) {
  int row = blockIdx.x * 2 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int k = lane; k < n; k += 32) sum += A[row * n + k] * x[k];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
  if (lane == 0) y[row] = sum;
}
//// two_buffers_scan: a prefix sum that reads one buffer and writes the other
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void scan(const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x, from = 0;
  s[0][t] = x[t];
  for (int d = 1; d < 64; d *= 2) {
    __syncthreads();
    s[from ^ 1][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
    from ^= 1;
  }
  y[t] = s[from][t];
}
//// block_decides_together: __syncthreads_or() ends the loop of all
//// launch: grid 1 block 64 args i32[64] i32[64]
extern "C" __global__ void settle(const int* x, int* y) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = x[63 - t];
  __syncthreads();
  while (true) {  // odd-even sort
    bool swapped = false;
    for (int phase = 0; phase < 2; phase++) {
      int i = t * 2 + phase;
      if (i + 1 < 64 && s[i] > s[i + 1]) {
        int a = s[i];
        s[i] = s[i + 1];
        s[i + 1] = a;
        swapped = true;
      }
      __syncthreads();
    }
    if (!__syncthreads_or(swapped)) break;
  }
  y[t] = s[t];
}
//// tokens_of_the_library: cuda::barrier as producer and consumer
//// launch: grid 1 block 64 args 4 f32[128] f32[128]
#include <cuda/barrier>
extern "C" __global__ void stages(int n, const float* x, float* y) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ float s[32];
  __shared__ barrier full, empty;
  int t = threadIdx.x;
  if (t == 0) {
    init(&full, 64);
    init(&empty, 64);
  }
  __syncthreads();
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      s[t] = x[i * 32 + t];
      (void)full.arrive();
      empty.arrive_and_wait();
    } else {
      full.arrive_and_wait();
      y[i * 32 + t - 32] = s[63 - t];
      (void)empty.arrive();
    }
  }
}
