"""What vLLM does not read in the file that --config names."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, Severity
from dspark_cli.recommending.situation import Situation

MOST_NAMED = 3


def rule(situation: Situation) -> Iterator[Finding]:
    dropped = situation.options.switched_off_in_file
    if not dropped:
        return
    named = ", ".join(dropped[:MOST_NAMED]) + (f" and {len(dropped) - MOST_NAMED} more" if dropped[MOST_NAMED:] else "")
    yield Finding(
        "false-in-configuration-file",
        Severity.WARNING,
        f"vLLM passes over what its --config file sets to false ({named}): what is on by default stays on",
        {"options": ", ".join(dropped)},
        f"write the --no- form there: no-{dropped[0].removeprefix('no-')}: true",
        source="vLLM 0.26 to 0.33 utils/argparse_utils.py: load_config_file; run with 0.32",
        confidence=Confidence.CERTAIN,
    )
