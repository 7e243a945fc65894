// Stochastic gradient descent: velocity = momentum * velocity + gradient + decay * parameter, then
// parameter -= rate * velocity. The results may overwrite the parameter and the velocity.
// Without momentum `velocity` is null, and parameter -= rate * gradient.
#include "nhwc/kernels/vector.cuh"

const int MOST = 40;       // parameters in one launch
const int EACH = 1024;     // elements of a block

// One parameter: its results, its value, its gradient and velocity, and the gradient's layout:
// `taps` > 1 means (filters, taps, channels), where the parameter is (filters, channels, taps).
struct Update {
    float *new_parameter, *new_velocity;
    const float* parameter;
    const void* gradient;
    const float* velocity;
    long long count, channels, taps, narrow, first_block;
};

struct Updates {
    Update of[MOST];
};

extern "C" __global__ void update_all(
    Updates updates, int number, const float* rate, const float* momentum, const float* decay)
{
    int which = 0;
    while (which + 1 < number && updates.of[which + 1].first_block <= blockIdx.x) which++;
    const Update& one = updates.of[which];
    const float r = *rate, m = one.velocity ? *momentum : 0, d = one.velocity ? *decay : 0;
    const long long start = (blockIdx.x - one.first_block) * EACH;
    for (int j = threadIdx.x; j < EACH; j += blockDim.x) {
        const int i = start + j;
        if (i >= one.count) break;
        int from = i;
        if (one.taps > 1) {
            const int taps = one.taps, channels = one.channels;
            const int pair = i / taps, filter = pair / channels;
            from = (filter * taps + i - pair * taps) * channels + pair - filter * channels;
        }
        const float gradient = one.narrow ? wide(static_cast<const bfloat16*>(one.gradient)[from])
                                          : static_cast<const float*>(one.gradient)[from];
        const float parameter = one.parameter[i];
        float speed = gradient;
        if (one.velocity) {
            speed += m * one.velocity[i] + d * parameter;
            one.new_velocity[i] = speed;
        }
        one.new_parameter[i] = parameter - r * speed;
    }
}

// Running averages: new = kept * old + share * found. A block has one of them.
const int MOST_AVERAGES = 80;

struct Average {
    float* result;
    const float *old, *found;
    long long count;
    float kept, share;
};

struct Averages {
    Average of[MOST_AVERAGES];
};

extern "C" __global__ void average_all(Averages averages)
{
    const Average& one = averages.of[blockIdx.x];
    for (int i = threadIdx.x; i < one.count; i += blockDim.x)
        one.result[i] = one.kept * one.old[i] + one.share * one.found[i];
}
