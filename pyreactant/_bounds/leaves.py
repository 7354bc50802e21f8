"""The arrays of an oracle's result, in the order in which runtimes flatten trees.

An oracle runs also where no runtime does, so this needs neither jax nor optree.
"""

from collections import OrderedDict, defaultdict
from typing import Any

from .._core.tree import data_fields, is_user_dataclass


def leaves(tree: Any) -> list[Any]:
    """The leaves of a dict, list, tuple, namedtuple, dataclass or None, or of a nest of these."""
    kind: type = type(tree)
    if tree is None:
        return []
    if isinstance(tree, (tuple, list)):
        parts = list(tree)
    elif isinstance(tree, OrderedDict):
        parts = list(tree.values())
    elif kind in (dict, defaultdict):
        parts = [tree[key] for key in sorted(tree)]
    elif is_user_dataclass(kind):
        parts = [getattr(tree, name) for name in data_fields(kind)[0]]
    else:
        return [tree]
    return [leaf for part in parts for leaf in leaves(part)]
