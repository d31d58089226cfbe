"""Loads by name: the built-in one, and those of other tools, which run as children."""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.tuning import Load
from dspark_cli.serving.background import BackgroundProcess, in_background
from dspark_cli.serving.secrets import secrets_of
from dspark_cli.sources.bench_results import read_bench_result
from dspark_cli.sources.bench_results.request_times import RequestTimes, read_request_times
from dspark_cli.sources.completions import CompletionsServer
from dspark_cli.sources.vllm_install import VllmInstall
from dspark_cli.tuning.load import BUILT_IN, LoadTool, Sending, Sent, built_in, salt

VLLM_BENCH, AIPERF, GUIDELLM = "vllm-bench", "aiperf", "guidellm"
TOOLS = (BUILT_IN, VLLM_BENCH, AIPERF, GUIDELLM)
STARTS_WITHIN_S = 180.0
"""A benchmark imports for a while, and reads a tokenizer."""
TAIL_LINES = 3
EXCEPTION = re.compile(r"[\w.]+(Error|Exception)\b: ")
BOX = re.compile("[\N{BOX DRAWINGS LIGHT HORIZONTAL}-\N{BOX DRAWINGS HEAVY LEFT AND LIGHT RIGHT}]")
"""Lines around a message, which some tools draw."""
LONGEST_TAIL = 300
OR_BUILT_IN = "or try --load builtin"
Command = Callable[["Job"], list[str]]


@dataclass(frozen=True)
class Job:
    """What a tool is to do. `prompts` is a file of JSON lines, `folder` is for its results."""

    base_url: str
    model: str
    target: str
    concurrency: int
    requests: int
    output_tokens: int
    prompts: Path
    folder: Path
    salt: str


@dataclass(frozen=True)
class ExternalLoad:
    """A LoadTool that runs another tool. Acceptance is what its result says, else what the server counts."""

    name: str
    command: Command
    result: str
    """Its result file, under the job's folder."""
    prompt_key: str
    target: str
    added_environment: dict[str, str]
    request_timeout_s: float

    def __call__(
        self, server: CompletionsServer, texts: Sequence[str], load: Load, sending: Sending, log: Path
    ) -> Sent:
        """Raises NotFit: the tool fails, takes too long, or writes what cannot be read."""
        with tempfile.TemporaryDirectory(prefix="dspark-tune-") as name, sending("measuring", len(texts)):
            folder = Path(name)
            prompts = folder / "prompts.jsonl"
            prompts.write_text("".join(json.dumps({self.prompt_key: text}) + "\n" for text in texts))
            job = Job(
                base_url=server.address.removesuffix("/v1/completions"),
                model=server.model,
                target=self.target,
                concurrency=server.concurrency,
                requests=len(texts),
                output_tokens=load.output_tokens,
                prompts=prompts,
                folder=folder,
                salt=salt(),
            )
            waves = -(-len(texts) // server.concurrency)
            self._run(job, log, STARTS_WITHIN_S + waves * self.request_timeout_s)
            content = self._result(folder)
        return _sent(read_request_times(content, self.result, texts), _counted(content, self.result))

    def _run(self, job: Job, log: Path, timeout_s: float) -> None:
        environment = {"NO_PROXY": "127.0.0.1", **self.added_environment}
        with in_background(self.command(job), environment, log, secrets=secrets_of([], environment)) as process:
            code = process.wait(timeout_s)
            if code != 0:
                how = f"did not end within {timeout_s:,.0f} s" if code is None else f"ended with exit code {code}"
                raise NotFit(f"{self.name} {how}: {_tail(process)}", f"read the whole output: {log}; {OR_BUILT_IN}")

    def _result(self, folder: Path) -> bytes:
        found = sorted(folder.rglob(self.result))
        if not found:
            raise NotFit(f"{self.name} wrote no {self.result}", f"is it another release? {OR_BUILT_IN}")
        return found[0].read_bytes()


def load_tool(
    name: str, install: VllmInstall, target: str, request_timeout_s: float, key: str | None = None
) -> LoadTool:
    """The tool of that name. `key` is the API key that the servers want.

    Raises:
        BadInput: there is none.
        NotFit: it is not installed, or takes no key out of sight.
    """
    if name == BUILT_IN:
        return built_in
    if name not in TOOLS:
        raise BadInput(f"--load {name[:40]!r} is no load", f"give one of {', '.join(TOOLS)}")
    program = which(name)
    if name == VLLM_BENCH:
        _require_pandas()
        return ExternalLoad(
            "vllm bench serve",
            _vllm_bench,
            "vllm-bench.json",
            "prompt",
            target,
            install.added_environment() | ({"OPENAI_API_KEY": key} if key else {}),
            request_timeout_s,
        )
    if program is None:
        raise NotFit(f"{name} is not installed: no such program on the path", f"pip install {name}, or --load builtin")
    if key:
        raise NotFit(
            f"{name} takes an API key on its command line, where others see it, and VLLM_API_KEY is set",
            "unset VLLM_API_KEY for the tune, whose servers listen on 127.0.0.1 alone; or --load builtin",
        )
    if name == AIPERF:
        return ExternalLoad(
            name,
            lambda job: _aiperf(program, job),
            "profile_export.jsonl",
            "text",
            target,
            _aiperf_environment(target),
            request_timeout_s,
        )
    return ExternalLoad(
        name, lambda job: _guidellm(program, job), "benchmarks.json", "prompt", target, {}, request_timeout_s
    )


def _require_pandas() -> None:
    """`vllm bench serve` reads files of prompts with it, and vLLM does not ask for it."""
    if find_spec("pandas") is None:
        raise NotFit(
            "vllm bench serve reads prompts with pandas, which is not installed",
            "pip install pandas, or --load builtin",
        )


def _vllm_bench(job: Job) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--backend", "openai", "--base-url", job.base_url, "--model", job.model, "--tokenizer", job.target),
        *("--dataset-name", "custom", "--dataset-path", str(job.prompts), "--disable-shuffle", "--no-oversample"),
        *("--skip-chat-template", "--custom-output-len", str(job.output_tokens), "--num-prompts", str(job.requests)),
        *("--max-concurrency", str(job.concurrency), "--temperature", "0", "--ignore-eos", "--disable-tqdm"),
        *("--extra-body", json.dumps({"cache_salt": job.salt})),
        *("--save-result", "--save-detailed", "--result-dir", str(job.folder), "--result-filename", "vllm-bench.json"),
    ]


