"""Networks of timm that were not picked for pareo: what becomes of each when it is imported.

timm (1.0.31) and torchvision are not dependencies; this is a program, not a test. It prints a row
for each model, and then how many were imported and which operators keep others out:

    PYTHONPATH=src:tests python tests/nn/timm_models.py                # all of NAMES
    PYTHONPATH=src:tests python tests/nn/timm_models.py resnet18 nest_tiny
    PYTHONPATH=src:tests python tests/nn/timm_models.py --read-only    # without the check

Each model is tried in a process of its own, with limits of time and memory.
"""

import argparse
import json
import logging
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from importlib import import_module
from typing import Any

import torch
from torch_modules import torchvision

import pareo
from pareo.errors import PareoError
from pareo.nn.torch_import import gate

SECONDS = 600
BYTES = 12 << 30  # of address space
PIXELS = 64  # a side, where a model takes them
NAMES = []


def module_of(name: str) -> tuple[Any, tuple[int, ...]]:
    """A model with random weights for ten classes, and the shape of its images."""
    import timm

    torch.manual_seed(0)
    try:
        module = timm.create_model(name, num_classes=10, img_size=PIXELS)
    except (TypeError, AssertionError, ValueError, RuntimeError):
        module = timm.create_model(name, num_classes=10)
    for size in (PIXELS, 128, module.pretrained_cfg["input_size"][-1]):
        try:
            with torch.no_grad():
                module.train()(torch.zeros(2, 3, size, size))
            return module, (3, size, size)
        except Exception:  # whatever the model raises of images that are too small for it
            continue
    raise RuntimeError(f"{name} computes no images")


def tried(name: str) -> dict[str, Any]:
    """What becomes of one model: a word, and what pareo says."""
    module, shape = module_of(name)
    row: dict[str, Any] = {"pixels": shape[1]}
    row["parameters"] = sum(p.numel() for p in module.parameters())
    try:
        found = pareo.from_torch(module, shape)
    except PareoError as error:
        said = str(error)
        kind = "refused"
        if "torch.export cannot" in said:
            kind = "not exported"
        elif "is not imported, because" in said:
            kind = "differs"
        return {**row, "result": kind, "said": said}
    except Exception:
        return {**row, "result": "crashed", "said": traceback.format_exc()}
    layers = sum(1 for _ in found.network.walk(found.network.inputs))
    return {**row, "result": "imported", "said": f"{layers} layers"}


def in_a_process(name: str) -> dict[str, Any]:
    """The same in a process with limits."""
    reads, writes = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if not child:
        os.close(reads)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        signal.alarm(SECONDS)
        try:
            row = tried(name)
        except BaseException:
            row = {"result": "crashed", "said": traceback.format_exc()}
        with os.fdopen(writes, "w") as file:
            json.dump(row, file)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    row = json.loads(text) if text else {"result": "ended", "said": f"by the status {status}"}
    return {"name": name, **row, "seconds": round(time.perf_counter() - start, 1)}


def operators_in(said: str) -> set[str]:
    """The operators that a refusal lists."""
    _, _, listed = said.partition("has operators that pareo does not: ")
    return {re.sub(r" in [\w.]+(, line)? .*", "", one) for one in listed.split("; ")} - {""}


def main() -> None:
    """Try the models that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--read-only", action="store_true", help="do not check what is imported")
    parser.add_argument("--json", help="append each row to this file")
    given = parser.parse_args()
    torchvision()
    import_module("timm")  # once, before processes are forked
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    if given.read_only:
        gate.check = lambda *_: None  # type: ignore[assignment]
    results: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    for name in given.names or NAMES:
        row = in_a_process(name)
        results[row["result"]] += 1
        lacking.update(operators_in(row["said"]))
        said = row["said"] if row["result"] != "crashed" else row["said"].splitlines()[-1]
        print(f"| {name} | {row.get('pixels', '')} | {row['result']} | {said} |", flush=True)
        if given.json:
            with open(given.json, "a") as file:
                print(json.dumps(row), file=file)
    print("\n" + ", ".join(f"{count} {result}" for result, count in results.most_common()))
    for what, count in lacking.most_common():
        print(f"{count:4d}  {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
