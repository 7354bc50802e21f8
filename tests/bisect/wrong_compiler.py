"""A compiler with a wrong operation, as Python's `sitecustomize`: it rewrites what it compiles.

`WRONG_RULE` is JSON: "replace", pairs of texts; "pass", without which it is right; "only", a
pattern of the modules in which it is wrong; "crash" and "hang", whether it aborts there instead, or
never ends; "every", of how many compilations one is wrong.
"""

import importlib.util
import json
import os
import re
import sys
import threading
from typing import Any

RULE = json.loads(os.environ.get("WRONG_RULE", "{}"))
_count = 0


class Finder:
    """Changes jaxlib's client as soon as jax has loaded it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "jax._src.lib":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def run(module: Any) -> None:
            load(module)
            change(module._jax.Client)

        spec.loader.exec_module = run
        return spec


def change(client: Any) -> None:
    compile_right = client.compile_and_load

    def compile_and_load(self: Any, text: Any, devices: Any, options: Any, *more: Any) -> Any:
        global _count
        off = dict(options.env_option_overrides).get("xla_disable_hlo_passes", "").split(",")
        wrong = isinstance(text, str) and RULE.get("pass") not in off
        if wrong and re.search(RULE.get("only", ""), text):
            _count += 1
            for right, instead in RULE["replace"] if _count % RULE.get("every", 1) == 0 else ():
                if right in text and RULE.get("crash"):
                    os.abort()
                if right in text and RULE.get("hang"):
                    threading.Event().wait()
                text = text.replace(right, instead)
        return compile_right(self, text, devices, options, *more)

    client.compile_and_load = compile_and_load


if RULE:
    sys.meta_path.insert(0, Finder())
