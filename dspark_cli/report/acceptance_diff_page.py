"""Two acceptance profiles on one HTML page: no script, no network, nothing beside it."""

from collections.abc import Iterator

from dspark_cli import __version__
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.profiling.difference import AcceptanceDifference
from dspark_cli.report.acceptance_words import percent, percents
from dspark_cli.report.figure_parts import FIRST, SECOND, inline_svg, page_figure, page_settings
from dspark_cli.report.page_parts import escaped, figure, heading, page, table


def difference_page(found: AcceptanceDifference) -> str:
    """The page as HTML text; everything from outside is escaped."""
    return page(
        title=f"Draft acceptance, B against A: {found.verdict}",
        about=f"A is {found.a}, B is {found.b}",
        body=_sections(found),
        footer=f"Made by dspark-tool {__version__}. Draft steps are taken as independent.",
    )


def _sections(found: AcceptanceDifference) -> Iterator[str]:
    notes = "".join(f"<li>{escaped(note)}</li>" for note in found.notes)
    yield f"<ul>{notes}</ul>" if notes else ""
    yield heading("In all")
    rows = [
        [letter, name, f"{profile.mean_acceptance_length:.2f}", f"{profile.drafts:,}"]
        for letter, name, profile in (("A", found.a, found.profile_a), ("B", found.b, found.profile_b))
    ]
    yield table(["", "profile", "mean acceptance length", "draft steps"], rows, text_columns=2)
    yield (
        f"<p>The mean acceptance length changes by {found.change:+.2f} (95% interval {found.low:+.2f} to"
        f" {found.high:+.2f}): {escaped(found.verdict)}.</p>"
    )
    yield heading("By position")
    yield figure(_figure(found), "Bars are 95% Wilson intervals of each profile.")
    yield table(
        ["position", "A", "B", "change", "interval", "verdict"],
        [
            [
                str(at.position),
                percent(at.rate_a),
                percent(at.rate_b),
                f"{at.change:+.1%}",
                f"{at.low:+.1%} to {at.high:+.1%}",
                str(at.verdict),
            ]
            for at in found.positions
        ],
    )
    for letter, profile in (("A", found.profile_a), ("B", found.profile_b)):
        yield heading(f"Profile {letter}")
        yield _profile(profile)


def _profile(profile: AcceptanceProfile) -> str:
    return table(
        ["position", "accepted", "rate", "95% interval", "given previous"],
        [
            [
                str(at.position),
                f"{at.accepted:,}",
                percent(at.rate),
                percents(at.rate_low, at.rate_high),
                percent(at.conditional_rate),
            ]
            for at in profile.positions
        ],
    )


def _figure(found: AcceptanceDifference) -> str:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    with page_settings():
        drawn, (axes,) = page_figure(rows=1, height=3.4)
        for profile, shift, color, style, label in (
            (found.profile_a, -0.08, FIRST, "o-", "A"),
            (found.profile_b, 0.08, SECOND, "s--", "B"),
        ):
            rates = [at.rate for at in profile.positions]
            low = [max(0.0, at.rate - at.rate_low) for at in profile.positions]
            high = [max(0.0, at.rate_high - at.rate) for at in profile.positions]
            places = [at.position + shift for at in profile.positions]
            axes.errorbar(places, rates, yerr=[low, high], fmt=style, color=color, markersize=5, label=label)
        axes.set_ylim(-0.02, 1.04)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("draft position")
        axes.set_ylabel("acceptance rate")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1))
        return inline_svg(drawn, "difference", "Acceptance rate by draft position, A and B")
