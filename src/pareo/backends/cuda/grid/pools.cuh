// Poolings whose windows do not overlap. A tile is ROWS rows of cells of SY x SX pixels, in each of which a
// window starts; cells of the last row and column of a plane may have none. Pixels are read and written line
// by line, so that neighbouring threads have neighbouring pixels; between, they are in shared memory.
#pragma once

template <class S> struct Cells {
    static const int DOWN = (S::H + S::TOP + S::SY - 1) / S::SY, ACROSS = (S::W + S::LEFT + S::SX - 1) / S::SX;
};
template <class S, int ROWS> struct Strip {
    static constexpr int ACROSS = Cells<S>::ACROSS, DOWN = Cells<S>::DOWN, CELLS = ROWS * ACROSS, LINES = ROWS * S::SY;
    static constexpr int PIXELS = LINES * S::W;  // in shared memory; behind them is where their lines start
    int thread, first;

    __device__ Strip(int tile) : thread(this_thread()), first(tile * ROWS) {}
    // Copies the pixels, but does not wait for them. A line that is outside of all images starts at -1.
    __device__ int* copy(float* room, const float* images) const
    {
        int* const starts = (int*)(room + PIXELS);
        __syncthreads();
        for (int line = thread; line < LINES; line += THREADS) {
            const int row = first + line / S::SY, y = row % DOWN * S::SY - S::TOP + line % S::SY;
            starts[line] = row < S::C * DOWN && (unsigned)y < S::H ? (row / DOWN * S::H + y) * S::W : -1;
        }
        __syncthreads();
#pragma unroll 4
        for (int e = thread; e < PIXELS; e += THREADS) {
            const int start = starts[e / S::W];
            if (start >= 0) copy_later(room + e, images + start + e % S::W, true);
        }
        return starts;
    }
    // The result of a cell's window, or -1 if it has none; plane[y * W + x] is pixel (y, x) of its plane.
    __device__ int window_of(int cell, float* room, const float*& plane, Range& y, Range& x) const
    {
        const int row = first + cell / ACROSS, down = row % DOWN, column = cell % ACROSS;
        plane = room + (cell / ACROSS * S::SY - (down * S::SY - S::TOP)) * S::W;
        y = window<S::KH, S::SY, S::TOP, S::H>(down);
        x = window<S::KW, S::SX, S::LEFT, S::W>(column);
        const bool has = cell < CELLS && row < S::C * DOWN && down < S::OH && column < S::OW;
        return has ? (row / DOWN * S::OH + down) * S::OW + column : -1;
    }
};

template <class S> struct Largest {
    __device__ static float of(const float* plane, Range y, Range x) { return plane[place_of_largest<S>(plane, y, x)]; }
};
template <class S> struct Average {
    __device__ static float of(const float* plane, Range y, Range x) { return average_of<S>(plane, y, x); }
};
template <class S, int ROWS, class Value, class Early, class End> __device__ inline void pooled(
    int tile, float* room, const float* images, Early early, End end)
{
    using Rows = Strip<S, ROWS>;
    constexpr int EACH = Rows::CELLS > 3 * THREADS ? 4 : Rows::CELLS > THREADS ? 2 : 1;
    const Rows strip(tile);
    strip.copy(room, images);
    wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int cell = strip.thread; cell < Rows::CELLS; cell += EACH * THREADS) {
        float r[EACH];
        int at[EACH];
        decltype(early(0)) given[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const float* plane;
            Range y, x;
            at[u] = strip.window_of(cell + u * THREADS, room, plane, y, x);
            given[u] = early(at[u] < 0 ? 0 : at[u]);
            r[u] = at[u] < 0 ? 0 : Value::of(plane, y, x);
        }
#pragma unroll
        for (int u = 0; u < EACH; u++)
            if (at[u] >= 0) end(at[u], r[u], given[u]);
    }
}

// The gradient of a pooling by the largest: each error belongs to the first largest pixel of its window.
template <class S, int ROWS, class Early, class End> __device__ inline void max_pool_back(
    int tile, float* room, const float* g, const float* images, Early early, End end)
{
    using Rows = Strip<S, ROWS>;
    constexpr int EACH = Rows::PIXELS > 4 * THREADS ? 8 : Rows::PIXELS > THREADS ? 4 : 1;
    const Rows strip(tile);
    const int* const starts = strip.copy(room, images);
    float* const errors = room + Rows::PIXELS + Rows::LINES;
    int* const places = (int*)(errors + Rows::CELLS);
    const float* plane;
    Range y, x;
#pragma unroll 1
    for (int cell = strip.thread; cell < Rows::CELLS; cell += THREADS) {
        const int at = strip.window_of(cell, room, plane, y, x);
        copy_later(errors + cell, g + (at < 0 ? 0 : at), at >= 0);
    }
    wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int cell = strip.thread; cell < Rows::CELLS; cell += THREADS) {
        const int at = strip.window_of(cell, room, plane, y, x);
        places[cell] = at < 0 ? -1 : place_of_largest<S>(plane, y, x) + (int)(plane - room);
    }
    __syncthreads();
