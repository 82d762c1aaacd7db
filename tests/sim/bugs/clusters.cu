//// no_first_sync: a block's shared memory is written before that block may have begun
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(4) ring(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
#ifdef FIXED
  cluster.sync();
#endif
  cluster.map_shared_rank(s, (cluster.block_rank() + 1) % 4)[t] = x[i];  // BUG: race
  cluster.sync();
  y[i] = s[t];
}
//// read_before_it_is_there: nothing orders a block's stores and its neighbour's loads
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(4) ring(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];  // @store
#ifdef FIXED
  cluster.sync();
#endif
  y[i] = cluster.map_shared_rank(s, (cluster.block_rank() + 1) % 4)[t];  // BUG: race @store
  cluster.sync();
}
//// syncthreads_is_not_enough: a barrier of the block where the cluster's is needed
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  cluster.sync();
  s[t] = x[i];  // @store
#ifdef FIXED
  cluster.sync();
#else
  __syncthreads();
#endif
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[63 - t];  // BUG: race @store
  cluster.sync();
}
//// no_last_sync: a block may end while its neighbour still reads its shared memory
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];
  cluster.sync();
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];  // BUG: race
#ifdef FIXED
  cluster.sync();
#endif
}
//// overwritten_too_early: the next tile is stored while the neighbour may still read the last one
//// launch: grid 4 block 64 args f32[1024] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) sum(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  float total = 0;
  for (int k = 0; k < 4; k++) {
    s[t] = x[k * 256 + i];  // BUG: race @load
    cluster.sync();
    total += s[t] + cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];  // @load
#ifdef FIXED
    cluster.sync();
#endif
  }
  y[i] = total;
  cluster.sync();
}
//// between_arrive_and_wait: the load comes before the wait
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];  // @store
  auto token = cluster.barrier_arrive();
#ifdef FIXED
  cluster.barrier_wait(static_cast<decltype(token)&&>(token));
#endif
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];  // BUG: race @store
#ifndef FIXED
  cluster.barrier_wait(static_cast<decltype(token)&&>(token));
#endif
  cluster.sync();
}
//// relaxed_arrival: an arrival that publishes nothing
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];  // @store
#ifdef FIXED
  asm volatile("fence.acq_rel.cluster;" ::: "memory");
#endif
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];  // BUG: race @store
  cluster.sync();
}
//// sync_of_one_block: one block syncs once more than the others, so phases get mixed up
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) broadcast(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
#ifndef FIXED
  if (cluster.block_rank() == 0) cluster.sync();
#endif
  s[t] = x[i];  // @store
  cluster.sync();
  y[i] = cluster.map_shared_rank(s, 0)[t];  // BUG: race @store
  cluster.sync();
}
//// arrives_twice: two arrivals and one wait
//// launch: grid 2 block 64 args f32[128]
extern "C" __global__ void __cluster_dims__(2) twice(float* y) {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#ifdef FIXED
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");  // BUG: divergent-barrier
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  y[blockIdx.x * 64 + threadIdx.x] = 1;
}
//// no_such_block: the neighbour of the last block does not exist
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(4) shift(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];
  cluster.sync();
#ifdef FIXED
  int other = (cluster.block_rank() + 1) % 4;
#else
  int other = cluster.block_rank() + 1;
#endif
  y[i] = cluster.map_shared_rank(s, other)[t];  // BUG: out-of-bounds
  cluster.sync();
}
//// past_the_end_of_the_other: an index outside the other block's shared memory
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];
  cluster.sync();
#ifdef FIXED
  int j = (t + 32) % 64;
#else
  int j = t + 32;
#endif
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[j];  // BUG: out-of-bounds
  cluster.sync();
}
//// histogram_not_cleared: bins in the other blocks are counted up before they are zero
//// launch: grid 4 block 64 args i32[256] zero_i32[64]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(4) histogram(const int* x, int* counts) {
  __shared__ int bins[16];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, value = x[blockIdx.x * 64 + t] % 64;
  if (t < 16) bins[t] = 0;  // @clear
#ifdef FIXED
  cluster.sync();
#else
  __syncthreads();
#endif
  atomicAdd(cluster.map_shared_rank(bins, value / 16) + value % 16, 1);  // BUG: race @clear
  cluster.sync();
  if (t < 16) counts[cluster.block_rank() * 16 + t] = bins[t];
}
//// async_store_not_waited_for: what st.async brings is read before its mbarrier is waited for
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(const float* x, float* y) {
  __shared__ float s[64];
  __shared__ __align__(8) unsigned long long bar;
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  unsigned here = __cvta_generic_to_shared(&bar), to = __cvta_generic_to_shared(s + t), there;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(here) : "memory");
  }
  cluster.sync();
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(to), "r"(cluster.block_rank() ^ 1));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cluster.block_rank() ^ 1));
  int v = __float_as_int(x[i]);
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(v), "r"(there) : "memory");  // @copy
#ifdef FIXED
  unsigned done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(here) : "memory");
  } while (!done);
#endif
  y[i] = s[63 - t];  // BUG: race @copy
  cluster.sync();
}
//// mbarrier_not_announced: another block arrives at an mbarrier before it knows that it has been made
//// launch: grid 4 block 64 args f32[4]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) meet(float* y) {
  __shared__ __align__(8) unsigned long long bar;
  auto cluster = cooperative_groups::this_cluster();
  unsigned here = __cvta_generic_to_shared(&bar), there, done;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(here));  // @init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#ifdef FIXED
  cluster.sync();
#else
  __syncthreads();
#endif
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cluster.block_rank() ^ 1));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");  // BUG: race @init
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(here) : "memory");
  } while (!done);
  if (threadIdx.x == 0) y[blockIdx.x] = 1;
}
//// last_arrival: the consumer gives a stage back to a block that may have ended
//// launch: grid 4 block 64 args f32[256] f32[256]
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) pass_on(const float* x, float* y) {
  __shared__ float s[64];
  __shared__ __align__(8) unsigned long long empty;
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  unsigned here = __cvta_generic_to_shared(&empty), there;
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(here));
  s[t] = x[i];
  cluster.sync();
  y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];
  cluster.sync();
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cluster.block_rank() ^ 1));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");  // BUG: race
#ifdef FIXED
  unsigned done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(here) : "memory");
  } while (!done);
#endif
}
