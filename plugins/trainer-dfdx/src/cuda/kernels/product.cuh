// One number of a matrix product, in one of the orders of ops/linear.rs (`Order`).
#include "common.cuh"

enum { BLOCKS, LANES, OUTER, COLUMN, ROW };

// How the sum of one number is made: `block` products in one go, for BLOCKS and LANES.
struct Order {
    int kind, block;
};

// `start + sum`, or the sum alone; `sa` and `sb`: from one number of a row, or column, to the next.
__device__ inline float entry(Order order, int k, const float *a, int sa, const float *b, int sb,
                              bool add, float start) {
    if (order.kind == OUTER) {
        if (k == 0) return add ? start : 0.0f;
        const float first = a[0] * b[0];
        const float one = add ? first + start : first;
        return k == 1 ? one : a[sa] * b[sb] + one;
    }
    if (order.kind == COLUMN) {
        float sum = add ? fmaf(a[0], b[0], start) : a[0] * b[0];
        for (int at = 1; at < k; at++) sum = fmaf(a[at * sa], b[at * sb], sum);
        return sum;
    }
    if (order.kind == ROW) {
        float l[64] = {};
        const int wide = k / 64 * 64, whole = k / 8 * 8;
        for (int from = 0; from < wide; from += 64) {
#pragma unroll
            for (int j = 0; j < 64; j++)
                l[j] = fmaf(a[(from + j) * sa], b[(from + j) * sb], l[j]);
        }
#pragma unroll
        for (int step = 1; step < 8; step *= 2) {
#pragma unroll
            for (int v = 0; v < 8; v += 2 * step) {
#pragma unroll
                for (int j = 0; j < 8; j++) l[v * 8 + j] += l[(v + step) * 8 + j];
            }
        }
        for (int from = wide; from < whole; from += 8) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                l[j] = fmaf(a[(from + j) * sa], b[(from + j) * sb], l[j]);
        }
        float sum = l[0];
#pragma unroll
        for (int j = 1; j < 8; j++) sum += l[j];
        for (int at = whole; at < k; at++) sum = fmaf(a[at * sa], b[at * sb], sum);
        return add ? sum + start : sum;
    }
    float total = start;
    for (int from = 0; from < k; from += order.block) {
        const int to = from + order.block < k ? from + order.block : k;
        float sum = 0.0f;
        if (order.kind == LANES) {
            float l[8] = {};
            for (int at = from; at < to; at += 8) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const bool in = at + j < to;
                    l[j] = fmaf(in ? a[(at + j) * sa] : 0.0f, in ? b[(at + j) * sb] : 0.0f, l[j]);
                }
            }
            sum = fold(l);
        } else {
            for (int at = from; at < to; at++) sum = fmaf(a[at * sa], b[at * sb], sum);
        }
        total = add || from > 0 ? total + sum : sum;
    }
    return total;
}
