// Sums over a batch: ops/mod.rs (`channel_sums`), simd.rs (`sum2`).
#include "strands.cuh"

// Of one plane the sum of: 0 its values, 1 their squared distance to the channel's mean, 2 the
// squares of its values, 3 its values where `others`, the output of a relu, is above 0. The others
// become 0 in place.
__device__ inline float term(int what, float &value, float other, float mean) {
    if (what == 3) value = other > 0.0f ? value : 0.0f;
    const float v = value;
    return what == 1 ? (v - mean) * (v - mean) : what == 2 ? v * v : v;
}

// The sum of each plane of `run` numbers in sixteen strands; the last plane may be shorter.
KERNEL(plane_sums, int planes, int channels, int run, int n, int what, float *values,
       const float *others, const float *means, float *sums) {
    __shared__ float strands[PLANES][STRANDS + 1];
    const Plane p(planes, run, n);
    values += p.start;
    others += p.start;
    const float mean = what == 1 && p.length > 0 ? means[p.at % channels] : 0.0f;
    const auto one = [&](int at) {
        float v = values[at];
        const float added = term(what, v, what == 3 ? others[at] : v, mean);
        if (what == 3) values[at] = v;
        return added;
    };
    float sum = 0.0f, rest = -0.0f;
    for (int at = p.strand; at < p.whole; at += STRANDS) sum += one(at);
    strands[p.slot][p.strand] = sum;
    __syncthreads();
    if (p.strand > 0 || p.length == 0) return;
    for (int at = p.whole; at < p.length; at++) rest += one(at);
    sums[p.at] = together(strands[p.slot], rest);
}

// The sum of each column, row after row. With `relu`, only of the values where `out` is above 0;
// the others become 0 in place.
KERNEL(column_sums, int rows, int columns, int relu, const float *out, float *values,
       float *sums) {
    EACH(i, columns);
    float sum = 0.0f;
    for (int at = i; at < rows * columns; at += columns) {
        float v = values[at];
        if (relu) values[at] = v = out[at] > 0.0f ? v : 0.0f;
        sum += v;
    }
    sums[i] = sum;
}
