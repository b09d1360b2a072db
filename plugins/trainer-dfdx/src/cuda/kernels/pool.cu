// Pooling: ops/pool.rs.
#include "common.cuh"

struct Pool {
    int height, width, kernel, stride, out_height, out_width;
};

// The first of the largest, row by row; NaN is above all.
KERNEL(max_pool, int n, Pool s, const float *x, float *out, int *from) {
    EACH(i, n);
    const int plane = i / s.out_width / s.out_height;
    const int y = i / s.out_width % s.out_height * s.stride, xx = i % s.out_width * s.stride;
    const int start = (plane * s.height + y) * s.width + xx;
    int best = start;
    float most = __int_as_float(0xff800000);
    for (int tap = 0; tap < s.kernel * s.kernel; tap++) {
        const int at = start + tap / s.kernel * s.width + tap % s.kernel;
        const float v = x[at];
        if (v > most || v != v) {
            most = v;
            best = at;
        }
    }
    out[i] = most;
    from[i] = best;
}

// The windows that hold row or column `at`: from the first to before the last.
__device__ inline int first_window(int at, const Pool &s) {
    return at < s.kernel ? 0 : (at - s.kernel) / s.stride + 1;
}
__device__ inline int last_window(int at, const Pool &s, int windows) {
    return at / s.stride < windows ? at / s.stride + 1 : windows;
}

KERNEL(max_pool_back, int n, Pool s, const float *slope, const int *from, float *back) {
    EACH(i, n);
    const int plane = i / s.width / s.height, y = i / s.width % s.height, x = i % s.width;
    const int oy_end = last_window(y, s, s.out_height), ox_end = last_window(x, s, s.out_width);
    float sum = 0.0f;
    for (int oy = first_window(y, s); oy < oy_end; oy++)
        for (int ox = first_window(x, s); ox < ox_end; ox++) {
            const int at = (plane * s.out_height + oy) * s.out_width + ox;
            if (from[at] == i) sum += slope[at];
        }
    back[i] = sum;
}

KERNEL(average_pool, int n, Pool s, const float *x, float *out) {
    EACH(i, n);
    const int plane = i / s.out_width / s.out_height;
    const int y = i / s.out_width % s.out_height * s.stride, xx = i % s.out_width * s.stride;
    x += (plane * s.height + y) * s.width + xx;
    float all = -0.0f;
    for (int row = 0; row < s.kernel; row++) {
        float sum = -0.0f;
        for (int at = 0; at < s.kernel; at++) sum += x[row * s.width + at];
        all += sum;
    }
    out[i] = all * (1.0f / (float)(s.kernel * s.kernel));
}

KERNEL(average_pool_back, int n, Pool s, const float *slope, float *back) {
    EACH(i, n);
    const int plane = i / s.width / s.height, y = i / s.width % s.height, x = i % s.width;
    const int oy_end = last_window(y, s, s.out_height), ox_end = last_window(x, s, s.out_width);
    const float share = 1.0f / (float)(s.kernel * s.kernel);
    float sum = 0.0f;
    for (int oy = first_window(y, s); oy < oy_end; oy++)
        for (int ox = first_window(x, s); ox < ox_end; ox++)
            sum += slope[(plane * s.out_height + oy) * s.out_width + ox] * share;
    back[i] = sum;
}
