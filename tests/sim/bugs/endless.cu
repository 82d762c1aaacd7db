//// step_of_zero: the loop's step is a parameter, and it is 0
//// launch: grid 1 block 32 args 8 0 f32[32]
extern "C" __global__ void loop(int K, int step, float* y) {
#ifdef FIXED
  step = 1;
#endif
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < K; k += step)  // BUG: endless
    sum += y[threadIdx.x] * 0.5f;
  y[threadIdx.x] = sum;
}
//// flag_never_set: a spin on a flag that nobody sets
//// launch: grid 1 block 32 args zero_i32[1] f32[32]
extern "C" __global__ void spin(volatile int* flag, float* y) {
#ifdef FIXED
  *flag = 1;
#endif
  while (*flag == 0) {  // BUG: endless
  }
  y[threadIdx.x] = 1;
}
//// lock_never_released: every thread takes the lock, nobody gives it back
//// launch: grid 1 block 32 args zero_i32[1] f32[1]
extern "C" __global__ void locked(int* lock, float* y) {
  while (atomicCAS(lock, 0, 1)) {  // BUG: endless
  }
  *(volatile float*)y = *(volatile float*)y + 1;
#ifdef FIXED
  __threadfence();
  atomicExch(lock, 0);
#endif
}
//// mbarrier_expects_too_many: the mbarrier counts to 2, one thread arrives
//// launch: grid 1 block 32 args f32[32]
extern "C" __global__ void arrivals(float* y) {
  __shared__ __align__(8) unsigned long long full;
  unsigned bar = __cvta_generic_to_shared(&full);
#ifdef FIXED
  int expected = 1;
#else
  int expected = 2;
#endif
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(expected) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory");
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }" ::"r"(bar) : "memory");  // BUG: endless
  y[threadIdx.x] = 1;
}
