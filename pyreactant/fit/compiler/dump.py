"""StableHLO of an HLO module as ``--xla_dump_to`` writes it: text, or a protocol buffer.

Only the child process that compiles imports this: it uses private interfaces of jaxlib.
"""

import importlib
import re
from typing import Any

from ...base.errors import InvalidArgumentError

_HEAD = re.compile(r"^HloModule (\S+?),?(?:\s|$)", re.MULTILINE)
_MODULES = re.compile(r"^module\b(?: @(\S+))?", re.MULTILINE)
_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")
_SHARDY = "xla.sdy.meshes"
_IMPORT_SHARDY = "builtin.module(xla-sdy-round-trip-import-shardy-attrs)"
_EXPORT = "jax.jit(f).lower(...).as_text() writes it"
_HLO_MODULE = 1
"""Number of the field `hlo_module` of an HloProto (xla/service/hlo.proto)."""
_MORE = 1 << 7
"""The bit of a byte of a number after which another byte follows."""


def as_stablehlo(text: str) -> str:
    """A module as StableHLO; text that is no HLO is returned as it is.

    Args:
        text: The file, in which bytes that are not UTF-8 are surrogates ("surrogateescape").

    Raises:
        InvalidArgumentError: The file has several modules, or it is an HLO module that is compiled
            already, or does not parse.
    """
    data = text.encode("utf-8", "surrogateescape")
    if text.lstrip().startswith("HloModule"):
        names = _HEAD.findall(text)
        _check_one(names)
        return _converted(_parsed(text))
    if _is_binary(data):
        return _converted(_parsed(_module_of(data)))
    _check_one(_MODULES.findall(text))
    return text


def _is_binary(data: bytes) -> bool:
    """Whether it is a protocol buffer, which has control characters: no text, no bytecode."""
    return not data.startswith(b"ML\xef") and _CONTROL.search(data) is not None


def _check_one(names: list[str]) -> None:
    if len(names) > 1:
        raise InvalidArgumentError(
            f"the file must have one module, but has {len(names)}: "
            f"{', '.join(name or 'one without a name' for name in names)}; give a file with one"
        )


def _parsed(content: str | bytes) -> Any:
    """XLA's module of a text, or of an HloModuleProto."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    try:
        if isinstance(content, str):
            return hlo.hlo_module_from_text(content)
        return hlo.HloModule.from_serialized_hlo_module_proto(content)
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


def _module_of(data: bytes) -> bytes:
    """The HloModuleProto within an HloProto, whose first field it is; other data as it is.

    The first field of an HloModuleProto, its name, is text; that of an HloProto is a message, which
    begins with the name's tag.
    """
    tag, start = data[0], 1
    length = shift = 0
    while start < len(data):
        byte = data[start]
        length, shift, start = length | byte % _MORE << shift, shift + 7, start + 1
        if byte < _MORE:
            break
    inner = data[start : start + length]
    is_message = tag == _HLO_MODULE << 3 | 2 and inner[:1] == bytes([1 << 3 | 2])
    return inner if is_message else data
