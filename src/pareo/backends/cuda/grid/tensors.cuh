// Products of matrices on tensor cores. A block copies both operands to shared memory as they lie in memory,
// DEEP terms at a time, while it multiplies those before: there are STAGES of them.
#pragma once

#ifdef UNALIGNED  // pointers are not multiples of 16 bytes
const bool ALIGNED = false;
#else
const bool ALIGNED = true;
#endif

const int STAGES = 3;

// The threads that copy a line of so many pieces: a power of two.
__device__ constexpr int threads_across(int pieces)
{
    int threads = 1;
    while (2 * threads <= pieces && threads < LANES) threads *= 2;
    return threads;
}

// SIDE rows or columns of a matrix, of which there are LAST, and DEEP terms of each: in shared memory terms lie side
// by side where they do in memory. Eight rows and four terms have other banks.
template <int SIDE, int DEEP, int LAST, class Operand> struct Slab;
template <int SIDE, int DEEP, int LAST, int STRIDE, int STEP> struct Slab<SIDE, DEEP, LAST, Matrix<STRIDE, STEP>> {
    static constexpr bool BY_TERM = Matrix<STRIDE, STEP>::BY_TERM;
    static constexpr int LENGTH = BY_TERM ? DEEP : SIDE, LINES = BY_TERM ? SIDE : DEEP, APART = BY_TERM ? STRIDE : STEP;
    static constexpr int WIDTH = BY_TERM ? DEEP + 4 : SIDE % 16 ? SIDE : SIDE + 8, SIZE = LINES * WIDTH;
    static constexpr int ROW = BY_TERM ? WIDTH : 1, TERM = BY_TERM ? 1 : WIDTH;
    static constexpr int EACH = !ALIGNED ? 1 : APART % 4 == 0 ? 4 : APART % 2 == 0 ? 2 : 1;  // floats of a copy
    static constexpr int ACROSS = LENGTH / EACH, MANY = threads_across(ACROSS), STEP_DOWN = THREADS / MANY;
    static constexpr int COUNT = (LINES + STEP_DOWN - 1) / STEP_DOWN, PIECES = (ACROSS + MANY - 1) / MANY;

    // Terms from `start` on; those beyond `stop` are 0. Rows and columns that there are not stay as they are. A
    // copy is few instructions: its places are constants, and many copies share what they are compared with.
    __device__ static inline void copy(int thread, float* to, const float* from, int first, int start, int stop)
    {
        const int left = thread % MANY * EACH, top = thread / MANY;
        const int down = (BY_TERM ? first : start) + top, across = (BY_TERM ? start : first) + left;
        const int lines = (BY_TERM ? LAST : stop) - down, length = (BY_TERM ? stop : LAST) - across;
        const float* const source = from + down * APART + across;
        float* const place = to + top * WIDTH + left;
#pragma unroll
        for (int u = 0; u < COUNT; u++)
#pragma unroll
            for (int v = 0; v < PIECES; v++) {
                const int line = u * STEP_DOWN, at = v * MANY * EACH;
                const bool mine = (LINES % STEP_DOWN == 0 || top < LINES - line) && (ACROSS % MANY == 0 || left < LENGTH - at);
                if (mine && (BY_TERM ? line < lines : at < length))
                    copy_later<EACH>(place + line * WIDTH + at, source + line * APART + at, BY_TERM ? at < length : line < lines);
            }
    }
};

