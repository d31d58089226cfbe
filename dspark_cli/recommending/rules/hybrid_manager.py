"""The hybrid KV cache manager, which layers of several kinds need, and a KV connector that switches it off."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import HYBRID_OFF, Situation


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    if not situation.hybrid_off:
        return
    yield from _by_a_connector(situation)
    drafter = situation.drafter
    if drafter.mixed and drafter.causal and drafter.non_causal:
        yield Finding(
            "mixed-masks-in-one-group",
            Severity.ERROR,
            "without the hybrid KV cache manager the drafter's sliding and full layers share a group, and causality"
            " is kept once a group: one kind runs with the other's mask",
            {"full_layers": drafter.full_layers, "sliding_layers": drafter.sliding_layers},
            _mend(situation),
            source="read in vLLM 0.33 spec_decode/dflash/speculator.py: _group_causal",
            confidence=Confidence.LIKELY,
        )


def _by_a_connector(situation: Situation) -> Iterator[Finding]:
    connector, target = situation.connector_without_hybrid, situation.target
    several = target.recurrent or target.windows_beside_full or situation.drafter.mixed
    if connector is None or not several:
        return
    costs = (
        "a target with recurrent layers does not start without it"
        if target.recurrent
        else "sliding-window layers are kept like full ones, which costs capacity"
    )
    yield Finding(
        "connector-turns-hybrid-manager-off",
        Severity.ERROR if target.recurrent else Severity.WARNING,
        f"{connector} does not support several KV cache groups, so vLLM switches the hybrid KV cache manager off:"
        f" {costs}",
        {"connector": connector, "recurrent": target.recurrent},
        "a connector that supports it (OffloadingConnector, NixlConnector); the price of this one:"
        " dspark-tool inspect-cache with the same options",
        source="vLLM 0.26 to 0.33 config/vllm.py: supports_hma_config (read, not run)",
        confidence=Confidence.CERTAIN,
    )


def _mend(situation: Situation) -> str:
    if situation.connector_without_hybrid is not None:
        return f"a KV connector that supports several groups instead of {situation.connector_without_hybrid}"
    return f"leave {HYBRID_OFF} out"
