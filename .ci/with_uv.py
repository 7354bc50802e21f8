"""Run a command with pip's settings in the variables that uv reads.

uv reads neither pip's files nor its variables, so it would miss an index that a CI machine has.

    .venv-uv/bin/python .ci/with_uv.py make UV=.venv-uv/bin/uv .venv/.dev-installed
"""

import ast
import os
import subprocess
import sys

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


def settings(lines: list[str]) -> dict[str, str]:
    """The variables for lines of ``pip config list``, such as ``global.index-url='...'``."""
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # pip compares all indexes, too
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # variables win
        key, _, value = line.partition("=")
        if name := NAMES.get(key.rpartition(".")[2]):
            separator = "," if name == "UV_FIND_LINKS" else " "
            found[name] = separator.join(ast.literal_eval(value).split())
    return found


def main() -> None:
    """Become the command."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, check=True, stdout=subprocess.PIPE, text=True).stdout
    command = sys.argv[1:]
    os.execvpe(command[0], command, os.environ | settings(listed.splitlines()))


if __name__ == "__main__":
    main()
