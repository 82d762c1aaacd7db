"""Host code in a pasted file: recognised and left out, so that any .cu file can be a cell.

NVRTC compiles device code only and has no C++ library. Files in the wild mix kernels with `main`, allocations, timers and
their headers. `device_part` blanks the host's functions and variables (every line and column stays where it was), and
`HEADERS` stands in for what they include.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# ------------------------------------------------------------------------------------------------------- headers

_EMPTY = "#pragma once\n"
_STD = "#pragma once\nnamespace std {}\n"
_INTEGER_TYPES = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t; typedef long long intptr_t;
"""
_STD_INTEGER_TYPES = _INTEGER_TYPES + (
    "namespace std { using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;"
    " using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; }\n"
)
_LIMITS = """#pragma once
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
"""
# The descriptor of a tensor memory access, as large and as aligned as the driver's; the rest of cuda.h is host code.
_DRIVER = """#pragma once
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
typedef unsigned long long CUdeviceptr;
"""
# What nvcc lets every file use without an #include, through the host's headers.
IMPLICIT = "implicit_types.h"
_IMPLICIT_TYPES = _INTEGER_TYPES + "typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;\n"


def _device_library(name: str) -> str:
    """The header of CUDA's own standard library for device code, under the host's name."""
    return f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"


# Names that kernels and the host code around them include. What kernels use of them is built in, or given here.
HEADERS = {
    IMPLICIT: _IMPLICIT_TYPES,
    "stdint.h": _INTEGER_TYPES, "cstdint": _STD_INTEGER_TYPES, "inttypes.h": _INTEGER_TYPES, "cinttypes": _STD_INTEGER_TYPES,
    "limits.h": _LIMITS, "climits": _LIMITS, "float.h": _LIMITS, "cfloat": _LIMITS,
    "cuda.h": _DRIVER, "cudaTypedefs.h": "#pragma once\n#include <cuda.h>\n",
    **{name: _device_library(name) for name in ("array", "bit", "concepts", "functional", "limits", "tuple", "type_traits", "utility")},
    **dict.fromkeys(("assert.h", "ctype.h", "math.h", "stdbool.h", "stddef.h", "stdio.h", "stdlib.h", "string.h", "time.h", "sys/time.h", "unistd.h", "omp.h", "cublas_v2.h", "cublas.h", "cublasLt.h", "cuda_profiler_api.h", "curand.h", "helper_cuda.h", "helper_functions.h", "helper_string.h", "nvToolsExt.h", "nvtx3/nvToolsExt.h", "torch/all.h", "torch/extension.h", "torch/types.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h", "pybind11/pybind11.h", "gtest/gtest.h", "nvml.h", "thrust/host_vector.h", "thrust/device_vector.h", "cub/cub.cuh", "cutlass/util/print_error.hpp", "cutlass/util/GPU_Clock.hpp", "cutlass/util/helper_cuda.hpp", "cutlass/util/command_line.h", "cutlass/util/host_tensor.h", "cutlass/util/device_memory.h"), _EMPTY),
    **dict.fromkeys(("algorithm", "cassert", "chrono", "cmath", "cstddef", "cstdio", "cstdlib", "cstring", "ctime", "fstream", "iomanip", "iostream", "map", "memory", "numeric", "ostream", "random", "sstream", "stdexcept", "string", "thread", "unordered_map", "vector"), _STD),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------- host code

_DEVICE = re.compile(r"\b(__global__|__device__|__constant__|__shared__|__managed__|constexpr)\b")
_KEPT = re.compile(r"\s*(typedef|using|struct|class|union|enum|template|static_assert|const|constexpr|asm|friend|namespace)\b")
_TYPE = re.compile(r"\s*(template\s*<[^{]*>\s*)?(struct|class|union|enum|typedef)\b")
_HOST_TOO = re.compile(r"\s*(using\s+[\w:]+::\w+\s*$|template\s+[^<\s])")  # `using ns::run;` and `template void run<8>(int);`
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.S)


@dataclass(frozen=True)
class HostPart:
    """A function or variable of the host: its name, and its first and last line (1-based)."""

    name: str
    first: int
    last: int


