//// slices_overwrite: split-K whose slices store their part of the sum instead of adding it
//// launch: grid 1,1,2 block 16,16 args 24 f32[384] f32[384] zero_f32[256]
extern "C" __global__ void gemm(int K, const float* A, const float* B, float* C) {
  int x = threadIdx.x, y = threadIdx.y, first = blockIdx.z * K / 2;
  float sum = 0;
  for (int k = first; k < first + K / 2; k++) sum += A[y * K + k] * B[k * 16 + x];
#ifdef FIXED
  atomicAdd(&C[y * 16 + x], sum);
#else
  C[y * 16 + x] = sum;  // BUG: race self
#endif
}
//// semaphore_without_fence: split-K blocks take turns at C, but nothing makes a turn's stores visible to the next
//// launch: grid 4 block 64 args f32[256] zero_f32[64] zero_i32[1]
extern "C" __global__ void turns(const float* x, float* C, int* turn) {
  int t = threadIdx.x;
  if (t == 0)
    while (atomicAdd(turn, 0) != blockIdx.x) {}
  __syncthreads();
  C[t] += x[blockIdx.x * 64 + t];  // BUG: race self
#ifdef FIXED
  __threadfence();
#endif
  __syncthreads();
  if (t == 0) atomicAdd(turn, 1);
}
//// ticket_without_atomics: the last block to come adds up the parts, but the counter is a plain one
//// launch: grid 4 block 32 args f32[128] zero_f32[4] f32[1] zero_i32[1]
extern "C" __global__ void reduce(const float* x, float* parts, float* y, int* done) {
  __shared__ int ticket;
  float sum = x[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
    __threadfence();
#ifdef FIXED
    ticket = atomicAdd(done, 1);
#else
    ticket = (*done)++;  // BUG: race self
#endif
  }
  __syncthreads();
  if (ticket == 3 && threadIdx.x == 0) {
#ifdef FIXED
    __threadfence();
#endif
    float all = 0;
    for (int i = 0; i < 4; i++) all += parts[i];
    *y = all;
  }
}
//// tiles_from_a_plain_counter: persistent blocks fetch their next tile without atomics
//// launch: grid 3 block 32 args 6 zero_i32[1] f32[192] f32[192]
extern "C" __global__ void tiles(int n, int* next, const float* x, float* y) {
  __shared__ int tile;
  while (true) {
    if (threadIdx.x == 0) {
#ifdef FIXED
      tile = atomicAdd(next, 1);
#else
      tile = *next;      // @look
      *next = tile + 1;  // BUG: race self; race @look
#endif
    }
    __syncthreads();
    int mine = tile;
    __syncthreads();
    if (mine >= n) return;
    y[mine * 32 + threadIdx.x] = 2 * x[mine * 32 + threadIdx.x];
  }
}
//// transpose_in_place: both blocks of a pair of tiles swap them
//// launch: grid 2,2 block 8,8 args f32[256]
extern "C" __global__ void transpose(float* A) {
  int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
#ifdef FIXED
  if (x >= y) return;
#else
  if (x == y) return;
#endif
  float a = A[y * 16 + x], b = A[x * 16 + y];  // @read
  A[y * 16 + x] = b;  // BUG: race @read
  A[x * 16 + y] = a;
}
//// smoothing_in_place: a block reads its neighbour's column, which that one replaces
//// launch: grid 4 block 32 args f32[129] f32[128]
extern "C" __global__ void smooth(float* x, float* y) {
  int i = blockIdx.x * 32 + threadIdx.x;
  float a = x[i], b = x[i + 1];  // @read
#ifdef FIXED
  y[i] = (a + b) / 2;
#else
  __syncthreads();
  x[i] = (a + b) / 2;  // BUG: race @read
#endif
}
//// stop_flag_before_data: data and flag, and the fence between them forgotten
//// launch: grid 2 block 32 args f32[32] zero_f32[32] zero_i32[1] f32[32]
extern "C" __global__ void pass(const float* x, float* data, volatile int* flag, float* y) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    data[t] = 2 * x[t];  // @data
#ifdef FIXED
    __threadfence();
