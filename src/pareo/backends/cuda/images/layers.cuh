// Layers of one image, computed by one block. All sizes are known at compile time. Each function is
// one or more phases: a loop in which every thread computes other elements, and a barrier.
#pragma once

#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += THREADS)
#define PHASE_END __syncthreads()

struct alignas(16) Four { float at[4]; };

// Copies to shared memory, which is aligned to 16 bytes. Many loads are under way at once.
template <int COUNT> __device__ inline void copy(float* to, const float* from)
{
    if ((unsigned long long)from % 16 == 0) {
#pragma unroll 8
        EACH(i, COUNT / 4)
            reinterpret_cast<Four*>(to)[i] = reinterpret_cast<const Four*>(from)[i];
        EACH(i, COUNT % 4) to[COUNT / 4 * 4 + i] = from[COUNT / 4 * 4 + i];
    } else {
#pragma unroll 8
        EACH(i, COUNT) to[i] = from[i];
    }
    PHASE_END;
}

// A convolution of M images of C channels each with F filters. Its windows are KH x KW, (SY, SX) apart,
// their taps (DY, DX) apart, after padding by TOP and LEFT.
template <int M_, int C_, int H_, int W_, int F_, int OH_, int OW_, int KH_, int KW_, int SY_, int SX_,
          int TOP_, int LEFT_, int DY_, int DX_, int GROUPS_>
struct Conv {
    static const int M = M_, C = C_, H = H_, W = W_, F = F_, OH = OH_, OW = OW_, KH = KH_, KW = KW_;
    static const int SY = SY_, SX = SX_, TOP = TOP_, LEFT = LEFT_, DY = DY_, DX = DX_;
    static const int GROUPS = GROUPS_, CG = C / GROUPS, FG = F / GROUPS, TAPS = KH * KW;
};

// Adds up PARTS parts of SIZE sums, which lie one behind the other in `room`.
template <int SIZE, int PARTS> __device__ inline void add_parts(float* out, const float* room)
{
    if constexpr (PARTS > 1) {
        EACH(i, SIZE) {
            float sum = 0;
            for (int part = 0; part < PARTS; part++) sum += room[part * SIZE + i];
            out[i] = sum;
        }
        PHASE_END;
    }
}

// A thread has up to FB filters and PX pixels of a row, and one of PARTS parts of the channels. PX is
// odd, so that the threads of a warp read from different banks of shared memory.
template <class S, int FB, int PX, int PARTS> __device__ inline void conv(
    float* out, const float* in, const float* w, float* room)
{
    constexpr int SIZE = S::M * S::F * S::OH * S::OW;
    float* to = PARTS == 1 ? out : room;
    constexpr int BLOCKS = (S::FG + FB - 1) / FB, COLUMNS = (S::OW + PX - 1) / PX;
    constexpr int SPAN = (PX - 1) * S::SX + (S::KW - 1) * S::DX + 1;
    EACH(i, PARTS * S::M * S::GROUPS * BLOCKS * S::OH * COLUMNS) {
        int rest = i;
        const int column = rest % COLUMNS * PX;
        rest /= COLUMNS;
        const int row = rest % S::OH;
        rest /= S::OH;
        const int group = rest / BLOCKS % S::GROUPS, m = rest / BLOCKS / S::GROUPS % S::M;
        const int first = group * S::FG + rest % BLOCKS * FB, end = (group + 1) * S::FG;
        const int part = rest / BLOCKS / S::GROUPS / S::M;
        float sum[FB][PX] = {};
        for (int c = S::CG * part / PARTS; c < S::CG * (part + 1) / PARTS; c++)
            for (int ky = 0; ky < S::KH; ky++) {
                const int y = row * S::SY - S::TOP + ky * S::DY, x0 = column * S::SX - S::LEFT;
                if ((unsigned)y >= S::H) continue;
                const float* line = in + ((m * S::C + group * S::CG + c) * S::H + y) * S::W;
                float x[SPAN];
#pragma unroll
                for (int s = 0; s < SPAN; s++) x[s] = (unsigned)(x0 + s) < S::W ? line[x0 + s] : 0;
#pragma unroll
                for (int b = 0; b < FB; b++)
                    if (S::FG % FB == 0 || first + b < end) {
                        const float* taps = w + ((first + b) * S::CG + c) * S::TAPS + ky * S::KW;
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) {
                            const float a = taps[kx];
#pragma unroll
                            for (int p = 0; p < PX; p++) sum[b][p] += a * x[p * S::SX + kx * S::DX];
                        }
                    }
            }
#pragma unroll
        for (int b = 0; b < FB; b++)
#pragma unroll
            for (int p = 0; p < PX; p++)
                if (first + b < end && column + p < S::OW)
                    to[part * SIZE + ((m * S::F + first + b) * S::OH + row) * S::OW + column + p] = sum[b][p];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}