#pragma unroll 1
    for (int first = strip.thread; first < Rows::PIXELS; first += EACH * THREADS) {
        float r[EACH];
        int at[EACH];
        decltype(early(0)) given[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int e = least(first + u * THREADS, Rows::PIXELS - 1), line = e / S::W, start = starts[line];
            const int cell = line / S::SY * Rows::ACROSS + (e % S::W + S::LEFT) / S::SX;
            at[u] = start < 0 || first + u * THREADS >= Rows::PIXELS ? -1 : start + e % S::W;
            given[u] = early(at[u] < 0 ? 0 : at[u]);
            r[u] = places[cell] == e ? errors[cell] : 0;
        }
#pragma unroll
        for (int u = 0; u < EACH; u++)
            if (at[u] >= 0) end(at[u], r[u], given[u]);
    }
}

// Poolings whose windows overlap, and gradients of these: a tile is PLANES whole planes, of TOTAL, which lie side by
// side in memory. Each pixel or window is read once, to shared memory.
template <int PLANE, int PLANES, int TOTAL> struct Planes {
    static constexpr int COUNT = PLANES * PLANE, SIZE = (COUNT + 3) / 4 * 4;

    // Copies those of a tile, but does not wait for them.
    __device__ static inline void copy(int thread, float* to, const float* from, int tile)
    {
        constexpr bool ALL = COUNT % 4 == 0 && TOTAL * PLANE % 4 == 0, HALF = COUNT % 2 == 0 && TOTAL * PLANE % 2 == 0;
        constexpr int EACH = !ALIGNED ? 1 : ALL ? 4 : HALF ? 2 : 1;
        const int stop = left(tile);
#pragma unroll 4
        for (int e = thread * EACH; e < COUNT; e += THREADS * EACH)
            if (e < stop) copy_later<EACH>(to + e, from + tile * COUNT + e, true);
    }
    __device__ static inline int left(int tile) { return TOTAL * PLANE - tile * COUNT; }

    // Ends every element of a tile with what `value` finds for it.
    template <class Value, class Early, class End> __device__ static inline void each(int thread, int tile, Value value, Early early, End end)
    {
        constexpr int EACH = COUNT > 3 * THREADS ? 4 : COUNT > THREADS ? 2 : 1;
        const int stop = least(COUNT, left(tile));
#pragma unroll 1
        for (int first = thread; first < stop; first += EACH * THREADS) {
            float r[EACH];
            decltype(early(0)) given[EACH];
#pragma unroll
            for (int u = 0; u < EACH; u++) {
                const int e = least(first + u * THREADS, stop - 1);
                given[u] = early(tile * COUNT + e);
                r[u] = value(e);
            }
#pragma unroll
            for (int u = 0; u < EACH; u++)
                if (first + u * THREADS < stop) end(tile * COUNT + first + u * THREADS, r[u], given[u]);
        }
    }
};
// `value` finds an element of OUT in planes of IN.
template <int IN, int OUT, int PLANES, int TOTAL, class Value, class Early, class End> __device__ inline void pooled_planes(
    int tile, float* room, const float* from, Value value, Early early, End end)
{
    const int thread = this_thread();
    __syncthreads();
    Planes<IN, PLANES, TOTAL>::copy(thread, room, from, tile);
    wait_for_copies();
    __syncthreads();
    Planes<OUT, PLANES, TOTAL>::each(thread, tile, [&](int e) { return value(room, e); }, early, end);
}
// The gradient of a pooling by the largest: a window's largest pixel is found once.
template <class S, int PLANES, class Early, class End> __device__ inline void max_pool_back_planes(
    int tile, float* room, const float* g, const float* images, Early early, End end)
{
    constexpr int H = S::H, W = S::W, OH = S::OH, OW = S::OW;
    constexpr int DOWN = (S::KH + S::SY - 1) / S::SY, ACROSS = (S::KW + S::SX - 1) / S::SX;
    using Pixels = Planes<H * W, PLANES, S::C>;
    using Windows = Planes<OH * OW, PLANES, S::C>;
    const int thread = this_thread();
    float* const errors = room + Pixels::SIZE;
    int* const places = (int*)(errors + Windows::SIZE);
    __syncthreads();
    Pixels::copy(thread, room, images, tile);
    Windows::copy(thread, errors, g, tile);
    wait_for_copies();
    __syncthreads();
    const int stop = least(Windows::COUNT, Windows::left(tile));
#pragma unroll 2
    for (int e = thread; e < stop; e += THREADS) {
        const Range y = window<S::KH, S::SY, S::TOP, H>(e / OW % OH), x = window<S::KW, S::SX, S::LEFT, W>(e % OW);
        places[e] = place_of_largest<S>(room + e / (OH * OW) * (H * W), y, x);
    }
    __syncthreads();
    const auto value = [&](int e) {
        const int pixel = e % (H * W), row = (pixel / W + S::TOP) / S::SY, column = (pixel % W + S::LEFT) / S::SX;
        float sum = 0;
#pragma unroll
        for (int k = 0; k < DOWN * ACROSS; k++) {
            const int y = row - k / ACROSS, x = column - k % ACROSS;
            const bool has = (unsigned)y < OH && (unsigned)x < OW;
            const int at = has ? (e / (H * W) * OH + y) * OW + x : 0;
            sum += has && places[at] == pixel ? errors[at] : 0;
        }
        return sum;
    };
    Pixels::each(thread, tile, value, early, end);
}
