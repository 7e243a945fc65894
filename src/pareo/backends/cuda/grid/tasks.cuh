// What the blocks of a launch share: each function computes one tile of a task, with all threads of a
// block. `end` is called with each result: it stores it, or computes what follows from it. Functions
// that several tasks share are not inlined: each of them runs once, and reading its instructions takes
// longer than executing them.
#pragma once

const int WARPS = THREADS / LANES;

// What the end of a task reads from memory, for one result. Tasks that take long read it first.
template <int N> struct Given { float at[N > 0 ? N : 1]; };

__device__ inline int least(int a, int b) { return a < b ? a : b; }

// EACH elements by each thread: everything is read before anything is written.
template <int COUNT, int EACH, class Value, class Early, class End> __device__ inline void elements(
    int tile, Value value, Early early, End end)
{
    const int first = tile * (EACH * THREADS) + this_thread();
    float r[EACH];
    decltype(early(0)) given[EACH];
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const int i = least(first + u * THREADS, COUNT - 1);
        given[u] = early(i);
        r[u] = value(i);
    }
#pragma unroll
    for (int u = 0; u < EACH; u++)
        if (first + u * THREADS < COUNT) end(first + u * THREADS, r[u], given[u]);
}

// Copies rows of `data`, which `order` names: `COPIES` words for each thread.
template <int ROWS, int WORDS, int COPIES> __device__ inline void gather(
    int tile, float* rows, const float* data, const long long* order)
{
    const int first = tile * COPIES * THREADS + this_thread();
    float found[COPIES];
#pragma unroll
    for (int k = 0; k < COPIES; k++) {
        const int i = least(first + k * THREADS, ROWS * WORDS - 1);
        found[k] = data[order[i / WORDS] * WORDS + i % WORDS];
    }
#pragma unroll
    for (int k = 0; k < COPIES; k++)
        if (first + k * THREADS < ROWS * WORDS) rows[first + k * THREADS] = found[k];
}

// The sum of what all threads have, known to all of them.
__device__ __noinline__ float total_of_block(float value, float* room)
{
    value = total_of_lanes(value);
    __syncthreads();
    if (threadIdx.x % LANES == 0) room[threadIdx.x / LANES] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum += room[i];
    return sum;
}

// The sum of some elements of x[o, k, i] for one k: every EACH-th one from `first` on, before `stop`. Eight
// are read at once, those beyond the last one at the first place.
template <int K, int I, int EACH> __device__ inline float sum_of(const float* x, int k, int first, int stop)
{
    float sum = 0;
#pragma unroll 1
    for (int start = first; start < stop; start += 8 * EACH) {
        float found[8];
#pragma unroll
        for (int u = 0; u < 8; u++) {
            const int e = start + u * EACH, at = e < stop ? e : start;
            const float value = x[I == 1 ? at * K + k : (at / I * K + k) * I + at % I];
            found[u] = e < stop ? value : 0;
        }
#pragma unroll
        for (int u = 0; u < 8; u++) sum += found[u];
    }
    return sum;
}

// Sums over O and I of x[o, k, i], for each k: by a warp for each.
template <int O, int K, int I, class Early, class End> __device__ inline void sums_by_warp(
    int tile, const float* x, Early early, End end)
{
    const int thread = this_thread(), k = tile * WARPS + thread / LANES, lane = thread % LANES;
    const auto given = early(least(k, K - 1));
    const float sum = total_of_lanes(sum_of<K, I, LANES>(x, k, lane, k < K ? O * I : 0));
    if (lane == 0 && k < K) end(k, sum, given);
}

// The same, by a block for each.
template <int O, int K, int I, class Early, class End> __device__ inline void sums_by_block(
    int k, float* room, const float* x, Early early, End end)
{
    const auto given = early(k);
    const int thread = this_thread();
    const float sum = total_of_block(sum_of<K, I, THREADS>(x, k, thread, O * I), room);
    if (thread == 0) end(k, sum, given);
}

// The same sums of PARTS parts of their terms.
template <int O, int K, int I, int PARTS, class Early, class End> __device__ inline void sums_of_parts(
    int tile, float* room, const float* x, Early early, End end)
{
    const int part = tile / K, k = tile % K, thread = this_thread();
    const int start = (int)((long long)O * I * part / PARTS), stop = (int)((long long)O * I * (part + 1) / PARTS);
    const auto given = early(tile);
    const float sum = total_of_block(sum_of<K, I, THREADS>(x, k, start + thread, stop), room);
    if (thread == 0) end(tile, sum, given);
}

