"""What becomes of each operator in a lowered program: a rule for each, entered in one table."""

from pareo.backends.cuda.nhwc.rules import activation, convolution, dense, images, shapes
from pareo.backends.cuda.nhwc.rules.table import RULES
from pareo.backends.cuda.nhwc.rules.update import update_together

__all__ = ["RULES", "activation", "convolution", "dense", "images", "shapes", "update_together"]