#endif
    __syncthreads();
    if (t == 0) *flag = 1;
  } else {
    while (*flag == 0) {}
#ifdef FIXED
    __threadfence();
#endif
    y[t] = data[31 - t];  // BUG: race @data
  }
}
//// shuffle_in_half_a_warp: a full mask, but only half of the lanes add up
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void sum(const float* x, float* y) {
  int t = threadIdx.x;
  float value = x[t];
  if (t < 16) {
#ifdef FIXED
    unsigned mask = 0x0000ffff;
#else
    unsigned mask = 0xffffffff;
#endif
#pragma unroll 1
    for (int d = 8; d; d /= 2)
      value += __shfl_down_sync(mask, value, d, 16);  // BUG: divergent-barrier
    y[t] = value;
    return;
  }
#pragma unroll 1
  for (int i = 0; i < (int)x[0] + 3; i++) y[t] += value;
}
//// shuffle_of_the_wrong_half: the upper half calls with the lower half's mask
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void sum(const float* x, float* y) {
  int t = threadIdx.x;
#ifdef FIXED
  unsigned mask = t < 16 ? 0x0000ffff : 0xffff0000;
#else
  unsigned mask = 0x0000ffff;
#endif
  float value = x[t];
  for (int d = 8; d; d /= 2)
    value += __shfl_xor_sync(mask, value, d);  // BUG: divergent-barrier
  y[t] = value;
}
//// ballot_after_the_others_left: half of the warp waits at the block's barrier
//// launch: grid 1 block 64 args f32[64] i32[64]
extern "C" __global__ void votes(const float* x, int* y) {
  int t = threadIdx.x, count = 0;
#ifdef FIXED
  count = __popc(__ballot_sync(0xffffffff, x[t] > 3));
#else
  if (t % 32 < 16)
    count = __popc(__ballot_sync(0xffffffff, x[t] > 3));  // BUG: divergent-barrier
#endif
  __syncthreads();
  y[t] = count;
}
//// consumers_of_another_barrier: producer and consumers count on different numbers of threads
//// launch: grid 1 block 128 args 3 f32[96] f32[96]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
#ifdef FIXED
  const int all = 128;
#else
  const int all = 160;
#endif
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      s[t] = x[i * 32 + t];
      asm volatile("bar.arrive 1, %0;" ::"r"(all) : "memory");  // @arrive
      asm volatile("bar.sync 2, 128;" ::: "memory");  // BUG: divergent-barrier @full
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");  // @full // BUG: divergent-barrier @arrive
      if (t < 64) y[i * 32 + t - 32] = s[63 - t];
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}
//// full_and_empty_swapped: the producer waits for the barrier it should announce
//// launch: grid 1 block 64 args 2 f32[64] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      s[t] = x[i * 32 + t];
#ifdef FIXED
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
#else
      asm volatile("bar.sync 2, 64;" ::: "memory");  // BUG: divergent-barrier @consumer
      asm volatile("bar.arrive 1, 64;" ::: "memory");
#endif
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");  // @consumer
      y[i * 32 + t - 32] = s[63 - t];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}
//// stage_reused_too_early: the producer does not wait until the stage is empty
//// launch: grid 1 block 64 args 4 f32[128] f32[128]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  int t = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (t < 32) {
#ifdef FIXED
      if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + i % 2) : "memory");
#endif
      s[i % 2][t] = x[i * 32 + t];  // BUG: race @read
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + i % 2) : "memory");  // BUG: divergent-barrier @full
    } else {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + i % 2) : "memory");  // @full
      y[i * 32 + t - 32] = s[i % 2][63 - t];  // @read
#ifdef FIXED
      if (i + 2 < n) asm volatile("bar.arrive %0, 64;" ::"r"(3 + i % 2) : "memory");
#endif
    }
  }
}
//// ldmatrix_of_short_rows: rows of 20 halves are 40 bytes apart, and ldmatrix wants multiples of 16
//// launch: grid 1 block 32 args f16[160] u32[32]
#include <cuda_fp16.h>
extern "C" __global__ void fragment(const __half* x, unsigned* y) {
#ifdef FIXED
  const int row = 24;
#else
  const int row = 20;
#endif
  __shared__ __align__(16) __half s[8 * 24];
  int t = threadIdx.x;
  for (int i = t; i < 8 * row; i += 32) s[i] = x[i % 160];
  __syncwarp();
  unsigned from = __cvta_generic_to_shared(s + t % 8 * row), r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(from) : "memory");  // BUG: misaligned
  y[t] = r;
}
//// ldmatrix_without_barrier: the fragment is loaded before the other warp has filled the tile
//// launch: grid 1 block 64 args f16[128] u32[64]
#include <cuda_fp16.h>
extern "C" __global__ void fragment(const __half* x, unsigned* y) {
  __shared__ __align__(16) __half s[16 * 8];
  int t = threadIdx.x;
  s[2 * t] = x[2 * t];          // @store
  s[2 * t + 1] = x[2 * t + 1];  // @second
#ifdef FIXED
  __syncthreads();
#else
  __syncwarp();
#endif
  unsigned from = __cvta_generic_to_shared(s + t % 16 * 8), a, b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");  // BUG: race @store
  y[t] = a + b;
}
//// wmma_tile_beyond_a: the last tile of 16 rows, where A has only 24
//// launch: grid 2 block 32 args 24 f16[384] f16[256] f32[512]
//// twin: grid 1 block 32 args 24 f16[384] f16[256] f32[512]
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void gemm(int M, const half* A, const half* B, float* C) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  int row = blockIdx.x * 16;
  wmma::load_matrix_sync(a, A + row * 16, 16);  // BUG: out-of-bounds
  wmma::load_matrix_sync(b, B, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C + row * 16, c, 16, wmma::mem_row_major);
}
//// wmma_tile_beyond_c: 16 columns are stored where C has 8 left
//// launch: grid 2 block 32 args f16[256] f32[384]
//// twin: grid 1 block 32 args f16[256] f32[384]
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void store(const half* A, float* C) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, blockIdx.x);
  wmma::load_matrix_sync(a, A, 16);
  wmma::load_matrix_sync(b, A, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C + blockIdx.x * 16, c, 24, wmma::mem_row_major);  // BUG: out-of-bounds; race self
}
//// wmma_tile_without_barrier: the fragment is loaded before the other warps have filled the tile
//// launch: grid 1 block 128 args f16[256] f32[256]
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void gemm(const half* A, float* C) {
  __shared__ __align__(32) half s[16 * 16];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 128) s[i] = A[i];  // @store
