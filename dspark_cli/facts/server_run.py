"""How a server ran, from its start to its end."""

from dataclasses import dataclass, field
from pathlib import Path

from dspark_cli.facts.start_verification import Verification
from dspark_cli.sources.vllm_log import Stage


@dataclass(frozen=True)
class ServerRun:
    """`exit_code` is the server's own, 128 + N where signal N killed it, which `killed_by` then names. `stages` has
    the seconds from start at which each stage was seen, `signals` the names of the signals that were passed on, `cause`
    the lines that say why it ended before it was ready. `verification` says whether it ran as asked, once
    it was ready."""

    exit_code: int
    killed_by: str | None
    log: Path
    address: str | None
    stages: dict[str, float]
    seconds: float
    signals: list[str]
    cause: list[str] = field(default_factory=list)
    verification: Verification | None = None

    @property
    def was_ready(self) -> bool:
        return Stage.READY in self.stages

    @property
    def ended_as_asked(self) -> bool:
        """It was told to stop, or stopped by itself without an error."""
        return bool(self.signals) or self.exit_code == 0
