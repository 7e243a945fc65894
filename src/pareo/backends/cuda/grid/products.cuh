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
struct Dense {  // the same, as sizes that are not known to the compiler
    const float* at;
    int stride, step;
    template <int STRIDE, int STEP> __device__ Dense(Matrix<STRIDE, STEP> one) : at(one.at), stride(STRIDE), step(STEP) {}
    using Place = int;
    __device__ int place(int i) const { return i * stride; }
    __device__ int key(int k) const { return k * step; }
    __device__ float get(int place, int key) const { return at[place + key]; }
};

const int AT_ONCE = 32;  // floats that a thread reads at once, at most
template <int R, int C> __device__ constexpr int most_ahead() { return AT_ONCE / (R + C); }

// Adds AHEAD terms, every STEP-th one from `start` on, to R x C sums. Those beyond `stop` are read at its
// place and left out, if there may be any: no read waits for another.
template <int R, int C, int AHEAD, bool WHOLE, class A, class B> __device__ inline void add_some(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int start, int step, int stop)
{
    float left[AHEAD][R], right[AHEAD][C];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const bool inside = WHOLE || start + u * step < stop;
        const int k = inside ? start + u * step : start;
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
// Adds every `step`-th term from `first` on, up to `stop`, of which AHEAD are read at once.
template <int R, int C, int AHEAD, class A, class B> __device__ inline void add_terms(
    float (&sum)[R][C], const A& a, const B& b, const typename A::Place (&rows)[R],
    const typename B::Place (&columns)[C], int first, int step, int stop)
{
    int start = first;
    if (AHEAD > 4 || R * C > 4)
#pragma unroll 1
        for (; start + (AHEAD - 1) * step < stop; start += AHEAD * step)
            add_some<R, C, AHEAD, true>(sum, a, b, rows, columns, start, step, stop);
#pragma unroll 1
    for (; start < stop; start += AHEAD * step)
        add_some<R, C, AHEAD, false>(sum, a, b, rows, columns, start, step, stop);
}

// `high` x `wide` threads have R x C sums each, of the tile from a row and a column on; the others of the
// block share their terms. Writes the sums of each thread to `room`: first one of each thread, and so on.
template <int R, int C, int AHEAD, class A, class B> __device__ inline void sums_of_threads(
    float* room, const A& a, const B& b, int m, int n, int k, int first_row, int first_column, int high, int wide)
{
    const int x = threadIdx.x & (wide - 1), y = threadIdx.x / wide & (high - 1), share = threadIdx.x / (high * wide);
    const int top = first_row + y, left = first_column + x;
    typename A::Place rows[R];
    typename B::Place columns[C];
    float sum[R][C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i * high, m - 1));
#pragma unroll
    for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j * wide, n - 1));
    add_terms<R, C, AHEAD>(sum, a, b, rows, columns, share, THREADS / (high * wide), k);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) room[(i * C + j) * THREADS + threadIdx.x] = sum[i][j];
    __syncthreads();
}
// Products of matrices share this code: it is larger than what instructions are cached in otherwise.
template <int R, int C, int AHEAD> __device__ __noinline__ void dense_sums_of_threads(
    float* room, Dense a, Dense b, int m, int n, int k, int first_row, int first_column, int high, int wide)
{
    sums_of_threads<R, C, AHEAD>(room, a, b, m, n, k, first_row, first_column, high, wide);
}
template <int R, int C, int TERMS, class A, class B> struct SumsOfThreads {
    static constexpr int MOST = most_ahead<R, C>(), ROUNDS = (TERMS + MOST - 1) / MOST;
    template <class... More> __device__ static inline void write(float* room, const A& a, const B& b, More... more)
    {
        sums_of_threads<R, C, (TERMS + ROUNDS - 1) / ROUNDS>(room, a, b, more...);
    }
};
template <int R, int C, int TERMS, int S, int T, int U, int V> struct SumsOfThreads<R, C, TERMS, Matrix<S, T>, Matrix<U, V>> {
    template <class... More>
    __device__ static inline void write(float* room, Matrix<S, T> a, Matrix<U, V> b, More... more)
    {
        constexpr int MOST = most_ahead<R, C>();
        dense_sums_of_threads<R, C, TERMS <= 2 ? 2 : TERMS <= 4 || MOST <= 4 ? 4 : MOST>(room, a, b, more...);
    }
};

__device__ __noinline__ float sum_of_parts(const float* part, int apart, int count)
{
    float sum = 0;
#pragma unroll 8
    for (int p = 0; p < count; p++) sum += part[p * apart];
    return sum;
}