// The gradient of the images. A thread has up to CB channels and PX pixels of a row, and one of PARTS
// parts of the filters.
template <class S, int CB, int PX, int PARTS> __device__ inline void conv_back(
    float* out, const float* g, const float* w, float* room)
{
    constexpr int SIZE = S::M * S::C * S::H * S::W;
    float* to = PARTS == 1 ? out : room;
    constexpr int BLOCKS = (S::CG + CB - 1) / CB, COLUMNS = (S::W + PX - 1) / PX;
    constexpr int SPAN = PX - 1 + (S::KW - 1) * S::DX + 1;
    EACH(i, PARTS * S::M * S::GROUPS * BLOCKS * S::H * COLUMNS) {
        int rest = i;
        const int column = rest % COLUMNS * PX;
        rest /= COLUMNS;
        const int row = rest % S::H;
        rest /= S::H;
        const int group = rest / BLOCKS % S::GROUPS, m = rest / BLOCKS / S::GROUPS % S::M;
        const int first = rest % BLOCKS * CB;  // in its group
        const int part = rest / BLOCKS / S::GROUPS / S::M;
        float sum[CB][PX] = {};
        for (int f = group * S::FG + S::FG * part / PARTS; f < group * S::FG + S::FG * (part + 1) / PARTS; f++)
            for (int ky = 0; ky < S::KH; ky++) {
                const int from = row + S::TOP - ky * S::DY;
                if (from < 0 || from % S::SY || from / S::SY >= S::OH) continue;
                const float* line = g + ((m * S::F + f) * S::OH + from / S::SY) * S::OW;
                float x[SPAN];
                const int x0 = column + S::LEFT - (S::KW - 1) * S::DX;
#pragma unroll
                for (int s = 0; s < SPAN; s++) {
                    const int at = x0 + s;
                    const bool inside = at >= 0 && at % S::SX == 0 && at / S::SX < S::OW;
                    x[s] = inside ? line[at / S::SX] : 0;
                }
#pragma unroll
                for (int b = 0; b < CB; b++)
                    if (S::CG % CB == 0 || first + b < S::CG) {
                        const float* taps = w + (f * S::CG + first + b) * S::TAPS + ky * S::KW;
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) {
                            const float a = taps[kx];
#pragma unroll
                            for (int p = 0; p < PX; p++) sum[b][p] += a * x[p + (S::KW - 1 - kx) * S::DX];
                        }
                    }
            }
#pragma unroll
        for (int b = 0; b < CB; b++)
#pragma unroll
            for (int p = 0; p < PX; p++)
                if (first + b < S::CG && column + p < S::W)
                    to[part * SIZE + ((m * S::C + group * S::CG + first + b) * S::H + row) * S::W + column + p] = sum[b][p];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}

