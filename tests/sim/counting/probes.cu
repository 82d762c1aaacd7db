// Kernels whose instruction and memory counters were measured on an H200: control flow and accesses of many kinds.
// Each is launched as counting.py says; the measured table is in helpers/data/calibration_h200.json.
#include <mma.h>

extern "C" __global__ void halves(float* C, int n) {  // two sides of a branch, each with its own loop
    int t = threadIdx.x;
    float x = t;
    if (t & 1) for (int i = 0; i < t + n; i++) x = x * 1.5f + i;
    else for (int i = 0; i < 40 - t % 7; i++) x = x * 0.5f - i;
    C[t] = x;
}

extern "C" __global__ void ways(float* C, int n) {  // switch, break, continue
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float x = 0;
    for (int i = 0; i < n; i++) {
        if ((i + t) % 5 == 0) continue;
        switch ((i + t) & 3) {
            case 0: x += C[t + i]; break;
            case 1: for (int j = 0; j < (t & 7); j++) x = x * 2.f + 1.f; break;
            case 2: x = x * x + t; break;
            default: x -= 3.f;
        }
        if (i > 20 + t % 11) break;
    }
    C[t] = x;
}

extern "C" __global__ void early(const float* A, float* C, int n) {  // threads that leave one after the other
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float x = A[t];
    for (int i = 0; i < t % 50; i++) x = x * 1.25f + A[i];
    if (t % 3 == 0) return;
    for (int i = 0; i < 8; i++) x = x * 1.25f + A[t + i];
    C[t] = x;
}

extern "C" __global__ void divided(int* C, int n, int m) {  // integer division by a run-time number steers a loop
    int t = blockIdx.x * blockDim.x + threadIdx.x, row = t / m, col = t % m, x = 0;
    for (int i = row; i < n / (col + 1); i += m) x += i * col;
    C[t] = x;
}

__device__ __noinline__ float power(float x, int n) {
    float y = 1.f;
    while (n) { if (n & 1) y *= x; x *= x; n >>= 1; }
    return y;
}
extern "C" __global__ void called(float* C, int n) {  // a real call, from diverged threads
    int t = threadIdx.x;
    float x = 1.0f + t;
    if (t % 3) x = power(x, t & n);
    C[t] = x + power(0.5f, t);
}

extern "C" __global__ void voted(float* C, int n) {  // votes and shuffles of known values steer a loop
    int t = threadIdx.x, left = t % n;
    float x = t;
    while (__any_sync(0xffffffffu, left > 0)) { x = x * 0.5f + left; left--; }
    int first = __shfl_sync(0xffffffffu, t / 32, 0);
    for (int i = 0; i < first; i++) x = x * 0.25f + 1.f;
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    C[t] = x;
}

extern "C" __global__ void met(float* C, int n) {  // __syncwarp inside diverged code
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = t;
    float x = 0;
    if (t % 32 < 16) {
        for (int i = 0; i < t % 4 + n; i++) x = x * 1.5f + i;
        __syncwarp(0xffff);
        x += s[t ^ 1];
    } else {
        for (int i = 0; i < t % 5; i++) x = x * 2.5f - i;
    }
    __syncwarp();
    C[t] = x + s[63 - t];
}

extern "C" __global__ void guarded(const float* A, float* C, int n) {  // a few guarded multiply-adds
    int t = threadIdx.x;
    float x = A[t];
    if (t < n) x = x * x + 1.f;
    if (t & 4) x = x * 3.f + 2.f;
    C[t] = x;
}

extern "C" __global__ void local_array(float* C, int n) {  // an array that must live in local memory
    float a[40];
    int t = threadIdx.x;
    for (int i = 0; i < 40; i++) a[i] = i * t;
    float x = 0;
    for (int i = 0; i < n; i++) x += a[(i * 7 + t) % 40];
    float4 v = reinterpret_cast<float4*>(a)[(n + t) % 10];
    C[t] = x + v.x + v.y + v.z + v.w;
}

extern "C" __global__ void atomics(float* C, int* D, unsigned* E) {
    __shared__ unsigned histogram[32];
    __shared__ float sum;
    int t = threadIdx.x;
    if (t < 32) histogram[t] = 0;
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&histogram[t * 7 % 32], 1u);
    atomicAdd(&C[t % 8], 1.0f);
    int old = atomicAdd(&D[t], 2);
    __syncthreads();
    if (t < 32) E[t] = histogram[t] + old;
}

