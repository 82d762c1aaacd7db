//// exchange_in_a_warp: neighbours exchange through shared memory, which lock-step would order
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void exchange(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t];  // @store
#ifdef FIXED
  __syncwarp();
#endif
  y[t] = s[t ^ 1];  // BUG: race @store
}
//// warp_transpose: every lane writes a row and reads a column
//// launch: grid 1 block 32 args f32[1024] f32[1024]
extern "C" __global__ void transpose(const float* A, float* C) {
  __shared__ float s[32][33];
  int t = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < 32; i++)
    s[t][i] = A[i * 32 + t];  // @store
#ifdef FIXED
  __syncwarp();
#endif
#pragma unroll 1
  for (int i = 0; i < 32; i++)
    C[i * 32 + t] = s[i][t];  // BUG: race @store
}
//// last_warp_of_a_tree: the classic unrolled end of a reduction, without __syncwarp()
//// launch: grid 1 block 64 args f32[64] f32[1]
extern "C" __global__ void tree(const float* x, float* y) {
  __shared__ volatile float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (t < 32) {
#pragma unroll 1
    for (int h = 32; h; h /= 2) {
      float sum = s[t] + s[t + h];  // @read
#ifdef FIXED
      __syncwarp();
#endif
      s[t] = sum;  // BUG: race @read
#ifdef FIXED
      __syncwarp();
#endif
    }
    if (t == 0) *y = s[0];
  }
}
//// warps_apart: each warp has its own row, but the first lane adds up the row too early
//// launch: grid 1 block 64 args f32[64] f32[2]
extern "C" __global__ void rows(const float* x, float* y) {
  __shared__ float s[2][32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  s[warp][lane] = x[threadIdx.x];  // @store
#ifdef FIXED
  __syncwarp();
#endif
  if (lane == 0) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < 32; i++)
      sum += s[warp][i];  // BUG: race @store
    y[warp] = sum;
  }
}
//// half_a_mask: __syncwarp() of the lower half of the warp, although both halves exchange
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void exchange(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t];  // @store
#ifdef FIXED
  __syncwarp();
#else
  if (t < 16) __syncwarp(0x0000ffff);
  else __syncwarp(0xffff0000);
#endif
  y[t] = s[31 - t];  // BUG: race @store
}
//// missing_second_syncwarp: the next round overwrites what a neighbour still reads
//// launch: grid 1 block 32 args 4 f32[32] f32[32]
extern "C" __global__ void rounds(int n, const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  float value = x[t];
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    s[t] = value;  // BUG: race @read
    __syncwarp();
    value += s[t ^ 1];  // @read
#ifdef FIXED
    __syncwarp();
#endif
  }
  y[t] = value;
}
//// syncwarp_in_half_a_warp: a full mask, but only half of the lanes come
//// launch: grid 1 block 32 args f32[32] f32[32]
extern "C" __global__ void half(const float* x, float* y) {
  int t = threadIdx.x;
  if (t < 16) {
#ifdef FIXED
    __syncwarp(0x0000ffff);
#else
    __syncwarp();  // BUG: divergent-barrier
#endif
    y[t] = x[t];
    return;
  }
#pragma unroll 1
  for (int i = 0; i < (int)x[0] + 3; i++) y[t] += x[t];
}
//// caller_not_in_mask: lanes call __syncwarp() with a mask that leaves them out
//// launch: grid 1 block 32 args 255 f32[32] f32[32]
extern "C" __global__ void masked(unsigned mask, const float* x, float* y) {
#ifdef FIXED
  mask = 0xffffffff;
#endif
  __syncwarp(mask);  // BUG: divergent-barrier
  y[threadIdx.x] = x[threadIdx.x];
}

//// shuffle_from_beyond_the_mask: eight lanes add up with the distances of a whole warp
//// launch: grid 1 block 64 shared 8 args f32[64] zero_f32[1]
extern "C" __global__ void shuffle_from_beyond_the_mask(const float* x, float* y) {
    __shared__ float s[8];
    int t = threadIdx.x;
    if (t < 8) s[t] = x[t] + x[t + 8];
    __syncthreads();
    if (t < 8) {
        float sum = s[t];
#ifdef FIXED
        for (int d = 4; d > 0; d /= 2)
#else
        for (int d = 16; d > 0; d /= 2)
#endif
            sum += __shfl_down_sync(0xff, sum, d); // BUG: divergent-barrier
        if (t == 0) y[0] = sum;
    }
}

//// shuffle_from_a_lane_that_left: lane 31 has ended
//// launch: grid 1 block 32 args f32[32] zero_f32[32]
extern "C" __global__ void shuffle_from_a_lane_that_left(const float* x, float* y) {
    int t = threadIdx.x;
    float mine = x[t];
    if (t >= 16) return;
#ifdef FIXED
    y[t] = __shfl_xor_sync(0x0000ffff, mine, 15);
#else
    y[t] = __shfl_xor_sync(0x0000ffff, mine, 31); // BUG: divergent-barrier
#endif
}
