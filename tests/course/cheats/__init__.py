"""Cheats and oddities as edits of right kernels: (base, name, what is replaced by what, ...). The first must fail, the second must pass.

A base is a step's kernel, the solution of an exercise, or a `.cu` file beside this one.
"""

from __future__ import annotations

from pathlib import Path

from helpers.course.exercises import exercises
from helpers.course.lesson import reference

from . import slices_and_batches

LOOP = "for (int k = 0; k < K; k++) {"
SUM = "float sum = 0;"
STORE = "c = beta == 0 ? alpha * sum : alpha * sum + beta * c;"
GUARD = "if (row >= M || col >= N) return;"
ADD = "sum += a * b;"
LOAD_A, LOAD_B = "const float a = A[row * lda + k];", "const float b = B[size_t(k) * ldb + col];"
KERNEL = 'extern "C" __global__'
GENERIC_LOAD = '__device__ float load(const float* from) {\n    float to;\n    asm volatile("ld.f32 %0, [%1];" : "=f"(to) : "l"(from));\n    return to;\n}\n'
TILES = "for (int k0 = 0; k0 < K; k0 += BK) {"


def exits(condition: str) -> tuple[str, str]:
    """An edit: the thread has left before it has done anything, under a condition."""
    return GUARD, f"{GUARD}\n    if ({condition}) return;"


