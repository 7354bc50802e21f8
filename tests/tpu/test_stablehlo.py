"""Facts read from a StableHLO module, and modules refused before a compiler loads.

These tests import code that otherwise runs in the child that compiles.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.jax.module import describe, parse
from pyreactant.fit.preflight.compile import mesh_of, mhlo_cuts

FOLDER = Path(__file__).parent / "stablehlo"
REACTANT = (FOLDER / "reactant_matmul.mlir").read_text()


def read_module(text: str) -> tuple[dict[str, Any], pr.Mesh | None]:
    """The description of a module as the parent process gets it, through JSON, and its mesh."""
    module = json.loads(json.dumps(describe(parse(text))))
    return module, mesh_of(module)


def tensor(shape: list[int], dtype: str, axes: list[list[str]] | None) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "axes": axes, "mhlo": ""}


def mlir(arguments: str = "", body: str = "", before: str = "", results: str = "()") -> str:
    """A module whose main takes these arguments and returns nothing."""
    head = f"module @jit_f {{ {before} func.func @main({arguments}) -> {results}"
    return f"{head} {{\n{body}\nreturn }} }}"


def test_reactants_form() -> None:
    module, mesh = read_module(REACTANT)
    assert module["name"] == "reactant_mul"
    assert module["num_partitions"] == 16
    assert mesh == pr.Mesh((4, 4), ("x", "y"))
    assert module["arguments"] == [
        tensor([1024, 4096], "bfloat16", [["y"], ["x"]]),
        tensor([2048, 1024], "bfloat16", [["y"], ["x"]]),
    ]
    assert module["results"] == [tensor([2048, 4096], "bfloat16", [["y"], ["x"]])]


def test_mhlo_shardings() -> None:
    module, mesh = read_module((FOLDER / "reactant_matmul_mhlo.mlir").read_text())
    assert mesh is None
    assert module["arguments"][1]["mhlo"] == "{devices=[4,4]<=[4,4]T(1,0)}"
    assert mhlo_cuts("{devices=[4,2,2]<=[16] last_tile_dim_replicate}", 2) == (4, 2)
    assert mhlo_cuts("{replicated}", 3) == (1, 1, 1)
    assert mhlo_cuts("{manual}", 2) is None


def test_other_ways_to_write_it() -> None:
    module, mesh = read_module(
        """
