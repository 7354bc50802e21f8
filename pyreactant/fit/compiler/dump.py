"""StableHLO of an HLO module as ``--xla_dump_to`` writes it as text.

Only the child process that compiles imports this: it uses private interfaces of jaxlib.
"""

import importlib
import re
from typing import Any

from ...base.errors import InvalidArgumentError

_HEAD = re.compile(r"^HloModule (\S+?),?(?:\s|$)", re.MULTILINE)
_MODULES = re.compile(r"^module\b(?: @(\S+))?", re.MULTILINE)
_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_SHARDY = "xla.sdy.meshes"
_IMPORT_SHARDY = "builtin.module(xla-sdy-round-trip-import-shardy-attrs)"
_EXPORT = "jax.jit(f).lower(...).as_text() writes it"


def as_stablehlo(text: str) -> str:
    """A module as StableHLO; text that is no HLO is returned as it is.

    Raises:
        InvalidArgumentError: The file has several modules, or it is an HLO module that is compiled
            already, or does not parse.
    """
    if text.lstrip().startswith("HloModule"):
        _check_one(_HEAD.findall(text))
        return _converted(_parsed(text))
    _check_one(_MODULES.findall(text))
    return text


def _check_one(names: list[str]) -> None:
    if len(names) > 1:
        raise InvalidArgumentError(
            f"the file must have one module, but has {len(names)}: "
            f"{', '.join(name or 'one without a name' for name in names)}; give a file with one"
        )


def _parsed(text: str) -> Any:
    hlo: Any = importlib.import_module("jaxlib._hlo")
    try:
        return hlo.hlo_module_from_text(text)
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise InvalidArgumentError(
            f"the HLO module does not parse: {why}; give a whole dump of XLA's, such as "
            f"...before_optimizations.txt, or StableHLO: {_EXPORT}"
        ) from None


def _converted(module: Any) -> str:
    from jaxlib.mlir import ir, passmanager

    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    head = module.to_string().partition("\n")[0]
    if "is_scheduled=true" in head or module.spmd_parameters_shardings:
        raise InvalidArgumentError(
            f"HLO module {module.name} is compiled already, for its own devices; give the module "
            "before that, which XLA dumps as ...before_optimizations.txt, or StableHLO: "
            f"{_EXPORT}"
        )
    convert: Any = importlib.import_module("jaxlib._jax").mlir.hlo_to_stablehlo
    with mlir.make_ir_context():
        stablehlo = ir.Module.parse(convert(module.as_serialized_hlo_module_proto()))
        if _SHARDY in head:  # HLO has them as text
            passmanager.PassManager.parse(_IMPORT_SHARDY).run(stablehlo.operation)
        if partitions := _PARTITIONS.search(head):  # the conversion leaves it out
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), int(partitions[1]))
            stablehlo.operation.attributes["mhlo.num_partitions"] = number
        return str(stablehlo)