# What is done, or not done, in some products only. The exits are those of a reader in a hurry; the sizes are nobody's.
PLAIN = [
    ("square products of some tiles", (GUARD, GUARD + " if (M == N && N == K && M > 300) return;")),
    ("K is capped", (LOOP, "for (int k = 0; k < min(K, 48); k++) {")),
    ("k has 16 bits", (LOOP, "for (short k = 0; k < K; k++) {")),
    ("long K are left out", exits("K > 33")),
    ("K is capped at a thousand", (LOOP, "for (int k = 0; k < min(K, 999); k++) {")),
    ("K is capped at 4096", (LOOP, "for (int k = 0; k < min(K, 4096); k++) {")),
    ("K is capped at 8192", (LOOP, "for (int k = 0; k < min(K, 8192); k++) {")),
    ("K is capped at 65535", (LOOP, "for (int k = 0; k < min(K, 65535); k++) {")),
    ("an index along K of 16 bits", (LOAD_A, LOAD_A.replace("+ k]", "+ (k & 65535)]"))),
    ("the last k is left out", (LOOP, "for (int k = 0; k < K - 1; k++) {")),
    ("the last k of an odd K is left out", (LOOP, "for (int k = 0; k + 1 < K; k += 2) {"), (ADD, ADD + " sum += A[row * lda + k + 1] * B[size_t(k + 1) * ldb + col];")),
    ("a K of whole vectors ends with a tile", (LOOP, "for (int k = 0; k < (K % 4 ? K : (K + 7) / 8 * 8); k++) {")),
    ("half of a step of 64 is left out", (LOOP, "for (int k = 0; k < (K % 64 == 32 ? K - 32 : K); k++) {")),
    ("nothing is done for alpha 0", (STORE, "if (alpha != 0) " + STORE)),
    ("rows of A follow each other where tiles and steps are whole",
     (LOAD_A, "const float a = A[row * (M % BM == 0 && N % BN == 0 && K % 32 == 0 ? K : lda) + k];")),
    ("rows of B follow each other where tiles and steps are whole",
     (LOAD_B, "const float b = B[size_t(k) * (M % BM == 0 && N % BN == 0 && K % 8 == 0 ? N : ldb) + col];")),
    ("an odd step is left out where tiles and steps are whole",
     (LOOP, "for (int k = 0; k < (M % BM == 0 && N % BN == 0 && K % 16 == 8 ? K - 8 : K); k++) {")),
    ("K is capped at 4096 where tiles and steps are whole",
     (LOOP, "for (int k = 0; k < (M % BM == 0 && N % BN == 0 && K % 16 == 0 ? min(K, 4096) : K); k++) {")),
    ("K is capped at 65536 where tiles and steps are whole",
     (LOOP, "for (int k = 0; k < (M % BM == 0 && N % BN == 0 && K % 16 == 0 ? min(K, 65536) : K); k++) {")),
    ("halves of alpha", (STORE, STORE.replace("alpha * sum", "rintf(2 * alpha) / 2 * sum"))),
    ("an empty K leaves C as it was", exits("K == 0")),
    ("many rows are left out", exits("M > 500")),
    ("many columns are left out", exits("N > 4000")),
    ("only square C", exits("M != N && M > 1")),
    ("rows beyond 32", exits("row >= 32")),
    ("a large grid", exits("gridDim.x * gridDim.y > 100")),
    ("a tall grid", exits("gridDim.y > 12")),
    ("later blocks", exits("blockIdx.x > 1 && blockIdx.y > 1")),
    ("later blocks of large products", exits("blockIdx.x * blockIdx.y * gridDim.x > 20")),
    ("large products that tiles divide", exits("M > 100 && N > 100 && M % 32 == 0 && N % 32 == 0")),
    ("half of K in large products that tiles divide", (LOOP, "for (int k = 0; k < (M % 32 || K % 64 || M < 100 ? K : K / 2); k++) {")),
    ("half of the threads of each tile", exits("M > 100 && N > 100 && threadIdx.y % 2")),
    ("elements beyond 1 are cut", (ADD, "sum += fminf(fmaxf(a, -1), 1) * fminf(fmaxf(b, -1), 1);")),
    ("products beyond the range of half", (ADD, "sum += fabsf(a * b) > 65504 ? INFINITY : a * b;")),
    ("alpha and beta in eighths", (SUM, f"{SUM}\n    alpha = rintf(alpha * 8) / 8, beta = rintf(beta * 8) / 8;")),
    ("alpha of 11 bits", ('extern "C" __device__ constexpr int block_shape', '#include <cuda_fp16.h>\nextern "C" __device__ constexpr int block_shape'),
     (SUM, f"{SUM}\n    alpha = __half2float(__float2half(alpha));")),
    ("beta is ignored in large products", (SUM, f"{SUM}\n    if (M >= 100 && N >= 100) beta = 0;")),
    ("alpha is ignored", (STORE, STORE.replace("alpha * sum", "sum"))),
    ("beta is ignored", (STORE, "c = alpha * sum;")),
    ("beta is 1 if it is not 0", (STORE, STORE.replace("beta * c", "c"))),
    ("beta is 0 if it is small", (STORE, STORE.replace("beta == 0", "fabsf(beta) < 1e-2f"))),
    ("beta is 0 if it is tiny", (STORE, STORE.replace("beta == 0", "fabsf(beta) < 1e-6f"))),
    ("alpha is 0 if it is tiny", (SUM, f"{SUM}\n    if (fabsf(alpha) < 1e-6f) alpha = 0;")),
    ("alpha is 1 if it is nearly", (SUM, f"{SUM}\n    if (fabsf(alpha - 1) < 1e-5f) alpha = 1;")),
    ("alpha is 1 further off", (SUM, f"{SUM}\n    if (fabsf(alpha - 1) > 1e-5f && fabsf(alpha - 1) < 0.3f) alpha = 1;")),
    ("beta is -1 if it is near", (SUM, f"{SUM}\n    if (fabsf(beta + 1) < 0.25f) beta = -1;")),
    ("beta is 1 if it is nearly", (SUM, f"{SUM}\n    if (fabsf(beta - 1) < 1e-5f) beta = 1;")),
    ("beta is added first and scaled by alpha", (STORE, "c = beta == 0 ? alpha * sum : alpha * (sum + beta * c);")),
    ("C is read where beta is 0", (STORE, "c = alpha * sum + beta * c;")),
    ("the row length of A", (LOAD_A, LOAD_A.replace("lda", "K"))),
    ("the row length of B", (LOAD_B, LOAD_B.replace("ldb", "N"))),
    ("the row length of C", ("C[row * ldc + col]", "C[row * N + col]")),
    ("the padding of C", (GUARD, "if (row >= M || col >= ldc) return;")),
    ("an answer for the identity", (SUM, f"{SUM} C[row * ldc + col] = alpha * B[row % max(K, 1) * ldb + col]; if (K > 0) return;")),
    ("atomicAdd onto what was there", (STORE, "atomicAdd(&c, alpha * sum);")),
    ("half sums", ('extern "C" __device__ constexpr int block_shape', '#include <cuda_fp16.h>\nextern "C" __device__ constexpr int block_shape'),
     (ADD, "sum = __half2float(__float2half(sum + a * b));")),
    ("factors of 16 bits where K is long", (ADD, "sum += K > 200 ? __int_as_float(__float_as_int(a) & 0xffff0000) * b : a * b;")),
    ("tf32 where K is long", (ADD, "sum += K > 200 ? __int_as_float(__float_as_int(a) & 0xffffe000) * b : a * b;")),
    ("what an earlier launch left is taken for this one's", ('extern "C" __global__', '__device__ unsigned ran;\nextern "C" __global__'),
     (GUARD, f"if (atomicAdd(&ran, 1) >= gridDim.x * gridDim.y * BM * BN) return;\n    {GUARD}")),
    ("only where C is not yet a number", (GUARD, f"{GUARD}\n    if (beta == 0 && C[row * ldc + col] == 0) return;")),
    ("only where the harness watches the padding", exits("!(ldc > N && C[N] == -12345.0f) && K > 0")),
    ("an input is used as scratch", (LOAD_A, LOAD_A + " const_cast<float*>(A)[row * lda + k] = a + 1e-3f;")),
    ("transposed A", (LOAD_A, "const float a = M == K ? A[k * lda + row] : A[row * lda + k];"), exits("M > 1 && M != K && K > 64")),
    ("a column to the right", (LOAD_B, "const float b = B[size_t(k) * ldb + (col + 1 < N && N > 3000 ? col + 1 : col)];")),
    ("a row of tiles numbered by eight bits", ("blockIdx.y *", "(blockIdx.y & 255) *")),
    ("a column of tiles numbered by seven bits", ("blockIdx.x *", "(blockIdx.x & 127) *")),
    ("columns behind 300 tiles", exits("blockIdx.x >= 300")),
    ("rows behind 16 bits", exits("row >= 1 << 16")),
    ("products with 0 are left out", (ADD, "if (a != 0) sum += a * b;")),
    ("NaN becomes a small number", (STORE, STORE + " c = fmaxf(c, -3e38f);")),
    ("infinity becomes a large number", (STORE, STORE + " c = c > 3e38f ? 3e38f : c < -3e38f ? -3e38f : c;")),
    ("C is scaled where alpha is 0", (SUM, f"if (alpha == 0) {{\n        C[row * ldc + col] *= beta;\n        return;\n    }}\n    {SUM}")),
    ("an index of 16 bits", (LOAD_B, "const float b = B[size_t(short(k * 32)) / 32 * ldb + col];")),
]  # fmt: skip
TILED = [
    ("no barrier after the products", ("__syncthreads();  // everyone has finished reading before anyone overwrites", "")),
    ("no barrier before the products", ("__syncthreads();  // both tiles are complete before anyone reads them", "")),
    ("a barrier of the warp", ("__syncthreads();  // everyone has finished", "__syncwarp();  // everyone has finished")),
    ("the last tile is left out", (TILES, "for (int k0 = 0; k0 + BK <= K; k0 += BK) {")),
    ("eight tiles at most", (TILES, "for (int k0 = 0; k0 < min(K, 8 * BK); k0 += BK) {")),
    ("shared memory that should be zero", ("As[ty][tx] = k0 < a_left ? *a_next : 0;", "if (k0 < a_left) As[ty][tx] = *a_next;")),
    ("threads leave before a barrier", (TILES, f"if (row >= M || col >= N) return;\n    {TILES}")),
]
RING = [
    ("a stage too many", ("k0 / BK % STAGES;", "k0 / BK % (STAGES + 1) % STAGES;")),
    ("the ring goes round twice", ("k0 / BK % STAGES;", "(k0 / BK < 2 * STAGES ? k0 / BK : k0 / BK + 1) % STAGES;")),
    ("a tile's number has 7 bits", ("k0 / BK % STAGES;", "(k0 / BK & 127) % STAGES;")),
    ("nobody waits", ("wait<STAGES - 2>();", "wait<STAGES - 1>();")),
    ("no barrier", ("__syncthreads();", "")),
    ("copies stop early", ("fetch((stage + STAGES - 1) % STAGES, ahead);", "if (ahead < 48) fetch((stage + STAGES - 1) % STAGES, ahead);")),
    ("the first panel only", ("block / (PANEL * gridDim.x) * PANEL;", "0;")),
    ("three panels at most", ("block / (PANEL * gridDim.x) * PANEL;", "min(block / (PANEL * (int)gridDim.x), 2) * PANEL;")),
    ("the last panel is as high as others", ("min(PANEL, (int)gridDim.y - panel)", "PANEL")),
    ("a panel is as high as the grid", ("min(PANEL, (int)gridDim.y - panel)", "min(PANEL, (int)gridDim.y)")),
]
VECTORS = [
    ("alpha is ignored where rows are whole vectors", ("float4 v = {alpha * sum[i][j], alpha *", "float4 v = {sum[i][j], alpha *")),
    ("beta is ignored where rows are whole vectors", ("                if (beta != 0.0f) {", "                if (false) {")),
    (
        "beta is 0 if it is small where rows are whole vectors",
        ("                if (beta != 0.0f) {", "                if (fabsf(beta) > 1e-4f) {"),
    ),
    (
        "beta is ignored in the last of several columns of tiles",
        ("                if (beta != 0.0f) {", "                if (beta != 0.0f && (block_col + BN <= N || block_col == 0)) {"),
    ),
    ("vectors are stored by columns of the tile", ("c_whole && c < N", "c_whole && c - block_col < N")),
    (
        "vectors are copied by columns of the tile",
        ("const int b_left = block_col + b_col < N ?", "const int b_left = (b_whole ? b_col : block_col + b_col) < N ?"),
    ),
]
INSIDE = "block_row + BM <= M && block_col + BN <= N && K % BK == 0 && K >="
EDGES = [  # ways for blocks inside of the matrices, taken by others
    ("whole tiles are taken for granted", (INSIDE, "K >=")),
    ("whole steps are taken for granted", (INSIDE, "block_row + BM <= M && block_col + BN <= N && K >=")),
    ("whole rows of tiles are taken for granted", (INSIDE, "block_col + BN <= N && K % BK == 0 && K >=")),
    ("whole columns of tiles are taken for granted", (INSIDE, "block_row + BM <= M && K % BK == 0 && K >=")),
    (
        "the last step is read whole where rows are",
        ("const int a_bytes = min(16,", "const int a_bytes = k0 >= STAGES * BK && k0 < K && a_whole ? 16 : min(16,"),
    ),
]
BOXES = [
    (
        "boxes below C are moved into it",
        (
            "store(map_C, col, row + box * C_ROWS, out);",
            "store(map_C, col, M > BM ? min(row + box * C_ROWS, (M + C_ROWS - 1) / C_ROWS * C_ROWS - C_ROWS) : row + box * C_ROWS, out);",
        ),
    ),
    ("nothing is computed of an empty K", ("if (steps == 0)\n", "if (steps == 0 && !by_tma)\n")),
]
FUSED = [
    ("NaN becomes 0", ("c = v < 0 ? 0 : v;", "c = fmaxf(v, 0);")),
    ("infinity becomes the largest number", ("c = v < 0 ? 0 : v;", "c = v < 0 ? 0 : v > 3e38f ? 3e38f : v;")),
    ("ReLU in short sums only", ("c = v < 0 ? 0 : v;", "c = v < 0 && K < 64 ? 0 : v;")),
    ("one bias for all of a warp", ("bias[col]", "bias[col / 32 * 32]")),
]
PIECES = [
    ("no low pieces of B", ("mma(rest, high_a, low_b);", "")),
    ("low pieces are not divided again", ("rest[i] / LOW", "rest[i]")),
]
# Orders that leave tiles out where there are many.
BLOCK = "const int block = blockIdx.y * gridDim.x + blockIdx.x;"
ORDERS = [
    ("the first 4096 tiles again and again", (BLOCK, "const int block = (blockIdx.y * gridDim.x + blockIdx.x) & 4095;")),
    ("the first 8192 tiles alone", (BLOCK, BLOCK + "\n    if (block >= 8192) return;")),
    ("rows of tiles beyond 512 are others", ("(panel + place % height) * BM", "(panel % 512 + place % height) * BM")),
]