// This image's part of the gradient of the filters. A thread has a row of taps of one filter and
// channel, and some rows of the image: one of PARTS parts, which are added in `room` if there are
// several.
template <class S, int PARTS> __device__ inline void conv_filters_back(
    float* out, const float* in, const float* g, float* room)
{
    constexpr int PX = 4, COUNT = S::F * S::CG * S::KH, SIZE = COUNT * S::KW;
    constexpr int SPAN = (PX - 1) * S::SX + (S::KW - 1) * S::DX + 1;
    float* to = PARTS == 1 ? out : room;
    EACH(i, COUNT * PARTS) {
        const int ky = i % S::KH, c = i / S::KH % S::CG, f = i / S::KH / S::CG % S::F, part = i / COUNT;
        const int channel = f / S::FG * S::CG + c;
        const int start = S::OH * part / PARTS, end = S::OH * (part + 1) / PARTS;
        float sum[S::KW] = {};
        for (int m = 0; m < S::M; m++)
            for (int row = start; row < end; row++) {
                const int y = row * S::SY - S::TOP + ky * S::DY;
                if ((unsigned)y >= S::H) continue;
                const float* line = in + ((m * S::C + channel) * S::H + y) * S::W;
                const float* errors = g + ((m * S::F + f) * S::OH + row) * S::OW;
                for (int column = 0; column < S::OW; column += PX) {
                    const int x0 = column * S::SX - S::LEFT;
                    float x[SPAN], d[PX];
#pragma unroll
                    for (int p = 0; p < PX; p++) d[p] = column + p < S::OW ? errors[column + p] : 0;
#pragma unroll
                    for (int s = 0; s < SPAN; s++) x[s] = (unsigned)(x0 + s) < S::W ? line[x0 + s] : 0;
#pragma unroll
                    for (int p = 0; p < PX; p++)
#pragma unroll
                        for (int kx = 0; kx < S::KW; kx++) sum[kx] += d[p] * x[p * S::SX + kx * S::DX];
                }
            }
#pragma unroll
        for (int kx = 0; kx < S::KW; kx++)
            to[part * SIZE + ((f * S::CG + c) * S::KH + ky) * S::KW + kx] = sum[kx];
    }
    PHASE_END;
    add_parts<SIZE, PARTS>(out, room);
}

// out[r] = scale * sum of the ROW elements of row r. A warp has a long row, a thread a short one.
template <int ROWS, int ROW> __device__ inline void row_sums(float* out, const float* in, float scale)
{
    constexpr int SHARE = ROW < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int row = threadIdx.x / SHARE; row < ROWS; row += THREADS / SHARE) {
        float sum = 0;
#pragma unroll 8
        for (int j = lane; j < ROW; j += SHARE) sum += in[row * ROW + j];
        if (SHARE > 1) sum = total_of_lanes(sum);
        if (lane == 0) out[row] = scale * sum;
    }
    PHASE_END;
}

// An image's mean of each channel, and behind them its sums of squared deviations from it.
template <int CHANNELS, int PIXELS> __device__ inline void norm_moments(float* out, const float* x)
{
    constexpr int SHARE = PIXELS < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int c = threadIdx.x / SHARE; c < CHANNELS; c += THREADS / SHARE) {
        float sum = 0, squares = 0;
        for (int j = lane; j < PIXELS; j += SHARE) sum += x[c * PIXELS + j];
        const float mean = (SHARE > 1 ? total_of_lanes(sum) : sum) / PIXELS;
        for (int j = lane; j < PIXELS; j += SHARE) {
            const float apart = x[c * PIXELS + j] - mean;
            squares += apart * apart;
        }
        if (SHARE > 1) squares = total_of_lanes(squares);
        if (lane == 0) {
            out[c] = mean;
            out[CHANNELS + c] = squares;
        }
    }
    PHASE_END;
}

// An image's part of the gradients of scale and of shift.
template <int CHANNELS, int PIXELS> __device__ inline void norm_sums(
    float* to_scale, float* to_shift, const float* g, const float* x, const float* mean,
    const float* variance, float epsilon)
{
    constexpr int SHARE = PIXELS < 64 ? 1 : LANES;
    const int lane = threadIdx.x % SHARE;
    for (int c = threadIdx.x / SHARE; c < CHANNELS; c += THREADS / SHARE) {
        float sum = 0, product = 0;
        for (int j = lane; j < PIXELS; j += SHARE) {
            const float d = g[c * PIXELS + j];
            sum += d;
            product += d * (x[c * PIXELS + j] - mean[c]);
        }
        if (SHARE > 1) {
            sum = total_of_lanes(sum);
            product = total_of_lanes(product);
        }
        if (lane == 0) {
            to_shift[c] = sum;
            to_scale[c] = product / sqrtf(variance[c] + epsilon);
        }
    }
    PHASE_END;
}

// out[m] = sum of x[k] * w[k, m].
template <int K, int M, int PARTS> __device__ inline void dense(
    float* out, const float* x, const float* w, float* room)
{
    EACH(i, M * PARTS) {
        const int m = i % M, part = i / M;
        const int start = K * part / PARTS, end = K * (part + 1) / PARTS;
        float sum = 0;
#pragma unroll 16
        for (int k = start; k < end; k++) sum += x[k] * w[k * M + m];
        if (PARTS == 1) out[m] = sum;
        else room[i] = sum;
    }
    PHASE_END;
    add_parts<M, PARTS>(out, room);
}

