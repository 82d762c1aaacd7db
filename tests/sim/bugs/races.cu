//// no_barrier_after_store: the tile is read before everybody has stored
//// launch: grid 1 block 16,16 args 16 f32[256] f32[256]
extern "C" __global__ void tile(int n, const float* A, float* C) {
  __shared__ float s[16][16];
  int x = threadIdx.x, y = threadIdx.y;
  s[y][x] = A[y * n + x];  // @store
#ifdef FIXED
  __syncthreads();
#endif
  float sum = 0;
  for (int k = 0; k < 16; k++)
    sum += s[k][x];  // BUG: race @store
  C[y * n + x] = sum;
}
//// no_barrier_before_next_store: the next tile overwrites what others still read
//// launch: grid 1 block 16,16 args 48 f32[768] f32[256]
extern "C" __global__ void tiles(int K, const float* A, float* C) {
  __shared__ float s[16][16];
  int x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    s[y][x] = A[y * K + k0 + x];  // BUG: race @read
    __syncthreads();
    for (int k = 0; k < 16; k++)
      sum += s[k][x];  // @read
#ifdef FIXED
    __syncthreads();
#endif
  }
  C[y * 16 + x] = sum;
}
//// syncwarp_after_store: __syncwarp() where __syncthreads() belongs, before the reads
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void reverse(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];  // @store
#ifdef FIXED
  __syncthreads();
#else
  __syncwarp();
#endif
  y[t] = s[63 - t];  // BUG: race @store
}
//// syncwarp_before_next_store: __syncwarp() where __syncthreads() belongs, after the reads
//// launch: grid 1 block 64 args 4 f32[256] f32[64]
extern "C" __global__ void tiles(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < n; i++) {
    s[t] = x[i * 64 + t];  // BUG: race @read
    __syncthreads();
    sum += s[63 - t];  // @read
#ifdef FIXED
    __syncthreads();
#else
    __syncwarp();
#endif
  }
  y[t] = sum;
}
//// tree_without_barrier: a reduction whose levels are not separated
//// launch: grid 1 block 256 args f32[256] f32[1]
extern "C" __global__ void tree(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
#pragma unroll 1
  for (int h = 128; h; h /= 2) {
    if (t < h)
      s[t] += s[t + h];  // BUG: race self
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (t == 0) *y = s[0];
}
//// tree_without_barrier_at_the_end: the result is read by everybody before thread 0 has written it
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void tree(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  for (int h = 32; h; h /= 2) {
    __syncthreads();
    if (t < h)
      s[t] += s[t + h];  // @add
  }
#ifdef FIXED
  __syncthreads();
#endif
  y[t] = s[0];  // BUG: race @add
}
//// double_buffer_overwritten: two buffers, but the barrier before the overwrite is missing
//// launch: grid 1 block 64 args 6 f32[384] f32[64]
extern "C" __global__ void stages(int tiles, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  float sum = 0;
  s[0][t] = x[t];
  __syncthreads();
#pragma unroll 1
  for (int k = 0; k < tiles; k++) {
    if (k + 1 < tiles) s[(k + 1) & 1][t] = x[(k + 1) * 64 + t];  // @next
#ifdef FIXED
    sum += s[k & 1][63 - t];
    __syncthreads();
#else
    sum += s[k & 1][63 - t];  // BUG: race @next
    if (k == 0) __syncthreads();
#endif
  }
  y[t] = sum;
}
//// same_buffer_twice: the stage never changes, so the prefetch hits the tile in use
//// launch: grid 1 block 64 args 3 f32[192] f32[64]
extern "C" __global__ void stages(int tiles, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x, stage = 0;
  float sum = 0;
  s[0][t] = x[t];
  __syncthreads();
#pragma unroll 1
  for (int k = 1; k < tiles; k++) {
#ifdef FIXED
    int next = stage ^ 1;
#else
    int next = stage;
#endif
    s[next][t] = x[k * 64 + t];  // @store
    sum += s[stage][63 - t];  // BUG: race @store
    __syncthreads();
    stage = next;
  }
  y[t] = sum;
}
//// everybody_writes: all threads store their own number in one place
//// launch: grid 1 block 64 args i32[64]
extern "C" __global__ void elect(int* y) {
  __shared__ int leader;
  int t = threadIdx.x;
#ifdef FIXED
  if (t == 0)
#endif
    leader = t;  // BUG: race self
  __syncthreads();
  y[t] = leader;
}
//// two_writers: one line writes forwards, another backwards
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void twice(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];  // @first
#ifdef FIXED
  __syncthreads();
#endif
  if (x[t] > 2) s[63 - t] = 7;  // BUG: race @first
  __syncthreads();
  y[t] = s[t];
}
//// plain_counter: += instead of atomicAdd
//// launch: grid 1 block 64 args i32[64] i32[4]
extern "C" __global__ void histogram(const int* x, int* y) {
  __shared__ int bins[4];
  int t = threadIdx.x;
  if (t < 4) bins[t] = 0;
  __syncthreads();
#ifdef FIXED
  atomicAdd(bins + x[t] % 4, 1);
#else
  bins[x[t] % 4] += 1;  // BUG: race self
#endif
  __syncthreads();
  if (t < 4) y[t] = bins[t];
}
//// atomic_then_plain_read: the total is read while others still add
//// launch: grid 1 block 64 args i32[64] i32[64]
extern "C" __global__ void total(const int* x, int* y) {
  __shared__ int sum;
  int t = threadIdx.x;
  if (t == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, x[t]);  // @add
#ifdef FIXED
  __syncthreads();
#endif
  y[t] = sum;  // BUG: race @add
}
//// broadcast_before_barrier: thread 0 announces, the others do not wait
//// launch: grid 1 block 64 args f32[1] f32[64]
extern "C" __global__ void broadcast(const float* x, float* y) {
  __shared__ float value;
  if (threadIdx.x == 0) value = x[0] * 2;  // @write
#ifdef FIXED
  __syncthreads();
#endif
  y[threadIdx.x] = value;  // BUG: race @write; uninitialized
}
//// broadcast_again: thread 0 announces the next value while others still read the last
//// launch: grid 1 block 64 args 3 f32[3] f32[64]
extern "C" __global__ void broadcast(int n, const float* x, float* y) {
  __shared__ float value;
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (threadIdx.x == 0) value = x[i];  // BUG: race @read
    __syncthreads();
    sum += value;  // @read
#ifdef FIXED
    __syncthreads();
#endif
  }
  y[threadIdx.x] = sum;
}
//// transpose: rows in, columns out, no barrier
//// launch: grid 1 block 16,16 args f32[256] f32[256]
extern "C" __global__ void transpose(const float* A, float* C) {
  __shared__ float s[16][17];
  int x = threadIdx.x, y = threadIdx.y;
  s[y][x] = A[y * 16 + x];  // @store
#ifdef FIXED
  __syncthreads();
#endif
  C[y * 16 + x] = s[x][y];  // BUG: race @store
}
//// scan_in_place: a prefix sum that reads and writes one array between barriers
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void scan(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
#pragma unroll 1
  for (int d = 1; d < 64; d *= 2) {
    __syncthreads();
    float other = 0;
    if (t >= d)
      other = s[t - d];  // @read
#ifdef FIXED
    __syncthreads();
#endif
    s[t] += other;  // BUG: race @read
  }
  y[t] = s[t];
}
//// epilogue_reuses_tile: C is staged in the tile that slower warps still read
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void epilogue(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 64; k++)
    sum += s[k];  // @read
