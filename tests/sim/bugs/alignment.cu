//// odd_leading_dimension: float4 rows of a matrix whose leading dimension is no multiple of 4
//// launch: grid 1 block 16,4 args 65 f32[260] f32[256]
extern "C" __global__ void rows(int ld, const float* A, float* C) {
  int x = threadIdx.x, y = threadIdx.y;
#ifdef FIXED
  ld = 64;
#endif
  float4 v = *reinterpret_cast<const float4*>(A + y * ld + 4 * x);  // BUG: misaligned
  C[y * 64 + x] = v.x + v.y + v.z + v.w;
}
//// odd_half: half2 at an odd element
//// launch: grid 1 block 31 args 1 u16[64] u16[64]
extern "C" __global__ void halves(int offset, const unsigned short* x, unsigned short* y) {
#ifdef FIXED
  offset = 0;
#endif
  unsigned pair = *reinterpret_cast<const unsigned*>(x + offset + 2 * threadIdx.x);  // BUG: misaligned
  *reinterpret_cast<unsigned*>(y + 2 * threadIdx.x) = pair;
}
//// float2_store: pairs written from an odd column
//// launch: grid 1 block 16 args 1 f32[64]
extern "C" __global__ void pairs(int column, float* C) {
#ifdef FIXED
  column = 2;
#endif
  *reinterpret_cast<float2*>(C + column + 2 * threadIdx.x) = make_float2(1, 2);  // BUG: misaligned
}
//// padded_tile: a row of 33 floats cannot be read as float4
//// launch: grid 1 block 32 args f32[1024] f32[32]
extern "C" __global__ void padded(const float* A, float* C) {
#ifdef FIXED
  constexpr int stride = 36;
#else
  constexpr int stride = 33;
#endif
  __shared__ __align__(16) float tile[32 * stride];
  int t = threadIdx.x;
  for (int i = 0; i < 32; i++) tile[i * stride + t] = A[i * 32 + t];
  __syncwarp();
  float4 v = *reinterpret_cast<float4*>(tile + t * stride);  // BUG: misaligned
  C[t] = v.x + v.y + v.z + v.w;
}
//// second_dynamic_array: the second array in dynamic shared memory starts at an odd offset
//// launch: grid 1 block 32 shared 1024 args 17 f32[128] f32[128]
extern __shared__ __align__(16) float buffer[];
extern "C" __global__ void carve(int first, const float* x, float* y) {
  int t = threadIdx.x;
#ifdef FIXED
  first = (first + 3) / 4 * 4;
#endif
  float* second = buffer + first;
  reinterpret_cast<float4*>(second)[t] = reinterpret_cast<const float4*>(x)[t];  // BUG: misaligned
  y[t] = second[4 * t];
}
//// copy_of_16_bytes: an asynchronous copy of 16 bytes from an address that is a multiple of 4 only
//// launch: grid 1 block 16 args 1 f32[80] f32[64]
extern "C" __global__ void stage(int column, const float* x, float* y) {
  __shared__ __align__(16) float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  column = 4;
#endif
  unsigned to = __cvta_generic_to_shared(s + 4 * t);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + column + 4 * t) : "memory");  // BUG: misaligned
  asm volatile("cp.async.wait_all;" ::: "memory");
  y[t] = s[4 * t];
}
//// ldmatrix_rows: rows of a half tile that do not start at multiples of 16 bytes
//// launch: grid 1 block 32 args u16[256] i32[32]
extern "C" __global__ void fragments(const unsigned short* A, int* C) {
#ifdef FIXED
  constexpr int stride = 8;
#else
  constexpr int stride = 10;
#endif
  __shared__ __align__(16) unsigned short tile[8 * 16];
  int t = threadIdx.x;
  for (int i = t; i < 128; i += 32) tile[i] = A[i];
  __syncwarp();
  unsigned at = __cvta_generic_to_shared(tile + t % 8 * stride);
  int r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at) : "memory");  // BUG: misaligned
  C[t] = r;
}
