// Two-dimensional convolution: ops/conv.rs.
#include "common.cuh"

struct Conv {
    int channels, height, width, out, kernel, stride, pad, out_height, out_width;
};

// A thread makes four channels of one place: each number that it reads serves four sums.
#define FOUR 4

// Each output is one chain of fma over its taps (`shifted_sums`).
KERNEL(conv_forward, Conv s, int rows, int relu, int biased, const float *x, const float *w,
       const float *bias, float *out) {
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

KERNEL(conv_back_input, Conv s, int rows, const float *slope, const float *w, float *back) {
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
        for (int ky = y % s.stride, oy = y / s.stride; ky < s.kernel; ky += s.stride, oy--)
            for (int kx = x % s.stride, ox = x / s.stride; kx < s.kernel; kx += s.stride, ox--) {
                const bool in = oy >= 0 && oy < s.out_height && ox >= 0 && ox < s.out_width;
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

// The same for large batches. A block makes EIGHT channels of PLACES * 256 places, and keeps their
// weights in shared memory, WEIGHTS of each channel at once. `blockIdx.y` is the first channel.
#define EIGHT 8
#define PLACES 2
#define WEIGHTS 512

// Copies `n` weights of the EIGHT channels: `from(channel, at)` is where weight `at` is.
template <class From>
__device__ inline void weights_of(float (*tile)[EIGHT], int n, From from) {
    __syncthreads();
    for (int e = threadIdx.x; e < n * EIGHT; e += blockDim.x) tile[e % n][e / n] = from(e / n, e % n);
    __syncthreads();
}

KERNEL(conv_forward_wide, Conv s, int rows, int relu, int biased, const float *x, const float *w,
       const float *bias, float *out) {
    __shared__ alignas(16) float tile[WEIGHTS][EIGHT];
    const int plane = s.out_height * s.out_width, area = s.kernel * s.kernel;
    const int first = blockIdx.y * EIGHT, start = blockIdx.x * PLACES * blockDim.x;
    if (first >= s.out || start >= rows * plane) return;
    int ys[PLACES], xs[PLACES];
    const float *samples[PLACES];
#pragma unroll
    for (int p = 0; p < PLACES; p++) {
        const int i = start + p * blockDim.x + threadIdx.x, at = i < rows * plane ? i : 0;
        ys[p] = at / s.out_width % s.out_height * s.stride - s.pad;
        xs[p] = at % s.out_width * s.stride - s.pad;
        samples[p] = x + at / plane * s.channels * s.height * s.width;
    }
    float sums[EIGHT][PLACES] = {};
    const int step = WEIGHTS / area;
    for (int from = 0; from < s.channels; from += step) {
        const int to = from + step < s.channels ? from + step : s.channels;
        weights_of(tile, (to - from) * area, [&](int j, int at) {
            return w[((first + j < s.out ? first + j : first) * s.channels + from) * area + at];
        });
        int tap = 0;
        for (int c = from; c < to; c++)
            for (int ky = 0; ky < s.kernel; ky++)
                for (int kx = 0; kx < s.kernel; kx++, tap++) {
                    float v[PLACES];
#pragma unroll
                    for (int p = 0; p < PLACES; p++) {
                        const int y = ys[p] + ky, xx = xs[p] + kx;
                        const bool in = y >= 0 && y < s.height && xx >= 0 && xx < s.width;
                        v[p] = in ? samples[p][(c * s.height + y) * s.width + xx] : 0.0f;
                    }
#pragma unroll
                    for (int j = 0; j < EIGHT; j++)
#pragma unroll
                        for (int p = 0; p < PLACES; p++)
                            sums[j][p] = fmaf(tile[tap][j], v[p], sums[j][p]);
                }
    }
#pragma unroll
    for (int p = 0; p < PLACES; p++) {
        const int i = start + p * blockDim.x + threadIdx.x;
#pragma unroll
        for (int j = 0; j < EIGHT; j++) {
            const int o = first + j;
            if (i >= rows * plane || o >= s.out) break;
            const float sum = sums[j][p] + (biased ? bias[o] : 0.0f);
            out[(i / plane * s.out + o) * plane + i % plane] = relu ? at_least(sum, 0.0f) : sum;
        }
    }
}

KERNEL(conv_back_input_wide, Conv s, int rows, const float *slope, const float *w, float *back) {
    __shared__ alignas(16) float tile[WEIGHTS][EIGHT];
    const int plane = s.height * s.width, area = s.kernel * s.kernel;
    const int first = blockIdx.y * EIGHT, start = blockIdx.x * PLACES * blockDim.x;
    if (first >= s.channels || start >= rows * plane) return;
    float sums[EIGHT][PLACES] = {};
    const int step = WEIGHTS / area;
    for (int from = 0; from < s.out; from += step) {
        const int to = from + step < s.out ? from + step : s.out;
        weights_of(tile, (to - from) * area, [&](int j, int at) {
            const int c = first + j < s.channels ? first + j : first;
            return w[((from + at / area) * s.channels + c) * area + at % area];
        });
#pragma unroll
        for (int p = 0; p < PLACES; p++) {
            const int i = start + p * blockDim.x + threadIdx.x, place = i < rows * plane ? i : 0;
            const int x = place % s.width + s.pad, y = place / s.width % s.height + s.pad;
            const float *slopes = slope + place / plane * s.out * s.out_height * s.out_width;
            const int low_y = y % s.stride, high_y = y / s.stride;
            const int low_x = x % s.stride, high_x = x / s.stride;
            for (int o = from; o < to; o++)
                for (int ky = low_y, oy = high_y; ky < s.kernel; ky += s.stride, oy--)
                    for (int kx = low_x, ox = high_x; kx < s.kernel; kx += s.stride, ox--) {
                        const bool in =
                            oy >= 0 && oy < s.out_height && ox >= 0 && ox < s.out_width;
                        const float g =
                            in ? slopes[(o * s.out_height + oy) * s.out_width + ox] : 0.0f;
                        const float *tap = tile[(o - from) * area + ky * s.kernel + kx];
#pragma unroll
                        for (int j = 0; j < EIGHT; j++) sums[j][p] = fmaf(tap[j], g, sums[j][p]);
                    }
        }
    }
#pragma unroll
    for (int p = 0; p < PLACES; p++) {
        const int i = start + p * blockDim.x + threadIdx.x;
#pragma unroll
        for (int j = 0; j < EIGHT; j++) {
            if (i >= rows * plane || first + j >= s.channels) break;
            back[(i / plane * s.channels + first + j) * plane + i % plane] = sums[j][p];
        }
    }
}

// The gradient by a weight is summed in eight lanes for each group of samples (`shifted_dots`): a
// thread for each lane of four channels out. `ld`: from one row of the grid to the next; `group`:
// samples of a group.
#define AHEAD 4
KERNEL(conv_back_weight_lanes, Conv s, int rows, int ld, int group, const float *x,
       const float *slope, float *lanes) {
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
        // AHEAD places are read before the first is added: the memory answers them together
        int oy = lane / ld, ox = lane % ld;
        while (oy < s.out_height) {
            float v[AHEAD], g[AHEAD][FOUR];
            bool adds[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int y = oy * s.stride + ky - s.pad, xx = ox * s.stride + kx - s.pad;
                adds[k] = oy < s.out_height && ox < s.out_width;
                const bool in = adds[k] && y >= 0 && y < s.height && xx >= 0 && xx < s.width;
                v[k] = in ? values[y * s.width + xx] : 0.0f;
                const int place = oy * s.out_width + ox;
#pragma unroll
                for (int j = 0; j < FOUR; j++) g[k][j] = adds[k] ? slopes[place + places[j]] : 0.0f;
                for (ox += 8; ox >= ld; ox -= ld) oy++;
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
#pragma unroll
                for (int j = 0; j < FOUR; j++)
                    if (adds[k]) sums[j] = fmaf(g[k][j], v[k], sums[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < FOUR; j++) {
        if (first + j >= s.out) return;
        lanes[((which * s.out + first + j) * taps + tap) * 8 + lane] = sums[j];
    }
}

// The sums of the lanes; then, for `biases` channels, those of `sums`, the sums of planes, over
// `rows` samples.
KERNEL(conv_back_weight, int weights, int groups, int biases, int rows, const float *lanes,
       const float *sums, float *gradient, float *bias_gradient) {
    EACH(i, weights + biases);
    float sum = 0.0f;
    if (i < weights) {
        for (int g = 0; g < groups; g++) sum += fold(lanes + (g * weights + i) * 8);
        gradient[i] = sum;
        return;
    }
    for (int row = 0; row < rows; row++) sum += sums[row * biases + i - weights];
    bias_gradient[i - weights] = sum;
}
