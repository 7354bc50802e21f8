"""A number with its noun, in the singular if it is one."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and what it counts, such as "1 device" and "8 devices".

    Args:
        number: The number.
        noun: The noun in the singular; it may have words before it, such as "cpu device".
        plural: The plural, if it is not the noun with "s" or "es".
    """
    plural = plural or noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"