// out[k] = sum of g[m] * w[k, m]: a warp has ROWS rows of w at a time, to load them together.
template <int K, int M> __device__ inline void dense_back(float* out, const float* g, const float* w)
{
    constexpr int ROWS = 4;
    const int lane = threadIdx.x % LANES;
    for (int k = threadIdx.x / LANES * ROWS; k < K; k += THREADS / LANES * ROWS) {
        float sums[ROWS] = {};
#pragma unroll 4
        for (int m = lane; m < M; m += LANES)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (K % ROWS == 0 || k + r < K) sums[r] += g[m] * w[(k + r) * M + m];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float sum = total_of_lanes(sums[r]);
            if (lane == 0 && k + r < K) out[k + r] = sum;
        }
    }
    PHASE_END;
}

// Windows of a pooling: H x W pixels of C channels, OH x OW windows of KH x KW.
template <int C_, int H_, int W_, int OH_, int OW_, int KH_, int KW_, int SY_, int SX_, int TOP_, int LEFT_>
struct Pool {
    static const int C = C_, H = H_, W = W_, OH = OH_, OW = OW_, KH = KH_, KW = KW_, SY = SY_, SX = SX_;
    static const int TOP = TOP_, LEFT = LEFT_;
};

// The pixels of a window along one axis, without padding: from `first` to before `end`.
struct Range { int first, end; };
template <int SIZE, int STRIDE, int PADDING, int PIXELS> __device__ inline Range window(int index)
{
    const int first = index * STRIDE - PADDING, end = first + SIZE;
    return {first < 0 ? 0 : first, end > PIXELS ? PIXELS : end};
}
// The windows along one axis that have a pixel.
template <int SIZE, int STRIDE, int PADDING, int WINDOWS> __device__ inline Range windows_of(int pixel)
{
    const int past = pixel + PADDING - SIZE + STRIDE;  // (first window) * STRIDE is above past - STRIDE
    const int last = (pixel + PADDING) / STRIDE;
    return {past < 0 ? 0 : past / STRIDE, last + 1 > WINDOWS ? WINDOWS : last + 1};
}

// The place of a window's first largest element; one that is not a number counts as the largest.
template <class S> __device__ inline int place_of_largest(const float* plane, Range y, Range x)
{
    int found = y.first * S::W + x.first;
    float most = plane[found];
    for (int row = y.first; row < y.end; row++)
        for (int column = x.first; column < x.end; column++) {
            const float value = plane[row * S::W + column];
            if (value > most || (value != value && most == most)) {
                most = value;
                found = row * S::W + column;
            }
        }
    return found;
}

template <class S> __device__ inline void max_pool(float* out, const float* in)
{
    EACH(i, S::C * S::OH * S::OW) {
        const float* plane = in + i / (S::OH * S::OW) * (S::H * S::W);
        const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
        const Range x = window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW);
        out[i] = plane[place_of_largest<S>(plane, y, x)];
    }
    PHASE_END;
}

// Each pixel adds up the gradients of the windows whose first largest element it is.
template <class S> __device__ inline void max_pool_back(float* out, const float* g, const float* in)
{
    if (S::SY >= S::KH && S::SX >= S::KW) {  // no two windows share a pixel
        EACH(i, S::C * S::H * S::W) out[i] = 0;
        PHASE_END;
        EACH(i, S::C * S::OH * S::OW) {
            const int corner = i / (S::OH * S::OW) * (S::H * S::W);
            const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
            const Range x = window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW);
            out[corner + place_of_largest<S>(in + corner, y, x)] = g[i];
        }
        PHASE_END;
        return;
    }
    EACH(i, S::C * S::H * S::W) {
        const int c = i / (S::H * S::W), pixel = i % (S::H * S::W);
        const float* plane = in + c * (S::H * S::W);
        const Range rows = windows_of<S::KH, S::SY, S::TOP, S::OH>(pixel / S::W);
        const Range columns = windows_of<S::KW, S::SX, S::LEFT, S::OW>(pixel % S::W);
        float sum = 0;
        for (int row = rows.first; row < rows.end; row++)
            for (int column = columns.first; column < columns.end; column++) {
                const Range y = window<S::KH, S::SY, S::TOP, S::H>(row);
                const Range x = window<S::KW, S::SX, S::LEFT, S::W>(column);
                if (place_of_largest<S>(plane, y, x) == pixel) sum += g[(c * S::OH + row) * S::OW + column];
            }
        out[i] = sum;
    }
    PHASE_END;
}

