"""The program that `ncu` watches: one contestant does one piece of work, once, between marks."""

import sys

from pareo.lab.ops.peers import made
from pareo.lab.ops.work import Work


def main(contestant: str, operator: str, direction: str, nbytes: str) -> None:
    """Compute twice, watched the second time: the first may compile or choose an algorithm."""
    from cupy.cuda import profiler

    peer = made(contestant, threads=1)
    work = Work(operator, direction, int(nbytes))
    call = peer.call(work, work.inputs())
    call()
    peer.wait()
    profiler.start()
    call()
    peer.wait()
    profiler.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
