// One tile of a matrix product, c (M, N) = a (M, K) b (K, N), by a whole block on tensor cores.
//
// An operand's rows are consecutive (`Rows`) or selected by index (`Indexed`). ALONG: they run
// along K; otherwise along M or N. Their length is a multiple of four floats. With ONES, the rows
// of a run along M and are followed by a column of ones, so that the last row of c is the sum of
// b's rows.
//
// The block's warps are WM x WN x WK. A warp computes its share of RM x RN results of 16 x 8: WK
// warps split each sum, so that a warp has many results for the numbers that it reads, while tiles
// stay small enough for every multiprocessor to have one. Chunks of DEEP along K are loaded while
// one is in use; there are STAGES of them.
//
// Tensor cores round their factors to 11 bits. With EXACT, every number is passed in two parts,
// which have at least 22 bits together, and the product of the two lower parts is left out: nearly
// as precise as float32, at a third of the tensor cores' speed.

// A number rounded to 11 bits: 8193 times the number, minus 8192 times it. The conversion
// instruction takes five instructions on an H200; this takes two, for numbers below 4e34.
__device__ __forceinline__ float upper(float number)
{
    return __fmaf_rn(number, -8192.0f, __fmaf_rn(number, 8192.0f, number));
}

__device__ __forceinline__ void multiply(
    float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A row pitch, at least `length`, whose multiples by 0 to 3 are eight banks apart.
__device__ constexpr int spread(int length)
{
    const int over = length % 32;
    return over <= 8 ? length - over + 8 : over <= 24 ? length - over + 24 : length - over + 40;
}

struct Rows {
    const float* from;

    __device__ __forceinline__ long long operator()(int i) const { return i; }
};

struct Indexed {
    const float* from;
    const long long* which;

    __device__ __forceinline__ long long operator()(int i) const { return which[i]; }
};

// One operand's part of a chunk: SIZE along M or N. A thread reads pairs of neighbours along K; the
// four threads of a group cover eight numbers of K, for both operands.
template <int LENGTH, int K, bool ALONG, int SIZE, int DEEP, bool ONES = false> struct Operand {
    // Four threads along K and eight across, or vice versa, use different banks.
    static constexpr int PITCH = ALONG ? spread(DEEP) : spread(2 * SIZE) / 2;
    static constexpr int FLOATS = (ALONG ? SIZE : DEEP) * PITCH;
    static constexpr int ROWS = ALONG ? LENGTH : K, LINE = ALONG ? K : rounded(LENGTH, 4);

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
            const bool whole = LINE % (4 * WIDE) == 0 && !ONES;  // the ones may begin a tile
            const bool inside = (ROWS % HIGH == 0 || top + r < ROWS) && (whole || left + c < LINE);
            if (ONES && left + c == LENGTH)
                *(float4*)(to + r * PITCH + c) = {top + r < K ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
            else
                copy_async(to + r * PITCH + c,
                    inside ? row.from + row(top + r) * LINE + left + c : row.from, inside);
        }
    }

    // The offset of the number at `place` along M or N and at k.
    static __device__ constexpr int at(int place, int k)
    {
        return ALONG ? place * PITCH + k : k * PITCH + place;
    }

    // The pair along K that starts at this address.
    static __device__ __forceinline__ float2 pair(const float* there)
    {
        if constexpr (ALONG) return *(const float2*)there;
        return {there[0], there[PITCH]};
    }
};

// Contiguous floats.
template <int COUNT> struct __align__(4 * COUNT) Some {
    float at[COUNT];

    __device__ __forceinline__ void operator+=(const Some& other)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) at[i] += other.at[i];
    }
};

// Eight numbers along K of R x 8 along M or N: the upper parts, and the remainders, of which tensor
// cores use the first 11 bits.
template <int R> struct Parts {
    unsigned high[R][2], low[R][2];

    template <class Of> __device__ __forceinline__ void take(const float* from)
    {
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float2 pair = Of::pair(from + Of::at(8 * r, 0));
            const float x = upper(pair.x), y = upper(pair.y);
            high[r][0] = __float_as_uint(x), high[r][1] = __float_as_uint(y);
            low[r][0] = __float_as_uint(pair.x - x), low[r][1] = __float_as_uint(pair.y - y);
        }
    }
};

template <int M, int N, int K, bool A_ALONG, bool B_ALONG, int WM, int WN, int RM, int RN, int DEEP,
          int STAGES, bool ONES = false>