def _aiperf(program: str, job: Job) -> list[str]:
    return [
        *(program, "profile", "--model", job.model, "--url", job.base_url, "--endpoint-type", "completions"),
        *("--tokenizer", job.target, "--streaming", "--use-server-token-count", "--use-legacy-max-tokens"),
        *("--input-file", str(job.prompts), "--custom-dataset-type", "single_turn"),
        *("--output-tokens-mean", str(job.output_tokens), "--request-count", str(job.requests)),
        *("--concurrency", str(job.concurrency), "--workers-max", "1", "--ui", "none", "--no-gpu-telemetry"),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"),
        *("--extra-inputs", f"max_tokens:{job.output_tokens}", "--extra-inputs", f"cache_salt:{job.salt}"),
        *("--output-artifact-dir", str(job.folder / "aiperf")),
    ]


def _aiperf_environment(target: str) -> dict[str, str]:
    """Told to stay offline, aiperf (0.13) takes a folder for a hub's name, and finds no tokenizer; a folder needs no
    hub. Whatever is not empty counts as told."""
    return {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""} if Path(target).is_dir() else {}


def _guidellm(program: str, job: Job) -> list[str]:
    body = {"temperature": "0", "ignore_eos": "true", "max_tokens": str(job.output_tokens), "cache_salt": job.salt}
    backend = {"kind": "openai_http", "target": job.base_url, "model": job.model, "request_format": "/v1/completions"}
    backend |= {f"extras.body.{key}": value for key, value in body.items()}
    return [
        *(program, "run", "--backend", ",".join(f"{key}={value}" for key, value in backend.items())),
        *("--profile", f"kind=concurrent,streams={job.concurrency}"),
        *("--constraint", f"kind=max_requests,count={job.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={job.target}"),
        *("--data", f"kind=json_file,path={job.prompts}"),
        *("--output", f"kind=json,path={job.folder / 'benchmarks.json'}", "--disable-console-interactive"),
    ]


def _sent(times: RequestTimes, counted: DraftCounters | None) -> Sent:
    if not times.requests:
        raise NotFit("the load tool's result holds no request that was answered", "see the server's log")
    return Sent(times.requests, times.failed, times.seconds, counted)


def _counted(content: bytes, name: str) -> DraftCounters | None:
    try:
        recording = read_bench_result(content, name)
    except CannotSay:  # client metrics only: then the server's own counters tell
        return None
    return recording.counted if recording and recording.exact else None


def _tail(process: BackgroundProcess) -> str:
    try:
        lines = process.log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    plain = [text for line in lines if (text := BOX.sub(" ", line).strip())]
    raised = [text for text in plain if EXCEPTION.match(text)]
    return " ".join(raised[-1:] or plain[-TAIL_LINES:])[:LONGEST_TAIL] or "it printed nothing"
