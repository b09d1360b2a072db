// What all kernels share.
//
// A kernel gives the bits of the CPU's function in the file of the same name in src/ops. Each sum
// has one order, and one thread makes it; nothing is atomic. `fmaf` rounds once, a product and a
// sum beside it round twice (`--fmad=false`). Only + - * / sqrt and fma are used, which IEEE 754
// defines to the last bit.

// The arguments of a kernel for one member of a launch, each a multiple of 8 bytes (driver.rs).
template <class... T> struct Arguments {};
template <class Head, class... Tail> struct alignas(8) Arguments<Head, Tail...> {
    Head head;
    Arguments<Tail...> tail;
};
template <class Head> struct alignas(8) Arguments<Head> {
    Head head;
};

// A launch works for up to MEMBERS models at once; the blocks with `blockIdx.z` m for member m.
#define MEMBERS 8
template <class... T> struct Members {
    Arguments<T...> each[MEMBERS];
};
template <class... T> __device__ Members<T...> members(void (*)(T...));

template <class... All, class Head, class... Tail, class... T>
__device__ inline void call(void (*kernel)(All...), const Arguments<Head, Tail...> &rest,
                            const T &...given) {
    if constexpr (sizeof...(Tail) == 0)
        kernel(given..., rest.head);
    else
        call(kernel, rest.tail, given..., rest.head);
}

// Declares a kernel by its name and its arguments for one member.
#define KERNEL(name, ...)                                                                       \
    __device__ inline void name##_of_one(__VA_ARGS__);                                          \
    extern "C" __global__ void name(const __grid_constant__ decltype(members(name##_of_one)) all) { \
        call(name##_of_one, all.each[blockIdx.z]);                                              \
    }                                                                                           \
    __device__ inline void name##_of_one(__VA_ARGS__)

// A thread for each `i` below `n`.
#define EACH(i, n)                                        \
    const int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= (n)) return

__device__ inline float at_least(float v, float floor) { return v < floor ? floor : v; }

// The sum of eight lanes, as a processor folds a vector of eight.
__device__ inline float fold(const float *l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}
