"""`dspark-tool tune`: find the best number of speculative tokens by measuring."""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.errors import BadInput, CannotSay, ExitCode, NotFit, ToolError

if TYPE_CHECKING:
    from dspark_cli.facts.tuning import TuningQuestion, TuningReport
    from dspark_cli.sources.vllm_install import VllmInstall
    from dspark_cli.tuning.campaign import Campaign
    from dspark_cli.tuning.candidates import Also
    from dspark_cli.tuning.launch import VllmLauncher
    from dspark_cli.tuning.load import LoadTool, Texts
    from dspark_cli.tuning.plan import TuningPlan

INTERRUPTED = 130
MINUTE = 60.0


def tune(
    target: Annotated[str, typer.Argument(help="The target: a model folder or a hub name.")],
    draft: Annotated[str, typer.Option(help="The drafter: a model folder or a hub name.")],
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Such as 1-7 or 1,2,4,7; as a rule 1 to the trained number.")
    ] = None,
    concurrency: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Requests at a time, such as 1,8,32: makes a schedule.")
    ] = "1",
    prompts: Annotated[
        int | None,
        typer.Option(min=2, max=20_000, help="Requests a measurement; as a rule 24, or 4 a request at a time."),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Tokens a prompt, about.")] = 512,
    output_tokens: Annotated[int, typer.Option(min=8, max=4096, help="Tokens to generate a request.")] = 64,
    prompt_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your prompts: ShareGPT JSON, a JSON list, JSON lines or text."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the built-in prompts.")] = 0,
    load: Annotated[str, typer.Option(metavar="TOOL", help="builtin, vllm-bench, aiperf or guidellm.")] = "builtin",
    also: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=V1,V2", help="One more setting: a key of the speculative config, or a --vllm-option."
        ),
    ] = None,
    ttft_ms: Annotated[float | None, typer.Option(help="The longest time to the first token that is good.")] = None,
    tpot_ms: Annotated[float | None, typer.Option(help="The longest time per output token that is good.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Appended to, and read first; else a file of this question's own."),
    ] = None,
    measure_all: Annotated[
        bool, typer.Option("--all", help="Measure every candidate: shows how good the predictions are.")
    ] = False,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Measure no speculation again at the end.")
    ] = True,
    max_minutes: Annotated[
        float, typer.Option(metavar="MINUTES", help="Start nothing more after that; the same command goes on.")
    ] = 120.0,
    ready_within: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a server may take to start.")
    ] = 1800.0,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one request may take.")] = 300.0,
    draft_context: Annotated[
        str | None, typer.Option(metavar="POLICY", help="As for serve: validity, restored or off.")
    ] = None,
    allow_unpatched: Annotated[
        bool, typer.Option("--allow-unpatched", help="Start even where a patch that a start needs does not fit.")
    ] = False,
    allow_conflicts: Annotated[
        bool, typer.Option("--allow-conflicts", help="Take your arguments alone, and none that recommend adds.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="-- VLLM_ARGS", help="Any arguments of vllm serve, as they are.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one page too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find the number of speculative tokens that serves most, by measuring.

    It serves the largest number, none, and one or two more, predicts the others from these, and measures only those
    that may be the best. What is measured is kept, and the same command goes on after a crash. 4 where nothing can be
    said, 130 after Ctrl-C.

    \b
    dspark-tool tune ./target --draft ./drafter
    dspark-tool tune ./target --draft ./drafter --concurrency 1,8,32 --tpot-ms 20
    dspark-tool tune ./target --draft ./drafter --tokens 1-7 --all --html tune.html
    dspark-tool tune ./target --draft ./drafter --dry-run -- --max-model-len 8192
    """
    from dspark_cli.facts.tuning import LatencyBound, Load, TuningQuestion
    from dspark_cli.patches.found_vllm import installed_vllm
    from dspark_cli.probing.prompt_texts import texts_of_file
    from dspark_cli.report.console import show_note
    from dspark_cli.report.result_file import require_place
    from dspark_cli.report.tuning_plan import show_plan
    from dspark_cli.serving.own_title import hide_own_arguments
    from dspark_cli.serving.patched_runtime import Wanted
    from dspark_cli.serving.secrets import without_secrets
    from dspark_cli.serving.speculative import speculate
    from dspark_cli.sources.checkpoint import check_target
    from dspark_cli.sources.device_name import device_name
    from dspark_cli.sources.server_status import api_key
    from dspark_cli.sources.vllm_install import find_vllm
    from dspark_cli.tuning.candidates import MOST_CONCURRENCY, MOST_TOKENS, all_candidates, parse_also, parse_counts
    from dspark_cli.tuning.known_key import require_known_key
    from dspark_cli.tuning.launch import VllmLauncher, require_usable
    from dspark_cli.tuning.load import Texts
    from dspark_cli.tuning.load_tools import load_tool
    from dspark_cli.tuning.plan import TuningPlan

    for option, seconds in (("--ready-within", ready_within), ("--timeout", timeout), ("--max-minutes", max_minutes)):
        require_seconds(option, seconds)
    for option, limit in (("--ttft-ms", ttft_ms), ("--tpot-ms", tpot_ms)):
        if limit is not None and not 0 < limit < 1e9:
            raise BadInput(f"{option} is {limit:g}, and must be more than 0", f"give milliseconds: {option} 50")
    if html is not None:
        require_place(html)
    hide_own_arguments()
    check_target(target)
    given = tuple(vllm_args or ())
    require_usable(given)
    setting = parse_also(also)
    if setting is not None:
        require_usable(setting.vllm_args(setting.values[0]))
    speculation = speculate(draft, method, None if tokens is None else 1)
    counts = (
        tuple(range(1, speculation.tokens + 1)) if tokens is None else parse_counts(tokens, "--tokens", MOST_TOKENS)
    )
    plan = TuningPlan(
        candidates=all_candidates(counts, setting),
        concurrencies=parse_counts(concurrency, "--concurrency", MOST_CONCURRENCY),
        bound=LatencyBound(ttft_ms, tpot_ms),
        measure_all=measure_all,
        control=control,
    )
    own = texts_of_file(prompt_file) if prompt_file is not None else None
    install = find_vllm()
    require_known_key(setting, installed_vllm(install))
    asked = Load(load, prompts, prompt_tokens, output_tokens, seed, _digest(own))
    tool = load_tool(load, install, target, timeout, api_key(None))
    wanted = Wanted(draft_context, (), allow_unpatched)
    if not allow_conflicts:
        given = _recommended(target, draft, method, given, max(plan.concurrencies), draft_context, install)
    launcher = VllmLauncher(install, target, draft, method, given, setting, wanted, ready_within)
    command = launcher.command(plan.candidates[-1], 8000)
    for doubt in dict.fromkeys([*speculate(draft, method, counts[-1]).doubts, *install.doubts, *command.runtime.notes]):
        show_note(doubt)
    question = TuningQuestion(
        target=target,
        drafter=draft,
        method=str(speculation.method),
        vllm=f"{install.distribution} {install.version}",
        device=device_name(install),
        load=asked,
        vllm_args=tuple(without_secrets(list(given))),
        also=setting.key if setting else None,
        draft_context=str(command.runtime.draft_context),
    )
    path = results or _default_results(question)
    show_plan(question, plan, path, command, max_minutes, as_result=dry_run and not json)
    if dry_run:
        if json:
            from dspark_cli.report.tuning_plan import print_plan_json

            print_plan_json(question, plan, path, command)
        return
    report = _run(question, plan, setting, path, launcher, tool, Texts(asked, own), timeout, max_minutes * MINUTE)
    _show(report, json, html)
    _exit(report)


def _recommended(
    target: str,
    draft: str,
    method: str | None,
    given: tuple[str, ...],
    concurrency: int,
    draft_context: str | None,
    install: "VllmInstall",
) -> tuple[str, ...]:
    """`given`, and what `serve` would add to it. Raises NotFit: settings that cannot work together."""
    from dspark_cli.patches.found_vllm import installed_vllm
    from dspark_cli.recommending.gather import Asked
    from dspark_cli.recommending.recommend import recommend_for, require_no_conflict, settings_for_any_tokens
    from dspark_cli.recommending.situation import Workload
    from dspark_cli.serving.patched_runtime import asked_policy
    from dspark_cli.serving.speculative import take_speculative_config

    rest, config = take_speculative_config(list(given))
    policy, load = asked_policy(draft_context), Workload(concurrency)
    asked = Asked(target, draft, method, None, tuple(rest), config, load, policy, without_gpu=True)
    recommendation = recommend_for(asked, installed_vllm(install), install.distribution)
    require_no_conflict(recommendation)
    return settings_for_any_tokens(recommendation)


def _run(
    question: "TuningQuestion",
    plan: "TuningPlan",
    also: "Also | None",
    path: Path,
    launcher: "VllmLauncher",
    tool: "LoadTool",
    texts: "Texts",
    timeout: float,
    most_s: float,
) -> "TuningReport":
    from dspark_cli.report.tuning_progress import TuningProgressDisplay
    from dspark_cli.sources.bounded_get import require_usable_settings
    from dspark_cli.sources.server_status import api_key
    from dspark_cli.sources.tuning_file import open_tuning_file
    from dspark_cli.sources.user_folders import user_folder
    from dspark_cli.tuning.campaign import Campaign

    require_usable_settings()
    key = api_key(None)
    logs = user_folder("XDG_STATE_HOME", ".local/state") / "tune" / path.stem
    _reach_own_servers_directly()
    signal.signal(signal.SIGTERM, _as_interrupt)
    with open_tuning_file(path, question) as file, TuningProgressDisplay(plan.bound) as display:
        campaign = Campaign(
            plan=plan,
            load=question.load,
            texts=texts,
            tool=tool,
            launch=launcher,
            file=file,
            logs=logs,
            progress=display,
            request_timeout_s=timeout,
            key=key,
            most_s=most_s,
        )
        campaign.run()
        return _judged(campaign, question, also)


def _judged(campaign: "Campaign", question: "TuningQuestion", also: "Also | None") -> "TuningReport":
    """The report; the profile goes into the results file where the tune is done."""
    import time

    from dspark_cli.tuning.report_on import HowItEnded, profile_of, report_on_tuning

    file = campaign.file
    ended = HowItEnded(
        results=str(file.path),
        failed=tuple(campaign.failed.values()),
        interrupted=campaign.interrupted,
        stopped=campaign.stopped,
        measured=campaign.added,
        reused=campaign.reused,
        seconds=time.monotonic() - campaign.began,
    )
    report = report_on_tuning(question, campaign.plan, also, file.measurements, ended)
    profile = profile_of(report, file.measurements)
    if profile is not None and not report.interrupted and report.stopped is None:
        file.add_profile(profile)
    return report


def _show(report: "TuningReport", json: bool, html: Path | None) -> None:
    from dspark_cli.report.console import show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.result_file import write_file
    from dspark_cli.report.tuning import show_tuning
    from dspark_cli.report.tuning_page import tuning_page

    if html is not None:
        write_file(html, tuning_page(report))
        show_note(f"the page is in {html}")
    if json:
        print_json("tune", report)
    elif report.rows or report.interrupted:
        show_tuning(report)


def _exit(report: "TuningReport") -> None:
    from dspark_cli.findings.tuning.pays import VERDICTS

    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(finding.id in VERDICTS for finding in report.findings):
        return
    if not report.measured_drafts:
        if report.failed:
            first = report.failed[0]
            _end_with(NotFit(f"{first.candidate.name}: {first.cause}", first.next_step))
        _end_with(CannotSay("nothing was measured that speculates", "give it longer: --max-minutes"))
    raise typer.Exit(ExitCode.CANNOT_SAY)


def _end_with(error: ToolError) -> NoReturn:
    """Not raised: the report is printed, and --json is one document."""
    from dspark_cli.report.console import show_error

    show_error(error)
    raise typer.Exit(error.exit_code)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _reach_own_servers_directly() -> None:
    """No proxy leads to them."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1"]))


def _digest(texts: list[str] | None) -> str | None:
    import hashlib

    return None if texts is None else hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _default_results(question: "TuningQuestion") -> Path:
    import dataclasses
    import hashlib
    import json

    from dspark_cli.sources.user_folders import user_folder

    asked = json.dumps(dataclasses.asdict(question), sort_keys=True)
    name = f"tune-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.jsonl"
    return user_folder("XDG_STATE_HOME", ".local/state") / name
