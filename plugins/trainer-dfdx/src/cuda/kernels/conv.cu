// Two-dimensional convolution: ops/conv.rs.
#include "common.cuh"

struct Conv {
    int channels, height, width, out, kernel, stride, pad, out_height, out_width;
};

// Each output is one chain of fma over its taps (`shifted_sums`).
extern "C" __global__ void conv_forward(Conv s, int rows, int relu, int biased, const float *x,
                                        const float *w, const float *bias, float *out) {
    const int plane = s.out_height * s.out_width, taps = s.channels * s.kernel * s.kernel;
    EACH(i, rows * s.out * plane);
    const int ox = i % s.out_width, oy = i / s.out_width % s.out_height;
    const int o = i / plane % s.out, row = i / plane / s.out;
    x += row * s.channels * s.height * s.width;
    w += o * taps;
    float sum = 0.0f;
    for (int c = 0; c < s.channels; c++)
        for (int ky = 0; ky < s.kernel; ky++)
            for (int kx = 0; kx < s.kernel; kx++) {
                const int y = oy * s.stride + ky - s.pad, xx = ox * s.stride + kx - s.pad;
                const bool in = y >= 0 && y < s.height && xx >= 0 && xx < s.width;
                sum = fmaf(*w++, in ? x[(c * s.height + y) * s.width + xx] : 0.0f, sum);
            }
    sum += biased ? bias[o] : 0.0f;
    out[i] = relu ? at_least(sum, 0.0f) : sum;
}

extern "C" __global__ void conv_back_input(Conv s, int rows, const float *slope, const float *w,
                                           float *back) {
    EACH(i, rows * s.channels * s.height * s.width);
    const int x = i % s.width + s.pad, y = i / s.width % s.height + s.pad;
    const int c = i / s.width / s.height % s.channels;
    const int row = i / s.width / s.height / s.channels;
    slope += row * s.out * s.out_height * s.out_width;
    float sum = 0.0f;
    for (int o = 0; o < s.out; o++)
        for (int ky = y % s.stride; ky < s.kernel; ky += s.stride)
            for (int kx = x % s.stride; kx < s.kernel; kx += s.stride) {
                const int oy = (y - ky) / s.stride, ox = (x - kx) / s.stride;
                const bool in = y >= ky && oy < s.out_height && x >= kx && ox < s.out_width;
                const float g =
                    in ? slope[(o * s.out_height + oy) * s.out_width + ox] : 0.0f;
                const int tap = ((o * s.channels + c) * s.kernel + ky) * s.kernel + kx;
                sum = fmaf(w[tap], g, sum);
            }
    back[i] = sum;
}

// The gradient by a weight is summed in eight lanes for each group of samples (`shifted_dots`): a
// thread for each lane. `ld`: from one row of the grid to the next; `group`: samples of a group.
extern "C" __global__ void conv_back_weight_lanes(Conv s, int rows, int ld, int group,
                                                  const float *x, const float *slope,
                                                  float *lanes) {
    const int taps = s.channels * s.kernel * s.kernel;
    EACH(i, (rows + group - 1) / group * s.out * taps * 8);
    const int lane = i % 8, tap = i / 8 % taps, o = i / 8 / taps % s.out;
    const int first = i / 8 / taps / s.out * group;
    const int c = tap / s.kernel / s.kernel, ky = tap / s.kernel % s.kernel, kx = tap % s.kernel;
    float sum = 0.0f;
    for (int row = first; row < first + group && row < rows; row++)
        for (int at = lane; at < (s.out_height - 1) * ld + s.out_width; at += 8) {
            const int oy = at / ld, ox = at % ld;
            if (ox >= s.out_width) continue;
            const int y = oy * s.stride + ky - s.pad, xx = ox * s.stride + kx - s.pad;
            const bool in = y >= 0 && y < s.height && xx >= 0 && xx < s.width;
            const float v =
                in ? x[((row * s.channels + c) * s.height + y) * s.width + xx] : 0.0f;
            const int place = ((row * s.out + o) * s.out_height + oy) * s.out_width + ox;
            sum = fmaf(slope[place], v, sum);
        }
    lanes[i] = sum;
}

extern "C" __global__ void conv_back_weight(int weights, int groups, const float *lanes,
                                            float *gradient) {
    EACH(i, weights);
    float sum = 0.0f;
    for (int g = 0; g < groups; g++) sum += fold(lanes + (g * weights + i) * 8);
    gradient[i] = sum;
}
