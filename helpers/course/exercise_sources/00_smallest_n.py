#! kind: write
#! title: Where the roof bends
#! task: A GPU has a peak in TFLOPS and a bandwidth in TB/s. Write smallest_n(peak, bandwidth): the smallest n for which
#!     an n x n x n product, moving only its compulsory bytes, is limited by arithmetic and not
#!     by memory: its arithmetic takes at least as long as its bytes.
#! hint: The product is limited by arithmetic as soon as its intensity is at least peak / bandwidth (FLOPs per
#!     byte).
#! hint: For a square product the intensity is 2 n^3 / (12 n^2) = n / 6.
#! hint: So n must be at least 6 * peak / bandwidth, rounded up: math.ceil.
#! case: 60.0, 4.0
#! case: 19.5, 2.0
#! case: 35.6, 0.936
#! case: 1.0, 1.0
#! after: Every matrix product worth optimising is far to the right of that: the roof above it is arithmetic, so a
#!     kernel that is limited by memory moves far more than it must.
import math


def smallest_n(peak, bandwidth):
    #[solution
    return math.ceil(6 * peak / bandwidth)
    #[starter
    #|return math.ceil(peak / bandwidth)
    #]
