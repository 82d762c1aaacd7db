"""LLVM IR of what every kernel needs: the block scheduler, the search for an arena, counting, shadow memory, gathers.

What an access costs is decided in `account.py` alone: compiled code remembers the answers for the patterns it meets.
"""

from __future__ import annotations

from .layout import CONTEXT, MEMO, RECORD, SLOT, SLOT_BYTES, SLOTS, WARP_STATE

_LANES = "<32 x i32>"


def runtime_ir() -> str:
    """The module's text."""
    return (
        _TEXT + "".join(_moves(bits) + _access(bits, "load") + _access(bits, "store") for bits in (8, 16, 32, 64))
    ).replace("$ATTR", _ATTRIBUTES)


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


def _access(bits: int, what: str) -> str:
    """A whole access by call: check, count, watch, and move `count` elements per lane from or to %buffer.

    An access that cannot be made asks the launcher to stop; until the warp looks, loads give what the buffer held.
    """
    kind, vector, nbytes = f"i{bits}", f"<32 x i{bits}>", bits // 8
    far = "<32 x i64>"
    watch = "shadow_load" if what == "load" else "shadow_store"
    race = ", i32 %race" if what == "load" else ""
    move = (
        f"""
  %value = call {vector} @llvm.masked.gather.v32{kind}.v32p0(<32 x ptr> align {nbytes} %lanes, <32 x i1> %mask, {vector} zeroinitializer)
  store {vector} %value, ptr %slot, align 64"""
        if what == "load"
        else f"""
  %value = load {vector}, ptr %slot, align 64
  call void @llvm.masked.scatter.v32{kind}.v32p0({vector} %value, <32 x ptr> align {nbytes} %lanes, <32 x i1> %mask)"""
    )
    return f"""
define void @{what}_{kind}(ptr %ctx, ptr %record, i64 %scalar, {far} %places, i32 %active, i32 %first, i32 %count, ptr %buffer) #0 {{
entry:
  %lane0 = call i32 @llvm.cttz.i32(i32 %active, i1 false)
  %lane = and i32 %lane0, 31
  %mask = bitcast i32 %active to <32 x i1>
  %origin = extractelement {far} %places, i32 %lane
  %o1 = insertelement {far} poison, i64 %origin, i32 0
  %ov = shufflevector {far} %o1, {far} poison, <32 x i32> zeroinitializer
  %d0 = sub {far} %places, %ov
  %distance = select <32 x i1> %mask, {far} %d0, {far} zeroinitializer
  %pattern = trunc {far} %distance to {_LANES}
  %again = sext {_LANES} %pattern to {far}
  %differs = icmp ne {far} %again, %distance
  %dm = bitcast <32 x i1> %differs to i32
  %fits = icmp eq i32 %dm, 0
  %base = add i64 %origin, %scalar
  %least32 = call i32 @llvm.vector.reduce.smin.v32i32({_LANES} %pattern)
  %most32 = call i32 @llvm.vector.reduce.smax.v32i32({_LANES} %pattern)
  %bits32 = call i32 @llvm.vector.reduce.or.v32i32({_LANES} %pattern)
  %least = sext i32 %least32 to i64
  %most = sext i32 %most32 to i64
  %bits = sext i32 %bits32 to i64
  %width = mul i32 %count, {nbytes}
  %width64 = zext i32 %width to i64
  %low = sub i64 %width64, 1
  %mixed = or i64 %base, %bits
  %rest = and i64 %mixed, %low
  %aligned = icmp eq i64 %rest, 0
  %sane = and i1 %aligned, %fits
  br i1 %sane, label %check, label %fail
check:
  %start = add i64 %base, %least
  %last = add i64 %base, %most
  %stop = add i64 %last, %width64
  %lowest = load i64, ptr %record
  %hp = {_field("%record", RECORD["high"])}
  %highest = load i64, ptr %hp
  %above = icmp sge i64 %start, %lowest
  %below = icmp sle i64 %stop, %highest
  %inside = and i1 %above, %below
  br i1 %inside, label %good, label %search
search:
  %shp = {_field("%record", RECORD["shared"])}
  %shared = load i32, ptr %shp
  %is_shared = icmp ne i32 %shared, 0
  br i1 %is_shared, label %fail, label %find
find:
  %found = call i32 @find_arena(ptr %ctx, ptr %record, i64 %start, i64 %stop)
  %ok = icmp ne i32 %found, 0
  br i1 %ok, label %good, label %fail
good:
  %mp = {_field("%record", RECORD["memo"])}
  %memo = load ptr, ptr %mp
  %counted = icmp ne ptr %memo, null
  br i1 %counted, label %tally, label %watchful
tally:
  %tp = {_field("%record", RECORD["shift"])}
  %shift = load i64, ptr %tp
  %cp = {_field("%record", RECORD["code"])}
  %code = load i32, ptr %cp
  %kp = {_field("%record", RECORD["mask"])}
  %keep = load i32, ptr %kp
  %charged = add i64 %base, %shift
  call void @count(ptr %ctx, ptr %memo, {_LANES} %pattern, i32 %active, i64 %charged, i32 %keep, i32 %code)
  br label %watchful
watchful:
  %gp = {_field("%record", RECORD["granules"])}
  %granules = load i32, ptr %gp
  %watched = icmp ne i32 %granules, 0
  br i1 %watched, label %watch, label %moves
watch:
  %lp = {_field("%record", RECORD["log"])}
  %log = load i32, ptr %lp
  %rcp = {_field("%record", RECORD["race"])}
  %race = load i32, ptr %rcp
  %bad = call i32 @{watch}(ptr %ctx, i64 %base, {_LANES} %pattern, i32 %active, i32 %granules, i32 %log, i32 %first{race})
  %suspicious = icmp ne i32 %bad, 0
  br i1 %suspicious, label %fail, label %moves
moves:
  %dp = {_field("%record", RECORD["delta"])}
  %delta = load i64, ptr %dp
  %host = add i64 %base, %delta
  %p0 = inttoptr i64 %host to ptr
  br label %loop
loop:
  %k = phi i32 [ 0, %moves ], [ %next, %loop ]
  %skip = mul i32 %k, {nbytes}
  %p = getelementptr i8, ptr %p0, i32 %skip
  %lanes = getelementptr i8, ptr %p, {_LANES} %pattern
  %into = mul i32 %k, {32 * nbytes}
  %slot = getelementptr i8, ptr %buffer, i32 %into{move}
  %next = add i32 %k, 1
  %done = icmp uge i32 %next, %count
  br i1 %done, label %out, label %loop
fail:
  %pp = {_field("%record", RECORD["position"])}
  %position = load i32, ptr %pp
  %fp = {_field("%ctx", CONTEXT["fail"])}
  store i32 %position, ptr %fp
  %sp = {_field("%ctx", CONTEXT["stop"])}
  store volatile i32 1, ptr %sp
  br label %out
out:
  ret void
}}
"""