def strip_comments(source: str) -> str:
    """Blank out comments and the contents of strings, keeping every line break and column."""
    return _COMMENTS.sub(lambda match: _blank(match[0]), source)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def device_part(source: str) -> tuple[str, tuple[HostPart, ...]]:
    """`source` with the host's functions and variables blanked, and what they were.

    A definition at namespace scope is the host's if it has no `__global__`, `__device__` or the like (or a macro that
    stands for one) and if no device code mentions its name: a helper function that only lacks its `__device__` stays, and
    the compiler says so. Source whose braces do not match is returned as it is.
    """
    text = strip_comments(source)
    text, device_macros = _without_directives(text)
    candidates = []
    for start, end, head, is_function in _declarations(text):
        if _DEVICE.search(head) or device_macros.intersection(_WORD.findall(head)):
            continue
        name = _declared_name(head)
        if name and (is_function or not _KEPT.match(head) or _HOST_TOO.match(head) or re.search(r"\bstd\s*::", head)):
            candidates.append((start, end, name))
    if not candidates:
        return source, ()
    # What device code mentions stays, and what that mentions, and so on.
    words, host = set(_WORD.findall(_without(text, candidates))), candidates
    while True:
        staying = [item for item in host if item[2] in words]
        if not staying:
            break
        host = [item for item in host if item[2] not in words]
        for start, end, _ in staying:
            words.update(_WORD.findall(text[start:end]))
    return _without(source, host), tuple(
        HostPart(name, text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1) for start, end, name in host
    )


def _without(text: str, parts) -> str:
    """`text` with the (start, end, name) of `parts` blanked."""
    for start, end, _ in parts:
        text = text[:start] + _blank(text[start:end]) + text[end:]
    return text


def _without_directives(text: str) -> tuple[str, set[str]]:
    """Preprocessor lines blanked, and the macros that stand for `__device__` and its like."""
    macros: set[str] = set()

    def directive(match):
        define = re.match(r"[ \t]*#[ \t]*define[ \t]+(\w+)", match[0])
        if define and (_DEVICE.search(match[0]) or macros.intersection(_WORD.findall(match[0]))):
            macros.add(define[1])
        return _blank(match[0])

    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", directive, text, flags=re.M), macros


def _declarations(text: str):
    """Yield (start, end, head, is_function) of what stands at namespace scope; nothing if the braces do not match."""
    found, position, depth = [], 0, 0
    while match := re.compile(r"\S").search(text, position):
        start = match.start()
        if text[start] in ";}":
            depth -= text[start] == "}"
            position = start + 1
            continue
        stop = _end_of_head(text, start)
        if stop is None or depth < 0:
            return
        head = text[start:stop]
        if text[stop] == ";":
            found.append((start, stop + 1, head, False))
            position = stop + 1
        elif re.match(r"\s*(inline\s+)?(namespace\b|extern\s*$)", head):
            depth += 1
            position = stop + 1
        else:
            close = _matching(text, stop)
            if close is None:
                return
            is_function = "(" in head and not _TYPE.match(head) and not _assigned(head)
            position = close + 1
            if not is_function:  # a type or an initialiser goes on to its semicolon
                semicolon = text.find(";", close)
                position = len(text) if semicolon < 0 else semicolon + 1
            found.append((start, position, head, is_function))
    if depth == 0:
        yield from found


def _end_of_head(text: str, start: int) -> int | None:
    """Where the declaration's first `;` or `{` outside parentheses is."""
    depth = 0
    for position in range(start, len(text)):
        character = text[position]
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character in ";{":
            return position
        if depth == 0 and character == "}":
            return None
    return None


def _matching(text: str, opening: int) -> int | None:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return None


def _assigned(head: str) -> bool:
    """Is there an `=` of an initialiser, outside parentheses and template arguments?"""
    bare = re.sub(r"\([^()]*\)", "", re.sub(r"<[^<>]*>", "", head))
    return bool(re.search(r"(?<![=!<>])=(?!=)", bare)) and "operator" not in head


def _declared_name(head: str) -> str:
    """The identifier that a declaration declares; '' if it has none of the simple kinds."""
    bare = head
    while (shorter := re.sub(r"<[^<>]*>", " ", bare)) != bare:  # template parameters and arguments
        bare = shorter
    match = re.search(r"([A-Za-z_]\w*)\s*(?:\(|\[|=|,|$)", bare.strip())
    return match[1] if match and "operator" not in head else ""
