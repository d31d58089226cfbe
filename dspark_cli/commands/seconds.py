"""Durations that a user gives."""

from dspark_cli.errors import BadInput

LONGEST_S = 1_000_000


def require_seconds(option: str, seconds: float) -> None:
    """Raises BadInput for what no one can wait."""
    if not 0 < seconds <= LONGEST_S:
        raise BadInput(
            f"{option} is {seconds:g}, and must be more than 0 seconds and at most {LONGEST_S:,}",
            f"give one like {option} 10",
        )
