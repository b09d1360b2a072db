// Batch normalisation: ops/norm.rs. The sums of planes are those of sums.cu.
#include "common.cuh"

extern "C" __global__ void norm_mean(int rows, int channels, int run, const float *sums,
                                     float *means) {
    EACH(i, channels);
    double sum = -0.0;
    for (int row = 0; row < rows; row++) sum += (double)sums[row * channels + i];
    means[i] = (float)(sum / (double)(rows * run));
}

extern "C" __global__ void norm_batch(int channels, int count, const float *means,
                                      const float *variances, float *running_mean,
                                      float *running_variance, float *scales) {
    EACH(i, channels);
    const float v = variances[i], unbiased = v * (float)count / (float)(count - 1);
    running_mean[i] += 0.1f * (means[i] - running_mean[i]);
    running_variance[i] += 0.1f * (unbiased - running_variance[i]);
    scales[i] = 1.0f / sqrtf(v + 1e-5f);
}

extern "C" __global__ void norm_running(int channels, const float *variances, float *scales) {
    EACH(i, channels);
    scales[i] = 1.0f / sqrtf(variances[i] + 1e-5f);
}

extern "C" __global__ void norm_forward(int n, int channels, int run, int relu, int affine,
                                        const float *x, const float *means,
                                        const float *scales, const float *weight,
                                        const float *bias, float *out) {
    EACH(i, n);
    const int c = i / run % channels;
    const float factor = affine ? scales[c] * weight[c] : scales[c];
    const float y = (x[i] - means[c]) * factor + (affine ? bias[c] : 0.0f);
    out[i] = relu ? at_least(y, 0.0f) : y;
}

// `count`: numbers of a channel, or infinity where the statistics do not depend on them.
extern "C" __global__ void norm_back(int n, int channels, int run, float count, int affine,
                                     const float *x, const float *means, const float *scales,
                                     const float *weight, const float *by_weight,
                                     const float *by_bias, float *slope) {
    EACH(i, n);
    const int c = i / run % channels;
    const float level = by_bias[c] / count, tilt = by_weight[c] * scales[c] / count;
    const float factor = affine ? scales[c] * weight[c] : scales[c];
    slope[i] = factor * (slope[i] - level - (x[i] - means[c]) * tilt);
}
