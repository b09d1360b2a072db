// Fully connected layers: ops/linear.rs.
#include "product.cuh"

struct Steps {
    int row, column;
};

// `out = relu?(bias? + a b)`, `m x k` times `k x n`, in the order BLOCKS: blocks of 16x16 numbers.
#define TILE 16
KERNEL(product_blocks, int m, int k, int n, int block, Steps sa, Steps sb, int relu, int biased,
       const float *a, const float *b, const float *bias, float *out) {
    __shared__ float left[TILE][TILE], right[TILE][TILE + 1];
    const int tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    const int column = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
    // another member of the launch is larger
    if (blockIdx.x * TILE >= n || blockIdx.y * TILE >= m) return;
    float total = biased && column < n ? bias[column] : 0.0f;
    for (int from = 0; from < k; from += block) {
        const int to = from + block < k ? from + block : k;
        float sum = 0.0f;
        for (int at = from; at < to; at += TILE) {
            const bool in_left = row < m && at + tx < to, in_right = column < n && at + ty < to;
            left[ty][tx] = in_left ? a[row * sa.row + (at + tx) * sa.column] : 0.0f;
            right[ty][tx] = in_right ? b[(at + ty) * sb.row + column * sb.column] : 0.0f;
            __syncthreads();
            for (int j = 0; j < TILE && at + j < to; j++)
                sum = fmaf(left[ty][j], right[j][tx], sum);
            __syncthreads();
        }
        total = biased || from > 0 ? total + sum : sum;
    }
    if (row < m && column < n) out[row * n + column] = relu ? at_least(total, 0.0f) : total;
}

// The same for large products: blocks of 64x64 numbers, sixteen of them for each thread.
#define WIDE 64
#define EVERY 16
KERNEL(product_wide, int m, int k, int n, int block, Steps sa, Steps sb, int relu, int biased, const
       float *a, const float *b, const float *bias, float *out) {
    __shared__ float left[TILE][WIDE + 1], right[TILE][WIDE + 1];
    const int tx = threadIdx.x % EVERY, ty = threadIdx.x / EVERY;
    const int column = blockIdx.x * WIDE, row = blockIdx.y * WIDE;
    if (column >= n || row >= m) return;
    float totals[4][4], sums[4][4];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int at = column + tx + i % 4 * EVERY;
        totals[i / 4][i % 4] = biased && at < n ? bias[at] : 0.0f;
    }
    for (int from = 0; from < k; from += block) {
        const int to = from + block < k ? from + block : k;
#pragma unroll
        for (int i = 0; i < 16; i++) sums[i / 4][i % 4] = 0.0f;
        for (int at = from; at < to; at += TILE) {
            // neighbours read what stands side by side
            for (int e = threadIdx.x; e < TILE * WIDE; e += blockDim.x) {
                const int step = sa.column == 1 ? e % TILE : e / WIDE;
                const int place = sa.column == 1 ? e / TILE : e % WIDE;
                const bool in = row + place < m && at + step < to;
                left[step][place] = in ? a[(row + place) * sa.row + (at + step) * sa.column] : 0.0f;
            }
            for (int e = threadIdx.x; e < TILE * WIDE; e += blockDim.x) {
                const int step = sb.row == 1 ? e % TILE : e / WIDE;
                const int place = sb.row == 1 ? e / TILE : e % WIDE;
                const bool in = column + place < n && at + step < to;
                right[step][place] =
                    in ? b[(at + step) * sb.row + (column + place) * sb.column] : 0.0f;
            }
            __syncthreads();
            for (int j = 0; j < TILE && at + j < to; j++) {
#pragma unroll
                for (int i = 0; i < 16; i++)
                    sums[i / 4][i % 4] = fmaf(left[j][ty + i / 4 * EVERY],
                                              right[j][tx + i % 4 * EVERY], sums[i / 4][i % 4]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &total = totals[i / 4][i % 4];
            total = biased || from > 0 ? total + sums[i / 4][i % 4] : sums[i / 4][i % 4];
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int y = row + ty + i / 4 * EVERY, x = column + tx + i % 4 * EVERY;
        const float total = totals[i / 4][i % 4];
        if (y < m && x < n) out[y * n + x] = relu ? at_least(total, 0.0f) : total;
    }
}

// The same in any order, a thread for each number; `items` products of one `b`, whose `a` are
// `a_ld` apart. Of a text only the first `counts` rows are made; those behind are 0, or stay as
// they are.
struct Texts {
    int items, a_ld, counted, zeros;
};

KERNEL(product_each, int m, int k, int n, Order order, Steps sa, Steps sb, int relu, int biased,
       Texts texts, const int *counts, const Order *orders, const float *a, const float *b, const
       float *bias, float *out) {
    EACH(i, texts.items * m * n);
    const int column = i % n, row = i / n % m, item = i / n / m;
    if (texts.counted) {
        if (row >= counts[item]) {
            if (texts.zeros) out[i] = 0.0f;
            return;
        }
        order = orders[item];
    }
    const float start = biased ? bias[column] : 0.0f;
    const float sum = entry(order, k, a + item * texts.a_ld + row * sa.row, sa.column,
                            b + column * sb.column, sb.row, biased, start);
    out[i] = relu ? at_least(sum, 0.0f) : sum;
}