// A tile, of one of PARTS parts of the terms. HIGH x WIDE warps have TALL x BROAD times 16 x 8 sums each; the
// others of the block share their terms. `end` is called as in products.cuh.
template <int M, int N, int K, int PARTS, int TALL, int BROAD, int HIGH, int WIDE, int DEEP, class A, class B, class Early, class End>
__device__ inline void product_on_tensors(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int ROWS = 16 * TALL * HIGH, COLUMNS = 8 * BROAD * WIDE, SPLIT = WARPS / (HIGH * WIDE);
    constexpr int DOWN = (M + ROWS - 1) / ROWS, ACROSS = (N + COLUMNS - 1) / COLUMNS;
    constexpr int TERMS = ((K + PARTS - 1) / PARTS + 7) / 8 * 8;  // of a part
    constexpr int APART = COLUMNS % 16 ? COLUMNS : COLUMNS + 8;   // from a row of sums to the next one
    using Left = Slab<ROWS, DEEP, M, A>;
    using Right = Slab<COLUMNS, DEEP, N, B>;
    constexpr int STAGE = Left::SIZE + Right::SIZE;
    static_assert(SPLIT * HIGH * WIDE == WARPS && DEEP % (8 * SPLIT) == 0, "all warps have as many terms");
    static_assert(STAGES * STAGE <= ROOM && SPLIT * ROWS * APART <= ROOM, "shared memory is too small");
    const int thread = this_thread(), warp = thread / LANES, lane = thread % LANES, share = warp / (HIGH * WIDE);
    const int part = tile / (DOWN * ACROSS), place = tile % (DOWN * ACROSS);
    const int first_row = place / ACROSS * ROWS, first_column = place % ACROSS * COLUMNS;
    const int row = warp / WIDE % HIGH * 16 * TALL, column = warp % WIDE * 8 * BROAD;
    const int start = part * TERMS, stop = least(start + TERMS, K);
    Sums sums[TALL][BROAD] = {};
    int at = 0;  // the stage to copy to
    __syncthreads();
#pragma unroll 1
    for (int k = start - (STAGES - 1) * DEEP; k < stop; k += DEEP) {
        if (k >= start) {
            wait_for_all_but<STAGES - 2>();
            __syncthreads();
        }
        const int next = k + (STAGES - 1) * DEEP;
        if (next < stop) {
            Left::copy(thread, room + at * STAGE, a.at, first_row, next, stop);
            Right::copy(thread, room + at * STAGE + Left::SIZE, b.at, first_column, next, stop);
        }
        end_copies();
        at = at + 1 == STAGES ? 0 : at + 1;
        if (k >= start)
#pragma unroll(TALL * BROAD <= 4 ? 2 : 1)
            for (int d = 8 * share; d < DEEP; d += 8 * SPLIT) {
                const float* const rows = room + at * STAGE + row * Left::ROW + d * Left::TERM;
                const float* const columns = room + at * STAGE + Left::SIZE + column * Right::ROW + d * Right::TERM;
                multiply<TALL, BROAD, 16 * Left::ROW, 8 * Right::ROW, Rows<Left::ROW, Left::TERM>, Columns<Right::ROW, Right::TERM>>(
                    lane, sums, rows, columns);
            }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < BROAD; j++)
            sums[i][j].store(lane, room + (share * ROWS + row + 16 * i) * APART + column + 8 * j, APART);
    __syncthreads();
    constexpr int COUNT = ROWS * COLUMNS, EACH = (COUNT + THREADS - 1) / THREADS;
    constexpr int MANY = EACH % 8 == 0 ? 8 : EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : EACH < 3 ? EACH : 1;
#pragma unroll 1
    for (int first = thread; first < EACH * THREADS; first += MANY * THREADS) {
        decltype(early(0, 0, 0)) given[MANY];
        float total[MANY];
#pragma unroll
        for (int u = 0; u < MANY; u++) {
            const int e = least(first + u * THREADS, COUNT - 1), m = first_row + e / COLUMNS, n = first_column + e % COLUMNS;
            given[u] = early(part, least(m, M - 1), least(n, N - 1));
            const float* const mine = room + e / COLUMNS * APART + e % COLUMNS;
            total[u] = 0;
#pragma unroll
            for (int some = 0; some < SPLIT; some++) total[u] += mine[some * ROWS * APART];
        }
#pragma unroll
        for (int u = 0; u < MANY; u++) {
            const int e = first + u * THREADS, m = first_row + e / COLUMNS, n = first_column + e % COLUMNS;
            if ((COUNT % THREADS == 0 || e < COUNT) && m < M && n < N) end(part, m, n, total[u], given[u]);
        }
    }
}
