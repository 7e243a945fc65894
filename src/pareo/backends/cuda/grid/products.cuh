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

const int AT_ONCE = 32;  // floats that a thread reads at once

// Adds every STEP-th term from `first` on, up to `stop`, to R x C sums: at most TERMS, of which AHEAD are
// read at once. Terms beyond `stop` are read at its place and left out, so that no read waits for another.
template <int R, int C, int STEP, int TERMS, class A, class B> __device__ inline void add_terms(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int first, int stop)
{
    constexpr int MOST = AT_ONCE / (R + C), ROUNDS = (TERMS + MOST - 1) / MOST, AHEAD = (TERMS + ROUNDS - 1) / ROUNDS;
    for (int start = first; start < stop; start += AHEAD * STEP) {
        float left[AHEAD][R], right[AHEAD][C];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool inside = start + u * STEP < stop;
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
}

// HIGH x WIDE threads have R x C sums each; the others of the block share their terms, and the sums are
// added up in `room`. Then `end` is called with the row, the column and the sum of each element, and with
// what `early` read for it before.
template <int M, int N, int K, int R, int C, int HIGH, int WIDE, class A, class B, class Early, class End>
__device__ inline void product(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int SPLIT = THREADS / (HIGH * WIDE), TALL = R * HIGH, BROAD = C * WIDE, COUNT = TALL * BROAD;
    constexpr int ACROSS = (N + BROAD - 1) / BROAD, TERMS = (K + SPLIT - 1) / SPLIT;
    // Where nobody shares terms, a thread ends its own sums; otherwise EACH of all.
    constexpr int EACH = SPLIT == 1 ? R * C : (COUNT + THREADS - 1) / THREADS;
    const int x = threadIdx.x % WIDE, y = threadIdx.x / WIDE % HIGH, share = threadIdx.x / (HIGH * WIDE);
    const int first_row = tile / ACROSS * TALL, first_column = tile % ACROSS * BROAD;
    const int top = first_row + y, left = first_column + x;
    const auto row_of = [&](int e) { return SPLIT == 1 ? top + e / C * HIGH : first_row + (e * THREADS + threadIdx.x) / BROAD; };
    const auto column_of = [&](int e) { return SPLIT == 1 ? left + e % C * WIDE : first_column + (e * THREADS + threadIdx.x) % BROAD; };
    decltype(early(0, 0)) given[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) given[e] = early(least(row_of(e), M - 1), least(column_of(e), N - 1));
    typename A::Place rows[R];
    typename B::Place columns[C];
    float sum[R][C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i * HIGH, M - 1));
#pragma unroll
    for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j * WIDE, N - 1));
    add_terms<R, C, SPLIT, TERMS>(sum, a, b, rows, columns, share, K);
    if (SPLIT > 1) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) room[share * COUNT + (y + i * HIGH) * BROAD + x + j * WIDE] = sum[i][j];
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int place = e * THREADS + threadIdx.x, m = row_of(e), n = column_of(e);
        if ((SPLIT > 1 && place >= COUNT) || m >= M || n >= N) continue;
        float total = SPLIT == 1 ? sum[e / C][e % C] : 0;
        if (SPLIT > 1)
#pragma unroll 8
            for (int part = 0; part < SPLIT; part++) total += room[part * COUNT + place];
        end(m, n, total, given[e]);
    }
}

// A warp has R x C sums, and one of PARTS parts of their terms, which lie side by side.
template <int M, int N, int K, int R, int C, int PARTS, class A, class B, class Early, class End>
__device__ inline void product_of_lanes(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int DOWN = (M + R - 1) / R, ACROSS = (N + C - 1) / C, TERMS = ((K + PARTS - 1) / PARTS + LANES - 1) / LANES;
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
        add_terms<R, C, LANES, TERMS>(sum, a, b, rows, columns, start + lane, stop);
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
