"""What a kernel says of its launch: grids of tiles, of clusters and of persistent blocks, and the boxes of its tensor maps."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

import helpers
from helpers.errors import LaunchError
from helpers.run import gemm, geometry, own_products
from helpers.run.geometry import CopyBox, Geometry
from helpers.run.kernel import Kernel
from helpers.run.problem import Problem
from tests.run.tma_kernels import source

BLOCK, TILE = (128, 1, 1), (8, 16)


@pytest.mark.parametrize(
    ("shape", "m", "n", "grid"),
    [
        (Geometry(BLOCK, TILE), 17, 17, (2, 3, 1)),
        (Geometry(BLOCK, TILE, cluster=(2, 1, 1)), 17, 40, (4, 3, 1)),  # rounded up to whole clusters
        (Geometry(BLOCK, TILE, cluster=(1, 2, 1)), 17, 40, (3, 4, 1)),
        (Geometry(BLOCK, TILE, persistent=1), 17, 17, (6, 1, 1)),  # no more blocks than tiles
        (Geometry(BLOCK, TILE, persistent=1, cluster=(4, 1, 1)), 17, 17, (4, 1, 1)),  # rounded down
        (Geometry(BLOCK, TILE, persistent=1, cluster=(8, 1, 1)), 17, 17, (8, 1, 1)),  # and at least one cluster
        (Geometry(BLOCK, TILE, persistent=2), 800, 1600, (264, 1, 1)),
        (Geometry(BLOCK, TILE, persistent=1, parts=4), 17, 17, (24, 1, 1)),  # four blocks for each tile
        (Geometry(BLOCK, TILE, persistent=1, parts=4), 800, 1600, (132, 1, 1)),
        (Geometry(BLOCK, TILE, persistent=1, cluster=(8, 1, 1)), 800, 1600, (128, 1, 1)),
    ],
)
def test_a_grid_has_a_block_per_tile_in_whole_clusters_or_fills_the_gpu(shape, m, n, grid):
    assert shape.grid(m, n) == grid


def test_a_persistent_grid_is_that_of_the_gpu_at_hand():
    assert Geometry(BLOCK, TILE, persistent=1).grid(800, 1600, multiprocessors=78) == (78, 1, 1)
    assert Geometry(BLOCK, TILE).grid(17, 17, multiprocessors=1) == (2, 3, 1)


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (2, 2, 1)])
@pytest.mark.parametrize(("m", "n"), [(8, 16), (80, 16), (8, 160), (72, 160), (72, 161), (73, 160), (73, 161)])
def test_classes_of_blocks_add_up(cluster, m, n):
    shape = Geometry(BLOCK, TILE, cluster=cluster)
    blocks, classes = math.prod(shape.grid(m, n)), shape.classes(m, n)
    assert sum(weight for _, weight in classes) == blocks
    assert len({block for block, _ in classes}) == len(classes) <= 4
    assert all(0 <= block < blocks for block, _ in classes)


@pytest.fixture(scope="module")
def kernel():
    return helpers.compile(source(persistent=2, cluster=2))


def test_the_compiled_kernel_says_it_all(kernel):
    shape = helpers.gemm.geometry(kernel)
    assert (shape.block, shape.tile, shape.cluster, shape.persistent, shape.multiprocessors) == ((128, 1, 1), (32, 32), (2, 1, 1), 2, 132)
    assert geometry.tensor_maps(kernel) == geometry.MAPS and not geometry.is_fused(kernel)
    assert geometry.box(kernel, "map_A", 2) == CopyBox(32, 32, "64B") and geometry.box(kernel, "map_C", 4) == CopyBox(32, 32, None)


def stating(kernel, **constants):
    """The kernel as if it stated these constants too, or not (None)."""
    said = {name: value for name, value in (kernel.compiled.constants | constants).items() if value is not None}
    return Kernel(replace(kernel.compiled, constants=said))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, r"how much of B one copy takes.*Add at file level:\n.*int box_B\[\] = {ROWS, COLUMNS, SWIZZLE_BYTES};"),
        ((32, 32), "box_B = .*three numbers"),
        ((32, 32, 48), "box_B = .*the swizzle is 0, 32, 64 or 128 bytes"),
        ((32, 32, 32), "box_B = .* of tma_gemm: The last axis .* a swizzle of 32B permutes rows of at most 32 bytes"),
        ((32, 5, 0), "box_B = .*10 bytes, and the hardware needs a multiple of 16"),
    ],
)
def test_a_box_that_is_none_is_refused_with_what_to_write(kernel, said, message):
    with pytest.raises(LaunchError, match=f"(?s){message}"):
        geometry.box(stating(kernel, box_B=said), "map_B", 2)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"persistent": (0,)}, "how many blocks a multiprocessor holds"),
        ({"persistent": (1, 0)}, r"share a tile of C, a second, how many \(1 to 64\)"),
        ({"persistent": (1, 2, 3)}, "it is one number"),
        ({"grid_depth": (1,)}, "persistent, and grid_depth"),
    ],
)
def test_a_persistent_grid_that_cannot_be_is_refused(kernel, constants, message):
    with pytest.raises(LaunchError, match=message):
        geometry.geometry(stating(kernel, **constants))


@pytest.mark.parametrize("depth", [0, -2])
def test_a_grid_has_blocks_along_z(depth):
    plain = helpers.compile(source())
    with pytest.raises(LaunchError, match=f"grid_depth = {depth}: .* 1 or more"):
        geometry.geometry(stating(plain, grid_depth=(depth,)))


def test_the_cluster_of_a_persistent_kernel_has_one_dimension(kernel):
    other = Kernel(replace(kernel.compiled, ptx=kernel.ptx.replace(".reqnctapercluster 2, 1, 1", ".reqnctapercluster 1, 2, 1")))
    with pytest.raises(LaunchError, match=r"Write __cluster_dims__\(2, 1, 1\)"):
        geometry.geometry(other)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (geometry.PARAMETERS.replace("float", "double"), "Number 4, alpha, is 64 bits and should be 32 bits"),
        (geometry.PARAMETERS.replace("int lda, ", ""), r"launches\. lda is missing: it is number 6, behind A\. It wants"),
        (geometry.PARAMETERS + ", int extra", "Number 12, extra, is 32 bits, and there is nothing to hand over there"),
        (f"{geometry.PARAMETERS}, const T* bias, int n", "Number 13, n, is 32 bits, and there is nothing to hand over there"),
        (
            f"{geometry.PARAMETERS}, const T* bias, T* D",
            "Number 13, D, is a pointer, and behind bias there is nothing to hand over in a pointer",
        ),
        (geometry.PARAMETERS.replace(", int ldc", ""), "ldc is missing: it is number 11, behind C"),
        (geometry.PARAMETERS + ", int more", r"in this order\). Change its parameters"),
        (geometry.PARAMETERS.replace("int ldb, ", ""), "ldb is missing: it is number 8, behind B"),
        (geometry.PARAMETERS.replace("int ldb, ", "") + ", const T* bias", "ldb is missing: it is number 8, behind B"),
        (geometry.PARAMETERS.replace("int M, ", "").lower().replace("t*", "T*"), "M is missing: it is number 1, before N"),
        (geometry.PARAMETERS.replace("float alpha, ", "").replace("float beta, ", ""), "alpha and beta are missing"),
        (
            geometry.PARAMETERS.replace("const T* A, int lda", "int lda, const T* A"),
            "A and lda have changed places: they are numbers 5 and 6",
        ),
        (geometry.PARAMETERS.replace("float alpha, ", "") + ", float alpha", "Number 4 is A, and should be alpha"),
        (geometry.PARAMETERS.replace("float alpha", "int batch, float alpha"), "Number 4, batch, is one more than the course hands over"),
        (
            "int rows, int columns, int depth, const T* left, int s, const T* right, int t, float beta, T* out, int u",
            "M, N, K or alpha is missing",
        ),
        (geometry.PARAMETERS.replace("int lda", "int pitch").replace("const T* B, ", ""), "B is missing"),
        ("float* rows, int n", "Number 1, rows, is a pointer and should be 32 bits"),
        ("const T* A, const T* B, T* C", "M, N, K, alpha, lda, ldb, beta and ldc are missing"),
        ("const T* A, const T* B, T* C", "M and K are macros of this file"),
    ],
)
def test_a_foreign_signature_names_what_differs_first(parameters, said):
    macros = "#define M 64\n#define K 64\n" if "macros" in said else ""
    kernel = helpers.compile(f'{macros}extern "C" __global__ void k({parameters.replace("T*", "float*")}) {{}}')
    with pytest.raises(LaunchError, match=said) as caught:
        geometry.is_fused(kernel)
    assert ("of this file" in caught.value.message) == bool(macros)


@pytest.mark.parametrize(("name", "told"), [("D", True), ("bias", False), ("Bias_of_C", False)])
def test_a_pointer_behind_ldc_of_another_name_is_said_to_be_taken_for_a_bias(name, told):
    code = f"{{ if (!threadIdx.x && !blockIdx.x && !blockIdx.y) C[0] = {name}[0]; }}"
    shapes = 'extern "C" __device__ constexpr int block_shape[] = {32, 1, 1}, tile_shape[] = {32, 32};\n'
    parameters = geometry.PARAMETERS.replace("T*", "float*")
    kernel = helpers.compile(f'{shapes}extern "C" __global__ void k({parameters}, const float* {name}) {code}')
    said = f"Number 12, {name}, is a pointer behind ldc and is taken for a bias: it gets one number for each column of C"
    assert geometry.taken_for_bias(kernel).startswith(said) == told == bool(geometry.taken_for_bias(kernel))
    assert (said in str(gemm.check(kernel, gemm.Problem(4, 4, 4), on="cpu"))) == told
    assert (said in str(gemm.run(kernel, gemm.problem_for(kernel, 4, 4, 4), on="cpu").remarks)) == told


def test_a_map_of_another_name_is_a_foreign_signature(kernel):
    *others, last = kernel.compiled.parameters
    with pytest.raises(LaunchError, match="CUtensorMap map_A`, `map_B`, `map_C` that it uses, in this order"):
        geometry.is_fused(Kernel(replace(kernel.compiled, parameters=(*others, replace(last, name="out")))))


MAP = "const __grid_constant__ CUtensorMap %s"


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        (f"{MAP % 'tmA'}, {MAP % 'tmB'}", "Number 12, tmA, is a tensor map, and its name says of which matrix: map_A, map_B, map_C."),
        (f"{MAP % 'map_A'}, {MAP % 'tmB'}", "Number 13, tmB, is a tensor map"),
        (f"{MAP % 'map_B'}, {MAP % 'map_A'}", "Its tensor maps come as map_B, map_A, and their order is map_A, map_B."),
        ("const CUtensorMap* map_A, const CUtensorMap* map_B", "Number 12, map_A, is a pointer to a tensor map, and the course hands over"),
        (f"{MAP % 'map_A'}, const float* bias", "Number 13, bias, is a pointer, and tensor maps come last."),
    ],
)
def test_what_is_wrong_behind_the_usual_parameters_is_named(behind, said):
    text = f"#include <cuda.h>\n__global__ void g({geometry.PARAMETERS.replace('T*', 'float*')}, {behind}) {{ C[0] = A[0]; }}"
    with pytest.raises(LaunchError) as caught:
        geometry.is_fused(helpers.compile(text, arch="sm_90a"))
    assert f"has not the signature the course launches. {said}" in caught.value.message


@pytest.mark.parametrize(
    ("of_ab", "of_c", "of_bias", "said"),
    [
        ("half", "half", "float", "takes bias in float and C in half. A pointer behind ldc is taken for a bias, which the course makes in the type of C: write `const half* bias` in the kernel's parameters, and make each element float where it is added."),
        ("half", "float", "half", "write `const float* bias` in the kernel's parameters."),
        ("float", "float", "int", "write `const float* bias` in"),
        ("half", "half", "uint16_t", "write `const half* bias` in"),
        ("half", "half", "half", ""),
        ("half", "half", "half2", ""),
        ("half", "half", "void", ""),
        ("half", "half", "uint4", ""),
        ("float", "float", "float4", ""),
    ],
)  # fmt: skip
def test_a_bias_of_another_type_than_c_is_told_what_to_write(of_ab, of_c, of_bias, said):
    source = f"""#include <cuda_fp16.h>
    extern "C" __device__ constexpr int block_shape[] = {{16, 16, 1}}, tile_shape[] = {{16, 16}};
    extern "C" __global__ void g(int M, int N, int K, float alpha, const {of_ab}* A, int lda, const {of_ab}* B, int ldb, float beta, {of_c}* C, int ldc,
                                 const {of_bias}* bias) {{}}"""
    kernel = helpers.compile(source)
    if not said:
        assert own_products.problem_for(kernel, 4, 4, 4).out_dtype and own_products.fitted(kernel, Problem(4, 4, 4)).fused
        return
    for ask in (lambda: gemm.check(kernel, on="cpu"), lambda: gemm.run(kernel, Problem(4, 4, 4), on="cpu")):
        with pytest.raises(LaunchError, match=re.escape(said)) as raised:
            ask()
        assert "astype" not in str(raised.value)
