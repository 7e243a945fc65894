"""Model parallelism by layers: stages through which micro-batches flow.

`stages`   the stages of a network, their programs, and the order of their work
`balance`  where to cut a network, so that all stages take about as long
`worker`   one stage while it trains
"""
