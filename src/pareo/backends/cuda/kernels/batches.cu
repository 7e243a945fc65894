// What a training step does besides its program: gathers its images and labels by the row of an
// order, picks the seeds of its dropout layers and the numbers of its optimiser, and stores its
// loss. The number of the step is in GPU memory, so that all of it can be part of a captured graph.
// Images may be in pinned host memory.

#include "common.cuh"

// blockIdx.x is an image of `size` elements, which the blocks along y share. Its label, or its
// targets, are `words` of four bytes.
extern "C" __global__ void gather(
    Real* out, unsigned* labels, const Real* images, const unsigned* all_labels, const Size* order,
    const Size* step, Size batch, Size size, Size words)
{
    const Size chosen = order[*step * batch + blockIdx.x];
    const Real* image = images + chosen * size;
    Real* target = out + blockIdx.x * size;
    const Size first = blockIdx.y * blockDim.x + threadIdx.x, stride = gridDim.y * blockDim.x;
    if ((size * sizeof(Real) | reinterpret_cast<size_t>(images)) % 16 == 0) {
        const Size packs = size * sizeof(Real) / 16;
#pragma unroll 4
        for (Size i = first; i < packs; i += stride)
            reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(image)[i];
    } else {
        for (Size i = first; i < size; i += stride)
            target[i] = image[i];
    }
    for (Size i = first; i < words; i += stride)
        labels[blockIdx.x * words + i] = all_labels[chosen * words + i];
}

// Launched with one block, before the step.
extern "C" __global__ void pick_seeds(Size* seeds, const Size* all_seeds, const Size* step, Size count)
{
    for (Size i = threadIdx.x; i < count; i += blockDim.x)
        seeds[i] = all_seeds[*step * count + i];
}

// Launched with one block, before the step: the row of the optimiser's numbers (its rate, and what
// else changes with the step) from all of them, (steps, count).
extern "C" __global__ void pick_numbers(
    Real* numbers, const Real* all_numbers, const Size* step, Size count)
{
    for (Size i = threadIdx.x; i < count; i += blockDim.x)
        numbers[i] = all_numbers[*step * count + i];
}

// Launched with one block, after the step: stores its loss (of a population, its losses) and counts
// on.
extern "C" __global__ void advance(Real* losses, const Real* loss, Size* step, Size count)
{
    const Size now = *step;
    for (Size i = threadIdx.x; i < count; i += blockDim.x)
        losses[now * count + i] = loss[i];
    __syncthreads();  // all threads have read the number
    if (threadIdx.x == 0)
        *step = now + 1;
}
