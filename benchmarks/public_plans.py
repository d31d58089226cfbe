"""Plan the KV cache of public models, alone and with their drafters, and compare with the committed table.

    python -m benchmarks.public_plans           # exits 1 and prints the difference where there is one
    python -m benchmarks.public_plans --write   # writes the table and its exact figures for the installed vLLM release

An upstream change of grouping, block sizes or padding shows as a difference. Configurations and where they come from:
`benchmarks/public_models`. No weights, no GPU: vLLM plans for a stand-in.
"""

import argparse
import difflib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.facts.gpu_kind import gpu_kind
from dspark_cli.sources.cache_planner import PlannedScenario, Scenario, StandIn, plan_scenarios
from dspark_cli.sources.vllm_install import find_vllm

MODELS = Path(__file__).parent / "public_models"
RESULTS = Path(__file__).parent / "results" / "public-plans"
GPU = gpu_kind("h100")
KV_MEMORY_BYTES = 40 << 30
LENGTH = 32_768
LONGEST_REASON = 160


@dataclass(frozen=True)
class Drafter:
    """A folder of `MODELS`; `tokens` is what one draft step of the published checkpoint proposes."""

    model: str
    method: str
    tokens: int


@dataclass(frozen=True)
class Target:
    """A folder of `MODELS`; `gpus` is the tensor parallel size, `length` the maximum model length in tokens."""

    model: str
    gpus: int = 1
    drafters: tuple[Drafter, ...] = ()
    length: int = LENGTH


TARGETS = (
    Target(
        "qwen3-8b", 1, (Drafter("qwen3-8b-dflash-b16", "dflash", 15), Drafter("qwen3-8b-dspark-block7", "dspark", 7))
    ),
    Target("llama-3.1-8b", 1, (Drafter("llama-3.1-8b-dflash", "dflash", 9),)),
    Target("qwen3-30b-a3b", 2),
    Target("qwen3-coder-30b-a3b", 2, (Drafter("qwen3-coder-30b-a3b-dflash", "dflash", 15),)),
    Target("mistral-7b-v0.1"),
    Target("gpt-oss-20b", 1, (Drafter("gpt-oss-20b-dflash", "dflash", 7),)),
    Target("gpt-oss-120b", 2, (Drafter("gpt-oss-120b-dflash", "dflash", 9),)),
    Target("gemma-3-12b"),
    Target("gemma-4-12b", 1, (Drafter("gemma-4-12b-dspark-block7", "dspark", 7),)),
    Target("gemma-4-31b", 2, (Drafter("gemma-4-31b-dflash", "dflash", 15),)),
    Target("qwen3.5-4b", 1, (Drafter("qwen3.5-4b-dflash", "dflash", 15),)),
    Target("qwen3.5-9b", 1, (Drafter("qwen3.5-9b-dflash", "dflash", 15),)),
    Target("qwen3.6-27b", 2, (Drafter("qwen3.6-27b-dflash", "dflash", 15),)),
    Target("qwen3.8-27b", 2, (Drafter("qwen3.8-27b-dflash2", "dflash", 7),)),
    Target("qwen3-next-80b-a3b", 8),
    Target("nemotron-h-8b", length=8_192),
    Target("deepseek-v2-lite"),
    Target("deepseek-v3", 16),
    Target("deepseek-v3.2-exp", 16),
    Target("deepseek-v4-flash-dspark", 8, (Drafter("deepseek-v4-flash-dspark", "dspark", 5),)),
    Target("kimi-k2", 16),
    Target("kimi-k2.5", 8, (Drafter("kimi-k2.5-dflash", "dflash", 7),)),
    Target("kimi-linear-48b-a3b", 4),
    Target("kimi-k3", 32, (Drafter("kimi-k3-dspark", "dspark", 7),)),
    Target("whisper-large-v3", length=448),
)

Row = dict[str, Any]
Document = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the results in place of comparing")
    write = parser.parse_args().write
    install = find_vllm()
    document = plan_document(install.version, plan_scenarios(scenarios(), install, StandIn("cuda", GPU)))
    differences = []
    for path, text in results(RESULTS / f"vllm-{install.release}", document):
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        else:
            differences += list(_difference(path, text))
    print("\n".join(differences) or f"vLLM {install.version}: {'written' if write else 'as committed'}")
    return 1 if differences else 0


def scenarios() -> list[Scenario]:
    """Every target alone, followed by itself with each of its drafters, in the order of `TARGETS`."""
    return [_scenario(target, drafter) for target, drafter in _deployments()]


def plan_document(version: str, planned: Sequence[PlannedScenario]) -> Document:
    """The exact figures of `scenarios()`'s plans: what the JSON file holds and `render` shows."""
    return {
        "vllm": version,
        "planned_for": GPU.device_name,
        "kv_memory_bytes": KV_MEMORY_BYTES,
        "rows": [
            {
                "model": target.model,
                "drafter": drafter and asdict(drafter),
                "tensor_parallel": target.gpus,
                "max_model_len": target.length,
                "plan": outcome.plan and _plan_figures(outcome.plan),
                "refused": outcome.refused and _without_paths(outcome.refused),
            }
            for (target, drafter), outcome in zip(_deployments(), planned, strict=True)
        ],
    }


def results(stem: Path, document: Document) -> list[tuple[Path, str]]:
    """The two files of one release, with their contents; `stem` is their path without an ending."""
    return [
        (stem.with_name(f"{stem.name}.json"), json.dumps(document, indent=1) + "\n"),
        (stem.with_name(f"{stem.name}.md"), render(document)),
    ]


