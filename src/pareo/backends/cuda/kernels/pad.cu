// An array with more elements around it: each element of out is that of a at its place, or `value`.
// `walk` has the shape of out, and a's steps; a's elements begin at `before` along each axis and are
// `inside` many.

#include "common.cuh"

struct Padding {
    Walk<1> walk;
    Size before[MOST_AXES], inside[MOST_AXES];
};

extern "C" __global__ void pad(Real* out, const Real* a, Size count, Padding padding, Real value)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        Size rest = i, offset = 0;
        bool within = true;
        for (int axis = (int)padding.walk.axes - 1; axis >= 0; --axis) {
            const Size size = padding.walk.sizes[axis];
            const Size here = rest % size - padding.before[axis];
            rest /= size;
            within = within && here >= 0 && here < padding.inside[axis];
            offset += here * padding.walk.steps[0][axis];
        }
        out[i] = within ? a[offset] : value;
    }
}