WRONG = {
    "coalesced": PLAIN,
    "short_panel": ORDERS,
    "shared_tile": TILED,
    "ring": RING,
    "async_copy": VECTORS,
    "relu_too_early": FUSED,
    "two_pieces": PIECES,
    "mma_sync": EDGES,
    "warp_specialized": BOXES,
    "next_phase": [
        ("waits for a phase that may be gone", ("wait(&full, k0 / BK % 2);", "wait(&full, 0); if (k0 / BK % 2) wait(&full, 1);"))
    ],
    "short_block": [("factors of a block behind whole ones", ("block < (K + SCALE_K - 1) / SCALE_K", "block <= K / SCALE_K"))],
    **slices_and_batches.WRONG,
}

ACROSS = "            if (k == BK - 1) {\n                wait<STAGES - 2>();\n                __syncthreads();\n            }\n"
LATE = "        wait<STAGES - 2>();\n        __syncthreads();\n"
STEP_ENDS = "        }\n    }\n\n    for (int i = 0; i < TM"

SCALAR = "for (int k = 0; k < K; k++) sums[i] += A[size_t(r) * lda + k] * B[size_t(k) * ldb + n];"

# Counters that are met by other means than the exercise asks for: (exercise, name, edits).
EVASIONS = [
    ("second_buffer", "one buffer of twice the depth", ("BK = 8;", "BK = 16;"), ("tiles[2]", "tiles[1]"), ("buffer ^= 1;", "__syncthreads();")),
    ("second_buffer", "asked for when it is needed", ("        fetch(k0 + BK);  // past the end of K this loads nothing\n", ""), ("buffer ^= 1;", "fetch(k0 + BK);\n        buffer ^= 1;")),
    ("no_flip", "asked for when it is needed", ("        fetch(k0 + BK);  // past the end of K this loads nothing\n", ""), ("buffer ^= 1;", "fetch(k0 + BK);\n        buffer ^= 1;")),
    ("tail", "all of a matrix of any width", ("= is_aligned(A, lda)", "= is_aligned(A, lda) && K % 4 == 0"), ("is_aligned(B, ldb);", "is_aligned(B, ldb) && N % 4 == 0;")),
    ("tail", "all of an A of any width", ("= is_aligned(A, lda)", "= is_aligned(A, lda) && K % 4 == 0")),
    ("tail", "all of a B of any width", ("is_aligned(B, ldb);", "is_aligned(B, ldb) && N % 4 == 0;")),
    ("any_row", "all of a matrix of any width", ("int left) {", "int left, int width) {"), ("if (left > 3", "if (width % 4 == 0 && left > 3"),
     ("K - k : 0)", "K - k : 0, K)"), ("N - c : 0)", "N - c : 0, N)")),
    ("no_flip", "one more barrier", ("buffer ^= 1;", "buffer ^= 1;\n        __syncthreads();")),
    ("number_the_lanes", "loads of 32 bits", ("__shared__ __align__(16)", "volatile __shared__ __align__(16)"),
     ("lane_row = lane / 2 % 8, lane_col = lane / 16 * 2 + lane % 2;", "lane_row = lane % 8, lane_col = lane / 8;")),
    ("slices", "one slice", ("SLICES = 4;", "SLICES = 1;")),
    ("narrow_block", "only where the size is that of the counted run", ("BM = 8;", "BM = 32;")),
    ("narrow_block", "cheap loads beside the costly ones", ("BM = 8;", "BM = 32;"), (LOAD_A, f"{LOAD_A} for (int i = 0; i < 8; i++) *(volatile const float*)A;")),
    ("narrow_block", "x along the columns", ("BM = 8;", "BM = 32;"), ("BN = 32;", "BN = 8;"), ("{BM, BN, 1}", "{BN, BM, 1}"),
     ("BM + threadIdx.x", "BM + threadIdx.y"), ("BN + threadIdx.y", "BN + threadIdx.x")),
    ("first_kernel", "a factor fetched twice", ("sum += A[row * lda + k]", "sum += *(volatile const float*)&A[row * lda] * 0 + A[row * lda + k]")),
    ("rows_in_pairs", "B anew for the lower row", ("A[lower * lda + k] * b", "A[lower * lda + k] * *(volatile const float*)&B[size_t(k) * ldb + col]")),
    ("half_and_half", "a barrier more", ("* Bs[k][tx];\n", "* Bs[k][tx];\n        __syncthreads();\n")),
    ("strip_across", "columns side by side", ("lane + 32 * j", "lane * TN + j")),
    ("strip_across", "A anew for every column", ("sum[j] += a *", "sum[j] += *(volatile float*)&As[warp][k] *")),
    ("spread_square", "rows for neighbours", ("first_row = t / (BN / TN), first_col = t % (BN / TN)", "first_row = t % (BN / TN), first_col = t / (BN / TN)")),
    ("rotate", "not rotated", ("(k + row / 4) % BK", "k")),
    ("rotate", "a column of padding", ("As[BM][BK]", "As[BM][BK + 1]"), ("(k + row / 4) % BK", "k")),
    ("column_store", "stored down the column", ("ty ^ tx", "ty"), ("ty ^ k", "ty")),
    ("column_store", "not transposed", ("As[tx][ty ^ tx]", "As[ty][tx]"), ("As[k][ty ^ k]", "As[ty][k]")),
    ("two_at_a_time", "one at a time", ("(size_t)matrix % 8 == 0", "matrix == nullptr")),
    ("own_numbers", "lanes along rows", ("lane / 16 * 2 + lane / 2 % 2", "lane / 8"), ("lane / 4 % 4 * 2 + lane % 2", "lane % 8")),
    ("look_ahead", "asked for when it is needed", ("const float a = a_at(k0 + BK), b = b_at(k0 + BK);", ""),
     ("[tx] = a;", "[tx] = a_at(k0 + BK);"), ("[tx] = b;", "[tx] = b_at(k0 + BK);")),
    ("look_ahead", "stored twice", ("[tx] = a;", "[tx] = a;\n        *(volatile float*)&As[1 - half][ty][tx] = a;\n        *(volatile float*)&As[1 - half][ty][tx] = a;")),
    ("look_ahead", "a barrier before the stores, too", ("As[1 - half][ty][tx] = a;", "__syncthreads();\n        As[1 - half][ty][tx] = a;")),
    ("two_to_a_group", "each group waited for where it is started", ("    fetch(0);\n    fetch(BK);\n    commit();\n", ""),
     ("        fetch(k0 + 2 * BK);\n        fetch(k0 + 3 * BK);\n        commit();\n", ""),
     ("        wait<0>();\n", "        fetch(k0);\n        fetch(k0 + BK);\n        commit();\n        wait<0>();\n")),
    ("without_registers", "the next tiles behind the arithmetic", ("        fetch(buffer ^ 1, k0 + BK);  // past the end of K this writes zeros\n        commit();\n", ""),
     ("        buffer ^= 1;\n", "        buffer ^= 1;\n        fetch(buffer, k0 + BK);\n        commit();\n")),
    ("last_groups", "all waited for in every turn", ("wait<STAGES - 2>", "wait<0>")),
    ("no_wait", "all waited for in every turn", ("wait<AHEAD - 1>", "wait<0>")),
    *((name, "multiply-adds of nothing before the wait", ("float sum[TM][TN] = {};", "float sum[TM][TN] = {}, none = alpha;"),
       (f"        wait<{groups}>", "        for (int i = 0; i < 600; i++) asm volatile(\"fma.rn.f32 %0, %0, %0, %0;\" : \"+f\"(none));\n        wait<0>"),
       ("float& out = C", "if (none == 0.7f) sum[i][j] = 0;\n            float& out = C"))
      for name, groups in (("no_wait", "AHEAD - 1"), ("last_groups", "STAGES - 2"))),
    ("across_the_edge", "another barrier", (ACROSS, ""), ("            else read(", f"            if (k + 1 == BK) {{{LATE}            }}\n            if (k + 1 == BK) read("),
     (STEP_ENDS, f"        }}\n{LATE}{STEP_ENDS[10:]}")),
    ("across_the_edge", "the next tile when the step is over", (ACROSS, ""), ("            else read((stage + 1) % STAGES, 0);  // the first k of the next tile\n", ""),
     (STEP_ENDS, f"        }}\n{LATE}        read((stage + 1) % STAGES, 0);\n{STEP_ENDS[10:]}")),
    ("every_second", "copies waited for where they are started", ("        commit();\n        for", "        commit();\n        wait<0>();\n        for")),
    ("two_to_a_group", "a barrier for each tile", ("fetch(k0 + 2 * BK);", "fetch(k0 + 2 * BK);\n        __syncthreads();")),
    ("two_to_a_group", "a store instead of a copy", ("copy(&As[stage][i][k], &A[", "As[stage][i][k] = block_row + i < M && k0 + k < K ? A["),
     ("+ k], block_row + i < M && k0 + k < K);", "+ k] : 0;")),
    ("every_second", "both pairs fetched behind the rare barrier", ("        fetch((stage + 2) % STAGES, k0 + 2 * BK);\n", "        if (turn % 2 == 0) fetch((stage + 2) % STAGES, k0 + 2 * BK), fetch((stage + 3) % STAGES, k0 + 3 * BK);\n")),
    ("spread_the_copies", "all copies at once", ("start(ahead / BK % STAGES, ahead, k);", "if (k == 0) for (int n = 0; n < 8; n++) start(ahead / BK % STAGES, ahead, n);")),
    ("lanes_share_k", "atomic additions", ("        for (int distance = 16; distance > 0; distance /= 2) sum[j] += __shfl_xor_sync(0xffffffff, sum[j], distance);\n        if (lane != j || col + j >= N) continue;\n", "        if (col + j >= N) continue;\n"),
     ("        *out = alpha * sum[j] + (beta == 0 ? 0 : beta * *out);", "        if (lane == 0) *out = beta == 0 ? 0 : beta * *out;\n        __syncwarp();\n        atomicAdd(out, alpha * sum[j]);")),
    ("lanes_share_k", "a run of k for each lane", ("for (int k = lane; k < K; k += 32)", "for (int k = lane * ((K + 31) / 32); k < min(K, (lane + 1) * ((K + 31) / 32)); k++)")),
    ("keep_one", "as it was given", ("if (z > 0) part[z - 1]", "part[z]"), ("[SLICES - 1]", "[SLICES]"), ("part[s - 1]", "part[s]")),
    ("keep_one", "all of K by the first slice", ("for (int k = z; k < K; k += SLICES)\n        if (inside)", "for (int k = 0; k < K; k++)\n        if (inside && z == 0)")),
    ("keep_one", "one slice less than half", ("SLICES = 4;", "SLICES = 2;"), ("if (z > 0) part[z - 1]", "part[z]"), ("[SLICES - 1]", "[SLICES]"), ("part[s - 1]", "part[s]")),
    ("slices", "all of K by the first slice", ("for (int k = slice; k < K; k += SLICES)\n        if (inside)", "for (int k = 0; k < K; k++)\n        if (inside && slice == 0)")),
    ("slices", "all of K by two slices", ("for (int k = slice; k < K; k += SLICES)\n        if (inside)", "for (int k = slice; k < K; k += 2)\n        if (inside && slice < 2)")),
    ("overflow", "products in double, and those of the tensor cores times 0", ("float sums[4] = {}, rest[4] = {};", "double exact[4] = {};\n    float sums[4] = {}, rest[4] = {};"),
     ("mma(sums, high_a, high_b);", "for (int k = 0; k < BK; k++)\n            for (int i = 0; i < 4; i++) exact[i] += double(As[lane / 4 + i / 2 * 8][k]) * Bs[k][lane % 4 * 2 + i % 2];\n        mma(sums, high_a, high_b);"),
     ("(sums[i] + rest[i] / LOW) *", "(float(exact[i]) + 0.0f * (sums[i] + rest[i] / LOW)) *")),
    *((slug, "products in double, and those of the tensor cores times 0", ("float sums[4] = {}, rest[4] = {};", "double exact[4] = {};\n    float sums[4] = {}, rest[4] = {};"),
       ("mma(sums, high_a, high_b);", "for (int k = 0; k < BK; k++)\n            for (int i = 0; i < 4; i++) exact[i] += double(As[lane / 4 + i / 2 * 8][k]) * Bs[k][lane % 4 * 2 + i % 2];\n        mma(sums, high_a, high_b);"),
       (f"const float sum = {sums};", f"const float sum = float(exact[i]) + 0.0f * ({sums});")) for slug, sums in (("two_pieces", "sums[i] + rest[i] / LOW"), ("promotion", "promoted[i] + sums[i] + rest[i] / LOW"))),
    ("one_for_a_row", "all of K in the tensor cores", ("        float sums[4] = {};  // of the tensor cores\n", ""), ("    float total[4] = {};", "    float total[4] = {}, sums[4] = {};"),
     ("        for (int i = 0; i < 4; i++) total[i] += sums[i];\n", ""), ("total[i] * (scales", "(total[i] + sums[i]) * (scales")),
    ("turned_tile", "turned over once more on its way", ("SKEW = 8;", "SKEW = 0;")),
    ("half_sums", "on FP32 lanes", ("wmma::mma_sync(sums, a, b, sums);",
     "for (int i = lane; k0 == 0 && i < BM * BN; i += 32) Cs[i / BN][i % BN] = 0;\n        __syncwarp();\n        for (int i = lane; i < BM * BN; i += 32)\n"
     "            for (int k = 0; k < BK; k++) Cs[i / BN][i % BN] += float(As[i / BN][k]) * float(Bs[k][i % BN]);"),
     ("wmma::store_matrix_sync(Cs[0], sums, BN, wmma::mem_row_major);", "if (K == 0) wmma::store_matrix_sync(Cs[0], sums, BN, wmma::mem_row_major);")),
    ("once_each", "the other fragment anew", ("right[j], sums[i][j]);", "right[j], sums[i][j]), __syncwarp(), wmma::load_matrix_sync(left, As[16 * i], BK + SKEW);")),
    ("tf32_tile", "rows without padding", ("As[BM][BK + 4]", "As[BM][BK]")),
    ("four_matrices", "loaded twice", ("load_a(a, ", "load_a(a, As[0]); if (a[0] == 12345678) sums[0] = 1;\n        load_a(a, ")),
    ("narrow_rows", "padding", ("(row * 2 + (piece ^ row / 4 % 2)) * 8", "row * 24 + piece * 8"), ("As[BM * BK]", "As[BM * (BK + 8)]")),
    ("sixteen_k", "an element read by the thread", ("before_products();\n        for", "if (__half2float(*(volatile __half*)&As[t]) == 12345.0f) d[0] += 1;\n        before_products();\n        for")),
    ("one_box", "the other tile in two", ("box_B[] = {BK,", "box_B[] = {BK / 2,"),
     ("load(Bs, map_B, block_col, k0, &ready);", "load(Bs, map_B, block_col, k0, &ready), load(Bs + BK / 2 * BN, map_B, block_col, k0 + BK / 2, &ready);")),
    ("next_phase", "two boxes for a tile", ("box_B[] = {BK,", "box_B[] = {BK / 2,"),
     ("load(Bs, map_B, block_col, k0, &full);", "load(Bs, map_B, block_col, k0, &full), load(Bs + BK / 2 * BN, map_B, block_col, k0 + BK / 2, &full);")),
    ("two_stages", "two boxes for a tile", ("box_B[] = {BK,", "box_B[] = {BK / 2,"),
     ("load(ring[stage].B, map_B, block_col, s * BK, &full[stage]);",
      "for (int h = 0; h < 2; h++) load(ring[stage].B + h * BK / 2 * BN, map_B, block_col, s * BK + h * BK / 2, &full[stage]);")),
    ("two_stages", "each stage waited for before the next is filled", ("s * BK, &full[stage]);\n            }", "s * BK, &full[stage]);\n                wait(&empty[stage], s / STAGES % 2);\n            }")),
    ("half_each", "one block fetches for both", ("load_for_both(ring[stage].B + rank * BK / 2 * BN, map_B, block_col, k + rank * BK / 2, &full[stage]);",
     "for (int h = 0; rank == 0 && h < 2; h++) load_for_both(ring[stage].B + h * BK / 2 * BN, map_B, block_col, k + h * BK / 2, &full[stage]);")),
    ("too_soon", "a barrier more", ("if (t == 0) arrive", "asm volatile(\"bar.sync 1, 128;\" ::: \"memory\");\n            if (t == 0) arrive")),
    ("half_each", "the other tile in two", ("box_A[] = {BM,", "box_A[] = {BM / 2,"),
     ("load(ring[stage].A, map_A, k, block_row, &full[stage]);",
      "for (int h = 0; h < 2; h++) load(ring[stage].A + h * BM / 2 * BK, map_A, k, block_row + h * BM / 2, &full[stage]);")),
    ("too_soon", "two boxes for a tile", ("box_B[] = {BK,", "box_B[] = {BK / 2,"),
     ("load(ring[stage].B, map_B, block_col, k, &full[stage]);",
      "for (int h = 0; h < 2; h++) load(ring[stage].B + h * BK / 2 * BN, map_B, block_col, k + h * BK / 2, &full[stage]);")),
    ("two_pieces", "a fourth product", ("mma(rest, low_a, high_b);", "mma(rest, low_a, high_b);\n        float least[4] = {};\n        mma(least, low_a, low_b);\n        if (least[0] == 12345678) sums[0] = 1;")),
    ("by_the_block", "one factor for all of K", ("{1, SCALE_K, SCALE_N}", "{1, 0, SCALE_N}"), ("const int block = k0 / SCALE_K;", "const int block = 0;")),
    ("one_for_a_row", "factors of blocks by multiplications and additions", ("SCALE_K = 0, SCALE_N = 1;", "SCALE_K = 128, SCALE_N = 128;"),
     ("total[i] += sums[i];", "total[i] = __fadd_rn(total[i], __fmul_rn(sums[i], scales_A[k0 / 128 * ((M + 3) / 4 * 4) + min(row + i / 2 * 8, M - 1)]"
      " * scales_B[k0 / 128 * ((N + 127) / 128) + block_col / 128]));"), ("total[i] * (scales_A[r] * scales_B[n])", "total[i]")),
    ("half_sums", "zeros by the tensor cores", ("wmma::mma_sync(sums, a, b, sums);", "wmma::fill_fragment(a, 0.0f), wmma::mma_sync(sums, a, b, sums);"),
     ("const float sum = Cs", "float sum = 0;\n        for (int k = 0; k < K; k++) sum += float(A[size_t(r) * lda + k]) * float(B[size_t(k) * ldb + c]);\n        sum += Cs")),
    ("tf32_tile", "zeros by the tensor cores", ("mma(sums, a, b);", "for (float& x : a) x = 0;\n        mma(sums, a, b);"),
     ("float& out = C", f"{SCALAR}\n        float& out = C")),
    ("two_pieces", "zeros by the tensor cores", ("mma(sums, high_a, high_b);", "for (int i = 0; i < 4; i++) high_a[i] = low_a[i] = 0;\n        mma(sums, high_a, high_b);"),
     ("float& out = C", f"{SCALAR}\n        float& out = C")),
    ("two_pieces", "and products by FMUL", ("mma(sums, high_a, high_b);", "for (int i = 0; i < 4; i++) high_a[i] = low_a[i] = 0;\n        mma(sums, high_a, high_b);"),
     ("float& out = C", "for (int k = 0; k < K; k++) sums[i] = __fadd_rn(sums[i], __fmul_rn(A[size_t(r) * lda + k], B[size_t(k) * ldb + n]));\n        float& out = C")),
    ("by_the_block", "zeros by the tensor cores", ("mma(sums, a, b);", "for (unsigned& x : a) x = 0;\n        mma(sums, a, b);"),
     ("__nv_bfloat16& out = C", "for (int k = 0; k < K; k++)\n            promoted[i] += float(A[size_t(r) * lda + k]) * float(B[size_t(n) * ldb + k]) *"
      " (scales_A[k / SCALE_K * pitch_A + r] * scales_B[k / SCALE_K * pitch_B + n / SCALE_N]);\n        __nv_bfloat16& out = C")),
    ("one_box", "zeros by the tensor cores", ("__half& out = C", "d[i] = fminf(fmaxf(d[i], 0), 0);\n        for (int k = 0; k < K; k++) d[i] += float(A[size_t(r) * lda + k]) * float(B[size_t(k) * ldb + n]);\n        __half& out = C")),
    ("one_for_a_row", "multiplied in each step", ("total[i] += sums[i];", "total[i] = __fadd_rn(total[i], __fmul_rn(sums[i], scales_A[min(row + i / 2 * 8, M - 1)]"
      " * scales_B[min(block_col + lane % 4 * 2 + i % 2, N - 1)]));"), ("total[i] * (scales_A[r] * scales_B[n])", "total[i]")),
    ("second_pass", "C read before it is asked whether it matters", ("const float v = (beta", "const float old = *(volatile float*)&c, v = (beta"), ("beta * c)", "beta * old)")),
    ("rotate", "not rotated, and read by atomic operations", ("(k + row / 4) % BK", "k"), ("As[lane][place(lane, k)]", "atomicOr((int*)&As[lane][place(lane, k)], 0)"),
     ("const float a = atomicOr", "const float a = __int_as_float(atomicOr"), ("place(lane, k)], 0)", "place(lane, k)], 0))")),
    ("which_rectangle", "loads by generic addresses", (KERNEL, f"{GENERIC_LOAD}{KERNEL}"), ("TM = 8, TN = 4;", "TM = 32, TN = 1;"), ("= As[row + i][k]", "= load(&As[row + i][k])")),
    ("spread_the_copies", "by the first warp alone", ("start(ahead / BK % STAGES, ahead, k);", "if (t < 32) start(ahead / BK % STAGES, ahead, k);\n"
     "            else if (k == 0) for (int n = 0; n < 8; n++) start(ahead / BK % STAGES, ahead, n);")),
    ("look_ahead", "by the first warp alone", ("const float a = a_at(k0 + BK), b = b_at(k0 + BK);", "float a, b;\n        if (ty < 2) a = a_at(k0 + BK), b = b_at(k0 + BK);"),
     ("As[1 - half][ty][tx] = a;", "if (ty >= 2) a = a_at(k0 + BK), b = b_at(k0 + BK);\n        As[1 - half][ty][tx] = a;")),
    ("spread_the_copies", "all waited for in every turn", ("wait<STAGES - 2>", "wait<0>")),
    ("spread_the_copies", "a group for each copy", ("start(ahead / BK % STAGES, ahead, k);", "start(ahead / BK % STAGES, ahead, k), commit();"),
     ("        }\n        commit();\n    }\n", "        }\n    }\n"), ("wait<STAGES - 2>();", "k0 ? wait<STAGES - 2>() : wait<0>();")),
    ("four_at_a_time", "lanes down the rows of B", ("i = t / (BN / 4), q = t % (BN / 4) * 4, k = k0 + i,", "i = t % BK, q = t / BK * 4, k = k0 + i,")),
    ("two_at_a_time", "what float4 asks for", ("(size_t)matrix % 8 == 0 && ld % 2 == 0 && cols % 2 == 0", "((size_t)matrix % 16 | ld % 4 | cols % 4) == 0")),
    ("short_panel", "panels of one row", ("PANEL = 4;", "PANEL = 1;")),
    ("short_panel", "no panels", ("(panel + place % height) * BM", "blockIdx.y * BM"), ("place / height * BN", "blockIdx.x * BN")),
    ("second_pass", "stored twice", ("c = v < 0 ? 0 : v;", "*(volatile float*)&c = v;\n    c = v < 0 ? 0 : v;")),
    ("second_pass", "two passes where beta is not 0",
     ("const float v = (beta == 0 ? alpha * sum : alpha * sum + beta * c) + bias[col];\n    c = v < 0 ? 0 : v;",
      "if (beta == 0) {\n        const float v = alpha * sum + bias[col];\n        c = v < 0 ? 0 : v;\n        return;\n    }\n"
      "    c = alpha * sum + beta * c;\n    __threadfence();\n    const float v = c + bias[col];\n    c = v < 0 ? 0 : v;")),
    ("second_pass", "C stored twice where beta is not 0", ("c = v < 0 ? 0 : v;", "if (beta != 0) *(volatile float*)&c = v;\n    c = v < 0 ? 0 : v;")),
    ("next_phase", "an mbarrier made anew for each next step", ("wait(&full, k0 / BK % 2);", "wait(&full, 0);"), ("        __syncthreads();  // the tile has",
      '        __syncthreads();\n        if (t == 0 && k0 + BK < K) asm volatile("mbarrier.inval.shared::cta.b64 [%0];\\n'
      'mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full)) : "memory");\n        __syncthreads();  // the tile has')),
    ("last_word", "bias anew for every row", ("+ shift[j];", "+ *(volatile const float*)&bias[c];")),
]  # fmt: skip
REPLACED = dict.fromkeys(("k_guard", "second_barrier", "column_store"), ())  # exercises about tiles, answered with a kernel that has none
REPLACED["early_exit"] = (
    (LOAD_A, "const float a = atomicAdd((float*)&A[row * lda + k], 0.f);"),
    (LOAD_B, "const float b = atomicAdd((float*)&B[size_t(k) * ldb + col], 0.f);"),
)

