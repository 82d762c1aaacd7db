#! kind: write
#! title: Arithmetic intensity
#! task: Write intensity(m, n, k): the floating-point operations of C = A B divided by the bytes that must move at
#!     least once, for FP32 matrices A (m x k), B (k x n) and C (m x n).
#! hint: The operations are 2 m n k: each of the m n results is a sum of k products.
#! hint: Each of the three matrices must move once: A and B are read, C is written.
#! hint: A has m k elements, B has k n, C has m n, and each element is 4 bytes.
#! case: 1, 1, 1
#! case: 64, 64, 64
#! case: 4096, 4096, 4096
#! case: 4096, 1, 4096
#! case: 7, 11, 13
#! after: The fourth case is a matrix times a vector. However large it is, its intensity stays below one half.
def intensity(m, n, k):
    #[solution
    return 2 * m * n * k / (4 * (m * k + k * n + m * n))
    #[starter
    #|return m * n * k
    #]
