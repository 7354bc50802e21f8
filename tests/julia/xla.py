"""Calls the library of the real-sources level as Reactant does, without Julia.

`python -m tests.julia.xla LIBRARY OPTIONS CHECK [ADDRESS PROCESS]` prints what the check sees, as
JSON: the library's MLIR and its process with XLA stay out of the process of the tests.
"""

import ctypes
import json
import re
import sys
from collections.abc import Callable, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_void_p,
)
from pathlib import Path
from typing import Any

import numpy as np

SOURCES = Path(__file__).resolve().parents[2] / "julia" / "test" / "xla"
F32 = 11  # a number of xla_data.proto


def functions() -> dict[str, str]:
    """The library's functions with their arguments, from its sources."""
    return {
        name: arguments
        for file in SOURCES.glob("*.cpp")
        if file.name != "loading.cpp"  # functions of other libraries
        for name, arguments in re.findall(
            r"^EXPORT [^(;]*?(\w+)\(([^)]*)\)", file.read_text(), re.MULTILINE | re.DOTALL
        )
    }


class Text(Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))

    @classmethod
    def of(cls, text: str) -> "Text":
        data = text.encode()
        return cls(data, len(data))


class Handle(Structure):
    _fields_ = (("pointer", c_void_p),)


PRINT = CFUNCTYPE(None, Text, c_void_p)


