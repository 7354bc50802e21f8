"""Examples at the end of a command's help."""


def examples(*commands: str) -> str:
    r"""The epilog of a command with its examples, one on each line.

    The ``\b`` tells click not to wrap them.
    """
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])
