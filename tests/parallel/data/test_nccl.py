"""NCCL between GPUs. A group of one worker can be tested on one GPU."""

import pytest
from devices import needs_gpu
from splitting import SINGLE, WIDE, alone, same

from pareo.data import load
from pareo.device import why_unavailable
from pareo.errors import DeviceError
from pareo.parallel.data import nccl
from pareo.training.settings import Settings

RUN = Settings(batch_size=20, rate=0.05, momentum=0.9)


@pytest.mark.gpu
@needs_gpu
def test_a_group_of_one_trains_as_one_alone() -> None:
    images = load("synthetic:16:3:60")
    try:
        found = nccl.fit(WIDE, images, RUN, 2, gpus=[0])
    except DeviceError as error:
        pytest.skip(str(error))
    same(found.parameters, alone(WIDE, images, RUN, 2, "cuda").parameters, **SINGLE)
    assert found.shares[0].communication > 0


@pytest.mark.skipif(why_unavailable("cuda") is None, reason="this machine has a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(DeviceError, match="the device 'cuda' is not available"):
        nccl.fit(WIDE, load("synthetic:16:3:60"), RUN)
