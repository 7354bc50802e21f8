"""Programs that are functions, and arrays of JAX in and out: the JAX runtime alone."""

import copy
import dataclasses
import functools
import gc
import importlib
import sys
import textwrap
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from tests.backend.common import WHOLE, XY

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

FACTOR = 2


def _helper(x: Any) -> Any:
    return x * FACTOR


def _with_helper(x: Any) -> Any:
    return _helper(x)


class Model:
    """A callable with state, and a method."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, x: Any) -> Any:
        return x * self.factor

    __call__ = scale


def _first(f: Any, *args: Any) -> float:
    return float(np.asarray(pr.compile(f, *args)(*args)).flat[0])


@pytest.fixture
def ones() -> pr.ShardedArray:
    array: pr.ShardedArray = pr.device_put(np.ones((8, 8), np.float32), XY)
    return array


def test_every_callable(ones: pr.ShardedArray) -> None:
    model = Model(3)
    for f, expected in (
        (lambda x: x * 2, 2),
        (functools.partial(lambda k, x: x * k, 5), 5),
        (model.scale, 3),
        (model, 3),
        (pr.Program("p", jax=lambda x: x + 1), 2),
    ):
        assert _first(f, ones) == expected
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        pr.compile(lambda x, y: x, ones)


def test_a_program_is_as_it_is_defined_now(
    ones: pr.ShardedArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX's own `jit(f).lower()` is stale for a function whose global changed."""
    assert _first(_with_helper, ones) == 2
    monkeypatch.setitem(globals(), "FACTOR", 7)  # a global of a helper
    assert _first(_with_helper, ones) == 7
    monkeypatch.setitem(globals(), "_helper", lambda x: x * 9)  # the helper itself
    assert _first(_with_helper, ones) == 9
    model = Model(3)
    assert _first(model.scale, ones) == 3
    model.factor = 4
    assert _first(model.scale, ones) == 4
    closed, large = 2.0, np.ones((8, 8), np.float32)

    def closure(x: Any) -> Any:
        return x * closed + large

    assert _first(closure, ones) == 3
    closed = 5.0
    assert _first(closure, ones) == 6
    large = large * 10
    assert _first(closure, ones) == 15