class Library:
    """The library's functions, each by its name: call(result type, name, arguments)."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __call__(self, result: Any, name: str, *arguments: Any) -> Any:
        function = self._library[name]
        function.restype = result
        return function(*arguments)

    def __contains__(self, name: str) -> bool:
        return hasattr(self._library, name)

    def text(self, name: str, pointer: c_void_p) -> str:
        return (self(c_char_p, name, pointer) or b"").decode()


class Module:
    """An MLIR module with the dialects and passes that Reactant registers."""

    def __init__(self, library: Library, source: str) -> None:
        self._call = library
        context = library(Handle, "mlirContextCreate")
        library(None, "RegisterDialects", context)
        library(None, "InitializePasses", Handle())
        self._context = context
        self.handle = library(Handle, "mlirModuleCreateParse", context, Text.of(source))
        assert self.handle.pointer, "the module does not parse"
        self._operation = library(Handle, "mlirModuleGetOperation", self.handle)

    def run(self, pipeline: str) -> str:
        """Run passes; an error message, or the empty string."""
        messages: list[str] = []

        @PRINT  # type: ignore[untyped-decorator]
        def keep(part: Text, _: Any) -> None:
            messages.append(ctypes.string_at(part.data, part.size).decode())

        manager = self._call(Handle, "mlirPassManagerCreate", self._context)
        nested = self._call(Handle, "mlirPassManagerGetAsOpPassManager", manager)
        pipe = Text.of(pipeline)
        if not self._call(c_int8, "mlirOpPassManagerAddPipeline", nested, pipe, keep, None):
            return "".join(messages)
        ran = self._call(c_int8, "mlirPassManagerRunOnOp", manager, self._operation)
        return "" if ran else "failed"

    def __str__(self) -> str:
        parts: list[str] = []

        @PRINT  # type: ignore[untyped-decorator]
        def keep(part: Text, _: Any) -> None:
            parts.append(ctypes.string_at(part.data, part.size).decode())

        self._call(None, "mlirOperationPrint", self._operation, keep, None)
        return "".join(parts)

    def attribute(self, text: str) -> Handle:
        return self._call(Handle, "mlirAttributeParseGet", self._context, Text.of(text))

    @property
    def context(self) -> Handle:
        return self._context


def client(call: Library, process: int = 0, of: int = 1, runtime: Any = None) -> c_void_p:
    return c_void_p(
        call(
            c_void_p,
            "ifrt_make_pjrt_cpu_client",
            c_uint8(1),
            c_int(process),
            c_int(of),
            runtime,
            None,
        )
    )


class ServiceOptions(Structure):
    _fields_ = (
        ("processes", c_int32),
        ("recoverable", c_bool),
        ("heartbeat", c_int32),
        ("register", c_int32),
        ("shutdown", c_int32),
    )


class ClientOptions(Structure):
    _fields_ = (
        ("process", c_int32),
        ("rpc", c_int32),
        ("start", c_int32),
        ("shutdown", c_int32),
        ("heartbeat", c_int32),
        ("compress", c_bool),
        ("shutdown_at_the_end", c_bool),
        ("ask_for_errors", c_bool),
        ("recoverable", c_bool),
    )


def started(call: Library) -> tuple[c_void_p, Callable[[], None]]:
    """The client of this process, one of several if the arguments say so, and its shutdown."""
    if len(sys.argv) == 4:
        return client(call), lambda: None
    address, process = sys.argv[4].encode(), int(sys.argv[5])
    service = None
    if process == 0:
        options = ServiceOptions(2, False, -1, -1, -1)
        name = "GetDistributedRuntimeServiceWithOptions"
        service = c_void_p(call(c_void_p, name, address, ctypes.byref(options)))
    mine = ClientOptions(process, -1, -1, -1, -1, True, True, True, False)
    name = "GetDistributedRuntimeClientWithOptions"
    runtime = c_void_p(call(c_void_p, name, address, ctypes.byref(mine)))
    call(None, "distributed_runtime_client_connect", runtime)

    def shutdown() -> None:
        call(None, "distributed_runtime_client_shutdown", runtime)
        if service is not None:
            call(None, "distributed_runtime_service_shutdown", service)

    return client(call, process, 2, runtime), shutdown


def is_here(call: Library, device: int) -> bool:
    return bool(call(c_bool, "ifrt_DeviceIsAddressable", c_void_p(device)))


def devices(call: Library, of: c_void_p) -> list[int]:
    count = call(c_int, "ifrt_client_device_count", of)
    pointers = (c_void_p * count)()
    call(None, "ifrt_client_devices", of, pointers)
    return list(pointers)


def hlo_sharding(call: Library, module: Module, sharding: str, mesh: str) -> c_void_p:
    given, axes = module.attribute(sharding), module.attribute(mesh)
    return c_void_p(call(c_void_p, "hloShardingFromTensorShardingAttr", given, axes))


def put(
    call: Library, of: c_void_p, array: np.ndarray, blocks: Sequence[Any], sharding: c_void_p
) -> c_void_p:
    """A float32 array of which device n of the client holds blocks[n], an index."""
    all_devices = devices(call, of)
    here = [n for n, device in enumerate(all_devices) if is_here(call, device)]
    parts = (c_void_p * len(here))()
    for place, n in enumerate(here):
        block = np.ascontiguousarray(array[blocks[n]])
        parts[place] = call(
            c_void_p,
            "ifrt_client_make_single_shard_array_from_host_buffer",
            of,
            block.ctypes.data_as(c_void_p),
            c_int(F32),
            c_int(block.ndim),
            (c_int64 * block.ndim)(*block.shape),
            c_int(0),
            c_void_p(all_devices[n]),
            b"device",
        )
    kind = c_void_p(call(c_void_p, "ifrt_memory_kind_with_optional_memory_space"))
    ifrt = call(
        c_void_p,
        "ifrt_sharding_from_xla_hlo_sharding",
        of,
        (c_void_p * len(all_devices))(*all_devices),
        c_int32(len(all_devices)),
        kind,
        sharding,
    )
    return c_void_p(
        call(
            c_void_p,
            "ifrt_client_assemble_array_from_single_shards",
            of,
            c_int32(array.ndim),
            (c_int64 * array.ndim)(*array.shape),
            c_void_p(ifrt),
            c_int32(len(parts)),
            parts,
            c_int32(2),
        )
    )


def blocks_of(call: Library, array: c_void_p) -> list[np.ndarray]:
    """The blocks of an array, by the order of its devices."""
    count = c_int32()
    pointers = call(
        POINTER(c_void_p),
        "ifrt_array_disassemble_into_single_device_arrays",
        array,
        c_int32(0),
        c_int32(0),
        ctypes.byref(count),
    )
    found = []
    for n in range(count.value):
        part = c_void_p(pointers[n])
        rank = call(c_int64, "ifrt_array_ndims", part)
        shape = call(POINTER(c_int64), "ifrt_array_shape", part)[:rank]
        block = np.empty(shape, np.float32)
        call(None, "ifrt_array_copy_to_host_buffer", part, block.ctypes.data_as(c_void_p))
        call(None, "ifrt_free_array", part)
        found.append(block)
    return found


def compiled(call: Library, of: c_void_p, module: Module, options: bytes) -> c_void_p:
    return c_void_p(
        call(
            c_void_p,
            "ifrt_compile_with_proto",
            of,
            module.handle,
            options,
            c_size_t(len(options)),
        )
    )


def execute(
    call: Library,
    program: c_void_p,
    arguments: Sequence[c_void_p],
    donated: Sequence[int],
    outs: int,
) -> list[c_void_p]:
    results = (c_void_p * outs)()
    has_future, future = c_uint8(), c_void_p()
    call(
        None,
        "ifrt_loaded_executable_execute",
        program,
        c_int(len(arguments)),
        (c_void_p * len(arguments))(*(x.value for x in arguments)),
        (c_uint8 * len(arguments))(*donated),
        c_int(outs),
        results,
        ctypes.byref(has_future),
        ctypes.byref(future),
    )
    assert has_future.value
    call(None, "ifrt_future_await", future)
    return [c_void_p(x) for x in results]


MESH = '#sdy.mesh<["x"=2, "y"=4]>'
# Reactant's pipeline, in short: passes of MLIR, some that are left out, and the library's own.
PIPELINE = (
    "mark-func-memory-effects,inline{default-pipeline=canonicalize max-iterations=4},canonicalize,"
    "enzyme-hlo-generate-td{patterns=a;b},transform-interpreter,enzyme-batch,"
    'enzyme{postpasses="arith-raise{stablehlo=true},canonicalize"},'
    "enzyme-hlo-generate-td{patterns=},canonicalize,symbol-dce,cse"
)
SHARDY = "sdy-propagation-pipeline,sdy-close-shardings,func.func(sdy-reshard-to-collectives)"

PROGRAM = """
module {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func private @scalar(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %c = stablehlo.constant dense<2.0> : tensor<f32>
    %0 = stablehlo.multiply %a, %c : tensor<f32>
    %1 = stablehlo.add %0, %b : tensor<f32>
    return %1 : tensor<f32>
  }
  func.func private @same(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %a : tensor<4x8xf32>
  }
  func.func @main(
      %a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>},
      %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>},
          tensor<8x4xf32>) {
    %start = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<3> : tensor<i32>
    %turns:2 = stablehlo.while(%n = %start, %x = %a) : tensor<i32>, tensor<8x4xf32>
      cond {
        %more = stablehlo.compare LT, %n, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %next = stablehlo.add %n, %one : tensor<i32>
        stablehlo.return %next, %x : tensor<i32>, tensor<8x4xf32>
      }
    %0 = stablehlo.transpose %turns#1, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %1 = stablehlo.transpose %b, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %2 = "enzyme.batch"(%0, %1) {fn = @scalar, batch_shape = array<i64: 4, 8>}
        : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = func.call @same(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.dot_general %b, %2, contracting_dims = [1] x [0]
        : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    return %5, %4 : tensor<8x8xf32>, tensor<8x4xf32>
  }
}
"""


def passes(call: Library, options: bytes) -> Any:
    """The program after Reactant's passes, what a gradient and an unknown pass give, and XLA's
    compile options, which Reactant reads first.
    """
    size = c_size_t()
    defaults = call(c_void_p, "ReactantGetCompileOptions", ctypes.byref(size))
    module = Module(call, PROGRAM)
    ran = module.run(PIPELINE)
    gradient = Module(call, 'module { "enzyme.autodiff"() {fn = @f} : () -> () }')
    return {
        "ran": ran,
        "text": str(module),
        "shardy": module.run(SHARDY),
        "unknown": Module(call, "module {}").run("canonicalize,no-such-pass"),
        "gradient": gradient.run(PIPELINE),
        "options": ctypes.string_at(defaults, size.value).hex(),
    }


def shardings(call: Library, options: bytes) -> Any:
    """Shardy's shardings as XLA's; and back, if they use whole axes."""
    module = Module(call, "module {}")
    seen = {}
    for spec in (
        '[{"x"}, {"y"}]',
        '[{"y"}, {}]',
        '[{}, {"y", "x"}]',
        "[{}, {}]",
        '[{"y":(2)2}, {}]',
    ):
        sharding = hlo_sharding(call, module, f"#sdy.sharding<@mesh, {spec}>", MESH)
        seen[spec] = call.text("hlo_sharding_to_string", sharding)
        if "(" in spec:
            continue
        back = call(
            Handle,
            "hloShardingToTensorShardingAttr",
            module.context,
            sharding,
            module.attribute("@mesh"),
            module.attribute(MESH),
            c_int64(2),
            (c_bool * 2)(True, True),
            (c_int64 * 2)(-1, -1),
        )
        expected = module.attribute(f"#sdy.sharding<@mesh, {spec}>")
        assert call(c_bool, "mlirAttributeEqual", back, expected), spec
    return seen


def program(call: Library, options: bytes) -> Any:
    """Sizes and sums of the blocks of a program on 8 devices, and whether its argument stays."""
    module = Module(call, PROGRAM)
    assert module.run(PIPELINE) == ""
    assert module.run(SHARDY) == ""
    of, shutdown = started(call)
    sharding = hlo_sharding(call, module, '#sdy.sharding<@mesh, [{"y"}, {"x"}]>', MESH)
    a = np.arange(32, dtype=np.float32).reshape(8, 4)
    places = [
        (slice(2 * y, 2 * y + 2), slice(2 * x, 2 * x + 2)) for x in range(2) for y in range(4)
    ]
    given = [put(call, of, array, places, sharding) for array in (a, a + 1)]
    ran = compiled(call, of, module, options)
    results = [blocks_of(call, x) for x in execute(call, ran, given, [0, 0], 2)]
    here = [is_here(call, device) for device in devices(call, of)]
    mine = [a[place] for place, local in zip(places, here, strict=True) if local]
    argument = blocks_of(call, given[0])
    shutdown()
    return {
        "sizes": [[list(block.shape) for block in blocks] for blocks in results],
        "sums": [float(sum(block.sum() for block in blocks)) for blocks in results],
        "argument": all(map(np.array_equal, argument, mine)),
    }


def ids(call: Library, options: bytes) -> Any:
    """The devices' ids, which XLA chooses."""
    of, shutdown = started(call)
    found = [call(c_int64, "ifrt_DeviceGetGlobalDeviceId", c_void_p(x)) for x in devices(call, of)]
    shutdown()
    return found


def absent(library: Library, options: bytes) -> Any:
    """The functions of the sources that the library lacks."""
    return [name for name in functions() if name not in library]


def error(call: Library, options: bytes) -> Any:
    """An error of XLA, which ends a process without Julia."""
    module = Module(call, "module { func.func @main() { return } }")
    compiled(call, client(call), module, b"no options")


if __name__ == "__main__":
    path, settings, name = sys.argv[1:4]
    print(json.dumps(globals()[name](Library(path), bytes.fromhex(settings))))
