// Two-dimensional convolution: ops/conv.rs.
#include "common.cuh"

struct Conv {
    int channels, height, width, out, kernel, stride, pad, out_height, out_width;
};

// A thread makes four channels of one place: each number that it reads serves four sums.
#define FOUR 4

// Each output is one chain of fma over its taps (`shifted_sums`).
extern "C" __global__ void conv_forward(Conv s, int rows, int relu, int biased, const float *x,
                                        const float *w, const float *bias, float *out) {
    const int plane = s.out_height * s.out_width, taps = s.channels * s.kernel * s.kernel;
    const int fours = (s.out + FOUR - 1) / FOUR;
    EACH(i, rows * fours * plane);
    const int ox = i % s.out_width, oy = i / s.out_width % s.out_height;
    const int first = i / plane % fours * FOUR, row = i / plane / fours;
    x += row * s.channels * s.height * s.width;
    const float *weights[FOUR];
#pragma unroll
    for (int j = 0; j < FOUR; j++) weights[j] = w + (first + j < s.out ? first + j : first) * taps;
    float sums[FOUR] = {};
    int tap = 0;
    for (int c = 0; c < s.channels; c++)
        for (int ky = 0; ky < s.kernel; ky++)
            for (int kx = 0; kx < s.kernel; kx++, tap++) {
                const int y = oy * s.stride + ky - s.pad, xx = ox * s.stride + kx - s.pad;
                const bool in = y >= 0 && y < s.height && xx >= 0 && xx < s.width;
                const float v = in ? x[(c * s.height + y) * s.width + xx] : 0.0f;
#pragma unroll
                for (int j = 0; j < FOUR; j++) sums[j] = fmaf(weights[j][tap], v, sums[j]);
            }
#pragma unroll
    for (int j = 0; j < FOUR; j++) {
        const int o = first + j;
        if (o >= s.out) return;
        const float sum = sums[j] + (biased ? bias[o] : 0.0f);
        out[(row * s.out + o) * plane + oy * s.out_width + ox] = relu ? at_least(sum, 0.0f) : sum;
    }
}

extern "C" __global__ void conv_back_input(Conv s, int rows, const float *slope, const float *w,
                                           float *back) {
    const int plane = s.height * s.width, fours = (s.channels + FOUR - 1) / FOUR;
    EACH(i, rows * fours * plane);
    const int x = i % s.width + s.pad, y = i / s.width % s.height + s.pad;
    const int first = i / plane % fours * FOUR, row = i / plane / fours;
    const int kernel = s.kernel * s.kernel;
    slope += row * s.out * s.out_height * s.out_width;
    int channels[FOUR];
#pragma unroll
    for (int j = 0; j < FOUR; j++)
        channels[j] = (first + j < s.channels ? first + j : first) * kernel;
    float sums[FOUR] = {};
    for (int o = 0; o < s.out; o++)
        for (int ky = y % s.stride; ky < s.kernel; ky += s.stride)
            for (int kx = x % s.stride; kx < s.kernel; kx += s.stride) {
                const int oy = (y - ky) / s.stride, ox = (x - kx) / s.stride;
                const bool in = y >= ky && oy < s.out_height && x >= kx && ox < s.out_width;
                const float g = in ? slope[(o * s.out_height + oy) * s.out_width + ox] : 0.0f;
                const float *tap = w + o * s.channels * kernel + ky * s.kernel + kx;
#pragma unroll
                for (int j = 0; j < FOUR; j++) sums[j] = fmaf(tap[channels[j]], g, sums[j]);
            }
#pragma unroll
    for (int j = 0; j < FOUR; j++) {
        if (first + j >= s.channels) return;
        back[(row * s.channels + first + j) * plane + (y - s.pad) * s.width + x - s.pad] = sums[j];
    }
}

// The gradient by a weight is summed in eight lanes for each group of samples (`shifted_dots`): a
// thread for each lane of four channels out. `ld`: from one row of the grid to the next; `group`:
// samples of a group.
extern "C" __global__ void conv_back_weight_lanes(Conv s, int rows, int ld, int group,
                                                  const float *x, const float *slope,
                                                  float *lanes) {
    const int taps = s.channels * s.kernel * s.kernel, fours = (s.out + FOUR - 1) / FOUR;
    EACH(i, (rows + group - 1) / group * fours * taps * 8);
    const int lane = i % 8, tap = i / 8 % taps, first = i / 8 / taps % fours * FOUR;
    const int which = i / 8 / taps / fours;
    const int c = tap / s.kernel / s.kernel, ky = tap / s.kernel % s.kernel, kx = tap % s.kernel;
    const int plane = s.out_height * s.out_width;
    int places[FOUR];
#pragma unroll
    for (int j = 0; j < FOUR; j++) places[j] = (first + j < s.out ? first + j : first) * plane;
    float sums[FOUR] = {};
    for (int row = which * group; row < (which + 1) * group && row < rows; row++) {
        const float *values = x + (row * s.channels + c) * s.height * s.width;
        const float *slopes = slope + row * s.out * plane;
        for (int at = lane; at < (s.out_height - 1) * ld + s.out_width; at += 8) {
            const int oy = at / ld, ox = at % ld;
            if (ox >= s.out_width) continue;
            const int y = oy * s.stride + ky - s.pad, xx = ox * s.stride + kx - s.pad;
            const bool in = y >= 0 && y < s.height && xx >= 0 && xx < s.width;
            const float v = in ? values[y * s.width + xx] : 0.0f;
            const float *place = slopes + oy * s.out_width + ox;
#pragma unroll
            for (int j = 0; j < FOUR; j++) sums[j] = fmaf(place[places[j]], v, sums[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < FOUR; j++) {
        if (first + j >= s.out) return;
        lanes[((which * s.out + first + j) * taps + tap) * 8 + lane] = sums[j];
    }
}

extern "C" __global__ void conv_back_weight(int weights, int groups, const float *lanes,
                                            float *gradient) {
    EACH(i, weights);
    float sum = 0.0f;
    for (int g = 0; g < groups; g++) sum += fold(lanes + (g * weights + i) * 8);
    gradient[i] = sum;
}
