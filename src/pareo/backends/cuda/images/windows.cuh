// Elements of a pooling, and of its gradients.
#pragma once

// Windows of a pooling: H x W pixels of C channels, OH x OW windows of KH x KW.
template <int C_, int H_, int W_, int OH_, int OW_, int KH_, int KW_, int SY_, int SX_, int TOP_, int LEFT_>
struct Pool {
    static const int C = C_, H = H_, W = W_, OH = OH_, OW = OW_, KH = KH_, KW = KW_, SY = SY_, SX = SX_;
    static const int TOP = TOP_, LEFT = LEFT_;
    static const bool WHOLE = TOP == 0 && LEFT == 0 && (OH - 1) * SY + KH <= H && (OW - 1) * SX + KW <= W;
    static const bool FEW = KH * KW <= 16;
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

// The place of a window's first largest element; one that is not a number counts as the largest. All of a small
// window is read at once.
template <class S> __device__ inline int place_of_largest(const float* plane, Range y, Range x)
{
    int found = y.first * S::W + x.first;
    float most = plane[found];
    if constexpr (S::FEW) {
#pragma unroll
        for (int k = 1; k < S::KH * S::KW; k++) {
            const int row = y.first + k / S::KW, column = x.first + k % S::KW, at = row * S::W + column;
            const bool inside = S::WHOLE || (row < y.end && column < x.end);
            const float value = inside ? plane[at] : most;
            const bool more = value > most || (value != value && most == most);
            most = more ? value : most;
            found = more ? at : found;
        }
        return found;
    }
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

template <class S> __device__ inline float max_pool_at(const float* in, int i)
{
    const float* plane = in + i / (S::OH * S::OW) * (S::H * S::W);
    const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
    const Range x = window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW);
    return plane[place_of_largest<S>(plane, y, x)];
}

// The gradients of the windows whose first largest element a pixel is.
template <class S> __device__ inline float max_pool_back_at(const float* g, const float* in, int i)
{
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
    return sum;
}

template <class S> __device__ inline float average_of(const float* plane, Range y, Range x)
{
    float sum = 0;
    if constexpr (S::FEW) {
#pragma unroll
        for (int k = 0; k < S::KH * S::KW; k++) {
            const int row = y.first + k / S::KW, column = x.first + k % S::KW;
            sum += S::WHOLE || (row < y.end && column < x.end) ? plane[row * S::W + column] : 0;
        }
        return sum / (S::WHOLE ? S::KH * S::KW : (y.end - y.first) * (x.end - x.first));
    }
    for (int row = y.first; row < y.end; row++)
        for (int column = x.first; column < x.end; column++) sum += plane[row * S::W + column];
    return sum / ((y.end - y.first) * (x.end - x.first));
}
template <class S> __device__ inline float average_pool_at(const float* in, int i)
{
    const float* plane = in + i / (S::OH * S::OW) * (S::H * S::W);
    const Range y = window<S::KH, S::SY, S::TOP, S::H>(i / S::OW % S::OH);
    return average_of<S>(plane, y, window<S::KW, S::SX, S::LEFT, S::W>(i % S::OW));
}

// The windows that have a pixel are the last ones that start at it or before, at most so many along an axis.
template <class S> __device__ inline float average_pool_back_at(const float* g, int i)
{
    constexpr int DOWN = (S::KH + S::SY - 1) / S::SY, ACROSS = (S::KW + S::SX - 1) / S::SX;
    const int c = i / (S::H * S::W), pixel = i % (S::H * S::W);
    const int last_row = (pixel / S::W + S::TOP) / S::SY, last_column = (pixel % S::W + S::LEFT) / S::SX;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < DOWN * ACROSS; k++) {
        const int row = last_row - k / ACROSS, column = last_column - k % ACROSS;
        const bool down = row >= 0 && row < S::OH && row * S::SY - S::TOP + S::KH > pixel / S::W;
        const bool across = column >= 0 && column < S::OW && column * S::SX - S::LEFT + S::KW > pixel % S::W;
        const float error = g[down && across ? (c * S::OH + row) * S::OW + column : 0];
        int count = S::KH * S::KW;
        if constexpr (!S::WHOLE) {
            const Range y = window<S::KH, S::SY, S::TOP, S::H>(row), x = window<S::KW, S::SX, S::LEFT, S::W>(column);
            count = (y.end - y.first) * (x.end - x.first);
        }
        sum += down && across ? error / count : 0;
    }
    return sum;
}

// The weighted sum of a window and a bias.
template <class S> __device__ inline float subsample_at(const float* in, const float* w, const float* b, int i)
{
    const float* corner = in + i / (S::OH * S::OW) * (S::H * S::W) + i / S::OW % S::OH * S::SY * S::W + i % S::OW * S::SX;
    float sum = *b;
#pragma unroll
    for (int u = 0; u < S::KH; u++)
#pragma unroll
        for (int v = 0; v < S::KW; v++) sum += corner[u * S::W + v] * w[u * S::KW + v];
    return sum;
}