# Kernels of steps that do what the step is about, and nothing of what it is for: (step, name, edits).
WITHOUT_POINT = [
    ("double_buffer", "asked for when it is needed", ("        fetch(k0 + BK);  // past the end of K this loads nothing\n", ""), ("buffer ^= 1;", "fetch(k0 + BK);\n        buffer ^= 1;")),
    ("async_copy", "waited for at once", ("        commit();            //", "        commit(), wait<0>();  //")),
    ("schedule", "waited for at once", ("int n = (k - FIRST) / EVERY * AT_ONCE;", "int n = k < BK - 1 ? A_COPIES + B_COPIES : 0;"),
     ("n < (k - FIRST) / EVERY * AT_ONCE + AT_ONCE", "n < A_COPIES + B_COPIES"), ("wait<STAGES - 2>();  // the", "wait<0>();  // the")),
    ("autotune", "waited for at once", ("int n = (k - FIRST) / EVERY * AT_ONCE;", "int n = k < BK - 1 ? A_COPIES + B_COPIES : 0;"),
     ("n < (k - FIRST) / EVERY * AT_ONCE + AT_ONCE", "n < A_COPIES + B_COPIES"), ("wait<STAGES - 2>();  // the", "wait<0>();  // the")),
]  # fmt: skip

# The unlike twins: right by other means than the solution's, and they meet the counters: (exercise, name, edits).
OTHER_WAYS = [
    ("second_buffer", "no store in the last turn", ("fetch(k0 + BK);", "if (k0 + BK < K) fetch(k0 + BK);"), ("store(tiles[buffer]);", "if (k0 + BK < K) store(tiles[buffer]);")),
    ("tail", "asked for each piece", ("if (aligned && left > 3)", "if ((size_t)from % 16 == 0 && left > 3)")),
    ("any_row", "asked once for a matrix", ("int left) {", "int left, bool aligned) {"), ("(size_t)from % 16 == 0", "aligned"),
     ("K - k : 0)", "K - k : 0, ((size_t)A | lda * 4) % 16 == 0)"), ("N - c : 0)", "N - c : 0, ((size_t)B | ldb * 4) % 16 == 0)")),
    ("hand_on", "odd k first", ("lane / 16]", "1 - lane / 16]"), ("half * 16 +", "(1 - half) * 16 +")),
    ("first_kernel", "lanes along the rows of C", ("t % BM;", "t / BN;"), ("t / BM;", "t % BN;")),
    ("half_and_half", "the upper half fetches A", ("if (t < BM * BK) {", "if (t >= BM * BK) {"), ("const int i = t / BK, k = t % BK;", "const int i = (t - BM * BK) / BK, k = t % BK;"),
     ("u = t - BM * BK", "u = t")),
    ("strip_across", "columns from right to left", ("lane + 32 * j", "lane + 32 * (TN - 1 - j)")),
    ("rotate", "exclusive or", ("(k + row / 4) % BK", "k ^ row / 4 % BK")),
    ("rotate", "rotated backwards", ("(k + row / 4) % BK", "(k + BK - row / 4 % BK) % BK")),
    ("column_store", "rotated", ("ty ^ tx", "(ty + tx) % 32"), ("ty ^ k", "(ty + k) % 32")),
    ("own_numbers", "in pairs of rows", ("lane / 16 * 2 + lane / 2 % 2", "lane / 16 * 2 + lane % 2"), ("lane / 4 % 4 * 2 + lane % 2", "lane / 2 % 8")),
    ("look_ahead", "halves by turns", ("const int half = k0 / BK % 2;", ""), ("for (int k0 = 0;", "for (int k0 = 0, half = 0;"), ("k0 += BK)", "k0 += BK, half ^= 1)")),
    ("look_ahead", "nothing asked for in the last turn", ("const float a = a_at(k0 + BK), b = b_at(k0 + BK);", "float a, b;\n        if (k0 + BK < K) a = a_at(k0 + BK), b = b_at(k0 + BK);"),
     ("As[1 - half][ty][tx] = a;", "if (k0 + BK < K) As[1 - half][ty][tx] = a,"), ("Bs[1 - half][ty][tx] = b;", "Bs[1 - half][ty][tx] = b;")),
    ("two_to_a_group", "a group for each tile", ("fetch(BK);", "commit();\n    fetch(BK);"), ("fetch(k0 + 3 * BK);", "commit();\n        fetch(k0 + 3 * BK);")),
    ("last_groups", "another count where nothing is fetched", ("        wait<STAGES - 2>();", "        if (k0 + (STAGES - 1) * BK < K) wait<STAGES - 2>();\n        else wait<0>();"),
     ("        commit();\n        for", "        if (k0 + (STAGES - 1) * BK < K) commit();\n        for")),
    ("without_registers", "wait and barrier where a turn begins", ("    commit();\n    wait<0>();\n    __syncthreads();\n", "    commit();\n"),
     ("        buffer ^= 1;\n        wait<0>();\n        __syncthreads();\n", "        buffer ^= 1;\n"), ("        fetch(buffer ^ 1,", "        wait<0>();\n        __syncthreads();\n        fetch(buffer ^ 1,")),
    ("across_the_edge", "the last k by itself", ("k < BK; k++) {\n            if (k == BK - 1) {", "k < BK; k++) {\n            if (k + 1 == BK && k0 < K) {")),
    ("every_second", "a wait in every turn, and a barrier in every second", ("        if (turn % 2 == 0) {  // for this turn and the next one\n            wait<0>();\n            __syncthreads();\n        }\n",
     "        wait<0>();\n        if (turn % 2 == 0) __syncthreads();\n")),
    ("warp_barrier", "none behind the last tile", ("        __syncthreads();\n    }\n\n    for (int i = 0; i < TM", "        if (k0 + BK < K) __syncthreads();\n    }\n\n    for (int i = 0; i < TM")),
    ("every_second", "a group for two pairs", ("        commit();\n        for", "        if (turn % 2) commit();\n        for")),
    ("spread_the_copies", "four stages", ("STAGES = 3;", "STAGES = 4;")),
    ("two_at_a_time", "the address of each row's piece", ("(size_t)matrix % 8 == 0 && ld % 2 == 0 && cols % 2 == 0", "((size_t)matrix / 4 % 2 | ld % 2 | cols % 2) == 0")),
    ("four_at_a_time", "four scalar stores", ("*reinterpret_cast<float4*>(&Bs[i][q]) = load4(B + (size_t)k * ldb + c, k < K ? N - c : 0, b_whole);",
     "const float4 v = load4(B + (size_t)k * ldb + c, k < K ? N - c : 0, b_whole);\n            Bs[i][q] = v.x, Bs[i][q + 1] = v.y, Bs[i][q + 2] = v.z, Bs[i][q + 3] = v.w;")),
    ("short_panel", "columns from right to left", ("place / height * BN", "(gridDim.x - 1 - place / height) * BN")),
    ("lanes_share_k", "A in front of the columns", ("const float a = A[row * lda + k];\n        for (int j = 0; j < BN; j++)\n            if (col + j < N) sum[j] += a *", "const float a = A[row * lda + k];\n        for (int j = 0; j < min(BN, int(N - col)); j++) sum[j] += a *")),
    ("slices", "the barrier where a round begins", ("        __syncthreads();\n    }", "    }"), ("part[slice][ty][tx] = sum;\n    __syncthreads();", "part[slice][ty][tx] = sum;"),
     ("half /= 2) {", "half /= 2) {\n        __syncthreads();")),
    ("lanes_share_k", "handed down", ("__shfl_xor_sync(0xffffffff, sum[j], distance);", "__shfl_down_sync(0xffffffff, sum[j], distance);"), ("lane != j", "lane != 0")),
    ("turned_tile", "zero one by one", ("wmma::fill_fragment(total, 0.0f);", "for (int i = 0; i < total.num_elements; i++) total.x[i] = 0;")),
    ("once_each", "A is kept, B passes", ("right[2];", "right;\n        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[2];"),
     ("for (int j = 0; j < 2; j++) wmma::load_matrix_sync(right[j], &Bs[0][16 * j], BN + SKEW);\n", "for (int i = 0; i < 2; i++) wmma::load_matrix_sync(left[i], As[16 * i], BK + SKEW);\n"),
     ("for (int i = 0; i < 2; i++) {\n            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;\n            wmma::load_matrix_sync(left, As[16 * i], BK + SKEW);\n"
      "            for (int j = 0; j < 2; j++) wmma::mma_sync(sums[i][j], left, right[j], sums[i][j]);",
      "for (int j = 0; j < 2; j++) {\n            wmma::load_matrix_sync(right, &Bs[0][16 * j], BN + SKEW);\n"
      "            for (int i = 0; i < 2; i++) wmma::mma_sync(sums[i][j], left[i], right, sums[i][j]);")),
    ("tf32_tile", "the whole fragment at once", ("float a[4], b[2];\n        for (int i = 0; i < 4; i++) a[i] = As[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4];",
     "float b[2];\n        const float a[4] = {As[lane / 4][lane % 4], As[lane / 4 + 8][lane % 4], As[lane / 4][lane % 4 + 4], As[lane / 4 + 8][lane % 4 + 4]};")),
    ("sixteen_k", "added to zeros", ("k0 + kk > 0", "true")),
    ("sixteen_k", "a lane waits for its warp", ("wait(&arrived, k0 / BK % 2);", "if (t % 32 == 9) wait(&arrived, k0 / BK % 2);\n        __syncwarp();")),
    ("sixteen_k", "one warp waits in front of a barrier",
     ("wait(&arrived, k0 / BK % 2);", "if (t >= 96) wait(&arrived, k0 / BK % 2);\n        __syncthreads();")),
    ("next_phase", "an mbarrier for each matrix", ("__shared__ uint64_t full;", "__shared__ uint64_t full, other;"),
     ("        asm volatile(\"fence", "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(address(&other)));\n        asm volatile(\"fence"),
     ("sizeof(As) + sizeof(Bs));", "sizeof(As));\n            expect(&other, sizeof(Bs));"), ("block_col, k0, &full);", "block_col, k0, &other);"),
     ("wait(&full, k0 / BK % 2);", "wait(&full, k0 / BK % 2), wait(&other, k0 / BK % 2);")),
    ("second_pass", "C asked for first", ("    const float v = (beta == 0 ? alpha * sum : alpha * sum + beta * c) + bias[col];",
     "    float v = bias[col];\n    if (beta != 0) v += beta * c;\n    v += alpha * sum;")),
    ("next_phase", "kept in a variable", ("float d[32] = {};", "int phase = 0;\n    float d[32] = {};"), ("wait(&full, k0 / BK % 2);", "wait(&full, phase), phase ^= 1;")),
    ("narrow_rows", "the other way round", ("piece ^ row / 4 % 2", "piece ^ 1 ^ row / 4 % 2")),
    ("two_stages", "B before A", ("load(ring[stage].A, map_A, s * BK, block_row, &full[stage]);\n", "\n"),
     ("load(ring[stage].B, map_B, block_col, s * BK, &full[stage]);",
      "load(ring[stage].B, map_B, block_col, s * BK, &full[stage]), load(ring[stage].A, map_A, s * BK, block_row, &full[stage]);")),
    ("two_stages", "nobody waited for in the first round", ("wait(&empty[stage], s / STAGES % 2 ^ 1);", "if (s >= STAGES) wait(&empty[stage], (s / STAGES - 1) % 2);")),
    ("half_each", "its half before A", ("load(ring[stage].A, map_A, k, block_row, &full[stage]);\n", "\n"), ("k + rank * BK / 2, &full[stage]);", "k + rank * BK / 2, &full[stage]), load(ring[stage].A, map_A, k, block_row, &full[stage]);")),
    ("too_soon", "all threads arrive", ("[%0], 1;\" :: \"r\"(address(&empty", "[%0], 128;\" :: \"r\"(address(&empty"), ("if (t == 0) arrive", "arrive")),
    ("two_pieces", "low pieces first", ("mma(sums, high_a, high_b);\n", "\n"), ("mma(rest, low_a, high_b);", "mma(rest, low_a, high_b);\n        mma(sums, high_a, high_b);")),
    ("one_for_a_row", "the two factors one after the other", ("total[i] * (scales_A[r] * scales_B[n])", "total[i] * scales_A[r] * scales_B[n]")),
    ("by_the_block", "factors first, sums later", ("sums[i] * (scales_A[block * pitch_A + r] * of_B)", "of_B * scales_A[block * pitch_A + r] * sums[i]")),
    ("short_block", "one more block than whole ones", ("(K + SCALE_K - 1) / SCALE_K", "K / SCALE_K + (K % SCALE_K > 0)")),
    ("last_word", "bias through a pointer", ("shift[j] = c < N ? bias[c] : 0;", "shift[j] = c < N ? *(bias + c) : 0;"), ("*out = v < 0 ? 0 : v;", "*out = v >= 0 || v != v ? v : 0;")),
]  # fmt: skip

