//// read_before_arrival: the copy announces itself at an mbarrier that nobody waits for
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&bar)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x), "r"(AT(&bar)) : "memory");  // @copy
  }
#ifdef FIXED
  int done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
#endif
  __syncthreads();
  y[blockIdx.x * 64 + t] = s[63 - t];  // BUG: missing-wait @copy
}
//// one_thread_waits: only the thread that started the copy knows when it has come
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
  __syncthreads();
  if (t == 0) {
    int done = 0;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&bar)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x), "r"(AT(&bar)) : "memory");  // @copy
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
  }
#ifdef FIXED
  __syncthreads();
#endif
  y[blockIdx.x * 64 + t] = s[63 - t];  // BUG: missing-wait @copy
}
//// wrong_parity: the second copy is waited for with the parity of the first
//// launch: grid 2 block 64 args f32[128] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x;
  float sum = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
  __syncthreads();
  for (int i = 0; i < 2; i++) {
    if (t == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&bar)) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x + 64 * i), "r"(AT(&bar)) : "memory");  // @copy
    }
#ifdef FIXED
    int done = 0, parity = i;
#else
    int done = 0, parity = 0;
#endif
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)), "r"(parity) : "memory");
    sum += s[63 - t];  // BUG: missing-wait @copy
    __syncthreads();
  }
  y[blockIdx.x * 64 + t] = sum;
}
//// buffer_still_read: the next copy is started while other threads still read the last one
//// launch: grid 2 block 64 args f32[256] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x;
  float sum = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < 4; i++) {
    if (t == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&bar)) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x + 64 * i), "r"(AT(&bar)) : "memory");  // BUG: race @read
    }
    int done = 0;
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)), "r"(i & 1) : "memory");
    sum += s[63 - t];  // @read
#ifdef FIXED
    __syncthreads();
#endif
  }
  y[blockIdx.x * 64 + t] = sum;
}
//// too_few_bytes: the phase expects half of what the copy brings
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
#ifdef FIXED
#define BYTES "256"
#else
#define BYTES "128"
#endif
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x, done = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], " BYTES ";" ::"r"(AT(&bar)) : "memory");  // @expect
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x), "r"(AT(&bar)) : "memory");
  }
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");  // BUG: endless @expect
  y[blockIdx.x * 64 + t] = s[63 - t];
}
//// store_without_fence: the copy engine may not see what the threads wrote
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  s[t] = x[63 - t];  // @write
#ifdef FIXED
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 64 * blockIdx.x), "r"(AT(s)) : "memory");  // BUG: missing-fence @write
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
//// fence_before_the_write: the fence is there, in the wrong place
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
#ifndef FIXED
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  s[t] = x[63 - t];  // @write
  __syncthreads();
#ifdef FIXED
  if (t == 0) asm volatile("fence.proxy.async;" ::: "memory");
#endif
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 64 * blockIdx.x), "r"(AT(s)) : "memory");  // BUG: missing-fence @write
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
//// store_without_barrier: one thread has the block's results copied before the others have written theirs
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  s[t] = x[63 - t];  // @write
  asm volatile("fence.proxy.async;" ::: "memory");
#ifdef FIXED
  __syncthreads();
#endif
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 64 * blockIdx.x), "r"(AT(s)) : "memory");  // BUG: race @write
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
//// overwritten_while_copied: the buffer is written again while the copy may still read it
//// launch: grid 2 block 64 args f32[128] zero_f32[256]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < 2; i++) {
    s[t] = x[64 * i + t];  // BUG: missing-wait @store
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 128 * blockIdx.x + 64 * i), "r"(AT(s)) : "memory");  // @store
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef FIXED
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    }
    __syncthreads();
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
//// ends_too_early: the block ends, and its shared memory with it, while the copy may still read
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  s[t] = x[63 - t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 64 * blockIdx.x), "r"(AT(s)) : "memory");  // BUG: missing-wait
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef FIXED
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  }
}
//// group_not_committed: wait_group waits for groups, and the copy is in none
//// launch: grid 2 block 64 args f32[64] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  s[t] = x[63 - t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + 64 * blockIdx.x), "r"(AT(s)) : "memory");  // BUG: missing-wait
#ifdef FIXED
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
//// empty_barrier_ignored: the copying warp fills a stage again that the others have not released
//// launch: grid 2 block 96 args f32[512] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
__device__ void wait(const void* bar, int parity) {
  int done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(bar)), "r"(parity) : "memory");  // BUG: endless
}
extern "C" __global__ void stages(const float* x, float* y) {
  __shared__ alignas(16) float s[2][64];
  __shared__ alignas(8) unsigned long long full[2], empty[2];
  int t = threadIdx.x;
  if (t < 2) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(AT(&full[t])) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 64; fence.proxy.async;" ::"r"(AT(&empty[t])) : "memory");
  }
  __syncthreads();
  if (t >= 64) {
    if (t > 64) return;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
#ifdef FIXED
      wait(&empty[i % 2], (i / 2 + 1) & 1);
#endif
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&full[i % 2])) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s[i % 2])), "l"(x + 64 * i), "r"(AT(&full[i % 2])) : "memory");  // BUG: missing-wait self
    }
    return;
  }
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < 8; i++) {
    wait(&full[i % 2], i / 2 & 1);
    sum += s[i % 2][63 - t];
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(&empty[i % 2])) : "memory");  // @release
  }
  y[blockIdx.x * 64 + t] = sum;
}
//// released_too_early: a stage is given back before it has been read
//// launch: grid 2 block 96 args f32[512] zero_f32[128]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
__device__ void wait(const void* bar, int parity) {
  int done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(bar)), "r"(parity) : "memory");
}
extern "C" __global__ void stages(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long full, empty;
  int t = threadIdx.x;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(AT(&full)) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 2; fence.proxy.async;" ::"r"(AT(&empty)) : "memory");
  }
  __syncthreads();
  if (t >= 64) {
    if (t > 64) return;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      wait(&empty, (i + 1) & 1);
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(AT(&full)) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(AT(s)), "l"(x + 64 * i), "r"(AT(&full)) : "memory");  // @copy
    }
    return;
  }
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < 4; i++) {
    wait(&full, i & 1);
#ifdef FIXED
    sum += s[63 - t];
    __syncwarp();
    if (t % 32 == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(&empty)) : "memory");