def test_a_module_that_was_reloaded(
    ones: pr.ShardedArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_bodies.py"
    program = pr.Program("p", jax="reloaded_bodies:f")
    file.write_text("def f(x): return x * 2\n")
    assert float(program(ones).gather()[0, 0]) == 2
    compiled = pr.compile(program, ones)
    file.write_text("def f(x): return x * 30\n")
    importlib.reload(sys.modules["reloaded_bodies"])
    assert float(program(ones).gather()[0, 0]) == 30
    assert _first(program, ones) == 30
    assert float(compiled(ones).gather()[0, 0]) == 2  # what is compiled stays


def test_a_call_fixes_globals_and_sees_another_function(
    ones: pr.ShardedArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = pr.Program("p", jax=f"{__name__}:_with_helper")
    assert float(program(ones).gather()[0, 0]) == 2
    monkeypatch.setitem(globals(), "FACTOR", 7)
    assert float(program(ones).gather()[0, 0]) == 2  # as in jax.jit
    monkeypatch.setattr(sys.modules[__name__], "_with_helper", lambda x: x * 11)
    assert float(program(ones).gather()[0, 0]) == 11


def test_equal_programs_are_compiled_once(ones: pr.ShardedArray) -> None:
    def body(x: Any) -> Any:
        return x * 17 + 4

    def same(x: Any) -> Any:
        return x * 17 + 4

    first, second = pr.compile(body, ones), pr.compile(same, ones)
    assert first.executable is second.executable
    assert (first.program.name, second.program.name) == ("body", "same")
    assert pr.compile(body, ones) is first


def test_programs_that_were_not_used_lately_are_dropped(ones: pr.ShardedArray) -> None:
    from pyreactant.arrays.runtimes.runtime import current

    def body(x: Any, *, number: int) -> Any:
        return x + number

    first = weakref.ref(pr.compile(body, ones, static={"number": 0}))
    for number in range(1, 270):
        current().cache.keep(number, first() or pr.compile(body, ones))
    gc.collect()
    assert len(current().cache) == 256
    current().cache.clear()
    gc.collect()
    assert first() is None


def test_what_a_tracer_is_told(ones: pr.ShardedArray) -> None:
    import jax

    f = pr.compile(lambda x: x * 2, ones)
    with pytest.raises(pr.InvalidArgumentError, match="call the Python function itself"):
        jax.jit(lambda x: f(x))(np.ones((8, 8), np.float32))
    with pytest.raises(pr.InvalidArgumentError, match=r"reshard takes .* call the Python f"):
        jax.jit(lambda x: pr.reshard(x, WHOLE))(np.ones((8, 8), np.float32))
    for place in (pr.device_put, pr.from_process_local):
        with pytest.raises(pr.InvalidArgumentError, match=r"array is required, got a .*Tracer"):
            jax.jit(lambda x, place=place: place(x, WHOLE))(np.ones((8, 8), np.float32))
    with pytest.raises(TypeError, match="that takes the array as an argument"):
        pr.compile(lambda x: x * ones, ones)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(ones)
    alias = pr.from_jax(ones.value)
    donor = pr.compile(lambda x, y: x + y, ones, ones, donate=0)
    with pytest.raises(pr.InvalidArgumentError, match="donated and also given as array 1"):
        donor(ones, alias)


def test_static_values_that_are_dataclasses(ones: pr.ShardedArray) -> None:
    @dataclasses.dataclass(frozen=True)
    class Options:
        factor: Any

    program = pr.Program("p", jax=lambda x, *, options: x.astype("int32") * options.factor)
    for factor, dtype in ((1, "int32"), (1.0, "float32"), (True, "int32")):
        assert program(ones, options=Options(factor)).dtype == dtype


def test_dataclasses_whose_constructor_does_not_take_the_fields(ones: pr.ShardedArray) -> None:
    @dataclasses.dataclass(frozen=True)
    class Made:
        x: Any
        doubled: Any = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "doubled", self.x)

    found = pr.compile(lambda m: Made(m.x + m.doubled), Made(ones))(Made(ones))
    assert (float(found.x.gather()[0, 0]), float(found.doubled.gather()[0, 0])) == (2, 2)


def test_a_dataclass_stays_the_users(ones: pr.ShardedArray) -> None:
    import jax

    @dataclasses.dataclass
    class Late:
        x: Any

    assert float(pr.compile(lambda s: Late(s.x), Late(ones))(Late(ones)).x.gather()[0, 0]) == 1
    jax.tree_util.register_dataclass(Late)
    assert float(pr.compile(lambda s: Late(s.x), Late(ones))(Late(ones)).x.gather()[0, 0]) == 1


def test_meshes_in_different_orders(ones: pr.ShardedArray) -> None:
    other = pr.NamedSharding(pr.Mesh((8,), ("i",), range(7, -1, -1)), ("i",))
    y = pr.device_put(np.ones((8, 8), np.float32), other)
    with pytest.raises(pr.ShardingError, match="in one order, but its arguments lie on"):
        pr.compile(lambda x, y: x + y, ones, y)


@pytest.mark.usefixtures("python_callbacks")
def test_callbacks_are_not_taken_for_each_other(ones: pr.ShardedArray) -> None:
    """Their Python functions are not in the StableHLO."""
    import jax

    def body(factor: int, x: Any) -> Any:
        def on_host(block: Any) -> Any:
            return np.asarray(block) * np.float32(factor)

        return jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for factor in (2, 3, 2):
        f = pr.compile(functools.partial(body, factor), ones, out_sharding=XY)
        assert float(f(ones).gather()[0, 0]) == factor
    with pytest.raises(pr.ShardingError, match=r"output 0 lies as .*; give out_sharding="):
        pr.compile(functools.partial(body, 2), ones)


def test_a_decorated_function(ones: pr.ShardedArray) -> None:
    @pr.program
    def double(x: Any) -> Any:
        return 2 * x

    @pr.program(julia="Base.identity", oracle=np.positive, name="other")
    def same(x: Any, *, times: int) -> Any:
        return x * times

    assert (double.name, same.name, same.julia) == ("double", "other", "Base.identity")
    assert float(double(ones).gather()[0, 0]) == 2
    assert float(same(ones, times=3).gather()[0, 0]) == 3


def test_programs_travel_by_name(tmp_path: Path) -> None:
    from pyreactant.arrays.program import load, with_names

    assert with_names(pr.Program("p", jax=_helper)).jax == f"{__name__}:_helper"
    script = tmp_path / "script.py"
    script.write_text("import beside\ndef f(x): return x * beside.FACTOR\n")
    (tmp_path / "beside.py").write_text("FACTOR = 6\n")
    found = load(pr.Program("p", jax=f"{script}:f"), "jax")
    assert found(2) == 12
    assert load(pr.Program("p", jax=f"{script}:f"), "jax") is found
    for wrong in (lambda x: x, functools.partial(_helper), Model(1).scale):
        with pytest.raises(pr.InvalidArgumentError, match="no name by which another process"):
            with_names(pr.Program("p", jax=wrong))
    for name in (f"{tmp_path}/none.py:f", f"{script}:g"):
        with pytest.raises(pr.InvalidArgumentError, match="cannot import jax="):
            load(pr.Program("p", jax=name), "jax")


def test_registered_types_are_trees(ones: pr.ShardedArray) -> None:
    import jax

    @jax.tree_util.register_pytree_node_class
    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

        def tree_flatten(self) -> Any:
            return (self.inside,), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

    @dataclasses.dataclass
    class State:
        x: Any
        name: str = dataclasses.field(default="s", metadata={"static": True})

    found = pr.compile(lambda b: State(b.inside * 2), Box(ones))(Box(ones))
    assert isinstance(found, State)
    assert found.name == "s"
    assert float(found.x.gather()[0, 0]) == 2


def test_programs_that_differ_in_the_arguments_that_they_use(ones: pr.ShardedArray) -> None:
    """Programs of one text are one; JAX's text leaves out arguments that are not used."""
    twos = pr.device_put(np.full((8, 8), 2, np.float32), XY)
    of_first, of_second = (lambda x, y: 3 * x), (lambda x, y: 3 * y)
    assert (_first(of_first, ones, twos), _first(of_second, ones, twos)) == (3, 6)
    programs = [pr.Program("p", jax=f) for f in (of_first, of_second)]
    assert [float(p(ones, twos).gather()[0, 0]) for p in programs] == [3, 6]
    exchanged = pr.compile(lambda x, y: (y, y), ones, twos)(ones, twos)
    same = pr.compile(lambda x, y: (x, x), ones, twos)(ones, twos)
    assert [float(y.gather()[0, 0]) for y in (*exchanged, *same)] == [2, 2, 1, 1]


def test_memory_and_donation() -> None:
    x = pr.device_put(np.ones((512, 512), np.float32), XY)
    kept, donated = (pr.compile(lambda x: x + 1, x, donate=d) for d in ((), 0))
    block = 512 * 512 * 4 // 8
    assert kept.memory_analysis().argument_size_in_bytes == block
    assert (kept.memory_analysis().alias_size_in_bytes, block) == (0, block)
    assert donated.memory_analysis().alias_size_in_bytes == block
    first = kept(x)
    pointer = first.value.addressable_data(0).unsafe_buffer_pointer()
    assert donated(first).value.addressable_data(0).unsafe_buffer_pointer() == pointer


def test_no_warning(ones: pr.ShardedArray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pr.compile(lambda x: x * 2, ones)(ones)
        wide = pr.device_put(np.arange(8), WHOLE)
        pr.compile(lambda x: x * 2, wide)(wide).gather()


def test_in_ipython(tmp_path: Path) -> None:
    """A cell that is run again, after its function was redefined; displays do not communicate."""
    cells = textwrap.dedent(
        """
        def f(x): return x * 2
        first = float(p.compile(f, a)(a).gather()[0, 0])
        def f(x): return x * 3
        second = float(p.compile(f, a)(a).gather()[0, 0])
        """
    )
    namespace: dict[str, Any] = {
        "p": pr,
        "a": pr.device_put(np.ones((8, 8), np.float32), XY),
        "__name__": "__main__",
    }
    exec(compile(cells, "<ipython-input-1>", "exec"), namespace)  # as IPython runs a cell
    assert (namespace["first"], namespace["second"]) == (2, 3)


def test_threads(ones: pr.ShardedArray) -> None:
    """Threads do not inherit JAX's context for 64 bits."""
    wide = pr.device_put(np.arange(8) + 2**40, WHOLE)
    f = pr.compile(lambda x: x * 2, wide)
    found: list[Any] = []

    def work() -> None:
        placed = pr.device_put(np.arange(8) + 2**40, WHOLE)
        found.append(f(placed).gather())
        found.append(pr.compile(lambda x: x * 2, wide)(wide).gather())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for array in found:
        np.testing.assert_array_equal(array, (np.arange(8) + 2**40) * 2)
