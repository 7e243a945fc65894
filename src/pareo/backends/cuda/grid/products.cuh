// Products of M x K by K x N elements. An operand has a place for each row or column and a key for each
// term; both together name an element.
#pragma once

// A matrix with STRIDE elements from row to row and STEP from term to term. Terms lie side by side, or
// rows do.
template <int STRIDE, int STEP> struct Matrix {
    static const bool BY_TERM = STEP == 1;
    const float* at;
    using Place = int;
    __device__ int place(int i) const { return i * STRIDE; }
    __device__ int key(int k) const { return k * STEP; }
    __device__ float get(int place, int key) const { return at[place + key]; }
};

const int AT_ONCE = 32;  // floats that a thread reads at once, at most

// Adds AHEAD terms, every STEP-th one from `start` on, to R x C sums. Those beyond `stop` are read at its
// place and left out, unless the terms are WHOLE: no read waits for another.
template <int R, int C, int STEP, int AHEAD, bool WHOLE, class A, class B> __device__ inline void add_some(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int start, int stop)
{
    float left[AHEAD][R], right[AHEAD][C];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const bool inside = WHOLE || start + u * STEP < stop;
        const int k = inside ? start + u * STEP : start;
        const auto key_a = a.key(k);
        const auto key_b = b.key(k);
#pragma unroll
        for (int i = 0; i < R; i++) left[u][i] = inside ? a.get(rows[i], key_a) : 0;
#pragma unroll
        for (int j = 0; j < C; j++) right[u][j] = inside ? b.get(columns[j], key_b) : 0;
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) sum[i][j] += left[u][i] * right[u][j];
}
// Adds every STEP-th term from `first` on, up to `stop`: at most TERMS, as many at once as there are
// registers for.
template <int R, int C, int STEP, int TERMS, class A, class B> __device__ inline void add_terms(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int first, int stop)
{
    constexpr int MOST = AT_ONCE / (R + C), ROUNDS = (TERMS + MOST - 1) / MOST, AHEAD = (TERMS + ROUNDS - 1) / ROUNDS;
    int start = first;
    if (ROUNDS > 2)
#pragma unroll 1
        for (; start + (AHEAD - 1) * STEP < stop; start += AHEAD * STEP)
            add_some<R, C, STEP, AHEAD, true>(sum, a, b, rows, columns, start, stop);
#pragma unroll 1
    for (; start < stop; start += AHEAD * STEP)
        add_some<R, C, STEP, AHEAD, false>(sum, a, b, rows, columns, start, stop);
}

// HIGH x WIDE threads have R x C sums each, of the tile from a row and a column on; the others of the block
// share their terms. Lanes of a warp that do so add up theirs. Writes the sums to `room`: first one of each
// thread, or of each warp's threads that have others, and so on. It is inlined: as a function of its own it made
// each product 1900 cycles slower on an H200.
__device__ constexpr int shares_of_warp(int side) { return side < LANES ? LANES / side : 1; }
template <int M, int N, int K, int R, int C, int HIGH, int WIDE, class A, class B>
__device__ inline void sums_of_threads(
    int thread, float* room, const A& a, const B& b, int first_row, int first_column)
{
    constexpr int SPLIT = THREADS / (HIGH * WIDE), TERMS = (K + SPLIT - 1) / SPLIT;
    static_assert(THREADS * R * C <= ROOM, "shared memory is too small");
    const int x = thread % WIDE, y = thread / WIDE % HIGH, share = thread / (HIGH * WIDE);
    typename A::Place rows[R];
    typename B::Place columns[C];
    float sum[R][C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) rows[i] = a.place(least(first_row + y + i * HIGH, M - 1));
#pragma unroll
    for (int j = 0; j < C; j++) columns[j] = b.place(least(first_column + x + j * WIDE, N - 1));
    add_terms<R, C, SPLIT, TERMS>(sum, a, b, rows, columns, share, K);
    constexpr int SIDE = HIGH * WIDE, SHARES = shares_of_warp(SIDE);
#pragma unroll
    for (int apart = SIDE; apart < LANES; apart *= 2)
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) sum[i][j] += of_lane(sum[i][j], apart);
    __syncthreads();
    if (SHARES == 1 || thread % LANES < SIDE)
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++)
                room[(i * C + j) * (THREADS / SHARES) + (SHARES == 1 ? thread : thread / LANES * SIDE + x + y * WIDE)] = sum[i][j];
    __syncthreads();
}

