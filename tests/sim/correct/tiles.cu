//// one_barrier_per_tile: two stages; the prefetch goes to the stage that everybody has left
//// launch: grid 1 block 64 args 6 f32[384] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  float sum = 0;
  s[0][t] = x[t];
  __syncthreads();
  for (int i = 0; i < n; i++) {
    float next = i + 1 < n ? x[(i + 1) * 64 + t] : 0;
    sum += s[i % 2][63 - t];
    if (i + 1 < n) s[(i + 1) % 2][t] = next;
    __syncthreads();
  }
  y[t] = sum;
}
//// swizzled_tiles: two tiles without padding, columns permuted by the row
//// launch: grid 2,2 block 16,16 args 32 f32[1024] f32[1024] f32[1024]
extern "C" __global__ void gemm(int n, const float* A, const float* B, float* C) {
  __shared__ float As[16][16], Bs[16][16];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int k0 = 0; k0 < n; k0 += 16) {
    As[y][x ^ y] = A[row * n + k0 + x];
    Bs[x][y ^ x] = B[(k0 + y) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += As[y][k ^ y] * Bs[x][k ^ x];
    __syncthreads();
  }
  C[row * n + col] = sum;
}
//// three_stages_of_copies: cp.async with two tiles under way
//// launch: grid 1 block 64 args 6 f32[384] f32[64]
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[3][64];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < 2; i++) {
    unsigned to = __cvta_generic_to_shared(&s[i][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + i * 64 + t) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int i = 0; i < n; i++) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    if (i + 2 < n) {
      unsigned to = __cvta_generic_to_shared(&s[(i + 2) % 3][t]);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + (i + 2) * 64 + t) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    sum += s[i % 3][63 - t];
  }
  y[t] = sum;
}
//// copies_announced_by_an_mbarrier: cp.async arrives at an mbarrier that the readers wait for
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ float s[64];
  __shared__ unsigned long long bar;
  int t = threadIdx.x;
  unsigned b = __cvta_generic_to_shared(&bar), to = __cvta_generic_to_shared(s + t), done = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(b) : "memory");
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(b) : "memory");
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b) : "memory");
  y[t] = s[63 - t];
}
//// ldmatrix_and_mma: 16 x 8 x 16 products from two stages of copied halves, rows swizzled
//// launch: grid 1 block 32 args 3 f16[768] f16[384] f32[128]
#include <cuda_fp16.h>
__device__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
extern "C" __global__ void gemm(int n, const __half* A, const __half* B, float* C) {
  // A is 16 x 16n (row-major), B is 8 x 16n (columns of the product, k along the row); C is 16 x 8
  __shared__ __align__(16) __half As[2][16][16], Bs[2][8][16];
  int lane = threadIdx.x, K = 16 * n;
  float c[4] = {};
  auto fetch = [&](int i) {
    int row = lane / 2, part = lane % 2;
    copy16(&As[i % 2][row][8 * (part ^ (row >> 2 & 1))], A + row * K + 16 * i + 8 * part);
    if (lane < 16) copy16(&Bs[i % 2][row][8 * (part ^ (row >> 2 & 1))], B + row * K + 16 * i + 8 * part);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  for (int i = 0; i < n; i++) {
    if (i + 1 < n) {
      fetch(i + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    int row = lane % 16, part = lane / 16;
    unsigned a[4], b[2], from = __cvta_generic_to_shared(&As[i % 2][row][8 * (part ^ (row >> 2 & 1))]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
    row = lane % 8, part = lane / 8 % 2;
    from = __cvta_generic_to_shared(&Bs[i % 2][row][8 * (part ^ (row >> 2 & 1))]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(from) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    __syncwarp();
  }
  for (int i = 0; i < 4; i++) C[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}
//// wmma_through_shared: tiles staged by all warps, the result written through shared memory
//// launch: grid 1 block 64 args 32 f16[512] f16[1024] f32[512]
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void gemm(int K, const half* A, const half* B, float* C) {
  // A is 16 x K, B is K x 32, C is 16 x 32; warp w computes columns 16w
  __shared__ __align__(32) half As[16][16], Bs[16][32];
  __shared__ __align__(32) float Cs[2][16][16];
  int t = threadIdx.x, w = t / 32;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  for (int k = 0; k < K; k += 16) {
    for (int i = t; i < 256; i += 64) As[i / 16][i % 16] = A[i / 16 * K + k + i % 16];
    for (int i = t; i < 512; i += 64) Bs[i / 32][i % 32] = B[(k + i / 32) * 32 + i % 32];
    __syncthreads();
    wmma::load_matrix_sync(a, &As[0][0], 16);
    wmma::load_matrix_sync(b, &Bs[0][16 * w], 32);
    wmma::mma_sync(c, a, b, c);
    __syncthreads();
  }
  wmma::store_matrix_sync(&Cs[w][0][0], c, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = t % 32; i < 256; i += 32) C[i / 16 * 32 + 16 * w + i % 16] = Cs[w][i / 16][i % 16];
}
//// pipeline_of_the_library: <cuda/pipeline>, two stages, memcpy_async
//// launch: grid 1 block 64 args 4 f32[256] f32[64]
#include <cooperative_groups.h>
#include <cuda/pipeline>
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][64];
  auto block = cooperative_groups::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto pipe = cuda::make_pipeline(block, &state);
  int t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < n + 1; i++) {
    if (i < n) {
      pipe.producer_acquire();
      cuda::memcpy_async(&s[i % 2][t], &x[i * 64 + t], sizeof(float), pipe);
      pipe.producer_commit();
    }
    if (i > 0) {
      pipe.consumer_wait();
      block.sync();
      sum += s[(i - 1) % 2][63 - t];
      block.sync();
      pipe.consumer_release();
    }
  }
  y[t] = sum;
}
//// epilogue_in_the_tiles_memory: the tile is read for the last time, then C is staged in it
//// launch: grid 1 block 64 shared 256 args f32[64] f32[64]
extern "C" __global__ void epilogue(const float* x, float* y) {
  extern __shared__ float s[];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 64; k++) sum += s[k] * (k == t);
  __syncthreads();
  s[63 - t] = sum;
  __syncthreads();
  y[t] = s[t];
}
//// either_array: one pointer leads to whichever of two arrays
//// launch: grid 1 block 64 args 1 f32[64] f32[64]
extern "C" __global__ void either(int which, const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  a[t] = x[t];
  b[t] = 2 * x[t];
  __syncthreads();
  const float* from = which ? b : a;
  y[t] = from[63 - t];
}
//// pointers_in_a_table: the addresses of two arrays are kept in an array of the thread's own
//// launch: grid 1 block 64 args 3 f32[64] f32[64]
extern "C" __global__ void table(int n, const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  float* stage[2] = {a, b};
  for (int i = 0; i < n; i++) {
    stage[(i + n) % 2][t] = x[t] + i;
    __syncthreads();
    y[t] = stage[(i + n) % 2][63 - t];
    __syncthreads();
  }
}
//// a_distance_between_arrays: one array is reached from the other by the distance between them
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void distance(const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  a[t] = x[t];
  b[t] = 2 * x[t];
  __syncthreads();
  long long apart = b - a;
  y[t] = (t % 2 ? a + apart : a)[63 - t];
}
//// up_to_the_end: a pointer runs one past its array, and what it reads does not
//// launch: grid 1 block 32 args f32[96] f32[32]
extern "C" __global__ void running(const float* x, float* y) {
  __shared__ float a[96], b[32];
  int t = threadIdx.x;
  for (int i = 0; i < 3; i++) a[t + 32 * i] = x[t + 32 * i];
  b[t] = 1;
  __syncthreads();
  float sum = b[31 - t];
  for (const float* p = a + (31 - t); p < a + 96; p += 32) sum += *p;
  y[t] = sum;
}
