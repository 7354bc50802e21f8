"""The one function in which JAX compiles: what is seen of it, counted, and kept in a cache.

It is wrapped when JAX is imported in a supervised program, and by `initialize`. JAX itself is not
imported here. Its own persistent cache serves process 0 only: `_cache_write` refuses the others.
With a cache of ours each process writes what it had to compile.
"""

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import FileError
from ..base.say import say
from ..base.settings import COMPILE_CACHE
from .events import Compiled

if TYPE_CHECKING:
    from .compile_cache import CompileCache

_NAME = "compile_or_get_cached"
_PARAMETERS = [
    "backend",
    "computation",
    "devices",
    "compile_options",
    "host_callbacks",
    "executable_devices",
]

before: Callable[[Any, Any], object] | None = None
"""Called with a module and its array of devices before it is compiled or loaded; it may raise."""

counts = Compiled(0, 0.0, 0, 0.0)
"""What this process compiled and loaded so far; it is replaced, never changed."""

_root: Path | None = None
_caches: "dict[str, CompileCache]" = {}
_lock = threading.Lock()
_thread = threading.local()


def is_known(compiler: Any) -> bool:
    """Whether this version of JAX compiles in the function that is known here.

    Args:
        compiler: JAX's module ``jax._src.compiler``.
    """
    try:
        parameters = inspect.signature(getattr(compiler, _NAME)).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    return [*parameters][:6] == _PARAMETERS


def install(compiler: Any) -> None:
    """Wrap the function, unless it is wrapped already or this version of JAX is not known.

    Args:
        compiler: JAX's module ``jax._src.compiler``.
    """
    function: Any = getattr(compiler, _NAME, None)
    if getattr(function, "of_pyreactant", False):
        return
    if os.environ.get(COMPILE_CACHE) and _root is None:
        use_cache(os.environ[COMPILE_CACHE])
    if not is_known(compiler):
        if _root is not None:
            switch_off("this version of JAX compiles in another function")
        return
    wrapped: Any = _wrapped(function, compiler)
    wrapped.of_pyreactant = True
    setattr(compiler, _NAME, wrapped)
    compiler.monitoring.register_event_listener(_listen)


def use_cache(folder: str | Path) -> None:
    """Keep what is compiled from now on in a folder, and load it from there."""
    global _root
    _root = Path(folder).absolute()


def switch_off(why: str) -> None:
    """Go on without the cache, and say why."""
    global _root
    with _lock:
        _root = None
        _count(cache=f"off: {why}")
    _tell(f"the compile cache is off: {why}")


def _wrapped(compile_: Callable[..., Any], compiler: Any) -> Callable[..., Any]:
    @functools.wraps(compile_)
    def compile_or_get_cached(
        backend: Any,
        computation: Any,
        devices: Any,
        compile_options: Any,
        host_callbacks: Any,
        executable_devices: Any,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if before is not None:
            before(computation, devices)
        begin = time.monotonic()
        entry = None
        # The text of a program with callbacks has addresses of this process.
        if _root is not None and not host_callbacks and _is_enabled(compiler):
            entry = _entry(compiler, backend, computation, devices, compile_options)
        if entry is not None:
            program = _load(*entry, backend, executable_devices, compile_options)
            if program is not None:
                _add(loaded=1, load_seconds=time.monotonic() - begin)
                return program
        _thread.hit, begin = False, time.monotonic()
        program = compile_(
            backend,
            computation,
            devices,
            compile_options,
            host_callbacks,
            executable_devices,
            *rest,
            **named,
        )
        seconds = time.monotonic() - begin
        if _thread.hit:
            _add(loaded=1, load_seconds=seconds)
        else:
            _add(compiled=1, compile_seconds=seconds)
        if entry is not None:
            _keep(*entry, program)
        return program

    return compile_or_get_cached


def _is_enabled(compiler: Any) -> bool:
    """Whether the program leaves caching on, and does not optimise by profiles (AutoPGLE)."""
    config = compiler.config
    return config.enable_compilation_cache.value and not config.enable_pgle.value


def _entry(
    compiler: Any, backend: Any, computation: Any, devices: Any, compile_options: Any
) -> "tuple[CompileCache, str] | None":
    """The cache and the key of a program; None if the cache cannot be used."""
    first = devices.flat[0]
    try:
        if backend.platform == "gpu" and len({d.process_index for d in devices.flat}) > 1:
            # Processes that compile would wait for the tuning of those that load.
            compile_options.env_option_overrides += [("xla_gpu_shard_autotuning", False)]
        key = compiler.compilation_cache.get_cache_key(
            computation, devices, compile_options, backend
        )
        kind = f"{backend.platform} {first.device_kind}"
        with _lock:
            cache = _caches.get(kind)
        if cache is None:
            from .compile_cache import CompileCache, kind_of  # every program would wait for it

            assert _root is not None
            folder = kind_of(compiler.lib.version_str, backend.platform, first.device_kind)
            cache = CompileCache(_root, folder, _tell)
            with _lock:
                cache = _caches.setdefault(kind, cache)
                _count(cache=str(cache.folder))
    except FileError as error:
        switch_off(str(error))
        return None
    except Exception as error:  # whatever this version of JAX raises, the program is compiled
        switch_off(f"JAX gives no key for a program ({type(error).__name__}: {error})"[:500])
        return None
    return cache, key


def _load(
    cache: "CompileCache", key: str, backend: Any, executable_devices: Any, compile_options: Any
) -> Any:
    """The program of a key, loaded; None if there is none that can be."""
    text = cache.read(key)
    if text is None:
        return None
    try:
        return backend.deserialize_executable(text, executable_devices, compile_options)
    except Exception as error:  # another build of XLA, for instance
        cache.drop(key, f"{type(error).__name__}: {error}"[:500])
        return None


def _keep(cache: "CompileCache", key: str, program: Any) -> None:
    try:
        text = program.serialize()
    except Exception as error:  # a plugin may not be able to
        switch_off(f"a program cannot be kept ({type(error).__name__}: {error})"[:500])
        return
    cache.write(key, text)


def _listen(event: str, **_: Any) -> None:
    """Notice that JAX's own cache has a program."""
    if event == "/jax/compilation_cache/cache_hits":
        _thread.hit = True


def _add(**more: float) -> None:
    with _lock:
        _count(**{name: getattr(counts, name) + number for name, number in more.items()})


def _count(**changes: Any) -> None:
    global counts
    counts = counts.but(**changes)


def _tell(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed
        if sys.stderr is not None:
            say(text)