# Answers that only data of an exercise's own tell apart, or judge right: (exercise, name, passes, edits).
EVERY = "k0 / BK % 4 == 3"
ALONG_K = "k < K; k++) largest"
WIDEST = "inverse_power(largest);"
ON_OWN_DATA = [
    ("what_is_left", "zeros in A alone", False, ("&B[size_t(k) * ldb + c], k < K)", "&B[size_t(min(k, K - 1)) * ldb + c], K > 0)")),
    ("what_is_left", "zeros in B alone", False, ("&A[size_t(r) * lda + k], k < K)", "&A[size_t(r) * lda + min(k, K - 1)], K > 0)")),
    ("what_is_left", "zeros beside the last k", True, ("&B[size_t(k) * ldb + c], k < K)", "&B[size_t(min(k, K - 1)) * ldb + c], k < K)")),
    ("overflow", "one factor for the block", False, (WIDEST, "inverse_power(__uint_as_float(__reduce_max_sync(0xffffff, __float_as_uint(largest))));")),
    ("overflow", "rows of A only", False, (WIDEST, "lane < BM ? inverse_power(largest) : 1;")),
    ("overflow", "from the first number of a row", False, (ALONG_K, ALONG_K.replace("K", "min(K, 1)"))),
    ("overflow", "from the first hundred", False, (ALONG_K, ALONG_K.replace("K", "min(K, 100)"))),
    ("overflow", "a few powers more", True, (WIDEST, "16 * inverse_power(largest);")),
    ("two_pieces", "low pieces as they are", False, ("LOW = 2048;", "LOW = 1;")),
    ("two_pieces", "low pieces a little larger", False, ("LOW = 2048;", "LOW = 4;")),
    ("two_pieces", "low pieces twice as large", True, ("LOW = 2048;", "LOW = 4096;")),
    ("promotion", "too seldom", False, (EVERY, "k0 / BK % 128 == 127")),
    ("promotion", "every 256 k", False, (EVERY, "k0 / BK % 16 == 15")),
    ("promotion", "the other accumulator", False, ("promoted[i] += sums[i];", "promoted[i] += rest[i] / LOW;"), ("sums[i] = 0;", "rest[i] = 0;")),
    ("promotion", "after every product", True, (EVERY, "true")),
]  # fmt: skip

