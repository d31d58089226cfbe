"""Draft acceptance on prompts that a KV connector restores with and without the drafter's KV, stock and patched.

    python -m benchmarks.restores                                   # starts servers, two lives of each policy
    python -m benchmarks.restores --draft tests/models/dspark -- --no-enforce-eager --attention-backend FLASH_ATTN
    python -m benchmarks.restores --url http://127.0.0.1:8000 --folder STORE --server "validity, dspark"
    python -m benchmarks.restores --url ... --folder STORE --server "validity, dspark" --life second

The connector is tests/connectors/target_only_connector.py. In the second life a server finds the files of the first,
and has a small pool, whose blocks are used again and again: what a restore without the drafter leaves in them is other
requests' draft KV. Noise, which is laid into blocks before they are restored, stands for the worst of that. A server
that was started by other means needs its --kv-transfer-config with STORE, `--served-model-name tiny`,
`--worker-extension-cls draft_faults.DraftFaults`, VLLM_SERVER_DEV_MODE=1, and tests/connectors and tests/faults on
PYTHONPATH. The figures go to benchmarks/results/<date>-<device>/restores.json; those of other servers there are kept.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from dspark_cli.sources.gpus import read_gpus
from tests.live_server import Served, live_server
from tests.paths import DFLASH
from tests.restoring import CONTEXT_COUNTERS, Counted, Store, connector_environment, count_one_pass, long_prompts

RESULTS = Path(__file__).parent / "results"
POLICIES = ["off", "validity"]
NOISE = 3.0
SMALL_POOL_TOKENS = 53 * 128
"""Enough for a prompt of the longest length, and no multiple of what the prompts take."""


@dataclass(frozen=True)
class Pass:
    """`layers` is what the connector keeps and restores."""

    name: str
    layers: str
    noise: bool = False


LIVES = {
    "first": (
        Pass("cold", "all"),
        Pass("with draft", "all"),
        Pass("without draft, blocks never used", "target"),
        Pass("without draft, noise", "target", noise=True),
        Pass("with draft, noise", "all", noise=True),
    ),
    "second": (
        Pass("with draft", "all"),
        Pass("without draft, blocks used before", "target"),
        Pass("without draft, again", "target"),
        Pass("without draft, noise", "target", noise=True),
    ),
}


@dataclass(frozen=True)
class Row:
    server: str
    life: str
    phase: str
    acceptance_length: float
    counted: Counted


def main() -> int:
    arguments = _parse()
    measured = list(_running(arguments) if arguments.url else _started(arguments))
    setting, versions = _setting(arguments), measured[0][1]
    out = arguments.out or RESULTS / f"{setting['date']}-{_device()}" / "restores.json"
    new = [asdict(row) for row, _ in measured]
    rows = _with_share_of_cold([*_others(out, new), *new])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**setting, **versions, "rows": rows}, indent=1) + "\n")
    print("\n".join(_table(rows)))
    print(f"written: {out}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running server, instead of starting some")
    parser.add_argument("--folder", type=Path, help="where that server's connector keeps blocks")
    parser.add_argument("--server", default="server", help="what to call that server")
    parser.add_argument("--life", choices=LIVES, default="first", help="which life that server is in")
    parser.add_argument("--policies", nargs="+", default=POLICIES, help="of servers to start (default: off validity)")
    parser.add_argument("--draft", type=Path, default=DFLASH, help="the drafter of servers to start")
    parser.add_argument("--block-size", type=int, default=128, help="of their caches, to size the small pool")
    parser.add_argument("--prompts", type=int, default=12, help="of about 1,000 tokens each (default: 12)")
    parser.add_argument("--out", type=Path, help="write the JSON elsewhere")
    parser.add_argument("vllm_args", nargs="*", help="more arguments of vllm serve, after --")
    arguments = parser.parse_args()
    if arguments.url and not arguments.folder:
        parser.error("--url needs --folder")
    return arguments


Measured = Iterator[tuple[Row, dict[str, str]]]
"""Rows, and the versions that the server says."""


def _running(arguments: argparse.Namespace) -> Measured:
    return _live(Served(arguments.url), Store(arguments.folder), arguments.server, arguments.life, arguments.prompts)


def _started(arguments: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="restores-") as temporary:
        for policy in arguments.policies:
            store = Store(Path(temporary) / policy)
            store.folder.mkdir()
            for life in LIVES:
                pool = ["--num-gpu-blocks-override", str(SMALL_POOL_TOKENS // arguments.block_size)]
                with live_server(
                    Path(temporary) / f"{policy}-{life}.log",
                    draft=arguments.draft,
                    faults=True,
                    more_args=[*store.vllm_args(), *(pool if life == "second" else []), *arguments.vllm_args],
                    more_environment=connector_environment(policy),
                ) as server:
                    yield from _live(server, store, f"{policy}, {arguments.draft.name}", life, arguments.prompts)


def _live(server: Served, store: Store, name: str, life: str, prompts: int) -> Measured:
    status = httpx.get(f"{server.url}/dspark/status", timeout=30).json()
    versions = {key: str(status[key]) for key in ("vllm", "dspark_tool")}
    texts = long_prompts(prompts)
    for one in LIVES[life]:
        if one.noise:
            server.plant("stale-noise", NOISE)
        store.keep_and_restore(one.layers)
        counted = count_one_pass(server, texts)
        server.heal()
        print(f"{name}, {life} life, {one.name}: {counted.acceptance_length:.3f}", file=sys.stderr, flush=True)
        yield Row(name, life, one.name, counted.acceptance_length, counted), versions


def _others(out: Path, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in `out` of servers and lives that were not measured now."""
    measured = {(row["server"], row["life"]) for row in new}
    known = json.loads(out.read_text())["rows"] if out.exists() else []
    return [row for row in known if (row["server"], row["life"]) not in measured]


def _with_share_of_cold(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`of_cold` is the acceptance length by that of the same server's cold prompts, None where those are missing."""
    cold = {row["server"]: row["acceptance_length"] for row in rows if row["phase"] == "cold"}
    return [
        {**row, "of_cold": row["acceptance_length"] / cold[row["server"]] if row["server"] in cold else None}
        for row in rows
    ]


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown. Tokens are those that the connector restored, and what the patched runtime did about them."""
    yield "| server | life | prompts | AL | of cold | restored | valid | hidden | zeroed |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        of_cold = "" if row["of_cold"] is None else f"{row['of_cold']:.0%}"
        counted = row["counted"]
        tokens = [counted["external_hits"], *(counted[name] for name in CONTEXT_COUNTERS if name != "restored_tokens")]
        cells = [row["server"], row["life"], row["phase"], f"{row['acceptance_length']:.3f}", of_cold]
        yield f"| {' | '.join([*cells, *(f'{count:,}' for count in tokens)])} |"


def _setting(arguments: argparse.Namespace) -> dict[str, Any]:
    gpus = read_gpus()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": gpus[0].name if gpus else "cpu",
        "python": platform.python_version(),
        "torch": version("torch"),
        "prompts": arguments.prompts,
        "vllm_args": arguments.vllm_args,
    }


def _device() -> str:
    gpus = read_gpus()
    return gpus[0].name.removeprefix("NVIDIA ").split()[0].lower() if gpus else "cpu"


if __name__ == "__main__":
    sys.exit(main())
