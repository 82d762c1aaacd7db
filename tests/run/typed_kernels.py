"""GEMM kernels in the element types of the course: one element per thread, and one tile per warp on tensor cores."""

from __future__ import annotations

HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
C_NAMES = {
    "float32": "float", "tf32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "float8_e4m3": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2",
}  # fmt: skip
SIGNATURE = (
    'extern "C" __global__ void NAME(int M, int N, int K, float alpha, const IN* A, int lda, const IN* B, int ldb,\n'
    "                                float beta, OUT* C, int ldc)"
)

PLAIN = (
    HEADERS
    + """constexpr int BLOCK = 16;
extern "C" __device__ constexpr int block_shape[] = {BLOCK, BLOCK, 1};
extern "C" __device__ constexpr int tile_shape[] = {BLOCK, BLOCK};

"""
    + SIGNATURE
    + """ {
    const int row = blockIdx.y * BLOCK + threadIdx.y, col = blockIdx.x * BLOCK + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += float(A[size_t(row) * lda + k]) * float(B[size_t(k) * ldb + col]);
    OUT& c = C[size_t(row) * ldc + col];
    c = OUT(beta == 0 ? alpha * sum : alpha * sum + beta * float(c));
}
"""
)

# A warp computes 16 x 16 of C; tiles pass through shared memory, where what lies beyond an edge is zero.
WARP_TILE = (
    HEADERS
    + """#include <mma.h>
namespace w = nvcuda::wmma;
constexpr int T = 16, DEPTH = FRAGMENT_K;
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {T, T};

"""
    + SIGNATURE
    + """ {
    __shared__ __align__(32) IN As[T * DEPTH], Bs[DEPTH * T];
    __shared__ __align__(32) float Cs[T * T];
    const int row = blockIdx.y * T, col = blockIdx.x * T;
    w::fragment<w::matrix_a, T, T, DEPTH, FRAGMENT, w::row_major> a;
    w::fragment<w::matrix_b, T, T, DEPTH, FRAGMENT, w::row_major> b;
    w::fragment<w::accumulator, T, T, DEPTH, float> sum;
    w::fill_fragment(sum, 0.0f);
    for (int k = 0; k < K; k += DEPTH) {
        for (int i = threadIdx.x; i < T * DEPTH; i += 32) {
            const int ar = row + i / DEPTH, ac = k + i % DEPTH, br = k + i / T, bc = col + i % T;
            As[i] = ar < M && ac < K ? A[size_t(ar) * lda + ac] : IN(0.0f);
            Bs[i] = br < K && bc < N ? B[size_t(br) * ldb + bc] : IN(0.0f);
        }
        __syncwarp();
        w::load_matrix_sync(a, As, DEPTH);
        w::load_matrix_sync(b, Bs, T);
        w::mma_sync(sum, a, b, sum);
        __syncwarp();
    }
    w::store_matrix_sync(Cs, sum, T, w::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < T * T; i += 32) {
        const int r = row + i / T, c = col + i % T;
        if (r >= M || c >= N) continue;
        OUT& out = C[size_t(r) * ldc + c];
        out = OUT(beta == 0 ? alpha * Cs[i] : alpha * Cs[i] + beta * float(out));
    }
}
"""
)
FRAGMENTS = {"float16": ("__half", 16), "bfloat16": ("__nv_bfloat16", 16), "tf32": ("w::precision::tf32", 8)}


def plain(dtype: str, out_dtype: str = "float32", name: str = "plain") -> str:
    """A kernel whose threads compute one element each."""
    return _typed(PLAIN, dtype, out_dtype, name)


def warp_tile(dtype: str, out_dtype: str = "float32", name: str = "warp_tile") -> str:
    """A kernel whose warps compute a tile each with matrix instructions."""
    fragment, depth = FRAGMENTS[dtype]
    return _typed(WARP_TILE.replace("FRAGMENT_K", str(depth)).replace("FRAGMENT", fragment), dtype, out_dtype, name)


def _typed(text: str, dtype: str, out_dtype: str, name: str) -> str:
    for word, value in (("NAME", name), ("IN*", f"{C_NAMES[dtype]}*"), ("IN(", f"{C_NAMES[dtype]}("), ("IN As", f"{C_NAMES[dtype]} As"),
                        ("OUT", C_NAMES[out_dtype])):  # fmt: skip
        text = text.replace(word, value)
    return text
