// Direct convolutions: a block copies the rows of images that its results need to shared memory, a few
// channels at a time. A thread has some results side by side, which share the pixels that it reads, for
// some filters, which share them, too.
#pragma once

// More unrolled code would be slower: what does not fit the cache of instructions is read again in each step.
const int UNROLLED = 200, COPIED = 64;  // multiplications of a thread, and copies

// A convolution of S, and the gradient of its images as a convolution of errors; of a group of channels.
// There are CI channels and CO filters; HIGH rows of an image, with those outside of it, are read.
template <class S> struct Forward {
    static const int M = S::M, C = S::C, CI = S::CG, CO = S::FG, H = S::H, W = S::W, OH = S::OH, OW = S::OW;
    static const int KH = S::KH, KW = S::KW, TAPS = S::TAPS, SY = S::SY, SX = S::SX, TOP = S::TOP, LEFT = S::LEFT;
    static const int HIGH = (OH - 1) * SY + KH;
    static const int CHANNEL = TAPS;  // from the filters of one channel to those of the next one
    __device__ static int filter(int f, int c, int tap) { return (f * CI + c) * TAPS + tap; }
};
template <class S> struct Backward {
    static const int M = S::M, C = S::F, CI = S::FG, CO = S::CG, H = S::OH, W = S::OW, OH = S::H, OW = S::W;
    static const int KH = S::KH, KW = S::KW, TAPS = S::TAPS, SY = 1, SX = 1, TOP = KH - 1 - S::TOP, LEFT = KW - 1 - S::LEFT;
    static const int HIGH = OH - 1 + KH;
    static_assert(S::SY == 1 && S::SX == 1, "windows of a gradient lie side by side");
    static const int CHANNEL = CO * TAPS;
    __device__ static int filter(int f, int c, int tap) { return (c * CO + f) * TAPS + TAPS - 1 - tap; }
};
// The rows, of all images one under another, that ROWS rows of results need.
template <class D> __device__ constexpr int span_of(int rows)
{
    return (rows - 1) * D::SY + D::KH + (rows - 1 + D::OH - 1) / D::OH * (D::KH > D::SY ? D::KH - D::SY : 0);
}
__device__ constexpr int threads_of(int pixels)
{
    int threads = THREADS;
    while (threads > 1 && threads / 2 >= pixels) threads /= 2;
    return threads;
}

const int OUTSIDE = 1 << 30;

// Copies of SIZE pixels of each channel. `from` is where a thread finds its pixels, from a place in the
// first channel on; one is outside of the image unless at + shift is in [0, LIMIT).
template <int SIZE> struct Copies {
    static constexpr int MANY = threads_of(SIZE), COUNT = (SIZE + MANY - 1) / MANY, AT_ONCE = THREADS / MANY;
    int from[COUNT], at[COUNT], thread;

    // where(e, from, at) finds pixel e.
    template <class Where> __device__ inline Copies(int thread, Where where) : thread(thread)
    {
#pragma unroll
        for (int u = 0; u < COUNT; u++) where(u * MANY + thread % MANY, from[u], at[u]);
    }
    // CHANNELS channels, each PIXELS after the one before, to places APART elements apart; with SOME, only
    // so many of them.
    template <int CHANNELS, int APART, int PIXELS, int LIMIT, bool SOME>
    __device__ inline void copy(float* to, const float* pixels, int shift, int some) const
    {
        const int first = thread / MANY;
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            const int e = u * MANY + thread % MANY;
            const float* const source = pixels + first * PIXELS + from[u];
            const bool inside = (unsigned)(at[u] + shift) < LIMIT;
            if (SIZE % MANY == 0 || e < SIZE)
#pragma unroll(COUNT * CHANNELS <= COPIED * AT_ONCE ? (CHANNELS + AT_ONCE - 1) / AT_ONCE : 1)
                for (int c = 0; c < CHANNELS; c += AT_ONCE)
                    if ((CHANNELS % AT_ONCE == 0 || first + c < CHANNELS) && (!SOME || first + c < some))
                        copy_later(to + (first + c) * APART + e, source + c * PIXELS, inside);
        }
    }
};

// The place for so many filters: neighbouring terms have other banks.
__device__ constexpr int place_of(int filters) { return filters % 8 == 0 ? filters + 4 : filters; }

