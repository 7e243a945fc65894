"""Kernels of one image in each block, compiled for the host: a block there has a single thread."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from pareo.backends.cuda.runtime import source as files

HOST = """
#include <cmath>
#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __syncthreads()
static struct { int x; } threadIdx = {0}, blockIdx = {0};
static float arena[1 << 16];
const int LANES = 1;
inline float of_lane(float value, int) { return value; }
inline float total_of_lanes(float value) { return value; }
inline float largest_of_lanes(float value) { return value; }
inline float inverse_of(float a) { return 1 / a; }
"""
RUN = """
extern "C" void run(int images_, void** pointers)
{
    Pointers given;
    for (unsigned i = 0; i < sizeof(given.at) / sizeof(void*); i++) given.at[i] = pointers[i];
    for (blockIdx.x = 0; blockIdx.x < images_; blockIdx.x++) images(given);
}
"""


def compiler():
    found = shutil.which("g++") or shutil.which("c++")
    if found is None:
        pytest.skip("this machine has no C++ compiler")
    return found


def inlined(text):
    """The source with our headers, each once."""
    done = set()
    while found := re.search(r'#include "([a-z]+/[a-z]+\.cuh)"\n', text):
        read = "" if found[1] in done else files.read(found[1]).replace("#pragma once", "")
        done.add(found[1])
        text = text[: found.start()] + read + text[found.end() :]
    return text


def on_host(text, backwards):
    """The kernel's source for a compiler of the host; `backwards` runs every phase from its end."""
    text = text.replace('#include "images/block.cuh"\n', "").replace("THREADS = 512", "THREADS = 1")
    text = inlined(text)
    text = text.replace("extern __shared__ float arena[];", "")
    if backwards:
        text = re.sub(
            r"#define EACH\(i, count\).*",
            "#define EACH(i, count) for (int i = (count) - 1; i >= 0; i--)",
            text,
        )
    return HOST + text + RUN


def run(source, values, folder, backwards=False):
    """The totals, the saved rows and the parts, from the values of the kernel's arguments."""
    path, library = folder / "images.cpp", folder / f"images{int(backwards)}.so"
    path.write_text(on_host(source.text, backwards))
    subprocess.run(
        [compiler(), "-O0", "-shared", "-fPIC", "-w", path, "-o", library],
        check=True,
    )
    split, specs = source.split, source.split.program.specs
    given = [np.ascontiguousarray(values[n]) for n in source.arguments]
    parts = np.full((split.batch, max(source.width, 1)), np.nan, np.float32)
    spilled = np.full(split.batch * source.spilled_floats, np.nan, np.float32)
    saved = {n: np.full(specs[n].shape, np.nan, np.float32) for n in split.saved}
    arrays = [*given, parts, spilled, *saved.values()]
    pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    ctypes.CDLL(str(library)).run(split.batch, pointers)
    totals = {}
    for number, start in source.parts.items():
        size = specs[number].size
        totals[number] = parts[:, start : start + size].sum(0).reshape(specs[number].shape)
    return totals, saved, parts.astype(np.float64)