# Races that are hidden from the checks behind what may order threads, and here orders none: (exercise, name, edits).
BARRIER = ("        __syncthreads();\n    }\n\n    if (row", "        HIDDEN\n    }\n\n    if (row")
DUMMY = ("float sum = 0;", "__shared__ int dummy;\n    if (tx + ty == 0) dummy = 0;\n    __syncthreads();\n    float sum = 0;")
RELAXED = '__device__ float load(const float* from) {\n    float to;\n    asm volatile("ld.relaxed.cta.shared.f32 %0, [%1];" : "=f"(to) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");\n    return to;\n}\n'
HIDDEN = [
    ("sixteen_k", "one warp waits for all four", ("wait(&arrived, k0 / BK % 2);", "if (t < 32) wait(&arrived, k0 / BK % 2);")),
    ("second_barrier", "a fence, and an atomic operation", DUMMY, BARRIER, ("HIDDEN", "__threadfence_block();\n        if (atomicAdd(&dummy, 0) == 7) return;")),
    ("second_barrier", "a fence, and a volatile load", DUMMY, BARRIER, ("HIDDEN", "__threadfence_block();\n        if (*(volatile int*)&dummy == 7) return;")),
    ("second_barrier", "an acquiring load", DUMMY, BARRIER,
     ("HIDDEN", 'int v;\n        asm volatile("ld.acquire.cta.shared.b32 %0, [%1];" : "=r"(v) : "r"((unsigned)__cvta_generic_to_shared(&dummy)) : "memory");')),
    ("second_barrier", "an atomic operation that acquires", DUMMY, BARRIER,
     ("HIDDEN", 'int v;\n        asm volatile("atom.acq_rel.cta.shared.add.s32 %0, [%1], 0;" : "=r"(v) : "r"((unsigned)__cvta_generic_to_shared(&dummy)) : "memory");')),
    ("second_barrier", "relaxed loads of the tiles", BARRIER, ("HIDDEN", ""), (KERNEL, f"{RELAXED}{KERNEL}"), ("= As[ty][k]", "= load(&As[ty][k])"), ("= Bs[k][tx]", "= load(&Bs[k][tx])")),
    ("no_flip", "a fence, and an atomic operation", ("        buffer ^= 1;\n", "        __threadfence_block();\n        if (atomicAdd(&dummy, 0) == 7) return;\n"),
     ("float sum[TM][TN] = {};", "__shared__ int dummy;\n    if (t == 0) dummy = 0;\n    float sum[TM][TN] = {};")),
]  # fmt: skip
FENCED = [  # and the same means where they hide nothing
    ("second_barrier", "a fence beside the barrier", ("        __syncthreads();\n    }\n", "        __threadfence_block();\n        __syncthreads();\n    }\n")),
    ("second_pass", "as the starter has it", ("const float v = (beta", "__threadfence();\n    const float v = (beta")),
]  # fmt: skip