// Copies of the filters of DEEP channels, EACH elements apart for each of HIGH threads, which have R. 32
// threads copy 4 filters' 8 terms.
template <class D, int R, int HIGH, int EACH, int DEEP> struct FilterCopies {
    static constexpr int ALL = HIGH * R, TERMS = DEEP * D::TAPS, SIDE = TERMS < 8 ? TERMS : 8;
    static constexpr int SIZE = (TERMS + SIDE - 1) / SIDE * SIDE * ALL, COUNT = (SIZE + THREADS - 1) / THREADS;
    static constexpr int FILTERS = place_of(HIGH * EACH), CHANNEL = D::TAPS * FILTERS;
    int from[COUNT], to[COUNT];  // -1 where there is none

    __device__ inline FilterCopies(int thread, int first)
    {
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            const int e = u * THREADS + thread, f = e / SIDE % ALL, term = e / (SIDE * ALL) * SIDE + e % SIDE;
            from[u] = D::filter(first + f, term / D::TAPS, term % D::TAPS);
            to[u] = term < TERMS && first + f < D::CO ? term * FILTERS + f / R * EACH + f % R : -1;
        }
    }
    template <bool SOME> __device__ inline void copy(float* room, const float* filters, int some) const
    {
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            if (to[u] >= 0 && (!SOME || to[u] < some * CHANNEL)) copy_later(room + to[u], filters + from[u], true);
    }
};

__device__ constexpr int rounded_to_4(int count) { return (count + 3) / 4 * 4; }
// Sums of a thread, of which there are `sums` rows of `each`, that are added up at once.
__device__ constexpr int rows_at_once(int sums, int each)
{
    int some = sums;
    while (some > 1 && (some * each > 8192 || sums % some)) some--;
    return some;
}

// Adds up the sums of SPLIT threads, APART elements apart: ROWS rows of COLUMNS elements. index(column) is
// what a column is called, or -1 if there is none; row(r) is what a row is called, of `rows` at most;
// place(r, column) is where the first sum is.
template <int ROWS, int COLUMNS, int SPLIT, int APART, class Index, class Row, class Place, class Early, class End>
__device__ inline void sums_of_shares(int thread, Index index, Row row, int rows, Place place, Early early, End end)
{
    constexpr int PASSES = (COLUMNS + THREADS - 1) / THREADS, SIDE = (COLUMNS + PASSES - 1) / PASSES, STEP = THREADS / SIDE;
    constexpr int EACH = (ROWS + STEP - 1) / STEP, MANY = EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : EACH < 3 ? EACH : 2;
    if (thread >= STEP * SIDE) return;
#pragma unroll 1
    for (int column = thread % SIDE; column < COLUMNS; column += SIDE) {
        const int n = index(column);
        if (n < 0) continue;
#pragma unroll 1
        for (int first = thread / SIDE; first < ROWS; first += MANY * STEP) {
            decltype(early(0, 0)) given[MANY];
            float total[MANY];
            int m[MANY];
#pragma unroll
            for (int u = 0; u < MANY; u++) {
                const int r = least(first + u * STEP, ROWS - 1);
                m[u] = first + u * STEP < ROWS ? row(r) : rows;
                given[u] = early(least(m[u], rows - 1), n);
                const float* const mine = place(r, column);
                total[u] = 0;
#pragma unroll 8
                for (int share = 0; share < SPLIT; share++) total[u] += mine[share * APART];
            }
#pragma unroll
            for (int u = 0; u < MANY; u++)
                if (m[u] < rows) end(m[u], n, total[u], given[u]);
        }
    }
}

