"""The batch-size schedule that vLLM takes, from the best number of draft tokens at each measured concurrency.

Three rules. A load keeps the number of the load before it unless the measurements show that another is better. Between
two loads with different numbers, the logarithm of the ratio of their goodputs is taken as a straight line over that of
the batch size, and the change is where the ratio is one; where it never is, at the geometric mean of the two loads.
Beyond the largest load the last number stays, as it does in vLLM.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from dspark_cli.facts.tuning import Candidate, Measurement, Schedule
from dspark_cli.tuning.comparing import goodput_ratio
from dspark_cli.tuning.plan import Measured, TuningPlan
from dspark_cli.tuning.verdict import best_also, drifts

USUAL_MAX_NUM_SEQS = 1024
"""vLLM's own on large GPUs. Its schedule may end later than its batches do."""


def batch_size_schedule(plan: TuningPlan, measured: Measured, vllm_args: Sequence[str]) -> Schedule | None:
    """From 1 to the largest batch, without gaps; None of fewer than two measured loads, or where no load speculates."""
    chosen = _chosen(plan, measured)
    if len(chosen) < 2 or not any(best.candidate.tokens for best in chosen):
        return None
    last = max(max_num_seqs(vllm_args) or USUAL_MAX_NUM_SEQS, chosen[-1].concurrency)
    entries: list[tuple[int, int, int]] = []
    begin = 1
    for before, after in pairwise(chosen):
        if before.candidate.tokens != after.candidate.tokens:
            end = _last_of_before(before, after, plan, measured)
            entries.append((begin, end, before.candidate.tokens))
            begin = end + 1
    return (*entries, (begin, last, chosen[-1].candidate.tokens))


def max_num_seqs(vllm_args: Sequence[str]) -> int | None:
    """As the user's arguments have it."""
    return whole_number_of("--max-num-seqs", vllm_args)


def whole_number_of(option: str, vllm_args: Sequence[str]) -> int | None:
    """The value of the last `option` in the arguments; None where it is not there or no whole number."""
    found = None
    for word, following in pairwise((*vllm_args, "")):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            text = value if equals else following
            found = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
    return found


def _chosen(plan: TuningPlan, measured: Measured) -> list[Measurement]:
    """The measurement that each load's entry rests on, by concurrency."""
    also = best_also(plan, measured)
    changed = {drift.concurrency: drift.share for drift in drifts(plan, measured)}
    chosen: list[Measurement] = []
    for concurrency in sorted(plan.concurrencies):
        options = {
            each.tokens: known for each in _of_server(plan, also) if (known := measured.get((each, concurrency, False)))
        }
        best = max(options.values(), key=lambda each: each.goodput(plan.bound), default=None)
        if best is None or not best.goodput(plan.bound):
            continue
        kept = options.get(chosen[-1].candidate.tokens) if chosen else None
        if kept is not None and kept is not best:
            ratio = goodput_ratio(best, kept, plan.bound)
            if ratio is None or ratio.widened(changed.get(concurrency, 0.0)).low <= 1:
                best = kept
        chosen.append(best)
    return chosen


def _of_server(plan: TuningPlan, also: str | None) -> list[Candidate]:
    """Those that differ in tokens only, as the loads of one server do."""
    return [each for each in plan.candidates if each.also == also or (not each.speculates and each.also is None)]


def _last_of_before(before: Measurement, after: Measurement, plan: TuningPlan, measured: Measured) -> int:
    """The last batch size for the number of `before`."""
    low, high = before.concurrency, after.concurrency
    share = 0.5
    ratios = []
    for concurrency in (low, high):
        pair = [measured.get((each.candidate, concurrency, False)) for each in (before, after)]
        goods = [known.goodput(plan.bound) if known else 0.0 for known in pair]
        ratios.append(math.log(goods[0] / goods[1]) if all(goods) else None)
    at_low, at_high = ratios
    if at_low is not None and at_high is not None and at_low > 0 > at_high:
        share = at_low / (at_low - at_high)
    crossing = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return min(max(low, math.floor(crossing)), high - 1)
