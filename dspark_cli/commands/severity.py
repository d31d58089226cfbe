"""--fail-on: from which severity on a command ends with the exit code for findings."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dspark_cli.errors import BadInput

if TYPE_CHECKING:
    from dspark_cli.findings.finding import Finding, Severity

NEVER = "never"


def threshold_named(name: str) -> "Severity | None":
    """None for `never`.

    Raises:
        BadInput: no severity.
    """
    from dspark_cli.findings.finding import Severity

    if name == NEVER:
        return None
    try:
        return Severity[name.upper()]
    except KeyError:
        raise BadInput(f"--fail-on {name!r} is no severity", "give info, warning, error or never") from None


def any_from(findings: "Iterable[Finding]", threshold: "Severity | None") -> bool:
    """Whether one of `findings` is as severe as `threshold` or more."""
    return threshold is not None and any(finding.severity >= threshold for finding in findings)
