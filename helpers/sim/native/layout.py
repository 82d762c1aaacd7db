"""Where things lie in the memory that compiled code and launcher share. Offsets in bytes."""

# One per worker thread. Pointers are 8 bytes.
CONTEXT = {
    "stop": 0, "fail": 4, "shared": 8, "shared_size": 16, "params": 24, "records": 32, "block_counts": 40, "memos": 48,
    "ctaid": 56, "nctaid": 68, "ntid": 80, "warps": 92, "states": 96, "stride": 104, "arenas": 112, "arena_count": 120,
    "failed_block": 128, "shadow_writer": 136, "shadow_reader": 144, "shadow_bytes": 152, "epoch": 160, "account": 168,
}  # fmt: skip
CONTEXT_BYTES = 192

# One per warp of a block. `initial` is the mask of the lanes that exist.
WARP_STATE = {"live": 0, "initial": 4, "resume": 8, "warp": 12, "tid_first": 16, "tid": 64, "saved": 448}

# One per memory access site that is counted: three totals, then remembered patterns with what they cost.
MEMO = {"requests": 0, "units": 8, "ideal": 16, "slots": 64}
SLOT = {"active": 0, "shift": 4, "requests": 8, "units": 12, "ideal": 16, "pattern": 64}
SLOT_BYTES = 192
SLOTS = 32
MEMO_BYTES = MEMO["slots"] + SLOTS * SLOT_BYTES

# One per access, or per group of accesses that are checked together: bounds of the arena it met last and host address -
# address; then what is counted (0 for nothing) and watched (0 granules for nothing).
RECORD = {
    "low": 0, "high": 8, "delta": 16, "memo": 24, "shift": 32, "code": 40, "mask": 44, "position": 48, "granules": 52,
    "log": 56, "race": 60, "shared": 64,
}  # fmt: skip
RECORD_BYTES = 72
