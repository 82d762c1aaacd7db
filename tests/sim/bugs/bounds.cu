//// edge_rows: rows beyond M are not guarded
//// launch: grid 1,2 block 32,32 args 33 32 8 f32[264] f32[256] f32[1056]
extern "C" __global__ void gemm(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
#ifdef FIXED
  if (row >= M) return;
#endif
  if (col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; k++)
    sum += A[row * K + k] * B[k * N + col];  // BUG: out-of-bounds
  C[row * N + col] = sum;  // BUG: out-of-bounds
}
//// edge_columns: columns beyond N wrap into the next row, and leave the array at the last
//// launch: grid 2,1 block 32,8 args 8 40 8 f32[64] f32[320] f32[320]
extern "C" __global__ void gemm(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
#ifdef FIXED
  if (col >= N) return;
#endif
  float sum = 0;
  for (int k = 0; k < K; k++)
    sum += A[row * K + k] * B[k * N + col];  // BUG: out-of-bounds
  C[row * N + col] = sum;  // BUG: out-of-bounds; race self
}
//// guard_off_by_one: the guard lets in one row too many
//// launch: grid 1,1 block 16,16 args 10 16 f32[160]
extern "C" __global__ void scale(int M, int N, float* C) {
  int row = threadIdx.y, col = threadIdx.x;
#ifdef FIXED
  if (row < M)
#else
  if (row <= M)
#endif
    C[row * N + col] = 2.0f;  // BUG: out-of-bounds
}
//// inner_loop_off_by_one: k runs to K and reads one element too many
//// launch: grid 1,1 block 16,16 args 16 16 16 f32[256] f32[256] f32[256]
extern "C" __global__ void gemm(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = threadIdx.y, col = threadIdx.x;
  float sum = 0;
#ifdef FIXED
  for (int k = 0; k < K; k++)
#else
  for (int k = 0; k <= K; k++)
#endif
    sum += A[row * K + k] *  // BUG: out-of-bounds
           B[k * N + col];   // BUG: out-of-bounds
  C[row * N + col] = sum;
}
//// wrong_leading_dimension: B is addressed with K instead of N
//// launch: grid 1,1 block 16,16 args 16 16 48 f32[768] f32[768] f32[256]
extern "C" __global__ void gemm(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = threadIdx.y, col = threadIdx.x;
#ifdef FIXED
  int ldb = N;
#else
  int ldb = K;
#endif
  float sum = 0;
  for (int k = 0; k < K; k++) {
    float a = A[row * K + k];
    sum += a * B[k * ldb + col];  // BUG: out-of-bounds
  }
  C[row * N + col] = sum;
}
//// far_past_the_end: a leading dimension so wrong that the read lands in the middle of the next array
//// launch: grid 1,1 block 32,1 args 16384 f32[1024] f32[65536] f32[32]
extern "C" __global__ void column(int ld, const float* A, const float* other, float* C) {
#ifdef FIXED
  ld = 32;
#endif
  C[threadIdx.x] = A[ld + threadIdx.x] + other[ld + threadIdx.x];  // BUG: out-of-bounds
}
//// swapped_indices: C is written column by row, and is not square
//// launch: grid 1,1 block 24,8 args 8 24 f32[192] f32[192]
extern "C" __global__ void copy(int M, int N, const float* A, float* C) {
  int row = threadIdx.y, col = threadIdx.x;
#ifdef FIXED
  C[row * N + col] = A[row * N + col];
#else
  C[col * N + row] = A[row * N + col];  // BUG: out-of-bounds
#endif
}
//// before_the_start: the neighbour to the left of element 0
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void difference(const float* x, float* y) {
  int i = threadIdx.x;
#ifdef FIXED
  y[i] = i ? x[i] - x[i - 1] : x[i];
#else
  float left = x[i - 1];  // BUG: out-of-bounds
  y[i] = x[i] - left;
#endif
}
//// null_pointer: an array that was never passed
//// launch: grid 1 block 32 args null f32[32]
extern "C" __global__ void bias(const float* x, float* y) {
#ifdef FIXED
  if (!x) return;
#endif
  y[threadIdx.x] = x[threadIdx.x];  // BUG: out-of-bounds
}
//// integer_overflow: row * ld does not fit 32 bits
//// launch: grid 1 block 32 args 50001 49999 64 f32[64] f32[32]
extern "C" __global__ void wrapped(int row, int ld, int n, const float* x, float* y) {
#ifdef FIXED
  int at = (int)((long long)row * ld % n);
#else
  int at = row * ld % n;
#endif
  y[threadIdx.x] = x[at];  // BUG: out-of-bounds
}
//// vector_tail: the last float4 hangs over the end
//// launch: grid 1 block 32 args 66 f32[66] f32[128]
extern "C" __global__ void vectors(int n, const float* x, float* y) {
  int i = threadIdx.x;
#ifdef FIXED
  if (i < n / 4)
#else
  if (i < (n + 3) / 4)
#endif
    reinterpret_cast<float4*>(y)[i] = reinterpret_cast<const float4*>(x)[i];  // BUG: out-of-bounds
}
//// atomic_bin: the largest value has no bin
//// launch: grid 1 block 64 args i32[64] i32[63]
extern "C" __global__ void histogram(const int* x, int* bins) {
  int value = x[threadIdx.x];
#ifdef FIXED
  if (value < 63)
#endif
    atomicAdd(bins + value, 1);  // BUG: out-of-bounds
}
//// shared_row_too_long: an index past the end of the last shared array
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void shift(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  s[t] = x[t];
  __syncthreads();
  y[t] = s[t];
#else
  s[t + 1] = x[t];  // BUG: out-of-bounds
  if (t == 0) s[0] = 0;
  __syncthreads();
  y[t] = s[t];
#endif
}
//// shared_read_too_far: the sum reads one element more than the tile has
//// launch: grid 1 block 64 args f32[64] f32[64]
extern "C" __global__ void sum(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
#ifdef FIXED
  y[t] = s[t] + s[(t + 1) % 64];
#else
  y[t] = s[t] + s[t + 1];  // BUG: out-of-bounds
#endif
}
//// dynamic_shared_too_small: the launch gives half the bytes the kernel uses
//// launch: grid 1 block 64 shared 128 args 64 f32[64] f32[64]
extern __shared__ float buffer[];
extern "C" __global__ void stage(int n, const float* x, float* y) {
  int t = threadIdx.x;
#ifdef FIXED
  if (t >= n / 2) return;
#endif
  buffer[t] = x[t];  // BUG: out-of-bounds
  y[t] = buffer[t];
}
//// overflow_into_neighbour: a tile index one row too far hits the next shared array
//// launch: grid 1 block 16,16 args 16 f32[256] f32[256] f32[256]
extern "C" __global__ void tiles(int n, const float* A, const float* B, float* C) {
  __shared__ float both[512];
  float *As = both, *Bs = both + 256;
  int x = threadIdx.x, y = threadIdx.y;
#ifdef FIXED
  As[y * 16 + x] = A[y * n + x];
#else
  As[(y + 1) * 16 + x] = A[y * n + x];  // @a
  if (y == 0) As[x] = 0;
#endif
  Bs[y * 16 + x] = B[y * n + x];  // BUG: race @a
  __syncthreads();
  C[y * n + x] = As[y * 16 + x] * Bs[x * 16 + y];
}
//// local_write: an index past the end of a local array
//// launch: grid 1 block 32 args 5 f32[32]
extern "C" __global__ void registers(int n, float* y) {
  float acc[4] = {1, 2, 3, 4};
#ifdef FIXED
  n = min(n, 4);
#endif
#pragma unroll 1
  for (int i = 0; i < n; i++)
    acc[i] = i + y[threadIdx.x];  // BUG: out-of-bounds
  y[threadIdx.x] = acc[n & 3];
}
//// local_read: a negative index into a local array
//// launch: grid 1 block 32 args -1 f32[8] f32[32]
extern "C" __global__ void registers(int at, const float* x, float* y) {
  float acc[8];
#pragma unroll 1
  for (int i = 0; i < 8; i++) acc[i] = x[i];
#ifdef FIXED
  at = max(at, 0);
#endif
  y[threadIdx.x] = acc[at];  // BUG: out-of-bounds
}
//// copy_past_the_end: an asynchronous copy reads beyond its source
//// launch: grid 1 block 32 args f32[124] f32[128]
extern "C" __global__ void stage(const float* x, float* y) {
  __shared__ __align__(16) float s[128];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + 4 * t);
