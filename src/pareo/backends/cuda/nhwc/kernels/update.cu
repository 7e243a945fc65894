// Updates of parameters by the rule of an optimizer. The results may overwrite the parameters and what
// is kept for each of them.
#include "kernels/rules.cuh"
#include "nhwc/kernels/vector.cuh"

const int MOST = 40;       // parameters in one launch
const int EACH = 1024;     // elements of a block

// One parameter: its results, its value, its gradient and slots, and the gradient's layout:
// `taps` > 1 means (filters, taps, channels), where the parameter is (filters, channels, taps).
struct Update {
    float *new_parameter, *new_slots[2];
    const float* parameter;
    const void* gradient;
    const float* slots[2];
    long long count, channels, taps, narrow, first_block;
};

struct Updates {
    Update of[MOST];
};

// As in kernels/rules.cuh.
struct Numbers {
    const float* at[7];
};

template <int R> __global__ void update_all(Updates updates, int number, Numbers numbers)
{
    const int SLOTS = R == DESCEND ? 0 : R == ADAM || R == ADAMW ? 2 : 1;
    int which = 0;
    while (which + 1 < number && updates.of[which + 1].first_block <= blockIdx.x) which++;
    const Update& one = updates.of[which];
    float n[7];
    for (int k = 0; k < 7; k++) n[k] = numbers.at[k] ? *numbers.at[k] : 0;
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
        float first = SLOTS > 0 ? one.slots[0][i] : 0, second = SLOTS > 1 ? one.slots[1][i] : 0;
        one.new_parameter[i] = moved<R>(one.parameter[i], gradient, first, second, n);
        if (SLOTS > 0) one.new_slots[0][i] = first;
        if (SLOTS > 1) one.new_slots[1][i] = second;
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
