"""Vision transformers (Dosovitskiy et al., 2020): ViT-Tiny/16 of timm and ViT-B/16 of torchvision.

Their initial weights are those libraries' own. A truncated normal distribution there is cut at -2
and 2, which is 100 deviations away; it is a normal distribution here.
"""

from pareo.nn.activations import GELU
from pareo.nn.containers import Residual
from pareo.nn.layers import Conv, Dense, Layer
from pareo.nn.network import Sequential
from pareo.nn.normalisation import LayerNorm
from pareo.nn.tokens import Attention, ClassToken, FirstToken, PositionEmbedding, Tokens

PATCH = 16
DEPTH = 12


def _norm() -> LayerNorm:
    return LayerNorm(epsilon=1e-6)


def _base_block(width: int, heads: int) -> Sequential:
    attention = {
        "in_proj": Dense(3 * width, "glorot"),
        "attention": Attention(heads),
        "out_proj": Dense(width, "fan_in"),
    }
    perceptron = {"0": Dense(4 * width, "glorot"), "1": GELU(), "3": Dense(width, "glorot")}
    return Sequential(
        [
            ("", Residual({"ln_1": _norm(), "self_attention": Sequential(attention)})),
            ("", Residual({"ln_2": _norm(), "mlp": Sequential(perceptron)})),
        ]
    )


def vit_b_16(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """ViT-B/16, with the names of torchvision. The last norm is applied to the class token alone.

    >>> vit_b_16().count()
    86567656
    """
    width, heads = 768, 12
    blocks = {f"encoder_layer_{number}": _base_block(width, heads) for number in range(DEPTH)}
    encoder: dict[str, Layer] = {
        "pos_embedding": PositionEmbedding(),
        "layers": Sequential(blocks),
        "class": FirstToken(),
        "ln": _norm(),
    }
    layers = {
        "conv_proj": Conv(width, PATCH, PATCH, start="lecun"),
        "tokens": Tokens(),
        "class_token": ClassToken(),
        "encoder": Sequential(encoder),
        "heads": Sequential({"head": Dense(classes, "zeros")}),
    }
    return Sequential(layers, (channels, size, size), "vit-b-16")


def _tiny_block(width: int, heads: int) -> Sequential:
    start = "normal_0.02"
    attention = {
        "qkv": Dense(3 * width, start),
        "attention": Attention(heads),
        "proj": Dense(width, start),
    }
    perceptron = {"fc1": Dense(4 * width, start), "act": GELU(), "fc2": Dense(width, start)}
    return Sequential(
        [
            ("", Residual({"norm1": _norm(), "attn": Sequential(attention)})),
            ("", Residual({"norm2": _norm(), "mlp": Sequential(perceptron)})),
        ]
    )


def vit_tiny_16(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """ViT-Tiny/16, with the names of timm. The last norm is applied to the class token alone.

    >>> vit_tiny_16().count()
    5717416
    """
    width, heads = 192, 3
    layers = {
        "patch_embed": Sequential({"proj": Conv(width, PATCH, PATCH, start="fan_in")}),
        "tokens": Tokens(),
        "cls_token": ClassToken("normal_1e-6"),
        "pos_embed": PositionEmbedding(),
        "blocks": Sequential([_tiny_block(width, heads) for _ in range(DEPTH)]),
        "class": FirstToken(),
        "norm": _norm(),
        "head": Dense(classes, "normal_0.02"),
    }
    return Sequential(layers, (channels, size, size), "vit-tiny-16")
