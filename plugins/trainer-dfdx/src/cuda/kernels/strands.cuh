// Sums of planes in sixteen strands, a thread for each: simd.rs (`sum2`).
#include "common.cuh"

#define STRANDS 16
// Planes of a block of 256 threads.
#define PLANES 16

// The plane of a thread among `planes` of `run` numbers, of `n` in all.
struct Plane {
    int strand, slot, at, start, length, whole;

    __device__ Plane(int planes, int run, int n) {
        strand = threadIdx.x % STRANDS, slot = threadIdx.x / STRANDS;
        at = blockIdx.x * PLANES + slot;
        // a plane behind the last has no numbers
        start = at < planes ? at * run : 0;
        length = at < planes ? (n - start < run ? n - start : run) : 0;
        whole = length / STRANDS * STRANDS;
    }
};

// The sum of a plane, from its strands and the sum of the rest.
__device__ inline float together(const float *strands, float rest) {
    float sum = -0.0f;
#pragma unroll
    for (int j = 0; j < STRANDS; j++) sum += strands[j];
    return sum + rest;
}