struct Product {
    static constexpr int HIGH = M, LINE = N;
    static constexpr int WK = THREADS / 32 / (WM * WN), TM = 16 * WM * RM, TN = 8 * WN * RN;
    static constexpr int ACROSS = (N + TN - 1) / TN, TILES = (M + TM - 1) / TM * ACROSS;
    static constexpr int CHUNKS = (K + DEEP - 1) / DEEP;
    using A = Operand<ONES ? M - 1 : M, K, A_ALONG, TM, DEEP, ONES>;
    using B = Operand<N, K, B_ALONG, TN, DEEP>;
    static constexpr int STAGE = A::FLOATS + B::FLOATS;
    static constexpr int ROW = spread(TN), SHARE = TM * ROW;  // of the shares of all results

    // Contiguous results of a thread; the length of c's rows is a multiple of it.
    static constexpr int CONTIGUOUS = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
    static constexpr int PIECES = TM * TN / CONTIGUOUS, EACH = (PIECES + THREADS - 1) / THREADS;
    static constexpr int WIDE = TN / CONTIGUOUS;  // pieces in a row
    using Piece = Some<CONTIGUOUS>;

    // Calls use(m, n, sums, early(m, n)) for every piece of tile `t`. The loads of `early` overlap
    // the computation. Layers of the same shape share this function: separate code for every layer
    // would miss the instruction cache in every step.
    template <class RowA, class RowB, class Early, class Use>
    static __device__ __noinline__ void tile(int t, RowA a, RowB b, Early early, Use use)
    {
        extern __shared__ __align__(16) float room[];
        const int top = t / ACROSS * TM, left = t % ACROSS * TN;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int wk = warp % WK, wn = warp / WK % WN, wm = warp / WK / WN;
        decltype(early(0, 0)) there[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, m = top + i / WIDE, n = left + i % WIDE * CONTIGUOUS;
            if (i < PIECES && m < M && n < N) there[e] = early(m, n);
        }
        float sums[RM][RN][4] = {};
#pragma unroll 1
        for (int chunk = 1 - STAGES; chunk < CHUNKS; chunk++) {
            if (chunk >= 0) {
                wait_for_copies<STAGES - 2>();
                __syncthreads();
            }
            const int next = chunk + STAGES - 1;
            if (next < CHUNKS) {
                float* stage = room + next % STAGES * STAGE;
                A::fetch(stage, top, next * DEEP, a);
                B::fetch(stage + A::FLOATS, left, next * DEEP, b);
            }
            commit_copies();
            if (chunk < 0) continue;
            const int k = 8 * wk + lane % 4 * 2, terms = least(DEEP, K - chunk * DEEP) - 8 * wk;
            const float* stage = room + chunk % STAGES * STAGE;
            const float* x = stage + A::at(16 * RM * wm + lane / 4, k);
            const float* y = stage + A::FLOATS + B::at(8 * RN * wn + lane / 4, k);
#pragma unroll
            for (int done = 0; done < DEEP; done += 8 * WK)
                if (done < terms) add(sums, x + A::at(0, done), y + B::at(0, done));
        }
        wait_for_copies<0>();
        __syncthreads();
        float* share = room + wk * SHARE + (16 * RM * wm + lane / 4) * ROW + 8 * RN * wn;
#pragma unroll
        for (int i = 0; i < RM; i++)
#pragma unroll
            for (int j = 0; j < RN; j++) {
                float* place = share + 16 * i * ROW + 8 * j + lane % 4 * 2;
                *(float2*)place = {sums[i][j][0], sums[i][j][1]};
                *(float2*)(place + 8 * ROW) = {sums[i][j][2], sums[i][j][3]};
            }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = threadIdx.x + e * THREADS, m = top + i / WIDE, n = left + i % WIDE * CONTIGUOUS;
            if (i >= PIECES || m >= M || n >= N) continue;
            Piece all = {};
#pragma unroll
            for (int share = 0; share < WK; share++)
                all += *(const Piece*)(room + share * SHARE + i / WIDE * ROW + i % WIDE * CONTIGUOUS);
            use(m, n, all, there[e]);
        }
        __syncthreads();
    }

    // Eight terms of a warp's sums, the small parts first.
    static __device__ __forceinline__ void add(
        float (&sums)[RM][RN][4], const float* rows, const float* columns)
    {
        Parts<2 * RM> x;
        Parts<RN> y;
        x.template take<A>(rows);
        y.template take<B>(columns);
        if constexpr (EXACT) {
            each(sums, x.low, y.high);
            each(sums, x.high, y.low);
        }
        each(sums, x.high, y.high);
    }

    static __device__ __forceinline__ void each(
        float (&sums)[RM][RN][4], const unsigned (&a)[2 * RM][2], const unsigned (&b)[RN][2])
    {
#pragma unroll
        for (int i = 0; i < RM; i++) {
            const unsigned rows[4] = {a[2 * i][0], a[2 * i + 1][0], a[2 * i][1], a[2 * i + 1][1]};
#pragma unroll
            for (int j = 0; j < RN; j++) multiply(sums[i][j], rows, b[j]);
        }
    }
};
