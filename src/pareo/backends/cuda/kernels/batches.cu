// The images and labels of one step, gathered on the card in the order that the step counter tells;
// the loss of the step, kept in its place. All of it is part of the captured graph of a step.

#include "common.cuh"

// A block copies one image, whose `size` elements start on 16 bytes if `packed`.
extern "C" __global__ void gather(
    Real* out, Size* labels, Size* seeds, const Real* images, const Size* all_labels,
    const Size* order, const Size* all_seeds, const Size* step, Size batch, Size size, Size seed_count)
{
    const Size chosen = order[*step * batch + blockIdx.x];
    const Real* image = images + chosen * size;
    Real* target = out + blockIdx.x * size;
    if (size * sizeof(Real) % 16 == 0) {
        const Size packs = size * sizeof(Real) / 16;
        for (Size i = threadIdx.x; i < packs; i += blockDim.x)
            reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(image)[i];
    } else {
        for (Size i = threadIdx.x; i < size; i += blockDim.x)
            target[i] = image[i];
    }
    if (threadIdx.x == 0)
        labels[blockIdx.x] = all_labels[chosen];
    if (blockIdx.x == 0)
        for (Size i = threadIdx.x; i < seed_count; i += blockDim.x)
            seeds[i] = all_seeds[*step * seed_count + i];
}

// By one thread, after the step: its loss to its place, and on to the next step.
extern "C" __global__ void advance(Real* losses, const Real* loss, Size* step)
{
    losses[*step] = *loss;
    *step += 1;
}
