"""Where a large product is checked: on the devices that computed it, or on the host."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...arrays.runtimes.runtime import current
from ...base.errors import InvalidArgumentError, RequirementError, argument

DEVICE, HOST = PLACES = ("device", "host")


def check_place(place: str | None, backends: Iterable[str] = ()) -> None:
    """Check the name of a place, and that the runtimes have a check there.

    Raises:
        InvalidArgumentError: There is no such place.
        RequirementError: The devices are asked for, and a runtime has no check there.
    """
    if place not in (None, *PLACES):
        raise InvalidArgumentError(
            f"{argument('check')} must be one of {', '.join(PLACES)}, got {place!r}"
        )
    others = [name for name in backends if name != "jax"]
    if place == DEVICE and others:
        raise RequirementError(
            f"a check on the devices needs the runtime jax, got {', '.join(others)}; choose "
            f"{argument('check')} {HOST}"
        )


def is_on_devices(place: str | None, dtype: np.dtype[Any], *, large: bool) -> bool:
    """Whether to check a product where it is.

    Args:
        place: One of `PLACES`. None chooses the devices for a large product of floats on GPU or
            TPU, of which the check on the host would take many times as long as the product.
        dtype: Its element type.
        large: Whether the host would use Freivalds' check.

    Raises:
        InvalidArgumentError: There is no such place.
        RequirementError: The devices are asked for, and this runtime has no check there.
    """
    backend = current().backend
    check_place(place, [backend.name])
    if place is not None:
        return place == DEVICE
    accelerated = backend.name == "jax" and backend.devices()[0].platform != "cpu"
    return large and accelerated and dtype.kind not in "iu"