template <class S> __device__ inline void average_pool(float* out, const float* in)
{
    EACH(i, S::C * S::OH * S::OW) {
        const float* plane = in + i / (S::OH * S::OW) * (S::H * S::W);
        const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
        const Range x = window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW);
        float sum = 0;
        for (int row = y.first; row < y.end; row++)
            for (int column = x.first; column < x.end; column++) sum += plane[row * S::W + column];
        out[i] = sum / ((y.end - y.first) * (x.end - x.first));
    }
    PHASE_END;
}

template <class S> __device__ inline void average_pool_back(float* out, const float* g)
{
    EACH(i, S::C * S::H * S::W) {
        const int c = i / (S::H * S::W), pixel = i % (S::H * S::W);
        const Range rows = windows_of<S::KH, S::SY, S::TOP, S::OH>(pixel / S::W);
        const Range columns = windows_of<S::KW, S::SX, S::LEFT, S::OW>(pixel % S::W);
        float sum = 0;
        for (int row = rows.first; row < rows.end; row++)
            for (int column = columns.first; column < columns.end; column++) {
                const Range y = window<S::KH, S::SY, S::TOP, S::H>(row);
                const Range x = window<S::KW, S::SX, S::LEFT, S::W>(column);
                sum += g[(c * S::OH + row) * S::OW + column] / ((y.end - y.first) * (x.end - x.first));
            }
        out[i] = sum;
    }
    PHASE_END;
}

// The weighted sum of each window and a bias.
template <class S> __device__ inline void subsample(float* out, const float* in, const float* w, const float* b)
{
    EACH(i, S::C * S::OH * S::OW) {
        const float* corner = in + i / (S::OH * S::OW) * (S::H * S::W) + i / S::OW % S::OH * S::SY * S::W + i % S::OW * S::SX;
        float sum = *b;
#pragma unroll
        for (int u = 0; u < S::KH; u++)
#pragma unroll
            for (int v = 0; v < S::KW; v++) sum += corner[u * S::W + v] * w[u * S::KW + v];
        out[i] = sum;
    }
    PHASE_END;
}

// The share of an image in the mean cross-entropy: `share` * (log of the sum of exp(x) - x[label]). A
// label that names no class makes it NaN.
template <int CLASSES> __device__ inline void cross_entropy(float* loss, const float* x, long long label, float share)
{
    if (threadIdx.x < LANES) {
        float most = -INFINITY, sum = 0;
        for (int i = threadIdx.x; i < CLASSES; i += LANES) most = fmaxf(most, x[i]);
        most = largest_of_lanes(most);
        for (int i = threadIdx.x; i < CLASSES; i += LANES) sum += expf(x[i] - most);
        sum = total_of_lanes(sum);
        const bool known = label >= 0 && label < CLASSES;
        if (threadIdx.x == 0) *loss = known ? share * (logf(sum) - (x[label] - most)) : NAN;
    }
    PHASE_END;
}

// Its gradient, times `scale`.
template <int CLASSES> __device__ inline void cross_entropy_back(
    float* out, const float* x, long long label, float scale)
{
    if (threadIdx.x < LANES) {
        float most = -INFINITY, sum = 0;
        for (int i = threadIdx.x; i < CLASSES; i += LANES) most = fmaxf(most, x[i]);
        most = largest_of_lanes(most);
        for (int i = threadIdx.x; i < CLASSES; i += LANES) sum += expf(x[i] - most);
        sum = total_of_lanes(sum);
        const float factor = label >= 0 && label < CLASSES ? scale : NAN;
        for (int i = threadIdx.x; i < CLASSES; i += LANES)
            out[i] = factor * (expf(x[i] - most) / sum - (i == label));
    }
    PHASE_END;
}
