"""What stands in for the headers that NVRTC lacks: it has no C++ library, and files include whatever their host code needs.

Three kinds of #include: a header with a stand-in here (what kernels use of it), one of the host (empty: its code is left
out), and one that is nowhere (empty as well, and named, since a kernel may need what is in it).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .host_code import strip_comments

# What nvcc lets every file use without an #include, through the host's headers. The math functions and printf are built in.
IMPLICIT = "implicit.h"
_MATH = (
    "abs fabs sqrt cbrt exp exp2 expm1 log log2 log10 log1p pow fmod remainder fma fmin fmax fdim hypot "
    "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma "
    "ceil floor round trunc rint nearbyint lround llround lrint ldexp frexp modf logb nextafter copysign signbit "
    "isnan isinf isfinite "
    "fabsf sqrtf cbrtf expf exp2f expm1f logf log2f log10f log1pf powf fmodf fmaf fminf fmaxf hypotf "
    "sinf cosf tanf asinf acosf atanf atan2f sinhf coshf tanhf asinhf acoshf atanhf erff erfcf "
    "ceilf floorf roundf truncf rintf nearbyintf copysignf "
    "memcpy memset size_t ptrdiff_t printf malloc free"
).split()
_CONSTANTS = {
    "E": "2.7182818284590452354", "LOG2E": "1.4426950408889634074", "LOG10E": "0.43429448190325182765",
    "LN2": "0.69314718055994530942", "LN10": "2.30258509299404568402", "PI": "3.14159265358979323846",
    "PI_2": "1.57079632679489661923", "PI_4": "0.78539816339744830962", "1_PI": "0.31830988618379067154",
    "2_PI": "0.63661977236758134308", "2_SQRTPI": "1.12837916709551257390", "SQRT2": "1.41421356237309504880",
    "SQRT1_2": "0.70710678118654752440",
}  # fmt: skip
_IMPLICIT = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t; typedef long long intptr_t;
typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-SHRT_MAX - 1)
#define SHRT_MAX 0x7fff
#define USHRT_MAX 0xffff
#define INT_MIN (-INT_MAX - 1)
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffff
#define LLONG_MIN (-LLONG_MAX - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define ULLONG_MAX 0xffffffffffffffffUL
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define HUGE_VALF INFINITY
#define HUGE_VAL ((double)INFINITY)
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t;
template <typename T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <typename T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
}
"""
_IMPLICIT += "".join(f"#define M_{name} {value}\n" for name, value in _CONSTANTS.items())
_IMPLICIT += "namespace std { " + " ".join(f"using ::{name};" for name in _MATH) + " }\n"
_FLOAT = """#pragma once
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
"""
# The descriptor of a tensor memory access, as large and as aligned as the driver's; the rest of cuda.h is host code.
_DRIVER = """#pragma once
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
typedef unsigned long long CUdeviceptr;
"""
_DEVICE_LIBRARY = "array bit complex concepts functional limits tuple type_traits utility".split()
# cub's header of everything is host code too; these are what a kernel can call.
_CUB = (
    "block/block_exchange", "block/block_histogram", "block/block_load", "block/block_radix_sort", "block/block_reduce",
    "block/block_scan", "block/block_store", "warp/warp_reduce", "warp/warp_scan",
)  # fmt: skip

