// Batch normalisation with its statistics in one kernel, channels last, where the registers of a
// cluster of blocks can hold some channels of all images. Sums are float32, in an order that does not
// change from run to run.
#include "nhwc/kernels/activation.cuh"
#include "nhwc/kernels/norm.cuh"
#include "nhwc/kernels/vector.cuh"

const int MOST_THREADS = 512;
const int HELD = 4;    // pixels of a thread, at most
const int WIDEST = 4;  // threads side by side that have different channels, at most
const int WARPS = MOST_THREADS / 32;
const int BLOCKS = 8;  // of a cluster

#if __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(BLOCKS, 1, 1)
// What the blocks of a cluster wrote to shared memory before is visible to all of them after.
__device__ inline void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// What another block of the cluster has at this place of its shared memory.
__device__ inline float in_block(unsigned rank, const float* place)
{
    unsigned there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(place)), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
}
#else  // programs for such a GPU, which has no clusters, never use these kernels
#define CLUSTER
__device__ inline void cluster_barrier() {}
__device__ inline float in_block(unsigned, const float* place) { return *place; }
#endif

template <int N> struct Room {
    float of_warps[WARPS * WIDEST * N], of_block[WIDEST * N], of_all[WIDEST * N];
};

// Adds N numbers of each thread over the cluster's threads with the same threadIdx.x; blockDim.x is a
// power of two. The result is known to all of them. No two calls may share their room.
template <int N> __device__ inline void total(float (&value)[N], Room<N>& room)
{
    const int wide = blockDim.x, thread = threadIdx.y * wide + threadIdx.x;
    for (int apart = 16; apart >= wide; apart /= 2)
#pragma unroll
        for (int i = 0; i < N; i++) value[i] += __shfl_xor_sync(~0u, value[i], apart);
    if (thread % 32 < wide)
#pragma unroll
        for (int i = 0; i < N; i++)
            room.of_warps[(thread / 32 * wide + threadIdx.x) * N + i] = value[i];
    __syncthreads();
    const int warps = wide * blockDim.y / 32, count = wide * N;
    for (int at = thread; at < count; at += wide * blockDim.y) {
        float sum = 0;
        for (int w = 0; w < warps; w++) sum += room.of_warps[w * count + at];
        room.of_block[at] = sum;
    }
    cluster_barrier();
    for (int at = thread; at < count; at += wide * blockDim.y) {
        float sums[BLOCKS], sum = 0;
#pragma unroll
        for (int r = 0; r < BLOCKS; r++) sums[r] = in_block(r, room.of_block + at);
#pragma unroll
        for (int r = 0; r < BLOCKS; r++) sum += sums[r];
        room.of_all[at] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) value[i] = room.of_all[threadIdx.x * N + i];
}

// A block is (groups of V channels, pixels); the grid is (blocks of a cluster, channels). out = activation(z +
// residual), where the residual is normalised too if `residual_by` has a mean. `positive` gets a bit
// for each element: whether it is above 0. `residual` and `positive` may be null.
template <class T, int V, int A> __global__ void CLUSTER __launch_bounds__(MOST_THREADS) normalise_at_once(
    T* out, float* mean, float* variance, unsigned char* positive, const T* x, const float* scale,
    const float* shift, float epsilon, const T* residual, Vectors residual_by, float low, float high,
    unsigned pixels, int channels)
{
    __shared__ Room<V> first_room, second_room;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const unsigned first = blockIdx.x * blockDim.y + threadIdx.y, step = BLOCKS * blockDim.y;
    const unsigned end = channel < channels ? pixels : 0;
    Pack<T, V> held[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * step < end)
            held[j] = *reinterpret_cast<const Pack<T, V>*>(x + (long long)(first + j * step) * channels + channel);
    float centre[V] = {}, spread[V] = {};
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * step < end)
#pragma unroll
            for (int i = 0; i < V; i++) centre[i] += wide(held[j].at[i]);
    total<V>(centre, first_room);
