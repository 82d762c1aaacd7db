//// slices_add: split-K, each slice adds its part atomically
//// launch: grid 1,1,4 block 16,16 args 64 f32[1024] f32[1024] zero_f32[256]
extern "C" __global__ void gemm(int K, const float* A, const float* B, float* C) {
  int x = threadIdx.x, y = threadIdx.y, part = K / gridDim.z;
  float sum = 0;
  for (int k = blockIdx.z * part; k < (blockIdx.z + 1) * part; k++) sum += A[y * K + k] * B[k * 16 + x];
  atomicAdd(&C[y * 16 + x], sum);
}
//// turns_at_a_semaphore: split-K whose slices add to C one after the other, so that the order of the sum is fixed
//// launch: grid 1,1,4 block 16,16 args 64 f32[1024] f32[1024] empty_f32[256] zero_i32[1]
__device__ int acquire(const int* p) {
  int v;
  asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ void release(int* p, int v) { asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
extern "C" __global__ void gemm(int K, const float* A, const float* B, float* C, int* lock) {
  int x = threadIdx.x, y = threadIdx.y, part = K / gridDim.z, i = y * 16 + x;
  float sum = 0;
  for (int k = blockIdx.z * part; k < (blockIdx.z + 1) * part; k++) sum += A[y * K + k] * B[k * 16 + x];
  if (i == 0)
    while (acquire(lock) != blockIdx.z) {}
  __syncthreads();
  C[i] = blockIdx.z ? C[i] + sum : sum;
  __syncthreads();
  if (i == 0) release(lock, blockIdx.z + 1);
}
//// stream_k: blocks share the K steps of all tiles evenly; who ends a tile adds the parts that others have left
//// launch: grid 3 block 64 args 4 4 f32[1024] zero_f32[256] zero_f32[192] zero_i32[3]
extern "C" __global__ void stream(int tiles, int steps, const float* x, float* C, float* parts, volatile int* flags) {
  // tile t is the sum over its steps of x[t][step][0..63]; a block takes a run of (tile, step)
  int t = threadIdx.x, total = tiles * steps, each = (total + gridDim.x - 1) / gridDim.x;
  int at = blockIdx.x * each, end = min(at + each, total);
  while (at < end) {
    int tile = at / steps, first = at % steps, last = min(steps, first + end - at);
    float sum = 0;
    for (int s = first; s < last; s++) sum += x[(tile * steps + s) * 64 + t];
    at += last - first;
    if (last < steps) {  // the tile goes on in the next block: leave the part there
      parts[blockIdx.x * 64 + t] = sum;
      __threadfence();
      __syncthreads();
      if (t == 0) flags[blockIdx.x] = 1;
    } else {
      for (int k = first; k > 0; k -= each) {  // parts of the blocks before
        int from = (tile * steps + k - 1) / each;
        if (t == 0)
          while (flags[from] == 0) {}
        __syncthreads();
        __threadfence();
        sum += parts[from * 64 + t];
      }
      C[tile * 64 + t] = sum;
    }
  }
}
//// look_back: a prefix sum in one pass; a block adds the sums of its predecessors as they come
//// launch: grid 8 block 32 args i32[256] i32[256] zero_i32[8] zero_i32[8] zero_i32[8]
extern "C" __global__ void scan(const int* x, int* y, volatile int* state, volatile int* sums, volatile int* prefixes) {
  int t = threadIdx.x, b = blockIdx.x, value = x[b * 32 + t];
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_up_sync(0xffffffff, value, d);
    if (t >= d) value += other;
  }
  int total = __shfl_sync(0xffffffff, value, 31), before = 0;
  if (t == 0) {
    if (b == 0) prefixes[0] = total;
    else sums[b] = total;
    __threadfence();
    state[b] = b == 0 ? 2 : 1;
    for (int i = b - 1; i >= 0; i--) {
      int s;
      do s = state[i]; while (s == 0);
      __threadfence();
      if (s == 2) {
        before += prefixes[i];
        break;
      }
      before += sums[i];
    }
    if (b > 0) {
      prefixes[b] = before + total;
      __threadfence();
      state[b] = 2;
    }
  }
  before = __shfl_sync(0xffffffff, before, 0);
  y[b * 32 + t] = before + value;
}
//// last_block_adds_up: whoever comes last adds the parts of all
//// launch: grid 8 block 64 args f32[512] f32[8] f32[1] zero_u32[1]
extern "C" __global__ void reduce(const float* x, float* parts, float* y, unsigned* count) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  for (int h = 32; h; h /= 2) {
    __syncthreads();
    if (t < h) s[t] += s[t + h];
  }
  if (t == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += ((volatile float*)parts)[i];
    *y = sum;
  }
}
//// grid_barrier: all blocks meet between two passes over the same array
//// launch: grid 4 block 64 args 5 f32[256] f32[256] zero_u32[1]
__device__ void meet(unsigned* count, unsigned goal) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(count, 1);
    while (*(volatile unsigned*)count < goal) {}
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void jacobi(int rounds, float* a, float* b, unsigned* count) {
  int i = blockIdx.x * 64 + threadIdx.x, n = gridDim.x * 64;
  for (int r = 0; r < rounds; r++) {
    b[i] = (a[(i + n - 1) % n] + a[(i + 1) % n]) / 2;
    meet(count, (r + 1) * gridDim.x);
    float* swap = a;
    a = b;
    b = swap;
  }
}
//// cooperative_grid: the same with cooperative groups
//// launch: grid 4 block 64 args f32[256] f32[4] f32[1]
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void reduce(const float* x, float* parts, float* y) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  __shared__ float s[2];
  float value = x[blockIdx.x * 64 + threadIdx.x];
  for (int d = 16; d; d /= 2) value += warp.shfl_down(value, d);
  if (warp.thread_rank() == 0) s[warp.meta_group_rank()] = value;
  block.sync();
  if (block.thread_rank() == 0) parts[blockIdx.x] = s[0] + s[1];
  cg::this_grid().sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) *y = parts[0] + parts[1] + parts[2] + parts[3];
}
//// persistent_tiles: blocks fetch their next tile from an atomic counter
//// launch: grid 3 block 64 args 8 zero_i32[1] f32[512] f32[512]
extern "C" __global__ void tiles(int n, int* next, const float* x, float* y) {
  __shared__ int tile;
  while (true) {
    if (threadIdx.x == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    int mine = tile;
    __syncthreads();
    if (mine >= n) return;
    y[mine * 64 + threadIdx.x] = 2 * x[mine * 64 + threadIdx.x];
  }
}
//// locked_list: a lock around plain accesses
//// launch: grid 4 block 32 args i32[128] zero_i32[1] zero_i32[2]
extern "C" __global__ void best(const int* x, int* lock, int* result) {
  // the largest product and how many there were; one thread of each block takes the lock
  int value = x[blockIdx.x * 32 + threadIdx.x] * ((blockIdx.x * 7) % 5);
  for (int d = 16; d; d /= 2) value = max(value, __shfl_xor_sync(0xffffffff, value, d));
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    if (value > result[0]) result[0] = value;
    result[1] += 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}
//// maximum_by_cas: atomicMax for floats, with a plain first look
//// launch: grid 4 block 64 args f32[256] zero_f32[1]
extern "C" __global__ void maximum(const float* x, float* y) {
  float value = x[blockIdx.x * 64 + threadIdx.x] + blockIdx.x;
  int* place = (int*)y;
  int old = *place, assumed;
  while (value > __int_as_float(old)) {
    assumed = old;
    old = atomicCAS(place, assumed, __float_as_int(value));
    if (old == assumed) break;
  }
}
//// histogram: bins in shared memory, then added to those of all blocks
//// launch: grid 4 block 64 args i32[256] zero_i32[16]
extern "C" __global__ void histogram(const int* x, int* bins) {
  __shared__ int s[16];
  int t = threadIdx.x;
  if (t < 16) s[t] = 0;
  __syncthreads();
  atomicAdd(&s[x[blockIdx.x * 64 + t] * 7 % 16], 1);
  __syncthreads();
  if (t < 16) atomicAdd(&bins[t], s[t]);
}
//// aggregated_atomics: one atomic per warp and bin
//// launch: grid 2 block 64 args i32[128] zero_i32[8]
extern "C" __global__ void count(const int* x, int* bins) {
  int bin = x[blockIdx.x * 64 + threadIdx.x] * 5 % 8;
  unsigned same = __match_any_sync(0xffffffff, bin);
  if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(&bins[bin], __popc(same));
}
//// found_flag: everybody may say so, with the same value; others look now and then
//// launch: grid 4 block 64 args i32[256] zero_i32[1] zero_i32[1]
extern "C" __global__ void search(const int* x, volatile int* stop, int* found) {
  int i = blockIdx.x * 64 + threadIdx.x;
  for (int r = 0; r < 4 && !*stop; r++)
    if (x[i] + r == 100) {
      *found = 1;
      *stop = 1;
    }
}
//// wavefront: row after row, each block waits for its left neighbour's last value
//// launch: grid 4 block 32 args f32[128] f32[128] zero_i32[4]
extern "C" __global__ void carry(const float* x, float* y, int* ready) {
  int t = threadIdx.x, i = blockIdx.x * 32 + t;
  float before = 0, value = x[i];
  if (t == 0 && blockIdx.x > 0) {
    while (atomicAdd(&ready[blockIdx.x - 1], 0) == 0) {}
    __threadfence();
    before = y[i - 1];
  }
  before = __shfl_sync(0xffffffff, before, 0);
  for (int d = 1; d < 32; d *= 2) {
    float other = __shfl_up_sync(0xffffffff, value, d);
    if (t >= d) value += other;
  }
  y[i] = before + value;
  __threadfence();
  __syncwarp();
  if (t == 31) atomicExch(&ready[blockIdx.x], 1);
}
//// released_by_an_atomic: message passing with cuda::atomic_ref
//// launch: grid 2 block 64 args f32[64] f32[64] zero_i32[1] f32[64]
#include <cuda/atomic>
extern "C" __global__ void pass(const float* x, float* data, int* flag, float* y) {
  int t = threadIdx.x;
  cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
  if (blockIdx.x == 0) {
    data[t] = 3 * x[t];
    __syncthreads();
    if (t == 0) ready.store(1, cuda::memory_order_release);
  } else {
    if (t == 0)
      while (ready.load(cuda::memory_order_acquire) == 0) {}
    __syncthreads();
    y[t] = data[63 - t];
  }
}
//// transpose_in_place: one block of each pair of tiles swaps them
//// launch: grid 2,2 block 8,8 args f32[256]
extern "C" __global__ void transpose(float* A) {
  __shared__ float upper[8][9], lower[8][9];
  int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 8, j = blockIdx.x * 8;
  if (i > j) return;
  upper[y][x] = A[(i + y) * 16 + j + x];
  lower[y][x] = A[(j + y) * 16 + i + x];
  __syncthreads();
  A[(j + y) * 16 + i + x] = upper[x][y];
  if (i != j) A[(i + y) * 16 + j + x] = lower[x][y];
}
//// residual: C = A · B + C, each thread its own elements, four at a time
//// launch: grid 1,4 block 4,4 args 16 f32[256] f32[256] f32[256]
extern "C" __global__ void gemm(int K, const float* A, const float* B, float* C) {
  int x = 4 * threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
  float4 sum = *(float4*)(C + y * 16 + x);
  for (int k = 0; k < K; k++) {
    float a = A[y * K + k];
    float4 b = *(const float4*)(B + k * 16 + x);
    sum.x += a * b.x; sum.y += a * b.y; sum.z += a * b.z; sum.w += a * b.w;
  }
  *(float4*)(C + y * 16 + x) = sum;
}
//// through_device_memory: threads of a block exchange values in an array, with barriers
//// launch: grid 4 block 64 args f32[256] f32[256]
extern "C" __global__ void exchange(float* x, float* y) {
  int t = threadIdx.x;
  float* mine = x + blockIdx.x * 64;
  for (int r = 0; r < 3; r++) {
    float value = mine[63 - t];
    __syncthreads();
    mine[t] = value + 1;
    __syncthreads();
  }
  y[blockIdx.x * 64 + t] = mine[t ^ 1];
}
//// clears_then_adds: a block's own part of C is set to zero, then added to atomically
//// launch: grid 4 block 64 args f32[256] empty_f32[16]
extern "C" __global__ void bins(const float* x, float* C) {
  int t = threadIdx.x;
  if (t < 4) C[blockIdx.x * 4 + t] = 0;
  __syncthreads();
  atomicAdd(&C[blockIdx.x * 4 + t % 4], x[blockIdx.x * 64 + t]);
}