HEADERS = {
    IMPLICIT: _IMPLICIT,
    "float.h": _FLOAT, "cfloat": _FLOAT,
    "cuda.h": _DRIVER, "cudaTypedefs.h": "#pragma once\n#include <cuda.h>\n",
    **{name: f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" for name in _DEVICE_LIBRARY},
}  # fmt: skip
EMPTY = "#pragma once\n"
_HALF = "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
_CUB_DEVICE = EMPTY + "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB)

# Host headers that declare the half types on the way, and those that hold nothing for a kernel.
_WITH_HALF = re.compile(r"(cublas(_v2|Lt|Xt)?\.h|cudnn\w*\.h|cusparse\w*\.h|cutensor\.h|nccl\.h|(torch|ATen|c10)/.*)$")
_CPP = (
    "algorithm any atomic barrier bitset cassert cctype cerrno cfenv charconv chrono cinttypes climits clocale cmath codecvt "
    "compare condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cwchar deque "
    "exception execution filesystem format forward_list fstream future initializer_list iomanip ios iosfwd iostream istream "
    "iterator list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex "
    "scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string "
    "string_view syncstream system_error thread typeindex typeinfo unordered_map unordered_set valarray variant vector version "
    "bits/stdc++.h"
).split()
_C = (
    "assert ctype dirent errno fcntl fenv getopt inttypes libgen limits locale malloc math memory omp pthread sched semaphore "
    "setjmp signal stdarg stdatomic stdbool stddef stdint stdio stdlib string strings time unistd wchar windows "
    "mpi cufft cufftXt curand cusolverDn cusolver_common nvml nvToolsExt cuda_profiler_api cupti nvJitLink "
    "cuda_gl_interop cuda_egl_interop cuda_vdpau_interop cudaGL cudaEGL cudaVDPAU cudaProfiler driver_functions channel_descriptor "
    "cudaGLTypedefs cudaEGLTypedefs cudaVDPAUTypedefs cudaProfilerTypedefs alloca conio dlfcn execinfo intrin tchar termios winsock2"
).split()
_HOST = re.compile(
    r"(sys/.*|arpa/.*|netinet/.*|immintrin\.h|[a-z]mmintrin\.h|x86intrin\.h|GL/.*|GLES\d/.*|EGL/.*|X11/.*|opencv2?/.*|boost/.*"
    r"|pybind11/.*|Python\.h|gtest/.*|benchmark/.*|nvtx3/.*|fmt/.*|Eigen/.*|mkl\w*\.h|cblas\.h"
    r"|cutlass/util/.*|(\.\./)*((common|Common|include|inc)/)*(helper_(?!math)\w+\.h|exception\.h|timer\.h|nvrtc_helper\.h))$"
)
_LIBRARY = re.compile(r"(thrust|cub)/")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.M)


# What the host's headers bring along: files use these without the header that declares them.
_BROUGHT = {
    "type_traits": re.compile(
        r"\bstd\s*::\s*(enable_if|is_|conditional|remove_|add_|decay|common_type|integral_constant|true_type|false_type|make_|underlying_type)"
    ),
    "limits": re.compile(r"\bstd\s*::\s*numeric_limits\b"),
    "utility": re.compile(r"\bstd\s*::\s*(swap|move|forward|pair|index_sequence|integer_sequence)\b"),
    "array": re.compile(r"\bstd\s*::\s*array\b"),
    "tuple": re.compile(r"\bstd\s*::\s*tuple\b"),
}


def stand_ins(source: str, device: str, folders: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers to compile `source` with (name -> text), and the names of those it includes that are nowhere.

    device: the source without its host code, which says whether a library is used in kernels or only around them.
    folders: where real headers are.
    """
    headers, missing = dict(HEADERS), []
    headers[IMPLICIT] += "".join(f"#include <{name}>\n" for name, used in _BROUGHT.items() if "std" in device and used.search(device))
    for name in _STANDARD:
        headers.setdefault(name, EMPTY)
    headers |= {name: _HALF for name in _FOR_HEADERS if not _is_in(folders, name)}
    code = strip_comments(source)
    for name in dict.fromkeys(match[1] for match in INCLUDE.finditer(source) if "#" in code[match.start() : match.end()]):
        library = _LIBRARY.match(name)
        if name in headers:
            continue
        if library and f"{library[1]}::" not in INCLUDE.sub("", device):
            headers[name] = f"{EMPTY}namespace {library[1]} {{}}\n"
        elif name == "cub/cub.cuh":
            headers[name] = _CUB_DEVICE
        elif _is_in(folders, name):
            continue
        elif _WITH_HALF.match(name):
            headers[name] = _HALF
        else:
            headers[name] = EMPTY
            if not _HOST.match(name):
                missing.append(name)
    return headers, tuple(missing)


def is_standard(name: str) -> bool:
    """Has this header a stand-in, whatever lies in the reader's folders?"""
    return name in HEADERS or name in _STANDARD


def _is_in(folders: Sequence[str], name: str) -> bool:
    return any((Path(folder) / name).is_file() for folder in folders)


_STANDARD = (*_CPP, *(f"{name}.h" for name in _C))
# Those of `_WITH_HALF` that the reader's own headers, which are not read at first, include most.
_FOR_HEADERS = ("cublas_v2.h", "cublasLt.h", "cublas.h", "cudnn.h", "torch/types.h", "torch/extension.h", "torch/torch.h", "nccl.h")
