"""How each node of a program becomes lines of a loop over groups of images.

`table`          all of them, and the order of lines
`operands`       what they have in common
`elementwise`, `convolution`, `dense`, `pooling`, `normalisation`, `moves`, `loss`
"""