// A tile of a product: `end` is called with the row, the column and the sum of each element, and with what
// `early` read for it before.
template <int M, int N, int K, int R, int C, int HIGH, int WIDE, class A, class B, class Early, class End>
__device__ inline void product(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int SIDE = HIGH * WIDE, SPLIT = THREADS / SIDE, COUNT = R * C * SIDE;
    constexpr int ACROSS = (N + C * WIDE - 1) / (C * WIDE), TERMS = (K + SPLIT - 1) / SPLIT;
    constexpr int EACH = (COUNT + THREADS - 1) / THREADS, SOME = EACH < 4 ? EACH : 4;
    const int first_row = tile / ACROSS * (R * HIGH), first_column = tile % ACROSS * (C * WIDE);
    const auto row = [&](int e) { return first_row + e / WIDE % HIGH + e / SIDE / C * HIGH; };
    const auto column = [&](int e) { return first_column + e % WIDE + e / SIDE % C * WIDE; };
    decltype(early(0, 0)) given[SOME];
    const auto read = [&](int start) {
#pragma unroll
        for (int some = 0; some < SOME; some++) {
            const int e = least((start + some) * THREADS + threadIdx.x, COUNT - 1);
            given[some] = early(least(row(e), M - 1), least(column(e), N - 1));
        }
    };
    read(0);
    SumsOfThreads<R, C, TERMS, A, B>::write(room, a, b, M, N, K, first_row, first_column, HIGH, WIDE);
#pragma unroll 1
    for (int start = 0; start < EACH; start += SOME) {
        if (start) read(start);
#pragma unroll
        for (int some = 0; some < SOME; some++) {
            const int e = (start + some) * THREADS + threadIdx.x, m = row(e), n = column(e);
            if (e < COUNT && m < M && n < N)
                end(m, n, sum_of_parts(room + e / SIDE * THREADS + e % SIDE, SIDE, SPLIT), given[some]);
        }
    }
}

// A warp has R x C sums of some terms, which lie side by side. Writes them to `room`.
template <int R, int C, int AHEAD, class A, class B> __device__ inline void sums_of_warp(
    float* room, const A& a, const B& b, int m, int n, int top, int left, int start, int stop)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    typename A::Place rows[R];
    typename B::Place columns[C];
    float sum[R][C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) rows[i] = a.place(least(top + i, m - 1));
#pragma unroll
    for (int j = 0; j < C; j++) columns[j] = b.place(least(left + j, n - 1));
    add_terms<R, C, AHEAD>(sum, a, b, rows, columns, start + lane, LANES, stop);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) {
            const float total = total_of_lanes(sum[i][j]);
            if (lane == 0) room[warp * (R * C) + i * C + j] = total;
        }
}
template <int R, int C, int AHEAD> __device__ __noinline__ void dense_sums_of_warp(
    float* room, Dense a, Dense b, int m, int n, int top, int left, int start, int stop)
{
    sums_of_warp<R, C, AHEAD>(room, a, b, m, n, top, left, start, stop);
}
template <int R, int C, int TERMS, class A, class B> struct SumsOfWarp {
    static constexpr int MOST = most_ahead<R, C>(), ROUNDS = (TERMS + MOST - 1) / MOST;
    template <class... More> __device__ static inline void write(float* room, const A& a, const B& b, More... more)
    {
        sums_of_warp<R, C, (TERMS + ROUNDS - 1) / ROUNDS>(room, a, b, more...);
    }
};
template <int R, int C, int TERMS, int S, int T, int U, int V> struct SumsOfWarp<R, C, TERMS, Matrix<S, T>, Matrix<U, V>> {
    template <class... More>
    __device__ static inline void write(float* room, Matrix<S, T> a, Matrix<U, V> b, More... more)
    {
        constexpr int MOST = most_ahead<R, C>();
        dense_sums_of_warp<R, C, TERMS <= 2 ? 2 : TERMS <= 4 || MOST <= 4 ? 4 : MOST>(room, a, b, more...);
    }
};

// The same with a warp for R x C sums, and for one of PARTS parts of their terms.
template <int M, int N, int K, int R, int C, int PARTS, class A, class B, class Early, class End>
__device__ inline void product_of_lanes(int tile, float* room, const A a, const B b, Early early, End end)
{
    constexpr int DOWN = (M + R - 1) / R, ACROSS = (N + C - 1) / C;
    constexpr int TERMS = ((K + PARTS - 1) / PARTS + LANES - 1) / LANES;
    const int group = tile * WARPS + threadIdx.x / LANES;
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
        const int start = (int)((long long)K * part / PARTS), stop = (int)((long long)K * (part + 1) / PARTS);
        SumsOfWarp<R, C, TERMS, A, B>::write(
            room, a, b, M, N, group / ACROSS % DOWN * R, group % ACROSS * C, start, stop);
    }
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < WARPS * R * C; e += THREADS) {
        const Element at = element(e);
        if (at.group < DOWN * ACROSS * PARTS && at.m < M && at.n < N)
            end(at.part, at.m, at.n, room[e], e < THREADS ? first : early(at.part, at.m, at.n));
    }
}
