// One tile of a matrix product, c (M, N) = a (M, K) b (K, N), by a whole block.
//
// Operands are given by their rows in memory, as functions from a row's number to its address, so
// that a row may be an image picked from many. ALONG says that rows run along K; else they run
// along M or N. Rows are a multiple of four floats long and what is behind them is not read. With
// ONES, a has one more column of ones behind its rows, which then run along M: the last row of c is
// the sum of b's rows.
//
// The block's warps are WM x WN x WK, a warp's threads LM x LN x LK, and a thread has RM x RN
// results, or rather its share of them: WK * LK threads split each sum. So a thread's results can
// be many, which is what keeps the multipliers busy (it reads RM + RN numbers for RM * RN products)
// while a tile is small enough for every multiprocessor to have one. A chunk of DEEP along K is on
// its way while the one before is at work; more of them at once were not faster.

template <int COUNT> __device__ __forceinline__ void read(float* to, const float* from)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1) {
        if constexpr (COUNT % 4 == 0)
            *(float4*)(to + i) = *(const float4*)(from + i);
        else if constexpr (COUNT % 2 == 0)
            *(float2*)(to + i) = *(const float2*)(from + i);
        else
            to[i] = from[i];
    }
}

// One operand's part of a chunk: SIZE along M or N, LANES threads of a warp with R each.
template <int LENGTH, int K, bool ALONG, int SIZE, int DEEP, int LANES, int R, bool ONES = false>
struct Operand {
    // Along K, four floats more than a multiple of 32: neighbours then use other banks.
    static constexpr int PITCH = ALONG ? DEEP + 4 : SIZE;
    static constexpr int FLOATS = ALONG ? SIZE * PITCH : DEEP * PITCH;

    template <class Row>
    static __device__ __forceinline__ void fetch(float* to, int first, int deep, Row row)
    {
        constexpr int WIDE = (ALONG ? DEEP : SIZE) / 4, HIGH = ALONG ? SIZE : DEEP;
        const int top = ALONG ? first : deep, left = ALONG ? deep : first;
#pragma unroll
        for (int begin = 0; begin < WIDE * HIGH; begin += THREADS) {
            const int i = begin + threadIdx.x;
            if (begin + THREADS > WIDE * HIGH && i >= WIDE * HIGH) break;
            const int r = i / WIDE, c = i % WIDE * 4;
            const bool inside = top + r < (ALONG ? LENGTH : K) && left + c < (ALONG ? K : LENGTH);
            if (ONES && left + c == LENGTH)
                *(float4*)(to + r * PITCH + c) = {top + r < K ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
            else
                ask(to + r * PITCH + c, inside ? row(top + r) + left + c : row(0), inside);
        }
    }

    // Where a thread's result i is, from the beginning of its warp's part.
    static __device__ __forceinline__ int place(int lane, int i)
    {
        return ALONG ? i * LANES + lane : lane * R + i;
    }

    // A thread's numbers for four steps along K.
    static __device__ __forceinline__ void take(
        float (&to)[R][4], const float* chunk, int begin, int lane, int k)
    {
        if constexpr (ALONG) {
#pragma unroll
            for (int i = 0; i < R; i++)
                read<4>(to[i], chunk + (begin + place(lane, i)) * PITCH + k);
        } else {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                float numbers[R];
                read<R>(numbers, chunk + (k + q) * PITCH + begin + lane * R);
#pragma unroll
                for (int i = 0; i < R; i++) to[i][q] = numbers[i];
            }
        }
    }
};

template <int M, int N, int K, bool A_ALONG, bool B_ALONG, int WM, int WN, int LM, int LN, int RM,
          int RN, int DEEP, bool ONES = false>
struct Product {
    static constexpr int WK = THREADS / 32 / (WM * WN), LK = 32 / (LM * LN), SHARES = WK * LK;
    static constexpr int TM = WM * LM * RM, TN = WN * LN * RN;
    static constexpr int ACROSS = (N + TN - 1) / TN, TILES = (M + TM - 1) / TM * ACROSS;
    static constexpr int CHUNKS = (K + DEEP - 1) / DEEP, EACH = (TM * TN + THREADS - 1) / THREADS;
    using A = Operand<ONES ? M - 1 : M, K, A_ALONG, TM, DEEP, LM, RM, ONES>;
    using B = Operand<N, K, B_ALONG, TN, DEEP, LN, RN>;
    static constexpr int STAGE = A::FLOATS + B::FLOATS;
    // Of the shares of all results, one float longer than need be: neighbours use other banks.
    static constexpr int ROW = TN + 1, SHARE = TM * ROW + 1;

    // use(m, n, sum, early(m, n)) for every result of tile `t`. What `early` reads is on its way
    // all the while. `room` is shared memory.
    template <class RowA, class RowB, class Early, class Use>
    static __device__ __forceinline__ void tile(
        int t, RowA a, RowB b, float* room, Early early, Use use)
    {
        const int top = t / ACROSS * TM, left = t % ACROSS * TN;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int wk = warp % WK, wn = warp / WK % WN, wm = warp / WK / WN;
        const int lm = lane % LM, ln = lane / LM % LN, lk = lane / LM / LN;
        auto fetch = [&](int chunk) {
            float* stage = room + chunk % 2 * STAGE;
            A::fetch(stage, top, chunk * DEEP, a);
            B::fetch(stage + A::FLOATS, left, chunk * DEEP, b);
            asked();
        };
        fetch(0);
        decltype(early(0, 0)) there[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, m = top + i / TN, n = left + i % TN;
            if (i < TM * TN && m < M && n < N) there[e] = early(m, n);
        }
        float sums[RM][RN] = {};
        // Threads that split a sum take every SHARES-th four of its terms; those of one warp are
        // APART fours apart, for the sake of the banks.
        constexpr int APART = least(LM, WK);
        const int mine = 4 * (wk % APART + APART * lk + APART * LK * (wk / APART));
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            arrived<0>();
            __syncthreads();
            if (chunk + 1 < CHUNKS) fetch(chunk + 1);
            const float* stage = room + chunk % 2 * STAGE;
            const int deep = least(DEEP, K - chunk * DEEP);
            for (int k = mine; k < deep; k += 4 * SHARES) {
                float x[RM][4], y[RN][4];
                A::take(x, stage, wm * LM * RM, lm, k);
                B::take(y, stage + A::FLOATS, wn * LN * RN, ln, k);
#pragma unroll
                for (int q = 0; q < 4; q++)
#pragma unroll
                    for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int j = 0; j < RN; j++) sums[i][j] += x[i][q] * y[j][q];
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RM; i++)
#pragma unroll
            for (int j = 0; j < RN; j++) {
                const int m = wm * LM * RM + A::place(lm, i), n = wn * LN * RN + B::place(ln, j);
                room[(wk * LK + lk) * SHARE + m * ROW + n] = sums[i][j];
            }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, m = top + i / TN, n = left + i % TN;
            if (i >= TM * TN || m >= M || n >= N) continue;
            float sum = 0.0f;
#pragma unroll
            for (int share = 0; share < SHARES; share++)
                sum += room[share * SHARE + i / TN * ROW + i % TN];
            use(m, n, sum, there[e]);
        }
        __syncthreads();
    }
};
