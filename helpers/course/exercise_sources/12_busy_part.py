#! kind: write
#! title: How busy at best
#! task: Write busy_part(m, n, bm, bn, sms): of what all SMs could do while the busiest of them works through its tiles,
#!     the part that is useful. C is m x n, a block computes a bm x bn tile, and every tile takes equally long, also where a part of it lies
#!     outside C. What is computed there is not useful.
#! hint: How many blocks are there? Tiles at the edges count as whole ones, so round up in both directions. What of them is in C is
#!     another question.
#! hint: The busiest SM has blocks / sms tiles, rounded up. All SMs together could have done that many each.
#! hint: Useful is m * n; possible is ceil(blocks / sms) * sms * bm * bn.
#! case: 4096, 4096, 256, 128, 132
#! case: 256, 256, 256, 128, 132
#! case: 256, 256, 16, 64, 132
#! case: 16, 4096, 256, 128, 132
#! case: 1000, 3000, 64, 128, 132
#! after: The same large tile is nearly perfect at 4096 and leaves nearly everything idle at 256. No cleverness inside the
#!     tile makes up for that, which is why a library has many kernels and a rule to choose by.
import math


def busy_part(m, n, bm, bn, sms):
    blocks = math.ceil(m / bm) * math.ceil(n / bn)
    #[solution
    return m * n / (math.ceil(blocks / sms) * sms * bm * bn)
    #[starter
    #|return blocks / sms
    #]
