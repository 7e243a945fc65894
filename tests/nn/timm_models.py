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
# Of as many families as timm has small models of.
NAMES = """
    tf_efficientnet_lite0 mobilenetv3_small_050 mobilenetv4_conv_small mobilenetv4_hybrid_medium
    ghostnet_050 ghostnetv2_100 resnetv2_50 nfnet_f0 dm_nfnet_f0 eca_nfnet_l0 nf_regnet_b0
    regnetx_002 regnety_002 regnetz_b16 dpn48b res2net50_14w_8s resnest14d skresnet18
    hrnet_w18_small dla34 dla46_c xception41 legacy_xception inception_v4 inception_resnet_v2
    convmixer_768_32 convnextv2_atto convnext_atto poolformer_s12 poolformerv2_s12 caformer_s18
    convformer_s18 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 deit_tiny_patch16_224
    deit_tiny_distilled_patch16_224 deit3_small_patch16_224 beit_base_patch16_224
    beitv2_base_patch16_224 cait_xxs24_224 xcit_nano_12_p16_224 pit_ti_224 pit_ti_distilled_224
    levit_128s tnt_s_patch16_224 twins_pcpvt_small twins_svt_small coat_tiny coat_lite_tiny
    swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_224 maxvit_tiny_tf_224
    maxvit_rmlp_pico_rw_256 coatnet_pico_rw_224 coatnet_0_rw_224 efficientvit_b0 efficientvit_m0
    fastvit_t8 repvgg_a0 repvit_m0_9 edgenext_xx_small mobilevit_xxs mobilevitv2_050 tinynet_e
    hardcorenas_a lcnet_050 rexnet_100 selecsls42 vovnet39a ese_vovnet19b_dw focalnet_tiny_srf
    davit_tiny nest_tiny volo_d1_224 hiera_tiny_224 eva02_tiny_patch14_224 vit_tiny_patch16_224
    vit_small_patch16_224 vit_relpos_small_patch16_224 vit_tiny_r_s16_p8_224 cspresnet50
    cspdarknet53 darknet53 gernet_s bat_resnext26ts halonet26t lambda_resnet26t botnet26t_256
    eca_botnext26ts_256 ecaresnet26t seresnet50 legacy_seresnet18 resnet18 resnet50d resnetaa50
    resnetblur50 seresnext26d_32x4d densenet121 densenetblur121d vgg11_bn convit_tiny gcvit_xxtiny
    mvitv2_tiny visformer_tiny tresnet_m pvt_v2_b0 nextvit_small efficientformer_l1
    efficientformerv2_s0 tiny_vit_5m_224 sequencer2d_s starnet_s1 rdnet_tiny inception_next_atto
    mambaout_femto hgnet_tiny hgnetv2_b0 fasternet_t0 swiftformer_xs shvit_s1 repghostnet_050
    vitamin_small_224 mnasnet_small semnasnet_050 spnasnet_100 fbnetc_100 mixnet_s efficientnet_b0
    efficientnetv2_rw_t iformer_t lowformer_b0 efficientvim_m1 csatv2 cpubone_nano lcnetv2_base
"""


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
        vars(gate)["check"] = lambda *_: None
    results: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    for name in given.names or NAMES.split():
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
