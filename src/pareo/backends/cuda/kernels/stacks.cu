// Stacks of matrices (stacks, rows, columns): blockIdx.y is the stack. NAME takes any arrays;
// NAME_packed those aligned to 16 bytes whose columns are whole packs, and counts in packs.

#include "common.cuh"

#define SLOPE(name, value, slope) \
    struct name { \
        static __device__ __forceinline__ Real of(Real a) { return value; } \
        static __device__ __forceinline__ Real back(Real g, Real y) { return slope; } \
    };

SLOPE(None, a, g)
SLOPE(Relu, a < Real(0) ? Real(0) : a, y <= Real(0) ? Real(0) : g)
SLOPE(Sigmoid, Real(1) / (Real(1) + exp(-a)), g * y * (Real(1) - y))
SLOPE(Tanh, tanh(a), g * (Real(1) - y * y))

// out = f(out + b), where b has one element for each column of each stack.
template <typename F> __device__ __forceinline__ void biased_rows(Real* out, const Real* b, int count, int columns)
{
    Real* own = out + (Size)blockIdx.y * count;
    const Real* bias = b + (Size)blockIdx.y * columns;
    for (int i = first_position(); i < count; i += all_threads())
        own[i] = F::of(own[i] + bias[i % columns]);
}

template <typename F> __device__ __forceinline__ void biased_packs(Real* out, const Real* b, int count, int columns)
{
    Pack* own = reinterpret_cast<Pack*>(out) + (Size)blockIdx.y * count;
    const Pack* bias = reinterpret_cast<const Pack*>(b) + (Size)blockIdx.y * columns;
    for (int i = first_position(); i < count; i += all_threads()) {
        Pack values = own[i];
        const Pack added = bias[i % columns];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            values.at[k] = F::of(values.at[k] + added.at[k]);
        own[i] = values;
    }
}

#define BIASED(name, F) \
    extern "C" __global__ void name(Real* out, const Real* b, Size count, Size columns) \
    { \
        biased_rows<F>(out, b, (int)count, (int)columns); \
    } \
    extern "C" __global__ void name##_packed(Real* out, const Real* b, Size count, Size columns) \
    { \
        biased_packs<F>(out, b, (int)count, (int)columns); \
    }

BIASED(biased, None)
BIASED(biased_relu, Relu)
BIASED(biased_sigmoid, Sigmoid)
BIASED(biased_tanh, Tanh)

// d = g * slope(y), and the sums of d's columns: a block has 32 columns of one stack, 8 rows at a
// time.
constexpr int COLUMNS = 32, LINES = 8;

template <typename F>
__device__ __forceinline__ void back(Real* d, Real* sums, const Real* g, const Real* y, int rows, int columns)
{
    __shared__ Real parts[LINES][COLUMNS];
    const int column = blockIdx.x * COLUMNS + threadIdx.x;
    const Size start = (Size)blockIdx.y * rows * columns;
    Real total = 0;
    if (column < columns)
#pragma unroll 4
        for (int row = threadIdx.y; row < rows; row += LINES) {
            const Size at = start + (Size)row * columns + column;
            const Real error = F::back(g[at], y[at]);
            d[at] = error;
            total += error;
        }
    parts[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        for (int line = 1; line < LINES; ++line)
            total += parts[line][threadIdx.x];
        sums[(Size)blockIdx.y * columns + column] = total;
    }
}

#define BACK(name, F) \
    extern "C" __global__ void name##_back( \
        Real* d, Real* sums, const Real* g, const Real* y, Size rows, Size columns) \
    { \
        back<F>(d, sums, g, y, (int)rows, (int)columns); \
    }

BACK(relu, Relu)
BACK(sigmoid, Sigmoid)
BACK(tanh, Tanh)

// Stochastic gradient descent as in update.cu, with rate, momentum and decay for each stack.
__device__ __forceinline__ Real moved(Real& parameter, Real gradient, Real velocity, Real r, Real m, Real d)
{
    const Real speed = m * velocity + gradient + d * parameter;
    parameter -= r * speed;
    return speed;
}

#define SGD \
    Real *new_parameter, Real *new_velocity, const Real *parameter, const Real *gradient, \
        const Real *velocity, const Real *rate, const Real *momentum, const Real *decay, Size count

extern "C" __global__ void sgd(SGD)
{
    const Real r = rate[blockIdx.y], m = momentum[blockIdx.y], d = decay[blockIdx.y];
    const Size start = blockIdx.y * count;
    for (Size i = start + first_position(); i < start + count; i += all_threads()) {
        Real value = parameter[i];
        new_velocity[i] = moved(value, gradient[i], velocity[i], r, m, d);
        new_parameter[i] = value;
    }
}

extern "C" __global__ void sgd_packed(SGD)
{
    const Real r = rate[blockIdx.y], m = momentum[blockIdx.y], d = decay[blockIdx.y];
    const Size start = blockIdx.y * count;
    for (Size i = start + first_position(); i < start + count; i += all_threads()) {
        Pack values = reinterpret_cast<const Pack*>(parameter)[i];
        const Pack down = reinterpret_cast<const Pack*>(gradient)[i];
        Pack speeds = reinterpret_cast<const Pack*>(velocity)[i];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            speeds.at[k] = moved(values.at[k], down.at[k], speeds.at[k], r, m, d);
        reinterpret_cast<Pack*>(new_parameter)[i] = values;
        reinterpret_cast<Pack*>(new_velocity)[i] = speeds;
    }
}