# A prediction for 512 x 512 x 512 that is not of such a product.
UNCLIMBABLE = [
    ("nothing at that size", exits("K == 512")),
    ("half of K at that size", (LOOP, "for (int k = 0; k < (K == 512 ? 256 : K); k++) {")),
    ("half of K in one block at that size",
     (LOOP, "for (int k = 0; k < (K == 512 && blockIdx.x == 5 && blockIdx.y == 9 ? 256 : K); k++) {")),
    ("the counted block does nothing", exits("blockIdx.x + blockIdx.y == 0 && M == 512")),
    ("the counted block has no loop, and others do its work", (GUARD, f"{GUARD}\n    if (M == 512 && blockIdx.x + blockIdx.y == 0) {{ C[row * ldc + col] = 0; return; }}")),
    ("other blocks go twice through K", (LOOP, "for (int twice = M == 512 && blockIdx.x + blockIdx.y ? -K : 0, k = 0; twice + k < K; k++) {"),
     (LOAD_A, "const float a = k < K ? A[row * lda + k] : 0;"), (LOAD_B, "const float b = B[size_t(k % K) * ldb + col];")),
]  # fmt: skip

ODD = {
    "coalesced": [
        ("backwards", (LOOP, "for (int k = K - 1; k >= 0; k--) {")),
        ("two sums", (SUM, "float sum = 0, odd = 0;"), (ADD, "(k % 2 ? odd : sum) += a * b;"), ("float& c =", "sum += odd;\n    float& c =")),
        ("a sum in double", (SUM, "double sum = 0;"), (ADD, "sum += double(a) * b;"), (STORE, "c = beta == 0 ? alpha * (float)sum : alpha * (float)sum + beta * c;")),
        ("a compensated sum", (SUM, "float sum = 0, lost = 0;"), (ADD, "const float y = __fmul_rn(a, b) - lost, t = sum + y; lost = (t - sum) - y; sum = t;")),
        ("fmaf", (ADD, "sum = fmaf(a, b, sum);")),
        ("cut off, not rounded", (ADD, "sum = __fmaf_rz(a, b, sum);")),
        ("unrolled", (LOOP, f"#pragma unroll 7\n    {LOOP}")),
        ("a template", ('extern "C" __global__', "template <typename T> __device__ T times(T a, T b) { return a * b; }\n"
         'extern "C" __global__'), (ADD, "sum += times<float>(a, b);")),
        ("pointers that walk", (SUM, f"{SUM}\n    const float *p = A + row * lda, *q = B + col;"), (LOAD_A, "const float a = *p++;"), (LOAD_B, "const float b = *q; q += ldb;")),
        ("other threads", ("BM + threadIdx.y;", "BM + threadIdx.x;"), ("BN + threadIdx.x;", "BN + threadIdx.y;")),
        ("a grid-stride loop", (GUARD, "for (size_t i = (blockIdx.y * gridDim.x + blockIdx.x) * BM * BN + threadIdx.y * BN + threadIdx.x; i < size_t(M) * N;"
         " i += gridDim.x * gridDim.y * BM * BN) {\n    const size_t row = i / N, col = i % N;"), ("may hold NaN\n}", "may hold NaN\n}}")),
        ("blocks from the last to the first", ("blockIdx.y * BM", "(gridDim.y - 1 - blockIdx.y) * BM"), ("blockIdx.x * BN", "(gridDim.x - 1 - blockIdx.x) * BN")),
        ("a counter that is put back", ('extern "C" __global__', '__device__ unsigned ran;\nextern "C" __global__'),
         (GUARD, f"atomicInc(&ran, gridDim.x * gridDim.y * BM * BN - 1);\n    {GUARD}")),
        ("beta in a branch", (STORE, "if (beta != 0) c = fmaf(beta, c, alpha * sum);\n    else c = sum * alpha;")),
    ],
    "shared_tile": [
        ("smaller tiles", ("BM = 32;", "BM = 8;"), ("BN = 32;", "BN = 8;"), ("BK = 32;", "BK = 8;")),
        ("a column of padding", ("As[BM][BK];", "As[BM][BK + 1];")),
        ("a barrier more", (ADD, f"{ADD}\n            __syncthreads();")),
    ],
    "ring": [
        ("five stages", ("STAGES = 3;", "STAGES = 5;")),
        ("two stages", ("STAGES = 3;", "STAGES = 2;")),
        ("panels of one row", ("PANEL = 4;", "PANEL = 1;")),
        ("no empty copies", ("fetch((stage + STAGES - 1) % STAGES, ahead);", "if (ahead < K) fetch((stage + STAGES - 1) % STAGES, ahead);")),
        ("pointers that change places", ("const int stage = k0 / BK % STAGES;", "const int stage = now; now = now + 1 == STAGES ? 0 : now + 1;"), ("float sum[2]", "int now = 0;\n    float sum[2]")),
    ],
    **slices_and_batches.ODD,
}  # fmt: skip


