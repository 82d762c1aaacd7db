"""Symbols of kernels: the types of their parameters, and their names with their namespaces."""

import ctypes
import random
import re

import pytest

from helpers.toolchain.compile import compile_source
from helpers.toolchain.mangled import parameter_types, qualified_name

SYMBOLS = {
    "_Z5scaleIfEvPT_S0_": ("scale", "float*, float"),
    "_Z2t1I6__halfLin2EEvPT_PKS1_S1_RA4_S1_PKN2ns3in_1VIS1_XT0_EEENS9_IfLi3EEE": (
        "t1",
        "__half*, __half const*, __half, __half (&) [4], ns::in_::V<__half, -2> const*, ns::in_::V<float, 3>",
    ),
    "_Z2t2IJfN2ns1QEEEvPfDpPKT_": ("t2", "float*, float const*, ns::Q const*"),
    "_Z2t3IJLi1ELi2ELi3EEEvPi": ("t3", "int*"),
    "_Z2t6IN2ns3in_1VEEvPT_IiLi2EE": ("t6", "ns::in_::V<int, 2>*"),
    "_Z2k1PfPKfPViPS_PmPlPyPaPcPsPb": (
        "k1",
        "float*, float const*, int*, float**, unsigned long*, long*, unsigned long long*, signed char*, char*, short*, bool*",
    ),
    "_Z2k2PFfifEPA4_KfP14CUtensorMap_stS4_": ("k2", "float (*)(int, float), float const (*) [4], CUtensorMap_st*, CUtensorMap_st"),
    "_Z7nothingv": ("nothing", ""),
    "_ZN1b1kEPf": ("b::k", "float*"),
    "_ZN1b1kIfNS_1PEEEvPT_T0_": ("b::k", "float*, b::P"),
    "_ZN12_GLOBAL__N_14anonEPf": ("anon", "float*"),
    "_Z4sumsIN4cuda3std3__47complexIfEEEvPT_S5_": ("sums", "cuda::std::__4::complex<float>*, cuda::std::__4::complex<float>"),
}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_symbol_says_the_types(symbol):
    name, types = SYMBOLS[symbol]
    found = parameter_types(symbol)
    assert (qualified_name(symbol), ", ".join(item.name for item in found)) == (name, types)


def test_a_pointer_says_what_it_points_to():
    found = parameter_types("_Z1kPKfPA4_iPfRKdPFvvEPKPfi")
    assert [(item.pointer_to, item.const) for item in found] == [
        ("float", True), ("int", False), ("float", False), ("double", True), (None, False), ("float*", True), (None, False)
    ]  # fmt: skip


def test_a_plain_name_says_nothing():
    assert parameter_types("gemm") is None and qualified_name("gemm") == "gemm"


SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct P { float a; int b; };
namespace ns { struct Q { int x; }; namespace in_ { template <class T, int N> struct V { T t[N]; }; } }
using Fn = float (*)(int, float);
enum E { a1 };
template <typename T> struct wrap { using type = T; };
template <typename T, int N> __global__ void a(T* x, const T* y, T z, T (&r)[4], const ns::in_::V<T, N * 2>* v, ns::in_::V<float, 3> w) {}
template __global__ void a<__half, 2>(__half*, const __half*, __half, __half (&)[4], const ns::in_::V<__half, 4>*, ns::in_::V<float, 3>);
template <typename... T> __global__ void b(float* y, const T*... x) {}
template __global__ void b<float, ns::Q, __nv_bfloat16>(float*, const float*, const ns::Q*, const __nv_bfloat16*);
template <template <class, int> class C> __global__ void c(C<int, 2>* x, C<int, 3>* y) {}
template __global__ void c<ns::in_::V>(ns::in_::V<int, 2>*, ns::in_::V<int, 3>*);
template <typename T> __global__ void d(typename wrap<T>::type* x, T y) {}
template __global__ void d<float>(float*, float);
namespace ns { template <typename T> __global__ void e(T* x, Q* y, in_::V<Q, 1> z, Q** w) {} }
template __global__ void ns::e<P>(P*, ns::Q*, ns::in_::V<ns::Q, 1>, ns::Q**);
__global__ void f(float* __restrict__ a, Fn b, E* c, const float (*d)[4], double2 e, void* f, unsigned g, long h, size_t i, signed char j) {}
"""


def test_symbols_of_the_compiler_are_read_as_the_system_s_own_library_reads_them():
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        pytest.skip("no C++ library here that reads symbols")
    demangle.restype = ctypes.c_void_p
    symbols = re.findall(r"\.entry (\w+)", compile_source(SOURCE, "f").ptx)
    assert len(symbols) == 6
    for symbol in symbols:
        expected = ctypes.string_at(demangle(symbol.encode(), None, None, None)).decode()
        types = ", ".join(item.name for item in parameter_types(symbol))
        assert re.search(rf"(^| ){re.escape(qualified_name(symbol))}[<(]", expected)
        assert re.sub(r"\([^()]*\)\*\(2\)|4(?=>)", "value", expected).endswith(f"({types})")  # N * 2 is not worked out


def test_nothing_that_looks_like_a_symbol_breaks_it():
    draw = random.Random(1)
    for _ in range(3000):
        symbol = draw.choice(list(SYMBOLS))
        place, more = draw.randrange(2, len(symbol)), "".join(draw.choices("PKSTINE_0129fviJDpXL", k=draw.randrange(4)))
        for text in (symbol[:place], symbol[:place] + more + symbol[place + draw.randrange(3) :]):
            assert parameter_types(text) is None or all(item.name is not None for item in parameter_types(text))
            assert qualified_name(text)
    assert parameter_types("_Z1kI" + "P" * 100_000 + "fEvT_") is None


def test_a_symbol_that_names_ever_larger_types_is_given_up():
    levels = [f"1aIS{_base36(2 * depth)}_S{_base36(2 * depth)}_E" for depth in range(30)]
    assert len(parameter_types(f"_Z1k1aIffE{''.join(levels[:5])}")) == 6
    assert parameter_types(f"_Z1k1aIffE{''.join(levels)}") is None


def _base36(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return digits[number] if number < 36 else _base36(number // 36) + digits[number % 36]
