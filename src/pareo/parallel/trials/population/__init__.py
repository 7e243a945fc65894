"""Networks of one shape that train together, as one program with an axis for the members.

`training`    all epochs of a population
`step`        its steps, compiled
`evaluation`  its losses and accuracies on the test set
"""