// A tile of a product: `end` is called with the row, the column and the sum of each element, and with what
// `early` read for it before.
template <int M, int N, int K, int R, int C, int HIGH, int WIDE, class A, class B, class Early, class End>
__device__ inline void product(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int SIDE = HIGH * WIDE, SHARES = shares_of_warp(SIDE), SPLIT = THREADS / SHARES / SIDE, COUNT = R * C * SIDE;
    constexpr int ACROSS = (N + C * WIDE - 1) / (C * WIDE);
    constexpr int EACH = (COUNT + THREADS - 1) / THREADS, SOME = EACH < 4 ? EACH : 4;
    const int thread = this_thread();
    const int first_row = tile / ACROSS * (R * HIGH), first_column = tile % ACROSS * (C * WIDE);
    const auto row = [&](int e) { return first_row + e / WIDE % HIGH + e / SIDE / C * HIGH; };
    const auto column = [&](int e) { return first_column + e % WIDE + e / SIDE % C * WIDE; };
    decltype(early(0, 0)) given[SOME];
    const auto read = [&](int start) {
#pragma unroll
        for (int some = 0; some < SOME; some++) {
            const int e = least((start + some) * THREADS + thread, COUNT - 1);
            given[some] = early(least(row(e), M - 1), least(column(e), N - 1));
        }
    };
    read(0);
    sums_of_threads<M, N, K, R, C, HIGH, WIDE>(thread, room, a, b, first_row, first_column);
#pragma unroll 1
    for (int start = 0; start < EACH; start += SOME) {
        if (start) read(start);
#pragma unroll
        for (int some = 0; some < SOME; some++) {
            const int e = (start + some) * THREADS + thread, m = row(e), n = column(e);
            if (e >= COUNT || m >= M || n >= N) continue;
            float total = 0;
#pragma unroll 8
            for (int part = 0; part < SPLIT; part++) total += room[e / SIDE * (THREADS / SHARES) + part * SIDE + e % SIDE];
            end(m, n, total, given[some]);
        }
    }
}

// Adds up COUNT sums of each lane, a power of two: lanes send each other those of which they do not keep the
// total. Each lane has the totals from the one that is returned on; some lanes may have the same one.
template <int COUNT, int APART> __device__ inline int totals_of_lanes(float* sum, int lane)
{
    if constexpr (APART == 0) return 0;
    else if constexpr (COUNT == 1) {
        sum[0] += of_lane(sum[0], APART);
        return totals_of_lanes<1, APART / 2>(sum, lane);
    } else {
        const bool upper = lane & APART;
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            const float sent = upper ? sum[i] : sum[COUNT / 2 + i], kept = upper ? sum[COUNT / 2 + i] : sum[i];
            sum[i] = kept + of_lane(sent, APART);
        }
        return (upper ? COUNT / 2 : 0) + totals_of_lanes<COUNT / 2, APART / 2>(sum, lane);
    }
}

// The same with a warp for R x C sums, and for one of PARTS parts of their terms, which lie side by side.
template <int M, int N, int K, int R, int C, int PARTS, class A, class B, class Early, class End>
__device__ inline void product_of_lanes(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int DOWN = (M + R - 1) / R, ACROSS = (N + C - 1) / C;
    constexpr int TERMS = ((K + PARTS - 1) / PARTS + LANES - 1) / LANES;
    static_assert(WARPS * R * C <= ROOM, "shared memory is too small");
    const int thread = this_thread(), group = tile * WARPS + thread / LANES;
    struct Element { int group, part, m, n; };
    const auto element = [&](int e) {
        const int its = tile * WARPS + e / (R * C), place = e % (R * C);
        return Element{its, its / (DOWN * ACROSS), its / ACROSS % DOWN * R + place / C, its % ACROSS * C + place % C};
    };
    const Element mine = element(thread);
    const auto first = early(least(mine.part, PARTS - 1), least(mine.m, M - 1), least(mine.n, N - 1));
    float sum[R][C] = {};
    if (group < DOWN * ACROSS * PARTS) {
        const int part = group / (DOWN * ACROSS);
        const int start = (int)((long long)K * part / PARTS), stop = (int)((long long)K * (part + 1) / PARTS);
        const int top = group / ACROSS % DOWN * R, left = group % ACROSS * C;
        typename A::Place rows[R];
        typename B::Place columns[C];
#pragma unroll
        for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i, M - 1));
#pragma unroll
        for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j, N - 1));
        add_terms<R, C, LANES, TERMS>(sum, a, b, rows, columns, start + thread % LANES, stop);
    }
    __syncthreads();
    constexpr int HELD = R * C > LANES ? R * C / LANES : 1, SAME = LANES / (R * C) > 1 ? LANES / (R * C) : 1;
    const int mine_of = totals_of_lanes<R * C, LANES / 2>(&sum[0][0], thread % LANES);
    if (thread % SAME == 0)
#pragma unroll
        for (int k = 0; k < HELD; k++) room[thread / LANES * (R * C) + mine_of + k] = (&sum[0][0])[k];
    __syncthreads();
#pragma unroll 1
    for (int e = thread; e < WARPS * R * C; e += THREADS) {
        const Element at = element(e);
        if (at.group < DOWN * ACROSS * PARTS && at.m < M && at.n < N)
            end(at.part, at.m, at.n, room[e], e < THREADS ? first : early(at.part, at.m, at.n));
    }
}
