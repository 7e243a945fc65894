"""What all ways of training one network with several workers have in common.

`worker_group`      threads or processes that signal, wait and meet at barriers
`errors`            a worker that failed, and errors as one sentence
`shared_memory`     named arrays that all workers see
`batch_schedule`    the batches of a run, in the order in which `fit` would take them
`shared_programs`   programs for a worker's gradients and for the update from all of them
`sharded_update`    one worker's shard of the update
`forward_backward`  part of a network as two programs, forward and backward
`result`            what a run returns: parameters, losses, and where each worker's time went
`ray_cluster`       a connection to a Ray cluster
"""