#pragma unroll
    for (int i = 0; i < V; i++) centre[i] /= pixels;
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * step < end)
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float apart = wide(held[j].at[i]) - centre[i];
                spread[i] += apart * apart;
            }
    total<V>(spread, second_room);
    if (channel < channels) {
        float factor[V], offset[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            spread[i] /= pixels;
            factor[i] = scale[channel + i] * rsqrtf(spread[i] + epsilon);
            offset[i] = shift[channel + i];
            if (first == 0) {
                mean[channel + i] = centre[i];
                variance[channel + i] = spread[i];
            }
        }
        float other_centre[V], other_factor[V], other_offset[V];
        if (residual_by.mean)
#pragma unroll
            for (int i = 0; i < V; i++) {
                other_centre[i] = residual_by.mean[channel + i];
                other_factor[i] = residual_by.scale[channel + i]
                    * rsqrtf(residual_by.variance[channel + i] + residual_by.epsilon);
                other_offset[i] = residual_by.shift[channel + i];
            }
        Pack<T, V> more[HELD];
        if (residual)
#pragma unroll
            for (int j = 0; j < HELD; j++)
                if (first + j * step < end)
                    more[j] = *reinterpret_cast<const Pack<T, V>*>(
                        residual + (long long)(first + j * step) * channels + channel);
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (first + j * step < end) {
                const long long at = (long long)(first + j * step) * channels + channel;
                float value[V];
                unsigned bits = 0;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float z = (wide(held[j].at[i]) - centre[i]) * factor[i] + offset[i];
                    if (residual) {
                        const float r = wide(more[j].at[i]);
                        z += residual_by.mean ? (r - other_centre[i]) * other_factor[i] + other_offset[i] : r;
                    }
                    if (!(z <= 0)) bits |= 1u << i;
                    value[i] = activate<A>(z, low, high);
                }
                store<T, V>(out + at, value);
                if (positive) positive[at / V] = bits;
            }
    }
    cluster_barrier();  // the others may still read this block's shared memory
}

// The backward pass: the gradient of x, plus `addend`, whose pixels are `pitch` elements apart; the
// gradients of scale and shift; and `masked`, that before the activation. The gradient that arrives
// is g, plus `other`. `positive` are the bits that the forward pass left; without them the gradient
// before the activation follows from x. `masked`, `other`, `positive` and `addend` may be null.
template <class T, int V, int A> __global__ void CLUSTER __launch_bounds__(MOST_THREADS) normalise_back_at_once(
    T* out, float* to_scale, float* to_shift, T* masked, const T* x, const T* g, const T* other,
    const unsigned char* positive, const T* addend, int pitch, Vectors by, float low, float high,
    unsigned pixels, int channels)
{
    __shared__ Room<2 * V> room;
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    const unsigned first = blockIdx.x * blockDim.y + threadIdx.y, step = BLOCKS * blockDim.y;
    const unsigned end = channel < channels ? pixels : 0;
    const bool rounded = masked || other || positive;  // what is stored is what is used
    Pack<T, V> xs[HELD], gs[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * step < end) {
            const long long at = (long long)(first + j * step) * channels + channel;
            xs[j] = *reinterpret_cast<const Pack<T, V>*>(x + at);
            gs[j] = *reinterpret_cast<const Pack<T, V>*>(g + at);
        }
    const Norm<V> norm(by, channel < channels ? channel : 0);
    float sums[2 * V] = {};  // of d, then of d * (x - mean)
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * step < end) {
            const long long at = (long long)(first + j * step) * channels + channel;
            Pack<T, V> others;
            if (other) others = *reinterpret_cast<const Pack<T, V>*>(other + at);
            const unsigned bits = positive ? positive[at / V] : 0;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float value = wide(xs[j].at[i]);
                float d = wide(gs[j].at[i]);
                if (other) d += wide(others.at[i]);
                if (positive) d = bits >> i & 1 ? d : 0;
                else d = activate_back<A>(d, norm(value, i), low, high);
                sums[i] += d;
                sums[V + i] += d * (value - norm.mean[i]);
                if (rounded) gs[j].at[i] = narrow<T>(d);
            }
            if (masked) *reinterpret_cast<Pack<T, V>*>(masked + at) = gs[j];
        }
    total<2 * V>(sums, room);
    if (channel < channels) {
        float slope[V], constant[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float inverse = rsqrtf(by.variance[channel + i] + by.epsilon);
            const float scaled = sums[V + i] * inverse;
            slope[i] = norm.factor[i] * inverse * scaled / pixels;
            constant[i] = norm.factor[i] * sums[i] / pixels;
            if (first == 0) {
                to_scale[channel + i] = scaled;
                to_shift[channel + i] = sums[i];
            }
        }
#pragma unroll
        for (int j = 0; j < HELD; j++)
            if (first + j * step < end) {
                const long long pixel = first + j * step;
                Pack<T, V> more;
                if (addend) more = *reinterpret_cast<const Pack<T, V>*>(addend + pixel * pitch + channel);
                float error[V];
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const float value = wide(xs[j].at[i]);
                    float d = wide(gs[j].at[i]);
                    if (!rounded) d = activate_back<A>(d, norm(value, i), low, high);
                    error[i] = norm.factor[i] * d - (value - norm.mean[i]) * slope[i] - constant[i];
                    if (addend) error[i] += wide(more.at[i]);
                }
                store<T, V>(out + pixel * channels + channel, error);
            }
    }
    cluster_barrier();  // the others may still read this block's shared memory
}
