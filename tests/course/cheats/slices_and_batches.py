"""Split K, batches and fused epilogues: what goes wrong in them, and what is right though unusual. (base, name, edits) as in the package."""

from __future__ import annotations

STORE = "c = beta == 0 ? alpha * sum : alpha * sum + beta * c;"
LAST = "last = atomicAdd(&finished[tile], 1) == SLICES - 1;"
ADD_UP = "for (int from = 0; from < SLICES; from++) sum += mine[from * BM * BN];"
END = "end = min(K, begin + part);"
PART = "const int part = (K + slices - 1) / slices;"
GUARD = "if (row >= M || col >= N) return;"

PARTS = [
    ("the remainder of K is left out", (PART, "const int part = K / slices;")),
    ("the last slice ends where the others do", (END, "end = begin + K / slices;")),
    ("slices overlap by one", (END, "end = min(K, begin + part + 1);")),
    ("slices overlap where they begin", ("begin = min(K, slice * part)", "begin = min(K, max(0, slice * part - 1))")),
    ("the tile at a border of slices is read whole", (" k0 + tx < end ?", " k0 + tx < K ?"), (" k0 + ty < end ?", " k0 + ty < K ?")),
    ("parts are whole tiles, the rest is left out", (PART, "const int part = K / slices / BK * BK;")),
    ("the first slice's part is left out", (ADD_UP, ADD_UP.replace("from = 0", "from = 1"))),
    ("the own part twice", (ADD_UP, f"sum = mine[slice * BM * BN]; {ADD_UP}")),
    ("the own sum twice", ("sum = 0;\n        for (int from", "for (int from")),
    ("an unfinished part is added", (LAST, LAST.replace("SLICES - 1", "SLICES - 2"))),
    ("the first to finish adds up", (LAST, LAST.replace("SLICES - 1", "0"))),
    ("every slice adds up", ("if (!last) return;", "")),
    ("slice 0 adds up, without waiting", (LAST, "last = slice == 0;")),
    ("the last slice adds up, without waiting", (LAST, "last = slice == SLICES - 1, atomicAdd(&finished[tile], 1);")),
    ("the counter is not put back", ("if (t == 0) finished[tile] = 0;", "")),
    ("the counter is put back by whoever comes", ("if (!last) return;\n        __threadfence();", "__threadfence();\n        if (t == 1 && !last && slice == 0) finished[tile] = 0;\n        if (!last) return;")),
    ("a counter without an atomic", (LAST, "last = finished[tile]++ == SLICES - 1;")),
    ("one counter for all tiles", ("atomicAdd(&finished[tile], 1)", "atomicAdd(&finished[0], 1)"), ("finished[tile] = 0", "finished[0] = 0")),
    ("no fence before the counter", ("__threadfence();\n        __syncthreads();\n        if", "__syncthreads();\n        if")),
    ("no fence before the counter, parts volatile", ("__threadfence();\n        __syncthreads();\n        if", "__syncthreads();\n        if"), ("float* mine", "volatile float* mine")),
    ("no fence before the counter, parts exchanged", ("__threadfence();\n        __syncthreads();\n        if", "__syncthreads();\n        if"),
     ("mine[slice * BM * BN] = sum;", "atomicExch(&mine[slice * BM * BN], sum);")),
    ("a release and an acquire of a cluster", ("__threadfence();\n        __syncthreads();\n        if (t == 0) " + LAST,
     '__syncthreads();\n        if (t == 0) { int was; asm volatile("atom.acq_rel.cluster.global.add.s32 %0, [%1], 1;" : "=r"(was) : "l"(&finished[tile]) : "memory"); last = was == SLICES - 1; }')),
    ("no barrier before the counter", ("__threadfence();\n        __syncthreads();\n        if", "__threadfence();\n        if")),
    ("no barrier behind the counter", (LAST + "\n        __syncthreads();", LAST)),
    ("tiles of one row share their parts", ("(size_t)tile * SLICES", "(size_t)blockIdx.y * SLICES")),
    ("tiles 256 apart share their parts", ("(size_t)tile * SLICES", "(size_t)(tile % 256) * SLICES")),
    ("tiles 32 apart share their parts and their counter", ("blockIdx.y) * gridDim.x + blockIdx.x;", "blockIdx.y) * gridDim.x + blockIdx.x & 31;")),
    ("parts a slice too near", ("(size_t)tile * SLICES *", "(size_t)tile * (SLICES - 1) *")),
    ("the padding is stored with the tile", (GUARD, "if (row >= M || col >= ldc) return;")),
    ("a row below the tile", (GUARD, "if (row > M || col >= N) return;")),
    ("no guard of columns", (GUARD, "if (row >= M) return;")),
    ("alpha in every slice, and again", ("mine[slice * BM * BN] = sum;", "mine[slice * BM * BN] = alpha * sum;")),
    ("beta in every slice", ("sum = 0;\n        for", "sum = 0; c_old = C[(size_t)min(row, M - 1) * ldc + min(col, N - 1)];\n        for"),
     ("float sum = 0;", "float sum = 0, c_old = 0;"), (STORE, "c = beta == 0 ? alpha * sum : alpha * sum + beta * (c + (slices > 1 ? 2 * c_old : 0));")),
    ("a slice with nothing to do does not count itself", ("float sum = 0;", "if (begin >= end && slice > 0) return;\n    float sum = 0;")),
    ("a slice with nothing to do leaves its part as it was", ("mine[slice * BM * BN] = sum;", "if (begin < end) mine[slice * BM * BN] = sum;")),
    ("alpha of whole numbers scales beta too", (STORE, "c = beta == 0 ? alpha * sum : alpha * (sum + beta * c);")),
]  # fmt: skip
ATOMICS = [
    ("the sum is not put back to zero", ("atomicExch(all, 0.0f)", "*all")),
    ("it is put back in the interior alone", ("sum = atomicExch(all, 0.0f);\n    }\n    if (!inside) return;", "if (!inside) return;\n        sum = atomicExch(all, 0.0f);\n    }\n    if (!inside) return;"),
     ("atomicAdd(all, sum);", "atomicAdd(all, sum + 1e-3f * !inside);")),
    ("an exchange instead of an addition", ("atomicAdd(all, sum);", "atomicExch(all, sum);")),
    ("an addition that is no atomic", ("atomicAdd(all, sum);", "*all += sum;")),
    ("onto C, which nobody set to zero", ("atomicAdd(all, sum);", "if (inside) atomicAdd(&C[(size_t)row * ldc + col], alpha * sum); return;")),
    ("onto C, set to zero by each slice", ("atomicAdd(all, sum);", "if (inside) { float* c = &C[(size_t)row * ldc + col]; *c = 0; __syncthreads(); atomicAdd(c, alpha * sum); } return;")),
    ("onto C, set to zero by slice 0 without waiting", ("atomicAdd(all, sum);", "if (inside) { float* c = &C[(size_t)row * ldc + col]; if (slice == 0) *c = beta == 0 ? 0 : beta * *c; atomicAdd(c, alpha * sum); } return;")),
    ("the counter runs on", ("atomicInc(&finished[tile], SLICES - 1)", "atomicAdd(&finished[tile], 1)")),
    ("the counter wraps one too late", ("atomicInc(&finished[tile], SLICES - 1)", "atomicInc(&finished[tile], SLICES)")),
    ("half of the remainder", ("k < K; k += shared_out", "k < (shared_out ? K / SLICES * SLICES : K); k += shared_out")),
    ("slices begin at one", ("k = shared_out ? slice : 0", "k = shared_out ? slice + 1 : 0")),
    ("every slice takes k = 0 as well", ("float sum = 0;", "float sum = inside && shared_out && slice && K ? a[0] * b[0] : 0;")),
    ("large C take one slice of four", ("shared_out ? SLICES : 1) sum", "SLICES) sum")),
    ("a tile's number has eight bits", ("&total[(size_t)tile * BM", "&total[(size_t)(tile & 255) * BM")),
    ("a sum for each column of tiles", ("&total[(size_t)tile * BM", "&total[(size_t)blockIdx.x * BM")),
    ("beta comes with every slice", ("atomicAdd(all, sum);", "atomicAdd(all, sum + (beta != 0 && inside ? beta / alpha * C[(size_t)product * M * ldc + (size_t)row * ldc + col] / 2 : 0));")),
]  # fmt: skip
BATCH = [
    ("A's products lie K apart", ("blockIdx.z * M * lda", "blockIdx.z * K * lda")),
    ("B's products lie M apart", ("blockIdx.z * K * ldb", "blockIdx.z * M * ldb")),
    ("C's products are not padded", ("blockIdx.z * M * ldc", "blockIdx.z * M * N")),
    ("A's products are not padded", ("blockIdx.z * M * lda", "blockIdx.z * M * K")),
    ("C's products lie as B's do", ("blockIdx.z * M * ldc", "blockIdx.z * K * ldc")),
    ("one A for all", ("A += (size_t)blockIdx.z * M * lda;", "")),
    ("one B for all", ("B += (size_t)blockIdx.z * K * ldb;", "")),
    ("all into the first C", ("C += (size_t)blockIdx.z * M * ldc;", "")),
    ("only two products", ("A += (size_t)blockIdx.z", "A += (size_t)min(1, blockIdx.z)"), ("B += (size_t)blockIdx.z", "B += (size_t)min(1, blockIdx.z)")),
    ("the last product is left out", ("float sum = 0;", "if (blockIdx.z && blockIdx.z == gridDim.z - 1) return;\n    float sum = 0;")),
    ("the products from the last to the first in A", ("A += (size_t)blockIdx.z", "A += (size_t)(gridDim.z - 1 - blockIdx.z)")),
    ("the products of a batch one too far", ("C += (size_t)blockIdx.z", "C += (size_t)(gridDim.z > 1 ? blockIdx.z + 1 : 0)")),
]  # fmt: skip
# Wrong in a batch, of which the bases with slices take one too.
PARTS_OF_A_BATCH = [
    ("the slice is taken for the product", ("product = blockIdx.z / SLICES", "product = blockIdx.z % SLICES"), ("slice = blockIdx.z % SLICES", "slice = blockIdx.z / SLICES % SLICES")),
    ("the products share their parts", ("(product * gridDim.y + blockIdx.y)", "(blockIdx.y)")),
]  # fmt: skip
LAST_WORD = [
    ("bias of the row", ("c < N ? bias[c] : 0", "block_row + row + j * ACROSS < N ? bias[block_row + row + j * ACROSS] : 0")),
    ("bias of the column in the tile", ("shift[j] = c < N ? bias[c] : 0;", "shift[j] = c < N ? bias[col + j * ACROSS] : 0;")),
    ("bias of the first column for all four", ("shift[j] = c < N ? bias[c] : 0;", "shift[j] = c < N ? bias[block_col + col] : 0;")),
    ("bias read beyond the last column", ("c < N ? bias[c] : 0", "bias[c]")),
    ("bias scaled by alpha", ("+ shift[j];", "+ alpha * shift[j];")),
    ("bias with the old C", ("+ shift[j];", "+ (beta == 0 ? shift[j] : beta * shift[j]);")),
    ("ReLU before beta", ("(beta == 0 ? 0 : beta * *out) + shift[j];", "shift[j];"), ("v < 0 ? 0 : v;", "(v < 0 ? 0 : v) + (beta == 0 ? 0 : beta * *out);")),
    ("ReLU before the bias", ("+ shift[j];", ";"), ("v < 0 ? 0 : v;", "(v < 0 ? 0 : v) + shift[j];")),
    ("ReLU before alpha", ("v < 0 ? 0 : v;", "v < 0 ? 0 : v;"), ("alpha * sum[i][j] +", "alpha * (sum[i][j] < 0 ? 0 : sum[i][j]) +")),
    ("no ReLU", ("v < 0 ? 0 : v;", "v;")),
    ("a leaky ReLU", ("v < 0 ? 0 : v;", "v < 0 ? v / 1024 : v;")),
    ("ReLU six", ("v < 0 ? 0 : v;", "v < 0 ? 0 : v > 6 ? 6 : v;")),
    ("the absolute value", ("v < 0 ? 0 : v;", "fabsf(v);")),
    ("alpha applied to beta C", ("alpha * sum[i][j] + (beta == 0 ? 0 : beta * *out)", "alpha * (sum[i][j] + (beta == 0 ? 0 : beta * *out))")),
    ("old C without beta", ("beta * *out", "*out")),
    ("beta times zero", ("(beta == 0 ? 0 : beta * *out)", "beta * *out")),
    ("a column less", ("r >= M || c >= N", "r >= M || c >= N - 1 && N > 1")),
    ("rows and columns changed over in the guard", ("r >= M || c >= N", "r >= N || c >= M")),
    ("ReLU leaves by return", ("if (r >= M || c >= N) continue;", "if (r >= M || c >= N) return;")),
    ("bias in half", ("= c < N ? bias[c] : 0;", "= c < N ? __int_as_float(__float_as_int(bias[c]) & 0xffff0000) : 0;")),
]  # fmt: skip

