"""What vLLM does not read in the file that --config names."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, Severity
from dspark_cli.recommending.situation import Situation

ON_WITHOUT_A_WORD = ("enable-prefix-caching", "enable-chunked-prefill", "async-scheduling")
"""Switches that vLLM may turn on by itself, and that have a --no- form. Others are off unless they are set."""


def rule(situation: Situation) -> Iterator[Finding]:
    said_off = {key.replace("_", "-") for key in situation.options.switched_off_in_file}
    dropped = [switch for switch in ON_WITHOUT_A_WORD if switch in said_off]
    if not dropped:
        return
    yield Finding(
        "false-in-configuration-file",
        Severity.WARNING,
        f"vLLM passes over what its --config file sets to false: {', '.join(dropped)} may stay on",
        {"options": ", ".join(dropped)},
        f"write in that file, instead: {', '.join(f'no-{switch}: true' for switch in dropped)}",
        source="vLLM 0.26 to 0.33 utils/argparse_utils.py: load_config_file; run with 0.32",
        confidence=Confidence.CERTAIN,
    )
