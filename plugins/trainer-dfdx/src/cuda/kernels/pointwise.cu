// Operations on single numbers, and those that only move numbers: ops/pointwise.rs.
#include "common.cuh"

// exp, tanh and the sigmoid are those of curves.rs.
__device__ inline float exponential(float x) {
    x = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
    const float magic = 12582912.0f;
    const float k = fmaf(x, 1.44269502f, magic) - magic;
    const float r = fmaf(k, -1.42860677e-6f, fmaf(k, -0.693145752f, x));
    float p = 1.98756912e-4f;
    p = fmaf(p, r, 1.39819994e-3f);
    p = fmaf(p, r, 8.33345205e-3f);
    p = fmaf(p, r, 4.16657962e-2f);
    p = fmaf(p, r, 1.66666657e-1f);
    p = fmaf(p, r, 5.0e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    // two factors: 2^k itself may be too large or too small for a number
    const int whole = k == k ? (int)k : 0, half = whole / 2;
    return p * __int_as_float((half + 127) << 23) * __int_as_float((whole - half + 127) << 23);
}

__device__ inline float tangent(float x) {
    const float size = x < 0.0f ? -x : x;
    if (size < 0.625f) {
        const float z = x * x;
        float p = -5.70498873e-3f;
        p = fmaf(p, z, 2.06390880e-2f);
        p = fmaf(p, z, -5.37397154e-2f);
        p = fmaf(p, z, 1.33314416e-1f);
        p = fmaf(p, z, -3.33332807e-1f);
        return fmaf(p * z, x, x);
    }
    const float y = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
    return x < 0.0f ? -y : y;
}

// 0 relu, 1 leaky relu with slope `a`, 2 tanh, 3 sigmoid
KERNEL(activate, int n, int what, float a, const float *x, float *out) {
    EACH(i, n);
    const float v = x[i];
    out[i] = what == 0   ? at_least(v, 0.0f)
             : what == 1 ? v * (v > 0.0f ? 1.0f : a)
             : what == 2 ? tangent(v)
                         : 1.0f / (1.0f + exponential(-v));
}

KERNEL(activate_back, int n, int what, float a, const float *out, float *slope) {
    EACH(i, n);
    const float y = out[i], g = slope[i];
    slope[i] = what == 0   ? (y > 0.0f ? g : 0.0f)
               : what == 1 ? g * (y > 0.0f ? 1.0f : a)
               : what == 2 ? g * (1.0f - y * y)
                           : g * (y * (1.0f - y));
}

KERNEL(add, int n, int relu, const float *a, const float *b, float *out) {
    EACH(i, n);
    const float sum = a[i] + b[i];
    out[i] = relu ? at_least(sum, 0.0f) : sum;
}

// `values += more`
KERNEL(accumulate, int n, const float *more, float *values) {
    EACH(i, n);
    values[i] += more[i];
}

// The slope of `add`, which both addends get; `copy`: the second's.
KERNEL(add_back, int n, int relu, const float *out, float *slope, float *copy) {
    EACH(i, n);
    const float g = slope[i], kept = relu ? (out[i] > 0.0f ? g : 0.0f) : g;
    slope[i] = kept;
    copy[i] = kept;
}

// A dropout's mask.
KERNEL(times, int n, const float *factors, const float *values, float *out) {
    EACH(i, n);
    out[i] = values[i] * factors[i];
}

// Each number of a sample times its own weight; with `shifts`, plus its own bias.
KERNEL(scale_columns, int n, int width, int shifts, const float *x, const float *weight,
       const float *bias, float *out) {
    EACH(i, n);
    const int c = i % width;
    const float y = x[i] * weight[c];
    out[i] = shifts ? y + bias[c] : y;
}

// Rows of `width` numbers, from one to the next `from_ld` and `to_ld` numbers.
KERNEL(copy_rows, int n, int width, int from_ld, int to_ld, const float *from, float *to) {
    EACH(i, n);
    to[i / width * to_ld + i % width] = from[i / width * from_ld + i % width];
}

KERNEL(upsample, int n, int height, int width, int factor, const float *x, float *out) {
    EACH(i, n);
    const int out_width = width * factor, out_height = height * factor;
    const int plane = i / out_width / out_height;
    const int y = i / out_width % out_height / factor, xx = i % out_width / factor;
    out[i] = x[(plane * height + y) * width + xx];
}

KERNEL(upsample_back, int n, int height, int width, int factor, const float *slope, float *back) {
    EACH(i, n);
    const int out_width = width * factor;
    slope += i / width * factor * out_width + i % width * factor;
    float sum = 0.0f;
    for (int y = 0; y < factor; y++)
        for (int x = 0; x < factor; x++) sum += slope[y * out_width + x];
    back[i] = sum;
}

KERNEL(spread, int n, int height, int width, int stride, const float *x, float *out) {
    EACH(i, n);
    const int out_width = (width - 1) * stride + 1, out_height = (height - 1) * stride + 1;
    const int plane = i / out_width / out_height;
    const int y = i / out_width % out_height, xx = i % out_width;
    const bool pixel = y % stride == 0 && xx % stride == 0;
    out[i] = pixel ? x[(plane * height + y / stride) * width + xx / stride] : 0.0f;
}

KERNEL(spread_back, int n, int height, int width, int stride, const float *slope, float *back) {
    EACH(i, n);
    const int out_width = (width - 1) * stride + 1, out_height = (height - 1) * stride + 1;
    const int plane = i / width / height, y = i / width % height, x = i % width;
    back[i] = slope[(plane * out_height + y * stride) * out_width + x * stride];
}

// A batch of a data set: the rows `ids` of `all`.
KERNEL(pick_rows, int n, int width, const int *ids, const float *all, float *out) {
    EACH(i, n);
    out[i] = all[ids[i / width] * width + i % width];
}