def render(document: Document) -> str:
    """The figures of `document` as a Markdown table for people."""
    alone = {row["model"]: row for row in document["rows"] if row["drafter"] is None}
    lines = [
        f"# KV cache plans of public models, vLLM {document['vllm']}",
        "",
        f"Planned for {document['planned_for']} (a stand-in: no GPU is used), with",
        f"{document['kv_memory_bytes'] >> 30} GiB for the KV cache on each GPU whatever the weights leave, by",
        "`python -m benchmarks.public_plans --write`. The exact figures are in the JSON file beside this one, the",
        "configurations and their sources in [public_models](../../public_models/SOURCES.md).",
        "",
        "A group reads *layers kind(window) x tokens a block*; `6+4` are six layers of the target and four of the",
        "drafter in one group. *Read* is the share of a full-length sequence's bytes that its last step reads, *lost*",
        "the share of the target's KV tokens that the drafter costs.",
        "",
        "| model | TP | length | drafter | groups | layout | bytes a block | blocks | KV tokens | read | lost |",
        "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *(_table_row(row, alone[row["model"]]) for row in document["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _deployments() -> Iterator[tuple[Target, Drafter | None]]:
    for target in TARGETS:
        for drafter in (None, *target.drafters):
            yield target, drafter


def _scenario(target: Target, drafter: Drafter | None) -> Scenario:
    arguments = {
        "model": str(MODELS / target.model),
        "tensor-parallel-size": str(target.gpus),
        "max-model-len": str(target.length),
        "kv-cache-memory-bytes": str(KV_MEMORY_BYTES),
    }
    if drafter is not None:
        arguments["speculative-config"] = json.dumps(
            {"method": drafter.method, "model": str(MODELS / drafter.model), "num_speculative_tokens": drafter.tokens}
        )
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    name = " + ".join([target.model, *([drafter.model] if drafter else [])])
    return Scenario(name, (*words, "--skip-tokenizer-init"))


def _plan_figures(plan: CachePlan) -> dict[str, Any]:
    parts = where_bytes_go(plan)
    return {
        "groups": _group_figures(plan.groups),
        "pool_bytes_per_block": plan.pool_bytes_per_block,
        "blocks": plan.blocks,
        "kv_tokens": plan.kv_tokens,
        "full_sequences": plan.full_sequences,
        "layout": plan.layout,
        "hit_alignment_tokens": plan.policy.hit_alignment_tokens,
        "bytes_of_a_full_sequence": asdict(parts),
        "sources": {model: source.partition(":")[0] for model, source in plan.sources},
    }


def _group_figures(groups: Iterable[KVCacheGroup]) -> list[dict[str, Any]]:
    """A dictionary for each kind of group, that is, for groups that differ in the names of their layers only."""
    counted = Counter(json.dumps({**asdict(group), "layers": len(group.layers)}) for group in groups)
    return [{"groups": count, **json.loads(figures)} for figures, count in counted.items()]


def _table_row(row: Row, alone: Row) -> str:
    drafter, plan = row["drafter"], row["plan"]
    cells = [
        row["model"],
        str(row["tensor_parallel"]),
        f"{row['max_model_len']:,}",
        f"{drafter['model']}, {drafter['tokens']} tokens" if drafter else "",
        *(_plan_cells(plan, alone["plan"] if drafter else None) if plan else [_reason(row["refused"]), *[""] * 6]),
    ]
    return f"| {' | '.join(cells)} |"


def _plan_cells(plan: dict[str, Any], alone: dict[str, Any] | None) -> list[str]:
    parts = plan["bytes_of_a_full_sequence"]
    return [
        " + ".join(_group_words(group) for group in plan["groups"]),
        plan["layout"] or "",
        f"{plan['pool_bytes_per_block']:,}",
        f"{plan['blocks']:,}",
        f"{plan['kv_tokens']:,}",
        f"{(parts['useful'] + parts['copies']) / parts['total']:.0%}",
        f"{1 - plan['kv_tokens'] / alone['kv_tokens']:.1%}" if alone and alone["kv_tokens"] else "",
    ]


def _group_words(group: dict[str, Any]) -> str:
    """As in `5 groups of 8 sliding(1024) x 16`."""
    many = f"{group['groups']} groups of " if group["groups"] > 1 else ""
    own, drafts = group["layers"] - group["draft_layers"], group["draft_layers"]
    layers = f"{drafts} draft" if not own else f"{own}+{drafts}" if drafts else str(own)
    kind = group["kind"].replace(" attention", "").replace(" window", "")
    window = f"({group['window']})" if group["window"] else ""
    return f"{many}{layers} {kind}{window} x {group['block_tokens']}"


def _reason(refused: str) -> str:
    words = " ".join(refused.split()).replace("|", "\\|")
    return f"refused: {words if len(words) <= LONGEST_REASON else words[: LONGEST_REASON - 1] + '…'}"


def _without_paths(text: str) -> str:
    return text.replace(f"{MODELS}/", "")


def _difference(path: Path, text: str) -> Iterator[str]:
    committed = path.read_text() if path.exists() else ""
    name = path.name
    return difflib.unified_diff(
        committed.splitlines(), text.splitlines(), f"committed {name}", f"planned {name}", lineterm="", n=1
    )


if __name__ == "__main__":
    sys.exit(main())