// a comment with func.func @main(%arg0: tensor<?xf32>) and foo.bar
#second = #sdy.sharding<@"my grid", [{"b"}]>
module @"jit f" attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @empty = <[]>
  sdy.mesh @maximal = <[], device_ids=[3]>
  sdy.mesh @other = <["q"=2]>
  sdy.mesh @"my grid" = <["a"=4, "b"=2], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]>
  func.func public @main(%arg0: tensor<8x4x3xf8E4M3FN> {sdy.sharding = #sdy.sharding<@"my grid", \
[{"a":(1)2, "b"}, {?}, {"a":(2)2}p1]>, jax.arg = "a), (b"}, %arg1: tensor<complex<f32>> \
{sdy.sharding = #sdy.sharding<@"my grid", []>},
      %arg2: tensor<4xui8> loc("x"), %arg3: tensor<4xi1>)
      -> (tensor<4xi1> {sdy.sharding = #second}) {
    return %arg3 : tensor<4xi1>
  }
}"""
    )
    assert module["name"] == "jit f"
    assert mesh == pr.Mesh((4, 2), ("a", "b"), [1, 0, 2, 3, 4, 5, 6, 7])
    assert module["num_partitions"] == 8
    assert module["arguments"] == [
        tensor([8, 4, 3], "float8_e4m3fn", [["a:(1)2", "b"], [], ["a:(2)2"]]),
        tensor([], "complex64", []),
        tensor([4], "uint8", None),
        tensor([4], "bool", None),
    ]
    assert module["results"] == [tensor([4], "bool", [["b"]])]


def test_generic_form_and_a_mesh_within_the_sharding() -> None:
    module, mesh = read_module(
        """"builtin.module"() ({
  "func.func"() <{function_type = (tensor<4xsi16>) -> (), sym_name = "main", arg_attrs = \
[{sdy.sharding = #sdy.sharding<mesh<["q"=2, "r"=2]>, [{"r"}]>}]}> ({
  ^bb0(%a: tensor<4xsi16>):
    "func.return"() : () -> ()
  }) : () -> ()
}) : () -> ()"""
    )
    assert module["name"] == "module"
    assert module["num_partitions"] is None
    assert mesh == pr.Mesh((2, 2), ("q", "r"))
    assert module["arguments"] == [tensor([4], "int16", [["r"]])]
    assert module["results"] == []


@pytest.mark.parametrize(
    ("text", "shardy"),
    [
        (REACTANT, True),
        ((FOLDER / "reactant_matmul_mhlo.mlir").read_text(), False),
        (mlir('%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<mesh<["q"=2]>, [{"q"}]>}'), True),
    ],
)
def test_which_partitioner(text: str, shardy: bool) -> None:
    assert describe(parse(text))["shardy"] == shardy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            mlir(
                "%a: tensor<2xf32>",
                '"z.y"(%a) : (tensor<2xf32>) -> ()\n"a.b"() : () -> ()',
            ),
            "uses operations that are not StableHLO: a.b, z.y; export it after",
        ),
        (
            mlir("%a: tensor<2xf32>", "%0 = enzymexla.kernel_call %a"),
            "uses operations that are not StableHLO: enzymexla.kernel_call; export it after",
        ),
        (
            REACTANT.replace("1024x4096", "?x4096"),
            "line 6 of the module has the dynamic shape tensor<?x4096xbf16>; a program must",
        ),
        (mlir("%a: tensor<*xf32>"), "line 1 of the module has the dynamic shape tensor<*xf32>"),
        (
            mlir(
                "%a: tensor<2xf32>",
                "%0 = stablehlo.custom_call @f(%a) : (tensor<2xf32>) -> tensor<2x?xf32>",
            ),
            "line 2 of the module has the dynamic shape tensor<2x?xf32>",
        ),
        (
            mlir('%a: tensor<?xf32> loc("a file")'),
            "the module has the dynamic shape tensor<?xf32>; a program must",
        ),
        (
            mlir('%a: tensor<?xf32> loc("model.py":3:4)'),
            "the module has the dynamic shape tensor<?xf32>; a program must",
        ),
        (
            mlir("%a: !stablehlo.token"),
            "arguments and results of main must be tensors, got !stablehlo.token; export a program",
        ),
        (REACTANT.replace("@main", "@other"), "with a function @main; this one begins with"),
        (
            REACTANT.replace('"x"=4', '"a b"=4').replace('{"x"}', '{"a b"}'),
            'the module\'s sdy.mesh <["a b"=4, "y"=4]>: ',
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as raised:
        read_module(text)
    assert message in str(raised.value)
    assert message.startswith("line") == str(raised.value).startswith("line")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module @a { func.func @main(%arg0: tensor<2xf32>", "expected ')'"),
        (REACTANT.replace("dot_general", "dot_generaal"), "'stablehlo.dot_generaal' is unknown"),
        (REACTANT.replace('[{"y"}, {"x"}]', '[{"y"}, {"z"}]'), "unknown axis name"),
        (REACTANT.replace("@mesh, [", "@mash, ["), "unknown mesh: @mash"),
    ],
)
def test_mlir_refuses_it(text: str, message: str) -> None:
    """The message is MLIR's; the parent process adds that the module does not parse."""
    with pytest.raises(Exception, match=re.escape(message)) as raised:
        read_module(text)
    assert not isinstance(raised.value, pr.PyReactantError)


def test_custom_calls() -> None:
    calls = """
    %3 = stablehlo.custom_call @tpu_custom_call(%2) : (tensor<2xf32>) -> tensor<2xf32>
    %4 = stablehlo.custom_call @"cublas$gemm"(%2) : (tensor<2xf32>) -> tensor<2xf32>
    %5 = "stablehlo.custom_call"(%4) <{call_target_name = "mine"}> : \
(tensor<2xf32>) -> tensor<2xf32>
    // stablehlo.custom_call @not_called(%2)
    %6 = stablehlo.custom_call @Sharding(%2) : (tensor<2xf32>) -> tensor<2xf32>"""
    called = describe(parse(mlir("%2: tensor<2xf32>", calls)))["custom_calls"]
    assert called == ["Sharding", "cublas$gemm", "mine", "tpu_custom_call"]


def test_no_module() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"must be StableHLO as text.*begins with ''"):
        read_module("")
    with pytest.raises(
        pr.InvalidArgumentError, match=r"must be StableHLO as text.*begins with 'hello"
    ):
        read_module("hello, world")
    with pytest.raises(pr.InvalidArgumentError, match="begins with MLIR bytecode"):
        read_module(b"ML\xefR\r\x01".decode(errors="replace"))