#ifdef FIXED
  __syncthreads();
#endif
  if (t >= 32) return;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  wmma::load_matrix_sync(a, s, 16);  // BUG: race @store
  wmma::load_matrix_sync(b, s, 16);  // BUG: race @store
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}
//// epilogue_without_barrier: the accumulator goes through shared memory, and each thread reads what others stored
//// launch: grid 1 block 64 args f16[256] f32[512]
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void gemm(const half* A, float* C) {
  __shared__ __align__(32) float s[2][16 * 16];
  int t = threadIdx.x;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, t / 32);
  wmma::load_matrix_sync(a, A, 16);
  wmma::load_matrix_sync(b, A, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(s[t / 32], c, 16, wmma::mem_row_major);  // @store
#ifdef FIXED
  __syncthreads();
#endif
#pragma unroll 1
  for (int i = t; i < 512; i += 64)
    C[i] = s[i / 256][i % 256];  // BUG: race @store
}
//// three_stages_two_waited: with three stages in flight, wait_group 2 leaves the one in use
//// launch: grid 1 block 64 args 6 f32[384] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[3][64];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < 2; i++) {
    unsigned to = __cvta_generic_to_shared(&s[i][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + i * 64 + t) : "memory");  // @prologue
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
#pragma unroll 1
  for (int i = 0; i < n; i++) {
#ifdef FIXED
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#else
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#endif
    __syncthreads();
    if (i + 2 < n) {
      unsigned to = __cvta_generic_to_shared(&s[(i + 2) % 3][t]);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + (i + 2) * 64 + t) : "memory");  // @copy
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    sum += s[i % 3][63 - t];  // BUG: missing-wait @prologue; missing-wait @copy
  }
  y[t] = sum;
}
//// prefetch_into_the_tile_in_use: two stages and one barrier per tile, and the copy starts before it
//// launch: grid 1 block 64 args 5 f32[320] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  float sum = 0;
  unsigned to = __cvta_generic_to_shared(&s[0][t]);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
#pragma unroll 1
  for (int i = 0; i < n; i++) {
#ifdef FIXED
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    unsigned next = __cvta_generic_to_shared(&s[(i + 1) % 2][t]);
    if (i + 1 < n) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(next), "l"(x + i * 64 + 64 + t) : "memory");
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
    unsigned next = __cvta_generic_to_shared(&s[(i + 1) % 2][t]);
    if (i + 1 < n) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(next), "l"(x + i * 64 + 64 + t) : "memory");  // BUG: race @read
    __syncthreads();
#endif
    sum += s[i % 2][63 - t];  // @read
  }
  y[t] = sum;
}
//// c_scaled_by_nothing: beta * C although C was never written, and beta is 0
//// launch: grid 1 block 16,16 args 16 0 f32[256] f32[256] empty_f32[256]
extern "C" __global__ void gemm(int K, int beta, const float* A, const float* B, float* C) {
  int x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int k = 0; k < K; k++) sum += A[y * K + k] * B[k * 16 + x];
#ifdef FIXED
  if (beta == 0)
    C[y * 16 + x] = sum;
  else
#endif
    C[y * 16 + x] = sum + beta * C[y * 16 + x];  // BUG: uninitialized
}
//// accumulates_into_fresh_c: the K loop adds to C, which nobody has set to zero
//// launch: grid 2 block 16,8 args 16 f32[256] f32[256] empty_f32[256]
extern "C" __global__ void gemm(int K, const float* A, const float* B, float* C) {
  int x = threadIdx.x, y = blockIdx.x * 8 + threadIdx.y;
#ifdef FIXED
  C[y * 16 + x] = 0;
#endif
#pragma unroll 1
  for (int k = 0; k < K; k++)
    C[y * 16 + x] += A[y * K + k] * B[k * 16 + x];  // BUG: uninitialized
}
//// atomics_on_fresh_c: split-K adds atomically to a C that nobody has set to zero
//// launch: grid 4 block 32 args f32[128] empty_f32[32]
//// twin: grid 4 block 32 args f32[128] zero_f32[32]
extern "C" __global__ void split(const float* x, float* C) {
  atomicAdd(C + threadIdx.x, x[blockIdx.x * 32 + threadIdx.x]);  // BUG: uninitialized
}
