// What all kernels share.
//
// A kernel gives the bits of the CPU's function in the file of the same name in src/ops. Each sum
// has one order, and one thread makes it; nothing is atomic. `fmaf` rounds once, a product and a
// sum beside it round twice (`--fmad=false`). Only + - * / sqrt and fma are used, which IEEE 754
// defines to the last bit.

// A thread for each `i` below `n`.
#define EACH(i, n)                                        \
    const int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= (n)) return

__device__ inline float at_least(float v, float floor) { return v < floor ? floor : v; }

// The sum of eight lanes, as a processor folds a vector of eight.
__device__ inline float fold(const float *l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}
