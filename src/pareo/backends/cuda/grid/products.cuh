// Products of M x K by K x N elements. An operand has a place for each row or column and a key for each
// term; both together name an element.
#pragma once

// A matrix with STRIDE elements from row to row and STEP from term to term.
template <int STRIDE, int STEP> struct Matrix {
    const float* at;
    using Place = int;
    __device__ int place(int i) const { return i * STRIDE; }
    __device__ int key(int k) const { return k * STEP; }
    __device__ float get(int place, int key) const { return at[place + key]; }
};

// Adds every STEP-th term from `first` on, up to `stop`, to R x C sums. AHEAD terms are loaded at once.
template <int R, int C, int STEP, int AHEAD, class A, class B> __device__ inline void add_terms(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int first, int stop)
{
#pragma unroll AHEAD
    for (int k = first; k < stop; k += STEP) {
        const auto key_a = a.key(k);
        const auto key_b = b.key(k);
        float left[R], right[C];
#pragma unroll
        for (int i = 0; i < R; i++) left[i] = a.get(rows[i], key_a);
#pragma unroll
        for (int j = 0; j < C; j++) right[j] = b.get(columns[j], key_b);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) sum[i][j] += left[i] * right[j];
    }
}

// HIGH x WIDE threads have R x C sums each; the others of the block share their terms, so that the sums
// of a tile are added up in `room`. Then `end` is called with the row, the column and the sum of each
// element, and with what `early` read for it.
template <int M, int N, int K, int R, int C, int HIGH, int WIDE, class A, class B, class Early, class End>
__device__ inline void product(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int SPLIT = THREADS / (HIGH * WIDE), TALL = R * HIGH, BROAD = C * WIDE, COUNT = TALL * BROAD;
    constexpr int ACROSS = (N + BROAD - 1) / BROAD, TERMS = (K + SPLIT - 1) / SPLIT;
    const int x = threadIdx.x % WIDE, y = threadIdx.x / WIDE % HIGH, share = threadIdx.x / (HIGH * WIDE);
    const int first_row = tile / ACROSS * TALL, first_column = tile % ACROSS * BROAD;
    const auto first = early(least(first_row + threadIdx.x / BROAD, M - 1),
                             least(first_column + threadIdx.x % BROAD, N - 1));
    const int top = first_row + y, left = first_column + x;
    typename A::Place rows[R];
    typename B::Place columns[C];
    float sum[R][C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i * HIGH, M - 1));
#pragma unroll
    for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j * WIDE, N - 1));
    constexpr int AHEAD = TERMS < 4 ? TERMS : R * C > 4 ? 4 : 8;
    add_terms<R, C, SPLIT, AHEAD>(sum, a, b, rows, columns, share, K);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) room[share * COUNT + (y + i * HIGH) * BROAD + x + j * WIDE] = sum[i][j];
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < COUNT; e += THREADS) {
        const int m = first_row + e / BROAD, n = first_column + e % BROAD;
        if (m >= M || n >= N) continue;
        float total = 0;
#pragma unroll 8
        for (int part = 0; part < SPLIT; part++) total += room[part * COUNT + e];
        end(m, n, total, e < THREADS ? first : early(m, n));
    }
}

// A warp has R x C sums, and one of PARTS parts of their terms, which lie side by side.
template <int M, int N, int K, int R, int C, int PARTS, class A, class B, class Early, class End>
__device__ inline void product_of_lanes(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int DOWN = (M + R - 1) / R, ACROSS = (N + C - 1) / C, TERMS = (K / PARTS + LANES - 1) / LANES;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, group = tile * WARPS + warp;
    struct Element { int group, part, m, n; };
    const auto element = [&](int e) {
        const int its = tile * WARPS + e / (R * C), place = e % (R * C);
        return Element{its, its / (DOWN * ACROSS), its / ACROSS % DOWN * R + place / C, its % ACROSS * C + place % C};
    };
    const Element mine = element(threadIdx.x);
    const auto first = early(least(mine.part, PARTS - 1), least(mine.m, M - 1), least(mine.n, N - 1));
    __syncthreads();
    if (group < DOWN * ACROSS * PARTS) {
        const int part = group / (DOWN * ACROSS);
        const int top = group / ACROSS % DOWN * R, left = group % ACROSS * C;
        const int start = (int)((long long)K * part / PARTS), stop = (int)((long long)K * (part + 1) / PARTS);
        typename A::Place rows[R];
        typename B::Place columns[C];
        float sum[R][C] = {};
#pragma unroll
        for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i, M - 1));
#pragma unroll
        for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j, N - 1));
        constexpr int AHEAD = TERMS < 2 ? 1 : TERMS < 4 ? TERMS : R * C > 4 ? 4 : 8;
        add_terms<R, C, LANES, AHEAD>(sum, a, b, rows, columns, start + lane, stop);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) {
                const float total = total_of_lanes(sum[i][j]);
                if (lane == 0) room[warp * (R * C) + i * C + j] = total;
            }
    }
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < WARPS * R * C; e += THREADS) {
        const Element at = element(e);
        if (at.group < DOWN * ACROSS * PARTS && at.m < M && at.n < N)
            end(at.part, at.m, at.n, room[e], e < THREADS ? first : early(at.part, at.m, at.n));
    }
}