#ifdef FIXED
  __syncthreads();
#endif
  s[t] = sum;  // BUG: race @read
  y[t] = s[t] * 2;
}
//// two_tiles: As has its barrier, Bs is stored after it
//// launch: grid 1 block 8,8 args f32[64] f32[64] f32[64]
extern "C" __global__ void tile(const float* A, const float* B, float* C) {
  __shared__ float As[8][8], Bs[8][8];
  int x = threadIdx.x, y = threadIdx.y;
  As[y][x] = A[y * 8 + x];
#ifdef FIXED
  Bs[y][x] = B[y * 8 + x];
  __syncthreads();
#else
  __syncthreads();
  Bs[y][x] = B[y * 8 + x];  // @store
#endif
  float sum = 0;
  for (int k = 0; k < 8; k++) {
    float a = As[y][k];
    sum += a * Bs[k][x];  // BUG: race @store
  }
  C[y * 8 + x] = sum;
}
//// barrier_of_half_the_block: a named barrier of the first two warps, although all four read
//// launch: grid 1 block 128 args f32[128] f32[128]
extern "C" __global__ void halves(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];  // @store
#ifdef FIXED
  __syncthreads();
#else
  if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
#endif
  y[t] = s[127 - t];  // BUG: race @store
}
//// volatile_data_behind_a_flag: volatile orders nothing between two words, and no fence stands between
//// launch: grid 2 block 32 args zero_i32[1] zero_i32[1] zero_i32[1]
extern "C" __global__ void handed_over(volatile int* data, volatile int* flag, int* out) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 42;  // @store
#ifdef FIXED
    __threadfence();
#endif
    flag[0] = 1;
  } else {
    while (flag[0] == 0) {}
#ifdef FIXED
    __threadfence();
#endif
    out[0] = data[0];  // BUG: race @store
  }
}
//// the_last_block_adds_up: sums in volatile memory, and no fence before the counter
//// launch: grid 8 block 64 args f32[512] zero_f32[8] zero_f32[1]
__device__ unsigned done;
extern "C" __global__ void last_block(const float* x, volatile float* part, float* out) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  __syncthreads();
  for (int d = 32; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) {
    part[blockIdx.x] = s[0];  // @store
#ifdef FIXED
    __threadfence();
#endif
    last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
#ifdef FIXED
    __threadfence();
#endif
  }
  __syncthreads();
  if (last && t == 0) {
    float sum = 0;
    for (int i = 0; i < gridDim.x; i++)
      sum += part[i];  // BUG: race @store
    out[0] = sum;
  }
}