// A tile: R filters and P pixels of each thread, the pixels of WIDE threads and the filters of HIGH threads;
// SPLIT threads share the channels, of which DEEP are copied at once.
template <class D, int R, int P, int WIDE, int HIGH, int SPLIT, int DEEP, class Early, class End>
__device__ inline void convolution(
    int tile, float* room, const float* images, const float* filters, Early early, End end)
{
    constexpr int ACROSS = (D::OW + P - 1) / P, GROUPS = D::M * D::OH * ACROSS, TILES = (GROUPS + WIDE - 1) / WIDE;
    constexpr int ROWS = WIDE % ACROSS == 0 ? WIDE / ACROSS : (WIDE + ACROSS - 2) / ACROSS + 1;
    constexpr int BROAD = ((ACROSS * P - 1) * D::SX + D::KW) | 1, LINE = (P - 1) * D::SX + D::KW;
    constexpr int SIZE = span_of<D>(ROWS) * BROAD, PIXELS = rounded_to_4(DEEP * SIZE), TAPS = D::TAPS;
    constexpr int EACH = R > 2 ? rounded_to_4(R) : R, FILTERS = place_of(HIGH * EACH), STAGE = PIXELS + rounded_to_4(DEEP * TAPS * FILTERS);
    constexpr bool SOME_CHANNELS = D::CI % DEEP != 0;
    static_assert(WIDE * HIGH * SPLIT <= THREADS && DEEP % SPLIT == 0, "all threads have as many channels");
    static_assert((D::CI > DEEP ? 2 : 1) * STAGE <= ROOM, "shared memory is too small");
    const int thread = this_thread(), first_group = tile % TILES * WIDE, first_filter = tile / TILES * (HIGH * R);
    const int first_row = first_group / ACROSS, first = first_row / D::OH * D::HIGH + first_row % D::OH * D::SY;
    const int wide = thread % WIDE, high = thread / WIDE % HIGH, share = thread / (WIDE * HIGH);
    float sum[R][P] = {};
    __syncthreads();
    {
        const int group = least(first_group + wide, GROUPS - 1), row = group / ACROSS;
        const int start = (row / D::OH * D::HIGH + row % D::OH * D::SY - first) * BROAD + group % ACROSS * (P * D::SX);
        const Copies<SIZE> pixels(thread, [&](int e, int& from, int& at) {
            const int row = first + e / BROAD, image = row / D::HIGH, y = row % D::HIGH - D::TOP, x = e % BROAD - D::LEFT;
            const bool inside = image < D::M && (unsigned)y < D::H && (unsigned)x < D::W;
            from = inside ? (image * D::C * D::H + y) * D::W + x : 0;
            at = inside ? 0 : OUTSIDE;
        });
        const FilterCopies<D, R, HIGH, EACH, DEEP> weights(thread, first_filter);
        const auto copy = [&](int c, float* to) {
            pixels.template copy<DEEP, SIZE, D::H * D::W, 1, SOME_CHANNELS>(to, images + c * D::H * D::W, 0, D::CI - c);
            weights.template copy<SOME_CHANNELS>(to + PIXELS, filters + c * D::CHANNEL, D::CI - c);
        };
        float *now = room + STAGE, *next = room;
#pragma unroll 1
        for (int c = -DEEP; c < D::CI; c += DEEP) {
            if (c + DEEP < D::CI) copy(c + DEEP, next);
            if (c >= 0 && (WIDE * HIGH * SPLIT == THREADS || share < SPLIT))
#pragma unroll(TAPS == 1 && R * P * DEEP / SPLIT <= 256 ? DEEP / SPLIT : 1)
                for (int i = 0; i < DEEP / SPLIT; i++) {
                    const int k = i * SPLIT + share;
                    if (SOME_CHANNELS && c + k >= D::CI) break;
                    const float* const lines = now + k * SIZE + start;
                    const float* const weights = now + PIXELS + k * TAPS * FILTERS + high * EACH;
#pragma unroll(TAPS * R * P <= UNROLLED ? D::KH : 1)
                    for (int y = 0; y < D::KH; y++) {
                        float line[LINE];
#pragma unroll
                        for (int i = 0; i < LINE; i++) line[i] = lines[y * BROAD + i];
#pragma unroll
                        for (int x = 0; x < D::KW; x++) {
                            float some[EACH];
                            read_aligned<EACH>(some, weights + (y * D::KW + x) * FILTERS);
#pragma unroll
                            for (int r = 0; r < R; r++)
#pragma unroll
                                for (int p = 0; p < P; p++) sum[r][p] += some[r] * line[p * D::SX + x];
                        }
                    }
                }
            wait_for_copies();
            __syncthreads();
            float* const done = now;
            now = next;
            next = done;
        }
    }
    constexpr int APART = WIDE + (P > 1 ? 32 / P : 0), SOME = rows_at_once(R, P * THREADS);
    static_assert(SPLIT * HIGH * SOME * P * APART <= ROOM, "shared memory is too small for the sums");
    const auto index = [&](int column) {
        const int group = first_group + column / P, x = group % ACROSS * P + column % P;
        return group < GROUPS && x < D::OW ? group / ACROSS * D::OW + x : -1;
    };
    const auto place = [&](int r, int column) { return room + (r * P + column % P) * APART + column / P; };
#pragma unroll
    for (int top = 0; top < R; top += SOME) {
        __syncthreads();
        if (share < SPLIT)
#pragma unroll
            for (int s = 0; s < SOME; s++)
#pragma unroll
                for (int p = 0; p < P; p++)
                    room[(((share * HIGH + high) * SOME + s) * P + p) * APART + wide] = sum[top + s][p];
        __syncthreads();
        const auto row = [&](int r) { return first_filter + r / SOME * R + top + r % SOME; };
        sums_of_shares<SOME * HIGH, WIDE * P, SPLIT, HIGH * SOME * P * APART>(thread, index, row, D::CO, place, early, end);
    }
}

