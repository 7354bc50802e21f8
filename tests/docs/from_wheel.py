"""Follow pages as a newcomer who has installed the wheel, and nothing else of the project.

    python -m tests.docs.from_wheel --python python3.12

``make matmul`` runs in a fresh clone of the last commit, and installs what pyreactant needs. Then
the script builds the wheel, makes a virtual environment of that Python with the wheel and these
packages, and runs the pages' commands in their order: without a checkout on any path, with an empty
home folder, and with few environment variables (PATH, HOME, LANG, COLUMNS and those of pip). Only
pip's cache of downloads is shared.

With ``--packages .venv`` all packages but pyreactant come from an environment that exists, and
no clone is made: this takes minutes less.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.pages import Block, blocks
from tests.docs.session import Session
from tests.harness import REPOSITORY

PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/howto/port-a-jax-program.md",
    "docs/howto/write-an-oracle.md",
    "docs/howto/read-a-failure-report.md",
)
OF_PIP = ("PIP_", "SSL_CERT", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy")
"""How variables begin that say where packages come from."""


class Newcomer:
    """An environment with the wheel, an empty home, and a folder for each page.

    Args:
        folder: All that is made lies here.
        python: The Python of the environment.
        packages: An environment whose packages are shared; None makes one in a clone.
    """

    def __init__(self, folder: Path, python: str, packages: Path | None) -> None:
        self.folder = folder
        self.tools = folder / "venv" / "bin"
        (folder / "home").mkdir()
        self.settings = {name: v for name, v in os.environ.items() if name.startswith(OF_PIP)}
        cache = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True)
        self.settings |= {
            "PIP_CACHE_DIR": cache.stdout.decode().strip(),  # what was downloaded before
            "PIP_COMPILE": "0",  # Python compiles the modules that are used
            "PATH": f"{self.tools}{os.pathsep}{os.defpath}",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }
        self.made = "not run: it needs a checkout; without --packages it runs in a clone"
        if packages is None:
            packages = self.clone(python)
        self.call(python, "-m", "venv", str(folder / "venv"))
        pip = [str(self.tools / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        self.call(*pip, str(self.build()))
        # After the wheel, so that pip does not find another pyreactant.
        here, there = (site_packages(root) for root in (folder / "venv", packages))
        (here / "packages.pth").write_text(f"{there}\n")
        where = self.call(
            str(self.tools / "python"), "-c", "import pyreactant as p; print(p.__file__)"
        )
        if not Path(where.strip()).is_relative_to(folder):
            raise SystemExit(f"pyreactant must come from the wheel, but it comes from {where}")

    def call(self, *argv: str, folder: Path | None = None) -> str:
        """Run a command in the reader's environment, and give what it prints."""
        ran = subprocess.run(
            argv,
            env=self.settings,
            cwd=folder or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{ran.stdout}\nexit code {ran.returncode}")
        return ran.stdout

    def build(self) -> Path:
        """The wheel of this checkout, built by the Python that runs this script."""
        argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(self.folder)]
        subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True)
        (wheel,) = self.folder.glob("*.whl")
        return wheel

    def clone(self, python: str) -> Path:
        """The environment that the README's ``make matmul`` makes in a fresh clone."""
        clone = self.folder / "clone"
        git = ["git", "clone", "--quiet", "--depth", "1", f"file://{REPOSITORY}", str(clone)]
        subprocess.run(git, check=True)  # with the caller's settings of git
        began = time.monotonic()
        printed = self.call("make", f"PYTHON={python}", "matmul", folder=clone)
        assert "check     right" in printed, printed
        self.made = f"make matmul ran in a clone before, in {time.monotonic() - began:.1f} s"
        return clone / ".venv"

    def make(self, block: Block) -> str:
        """What was done with the README's first block."""
        assert "make matmul" in block.code
        assert "make test" in block.code
        return f"{self.made}; not run: make test, because it takes long"

    def follow(self, page: str) -> None:
        """Follow a page in a folder of its own, and print what was done with each block."""
        place = self.folder / "pages" / page.replace("/", "-")
        place.mkdir(parents=True)
        reader = Session(place, self.settings, str(self.tools / "python"), installs=True)
        for block in blocks(REPOSITORY / page):
            began = time.monotonic()
            try:
                make = block.language == "bash" and block.code.startswith("make ")
                done = self.make(block) if make else reader.follow(block)
            except AssertionError as error:
                raise SystemExit(f"{page}:{block.line}\n{block.code}\n{error}") from None
            seconds = time.monotonic() - began
            print(f"{page}:{block.line:<4} {seconds:5.1f} s  {done}", flush=True)


def executable(python: str) -> str:
    """The path of a Python that the caller names; pyenv's shims need the caller's environment."""
    argv = [python, "-c", "import sys; print(sys.executable)"]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def site_packages(environment: Path) -> Path:
    """The folder of an environment's packages."""
    (found,) = environment.resolve().glob("lib/python*/site-packages")
    return found


def main() -> None:
    """Follow the pages; the first block that fails ends the program with exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="of the new environment")
    parser.add_argument("--packages", type=Path, help="an environment whose packages are shared")
    parser.add_argument("pages", nargs="*", default=PAGES, help="such as docs/tutorial.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        python = executable(options.python)
        newcomer = Newcomer(Path(folder).resolve(), python, options.packages)
        for page in options.pages:
            newcomer.follow(page)


if __name__ == "__main__":
    main()