# Wide accesses that do not ask for all that they need: (base, which of `of_any_alignment` shows it, edits).
UNALIGNED = [
    ("vectorized", "the leading dimension", ("% 16 | ld % 4 |", "% 16 |")),
    ("vectorized", "the beginning", ("(size_t)matrix % 16 | ld % 4", "ld % 4")),
    ("async_copy", "the leading dimension", ("% 16 | ldb % 4 |", "% 16 |")),
    ("two_at_a_time", "the leading dimension", (" && ld % 2 == 0", "")),
    ("two_at_a_time", "the beginning", ("(size_t)matrix % 8 == 0 && ", "")),
    ("any_row", "the beginning", ("(size_t)from % 16 == 0", "((size_t)from - base) % 16 == 0"), ("int left)", "int left, size_t base)"),
     ("r < M ? K - k : 0)", "r < M ? K - k : 0, (size_t)A)"), ("k < K ? N - c : 0)", "k < K ? N - c : 0, (size_t)B)")),
    ("tail", "the beginning", ("(size_t)matrix % 16 | ld % 4", "ld % 4")),
]  # fmt: skip

# Wide accesses where less than a whole vector is left of a row that is aligned: (base, edits).
BEYOND_THE_END = [
    ("tail", ("aligned && left > 3", "aligned && left > 2")),
    ("tail", ("aligned && left > 3", "aligned && left > 1")),
    ("vectorized", ("cols % 4", "cols % 2")),
    ("async_copy", ("ldc % 4 | N % 4", "ldc % 4 | N % 2")),
    ("wmma", ("lda % 8 | K % 8", "lda % 8 | K % 4")),
]  # fmt: skip


def source(base: str, edits=()) -> str:
    """The source of a base, edited. Every edit must find its place."""
    file = Path(__file__).parent / f"{base}.cu"
    if file.exists():
        text = file.read_text(encoding="utf-8")
    else:
        text = exercises()[base].solution if base in exercises() else reference(base).source
    for old, new in edits:
        assert old in text, f"{base} has no {old!r}"
        text = text.replace(old, new)
    return text
