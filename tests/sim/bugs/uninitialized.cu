//// half_filled_tile: 128 threads fill half of a 16 x 16 tile
//// launch: grid 1 block 16,8 args f32[256] f32[128]
extern "C" __global__ void tile(const float* A, float* C) {
  __shared__ float s[16][16];
  int x = threadIdx.x, y = threadIdx.y;
#ifdef FIXED
  s[y + 8][x] = A[(y + 8) * 16 + x];
#endif
  s[y][x] = A[y * 16 + x];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 16; k++)
    sum += s[k][x];  // BUG: uninitialized
  C[y * 16 + x] = sum;
}
//// tail_of_k: the last tile is not filled up with zeros
//// launch: grid 1 block 32,1 args 20 f32[20] f32[32]
extern "C" __global__ void dot(int K, const float* a, float* c) {
  __shared__ float s[32];
  int t = threadIdx.x;
#ifdef FIXED
  s[t] = t < K ? a[t] : 0;
#else
  if (t < K) s[t] = a[t];
#endif
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 32; k++)
    sum += s[k];  // BUG: uninitialized
  c[t] = sum;
}
//// halo: the cell right of the tile is nobody's job
//// launch: grid 2 block 64 args f32[130] f32[128]
extern "C" __global__ void stencil(const float* x, float* y) {
  __shared__ float s[65];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];
#ifdef FIXED
  if (t == 0) s[64] = x[i + 64];
#endif
  __syncthreads();
  float right = s[t + 1];  // BUG: uninitialized
  y[i] = right - s[t];
}
//// padding_column: a loop over the padded width
//// launch: grid 1 block 32 args 33 f32[1024] f32[32]
extern "C" __global__ void padded(int width, const float* A, float* C) {
  __shared__ float s[32][33];
  int t = threadIdx.x;
  for (int i = 0; i < 32; i++) s[i][t] = A[i * 32 + t];
  __syncthreads();
#ifdef FIXED
  width = 32;
#endif
  float sum = 0;
  for (int k = 0; k < width; k++)
    sum += s[t][k];  // BUG: uninitialized
  C[t] = sum;
}
//// wrong_first_buffer: the double buffer is read at the stage that is filled later
//// launch: grid 1 block 64 args 4 f32[256] f32[64]
extern "C" __global__ void stages(int tiles, const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  float sum = 0;
  s[0][t] = x[t];
  for (int k = 0; k < tiles; k++) {
    __syncthreads();
#ifdef FIXED
    sum += s[k & 1][63 - t];
#else
    sum += s[~k & 1][63 - t];  // BUG: uninitialized; race @next
#endif
    if (k + 1 < tiles) s[(k + 1) & 1][t] = x[(k + 1) * 64 + t];  // @next
  }
  y[t] = sum;
}
//// reduction_of_too_few: 48 threads fill a tree of 64
//// launch: grid 1 block 64 args 48 f32[64] f32[1]
extern "C" __global__ void tree(int n, const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  s[t] = t < n ? x[t] : 0;
#else
  if (t < n) s[t] = x[t];
#endif
  __syncthreads();
  for (int h = 32; h; h /= 2) {
    if (t < h) s[t] += s[t + h];  // BUG: uninitialized
    __syncthreads();
  }
  if (t == 0) *y = s[0];
}
//// counter_from_nothing: atomicAdd on a shared counter that nobody set to zero
//// launch: grid 1 block 64 args f32[64] i32[1]
extern "C" __global__ void count(const float* x, int* y) {
  __shared__ int n;
#ifdef FIXED
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
#endif
  if (x[threadIdx.x] > 2) atomicAdd(&n, 1);  // BUG: uninitialized
  __syncthreads();
  if (threadIdx.x == 0) *y = n;
}
//// beta_reads_c: C is read although nobody has written it
//// launch: grid 1 block 32 args f32[32] empty_f32[32]
extern "C" __global__ void axpy(const float* x, float* C) {
#ifdef FIXED
  C[threadIdx.x] = x[threadIdx.x];
#else
  C[threadIdx.x] = x[threadIdx.x] + C[threadIdx.x];  // BUG: uninitialized
#endif
}
