"""Data parallelism: every batch of one network is split over workers.

`training`  `fit`, for threads and processes that share the parameters
`worker`    one of these workers
`synchronised`  batch normalisation by the statistics of all workers' rows
`replica`   a worker with its own copy of the parameters, and the all-reduce that it needs
`nccl`      replicas on several GPUs of one machine
`on_ray`    replicas on a Ray cluster, replaced when they are lost
"""

from pareo.parallel.data.training import fit

__all__ = ["fit"]
