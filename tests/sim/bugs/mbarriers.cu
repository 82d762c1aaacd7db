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
