"""Where things lie in the machine's address space.

A generic address says by its top bits which state space it is in. Global and constant memory are used at their generic
addresses; shared, local and parameter addresses count from 0 within their own space.
"""

DEVICE_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
WINDOW_BYTES = 1 << 40
ALIGN = 256  # arrays that own their memory begin at a multiple of it, as cudaMalloc's do
RANK_SHIFT = 24  # of a shared::cluster address: from this bit on, the rank of the block in its cluster plus one
FUNCTION_BASE = 0x10  # functions have addresses too, though nothing can be read there