// What the warps have for each lane, added up by the first one.
__device__ __noinline__ float total_of_warps(float value, float* room)
{
    __syncthreads();
    room[threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
    if (threadIdx.x < LANES)
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += room[w * LANES + threadIdx.x];
    return sum;
}

// Sums over O of x[o, k]: neighbouring lanes have neighbouring k, and the warps share the terms.
template <int O, int K, class Early, class End> __device__ inline void sums_across(
    int tile, float* room, const float* x, Early early, End end)
{
    const int thread = this_thread(), k = tile * LANES + thread % LANES;
    const auto given = early(least(k, K - 1));
    float sum = k < K ? sum_of<K, 1, WARPS>(x, k, thread / LANES, O) : 0;
    sum = total_of_warps(sum, room);
    if (thread < LANES && k < K) end(k, sum, given);
}

// The sum over O of x[o, k], by a thread.
template <int O, int K> __device__ inline float sum_of_column(const float* x, int k)
{
    float sum = 0;
#pragma unroll 8
    for (int o = 0; o < O; o++) sum += x[o * K + k];
    return sum;
}

// The loss of a row, by a warp, if there is one: log of the sum of exp(x) - x[label]; and its gradient times
// `g`. A label that names no class makes them NaN. All warps add up: shuffles in a branch are five times the
// code.
template <int ROWS, int CLASSES, class Loss, class Back> __device__ inline void losses_of_row(
    int row, bool has, const float* x, long long label, float g, Loss loss, Back back)
{
    constexpr int COUNT = (CLASSES + LANES - 1) / LANES;
    const int lane = this_thread() % LANES, stop = has ? CLASSES : 0;
    const bool known = label >= 0 && label < CLASSES;
    const auto values = held<COUNT, LANES>(lane, stop, [&](int i) { return x[i]; });
    float most = -INFINITY, sum = 0;
    values.over(lane, stop, [&](int, float value, int) { most = fmaxf(most, value); });
    most = largest_of_lanes(most);
    values.over(lane, stop, [&](int, float value, int) { sum += expf(value - most); });
    sum = total_of_lanes(sum);
    if (lane == 0 && has) loss(row, known ? (logf(sum) - (x[label] - most)) / ROWS : NAN);
    const float factor = known ? g / ROWS : NAN;
    values.over(lane, stop, [&](int i, float value, int) {
        back(row * CLASSES + i, factor * (expf(value - most) / sum - (i == label)));
    });
}
struct Nothing {
    __device__ void operator()(int, float) const {}
};
template <int ROWS, int CLASSES, class End> __device__ inline void row_losses(
    int tile, const float* logits, const long long* labels, End end)
{
    const int row = tile * WARPS + this_thread() / LANES, some = least(row, ROWS - 1);
    losses_of_row<ROWS, CLASSES>(row, row < ROWS, logits + some * CLASSES, labels[some], 0, end, Nothing());
}
template <int ROWS, int CLASSES, class End> __device__ inline void row_losses_back(
    int tile, const float* g, const float* logits, const long long* labels, End end)
{
    const int row = tile * WARPS + this_thread() / LANES, some = least(row, ROWS - 1);
    losses_of_row<ROWS, CLASSES>(row, row < ROWS, logits + some * CLASSES, labels[some], *g, Nothing(), end);
}

// The same of all rows of a tile, of which a block has just made the logits. The label of a warp's first
// row, and `g`, are read before that.
struct Labelled { long long label; float g; };
template <int ROWS, int TALL> __device__ inline Labelled labelled(int tile, const long long* labels, const float* g)
{
    return {labels[least(tile * TALL + this_thread() / LANES, ROWS - 1)], g ? *g : 0};
}
template <int ROWS, int CLASSES, int TALL, class Loss, class Back> __device__ inline void losses_of_tile(
    int tile, const float* logits, const long long* labels, Labelled first, Loss loss, Back back)
{
#pragma unroll 1
    for (int start = 0; start < TALL; start += WARPS) {
        const int r = start + this_thread() / LANES, row = tile * TALL + r;
        const bool has = r < TALL && row < ROWS;
        const long long label = start == 0 ? first.label : labels[least(row, ROWS - 1)];
        losses_of_row<ROWS, CLASSES>(row, has, logits + r * CLASSES, label, first.g, loss, back);
    }
}
