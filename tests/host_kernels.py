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
inline float total_of_lanes(float value) { return value; }
inline float largest_of_lanes(float value) { return value; }
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


def on_host(text, backwards):
    """The kernel's source for a compiler of the host; `backwards` runs every phase from its end."""
    text = text.replace('#include "images/block.cuh"\n', "").replace("THREADS = 512", "THREADS = 1")
    for name in re.findall(r'#include "(images/[a-z]+\.cuh)"', text):
        text = text.replace(f'#include "{name}"\n', files.read(name).replace("#pragma once", ""))
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
