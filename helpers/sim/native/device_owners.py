"""LLVM IR that notices when threads meet in device memory.

A word per granule of the arrays that the launch writes says who touched it: (number of the thread in the grid + 1) << 1 | was
it written; several readers are ~1; 0 is nobody. Each worker has words of its own, and `DevicePlaces.meet` compares them
when all have ended. Barriers and atomics are not looked at: whatever two threads share, one of them writing, is left
to the NumPy machine, which knows what orders them.
"""

from __future__ import annotations

from .offsets import CONTEXT

_INTS, _LONGS, _BITS, _PLACES = "<32 x i32>", "<32 x i64>", "<32 x i1>", "<32 x ptr>"
_SEVERAL = "splat (i32 -2)"


def _value(name: str, kind: str, field: str, index: int = 0) -> str:
    return f"""
  %{name}.p = getelementptr i8, ptr %ctx, i64 {CONTEXT[field] + 4 * index}
  %{name} = load {kind}, ptr %{name}.p"""


def _spread(name: str, kind: str, of: str) -> str:
    return f"""
  %{name}.1 = insertelement <32 x {kind}> poison, {kind} %{of}, i32 0
  %{name} = shufflevector <32 x {kind}> %{name}.1, <32 x {kind}> poison, <32 x i32> zeroinitializer"""


def owners_ir() -> str:
    """`own` returns 1 if an access (of `cells` granules per lane, 1 << log bytes each) deserves a look."""
    named = (("c", "ctaid"), ("g", "nctaid"), ("b", "ntid"))
    extents = "".join(_value(f"{what}{axis}", "i32", field, i) for what, field in named for i, axis in enumerate("xyz"))
    return f"""
define i32 @own(ptr %ctx, i64 %scalar, {_LONGS} %places, i32 %active, i32 %cells, i32 %log, i32 %first, i32 %store) #0 {{
entry:
{_value("owners", "ptr", "owners")}{_value("low", "i64", "owned_low")}{_value("count", "i64", "owned_count")}
{_value("must", "i32", "must_be_written")}
{extents}
  %gzy = mul i32 %gy, %cz
  %row = add i32 %gzy, %cy
  %before = mul i32 %row, %gx
  %block = add i32 %before, %cx
  %bxy = mul i32 %bx, %by
  %threads = mul i32 %bxy, %bz
  %begin = mul i32 %block, %threads
  %warp = add i32 %begin, %first
{_spread("warps", "i32", "warp")}
  %number = add {_INTS} %warps, <{", ".join(f"i32 {i + 1}" for i in range(32))}>
  %mine = shl {_INTS} %number, splat (i32 1)
{_spread("kind", "i32", "store")}
  %stores = icmp ne {_INTS} %kind, zeroinitializer
{_spread("strict", "i32", "must")}
  %strictly = icmp ne {_INTS} %strict, zeroinitializer
  %live = bitcast i32 %active to {_BITS}
  %shift = sub i64 %scalar, %low
{_spread("shifts", "i64", "shift")}
{_spread("counts", "i64", "count")}
  %log64 = zext i32 %log to i64
{_spread("logs", "i64", "log64")}
  %offsets = add {_LONGS} %places, %shifts
  %cell0 = lshr {_LONGS} %offsets, %logs
  br label %loop
loop:
  %c = phi i32 [ 0, %entry ], [ %next, %end ]
  %c64 = zext i32 %c to i64
{_spread("cs", "i64", "c64")}
  %cell = add {_LONGS} %cell0, %cs
  %inside = icmp ult {_LONGS} %cell, %counts
  %mask = and {_BITS} %live, %inside
  %place = getelementptr i32, ptr %owners, {_LONGS} %cell
  %word = call {_INTS} @llvm.masked.gather.v32i32.v32p0({_PLACES} align 4 %place, {_BITS} %mask, {_INTS} %mine)
  %owner = and {_INTS} %word, splat (i32 -2)
  %touched = icmp ne {_INTS} %word, zeroinitializer
  %differs = icmp ne {_INTS} %owner, %mine
  %other = and {_BITS} %touched, %differs
  %odd = and {_INTS} %word, splat (i32 1)
  %was = icmp ne {_INTS} %odd, zeroinitializer
  %written = or {_BITS} %was, %stores
  %clash = and {_BITS} %other, %written
  %fresh = xor {_BITS} %touched, splat (i1 true)
  %loads = xor {_BITS} %stores, splat (i1 true)
  %blind = and {_BITS} %fresh, %loads
  %unknown = and {_BITS} %blind, %strictly
  %bad = or {_BITS} %clash, %unknown
  %bad32 = bitcast {_BITS} %bad to i32
  %stop = icmp ne i32 %bad32, 0
  br i1 %stop, label %suspicious, label %note
note:
  %known = or {_INTS} %word, %kind
  %own = or {_INTS} %mine, %kind
  %new0 = select {_BITS} %touched, {_INTS} %known, {_INTS} %own
  %new = select {_BITS} %other, {_INTS} {_SEVERAL}, {_INTS} %new0
  call void @llvm.masked.scatter.v32i32.v32p0({_INTS} %new, {_PLACES} align 4 %place, {_BITS} %mask)
  %again = call {_INTS} @llvm.masked.gather.v32i32.v32p0({_PLACES} align 4 %place, {_BITS} %mask, {_INTS} %new)
  %lost = icmp ne {_INTS} %again, %new
  %lost32 = bitcast {_BITS} %lost to i32
  %meets = icmp ne i32 %lost32, 0
  br i1 %meets, label %several, label %end
several:
  %storing = icmp ne i32 %store, 0
  br i1 %storing, label %suspicious, label %share
share:
  call void @llvm.masked.scatter.v32i32.v32p0({_INTS} {_SEVERAL}, {_PLACES} align 4 %place, {_BITS} %lost)
  br label %end
end:
  %next = add i32 %c, 1
  %done = icmp uge i32 %next, %cells
  br i1 %done, label %fine, label %loop
fine:
  ret i32 0
suspicious:
  ret i32 1
}}
"""
