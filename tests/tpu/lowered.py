"""Print the digest of the module that a compile request lowers to: JSON in, JSON out.

Reads {"request": ..., "path": [...]} and prints {"digest": ...}, or null if it does not lower.
"""

import hashlib
import json
import os
import sys

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",  # do not search for a metadata server
    TPU_ACCELERATOR_TYPE="v6e-16",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_WORKER_ID="0",
    TPU_LOG_DIR="disabled",
    TPU_MIN_LOG_LEVEL="3",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # no device is opened, so no lock is needed
)

import jax

from pyreactant.fit.compiler.compile_child import lower, slice_devices


def main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    digest = None
    try:
        lowered = lower(asked["request"], slice_devices(asked["request"]["topology"]))
        digest = hashlib.sha256(lowered.as_text().encode()).hexdigest()
    except Exception as error:
        print(error, file=sys.stderr)
    print(json.dumps({"digest": digest}), flush=True)
    os._exit(0)  # the normal end of libtpu is slow


if __name__ == "__main__":
    main()
