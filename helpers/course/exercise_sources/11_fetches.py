#! kind: change
#! title: Back and forth
#! task: An outer product of rows × cols multiply-adds, one after the other. Each takes its value of A or of B from
#!     the cache if the one just before it had the same value, and fetches it otherwise. Going through each row from
#!     left to right takes rows * (cols + 1) fetches. Write fetches(rows, cols) for going back and forth: every
#!     second row from right to left.
#! hint: Count the first multiply-add on its own. How many values does it fetch?
#! hint: Within a row one value stays. At a turn, which one?
#! hint: Two values for the first, one for each of the others.
#! case: 16, 8
#! case: 8, 8
#! case: 4, 4
#! case: 1, 8
#! case: 8, 1
#! after: 129 instead of 144 for 16 × 8. The third operand, the sum, is fetched by each: two registers a cycle, one
#!     from each bank, if the compiler puts them into different banks.
def fetches(rows, cols):
    #[solution
    return rows * cols + 1
    #[starter
    #|return rows * (cols + 1)
    #]
