"""Where things lie in the memory that compiled code and launcher share. Offsets in bytes."""

# One per worker thread. Pointers are 8 bytes.
CONTEXT = {
    "stop": 0, "fail": 4, "shared": 8, "shared_end": 16, "params": 24, "records": 32, "block_counts": 40, "memos": 48,
    "ctaid": 56, "nctaid": 68, "ntid": 80, "warps": 92, "states": 96, "stride": 104, "arenas": 112, "arena_count": 120,
    "failed_block": 128, "shadow_writer": 136, "shadow_reader": 144, "shadow_bytes": 152, "epoch": 160, "account": 168,
    "owners": 176, "owned_low": 184, "owned_count": 192, "must_be_written": 200,
    "products": 208, "machine_call": 216, "turning": 224, "local_bytes": 232,
}  # fmt: skip
CONTEXT_BYTES = 256

# One per warp of a block. `initial` is the mask of the lanes that exist. copies: its queue, or null. turn: warp barriers
# that it has passed. local: its lanes' local memory, word by word, 32 lanes side by side.
WARP_STATE = {
    "live": 0,
    "initial": 4,
    "resume": 8,
    "warp": 12,
    "tid_first": 16,
    "copies": 32,
    "turn": 40,
    "local": 48,
    "tid": 64,
    "saved": 448,
}

# Asynchronous copies of a warp that have not landed, the oldest first: `first` and `end` are numbers of entries.
# commits: groups that each lane has closed.
QUEUE = {"first": 0, "end": 4, "commits": 64, "entries": 192}
QUEUE_HEAD = 192  # what a block begins with zeros in
# mask: lanes whose copy has not landed. group: the lanes' `commits` when the copy began. offsets: in shared memory.
ENTRY = {"mask": 0, "width": 4, "granules": 8, "log": 12, "offsets": 64, "group": 192, "values": 320}
ENTRY_BYTES = 832
ENTRIES = 512
QUEUE_BYTES = QUEUE["entries"] + ENTRIES * ENTRY_BYTES

# One per memory access site that is counted: three totals, then remembered patterns with what they cost. An active mask
# of 0 is a free slot. other: the second pattern of an access with two sides.
MEMO = {"requests": 0, "units": 8, "ideal": 16, "slots": 64}
SLOT = {"active": 0, "shift": 4, "requests": 8, "units": 12, "ideal": 16, "pattern": 64, "other": 192}
SLOT_BYTES = 320
SLOTS = 32
MEMO_BYTES = MEMO["slots"] + SLOTS * SLOT_BYTES

# One per access, or per group of accesses that are checked together: bounds of the arena it met last and host address -
# address; then what is counted (0 for nothing) and watched (0 granules for nothing).
RECORD = {
    "low": 0, "high": 8, "delta": 16, "memo": 24, "shift": 32, "code": 40, "mask": 44, "position": 48, "granules": 52,
    "log": 56, "race": 60, "shared": 64,
}  # fmt: skip
RECORD_BYTES = 72

# What a matrix product needs to know: numbers of 32 bits, then tables of `products.product`.
PRODUCT = {
    "m": 0, "n": 4, "k": 8, "a_kind": 12, "b_kind": 16, "c_kind": 20, "d_kind": 24, "a_table": 28, "b_table": 32, "c_table": 36,
    "d_table": 40, "d_registers": 44, "saturate": 48, "cut": 52, "a_lowest": 56, "b_lowest": 60,
}  # fmt: skip

# Numbers of accesses in the tables of what is counted.
GENERIC = 64  # added to the number of a generic access when it is in shared memory