// Gradients of filters, of one of PARTS parts of the results: R filters and the taps of a row of a window, of
// each thread; HIGH threads have other filters, KH threads each of WIDE channels. SPLIT threads share the rows
// of results: DEEP of them are copied at once, all of one image, or those of some whole images. P results are
// read at once.
template <class S, int PARTS, int R, int P, int WIDE, int HIGH, int SPLIT, int DEEP, class Early, class End>
__device__ inline void convolution_of_errors(
    int tile, float* room, const float* images, const float* errors, Early early, End end)
{
    using D = Forward<S>;
    constexpr bool WHOLE = DEEP >= D::OH;
    constexpr int TALL = WHOLE ? D::OH : DEEP, SOME_IMAGES = WHOLE ? DEEP / D::OH : 1;  // DEEP rows are so many images'
    constexpr int TIMES = (D::OH + TALL - 1) / TALL, CHUNKS = (D::M + SOME_IMAGES - 1) / SOME_IMAGES * TIMES;
    constexpr int ACROSS = (D::OW + P - 1) / P * P, BROAD = ((ACROSS - 1) * D::SX + D::KW) | 1;
    constexpr int SPAN = (TALL - 1) * D::SY + D::KH, SIZE = SOME_IMAGES * SPAN * BROAD, KW = D::KW, LINE = (P - 1) * D::SX + KW;
    // Rows of windows of neighbouring threads have neighbouring banks.
    constexpr int APART = SIZE + ((D::KH - SOME_IMAGES * SPAN) * BROAD % 32 + 32) % 32, EACH = rounded_to_4(DEEP * ACROSS);
    constexpr int PIXELS = rounded_to_4(WIDE * APART), STAGE = PIXELS + HIGH * R * EACH;
    constexpr int UNITS = WIDE * D::KH * HIGH, DOWN = (D::CO + HIGH * R - 1) / (HIGH * R), OVER = (D::CI + WIDE - 1) / WIDE;
    static_assert(!WHOLE || DEEP % D::OH == 0, "rows of an image are not shared by chunks of many");
    static_assert(UNITS * SPLIT <= THREADS && 2 * STAGE <= ROOM, "there are too few threads, or shared memory is too small");
    const int thread = this_thread(), part = tile / (DOWN * OVER);
    const int first_filter = tile / OVER % DOWN * (HIGH * R), first_channel = tile % OVER * WIDE;
    const int begin = (int)((long long)CHUNKS * part / PARTS), stop = (int)((long long)CHUNKS * (part + 1) / PARTS);
    const int unit = thread % UNITS, share = thread / UNITS, line_ = unit % (WIDE * D::KH), high = unit / (WIDE * D::KH);
    float sum[R][KW] = {};
    __syncthreads();
    {
        // Of some whole images, there may be fewer than are copied at once; of rows, some may be outside.
        const auto found = [](int image, int y, int x, int high, int wide, int& from, int& at) {
            from = (image * high + y) * wide + x;
            at = (unsigned)x >= wide || (WHOLE && (unsigned)y >= high) ? OUTSIDE : WHOLE ? image : y;
        };
        const Copies<SIZE> pixels(thread, [&](int e, int& from, int& at) {
            const int row = e / BROAD, y = row % SPAN - D::TOP, x = e % BROAD - D::LEFT;
            found(row / SPAN, y, x, D::H, D::W, from, at);
            from += row / SPAN * (D::C - 1) * D::H * D::W;
        });
        const Copies<DEEP * ACROSS> some(thread, [&](int e, int& from, int& at) {
            const int row = e / ACROSS;
            found(row / TALL, row % TALL, e % ACROSS, D::OH, D::OW, from, at);
            from += row / TALL * (S::F - 1) * D::OH * D::OW;
        });
        const auto copy = [&](int chunk, float* to) {
            const int image = chunk / TIMES * SOME_IMAGES, y = chunk % TIMES * TALL;
            const float* const here = images + ((image * D::C + first_channel) * D::H + y * D::SY) * D::W;
            const float* const there = errors + ((image * S::F + first_filter) * D::OH + y) * D::OW;
            pixels.template copy<WIDE, APART, D::H * D::W, WHOLE ? D::M : D::H, D::CI % WIDE != 0>(
                to, here, WHOLE ? image : y * D::SY, D::CI - first_channel);
            some.template copy<HIGH * R, EACH, D::OH * D::OW, WHOLE ? D::M : D::OH, D::CO % (HIGH * R) != 0>(
                to + PIXELS, there, WHOLE ? image : y, D::CO - first_filter);
        };
        float *now = room + STAGE, *next = room;
#pragma unroll 1
        for (int chunk = begin - 1; chunk < stop; chunk++) {
            if (chunk + 1 < stop) copy(chunk + 1, next);
            const int rows = TIMES == 1 ? DEEP : least(DEEP, D::OH - chunk % TIMES * TALL);
            if (chunk >= begin && (UNITS * SPLIT == THREADS || share < SPLIT))
#pragma unroll 1
                for (int k = share; k < rows; k += SPLIT) {
                    const float* const lines = now + line_ / D::KH * APART + (k / TALL * SPAN + k % TALL * D::SY + line_ % D::KH) * BROAD;
                    const float* const mine = now + PIXELS + high * EACH + k * ACROSS;
#pragma unroll(R * KW * ACROSS <= UNROLLED ? ACROSS / P : R * KW * P <= UNROLLED / 4 ? 2 : 1)
                    for (int x = 0; x < ACROSS; x += P) {
                        float line[LINE];
#pragma unroll
                        for (int i = 0; i < LINE; i++) line[i] = lines[x * D::SX + i];
#pragma unroll
                        for (int r = 0; r < R; r++) {
                            float g[P];
                            read_aligned<P>(g, mine + r * HIGH * EACH + x);
#pragma unroll
                            for (int p = 0; p < P; p++)
#pragma unroll
                                for (int i = 0; i < KW; i++) sum[r][i] += g[p] * line[p * D::SX + i];
                        }
                    }
                }
            wait_for_copies();
            __syncthreads();
            float* const done = now;
            now = next;
            next = done;
        }
    }
    using Read = decltype(early(0, 0, 0));
    constexpr int SOME = rows_at_once(R, KW * THREADS), BEYOND = THREADS + 8, TERMS = WIDE * D::TAPS;
    static_assert(SOME * KW * BEYOND <= ROOM, "shared memory is too small for the sums");
    const auto index = [&](int term) {
        const int n = first_channel * D::TAPS + term;
        return n < D::CI * D::TAPS ? n : -1;
    };
    const auto place = [&](int r, int term) {
        return room + (r % SOME * KW + term % KW) * BEYOND + r / SOME * (WIDE * D::KH) + term / KW;
    };
#pragma unroll
    for (int top = 0; top < R; top += SOME) {
        __syncthreads();
        if (share < SPLIT)
#pragma unroll
            for (int s = 0; s < SOME; s++)
#pragma unroll
                for (int i = 0; i < KW; i++) room[(s * KW + i) * BEYOND + thread] = sum[top + s][i];
        __syncthreads();
        sums_of_shares<SOME * HIGH, TERMS, SPLIT, UNITS>(
            thread, index, [&](int r) { return first_filter + (top + r % SOME) * HIGH + r / SOME; }, D::CO, place,
            [&](int m, int n) { return early(part, m, n); },
            [&](int m, int n, float r, const Read& given) { end(part, m, n, r, given); });
    }
}
