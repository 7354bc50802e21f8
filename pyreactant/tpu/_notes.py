"""Where Cloud TPU, GKE and the runtime name the same slice differently, in words."""

import math
from collections.abc import Iterator

from ._generations import GIB, Generation
from ._slices import Shape, count, default_shape, host_bounds, shape_text


def notes(generation: Generation, shape: Shape, bounds: Shape) -> tuple[str, ...]:
    """What to know about a slice's names and numbers.

    Args:
        generation: Which.
        shape: Of one slice.
        bounds: Which chips one VM has.
    """
    return (*_names(generation, shape), *_hosts(generation, shape, bounds), *_devices(generation))


def _names(generation: Generation, shape: Shape) -> Iterator[str]:
    chips = math.prod(shape)
    number = count(generation, chips)
    if generation.counts_cores:
        yield f"{generation.prefix}-{number} counts TensorCores, two a chip"
    if generation.prefix != generation.name:
        yield (
            f"Cloud TPU calls it {generation.prefix}-{number}, "
            f"libtpu {generation.name}:{shape_text(shape)}"
        )
    usual = default_shape(generation, chips)
    if usual is not None and usual != shape:
        yield (
            f"{generation.prefix}-{number} alone is {shape_text(usual)}; ask for this one with "
            f"--type={generation.name} --topology={shape_text(shape)}"
        )
    if generation.runtime_version is None:
        yield "Cloud TPU's API does not offer it: GKE and Compute Engine do, without a runtime name"


def _hosts(generation: Generation, shape: Shape, bounds: Shape) -> Iterator[str]:
    if shape != generation.one_vm:
        return
    name = f"{generation.prefix}-{count(generation, math.prod(shape))}"
    whole, machine = math.prod(shape), generation.machine
    if bounds == host_bounds(generation, shape):
        yield (
            f"{name} is one VM of {whole} chips in Cloud TPU and as GKE's {machine}-{whole}t; "
            f"GKE's {machine}-4t makes it two hosts of 4 "
            f"(name it {machine}-4t:{shape_text(shape)}), and so does libtpu when nothing is said"
        )
    else:
        yield (
            f"two hosts of 4 chips is GKE's {machine}-4t and what libtpu takes when nothing is "
            f"said; {name} of Cloud TPU and GKE's {machine}-{whole}t are one VM of {whole}"
        )


def _devices(generation: Generation) -> Iterator[str]:
    if generation.cores_per_chip == 2 and generation.devices_per_chip == 1:
        line = "one JAX device a chip: its two cores work as one (megacore)"
        if generation.name == "v4":
            line += "; libtpu describes two devices a chip unless chip_config_name='megacore'"
        yield line
    elif generation.devices_per_chip == 2:
        share = generation.hbm_bytes_per_chip / 2 / GIB
        yield f"two JAX devices a chip, one for each core, with {share:g} GiB of HBM each"