RIGHT_PARTS = [
    ("eight slices", ("SLICES = 3;", "SLICES = 8;")),
    ("one slice", ("SLICES = 3;", "SLICES = 1;")),
    ("more slices than k", ("SLICES = 3;", "SLICES = 40;"), ("ROOM = 1 << 20", "ROOM = 1 << 23")),
    ("parts are whole tiles", (PART, "const int part = ((K + slices - 1) / slices + BK - 1) / BK * BK;")),
    ("the last slice has the remainder", (PART, "const int part = K / slices;"), (END, "end = slice == slices - 1 ? K : begin + part;")),
    ("the last parts first", ("from = 0; from < SLICES; from++", "from = SLICES - 1; from >= 0; from--")),
    ("the first slice waits for the others", (LAST, "last = slice == 0, atomicAdd(&finished[tile], 1);"),
     ("if (!last) return;\n", "if (!last) return;\n        if (t == 0) while (*(volatile int*)&finished[tile] != SLICES) {}\n        __syncthreads();\n")),
    ("fences of all the system", ("__threadfence()", "__threadfence_system()")),
    ("the own sum stays in its register", ("sum = 0;\n        for", "for"), ("sum += mine[from * BM * BN];", "if (from != slice) sum += mine[from * BM * BN];")),
    ("sums of the parts in double", ("sum = 0;\n        for", "double all = 0;\n        for"), ("sum += mine[from * BM * BN];", "all += mine[from * BM * BN];\n        sum = (float)all;")),
    ("volatile parts", ("float* mine", "volatile float* mine")),
    ("exchanged parts", ("mine[slice * BM * BN] = sum;", "atomicExch(&mine[slice * BM * BN], sum);")),
    ("the first slice waits for the others, past the L1 cache", (LAST, "last = slice == 0, atomicAdd(&finished[tile], 1);"),
     ("if (!last) return;\n", "if (!last) return;\n        if (t == 0) while (__ldcv(&finished[tile]) != SLICES) {}\n        __syncthreads();\n")),
    ("the counter wraps by itself", (LAST, "last = atomicInc((unsigned*)&finished[tile], SLICES - 1) == SLICES - 1;"), ("if (t == 0) finished[tile] = 0;", "")),
    ("a counter taken down", (LAST, "last = atomicSub(&finished[tile], 1) == 1 - SLICES;")),
    ("the counter by comparison", ("if (t == 0) " + LAST, "if (t == 0) { int seen = 0, was; while ((was = atomicCAS(&finished[tile], seen, seen + 1)) != seen) seen = was; last = seen == SLICES - 1; }")),
    ("slices from the last to the first", ("slice = blockIdx.z % SLICES;", "slice = slices - 1 - int(blockIdx.z % SLICES);"), ("if (slice >= slices) return;", "if (slice < 0) return;")),
    ("launches in turn by their number", ("if (t == 0) finished[tile] = 0;", ""), (LAST, "last = (atomicAdd(&finished[tile], 1) + 1) % SLICES == 0;")),
    ("a release and an acquire", ("__threadfence();\n        __syncthreads();\n        if (t == 0) " + LAST,
     '__syncthreads();\n        if (t == 0) { int was; asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(was) : "l"(&finished[tile]) : "memory"); last = was == SLICES - 1; }')),
    ("parts read past the L1 cache", ("sum += mine[from * BM * BN];", "sum += __ldcg(&mine[from * BM * BN]);")),
    ("streamed stores", ("mine[slice * BM * BN] = sum;", "__stcs(&mine[slice * BM * BN], sum);")),
]  # fmt: skip
RIGHT_ATOMICS = [
    ("two slices", ("SLICES = 4;", "SLICES = 2;")),
    ("by red", ("atomicAdd(all, sum);", 'asm volatile("red.global.add.f32 [%0], %1;" :: "l"(all), "f"(sum) : "memory");')),
    ("zero is stored", ("sum = atomicExch(all, 0.0f);", "__threadfence(); sum = *(volatile float*)all; *all = 0;")),
    ("slice 0 stores, the others wait and add to C", ("atomicAdd(all, sum);",
     "float* place = &C[(size_t)product * M * ldc + (size_t)row * ldc + col];\n        if (slice == 0) {\n"
     "            if (inside) *place = beta == 0 ? alpha * sum : alpha * sum + beta * *place;\n            __threadfence(); __syncthreads();\n"
     "            if (t == 0) atomicAdd(&finished[tile], 1);\n        } else {\n            if (t == 0) while (atomicAdd(&finished[tile], 0) == 0) {}\n"
     "            __syncthreads();\n            if (inside) atomicAdd(place, alpha * sum);\n            __threadfence(); __syncthreads();\n"
     "            if (t == 0) atomicInc(&finished[tile], SLICES - 1);\n        }\n        return;")),
    ("additions by comparison", ("atomicAdd(all, sum);", "int* word = (int*)all; int old = *(volatile int*)word, was;\n        while ((was = atomicCAS(word, old, __float_as_int(__int_as_float(old) + sum))) != old) old = was;")),
    ("sums in double", ("float total[ROOM]", "double total[ROOM]"), ("float* all", "double* all"), ("atomicAdd(all, sum)", "atomicAdd(all, (double)sum)"),
     ("sum = atomicExch(all, 0.0f);", "sum = (float)__longlong_as_double(atomicExch((unsigned long long*)all, 0ull));")),
]  # fmt: skip
RIGHT_BATCH = [
    ("from the last product to the first", ("blockIdx.z *", "(gridDim.z - 1 - blockIdx.z) *")),
    ("an index for the product", ("A += (size_t)blockIdx.z", "const int which = blockIdx.z;\n    A += (size_t)which")),
    ("all products in a loop of the first blocks", ("    A += (size_t)blockIdx.z * M * lda;\n    B += (size_t)blockIdx.z * K * ldb;\n    C += (size_t)blockIdx.z * M * ldc;\n",
     "    if (blockIdx.z) return;\n    for (int n = 0; n < gridDim.z; n++, A += (size_t)M * lda, B += (size_t)K * ldb, C += (size_t)M * ldc) {\n"),
     (GUARD, "if (row >= M || col >= N) continue;"), (STORE, STORE + "}")),
]  # fmt: skip
RIGHT_LAST_WORD = [
    ("a comparison the other way", ("v < 0 ? 0 : v;", "v > 0 || v != v ? v : 0;")),
    ("a product with a truth value", ("v < 0 ? 0 : v;", "v < 0 ? 0.0f * 0 : v;")),
    ("minus zero", ("v < 0 ? 0 : v;", "v <= 0 ? -0.0f : v;")),
    ("max.NaN", ("*out = v < 0 ? 0 : v;", 'float w; asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(w) : "f"(v)); *out = w;')),
    ("bias first", ("alpha * sum[i][j] + (beta == 0 ? 0 : beta * *out) + shift[j]", "shift[j] + (beta == 0 ? 0 : beta * *out) + alpha * sum[i][j]")),
    ("bias where the sums begin", ("alpha * sum[i][j] + (beta == 0 ? 0 : beta * *out) + shift[j]", "fmaf(alpha, sum[i][j], fmaf(beta, beta == 0 ? 0 : *out, shift[j]))")),
    ("bias read by __ldg", ("bias[c] : 0", "__ldg(&bias[c]) : 0")),
    ("bias by way of shared memory", ("float shift[TN];", "__shared__ float of_tile[BN];\n    for (int i = t; i < BN; i += THREADS) of_tile[i] = block_col + i < N ? bias[block_col + i] : 0;\n    __syncthreads();\n    float shift[TN];"),
     ("shift[j] = c < N ? bias[c] : 0;", "shift[j] = c < N ? of_tile[col + j * ACROSS] : 0;")),
    ("columns first", ("for (int i = 0; i < TM; i++)\n        for (int j = 0; j < TN; j++) {\n            const int r", "for (int j = 0; j < TN; j++)\n        for (int i = 0; i < TM; i++) {\n            const int r")),
    ("bias at its nearest column", ("c < N ? bias[c] : 0", "bias[min(c, N - 1)]")),
]  # fmt: skip

