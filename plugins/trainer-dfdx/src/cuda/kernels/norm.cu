// Batch normalisation: ops/norm.rs. The sums of planes are those of sums.cu.
#include "strands.cuh"

// The mean over the batch of each channel's sums.
__device__ inline float mean_of(int rows, int channels, int run, int channel, const float *sums) {
    double sum = -0.0;
    for (int row = 0; row < rows; row++) sum += (double)sums[row * channels + channel];
    return (float)(sum / (double)(rows * run));
}

KERNEL(norm_mean, int rows, int channels, int run, const float *sums, float *means) {
    EACH(i, channels);
    means[i] = mean_of(rows, channels, run, i, sums);
}

// `sums`: of the squared distances to the mean.
KERNEL(norm_batch, int rows, int channels, int run, const float *sums, const float *means,
       float *running_mean, float *running_variance, float *scales) {
    EACH(i, channels);
    const int count = rows * run;
    const float v = mean_of(rows, channels, run, i, sums);
    const float unbiased = v * (float)count / (float)(count - 1);
    running_mean[i] += 0.1f * (means[i] - running_mean[i]);
    running_variance[i] += 0.1f * (unbiased - running_variance[i]);
    scales[i] = 1.0f / sqrtf(v + 1e-5f);
}

KERNEL(norm_running, int channels, const float *running_mean, const float *running_variance,
       float *means, float *scales) {
    EACH(i, channels);
    means[i] = running_mean[i];
    scales[i] = 1.0f / sqrtf(running_variance[i] + 1e-5f);
}

KERNEL(norm_forward, int n, int channels, int run, int relu, int affine, const float *x,
       const float *means, const float *scales, const float *weight, const float *bias,
       float *out) {
    EACH(i, n);
    const int c = i / run % channels;
    const float factor = affine ? scales[c] * weight[c] : scales[c];
    const float y = (x[i] - means[c]) * factor + (affine ? bias[c] : 0.0f);
    out[i] = relu ? at_least(y, 0.0f) : y;
}

// Of each plane the sum of its slopes, then, `planes` further on, that of the slopes times the
// distance of `x` to the mean. With `relu`, slopes where `out` is not above 0 become 0 in place.
KERNEL(norm_back_sums, int planes, int channels, int run, int relu, const float *x,
       const float *means, const float *out, float *slope, float *sums) {
    __shared__ float levels[PLANES][STRANDS + 1], tilts[PLANES][STRANDS + 1];
    const Plane p(planes, run, planes * run);
    x += p.start;
    out += p.start;
    slope += p.start;
    const float mean = p.length > 0 ? means[p.at % channels] : 0.0f;
    const auto one = [&](int at, float &level, float &tilt) {
        float g = slope[at];
        if (relu) slope[at] = g = out[at] > 0.0f ? g : 0.0f;
        level += g;
        tilt += g * (x[at] - mean);
    };
    float level = 0.0f, tilt = 0.0f, level_rest = -0.0f, tilt_rest = -0.0f;
    for (int at = p.strand; at < p.whole; at += STRANDS) one(at, level, tilt);
    levels[p.slot][p.strand] = level;
    tilts[p.slot][p.strand] = tilt;
    __syncthreads();
    if (p.strand > 0 || p.length == 0) return;
    for (int at = p.whole; at < p.length; at++) one(at, level_rest, tilt_rest);
    sums[p.at] = together(levels[p.slot], level_rest);
    sums[planes + p.at] = together(tilts[p.slot], tilt_rest);
}

// The sums of `norm_back_sums` over the batch; with `learns`, also into the gradient.
KERNEL(norm_back_channels, int rows, int channels, int learns, const float *sums,
       const float *scales, float *by_weight, float *by_bias, float *weight_gradient,
       float *bias_gradient) {
    EACH(i, channels);
    float level = 0.0f, tilt = 0.0f;
    for (int row = 0; row < rows; row++) level += sums[row * channels + i];
    for (int row = rows; row < 2 * rows; row++) tilt += sums[row * channels + i];
    tilt *= scales[i];
    by_weight[i] = tilt;
    by_bias[i] = level;
    if (learns) {
        weight_gradient[i] = tilt;
        bias_gradient[i] = level;
    }
}

// `count`: numbers of a channel, or infinity where the statistics do not depend on them.
KERNEL(norm_back, int n, int channels, int run, float count, int affine, const float *x,
       const float *means, const float *scales, const float *weight, const float *by_weight,
       const float *by_bias, float *slope) {
    EACH(i, n);
    const int c = i / run % channels;
    const float level = by_bias[c] / count, tilt = by_weight[c] * scales[c] / count;
    const float factor = affine ? scales[c] * weight[c] : scales[c];
    slope[i] = factor * (slope[i] - level - (x[i] - means[c]) * tilt);
}