def _field(base, offset):
    return f"getelementptr i8, ptr {base}, i64 {offset}"


_TEXT = f"""
declare i32 @warp(ptr, ptr, i32)
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.vector.reduce.smin.v32i32({_LANES})
declare i32 @llvm.vector.reduce.smax.v32i32({_LANES})
declare i32 @llvm.vector.reduce.or.v32i32({_LANES})
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
  %hp = {_field("%a", RECORD["high"])}
  %high = load i64, ptr %hp
  %above = icmp sge i64 %start, %low
  %below = icmp sle i64 %stop, %high
  %in = and i1 %above, %below
  br i1 %in, label %found, label %more
more:
  %next = add i64 %i, 1
  br label %loop
found:
  %dp = {_field("%a", RECORD["delta"])}
  %delta = load i64, ptr %dp
  store i64 %low, ptr %record
  %rh = {_field("%record", RECORD["high"])}
  store i64 %high, ptr %rh
  %rd = {_field("%record", RECORD["delta"])}
  store i64 %delta, ptr %rd
  ret i32 1
none:
  ret i32 0
}}

; Add what an access costs to its site's totals. A pattern seen before, at the same place within `low` bytes, costs what
; it did then; another one is looked up by the launcher, in account.py.
define void @count(ptr %ctx, ptr %memo, {_LANES} %pattern, i32 %active, i64 %address, i32 %low, i32 %code) #0 {{
entry:
  %a32 = trunc i64 %address to i32
  %shift = and i32 %a32, %low
  %mixed = mul {_LANES} %pattern, <{", ".join(f"i32 {(2 * i + 1) * 0x9E3779B1 % 2**32}" for i in range(32))}>
  %hash = call i32 @llvm.vector.reduce.add.v32i32({_LANES} %mixed)
  %h1 = mul i32 %shift, 73244475
  %h2 = mul i32 %active, 295559667
  %h3 = xor i32 %hash, %h1
  %h4 = xor i32 %h3, %h2
  %h5 = lshr i32 %h4, 15
  %h6 = xor i32 %h4, %h5
  %slot = and i32 %h6, {SLOTS - 1}
  %slot64 = zext i32 %slot to i64
  %skip = mul i64 %slot64, {SLOT_BYTES}
  %at = add i64 %skip, {MEMO["slots"]}
  %entryp = getelementptr i8, ptr %memo, i64 %at
  %pp = {_field("%entryp", SLOT["pattern"])}
  %ap = {_field("%entryp", SLOT["active"])}
  %sp = {_field("%entryp", SLOT["shift"])}
  %rp = {_field("%entryp", SLOT["requests"])}
  %up = {_field("%entryp", SLOT["units"])}
  %ip = {_field("%entryp", SLOT["ideal"])}
  %old = load {_LANES}, ptr %pp, align 64
  %e = icmp eq {_LANES} %old, %pattern
  %m = bitcast <32 x i1> %e to i32
  %same = icmp eq i32 %m, -1
  %oa = load i32, ptr %ap
  %sa = icmp eq i32 %oa, %active
  %os = load i32, ptr %sp
  %ss = icmp eq i32 %os, %shift
  %h7 = and i1 %same, %sa
  %hit = and i1 %h7, %ss
  br i1 %hit, label %known, label %ask
ask:
  store {_LANES} %pattern, ptr %pp, align 64
  store i32 %active, ptr %ap
  store i32 %shift, ptr %sp
  %accountp = {_field("%ctx", CONTEXT["account"])}
  %account = load ptr, ptr %accountp
  call void %account(i32 %code, i32 %active, i32 %shift, ptr %pp, ptr %rp)
  br label %known
known:
  %r = load i32, ptr %rp
  %u = load i32, ptr %up
  %i = load i32, ptr %ip
  %r64 = zext i32 %r to i64
  %u64 = zext i32 %u to i64
  %i64 = zext i32 %i to i64
  %tr = load i64, ptr %memo
  %tr1 = add i64 %tr, %r64
  store i64 %tr1, ptr %memo
  %tup = {_field("%memo", MEMO["units"])}
  %tu = load i64, ptr %tup
  %tu1 = add i64 %tu, %u64
  store i64 %tu1, ptr %tup
  %tip = {_field("%memo", MEMO["ideal"])}
  %ti = load i64, ptr %tip
  %ti1 = add i64 %ti, %i64
  store i64 %ti1, ptr %tip
  ret void
}}
declare i32 @llvm.vector.reduce.add.v32i32({_LANES})

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
  %asked = load volatile i32, ptr %stopp
  %asks = icmp ne i32 %asked, 0
  %wrong = icmp slt i32 %code, 0
  %bad = or i1 %asks, %wrong
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
attributes #2 = {{ alwaysinline $ATTR }}
"""
