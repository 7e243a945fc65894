// Products whose operands are copied to shared memory, DEEP terms at a time: a block reads each of them
// once, while it multiplies those before.
#pragma once

template <int EACH> struct alignas(4 * EACH) Some { float at[EACH]; };

template <int COUNT> __device__ inline void read_aligned(float (&to)[COUNT], const float* from)
{
    constexpr int EACH = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < COUNT; i += EACH) {
        const auto some = *(const Some<EACH>*)(from + i);
#pragma unroll
        for (int k = 0; k < EACH; k++) to[i + k] = some.at[k];
    }
}

// What a thread copies of SIDE rows or columns of an operand, from FIRST on. Neighbouring threads have
// neighbouring elements. In shared memory are SIDE elements of each term.
template <int SIDE, int DEEP, class Operand> struct Copied {
    static constexpr bool BY_TERM = Operand::BY_TERM;
    static constexpr int COUNT = (SIDE * DEEP + THREADS - 1) / THREADS, WIDTH = (SIDE + 7) / 4 * 4, SIZE = WIDTH * DEEP;
    // A thread stays in a row, or in a term, where that many threads have an element of each.
    static constexpr bool ONE_PLACE = !BY_TERM && THREADS % SIDE == 0, ONE_TERM = BY_TERM && THREADS % DEEP == 0;
    const Operand& from;
    typename Operand::Place places[ONE_PLACE ? 1 : COUNT];
    float value[COUNT];
    int thread;

    __device__ inline Copied(const Operand& from, int thread, int first, int last) : from(from), thread(thread)
    {
#pragma unroll
        for (int u = 0; u < (ONE_PLACE ? 1 : COUNT); u++) places[u] = from.place(least(first + side(u), last));
    }
    __device__ inline int element(int u) const { return u * THREADS + thread; }
    __device__ inline int term(int u) const { return BY_TERM ? element(u) % DEEP : element(u) / SIDE; }
    __device__ inline int side(int u) const { return BY_TERM ? element(u) / DEEP : element(u) % SIDE; }
    __device__ inline bool has(int u) const { return SIDE * DEEP % THREADS == 0 || element(u) < SIDE * DEEP; }
    // Terms from `start` on; those beyond `stop` are 0.
    __device__ inline void read(int start, int stop)
    {
        auto key = from.key(least(start + term(0), stop - 1));
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            const int k = start + term(u);
            if (u && !ONE_TERM) key = from.key(least(k, stop - 1));
            value[u] = has(u) && k < stop ? from.get(places[ONE_PLACE ? 0 : u], key) : 0;
        }
    }
    __device__ inline void store(float* to) const
    {
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            if (has(u)) to[term(u) * WIDTH + side(u)] = value[u];
    }
};

// Rows of a thread whose sums have room in shared memory at once.
__device__ constexpr int some_of(int rows, int columns)
{
    int some = rows;
    while (some > 1 && (some * columns > 16 || rows % some)) some--;
    return some;
}

// A tile, of one of PARTS parts of the terms. HIGH x WIDE threads have R x C sums each; the others of the
// block share their terms. `end` is called as in products.cuh.
template <int M, int N, int K, int PARTS, int R, int C, int HIGH, int WIDE, int DEEP, class A, class B, class Early, class End>
__device__ inline void product_of_copies(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int TALL = R * HIGH, BROAD = C * WIDE, SIDE = HIGH * WIDE, SPLIT = THREADS / SIDE;
    constexpr int DOWN = (M + TALL - 1) / TALL, ACROSS = (N + BROAD - 1) / BROAD;
    using Left = Copied<TALL, DEEP, A>;
    using Right = Copied<BROAD, DEEP, B>;
    constexpr int STAGE = Left::SIZE + Right::SIZE;
    static_assert(SPLIT * SIDE == THREADS && DEEP % SPLIT == 0, "all threads have as many terms");
    static_assert(2 * STAGE <= ROOM && some_of(R, C) * C * (THREADS + 8) <= ROOM, "shared memory is too small");
    const int thread = this_thread(), part = tile / (DOWN * ACROSS), place = tile % (DOWN * ACROSS);
    const int first_row = place / ACROSS * TALL, first_column = place % ACROSS * BROAD;
    const int start = (int)((long long)K * part / PARTS), stop = (int)((long long)K * (part + 1) / PARTS);
    const int x = thread % WIDE, y = thread / WIDE % HIGH, share = thread / SIDE;
    float sum[R][C] = {};
    {
        Left left(a, thread, first_row, M - 1);
        Right right(b, thread, first_column, N - 1);
        left.read(start, stop);
        right.read(start, stop);
        __syncthreads();
        left.store(room);
        right.store(room + Left::SIZE);
        __syncthreads();
        float *now = room, *next = room + STAGE;
#pragma unroll(PARTS == 1 && K <= 2 * DEEP ? 2 : 1)
        for (int k = start; k < stop; k += DEEP) {
            const bool more = k + DEEP < stop;
            if (more) {
                left.read(k + DEEP, stop);
                right.read(k + DEEP, stop);
            }
#pragma unroll(R * C < 16 ? 8 : 4)
            for (int d = 0; d < DEEP / SPLIT; d++) {
                float rows[R], columns[C];
                read_aligned<R>(rows, now + (d * SPLIT + share) * Left::WIDTH + y * R);
                read_aligned<C>(columns, now + Left::SIZE + (d * SPLIT + share) * Right::WIDTH + x * C);
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int j = 0; j < C; j++) sum[i][j] += rows[i] * columns[j];
            }
            if (more) {
                left.store(next);
                right.store(next + Left::SIZE);
            }
            __syncthreads();
            float* const done = now;
            now = next;
            next = done;
        }
    }
    // The sums of some rows of each thread at a time. Threads that had shared their terms, and those beside
    // each other in a row, have other banks.
    constexpr int SOME = some_of(R, C), COUNT = SOME * HIGH * BROAD, EACH = (COUNT + THREADS - 1) / THREADS;
    constexpr int APART = THREADS + 8, MANY = EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : EACH < 3 ? EACH : 1;
    const auto has = [&](int e) { return COUNT % THREADS == 0 || e < COUNT; };
#pragma unroll
    for (int top = 0; top < R; top += SOME) {
        if (top) __syncthreads();
#pragma unroll
        for (int i = 0; i < SOME; i++)
#pragma unroll
            for (int j = 0; j < C; j++) room[(i * C + j) * APART + thread] = sum[top + i][j];
        __syncthreads();
#pragma unroll 1
        for (int first = thread; first < EACH * THREADS; first += MANY * THREADS) {
            decltype(early(0, 0, 0)) given[MANY];
            float total[MANY];
            const auto row = [&](int e) { return first_row + e / BROAD / SOME * R + top + e / BROAD % SOME; };
            const auto column = [&](int e) { return first_column + e % BROAD; };
#pragma unroll
            for (int u = 0; u < MANY; u++) {
                const int e = has(first + u * THREADS) ? first + u * THREADS : 0, across = e % BROAD, down = e / BROAD;
                given[u] = early(part, least(row(e), M - 1), least(column(e), N - 1));
                const float* const mine = room + (down % SOME * C + across % C) * APART + down / SOME * WIDE + across / C;
                total[u] = 0;
#pragma unroll 8
                for (int some = 0; some < SPLIT; some++) total[u] += mine[some * SIDE];
            }
#pragma unroll
            for (int u = 0; u < MANY; u++) {
                const int e = first + u * THREADS, m = row(e), n = column(e);
                if (has(e) && m < M && n < N) end(part, m, n, total[u], given[u]);
            }
        }
    }
}
