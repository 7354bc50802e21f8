"""Options that several commands have, with one text each."""

from typing import Annotated

import typer

from .._core.text import MESH_HELP

DType = Annotated[
    str | None, typer.Option(help="Element type, such as bfloat16.", show_default="float32")
]
MeshText = Annotated[
    str | None, typer.Option(help=f"Mesh: {MESH_HELP}.", show_default="all devices")
]
