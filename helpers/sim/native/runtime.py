"""LLVM IR of what every kernel needs: the block scheduler, the search for an arena, sectors and wavefronts.

The counting functions follow `account.py`, and the tests compare the two on random patterns.
"""

from __future__ import annotations

from .layout import BOUND, CONTEXT, MEMO, WARP_STATE

_LANES = "<32 x i32>"


def runtime_ir() -> str:
    """The module's text."""
    return (_TEXT + "".join(_moves(bits) for bits in (8, 16, 32, 64))).replace("$ATTR", _ATTRIBUTES)


def _moves(bits: int) -> str:
    """Gather and scatter of one width, for kernels to call; a lane that is not active is not touched and reads 0."""
    kind, vector, suffix, align = f"i{bits}", f"<32 x i{bits}>", f"v32i{bits}.v32p0", bits // 8
    return f"""
declare {vector} @llvm.masked.gather.{suffix}(<32 x ptr>, <32 x i1>, {vector})
declare void @llvm.masked.scatter.{suffix}({vector}, <32 x ptr>, <32 x i1>)

define {vector} @gather_{kind}(ptr %base, <32 x i32> %pattern, i32 %active) #0 {{
  %mask = bitcast i32 %active to <32 x i1>
  %lanes = getelementptr i8, ptr %base, <32 x i32> %pattern
  %r = call {vector} @llvm.masked.gather.{suffix}(<32 x ptr> align {align} %lanes, <32 x i1> %mask, {vector} zeroinitializer)
  ret {vector} %r
}}

define void @scatter_{kind}(ptr %base, <32 x i32> %pattern, {vector} %value, i32 %active) #0 {{
  %mask = bitcast i32 %active to <32 x i1>
  %lanes = getelementptr i8, ptr %base, <32 x i32> %pattern
  call void @llvm.masked.scatter.{suffix}({vector} %value, <32 x ptr> align {align} %lanes, <32 x i1> %mask)
  ret void
}}
"""


_ATTRIBUTES = 'nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'


def _field(base, offset):
    return f"getelementptr i8, ptr {base}, i64 {offset}"