extern "C" __global__ void pipelined(const float* A, float* C, int n) {  // cp.async, two buffers
    __shared__ __align__(16) float s[2][256];
    int t = threadIdx.x;
    float x = 0;
    unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(&s[0][t * 4]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\ncp.async.commit_group;" :: "r"(base), "l"(A + t * 4));
    for (int i = 1; i <= n; i++) {
        if (i < n) {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\ncp.async.commit_group;"
                :: "r"(base + (i & 1) * 1024), "l"(A + i * 256 + t * 4));
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) x = x * 0.5f + s[(i + 1) & 1][(t + k * 64) % 256];
        __syncthreads();
    }
    C[blockIdx.x * blockDim.x + t] = x;
}

extern "C" __global__ void wmma_tile(const half* A, const half* B, float* C, int K) {  // warp-level matrices from shared memory
    using namespace nvcuda;
    __shared__ __align__(32) half a[32][24], b[16][40];
    int t = threadIdx.x, warp = t / 32, row = warp / 2 * 16, col = warp % 2 * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.f);
    for (int k = 0; k < K; k += 16) {
        for (int i = t; i < 512; i += 128) a[i / 16][i % 16] = A[i / 16 * K + k + i % 16];
        for (int i = t; i < 512; i += 128) b[i / 32][i % 32] = B[(k + i / 32) * 32 + i % 32];
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
        wmma::load_matrix_sync(fa, &a[row][0], 24);
        wmma::load_matrix_sync(fb, &b[0][col], 40);
        wmma::mma_sync(c, fa, fb, c);
        __syncthreads();
    }
    wmma::store_matrix_sync(&C[row * 32 + col], c, 32, wmma::mem_row_major);
}

extern "C" __global__ void merged(const float* A, float* C, int n) {  // what ptxas merges, repeats and drops
    __shared__ __align__(16) float s[1024];
    int t = threadIdx.x;
    for (int i = t; i < 1024; i += blockDim.x) s[i] = A[i];
    __syncthreads();
    float x = 0;
    for (int k = 0; k < n; k++) {
        float a = s[(k * 4 + t * 8) % 1024], b = s[(k * 4 + t * 8) % 1024 + 1], c = s[(k * 4 + t * 8) % 1024 + 2];
        x = x * a + b * c + s[(k * 4 + t * 8) % 1024 + 3];
    }
    float twice = s[t] + s[t];
    s[t] = 1.f;
    C[2 * t] = x + twice;
    C[2 * t + 1] = x - twice;
}

extern "C" __global__ void idle(const float* A, float* C, int n) {  // guarded accesses: whole warps have nothing to do
    __shared__ float s[128];
    int t = threadIdx.x, on = t < n;
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));
    float x = 0.f, y = 0.f;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.shared.f32 [%1], %2;\n}" :: "r"(on), "r"(at), "f"(1.f) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0;\n@p ld.shared.f32 %0, [%2];\n}" : "+f"(x) : "r"(on), "r"(at) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0;\n@p ld.global.f32 %0, [%2];\n}" : "+f"(y) : "r"(on), "l"(A + t) : "memory");
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.f32 [%1], %2;\n}" :: "r"(on), "l"(C + t), "f"(x + y) : "memory");
}

