"""What a slice costs that somebody forgets."""

from ..tpu._topology import Topology

# USD for a chip and hour on demand, as published for US regions (cloud.google.com/tpu/pricing,
# 2025); other regions and kinds of provisioning differ, and prices change.
_LIST_PRICE = {"v2": 1.125, "v3": 2.0, "v4": 3.22, "v5e": 1.2, "v5p": 4.2, "v6e": 2.7}


def cost_of_forgetting(slices: Topology, lifetime: float) -> str:
    """A sentence: how many chip-hours until it deletes itself, and about what they cost."""
    hours = lifetime / 3600
    chip_hours = slices.chips * hours
    price = _LIST_PRICE.get(slices.generation)
    about = (
        ""
        if price is None
        else (
            f", about {chip_hours * price:,.0f} USD at {price} USD per chip and hour (list price "
            "of US regions on demand; see cloud.google.com/tpu/pricing)"
        )
    )
    return f"{slices.chips} chips for {hours:g} h are {chip_hours:,.0f} chip-hours{about}"
