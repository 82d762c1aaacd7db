//// too_many_threads: 33 x 32 threads in a block
//// launch: grid 1 block 33,32 args f32[2048]
//// twin: grid 1 block 32,32 args f32[2048]
extern "C" __global__ void fill(float* y) { y[threadIdx.y * blockDim.x + threadIdx.x] = 1; }
//// too_much_shared: more dynamic shared memory than a block can have
//// launch: grid 1 block 32 shared 240000 args f32[32]
//// twin: grid 1 block 32 shared 200000 args f32[32]
extern __shared__ float buffer[];
extern "C" __global__ void fill(float* y) { buffer[threadIdx.x] = 1; y[threadIdx.x] = buffer[threadIdx.x]; }
//// grid_too_long: 65536 blocks in y
//// launch: grid 1,65536 block 32 args f32[32]
//// twin: grid 65536,1 block 1 args f32[1]
extern "C" __global__ void fill(float* y) { if (blockIdx.x + blockIdx.y == 0) y[threadIdx.x] = 1; }
//// no_blocks: a grid of zero blocks, because M is 0
//// launch: grid 0 block 32 args f32[32]
//// twin: grid 1 block 32 args f32[32]
extern "C" __global__ void fill(float* y) { y[threadIdx.x] = 1; }
