"""Convolutions of lowered programs, each by the fastest plan for its shape.

`plans` times the candidates on the GPU and remembers the fastest on disk. The candidates are
cuDNN's plans (`cudnn`) and our own: `filter_gradient` and `filter_gradient_strips` for gradients of
filters, `few_channels` for first layers, `depthwise`, `product` for single pixels, and three that
leave the work to another plan: `input_gradient_as_forward`, `forward_as_input_gradient` and
`in_parts`. `convolution` are the instructions; `positions` and `work_split` are shared by our
kernels. `product_sums` are convolutions with the sums of a batch normalisation, and `summed_plans`
says where they are faster.
"""
