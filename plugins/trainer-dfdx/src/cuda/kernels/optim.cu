// Optimisers, and what is done to a gradient before: optim.rs.
#include "common.cuh"

KERNEL(sgd, int n, float rate, float decay, const float *gradient, float *w) {
    EACH(i, n);
    w[i] -= rate * (gradient[i] + decay * w[i]);
}

KERNEL(momentum, int n, float rate, float decay, float keep, int nesterov, const float *gradient,
       float *w, float *first) {
    EACH(i, n);
    const float g = gradient[i] + decay * w[i], m = keep * first[i] + g;
    first[i] = m;
    w[i] -= rate * (nesterov ? g + keep * m : m);
}

struct Rates {
    float rate, root, beta1, beta2, rest1, rest2, eps, decay;
};

KERNEL(adam, int n, Rates r, const float *gradient, float *w, float *first, float *second) {
    EACH(i, n);
    const float g = gradient[i] + r.decay * w[i];
    const float m = r.beta1 * first[i] + r.rest1 * g;
    const float v = r.beta2 * second[i] + r.rest2 * g * g;
    first[i] = m;
    second[i] = v;
    w[i] -= r.rate * m / (sqrtf(v) * r.root + r.eps);
}

// Clipping.
KERNEL(scale, int n, float factor, float *gradient) {
    EACH(i, n);
    gradient[i] *= factor;
}

// FedProx.
KERNEL(pull, int n, float factor, const float *w, const float *anchor, float *gradient) {
    EACH(i, n);
    gradient[i] = gradient[i] + factor * (w[i] - anchor[i]);
}