extern "C" __global__ void twins(const float* A, float* C, int n) {  // two sides of a branch meet in barriers of the same name
    __shared__ __align__(16) float4 s[128];
    int t = threadIdx.x, g = blockIdx.x * blockDim.x + t;
    s[t ^ (t >> 3)] = make_float4(A[g], t, n, 1.f);
    __syncthreads();
    float x = 0.f;
    if (t % 4 < 2) {
        for (int i = t % 3; i < n; i += 1 + (t & 1)) { if (i % 5 == t % 5) x += s[(t + i) & 127].x; else x *= 0.5f; }
    } else {
        for (int i = t % 7; i < n; i += 2 + (t & 1)) { if (i % 3 == t % 3) x -= s[(t * 2 + i) & 127].w; else x *= 0.25f; }
    }
    float4 v = s[127 - t];
    C[g] = x + v.x + v.y + v.z + v.w;
}
extern "C" __global__ void jumped(const float* A, float* C, int n) {  // a jump through a table
    float x = A[threadIdx.x];
    for (int i = 0; i < n; i++) {
        unsigned way = (threadIdx.x / 16 + i) & 3;
        asm volatile(
            "{\n.reg .f32 t;\nways: .branchtargets ONE, TWO, THREE, FOUR;\nbrx.idx %1, ways;\n"
            "ONE: mul.f32 %0, %0, 0f40000000;\nbra DONE;\n"
            "TWO: mul.f32 t, %0, %0;\nmul.f32 t, t, t;\nadd.f32 %0, t, %0;\nbra DONE;\n"
            "THREE: fma.rn.f32 %0, %0, %0, %0;\nbra DONE;\n"
            "FOUR: add.f32 %0, %0, 0f3f800000;\n"
            "DONE:\n}" : "+f"(x) : "r"(way));
    }
    C[threadIdx.x] = x;
}
__device__ __noinline__ float either(const float* p, int i) { return p[i] * 2.f; }
extern "C" __global__ void anywhere(const float* A, float* C, int n) {  // loads that find their memory at run time
    __shared__ float s[64];
    s[threadIdx.x] = A[threadIdx.x];
    __syncthreads();
    const float* p = n > 3 ? s : A;
    float x = 0;
    for (int i = 0; i < n; i++) x += either(p, (threadIdx.x + i * 2) & 63);
    C[threadIdx.x] = x;
}
__device__ __noinline__ float raised(float* p, int i) {
    p[i] += 1.f;
    return p[i] + p[i + 1];
}
extern "C" __global__ void lent(const float* A, float* C, int n) {  // a function writes to its caller's array, or to global memory
    float mine[16], x = 0;
    for (int i = 0; i < 16; i++) mine[i] = A[i];
    for (int i = 0; i < n; i++) x += raised(i & 1 ? mine : C, (threadIdx.x + i) & 7);
    C[threadIdx.x] = x;
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(const float* A, float* C, int n, int m) {  // values that steer loops and branches lie on the stack
    float x[40]; int at[8];
#pragma unroll
    for (int k = 0; k < 40; k++) x[k] = A[k * 64 + threadIdx.x];
#pragma unroll
    for (int k = 0; k < 8; k++) at[k] = (threadIdx.x * (k + 3) + m) % (n + k);
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int k = 0; k < 40; k++) x[k] = x[k] * x[(k + 7) % 40] + A[i];
#pragma unroll
        for (int k = 0; k < 8; k++) if (at[k] > i) x[k] += 1.f;
    }
    float y = 0;
#pragma unroll
    for (int k = 0; k < 40; k++) y += x[k];
#pragma unroll
    for (int k = 0; k < 8; k++) if (at[k] & 1) y += at[k];
    C[blockIdx.x * 64 + threadIdx.x] = y;
}

extern "C" __global__ void zero_filled(const float* A, float* C, int n, unsigned mask) {  // past the cache; other lanes only fill zeros
    __shared__ __align__(16) float s[2][256];
    int t = threadIdx.x;
    unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(&s[0][t * 4]));
    unsigned bytes = mask >> (t & 31) & 1 ? 16 : 0;
    float x = 0;
    for (int i = 0; i < n; i++) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\ncp.async.commit_group;\ncp.async.wait_group 0;"
            :: "r"(base + (i & 1) * 1024), "l"(A + i * 256 + t * 4), "r"(bytes));
        __syncthreads();
        x = x * 0.5f + s[i & 1][t * 4];
        __syncthreads();
    }
    C[blockIdx.x * blockDim.x + t] = x;
}

extern "C" __global__ void partly_filled(const float* A, float* C, int n, unsigned mask) {  // through the cache; other lanes copy a half
    __shared__ __align__(16) float s[2][256];
    int t = threadIdx.x;
    unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(&s[0][t * 4]));
    unsigned bytes = mask >> (t & 31) & 1 ? 16 : 8;
    float x = 0;
    for (int i = 0; i < n; i++) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\ncp.async.commit_group;\ncp.async.wait_group 0;"
            :: "r"(base + (i & 1) * 1024), "l"(A + i * 256 + t * 4), "r"(bytes));
        __syncthreads();
        x = x * 0.5f + s[i & 1][t * 4];
        __syncthreads();
    }
    C[blockIdx.x * blockDim.x + t] = x;
}

extern "C" __global__ void edge_filled(const float* A, float* C, int n, int inside) {  // words through the cache; zeros behind the edge
    __shared__ float s[2][64];
    int t = threadIdx.x;
    unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(&s[0][t]));
    unsigned bytes = t < inside ? 4 : 0;
    float x = 0;
    for (int i = 0; i < n; i++) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\ncp.async.commit_group;\ncp.async.wait_group 0;"
            :: "r"(base + (i & 1) * 256), "l"(A + i * 64 + t), "r"(bytes));
        __syncthreads();
        x = x * 0.5f + s[i & 1][t ^ 1];
        __syncthreads();
    }
    C[blockIdx.x * blockDim.x + t] = x;
}