#else
    if (t % 32 == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(&empty)) : "memory");
    asm volatile("bar.sync 1, 64;" ::: "memory");
    sum += s[63 - t];  // BUG: missing-wait @copy
#endif
  }
  y[blockIdx.x * 64 + t] = sum;
}
//// crooked_destination: the buffer of a tensor copy must begin at a multiple of 128 bytes
//// launch: grid 1 block 32 args map_f32[64,32]x[32,32] zero_f32[1024]
#include <cuda.h>
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void tile(const __grid_constant__ CUtensorMap map, float* y) {
  __shared__ alignas(128) float s[32 * 32 + 32];
  __shared__ alignas(8) unsigned long long bar;
#ifdef FIXED
  float* at = s;
#else
  float* at = s + 16;
#endif
  int t = threadIdx.x, done = 0;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" ::"r"(AT(&bar)) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, 0}], [%2];" ::"r"(AT(at)), "l"(&map), "r"(AT(&bar)) : "memory");  // BUG: misaligned
  }
  __syncwarp();
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
  for (int i = t; i < 1024; i += 32) y[i] = at[i];
}
//// crooked_column: a box begins at a multiple of 16 bytes
//// launch: grid 1 block 32 args map_f32[64,64]x[32,32] zero_f32[1024]
#include <cuda.h>
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
#ifdef FIXED
#define COLUMN "4"
#else
#define COLUMN "1"
#endif
extern "C" __global__ void tile(const __grid_constant__ CUtensorMap map, float* y) {
  __shared__ alignas(128) float s[32 * 32];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x, done = 0;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" ::"r"(AT(&bar)) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" COLUMN ", 0}], [%2];" ::"r"(AT(s)), "l"(&map), "r"(AT(&bar)) : "memory");  // BUG: misaligned
  }
  __syncwarp();
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
  for (int i = t; i < 1024; i += 32) y[i] = s[i];
}
//// box_larger_than_the_tile: the box of the tensor map does not fit in the buffer
//// launch: grid 1 block 32 args map_f32[64,32]x[64,32] zero_f32[1024]
//// twin: grid 1 block 32 args map_f32[64,32]x[32,32] zero_f32[1024]
#include <cuda.h>
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void tile(const __grid_constant__ CUtensorMap map, float* y) {
  __shared__ alignas(128) float s[32 * 32];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x, done = 0;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(AT(&bar)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" ::"r"(AT(&bar)) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, 0}], [%2];" ::"r"(AT(s)), "l"(&map), "r"(AT(&bar)) : "memory");  // BUG: out-of-bounds
  }
  __syncwarp();
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
  for (int i = t; i < 1024; i += 32) y[i] = s[i];
}
//// bulk_copy_past_the_end: the last block copies beyond its array
//// launch: grid 4 block 64 args 200 f32[200] zero_f32[256]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void stage(int n, const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ alignas(8) unsigned long long bar;
  int t = threadIdx.x, done = 0, first = blockIdx.x * 64;
#ifdef FIXED
  int bytes = 4 * min(64, n - first);
#else
  int bytes = 256;
#endif
  s[t] = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(AT(&bar)) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(AT(&bar)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(AT(s)), "l"(x + first), "r"(bytes), "r"(AT(&bar)) : "memory");  // BUG: out-of-bounds
  }
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)) : "memory");
  y[first + t] = s[t];
}
