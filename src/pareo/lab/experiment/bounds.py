"""Numbers within bounds, as types: msgspec checks them where data come from outside."""

from typing import Annotated

from msgspec import Meta

MOST = 1e100  # of any number, so that sums, products and ratios of a few stay finite

Number = Annotated[float, Meta(gt=-MOST, lt=MOST)]
Amount = Annotated[float, Meta(ge=0, lt=MOST)]  # seconds, bytes, shares: never negative
Positive = Annotated[float, Meta(gt=0, lt=MOST)]
Count = Annotated[int, Meta(ge=1, le=2**62)]
Natural = Annotated[int, Meta(ge=0, le=2**62)]
