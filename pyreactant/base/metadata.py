"""The metadata server, which tells Google's machines and pods what they are and may do."""

from collections.abc import Mapping

VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_IP")
"""Google's variables that name a server."""

_TIMEOUT = 3
_MAX_BYTES = 1 << 20


def server_of(environ: Mapping[str, str]) -> str:
    """The server's name."""
    named = [environ[name] for name in VARIABLES if environ.get(name)]
    return named[0] if named else "metadata.google.internal"


def ask(server: str, path: str) -> tuple[int, str]:
    """Status and body, or 0 and what went wrong; http.client uses no proxy.

    Args:
        server: Its name.
        path: What is asked for of this instance, such as "attributes/tpu-env".
    """
    import http.client

    try:
        connection = http.client.HTTPConnection(server, timeout=_TIMEOUT)
        try:
            whole = f"/computeMetadata/v1/instance/{path}"
            connection.request("GET", whole, headers={"Metadata-Flavor": "Google"})
            response = connection.getresponse()
            body = response.read(_MAX_BYTES + 1)
        finally:
            connection.close()
        if response.getheader("Metadata-Flavor") != "Google":
            return 0, "did not answer as Google's metadata server does (header Metadata-Flavor)"
        if len(body) > _MAX_BYTES:
            return 0, f"answered with more than {_MAX_BYTES} bytes"
        return response.status, body.decode()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, f"did not answer ({error or type(error).__name__})"
