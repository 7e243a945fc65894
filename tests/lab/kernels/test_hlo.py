"""XLA's text, read: shapes, kinds and FLOPs, on lines that JAX 0.10 printed for AlexNet."""

import pytest

from pareo.lab.kernels import hlo

TEXT = """HloModule jit_step, is_scheduled=true

%fused_computation (param_0: f32[384,13,13,2], param_1: f32[13,13,2,256]) -> f32[384,3,3,256] {
  %param_0 = f32[384,13,13,2]{3,2,1,0} parameter(0)
  %param_1 = f32[13,13,2,256]{3,2,1,0} parameter(1)
  ROOT %convolution.13 = f32[384,3,3,256]{3,2,1,0} convolution(%param_0, %param_1), window={size=13x13 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, metadata={op_name="jit(step)/transpose(jvp())/conv_general_dilated" stack_frame_id=27}
}

%fused_computation.31 (param_0.50: f32[2,13,13,384], param_1.60: f32[384]) -> f32[384,13,13,2] {
  %param_0.50 = f32[2,13,13,384]{3,2,1,0} parameter(0)
  %param_1.60 = f32[384]{0} parameter(1)
  %broadcast.1 = f32[2,13,13,384]{3,2,1,0} broadcast(%param_1.60), dimensions={3}
  %add.2 = f32[2,13,13,384]{3,2,1,0} add(%param_0.50, %broadcast.1)
  ROOT %transpose.9 = f32[384,13,13,2]{3,2,1,0} transpose(%add.2), dimensions={3,1,2,0}
}

%wrapped_copy_computation (param_0.1: f32[10]) -> f32[10] {
  %param_0.1 = f32[10]{0} parameter(0)
  ROOT %copy.1 = f32[10]{0} copy(%param_0.1)
}

%fused_computation.50 (param_0.3: f32[60,9], param_1.3: s32[8]) -> f32[8,9] {
  %param_0.3 = f32[60,9]{1,0} parameter(0)
  %param_1.3 = s32[8]{0} parameter(1)
  %constant.5 = s32[] constant(0)
  %broadcast.5 = s32[8]{0} broadcast(%constant.5), dimensions={}
  %compare.5 = pred[8]{0} compare(%param_1.3, %broadcast.5), direction=LT
  %add.5 = s32[8]{0} add(%param_1.3, %broadcast.5)
  %select.5 = s32[8]{0} select(%compare.5, %add.5, %param_1.3)
  ROOT %gather.5 = f32[8,9]{1,0} gather(%param_0.3, %select.5), offset_dims={1}
}

%fused_computation.40 (param_0.2: f32[2,10]) -> f32[10] {
  %param_0.2 = f32[2,10]{1,0} parameter(0)
  %constant.1 = f32[] constant(0)
  ROOT %reduce.1 = f32[10]{0} reduce(%param_0.2, %constant.1), dimensions={0}, to_apply=%region_1
}

ENTRY %main.1 (x: f32[384,13,13,2], g: f32[13,13,2,256]) -> (f32[384,3,3,256]) {
  %x = f32[384,13,13,2]{3,2,1,0} parameter(0)
  %g = f32[13,13,2,256]{3,2,1,0} parameter(1)
  %bitcast.17 = f32[2,9216]{1,0} bitcast(%x)
  %compare_select_fusion.2 = f32[2,4096]{1,0} parameter(2)
  %w = f32[5,5,192,64]{3,2,1,0} parameter(3)
  %spread = f32[2,14,14,192]{3,2,1,0} parameter(4)
  %a = f32[7,4,5]{2,1,0} parameter(5)
  %b = f32[7,5,6]{2,1,0} parameter(6)
  %ynn_fusion.13 = f32[384,3,3,256]{3,2,1,0} fusion(%x, %g), kind=kCustom, calls=%fused_computation, metadata={op_name="jit(step)/transpose(jvp())/conv_general_dilated"}
  %dot = f32[9216,4096]{1,0} dot(%bitcast.17, %compare_select_fusion.2), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dot.7 = f32[7,4,6]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
  %convolution-base-dilated.1 = f32[2,27,27,64]{3,2,1,0} convolution(%spread, %w), window={size=5x5 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f
  %transpose_copy_fusion.1 = f32[384,13,13,2]{3,2,1,0} fusion(%x, %g), kind=kLoop, calls=%fused_computation.31
  %wrapped_copy.3 = f32[10]{0} fusion(%x), kind=kLoop, calls=%wrapped_copy_computation
  %ynn_fusion = f32[10]{0} fusion(%x), kind=kCustom, calls=%fused_computation.40
  %input_reduce_fusion = (f32[384]{0}, f32[384,13,13,2]{3,2,1,0}) fusion(%x), kind=kInput, calls=%fused_computation.40
  %bitcast_gather_fusion = f32[8,9]{1,0} fusion(%x, %g), kind=kLoop, calls=%fused_computation.50
  %scalar = f32[] constant(2)
  %iota.1 = s32[64,55]{1,0} iota(), iota_dimension=0
  %loop_negate_fusion = f32[] fusion(%scalar), kind=kLoop, calls=%wrapped_copy_computation
  ROOT %tuple.1 = (f32[384,3,3,256]{3,2,1,0}) tuple(%ynn_fusion.13)
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def module() -> hlo.Module:
    return hlo.parsed(TEXT)


@pytest.mark.parametrize(
    ("name", "kind", "flops"),
    [
        # The filters' gradient of 13x13 images: 2 x images x pixels x filters x channels x window.
        ("ynn_fusion.13", "convolution", 2 * 2 * 13 * 13 * 384 * 256 * 3 * 3),
        ("dot", "gemm", 2 * 2 * 9216 * 4096),
        ("dot.7", "batched gemm", 2 * 7 * 4 * 5 * 6),
        # Of an image that was spread for a stride of 2, a quarter of the pixels are not zeros.
        ("convolution-base-dilated.1", "convolution", 2 * 2 * 27 * 27 * 64 * 192 * 5 * 5 / 4),
        ("transpose_copy_fusion.1", "elementwise", None),
        ("wrapped_copy.3", "copy", None),
        ("bitcast_gather_fusion", "copy", None),  # of a batch, whose numbers are checked
        ("ynn_fusion", "reduction", None),
    ],
)
def test_kind_and_flops(module: hlo.Module, name: str, kind: str, flops: float | None) -> None:
    assert module.kind(name) == kind
    assert module.flops(name) == flops


def test_shapes_are_those_of_the_product_inside(module: hlo.Module) -> None:
    assert module.shapes("ynn_fusion.13") == "384x13x13x2, 13x13x2x256 -> 384x3x3x256"
    assert module.shapes("dot.7") == "7x4x5, 7x5x6 -> 7x4x6"


def test_shapes_of_several_results_and_of_single_numbers(module: hlo.Module) -> None:
    assert module.shapes("input_reduce_fusion") == "384x13x13x2 -> 384, 384x13x13x2"
    assert module.shapes("loop_negate_fusion") == "1 -> 1"
    assert module.shapes("iota.1") == "-> 64x55"


def test_a_name_that_is_not_there_is_known_by_its_name_alone(module: hlo.Module) -> None:
    assert module.kind("loop_reduce_fusion") == "reduction"
    assert module.flops("loop_reduce_fusion") is None
    assert module.shapes("loop_reduce_fusion") == ""
