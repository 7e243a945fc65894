"""Many networks at the same time, each with its own settings.

`trial`       a trial and its result
`many`        `train_many`, which chooses one of the ways below
`train_trial` one trial, in this thread
`threads`, `processes`, `population`, `on_ray`  the ways to train many
`schedule`    which trial runs when, and on how many cores
`prediction`  which way is expected to be fastest
`scoring`     testing many networks at the same time
"""