RIGHT_PARTS += [
    ("a slice for each z, and no batch", ("product = blockIdx.z / SLICES", "product = 0"), ("slice = blockIdx.z % SLICES", "slice = blockIdx.z"),
     ("if (slice >= slices) return;", "if (slice >= SLICES || slice >= slices) return;")),
]  # fmt: skip
TURNS = [
    ("nobody hands the turn on", ("(slice + 1) % SLICES", "slice")),
    ("nobody waits", ("if (t == 0) while (atomicAdd(mine, 0) != slice) {}", "")),
    ("a turn that is left", ("(slice + 1) % SLICES", "slice + 1")),
]
RIGHT_TURNS = [
    ("slices in turn, no batch", ("SLICES = 3;", "SLICES = 3;")),
    ("four slices in turn, no batch", ("SLICES = 3;", "SLICES = 4;")),
]

BULK = [
    ("published when it has been read, and may not be written yet", ("wait_group 0", "wait_group.read 0")),
    ("published without having been waited for", ('asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");\n            __threadfence();', "__threadfence();"),
     ("if (!last) return;", 'if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");\n        if (!last) return;')),
    ("no fence before the counter", ('wait_group 0;" ::: "memory");\n            __threadfence();', 'wait_group 0;" ::: "memory");')),
]  # fmt: skip
RIGHT_BULK = [
    ("two slices", ("SLICES = 3;", "SLICES = 2;")),
    ("parts in two halves", ('asm volatile("cp.async.bulk.commit_group;" ::: "memory");', 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");\n            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" :: "l"(mine + slice * BM * BN + 128), "r"(address(out + 128)) : "memory");\n            asm volatile("cp.async.bulk.commit_group;" ::: "memory");'),
     ("[%0], [%1], 1024;", "[%0], [%1], 512;")),
]  # fmt: skip
WRONG = {"parts": PARTS + PARTS_OF_A_BATCH, "atomics": ATOMICS, "batch": BATCH, "last_word": LAST_WORD, "bulk": BULK, "turns": TURNS}
ODD = {
    "parts": RIGHT_PARTS,
    "atomics": RIGHT_ATOMICS,
    "batch": RIGHT_BATCH,
    "last_word": RIGHT_LAST_WORD,
    "bulk": RIGHT_BULK,
    "turns": RIGHT_TURNS,
}
