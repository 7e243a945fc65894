// Max pooling in windows of 3 x 3, channels last: the same results as in pool.cu. A thread holds V
// channels of one column and iterates over the rows, so that it reads each element of its three
// columns once. Where there are few columns, `parts` threads share one; each starts two rows
// earlier. The forward pass is for stride 1, the backward pass for stride S.
#include "nhwc/kernels/sums.cuh"

const unsigned char NO_INDEX = 255;

// A thread's column of an image, and its share of the rows: from `begin` to `end`.
struct Walk {
    unsigned image, column;
    int begin, end;
    __device__ Walk(unsigned p, int columns, int parts, int rows)
    {
        const unsigned rest = p / columns;
        column = p - rest * columns;
        image = rest / parts;
        const int part = rest - image * parts, each = (rows + parts - 1) / parts;
        begin = part * each;
        end = min(begin + each, rows);
    }
};

// The first largest of up to three neighbouring elements, and its index among them.
template <int V> struct Row {
    bool there;
    float best[V];
    unsigned char place[V];
};

template <int V> __device__ inline bool beats(float value, float best)
{
    return value > best || (value != value && best == best);
}

template <class T, int V> __device__ inline void read_row(
    Row<V>& row, const T* image, int h, int column, int height, int width, int pitch)
{
    row.there = h >= 0 && h < height;
    if (!row.there) return;
    bool first = true;
#pragma unroll
    for (int v = 0; v < 3; v++) {
        const int w = column + v;
        if (w < 0 || w >= width) continue;
        float value[V];
        load<T, V>(value, image + ((long long)h * width + w) * pitch);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (first || beats<V>(value[i], row.best[i])) {
                row.best[i] = value[i];
                row.place[i] = v;
            }
        first = false;
    }
}

template <class T, int V, bool RELU> __global__ void max_pool3(
    T* out, unsigned char* indices, const T* x, unsigned count, int parts, int channels, int pitch,
    int height, int width, int out_height, int out_width, int top, int left)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (channel >= channels) return;
    for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < count; p += gridDim.x * blockDim.y) {
        const Walk walk(p, out_width, parts, out_height);
        const T* from = x + (long long)walk.image * height * width * pitch + channel;
        Row<V> rows[3];
        const int start = (int)walk.column - left;
        read_row<T, V>(rows[1], from, walk.begin - top, start, height, width, pitch);
        read_row<T, V>(rows[2], from, walk.begin + 1 - top, start, height, width, pitch);
        for (int r = walk.begin; r < walk.end; r++) {
            rows[0] = rows[1];
            rows[1] = rows[2];
            read_row<T, V>(rows[2], from, r - top + 2, start, height, width, pitch);
            float best[V];
            Pack<unsigned char, V> found;
            bool first = true;
#pragma unroll
            for (int u = 0; u < 3; u++) {
                if (!rows[u].there) continue;
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (first || beats<V>(rows[u].best[i], best[i])) {
                        best[i] = rows[u].best[i];
                        found.at[i] = 3 * u + rows[u].place[i];
                    }
                first = false;
            }
#pragma unroll
            for (int i = 0; i < V; i++)
                if (RELU && best[i] <= 0) found.at[i] = NO_INDEX;
            const long long to =
                (((long long)walk.image * out_height + r) * out_width + walk.column) * channels + channel;
            store<T, V>(out + to, best);
            if (indices) *reinterpret_cast<Pack<unsigned char, V>*>(indices + to) = found;
        }
    }
}

// A row of windows contributes to three rows of the images, of which S are then complete.
template <class T, int V, int S> __global__ void max_pool3_back(
    T* d, float* partial, const T* g, const unsigned char* indices, unsigned count, int parts,
    int channels, int pitch, int height, int width, int out_height, int out_width, int top, int left)
{
    const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sums[V] = {};
    if (channel < channels)
        for (unsigned p = blockIdx.x * blockDim.y + threadIdx.y; p < count; p += gridDim.x * blockDim.y) {
            const Walk walk(p, width, parts, (height + top + S - 1) / S);
            const int column = walk.column + left;
            T* to = d + ((long long)walk.image * height * width + walk.column) * channels + channel;
            const int last = min(column / S, out_width - 1);
            const int first = column < 3 ? 0 : (column - 3) / S + 1;
            float rows[3][V] = {};
            // After the last row of windows, the remaining rows are written.
            for (int r = max(0, walk.begin - 2 / S); r < walk.end; r++) {
                if (r < out_height)
#pragma unroll
                    for (int k = 0; k < (S == 1 ? 3 : 2); k++) {
                        const int c = first + k;
                        if (c > last) continue;
                        const int v = column - c * S;
                        const long long from = ((long long)walk.image * out_height + r) * out_width + c;
                        const Pack<unsigned char, V> found =
                            *reinterpret_cast<const Pack<unsigned char, V>*>(
                                indices + from * channels + channel);
                        float arriving[V];
                        load<T, V>(arriving, g + from * pitch + channel);
#pragma unroll
                        for (int i = 0; i < V; i++)
#pragma unroll
                            for (int u = 0; u < 3; u++)
                                if (found.at[i] == 3 * u + v) rows[u][i] += arriving[i];
                    }
#pragma unroll
                for (int u = 0; u < S; u++) {
                    const int h = r * S - top + u;
                    if (r >= walk.begin && h >= 0 && h < height) {
                        store<T, V>(to + (long long)h * width * channels, rows[u]);
#pragma unroll
                        for (int i = 0; i < V; i++) sums[i] += rows[u][i];
                    }
                }
#pragma unroll
                for (int i = 0; i < V; i++) {
                    if (S == 1) {
                        rows[0][i] = rows[1][i];
                        rows[1][i] = rows[2][i];
                    } else {
                        rows[0][i] = rows[2][i];
                        rows[1][i] = 0;
                    }
                    rows[2][i] = 0;
                }
            }
        }
    if (partial) leave_sums<V>(partial, sums, channel, channels);
}