_TEXT = f"""
declare i32 @warp(ptr, ptr, i32)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umax.i32(i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i32 @find_arena(ptr %ctx, ptr %record, i64 %start, i64 %stop) #0 {{
entry:
  %ap = {_field("%ctx", CONTEXT["arenas"])}
  %arenas = load ptr, ptr %ap
  %np = {_field("%ctx", CONTEXT["arena_count"])}
  %n = load i64, ptr %np
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %done = icmp uge i64 %i, %n
  br i1 %done, label %none, label %test
test:
  %a = getelementptr [3 x i64], ptr %arenas, i64 %i
  %low = load i64, ptr %a
  %hp = {_field("%a", BOUND["high"])}
  %high = load i64, ptr %hp
  %above = icmp sge i64 %start, %low
  %below = icmp sle i64 %stop, %high
  %in = and i1 %above, %below
  br i1 %in, label %found, label %more
more:
  %next = add i64 %i, 1
  br label %loop
found:
  %dp = {_field("%a", BOUND["delta"])}
  %delta = load i64, ptr %dp
  store i64 %low, ptr %record
  %rh = {_field("%record", BOUND["high"])}
  store i64 %high, ptr %rh
  %rd = {_field("%record", BOUND["delta"])}
  store i64 %delta, ptr %rd
  ret i32 1
none:
  ret i32 0
}}

define internal i32 @sectors({_LANES} %pattern, i64 %shift) #1 {{
entry:
  %lanes = alloca {_LANES}
  %s = trunc i64 %shift to i32
  %one = insertelement {_LANES} poison, i32 %s, i32 0
  %all = shufflevector {_LANES} %one, {_LANES} poison, <32 x i32> zeroinitializer
  %moved = add {_LANES} %pattern, %all
  %chunks = ashr {_LANES} %moved, splat (i32 5)
  store {_LANES} %chunks, ptr %lanes
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %count = phi i32 [ 0, %entry ], [ %more, %loop ]
  %p = getelementptr i32, ptr %lanes, i32 %i
  %x = load i32, ptr %p
  %o = insertelement {_LANES} poison, i32 %x, i32 0
  %b = shufflevector {_LANES} %o, {_LANES} poison, <32 x i32> zeroinitializer
  %e = icmp eq {_LANES} %chunks, %b
  %m = bitcast <32 x i1> %e to i32
  %bit = shl i32 1, %i
  %below = sub i32 %bit, 1
  %earlier = and i32 %m, %below
  %first = icmp eq i32 %earlier, 0
  %inc = zext i1 %first to i32
  %more = add i32 %count, %inc
  %next = add i32 %i, 1
  %end = icmp eq i32 %next, 32
  br i1 %end, label %out, label %loop
out:
  ret i32 %more
}}

; The most distinct words that the lanes of %subset want from one bank. %same: lanes with my unit, %bank: with my bank.
define internal i32 @worst_bank(ptr %same, ptr %bank, i32 %subset) #1 {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %firsts = phi i32 [ 0, %entry ], [ %more, %loop ]
  %bit = shl i32 1, %i
  %mine = and i32 %subset, %bit
  %p = getelementptr i32, ptr %same, i32 %i
  %m = load i32, ptr %p
  %below = sub i32 %bit, 1
  %e1 = and i32 %m, %below
  %e2 = and i32 %e1, %subset
  %fresh = icmp eq i32 %e2, 0
  %add = select i1 %fresh, i32 %mine, i32 0
  %more = or i32 %firsts, %add
  %next = add i32 %i, 1
  %end = icmp eq i32 %next, 32
  br i1 %end, label %second, label %loop
second:
  br label %loop2
loop2:
  %j = phi i32 [ 0, %second ], [ %next2, %loop2 ]
  %worst = phi i32 [ 0, %second ], [ %worse, %loop2 ]
  %q = getelementptr i32, ptr %bank, i32 %j
  %n = load i32, ptr %q
  %here = and i32 %n, %more
  %words = call i32 @llvm.ctpop.i32(i32 %here)
  %worse = call i32 @llvm.umax.i32(i32 %worst, i32 %words)
  %next2 = add i32 %j, 1
  %end2 = icmp eq i32 %next2, 32
  br i1 %end2, label %out, label %loop2
out:
  ret i32 %worse
}}

; i32: 1 if every pair (n, n xor step) within %group has one address or an idle partner.
define internal i32 @pairs_up(ptr %equal, i32 %active, i32 %group, i32 %step) #1 {{
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %bad = phi i32 [ 0, %entry ], [ %worse, %loop ]
  %partner = xor i32 %i, %step
  %pbit = shl i32 1, %partner
  %bit = shl i32 1, %i
  %pair = or i32 %pbit, %bit
  %on = and i32 %active, %group
  %have = and i32 %on, %pair
  %both = icmp eq i32 %have, %pair
  %p = getelementptr i32, ptr %equal, i32 %i
  %m = load i32, ptr %p
  %hit = and i32 %m, %pbit
  %apart = icmp eq i32 %hit, 0
  %wrong = and i1 %both, %apart
  %w = zext i1 %wrong to i32
  %worse = or i32 %bad, %w
  %next = add i32 %i, 1
  %end = icmp eq i32 %next, 32
  br i1 %end, label %out, label %loop
out:
  %good = xor i32 %worse, 1
  ret i32 %good
}}

; wavefronts | ideal << 16
define internal i32 @wavefronts({_LANES} %pattern, i32 %active, i64 %shift, i32 %width) #1 {{
entry:
  %same = alloca [32 x i32]
  %bank = alloca [32 x i32]
  %equal = alloca [32 x i32]
  %addresses = alloca <32 x i32>
  %units_at = alloca <32 x i32>
  %banks_at = alloca <32 x i32>
  %s = trunc i64 %shift to i32
  %s1 = insertelement <32 x i32> poison, i32 %s, i32 0
  %s32 = shufflevector <32 x i32> %s1, <32 x i32> poison, <32 x i32> zeroinitializer
  %a = add <32 x i32> %pattern, %s32
  %narrow = icmp ult i32 %width, 4
  %unit = select i1 %narrow, i32 4, i32 %width
  %log = call i32 @llvm.cttz.i32(i32 %unit, i1 true)
  %l1 = insertelement <32 x i32> poison, i32 %log, i32 0
  %l32 = shufflevector <32 x i32> %l1, <32 x i32> poison, <32 x i32> zeroinitializer
  %units = ashr <32 x i32> %a, %l32
  %slots = lshr i32 128, %log
  %mask = sub i32 %slots, 1
  %m1 = insertelement <32 x i32> poison, i32 %mask, i32 0
  %m32 = shufflevector <32 x i32> %m1, <32 x i32> poison, <32 x i32> zeroinitializer
  %banks = and <32 x i32> %units, %m32
  store <32 x i32> %a, ptr %addresses
  store <32 x i32> %units, ptr %units_at
  store <32 x i32> %banks, ptr %banks_at
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %pu = getelementptr i32, ptr %units_at, i32 %i
  %u = load i32, ptr %pu
  %u1 = insertelement <32 x i32> poison, i32 %u, i32 0
  %u32 = shufflevector <32 x i32> %u1, <32 x i32> poison, <32 x i32> zeroinitializer
  %eu = icmp eq <32 x i32> %units, %u32
  %mu = bitcast <32 x i1> %eu to i32
  %qu = getelementptr i32, ptr %same, i32 %i
  store i32 %mu, ptr %qu
  %pb = getelementptr i32, ptr %banks_at, i32 %i
  %bk = load i32, ptr %pb
  %b1 = insertelement <32 x i32> poison, i32 %bk, i32 0
  %b32 = shufflevector <32 x i32> %b1, <32 x i32> poison, <32 x i32> zeroinitializer
  %eb = icmp eq <32 x i32> %banks, %b32
  %mb = bitcast <32 x i1> %eb to i32
  %qb = getelementptr i32, ptr %bank, i32 %i
  store i32 %mb, ptr %qb
  %pa = getelementptr i32, ptr %addresses, i32 %i
  %ad = load i32, ptr %pa
  %a1 = insertelement <32 x i32> poison, i32 %ad, i32 0
  %a32 = shufflevector <32 x i32> %a1, <32 x i32> poison, <32 x i32> zeroinitializer
  %ea = icmp eq <32 x i32> %a, %a32
  %ma = bitcast <32 x i1> %ea to i32
  %qa = getelementptr i32, ptr %equal, i32 %i
  store i32 %ma, ptr %qa
  %next = add i32 %i, 1
  %end = icmp eq i32 %next, 32
  br i1 %end, label %phases, label %loop
phases:
  %wide = icmp ugt i32 %width, 4
  br i1 %wide, label %groups, label %onephase
onephase:
  %w0 = call i32 @worst_bank(ptr %same, ptr %bank, i32 %active)
  %one = icmp ne i32 %w0, 0
  %ideal0 = select i1 %one, i32 65536, i32 0
  %r0 = or i32 %w0, %ideal0
  ret i32 %r0
groups:
  %is8 = icmp eq i32 %width, 8
  %lanes = select i1 %is8, i32 32, i32 16
  %first_mask = select i1 %is8, i32 -1, i32 65535
  %half_lanes = lshr i32 %lanes, 1
  %first_half = select i1 %is8, i32 65535, i32 255
  br label %group
group:
  %g = phi i32 [ 0, %groups ], [ %gnext, %gend ]
  %total = phi i32 [ 0, %groups ], [ %newtotal, %gend ]
  %gmask = shl i32 %first_mask, %g
  %gact = and i32 %active, %gmask
  %p1 = call i32 @pairs_up(ptr %equal, i32 %active, i32 %gmask, i32 1)
  %p2 = call i32 @pairs_up(ptr %equal, i32 %active, i32 %gmask, i32 2)
  %p12 = or i32 %p1, %p2
  %merged = icmp ne i32 %p12, 0
  br i1 %merged, label %whole, label %halves
whole:
  %ww = call i32 @worst_bank(ptr %same, ptr %bank, i32 %gact)
  %wsome = icmp ne i32 %ww, 0
  %wid = select i1 %wsome, i32 65536, i32 0
  %wr = or i32 %ww, %wid
  br label %gend
halves:
  %h1 = shl i32 %first_half, %g
  %h1a = and i32 %active, %h1
  %x1 = call i32 @worst_bank(ptr %same, ptr %bank, i32 %h1a)
  %s1a = icmp ne i32 %x1, 0
  %i1 = select i1 %s1a, i32 65536, i32 0
  %goff = add i32 %g, %half_lanes
  %h2 = shl i32 %first_half, %goff
  %h2a = and i32 %active, %h2
  %x2 = call i32 @worst_bank(ptr %same, ptr %bank, i32 %h2a)
  %s2a = icmp ne i32 %x2, 0
  %i2 = select i1 %s2a, i32 65536, i32 0
  %t1 = add i32 %x1, %i1
  %t2 = add i32 %x2, %i2
  %hr = add i32 %t1, %t2
  br label %gend
gend:
  %r = phi i32 [ %wr, %whole ], [ %hr, %halves ]
  %newtotal = add i32 %total, %r
  %gnext = add i32 %g, %lanes
  %gdone = icmp uge i32 %gnext, 32
  br i1 %gdone, label %out, label %group
out:
  ret i32 %newtotal
}}
declare i32 @llvm.cttz.i32(i32, i1)

; Make the memo's pattern this one, forgetting results of another.
define internal void @remember(ptr %memo, {_LANES} %pattern, i32 %active) #2 {{
entry:
  %pp = {_field("%memo", MEMO["pattern"])}
  %old = load {_LANES}, ptr %pp, align 64
  %e = icmp eq {_LANES} %old, %pattern
  %m = bitcast <32 x i1> %e to i32
  %same = icmp eq i32 %m, -1
  %ap = {_field("%memo", MEMO["active"])}
  %oa = load i32, ptr %ap
  %sa = icmp eq i32 %oa, %active
  %hit = and i1 %same, %sa
  br i1 %hit, label %out, label %reset
reset:
  store {_LANES} %pattern, ptr %pp, align 64
  store i32 %active, ptr %ap
  %kp = {_field("%memo", MEMO["known"])}
  store i32 0, ptr %kp
  br label %out
out:
  ret void
}}

define internal void @tally(ptr %memo, i64 %units, i64 %ideal) #2 {{
  %r = load i64, ptr %memo
  %r1 = add i64 %r, 1
  store i64 %r1, ptr %memo
  %up = {_field("%memo", MEMO["units"])}
  %u = load i64, ptr %up
  %u1 = add i64 %u, %units
  store i64 %u1, ptr %up
  %ip = {_field("%memo", MEMO["ideal"])}
  %i = load i64, ptr %ip
  %i1 = add i64 %i, %ideal
  store i64 %i1, ptr %ip
  ret void
}}

define void @count_global(ptr %memo, {_LANES} %pattern, i32 %active, i64 %address, i32 %width) #0 {{
entry:
  call void @remember(ptr %memo, {_LANES} %pattern, i32 %active)
  %shift = and i64 %address, 31
  %kp = {_field("%memo", MEMO["known"])}
  %known = load i32, ptr %kp
  %s = trunc i64 %shift to i32
  %bit = shl i32 1, %s
  %have = and i32 %known, %bit
  %is = icmp ne i32 %have, 0
  %results = {_field("%memo", MEMO["results"])}
  %rp = getelementptr i8, ptr %results, i64 %shift
  br i1 %is, label %out, label %compute
compute:
  %n = call i32 @sectors({_LANES} %pattern, i64 %shift)
  %n8 = trunc i32 %n to i8
  store i8 %n8, ptr %rp
  %k2 = or i32 %known, %bit
  store i32 %k2, ptr %kp
  br label %out
out:
  %r8 = load i8, ptr %rp
  %r = zext i8 %r8 to i64
  %lanes = call i32 @llvm.ctpop.i32(i32 %active)
  %bytes = mul i32 %lanes, %width
  %up = add i32 %bytes, 31
  %ideal = lshr i32 %up, 5
  %ideal64 = zext i32 %ideal to i64
  call void @tally(ptr %memo, i64 %r, i64 %ideal64)
  ret void
}}

define void @count_shared(ptr %memo, {_LANES} %pattern, i32 %active, i64 %address, i32 %width) #0 {{
entry:
  call void @remember(ptr %memo, {_LANES} %pattern, i32 %active)
  %shift = and i64 %address, 3
  %kp = {_field("%memo", MEMO["known"])}
  %known = load i32, ptr %kp
  %s = trunc i64 %shift to i32
  %bit = shl i32 1, %s
  %have = and i32 %known, %bit
  %is = icmp ne i32 %have, 0
  %results = {_field("%memo", MEMO["results"])}
  %rp = getelementptr i32, ptr %results, i64 %shift
  br i1 %is, label %out, label %compute
compute:
  %n = call i32 @wavefronts({_LANES} %pattern, i32 %active, i64 %shift, i32 %width)
  store i32 %n, ptr %rp
  %k2 = or i32 %known, %bit
  store i32 %k2, ptr %kp
  br label %out
out:
  %r = load i32, ptr %rp
  %w = and i32 %r, 65535
  %w64 = zext i32 %w to i64
  %id = lshr i32 %r, 16
  %id64 = zext i32 %id to i64
  call void @tally(ptr %memo, i64 %w64, i64 %id64)
  ret void
}}

; Shadow of shared memory: one word per granule and kind, epoch << 11 | thread + 1 (2047: several threads), 0: nobody yet.
; An access returns 1 if the NumPy machine should have a look: unwritten, or met by another thread since the barrier.
define internal {_LANES} @shadow_mine(i32 %epoch, i32 %first) #2 {{
  %e = shl i32 %epoch, 11
  %t = add i32 %first, 1
  %b = or i32 %e, %t
  %o = insertelement {_LANES} poison, i32 %b, i32 0
  %s = shufflevector {_LANES} %o, {_LANES} poison, <32 x i32> zeroinitializer
  %m = add {_LANES} %s, <{", ".join(f"i32 {i}" for i in range(32))}>
  ret {_LANES} %m
}}

; <32 x i1>: the word names this epoch and somebody else
define internal <32 x i1> @shadow_other({_LANES} %word, {_LANES} %mine) #2 {{
  %x = xor {_LANES} %word, %mine
  %near = icmp ult {_LANES} %x, splat (i32 2048)
  %differs = icmp ne {_LANES} %x, zeroinitializer
  %r = and <32 x i1> %near, %differs
  ret <32 x i1> %r
}}

define i32 @shadow_load(ptr %ctx, i64 %address, {_LANES} %pattern, i32 %active, i32 %cells, i32 %log, i32 %first, i32 %race) #0 {{
entry:
  %wpp = {_field("%ctx", CONTEXT["shadow_writer"])}
  %writers = load ptr, ptr %wpp
  %rpp = {_field("%ctx", CONTEXT["shadow_reader"])}
  %readers = load ptr, ptr %rpp
  %ep = {_field("%ctx", CONTEXT["epoch"])}
  %epoch = load i32, ptr %ep
  %mine = call {_LANES} @shadow_mine(i32 %epoch, i32 %first)
  %mask = bitcast i32 %active to <32 x i1>
  %a32 = trunc i64 %address to i32
  %a1 = insertelement {_LANES} poison, i32 %a32, i32 0
  %av = shufflevector {_LANES} %a1, {_LANES} poison, <32 x i32> zeroinitializer
  %at = add {_LANES} %pattern, %av
  %l1 = insertelement {_LANES} poison, i32 %log, i32 0
  %lv = shufflevector {_LANES} %l1, {_LANES} poison, <32 x i32> zeroinitializer
  %cell0 = lshr {_LANES} %at, %lv
  br label %loop
loop:
  %c = phi i32 [ 0, %entry ], [ %next, %end ]
  %c1 = insertelement {_LANES} poison, i32 %c, i32 0
  %cv = shufflevector {_LANES} %c1, {_LANES} poison, <32 x i32> zeroinitializer
  %cell = add {_LANES} %cell0, %cv
  %wp = getelementptr i32, ptr %writers, {_LANES} %cell
  %w = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %wp, <32 x i1> %mask, {_LANES} %mine)
  %unwritten = icmp eq {_LANES} %w, zeroinitializer
  %u = bitcast <32 x i1> %unwritten to i32
  %bad = icmp ne i32 %u, 0
  br i1 %bad, label %suspicious, label %written
written:
  %watch = icmp ne i32 %race, 0
  br i1 %watch, label %races, label %end
races:
  %conflict = call <32 x i1> @shadow_other({_LANES} %w, {_LANES} %mine)
  %k = bitcast <32 x i1> %conflict to i32
  %clash = icmp ne i32 %k, 0
  br i1 %clash, label %suspicious, label %note
note:
  %rp = getelementptr i32, ptr %readers, {_LANES} %cell
  %r = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %rp, <32 x i1> %mask, {_LANES} %mine)
  %others = call <32 x i1> @shadow_other({_LANES} %r, {_LANES} %mine)
  %several = or {_LANES} %mine, splat (i32 2047)
  %new = select <32 x i1> %others, {_LANES} %several, {_LANES} %mine
  %differs = icmp ne {_LANES} %new, %r
  %d = bitcast <32 x i1> %differs to i32
  %change = icmp ne i32 %d, 0
  br i1 %change, label %write, label %end
write:
  call void @llvm.masked.scatter.v32i32.v32p0({_LANES} %new, <32 x ptr> align 4 %rp, <32 x i1> %mask)
  %again = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %rp, <32 x i1> %mask, {_LANES} %new)
  %lost = icmp ne {_LANES} %again, %new
  call void @llvm.masked.scatter.v32i32.v32p0({_LANES} %several, <32 x ptr> align 4 %rp, <32 x i1> %lost)
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

define i32 @shadow_store(ptr %ctx, i64 %address, {_LANES} %pattern, i32 %active, i32 %cells, i32 %log, i32 %first) #0 {{
entry:
  %wpp = {_field("%ctx", CONTEXT["shadow_writer"])}
  %writers = load ptr, ptr %wpp
  %rpp = {_field("%ctx", CONTEXT["shadow_reader"])}
  %readers = load ptr, ptr %rpp
  %ep = {_field("%ctx", CONTEXT["epoch"])}
  %epoch = load i32, ptr %ep
  %mine = call {_LANES} @shadow_mine(i32 %epoch, i32 %first)
  %mask = bitcast i32 %active to <32 x i1>
  %a32 = trunc i64 %address to i32
  %a1 = insertelement {_LANES} poison, i32 %a32, i32 0
  %av = shufflevector {_LANES} %a1, {_LANES} poison, <32 x i32> zeroinitializer
  %at = add {_LANES} %pattern, %av
  %l1 = insertelement {_LANES} poison, i32 %log, i32 0
  %lv = shufflevector {_LANES} %l1, {_LANES} poison, <32 x i32> zeroinitializer
  %cell0 = lshr {_LANES} %at, %lv
  br label %loop
loop:
  %c = phi i32 [ 0, %entry ], [ %next, %end ]
  %c1 = insertelement {_LANES} poison, i32 %c, i32 0
  %cv = shufflevector {_LANES} %c1, {_LANES} poison, <32 x i32> zeroinitializer
  %cell = add {_LANES} %cell0, %cv
  %wp = getelementptr i32, ptr %writers, {_LANES} %cell
  %w = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %wp, <32 x i1> %mask, {_LANES} %mine)
  %rp = getelementptr i32, ptr %readers, {_LANES} %cell
  %r = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %rp, <32 x i1> %mask, {_LANES} %mine)
  %cw = call <32 x i1> @shadow_other({_LANES} %w, {_LANES} %mine)
  %cr = call <32 x i1> @shadow_other({_LANES} %r, {_LANES} %mine)
  %cc = or <32 x i1> %cw, %cr
  call void @llvm.masked.scatter.v32i32.v32p0({_LANES} %mine, <32 x ptr> align 4 %wp, <32 x i1> %mask)
  %again = call {_LANES} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> align 4 %wp, <32 x i1> %mask, {_LANES} %mine)
  %lost = icmp ne {_LANES} %again, %mine
  %any = or <32 x i1> %cc, %lost
  %k = bitcast <32 x i1> %any to i32
  %clash = icmp ne i32 %k, 0
  br i1 %clash, label %suspicious, label %end
end:
  %next = add i32 %c, 1
  %done = icmp uge i32 %next, %cells
  br i1 %done, label %fine, label %loop
fine:
  ret i32 0
suspicious:
  ret i32 1
}}

; Run blocks[0..n): 0 when all ended, -1 when one failed (its linear index is left in the context).
define i32 @run_blocks(ptr %ctx, ptr %blocks, i64 %n) #0 {{
entry:
  %gxp = {_field("%ctx", CONTEXT["nctaid"])}
  %gx = load i32, ptr %gxp
  %gyp = {_field("%ctx", CONTEXT["nctaid"] + 4)}
  %gy = load i32, ptr %gyp
  %wp = {_field("%ctx", CONTEXT["warps"])}
  %warps = load i32, ptr %wp
  %sp = {_field("%ctx", CONTEXT["states"])}
  %states = load ptr, ptr %sp
  %tp = {_field("%ctx", CONTEXT["stride"])}
  %stride = load i64, ptr %tp
  %shp = {_field("%ctx", CONTEXT["shared"])}
  %shared = load ptr, ptr %shp
  %ssp = {_field("%ctx", CONTEXT["shared_size"])}
  %ssize = load i64, ptr %ssp
  %swp = {_field("%ctx", CONTEXT["shadow_writer"])}
  %shadow_writer = load ptr, ptr %swp
  %srp = {_field("%ctx", CONTEXT["shadow_reader"])}
  %shadow_reader = load ptr, ptr %srp
  %sbp = {_field("%ctx", CONTEXT["shadow_bytes"])}
  %shadow_bytes = load i64, ptr %sbp
  %epochp = {_field("%ctx", CONTEXT["epoch"])}
  %stopp = {_field("%ctx", CONTEXT["stop"])}
  %fbp = {_field("%ctx", CONTEXT["failed_block"])}
  br label %nextblock
nextblock:
  %k = phi i64 [ 0, %entry ], [ %k1, %blockdone ]
  %end = icmp uge i64 %k, %n
  br i1 %end, label %finished, label %begin
finished:
  ret i32 0
begin:
  %bp = getelementptr i64, ptr %blocks, i64 %k
  %linear = load i64, ptr %bp
  %l32 = trunc i64 %linear to i32
  %stop = load volatile i32, ptr %stopp
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %failed, label %start
start:
  %x = urem i32 %l32, %gx
  %yz = udiv i32 %l32, %gx
  %y = urem i32 %yz, %gy
  %z = udiv i32 %yz, %gy
  %cx = {_field("%ctx", CONTEXT["ctaid"])}
  store i32 %x, ptr %cx
  %cy = {_field("%ctx", CONTEXT["ctaid"] + 4)}
  store i32 %y, ptr %cy
  %cz = {_field("%ctx", CONTEXT["ctaid"] + 8)}
  store i32 %z, ptr %cz
  call void @llvm.memset.p0.i64(ptr %shared, i8 0, i64 %ssize, i1 false)
  call void @llvm.memset.p0.i64(ptr %shadow_writer, i8 0, i64 %shadow_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %shadow_reader, i8 0, i64 %shadow_bytes, i1 false)
  store i32 1, ptr %epochp
  br label %reset
reset:
  %w = phi i32 [ 0, %start ], [ %w1, %reset ]
  %w64 = zext i32 %w to i64
  %off = mul i64 %w64, %stride
  %ws = getelementptr i8, ptr %states, i64 %off
  %ip = {_field("%ws", WARP_STATE["initial"])}
  %initial = load i32, ptr %ip
  store i32 %initial, ptr %ws
  %rp = {_field("%ws", WARP_STATE["resume"])}
  store i32 0, ptr %rp
  %w1 = add i32 %w, 1
  %rd = icmp eq i32 %w1, %warps
  br i1 %rd, label %round, label %reset
round:
  br label %turn
turn:
  %v = phi i32 [ 0, %round ], [ %v1, %turned ]
  %meet = phi i32 [ -2, %round ], [ %meet2, %turned ]
  %v64 = zext i32 %v to i64
  %voff = mul i64 %v64, %stride
  %vs = getelementptr i8, ptr %states, i64 %voff
  %vrp = {_field("%vs", WARP_STATE["resume"])}
  %resume = load i32, ptr %vrp
  %code = call i32 @warp(ptr %ctx, ptr %vs, i32 %resume)
  %bad = icmp slt i32 %code, 0
  br i1 %bad, label %failed, label %returned
returned:
  store i32 %code, ptr %vrp
  %fresh = icmp eq i32 %meet, -2
  %agree = icmp eq i32 %meet, %code
  %fine = or i1 %fresh, %agree
  br i1 %fine, label %whole, label %failed
whole:
  ; a barrier must find all threads that the warp began with
  %isbar = icmp ne i32 %code, 0
  %live = load i32, ptr %vs
  %vip = {_field("%vs", WARP_STATE["initial"])}
  %vinit = load i32, ptr %vip
  %all = icmp eq i32 %live, %vinit
  %ended = xor i1 %isbar, true
  %good = or i1 %all, %ended
  br i1 %good, label %turned, label %failed
turned:
  %meet2 = phi i32 [ %code, %whole ]
  %v1 = add i32 %v, 1
  %last = icmp eq i32 %v1, %warps
  br i1 %last, label %decide, label %turn
decide:
  %over = icmp eq i32 %meet2, 0
  br i1 %over, label %blockdone, label %again
again:
  %epoch = load i32, ptr %epochp
  %later = add i32 %epoch, 1
  store i32 %later, ptr %epochp
  %many = icmp ugt i32 %later, 1000000
  br i1 %many, label %failed, label %on
on:
  %stop2 = load volatile i32, ptr %stopp
  %stopping2 = icmp ne i32 %stop2, 0
  br i1 %stopping2, label %failed, label %round
blockdone:
  %k1 = add i64 %k, 1
  br label %nextblock
failed:
  store i64 %linear, ptr %fbp
  ret i32 -1
}}

attributes #0 = {{ $ATTR }}
attributes #1 = {{ noinline $ATTR }}
attributes #2 = {{ alwaysinline $ATTR }}
"""
