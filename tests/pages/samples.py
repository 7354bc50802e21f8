"""One page of each report, made without a run. Names and logs are hostile or long."""

from tests.crosscheck import samples as crosschecks

HOSTILE = "<script>alert(1)</script>"
NAMES = ["matmul", "softmax", "pkg.my_module:a_program_with_a_long_name", "heat", HOSTILE]


def pages() -> dict[str, str]:
    """The pages by name; the same text at each call."""
    return {
        "crosscheck": crosschecks.report(NAMES, wrong=[5, 6]).to_html(),
        "crosscheck-right": crosschecks.report(NAMES).to_html(),
    }
