"""The images that are made up for a task."""

import numpy as np
import pytest

from pareo import nn
from pareo.lab.contestants import task
from pareo.lab.contestants.task import BLOCK, INVENTED, Task

NETWORK = nn.Sequential([nn.Flatten(), nn.Dense(3)], (2, 4, 5))


@pytest.mark.parametrize("threads", [1, 3])
def test_images_do_not_depend_on_the_number_of_threads(monkeypatch, threads):
    wanted, _ = Task(NETWORK, batch=BLOCK + 3, source=INVENTED).data()
    monkeypatch.setattr(task, "cores", lambda: threads)
    found, _ = Task(NETWORK, batch=BLOCK + 3, source=INVENTED).data()
    np.testing.assert_array_equal(found, wanted)


def test_every_image_differs_from_the_others():
    images, labels = Task(NETWORK, batch=2 * BLOCK + 1, source=INVENTED).data()
    assert len(np.unique(images.reshape(len(labels), -1), axis=0)) == 2 * (2 * BLOCK + 1)
    assert abs(images.mean()) < 0.05
    assert images.std() == pytest.approx(1, abs=0.05)
