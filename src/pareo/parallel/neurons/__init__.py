"""Model parallelism by neurons: every worker has a shard of each dense layer.

`segments`  dense layers in pairs, and one worker's shard of a pair
`around`    augmentation and the loss, which every worker computes on whole batches
`worker`    one worker while it trains
"""
