// Texts as sequences: ops/words.rs. A convolution's product is `product_each` of linear.cu.
// `counts`: how many positions of each sample count.
#include "product.cuh"

KERNEL(embedding, int n, int width, const float *x, const float *table, float *out) {
    EACH(i, n);
    const int word = (int)x[i / width];
    out[i] = word > 0 ? table[(word - 1) * width + i % width] : 0.0f;
}

// The sums of the slopes of each word that is there, in the order of the batch. The places of word
// `at` are `places[starts[at]]` to before `places[starts[at + 1]]`; its row of the table is
// `rows[at]`.
KERNEL(embedding_back, int n, int width, const int *rows, const int *starts, const int *places,
       const float *slope, float *gradient) {
    EACH(i, n);
    const int at = i / width, c = i % width;
    float sum = 0.0f;
    for (int p = starts[at]; p < starts[at + 1]; p++) sum += slope[places[p] * width + c];
    gradient[rows[at] * width + c] = sum;
}

struct Text {
    int positions, channels, windows, kernel, out;
};

// Sample after sample, as the CPU adds to the gradient.
KERNEL(conv1d_back_weight, int rows, Text s, const int *counts, const Order *orders, const float *x,
       const float *slope, float *gradient) {
    const int taps = s.kernel * s.channels;
    EACH(i, s.out * taps);
    const int o = i / taps, tap = i % taps;
    float total = 0.0f;
    for (int row = 0; row < rows; row++)
        total = entry(orders[row], counts[row], slope + row * s.windows * s.out + o, s.out,
                      x + row * s.positions * s.channels + tap, s.channels, true, total);
    gradient[i] = total;
}

KERNEL(conv1d_back_bias, int rows, Text s, const int *counts, const float *slope, float *gradient) {
    EACH(i, s.out);
    float total = 0.0f;
    for (int row = 0; row < rows; row++) {
        float sum = 0.0f;
        for (int window = 0; window < counts[row]; window++)
            sum += slope[(row * s.windows + window) * s.out + i];
        total += sum;
    }
    gradient[i] = total;
}

// `by_window`: the slope of each number of each window, before windows are laid over each other.
KERNEL(conv1d_back_input, int n, Text s, const int *counts, const float *by_window, float *back) {
    EACH(i, n);
    const int c = i % s.channels, at = i / s.channels % s.positions;
    const int row = i / s.channels / s.positions, taps = s.kernel * s.channels;
    float sum = 0.0f;
    for (int window = at < s.kernel ? 0 : at - s.kernel + 1; window <= at; window++)
        if (window < counts[row])
            sum += by_window[(row * s.windows + window) * taps + (at - window) * s.channels + c];
    back[i] = sum;
}

// The first of the largest; NaN is above all.
KERNEL(max_over_time, int n, int positions, int channels, const int *counts, const float *x, float
       *out, int *from) {
    EACH(i, n);
    const int c = i % channels, row = i / channels, start = row * positions * channels + c;
    int best = start;
    float most = x[start];
    for (int at = 1; at < counts[row]; at++) {
        const float v = x[start + at * channels];
        if (v > most || v != v) {
            most = v;
            best = start + at * channels;
        }
    }
    out[i] = most;
    from[i] = best;
}

KERNEL(max_over_time_back, int n, int positions, int channels, const float *slope, const int *from,
       float *back) {
    EACH(i, n);
    const int at = i / channels / positions * channels + i % channels;
    back[i] = from[at] == i ? 0.0f + slope[at] : 0.0f;
}
