"""The pieces of a page: everything from outside is escaped and cut."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from dspark_cli.findings.finding import Finding, NotChecked
from dspark_cli.report.acceptance_words import finding_title, short
from dspark_cli.report.console import printable

LONGEST_TEXT = 2_000
Row = Sequence[str]


def page(title: str, about: str, body: Iterable[str], footer: str) -> str:
    """A whole page: no script, no network, nothing beside it. `body` is HTML, the rest is text."""
    folder = files("dspark_cli.report").joinpath("page")
    return Template(folder.joinpath("acceptance.html").read_text("utf-8")).substitute(
        title=escaped(title),
        style=folder.joinpath("acceptance.css").read_text("utf-8"),
        about=escaped(about),
        body="\n".join(body),
        footer=escaped(footer),
    )


def findings_part(findings: Sequence[Finding], not_checked: Sequence[NotChecked]) -> Iterator[str]:
    yield heading("Findings")
    if not findings:
        yield "<p>No findings.</p>"
    for finding in findings:
        yield _finding(finding)
    if not_checked:
        yield "<h3>Not checked</h3>"
        checks = "".join(f"<li>{escaped(check.id)}: {escaped(check.why)}</li>" for check in not_checked)
        yield f"<ul>{checks}</ul>"


def _finding(finding: Finding) -> str:
    parts = [
        f'<h3><span class="severity">{escaped(finding.severity)}</span>: {escaped(finding_title(finding))}</h3>',
        f"<p>{escaped(finding.what)}</p>",
    ]
    if finding.evidence:
        rows = [[short(name), _value(value)] for name, value in finding.evidence.items()]
        parts.append(table(["evidence", ""], rows, text_columns=2))
    if finding.advice:
        parts.append(f"<p><strong>Next:</strong> {escaped(finding.advice)}</p>")
    if finding.fixed_since:
        parts.append(f"<p>Fixed since vLLM {escaped(finding.fixed_since)}.</p>")
    if finding.source:
        parts.append(f'<p class="about">Source of the rule: {escaped(finding.source)}</p>')
    return f'<section class="finding {escaped(finding.severity)}">{"".join(parts)}</section>'


def _value(value: int | float | str | bool | None) -> str:
    match value:
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
    return value


def table(headings: Row, rows: Iterable[Row], text_columns: int = 0, caption: str = "") -> str:
    """A table of escaped cells; the first `text_columns` columns are words, the others figures."""

    def cells(row: Row, tag: str) -> str:
        kinds = ("text" if column < text_columns else "number" for column in range(len(row)))
        return "".join(f'<{tag} class="{kind}">{escaped(cell)}</{tag}>' for kind, cell in zip(kinds, row, strict=True))

    head = f"<thead><tr>{cells(headings, 'th')}</tr></thead>" if any(headings) else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    said = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{said}{head}<tbody>{body}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escaped(caption)}</figcaption></figure>"


def heading(words: str) -> str:
    return f"<h2>{escaped(words)}</h2>"


def details(summary: str, inside: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{inside}</details>"


def escaped(text: str) -> str:
    return escape(short(text, LONGEST_TEXT))


def escaped_lines(text: str) -> str:
    return "\n".join(escape(printable(line)) for line in text.split("\n"))
