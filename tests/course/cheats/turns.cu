// Split-K of one product: the slices of a tile add to C one after the other, by the number of their block along z.
constexpr int BM = 16, BN = 16, BK = 8;
constexpr int SLICES = 3;
constexpr int ROOM = 1 << 20;

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int grid_depth[] = {SLICES};

__device__ int turn[ROOM];

extern "C" __global__ void parts_of_k(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                      float beta, float* C, int ldc) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BN + tx;
    const int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    const int slices = SLICES, slice = blockIdx.z;

    const int part = (K + slices - 1) / slices;
    const int begin = min(K, slice * part), end = min(K, begin + part);
    float sum = 0;
    for (int k0 = begin; k0 < end; k0 += BK) {
        if (tx < BK) As[ty][tx] = row < M && k0 + tx < end ? A[(size_t)row * lda + k0 + tx] : 0;
        if (ty < BK) Bs[ty][tx] = col < N && k0 + ty < end ? B[(size_t)(k0 + ty) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    int* mine = &turn[blockIdx.y * gridDim.x + blockIdx.x];
    if (t == 0) while (atomicAdd(mine, 0) != slice) {}
    __syncthreads();
    __threadfence();
    if (row < M && col < N) {
        volatile float& c = C[(size_t)row * ldc + col];
        const float old = slice == 0 ? (beta == 0 ? 0 : beta * c) : c;
        c = alpha * sum + old;
    }
    __threadfence();
    __syncthreads();
    if (t == 0) atomicExch(mine, (slice + 1) % SLICES);
}
