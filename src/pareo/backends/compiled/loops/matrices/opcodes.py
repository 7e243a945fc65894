"""Which instruction computes the products of a layer: small batches, tiles or BLAS."""

from pareo.backends.compiled.loops.matrices import interpreter as machine
from pareo.backends.compiled.loops.matrices import small_batch, tile_products


def forward(batch: int, features: int, depth: int) -> int:
    """The instruction for the fastest way to compute a layer's products."""
    if tile_products.suits_narrow(batch, features):
        return machine.TILE_FORWARD
    if small_batch.is_faster_forward(batch, features * depth):
        return machine.SMALL_FORWARD
    is_faster = tile_products.is_faster_forward(batch, features * depth)
    return machine.TILE_FORWARD if is_faster else machine.PRODUCT


def transposed(batch: int, inputs: int, features: int) -> int:
    """The same for the gradient of a layer's input."""
    if tile_products.suits_narrow(batch, features):
        return machine.TILE_TRANSPOSED
    if small_batch.is_faster_transposed(batch, inputs * features):
        return machine.SMALL_TRANSPOSED
    is_faster = tile_products.is_faster_transposed(batch, inputs * features)
    return machine.TILE_TRANSPOSED if is_faster else machine.PRODUCT


def update(batch: int, inputs: int, features: int) -> int:
    """The same for the update of a layer's weights."""
    if tile_products.suits_narrow(batch, features):
        return machine.TILE_UPDATE
    if small_batch.is_faster_update(batch, inputs * features):
        return machine.SMALL_UPDATE
    is_faster = tile_products.is_faster_update(batch, inputs * features)
    return machine.TILE_UPDATE if is_faster else machine.PRODUCT
