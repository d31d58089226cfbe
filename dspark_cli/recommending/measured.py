"""Which entry of a measured profile speaks for a workload."""

from collections.abc import Sequence

from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile


def nearest(profile: MeasuredProfile | None, concurrency: int | None) -> BestCount | None:
    """The measured concurrency next to the one asked for; the lowest where none is. None without a profile."""
    return _nearest(profile.best, concurrency) if profile else None


def evidence_for(profile: MeasuredProfile, concurrency: int | None) -> BestCount | None:
    """The measured load that `most_tokens` rests on: of those that it is best at, the nearest. A schedule's deepest
    number may be of another load than the one asked for."""
    tokens = most_tokens(profile, concurrency)
    alike = [best for best in profile.best if best.tokens == tokens]
    return _nearest(alike or profile.best, concurrency)


def schedule_worth_giving(profile: MeasuredProfile | None) -> tuple[tuple[int, int, int], ...]:
    """The schedule where it has more than one depth; else nothing, for then a plain number says it."""
    schedule = profile.schedule if profile and profile.schedule else ()
    return schedule if len({depth for _, _, depth in schedule}) > 1 else ()


def most_tokens(profile: MeasuredProfile | None, concurrency: int | None) -> int | None:
    """What num_speculative_tokens has to be: the deepest entry of the schedule, or the best count; None where there is
    no profile, or no speculation wins."""
    schedule, best = schedule_worth_giving(profile), nearest(profile, concurrency)
    if schedule:
        return max(depth for _, _, depth in schedule)
    return best.tokens if best and best.tokens else None


def _nearest(loads: Sequence[BestCount], concurrency: int | None) -> BestCount | None:
    def apart(best: BestCount) -> int:
        return best.concurrency if concurrency is None else abs(best.concurrency - concurrency)

    return min(sorted(loads, key=lambda best: best.concurrency), key=apart, default=None)