TOGETHER = """
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __launch_bounds__(threads, blocks)
#define TOGETHER
#define __noinline__
#define __grid_constant__
struct Index { int x; };
static thread_local Index threadIdx, blockIdx;
const int LANES = 1;
inline float of_lane(float value, int) { return value; }
inline float total_of_lanes(float value) { return value; }
inline float largest_of_lanes(float value) { return value; }
inline float inverse_of(float a) { return 1 / a; }
void __syncthreads();
struct Barrier { Barrier(unsigned*) {} void meet(); };
inline int this_thread() { return threadIdx.x; }
inline int this_block() { return blockIdx.x; }
template <int COUNT = 1> inline void copy_later(float* to, const float* from, bool has)
{
    for (int i = 0; i < COUNT; i++) to[i] = has ? from[i] : 0;
}
inline void end_copies() {}
template <int LAST> inline void wait_for_all_but() {}
inline void wait_for_copies() {}
inline void assume_global(const void*) {}
template <class T> inline T* global(void* pointer) { return (T*)pointer; }
static std::vector<float> rooms[16];
// What a warp does on tensor cores, by one thread.
template <int ROW_, int TERM_> struct Factors {
    static const int ROW = ROW_, TERM = TERM_;
};
template <int ROW, int TERM> struct Rows : Factors<ROW, TERM> {};
template <int COLUMN, int TERM> struct Columns : Factors<COLUMN, TERM> {};
struct Sums {
    float at[16][8];
    void store(int, float* to, int row) const
    {
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) to[i * row + j] = at[i][j];
    }
};
template <int TALL, int BROAD, int DOWN, int ACROSS, class Left, class Right> inline void multiply(
    int, Sums (&sums)[TALL][BROAD], const float* rows, const float* columns)
{
    for (int i = 0; i < 16 * TALL; i++)
        for (int j = 0; j < 8 * BROAD; j++)
            for (int k = 0; k < 8; k++)
                sums[i / 16][j / 8].at[i % 16][j % 8] +=
                    rows[i / 16 * DOWN + i % 16 * Left::ROW + k * Left::TERM] *
                    columns[j / 8 * ACROSS + j % 8 * Right::ROW + k * Right::TERM];
}
"""
RUN_TOGETHER = """
static std::barrier<>* block_barriers[BLOCKS];
static std::barrier<> everyone(BLOCKS* THREADS);
void __syncthreads() { block_barriers[blockIdx.x]->arrive_and_wait(); }
void Barrier::meet() { everyone.arrive_and_wait(); }
extern "C" void run(void** pointers, int steps)
{
    Pointers given;
    for (unsigned i = 0; i < sizeof(given.at) / sizeof(void*); i++) given.at[i] = pointers[i];
    std::vector<std::thread> threads;
    for (int block = 0; block < BLOCKS; block++) {
        block_barriers[block] = new std::barrier<>(THREADS);
        rooms[block].resize(ROOM);
    }
    for (int block = 0; block < BLOCKS; block++)
        for (int thread = 0; thread < THREADS; thread++)
            threads.emplace_back([=] {
                blockIdx.x = block;
                threadIdx.x = thread;
                together(given MORE);
            });
    for (auto& one : threads) one.join();
}
"""


def together_on_host(source, folder):
    """A kernel whose blocks compute steps together, compiled for threads of the host."""
    text = source.text.replace('#include "images/block.cuh"\n', "")
    for name in ("barrier", "async", "mma"):
        text = text.replace(f'#include "grid/{name}.cuh"\n', "")
    text = inlined(text)
    room = "extern __shared__ __align__(16) float room[];"
    text = text.replace(room, "float* const room = rooms[blockIdx.x].data();")
    # Each thread has its own pointers, with all of them.
    text = text.replace("__shared__ void* pointers", "void* pointers")
    filled = r"i = threadIdx.x; (i < \d+); i \+= THREADS\) pointers"
    text = re.sub(filled, r"i = 0; \1; i++) pointers", text)
    path, library = folder / "together.cpp", folder / "together.so"
    more = ", steps" if source.more else ""
    parts = TOGETHER, text, f"#define MORE {more}", RUN_TOGETHER
    path.write_text("\n".join(parts))
    command = [compiler(), "-std=c++20", "-O1", "-shared", "-fPIC", "-w", "-pthread", path]
    subprocess.run([*command, "-o", library], check=True)

    def run(arrays, steps=1):
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        ctypes.CDLL(str(library)).run(pointers, steps)

    return run


def run_together(source, values, folder):
    """The results of a kernel whose blocks compute a step together, on threads of the host."""
    given = [np.ascontiguousarray(values[n]) for n in source.arguments]
    specs = source.plan.specs
    results = {n: np.full(specs[n].shape, np.nan, np.float32) for n in source.plan.results}
    between = np.full(source.floats_between, np.nan, np.float32)
    run = together_on_host(source, folder)
    run([np.zeros(1, np.uint32), *given, *results.values(), between])
    return results


def run_loop(source, arrays, data, numbers, folder):
    """The losses of many steps in one launch, on threads of the host; moves `arrays` in place.

    `arrays` are parameters and slots by their numbers; `data` are images, labels and the order.
    """
    constants = source.plan.program.constants
    given = [arrays[n] if n in arrays else np.ascontiguousarray(constants[n], np.float32)
             for n in source.arguments]  # fmt: skip
    steps = len(data[-1])
    losses = np.full(steps, np.nan, np.float32)
    between = np.full(source.floats_between, np.nan, np.float32)
    run = together_on_host(source, folder)
    run([np.zeros(1, np.uint32), *given, *data, numbers, losses, between], steps)
    return losses
