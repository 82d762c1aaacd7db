// Prints what NVIDIA's cuda_occupancy.h computes, one row per line, for a grid of inputs: the expected values of
// tests/model/test_occupancy.py. occupancy.csv keeps its output, so that the test needs no C++
// compiler; where there is one, a second test builds this file and compares.
#include <climits>
#include <cstdio>
#include <cuda_occupancy.h>

struct Chip { int major, minor, threads, shared_kib, optin_kib, reserved; };

int main() {
    // The device properties the header is told: what cudaGetDeviceProperties reports on each capability.
    const Chip chips[] = {{7, 5, 1024, 64, 64, 0},      {8, 0, 2048, 164, 163, 1024}, {8, 6, 1536, 100, 99, 1024},
                          {8, 7, 1536, 164, 163, 1024}, {8, 9, 1536, 100, 99, 1024},  {9, 0, 2048, 228, 227, 1024},
                          {10, 0, 2048, 228, 227, 1024}, {10, 3, 2048, 228, 227, 1024}, {12, 0, 1536, 100, 99, 1024},
                          {12, 1, 1536, 100, 99, 1024}};
    const int threads[] = {1, 64, 96, 128, 224, 256, 512, 768, 1024, 1025};
    const int registers[] = {0, 16, 33, 40, 64, 96, 128, 168, 255};
    const int shared[] = {0, 1, 4096, 12544, 16384, 33792, 65536, 99 * 1024, 163 * 1024, 232449};
    const int barriers[] = {1, 3};
    std::puts("capability,threads,registers,shared,barriers,blocks,limiters,allocated_registers,allocated_shared");
    for (const Chip& c : chips)
        for (int t : threads)
            for (int r : registers)
                for (int s : shared)
                    for (int b : barriers) {
                        if (b == 3 && (t % 256 || r % 32)) continue;  // a few rows are enough for barriers
                        cudaOccDeviceProp p;
                        p.computeMajor = c.major; p.computeMinor = c.minor; p.maxThreadsPerBlock = 1024;
                        p.maxThreadsPerMultiprocessor = c.threads; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
                        p.warpSize = 32; p.sharedMemPerBlock = 48 * 1024; p.sharedMemPerMultiprocessor = c.shared_kib * 1024;
                        p.numSms = 1; p.sharedMemPerBlockOptin = c.optin_kib * 1024; p.reservedSharedMemPerBlock = c.reserved;
                        cudaOccFuncAttributes a;
                        a.maxThreadsPerBlock = INT_MAX; a.numRegs = r; a.sharedSizeBytes = 0;
                        a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = s; a.numBlockBarriers = b;
                        cudaOccDeviceState state;
                        cudaOccResult out;
                        if (cudaOccMaxActiveBlocksPerMultiprocessor(&out, &p, &a, &state, t, s) != CUDA_OCC_SUCCESS) return 1;
                        std::printf("%d.%d,%d,%d,%d,%d,%d,%u,%d,%zu\n", c.major, c.minor, t, r, s, b,
                                    out.activeBlocksPerMultiprocessor, out.limitingFactors, out.allocatedRegistersPerBlock,
                                    out.allocatedSharedMemPerBlock);
                    }
}
