//// stored_over: the tile's first elements lie where the mbarrier still is
//// launch: grid 2 block 32 args f32[32]
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void phases(float* y) {
  __shared__ alignas(8) float s[32];
  int t = threadIdx.x, done = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(AT(s)) : "memory");  // @init
  __syncthreads();
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(s)) : "memory");
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(s)) : "memory");
  __syncthreads();
#ifdef FIXED
  if (t == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(AT(s)) : "memory");
  __syncthreads();
#endif
  s[t] = t;  // BUG: mbarrier-access @init
  __syncthreads();
  y[t] = s[31 - t];  // BUG: mbarrier-access @init
}
//// arrived_before_reading: consumers arrive at the mbarrier of an empty stage, then read it
//// launch: grid 1 block 64 args 4 f32[128] f32[128]
__device__ void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
}
__device__ void wait(unsigned long long* barrier, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               ::"r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
}
extern "C" __global__ void stages(int n, const float* x, float* y) {
  __shared__ float s[2][32];
  __shared__ unsigned long long full[2], empty[2];
  int t = threadIdx.x;
  if (t < 4)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"((unsigned)__cvta_generic_to_shared(t < 2 ? &full[t] : &empty[t - 2])));
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (t < 32) {
      wait(&empty[i % 2], (i / 2 & 1) ^ 1);
      s[i % 2][t] = x[i * 32 + t];  // BUG: race @read
      arrive(&full[i % 2]);
    } else {
      wait(&full[i % 2], i / 2 & 1);
#ifndef FIXED
      arrive(&empty[i % 2]);
#endif
      y[i * 32 + t - 32] = s[i % 2][63 - t];  // @read
#ifdef FIXED
      arrive(&empty[i % 2]);
#endif
    }
  }
}
//// parity_that_counts_on: the number of a phase where its last bit is asked for
//// launch: grid 1 block 64 args 5 f32[64]
extern "C" __global__ void phases(int n, float* y) {
  __shared__ unsigned long long bar;
  unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");
  __syncthreads();
  for (int i = 0; i < n; i++) {
    int done = 0, parity = i;
#ifdef FIXED
    parity = i & 1;
#endif
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                   : "=r"(done) : "r"(at), "r"(parity) : "memory");  // BUG: mbarrier-parity
  }
  y[threadIdx.x] = n;
}
//// initialised_by_all: every thread initialises the mbarrier, and thread 0 again in each step
//// launch: grid 2 block 64 args 5 f32[128]
extern "C" __global__ void steps(int n, float* y) {
  __shared__ unsigned long long bar;
  unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
#ifdef FIXED
  if (threadIdx.x == 0)
#endif
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");  // BUG: mbarrier-init self // @all
  __syncthreads();
  for (int i = 0; i < n; i++) {
    int done = 0, parity = 0;
#ifdef FIXED
    parity = i & 1;
#endif
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                   : "=r"(done) : "r"(at), "r"(parity) : "memory");
    __syncthreads();
#ifndef FIXED
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");  // BUG: mbarrier-init @all; mbarrier-init self
#endif
    __syncthreads();
  }
  y[blockIdx.x * 64 + threadIdx.x] = n;
}