#ifdef FIXED
  int bytes = t < 31 ? 16 : 0;
  const float* from = t < 31 ? x + 4 * t : x;
#else
  int bytes = 16;
  const float* from = x + 4 * t;
#endif
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");  // BUG: out-of-bounds
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int i = 0; i < 4; i++) y[4 * t + i] = s[4 * t + i];
}

//// left_neighbour: the first element has no left neighbour in shared memory
//// launch: grid 1 block 64 args f32[64] zero_f32[64]
extern "C" __global__ void left_neighbour(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
#ifdef FIXED
    y[t] = t > 0 ? s[t - 1] : 0.0f;
#else
    y[t] = s[t - 1]; // BUG: out-of-bounds
#endif
}

//// left_neighbour_by_pointer: the same through a generic pointer
//// launch: grid 1 block 64 args f32[64] zero_f32[64] 0
__device__ __noinline__ float left_of(const float* p) {
#ifdef FIXED
    return threadIdx.x > 0 ? p[-1] : 0.0f;
#else
    return p[-1]; // @read
#endif
}

extern "C" __global__ void left_neighbour_by_pointer(const float* x, float* y, int which) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = left_of(which ? x + t : s + t); // BUG: out-of-bounds
}

//// far_left: an index of a shared array that is far below 0
//// launch: grid 1 block 64 args f32[64] zero_f32[64] 5000
extern "C" __global__ void far_left(const float* x, float* y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
#ifdef FIXED
    s[t] = x[t];
#else
    s[t - n] = x[t]; // BUG: out-of-bounds
    s[t] = x[t];
#endif
    __syncthreads();
    y[t] = s[63 - t];
}

