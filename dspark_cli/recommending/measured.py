"""Which entry of a measured profile speaks for a workload."""

from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile


def nearest(profile: MeasuredProfile | None, concurrency: int | None) -> BestCount | None:
    """The measured concurrency next to the one asked for; the lowest where none is. None without a profile."""
    if profile is None or not profile.best:
        return None
    ordered = sorted(profile.best, key=lambda best: best.concurrency)
    return ordered[0] if concurrency is None else min(ordered, key=lambda best: abs(best.concurrency - concurrency))


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
