//// split_k_without_atomics: blocks add to the same element of C
//// launch: grid 4 block 32 args f32[128] zero_f32[32]
extern "C" __global__ void split(const float* x, float* C) {
#ifdef FIXED
  atomicAdd(C + threadIdx.x, x[blockIdx.x * 32 + threadIdx.x]);
#else
  C[threadIdx.x] += x[blockIdx.x * 32 + threadIdx.x];  // BUG: race self
#endif
}
//// in_place: C is A, and other threads still read what one has overwritten
//// launch: grid 1 block 16,16 args f32[256] f32[256] same1
extern "C" __global__ void gemm(const float* B, const float* A, float* C) {
  int x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int k = 0; k < 16; k++) sum += A[y * 16 + k] * B[k * 16 + x];  // @read
#ifdef FIXED
  __syncthreads();
#endif
  C[y * 16 + x] = sum;  // BUG: race @read
}
//// exchange_in_global: a neighbour's value through device memory without a barrier
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void exchange(volatile float* x, float* y) {
  int t = threadIdx.x;
  x[t] = t;  // @store
#ifdef FIXED
  __syncthreads();
#endif
  y[t] = x[t ^ 33];  // BUG: race @store
}