//// into_the_next_array: a row beyond one array is a row of the array beside it
//// launch: grid 2 block 32,8 args f32[256] zero_f32[256]
extern "C" __global__ void next_array(const float* x, float* y) {
    __shared__ float a[8][32];
    __shared__ float b[8][32];
    int t = threadIdx.x, row = threadIdx.y;
    a[row][t] = b[row][t] = x[row * 32 + t];
    __syncthreads();
#ifdef FIXED
    a[row][t] = 2 * b[7 - row][t];
#else
    a[row + 8][t] = 2 * a[row][t]; // BUG: out-of-bounds
#endif
    __syncthreads();
    y[row * 32 + t] = a[row][t] + b[row][t];
}
//// from_the_array_before: an index of -1 reads the end of the array before
//// launch: grid 1 block 64 args f32[64] zero_f32[64] 0
extern "C" __global__ void array_before(const float* x, float* y, int n) {
    __shared__ float edge[64];
    __shared__ float s[64];
    int t = threadIdx.x;
    edge[t] = 1;
    s[t] = x[t];
    __syncthreads();
#ifdef FIXED
    float left = t > n ? s[t - 1] : 0;
#else
    float left = t >= n ? s[t - 1] : 0; // BUG: out-of-bounds
#endif
    y[t] = left + s[t] + edge[63 - t];
}
//// an_atomic_in_the_next_array: a bin too many
//// launch: grid 1 block 64 args i32[64] zero_i32[16]
extern "C" __global__ void bins(const int* x, int* y) {
    __shared__ int first[8];
    __shared__ int second[8];
    int t = threadIdx.x;
    if (t < 8) first[t] = second[t] = 0;
    __syncthreads();
    atomicAdd(&second[x[t] % 8], 1);
#ifdef FIXED
    atomicAdd(&first[x[t] % 8], 1);
#else
    atomicAdd(&first[x[t] % 9], 1); // BUG: out-of-bounds
#endif
    __syncthreads();
    if (t < 8) y[t] = first[t], y[t + 8] = second[t];
}
