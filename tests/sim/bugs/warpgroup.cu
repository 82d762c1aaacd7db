//// product_not_waited_for: the accumulators are stored while the product is in flight
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];  // A: 64 rows of 16 halves, B: 8 columns; core matrices of 8 rows, no swizzle
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];  // BUG: missing-wait @product
}
//// product_wait_too_lax: wait_group 1 leaves the only group in flight
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];  // BUG: missing-wait @product
}
//// commit_missing: a product outside every group is not waited for
//// launch: grid 2 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
#ifdef FIXED
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (blockIdx.x == 0)
    for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];  // BUG: missing-wait @product
}
//// no_proxy_fence: ordinary stores that the tensor cores may not see
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];  // @store
#ifdef FIXED
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: missing-fence @store
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// copies_without_proxy_fence: what cp.async brought needs the fence as well
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(s + i);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + i) : "memory");  // @copy
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
#ifdef FIXED
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // MISSED: missing-fence @copy
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// no_barrier: the other warps' stores are not ordered before the product
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];  // @store
  asm volatile("fence.proxy.async;" ::: "memory");
#ifdef FIXED
  __syncthreads();
#endif
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: race @store
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// first_product_without_fence: no wgmma.fence before the first product
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
#ifdef FIXED
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: missing-fence
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// accumulators_changed: scaled between two products, with no fence before the second
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int k = 0; k < 2; k++) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: missing-fence @scale
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) d[i] *= 0.5f;  // @scale
#ifdef FIXED
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// fragment_loaded_too_late: A comes from registers that are loaded after the fence
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long b = ((unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32) + 128;
  float d[4] = {};
  uint4 a;
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
#ifdef FIXED
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "l"(__cvta_generic_to_shared(s + t)));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "l"(__cvta_generic_to_shared(s + t)));  // @load
#endif
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));  // BUG: missing-fence @load
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// tile_overwritten: the next tile is stored while the product still reads the last
//// launch: grid 2 block 128 args f16[3072] zero_f32[1024]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int k = 0; k < 2; k++) {
    for (int i = t; i < 192; i += 128) s[i] = x[192 * k + i];  // BUG: race @product
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
    __syncthreads();
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[(blockIdx.x * 128 + t) * 4 + i] = d[i];
}
//// waited_without_barrier: a warpgroup waits for its own product, then stores over what the other one reads
//// launch: grid 1 block 256 args f16[4352] f32[1024]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[272];  // A of each warpgroup, then their B
  const int t = threadIdx.x;
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32;
  float d[4] = {};
  for (int k = 0; k < 2; k++) {
    if (t < 16) s[256 + t] = x[272 * k + 256 + t];  // BUG: race @product
    s[t] = x[272 * k + t];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(start + t / 128 * 128), "l"(start + 256));  // @product
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#ifdef FIXED
    __syncthreads();
#endif
  }
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// copy_into_tile_in_flight: a copy to a buffer that an earlier product may still read
//// launch: grid 1 block 128 args f16[4608] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[2][192];
  const int t = threadIdx.x;
  float d[4] = {};
  auto fetch = [&](int k) {
    for (int i = t; i < 192; i += 128) {
      const unsigned to = (unsigned)__cvta_generic_to_shared(s[k % 2] + i);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + 192 * k + i) : "memory");  // BUG: race @product
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  for (int k = 0; k < 3; k++) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (k < 2) fetch(k + 1);
    const unsigned long long a = (unsigned)__cvta_generic_to_shared(s[k % 2]) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// accumulators_as_fragment: the second product takes the first one's result as A before it is there
//// launch: grid 1 block 128 args f16[1536] u32[256]
extern "C" __global__ void product(const uint4* x, unsigned* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  unsigned d[4] = {}, e[2] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(a), "l"(a));  // @first
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, %6, 1, 1, 1, 0;"
      : "+r"(e[0]), "+r"(e[1]) : "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3]), "l"(b));  // BUG: missing-wait @first
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  y[2 * t] = e[0], y[2 * t + 1] = e[1];
}
//// offset_in_elements: the descriptor's stride counts halves instead of bytes
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
#ifdef FIXED
  const unsigned long long stride = 256 >> 4;
#else
  const unsigned long long stride = 256 * 2 >> 4;
#endif
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | stride << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // @fence
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: out-of-bounds
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// half_filled_b: half of B was never stored
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
#ifdef FIXED
  for (int i = t; i < 144; i += 128) s[i] = x[i];
#else
  for (int i = t; i < 136; i += 128) s[i] = x[i];
#endif
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // BUG: uninitialized
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
//// one_warp_multiplies: a product inside a condition that only one warp meets
//// launch: grid 1 block 128 args f16[1536] f32[512]
extern "C" __global__ void product(const uint4* x, float* y) {
  __shared__ __align__(1024) uint4 s[192];
  const int t = threadIdx.x;
  const unsigned long long a = (unsigned)__cvta_generic_to_shared(s) >> 4 | 8ull << 16 | 16ull << 32, b = a + 128;
  float d[4] = {};
  for (int i = t; i < 192; i += 128) s[i] = x[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
#ifdef FIXED
  if (t < 128) {
#else
  if (t < 32) {
#endif
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // BUG: divergent-barrier
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));  // @product
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
