// Convolution as matrix products: images to columns and back (im2col and col2im).
//
// A column holds what a window sees, channel by channel. `columns` is (depth, images, pixels) where
// the images lie side by side, and (images, depth, pixels) where each has a matrix of its own.

#include "common.cuh"

struct Sight {
    Size images, channels, height, width, rows, columns;  // of the images; of the output
    Size size[2], stride[2], before[2], dilation[2];
    Size beside;
};

__device__ __forceinline__ Size column_at(const Sight& s, Size image, Size row, Size pixel)
{
    const Size depth = s.channels * s.size[0] * s.size[1], pixels = s.rows * s.columns;
    return s.beside ? (row * s.images + image) * pixels + pixel : (image * depth + row) * pixels + pixel;
}

extern "C" __global__ void to_columns(Real* columns, const Real* x, Size count, Sight s)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        Size rest = at;
        const Size j = rest % s.columns;
        const Size i = (rest /= s.columns) % s.rows;
        rest /= s.rows;
        Size image, row;
        const Size depth = s.channels * s.size[0] * s.size[1];
        if (s.beside) {
            image = rest % s.images;
            row = rest / s.images;
        } else {
            row = rest % depth;
            image = rest / depth;
        }
        const Size v = row % s.size[1], u = row / s.size[1] % s.size[0];
        const Size channel = row / (s.size[0] * s.size[1]);
        const Size y = i * s.stride[0] - s.before[0] + u * s.dilation[0];
        const Size z = j * s.stride[1] - s.before[1] + v * s.dilation[1];
        const bool inside = y >= 0 && y < s.height && z >= 0 && z < s.width;
        columns[at] = inside ? x[((image * s.channels + channel) * s.height + y) * s.width + z] : Real(0);
    }
}

// Each pixel is the sum of the places in columns that saw it.
extern "C" __global__ void from_columns(Real* x, const Real* columns, Size count, Sight s)
{
    for (Size at = first_position(); at < count; at += all_threads()) {
        const Size z = at % s.width, y = at / s.width % s.height;
        const Size channel = at / (s.width * s.height) % s.channels;
        const Size image = at / (s.width * s.height * s.channels);
        Real total = 0;
        for (Size u = 0; u < s.size[0]; ++u) {
            const Size down = y + s.before[0] - u * s.dilation[0];
            if (down < 0 || down % s.stride[0] || down / s.stride[0] >= s.rows)
                continue;
            for (Size v = 0; v < s.size[1]; ++v) {
                const Size along = z + s.before[1] - v * s.dilation[1];
                if (along < 0 || along % s.stride[1] || along / s.stride[1] >= s.columns)
                    continue;
                const Size row = (channel * s.size[0] + u) * s.size[1] + v;
                const Size pixel = down / s.stride[0] * s.columns + along / s.stride[1];
                total += columns[column_at(s, image, row, pixel)];
            }
        }
        x[at] = total;
    }
}
