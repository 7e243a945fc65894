"""The kind of a kernel, by its name: the first rule that matches decides.

tests/lab/kernels compares the rules for CUDA with names that were recorded on a GPU in PyTorch, and
with every kernel of pareo's own.
"""

import re
from collections.abc import Sequence

from pareo.lab.kernels.events import Kind

Rules = Sequence[tuple[str, Kind]]  # a pattern that is searched for, and the kind

# What moves data is asked for before what computes: a transposing copy is a copy.
OPERATORS: Rules = (
    (r"^(copy|concat|part|part_gradient|transpose|reshape|broadcast|gather|pad|split)", "copy"),
    (r"^(take|augment|flip_crop)", "copy"),
    (r"^(to_|as_|nhwc|nchw|space_to_depth|flip|layout|round)", "copy"),
    (r"conv|subsample", "convolution"),
    (r"^attention", "batched gemm"),
    (r"^(dot|descend)", "gemm"),
    (r"pool|^(sum|mean|max|argmax)", "reduction"),
    (r"cross_entropy|squared_error|softmax|lrn|bias_gradient|bias_sums|add_sums", "reduction"),
    (r"(batch|layer)_norm(?!_inference)|^norm", "reduction"),
    (r"", "elementwise"),
)

TORCH: Rules = (
    (r"^aten::(conv\dd|einsum|matmul|linear|cross_entropy_loss|_foreach\w*)$", "other"),  # wrappers
    (r"^aten::(batch_norm|layer_norm|scaled_dot_product_attention)$", "other"),  # more of them
    (r"^aten::(bmm|baddbmm)$|attention", "batched gemm"),
    (r"^aten::(mm|addmm|addmv|mv|dot|_addmm_activation)$", "gemm"),
    (r"conv", "convolution"),
    (r"pool|softmax|nll_loss|norm|::(sum|mean|amax|max|min|argmax|var)$", "reduction"),
    (r"::(copy_|clone|contiguous|cat|index_select|_to_copy|to|slice_backward|pad)", "copy"),
    (r"::(index|gather|select_backward|stack|constant_pad_nd)", "copy"),
    (r"::(empty|as_strided|view|reshape|resize_|unbind|select|slice|detach|expand)", "other"),
    (
        r"::(unsqueeze|squeeze|transpose|permute|t|alias|lift_fresh|result_type|flatten|narrow|item)$",
        "other",
    ),
    (r"^aten::", "elementwise"),
    (r"", "other"),
)

# XLA names a fusion after what is in it.
XLA: Rules = (
    (r"convolution", "convolution"),
    (r"fmha|attention|batch_gemm", "batched gemm"),
    (r"^(dot|gemm)|dot_general", "gemm"),
    (r"reduce|reduction|select-and-scatter|scatter|sort", "reduction"),
    (r"^(copy|transpose|bitcast|gather|concatenate|slice|pad|wrapped_slice|wrapped_copy)", "copy"),
    (r"^(while|call|conditional|custom-call|tuple|parameter)", "other"),
    (r"", "elementwise"),
)

CUDA: Rules = (
    # pareo's own first, whose names are words, with template arguments or without.
    (r"^((flip|arrange)_filters|filters_(to|from)_depth|space_to_depth(_rows)?|cast)(<|$)", "copy"),
    (r"^(to|from)_columns(<|$)", "copy"),
    (r"^(pad|repeat|augment|take(_gradient|_packed)?)(<|$)", "copy"),
    (r"^(subsample|filters_back|strips|narrow|product_(statistics|back_sums))", "convolution"),
    (r"^depthwise(_filters|_images|_input|_turned|_weight)?(<|$)", "convolution"),
    # Of batch and layer normalisation, attention's backward pass, and the norm of all gradients.
    (r"^((channel_)?statistics|errors|inner_products|squares|root)(_|<|$)", "reduction"),
    (r"^merge_moments(<|$)", "reduction"),
    (r"^(gradients|slopes|inference|activation|average_all|lion)(_|<|$)", "elementwise"),
    (r"^dense_update", "gemm"),
    (r"^(sum|mean|max|argmax|squared_error)(_|<|$)|bias_back(<|$)", "reduction"),
    (r"^(add|sub|mul|div|scale|hadamard|exp|log|sigmoid|tanh|relu)(_|<|$)", "elementwise"),
    # torch.compile's say what they are, and then what they came from: bias and relu of a
    # convolution are no convolution.
    (r"^triton_poi_.*pool", "reduction"),
    (r"^triton_poi_fused(_+(unsafe_view|view|clone|cat|to_copy|permute|constant_pad_nd))+_\d+$",
     "copy"),
    (r"^triton_(poi|for)_", "elementwise"),
    (r"^triton_(red|per|mix)_", "reduction"),
    (r"^triton_tem_.*conv", "convolution"),
    (r"^triton_tem_", "gemm"),
    (r"(?i)memcpy|memset|direct_copy|bfloat16_copy", "copy"),
    (r"^(vectorized_|unrolled_)?elementwise_kernel|multi_tensor_apply", "elementwise"),
    (r"(?i)flash_|fmha|attention|mha_", "batched gemm"),
    (r"(?i)reduce_?splitk|reduce_kernel|softmax|pool", "reduction"),
    (r"(?i)batch_?norm|bn_(fw|bw)|layer_?norm", "reduction"),
    (r"(?i)fprop|dgrad|wgrad|winograd|convol|conv2d|conv_|fft2d", "convolution"),
    (r"(?i)(batched|strided).*gemm|gemm.*(batched|strided_?batch)|bmm", "batched gemm"),
    (r"(?i)gemm|gemv|cutlass.*(tensorop|wgmma|simt)|nvjet|xmma", "gemm"),
    (r"(?i)nchwtonhwc|nhwctonchw|transpose|copy|gather|concat|catarray|indexselect", "copy"),
    (r"(?i)index_select|cast|convert|padding|^part|rounded", "copy"),
    (r"(?i)reduc|loss|norm|lrn|argmax|^sum|total|cross_entropy", "reduction"),
    (r"(?i)elementwise|fusion|update|relu|sigmoid|tanh|add|mul|bias|fill|sgd|descend|dropout",
     "elementwise"),
    (r"", "other"),
)  # fmt: skip


def kind(name: str, rules: Rules) -> Kind:
    """The kind by the first rule that matches.

    >>> kind("aten::addmm", TORCH), kind("aten::add_", TORCH)
    ('gemm', 'elementwise')
    """
    return next(kind for pattern, kind in rules if re.search(pattern, name))


def kind_of_operator(name: str) -> Kind:
    """The kind of one of pareo's instructions, by its operator or fusion.

    >>> [kind_of_operator(n) for n in ("conv_bias_relu", "descend", "sum", "step_down", "part")]
    ['convolution', 'gemm', 'reduction', 'elementwise', 'copy']
    """
    return kind(name, OPERATORS)
