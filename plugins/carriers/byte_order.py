"""The byte order of 16-bit samples (`L16`), which some telephone systems do not document: an option names it."""

from collections.abc import Mapping

import numpy as np

from tutti_server.app.errors import BadStart

BYTE_ORDER = "l16_byte_order"
"""The parameter of a stream that names the order of its bytes."""
ORDERS = ("little", "big")


def is_big_endian(parameters: Mapping[str, str], default: str | None) -> bool:
    """Whether the high byte of each sample comes first.

    Args:
        default: the order where the parameter is missing; `None` if it must be named.

    Raises:
        BadStart: the order is not named, or has another name.
    """
    order = parameters.get(BYTE_ORDER, "").strip() or default
    if order not in ORDERS:
        raise BadStart(BYTE_ORDER, f"{' or '.join(ORDERS)} for samples of 16 bits", order)
    return order == "big"


def swapped(data: bytes) -> bytes:
    """The samples in the other byte order. `data` has whole ones."""
    return np.frombuffer(data, np.int16).byteswap().tobytes()
