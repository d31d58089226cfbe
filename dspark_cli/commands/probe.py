"""`dspark-tool probe`: find out by experiment whether restored prefixes hurt a server's drafts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from dspark_cli.facts.probe import ProbeResult, ServerFacts
    from dspark_cli.probing.experiment import ProbePlan
    from dspark_cli.sources.completions import CompletionsServer

INTERRUPTED = 130


def probe(
    url: Annotated[str, typer.Option(help="The vLLM server, such as http://127.0.0.1:8000.")],
    against: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --trailing-block: the server with disable_eagle_block_drop."),
    ] = None,
    trailing_block: Annotated[
        bool, typer.Option("--trailing-block", help="Compare two servers: what does the trailing block cost?")
    ] = False,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The served model; as a rule the only one.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your prompts: ShareGPT JSON, a JSON list, JSON lines or text.")
    ] = None,
    prompt_count: Annotated[int, typer.Option(min=2, max=2000, help="How many prompts.")] = 24,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=64, help="Tokens a prompt; as a rule 1,024, or five blocks.")
    ] = None,
    output_tokens: Annotated[int, typer.Option(min=8, max=4096, help="Tokens to generate a request.")] = 64,
    shares: Annotated[
        str, typer.Option(metavar="PARTS", help="Parts of a prompt to restore, beside all of it; `none` for no more.")
    ] = "0.25,0.5,0.75",
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests at a time.")] = 4,
    seed: Annotated[int, typer.Option(help="Chooses the built-in prompts.")] = 0,
    reset_prefix_cache: Annotated[
        bool, typer.Option(help="Empty the server's prefix cache through its own endpoint before cold phases.")
    ] = False,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with the server's API key.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one request may take.")] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find out whether restored prefixes hurt this server's drafts, by experiment.

    The same prompts are sent cold, again (all restored), with their first parts restored, and cold again, at
    temperature 0; acceptance is compared prompt by prompt. It takes some 240 requests on an idle server. Harmful ends
    with 1, not exercised and cannot say with 4.

    \b
    dspark-tool probe --url http://127.0.0.1:8000
    dspark-tool probe --url http://127.0.0.1:8000 --prompts sharegpt.json --prompt-count 48
    dspark-tool probe --url http://127.0.0.1:8000 --prompt-count 8 --shares none
    dspark-tool probe --url http://a:8000 --trailing-block --against http://b:8000
    """
    from dspark_cli.probing.experiment import ProbePlan
    from dspark_cli.probing.prompt_texts import texts_of_file
    from dspark_cli.sources.server_status import api_key

    require_seconds("--timeout", timeout)
    if trailing_block != (against is not None):
        raise BadInput("--trailing-block compares two servers", "give both: --trailing-block --against URL")
    texts = texts_of_file(prompts) if prompts is not None else None
    plan = ProbePlan(
        prompts=prompt_count,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        shares=parse_shares(shares),
        concurrency=concurrency,
        seed=seed,
        reset=reset_prefix_cache,
    )
    key = api_key(api_key_env)
    if against is not None:
        _compare_trailing_blocks((url, against), model, plan, texts, key, timeout, json)
        return
    _probe(url, model, plan, texts, key, timeout, json)


def _probe(
    url: str,
    model: str | None,
    plan: "ProbePlan",
    texts: list[str] | None,
    key: str | None,
    timeout: float,
    json: bool,
) -> None:
    from dspark_cli.facts.probe import Verdict
    from dspark_cli.probing.experiment import Experiment
    from dspark_cli.probing.probe_report import report_on_probe
    from dspark_cli.report.console import progress, show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.probe import show_probe

    facts, completions = _server(url, model, key, timeout, plan.concurrency)
    if facts.engines:
        show_note(f"sending up to {plan.requests} requests, {plan.concurrency} at a time; Ctrl-C stops and reports")
        result = Experiment(url, facts, completions, plan, texts, progress).run()
    else:
        result = _without_drafter(facts, plan)
    report = report_on_probe(result)
    if json:
        print_json("probe", report)
    else:
        show_probe(report)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    codes = {Verdict.HARMLESS: ExitCode.FINE, Verdict.HARMFUL: ExitCode.FINDINGS}
    raise typer.Exit(codes.get(report.verdict.verdict, ExitCode.CANNOT_SAY))


def _compare_trailing_blocks(
    urls: tuple[str, str],
    model: str | None,
    plan: "ProbePlan",
    texts: list[str] | None,
    key: str | None,
    timeout: float,
    json: bool,
) -> None:
    from dspark_cli.probing.experiment import prompt_length
    from dspark_cli.probing.trailing_block import calibrate, compare_sides, measure_side, shared_prefix
    from dspark_cli.report.console import progress
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.trailing_block import show_trailing_block

    facts, servers = zip(*(_server(url, model, key, timeout, plan.concurrency) for url in urls), strict=True)
    sent = shared_prefix(plan, calibrate(servers[0], texts, plan.seed), texts, prompt_length(plan, facts))
    sides = [
        measure_side(url, each, server, plan, sent, progress)
        for url, each, server in zip(urls, facts, servers, strict=True)
    ]
    report = compare_sides(sides[0], sides[1], plan.seed)
    if json:
        print_json("probe", report)
    else:
        show_trailing_block(report)
    codes = {False: ExitCode.FINE, True: ExitCode.FINDINGS, None: ExitCode.CANNOT_SAY}
    raise typer.Exit(codes[report.worse])


def _server(
    url: str, model: str | None, key: str | None, timeout: float, concurrency: int
) -> "tuple[ServerFacts, CompletionsServer]":
    from dspark_cli.sources.completions import CompletionsServer
    from dspark_cli.sources.probed_server import completions_address, server_facts

    facts = server_facts(url, model, key, min(timeout, 30.0))
    return facts, CompletionsServer(completions_address(url), facts.model, key, timeout, concurrency)


def _without_drafter(facts: "ServerFacts", plan: "ProbePlan") -> "ProbeResult":
    from dspark_cli.facts.probe import ProbeResult

    return ProbeResult(facts, plan.prompts, plan.output_tokens, plan.concurrency, plan.seed, "no request", ())


def parse_shares(text: str) -> tuple[float, ...]:
    """Parts of a prompt, such as `0.25,0.5`; none of `none`.

    Raises:
        BadInput: one is not between 0 and 1.
    """
    if text == "none":
        return ()
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = (0.0,)
    if not all(0 < share < 1 for share in shares) or len(shares) > 8:
        raise BadInput(
            f"--shares {text[:40]!r} are no parts of a prompt", "give up to 8, such as 0.25,0.5,0.75, or none"
        )
    return shares
