"""Programs with large convolutions and little else that a network would have."""

from pareo import op


def odd_sums(x, w, b, c):
    """More images than are added at once, in two chains, and one that is spread over the others."""
    y = [op.conv(op.scale(k, x), w) for k in range(6)]
    left = op.add(op.add(y[0], y[1]), y[2])
    right = op.add(op.add(y[3], y[4]), y[5])
    return op.add(op.add(op.add(left, right), b), c)


def odd_products(x, w, v):
    """A transpose that a product of stacks reads, which stays as it was."""
    y = op.reshape(op.max_pool(op.conv(x, w), 2), (2, 256))
    return op.dot(op.transpose(v), op.reshape(y, (2, 64, 4)))


ODD = {
    "sums": (odd_sums, (2, 64, 4, 4), (64, 64, 1, 1), (2, 64, 4, 4), (1, 1, 4, 4)),
    "products": (odd_products, (2, 64, 4, 4), (64, 64, 1, 1), (64, 3)),
}
