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
