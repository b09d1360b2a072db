// Sums over a batch: ops/mod.rs (`channel_sums`), simd.rs (`sum2`).
#include "common.cuh"

// Of one plane the sum of: 0 its values, 1 their squared distance to the channel's mean, 2 its
// values times the distance of `others` to the mean, 3 the squares of its values.
__device__ inline float term(int what, float v, float other, float mean) {
    return what == 0   ? v
           : what == 1 ? (v - mean) * (v - mean)
           : what == 2 ? v * (other - mean)
                       : v * v;
}

// The sum of each plane of `run` numbers in sixteen strands; the last plane may be shorter.
extern "C" __global__ void plane_sums(int planes, int channels, int run, int n, int what,
                                      const float *values, const float *others,
                                      const float *means, float *sums) {
    EACH(i, planes);
    const int length = n - i * run < run ? n - i * run : run;
    values += i * run;
    others += i * run;
    const float mean = what == 1 || what == 2 ? means[i % channels] : 0.0f;
    float strands[16] = {}, rest = -0.0f;
    for (int at = 0; at + 16 <= length; at += 16) {
#pragma unroll
        for (int j = 0; j < 16; j++)
            strands[j] += term(what, values[at + j], others[at + j], mean);
    }
    for (int at = length / 16 * 16; at < length; at++)
        rest += term(what, values[at], others[at], mean);
    float sum = -0.0f;
#pragma unroll
    for (int j = 0; j < 16; j++) sum += strands[j];
    sums[i] = sum + rest;
}

// The sum of each column, row after row.
extern "C" __global__ void column_sums(int rows, int columns, const float *values, float *sums) {
    EACH(i, columns);
    float sum = 0.0f;
    for (int row = 0; row < rows; row++) sum += values[row * columns + i];
    sums[i] = sum;
}
