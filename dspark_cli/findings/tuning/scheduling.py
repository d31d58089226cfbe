"""What the schedule rests on, and where vLLM does not follow it."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.findings.tuning.evidence import TuningEvidence
from dspark_cli.tuning.schedule import whole_number_of

ID, PARALLEL = "schedule", "schedule-is-disabled"
FEWEST_LOADS = 2


def check(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    if not evidence.several_loads:
        yield NotChecked(ID, "one load was measured; --concurrency 1,8,32 makes a schedule by batch size")
        return
    if evidence.schedule is None:
        served = sum(verdict.best_count(evidence.bound) is not None for verdict in evidence.verdicts)
        if served < FEWEST_LOADS:
            yield NotChecked(ID, "at fewer than two loads a request met the latency bound")
        return
    largest = max(verdict.concurrency for verdict in evidence.verdicts)
    depths = {tokens for _, _, tokens in evidence.schedule}
    if len(depths) == 1:
        return
    entries = ", ".join(f"{tokens} up to {last}" for _, last, tokens in evidence.schedule[:-1])
    yield Finding(
        ID,
        Severity.INFO,
        f"draft tokens by batch size: {entries}, then {evidence.schedule[-1][2]}. Beyond {largest} nothing was "
        "measured, and the last number is carried on",
        {"entries": len(evidence.schedule), "largest_measured": largest, "switches_off": 0 in depths},
        "with depth 0 the drafter still reads the context, so it costs a little more than no drafter at all"
        if 0 in depths
        else "measure the loads in between (--concurrency) to see where it changes",
    )
    ranks = max((whole_number_of(name, evidence.question.vllm_args) or 1) for name in ("--data-parallel-size", "-dp"))
    if ranks > 1:
        yield Finding(
            PARALLEL,
            Severity.WARNING,
            f"vLLM disables the schedule with data parallelism ({ranks} ranks), and drafts the full number",
            {"data_parallel_size": ranks},
            "give the number of tokens of the usual load: --tokens",
        )
