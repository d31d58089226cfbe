"""What vLLM logs say of the KV cache: recorded ones, the other formats of 0.26 to 0.33, and logs of any size."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.cache_summary import CacheSource, EngineCache, PaddingLayers
from dspark_cli.sources.bounded_lines import LONGEST_LINE
from dspark_cli.sources.cache_log import ASK_SERVER, NO_MEMORY, read_cache_log, summary_of_log
from dspark_cli.sources.server_status import START_WITH_PLUGIN
from tests.paths import FIXTURES

LOGS = FIXTURES / "logs"
AUTO: dict[str, Any] = {"kv_dtype": "auto", "prefix_caching": True}


def said(message: str, process: str = "EngineCore pid=1", level: str = "INFO") -> str:
    return f"({process}) {level} 11-29 13:16:35 [kv_cache_utils.py:2327] {message}"


def only_engine(*lines: str) -> EngineCache:
    (engine,) = summary_of_log(lines, "log").engines
    return engine


@pytest.mark.parametrize(
    ("log", "vllm", "figures"),
    [
        (
            "0.26-gpu-starts",
            "0.26.0",
            {"kv_tokens": 451_200, "full_sequences": 110.16, "max_model_len": 4096, "memory_gib": 1.72},
        ),
        (
            "0.32-cpu-starts-and-stops",
            "0.32.0",
            {
                "kv_tokens": 262_144,
                "full_sequences": 64.0,
                "max_model_len": 4096,
                "memory_gib": 1.0,
                "layout": "LBHNC",
            },
        ),
        (
            "0.33-gpu-starts-and-stops",
            "0.33.0",
            {
                "kv_tokens": 349_520,
                "full_sequences": 85.33,
                "max_model_len": 4096,
                "memory_gib": 1.0,
                "layout": "LBNHC",
            },
        ),
        (
            "0.32-cpu-two-groups",
            "0.32.0",
            {
                "kv_tokens": 12_216,
                "full_sequences": 2.98,
                "max_model_len": 4096,
                "memory_gib": 0.03,
                "layout": "LBHNC",
                "group_block_tokens": (128, 128),
                "scheduler_block_tokens": 128,
            },
        ),
        (
            "0.32-cpu-fitted-to-memory",
            "0.32.0",
            {
                "blocks": 100,
                "blocks_that_would_fit": 512,
                "kv_tokens": 2021,
                "full_sequences": 1.05,
                "max_model_len": 1920,
                "fitted_from": 8192,
                "memory_gib": 0.03,
                "layout": "LBHNC",
                "group_block_tokens": (128,) * 6,
                "scheduler_block_tokens": 128,
            },
        ),
    ],
)
def test_recorded_logs_of_every_format(log: str, vllm: str, figures: dict[str, Any]) -> None:
    summary = read_cache_log(LOGS / f"{log}.log")

    assert (summary.source, summary.vllm, summary.notes) == (CacheSource.LOG, vllm, ())
    assert summary.engines == (EngineCache(engines=("0",), **AUTO, **figures),)


def test_engines_that_say_the_same_are_named_together() -> None:
    summary = read_cache_log(LOGS / "0.32-cpu-two-engines.log")

    (engine,) = summary.engines
    assert (engine.engines, engine.kv_tokens, engine.memory_gib) == (("0", "1"), 262_144, 0.5)


def test_engines_that_differ_each_have_their_own() -> None:
    lines = [
        said("GPU KV cache size: 1,000 tokens", "EngineCore_DP0 pid=1"),
        said("GPU KV cache size: 2,000 tokens", "EngineCore_DP1 pid=2"),
        said("Available KV cache memory: 3.00 GiB", "Worker_DP1_TP1 pid=3"),
        said("Available KV cache memory: 2.50 GiB", "Worker_DP1_TP0 pid=4"),
        said("Using HND KV cache layout for FLASHINFER backend.", "Worker pid=5"),
    ]

    first, second = summary_of_log(lines, "log").engines

    assert first == EngineCache(engines=("0",), kv_tokens=1000, layout="HND")
    assert second == EngineCache(engines=("1",), kv_tokens=2000, layout="HND", memory_gib=2.5)


def test_a_start_that_ran_out_of_memory_leaves_the_capacity_unknown() -> None:
    summary = read_cache_log(LOGS / "0.33-gpu-no-cache-memory.log")

    assert (summary.engines[0].memory_gib, summary.engines[0].kv_tokens) == (-0.97, None)
    assert [unknown.what for unknown in summary.unknown][:2] == ["the capacity", "the number of blocks"]
    assert summary.notes == ("the server had no memory left for the KV cache",)


@pytest.mark.parametrize("memory", ["-0.97", "0.00", "-0.00"])
def test_no_memory_for_the_cache_is_noted_beside_the_figure(memory: str) -> None:
    recorded = (LOGS / "0.33-gpu-no-cache-memory.log").read_text().replace("-0.97 GiB", f"{memory} GiB")

    summary = summary_of_log(recorded.splitlines(), "log")

    assert summary.engines[0].memory_gib == float(memory)
    assert summary.notes == (NO_MEMORY,)


@pytest.mark.parametrize(("memory", "tokens"), [("0.01", ""), ("0.00", "GPU KV cache size: 128 tokens")])
def test_little_memory_is_not_none(memory: str, tokens: str) -> None:
    summary = summary_of_log([said(f"Available KV cache memory: {memory} GiB"), said(tokens)], "log")

    assert summary.notes == ()


def test_a_start_without_memory_before_one_with_it_is_not_the_last_ones_death() -> None:
    died, runs = (
        (LOGS / f"{name}.log").read_text() for name in ("0.33-gpu-no-cache-memory", "0.33-gpu-starts-and-stops")
    )

    summary = summary_of_log((died + runs).splitlines(), "log")

    assert NO_MEMORY not in summary.notes


def test_a_length_of_no_tokens_is_no_length() -> None:
    recorded = (LOGS / "0.32-cpu-starts-and-stops.log").read_text()
    without = recorded.replace("4,096 tokens per request", "0 tokens per request").replace(
        "max_seq_len=4096", "max_seq_len=0"
    )

    (engine,) = summary_of_log(without.splitlines(), "log").engines

    assert (engine.max_model_len, engine.kv_tokens) == (None, 262_144)


@pytest.mark.parametrize(
    ("log", "how"),
    [
        ("0.32-cpu-two-groups", ASK_SERVER),
        ("0.32-cpu-two-engines", ASK_SERVER),
        ("0.32-cpu-starts-and-stops", START_WITH_PLUGIN),
    ],
)
def test_a_server_with_the_status_plugin_is_to_be_asked_and_not_started_again(log: str, how: str) -> None:
    unknown = {one.what: one.how for one in read_cache_log(LOGS / f"{log}.log").unknown}

    assert unknown["where prefix hits can end"] == how
    assert unknown["page sizes, layers of each group and which are the drafter's"] == how


def test_the_plugin_of_an_earlier_start_does_not_count() -> None:
    two = (LOGS / "0.32-cpu-two-groups.log").read_text() + (LOGS / "0.32-cpu-starts-and-stops.log").read_text()

    summary = summary_of_log(two.splitlines(), "log")

    assert summary.unknown[-1].how == START_WITH_PLUGIN


@pytest.mark.parametrize(
    ("message", "figures"),
    [
        ("GPU + host KV cache size: 1,000 tokens, Maximum concurrency for 500 tokens per request: 2.00x",
         {"kv_tokens": 1000, "max_model_len": 500, "full_sequences": 2.0}),
        ("Maximum concurrency for 4,096 tokens per request: 110.16x",
         {"max_model_len": 4096, "full_sequences": 110.16}),
        ("Auto set (3.25/15.5) GiB for KV cache on node 0, with 4.0 GiB requested memory for the worker.",
         {"memory_gib": 3.25}),
        ("Reserving 2.0 GiB of GPU memory for frontend multimodal decoding (1.0 GiB raw-frame semaphore budget, "
         "1.0 GiB decoder+CUDA-context across 1 API server(s) @ 1.0 GiB/server); KV cache memory reduced to 5.5 GiB.",
         {"memory_gib": 5.5}),
        ("`VLLM_KV_CACHE_LAYOUT` environment variable detected. Setting KV cache layout to HND.", {"layout": "HND"}),
        ("Using NHD KV cache layout for FLASH_ATTN backend.", {"layout": "NHD"}),
        ("kv cache group sizes (16, 64)", {"group_block_tokens": (16, 64)}),
        ("kv lcm block sizes 64", {"scheduler_block_tokens": 64}),
        ("Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
         {"raised_block_tokens": 544}),
        ("Setting attention block size to 96 tokens so the quantized primary KV page covers the higher-precision "
         "padded-spec page.", {"raised_block_tokens": 96}),
        ("Padding mamba page size by 1.49% to ensure that mamba page size and attention page size are exactly equal.",
         {"state_padding_percent": 1.49}),
        ("Add 3 padding layers, may waste at most 33.33% KV cache memory",
         {"padding_layers": (PaddingLayers(3, 33.33),)}),
        ("Auto-fit max_model_len: reduced from 131072 to 40960 to fit in available GPU memory (9.5 GiB available for "
         "KV cache)", {"fitted_from": 131_072, "max_model_len": 40_960}),
        ("Hybrid KV cache manager is disabled for this hybrid model, This means we do not enable any optimizations for "
         "saving KV cache memory", {"hybrid_manager": False}),
        ("Turning off hybrid kv cache manager because `--kv-transfer-config` selects a KV connector that does not "
         "support it.", {"hybrid_manager": False}),
    ],
)  # fmt: skip
def test_each_line_in_the_words_of_vllms_sources(message: str, figures: dict[str, Any]) -> None:
    engine = only_engine(said(message))

    assert engine == EngineCache(engines=("0",), **figures)


def test_every_padded_bucket_counts() -> None:
    engine = only_engine(
        said("Add 1 padding layers, may waste at most 10.00% KV cache memory", level="WARNING"),
        said("Add 2 padding layers, may waste at most 20.00% KV cache memory", level="WARNING"),
    )

    assert engine.padding_layers == (PaddingLayers(1, 10.0), PaddingLayers(2, 20.0))


@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        "\x1b[0;36m{}\x1b[0;0m",
        "2026-11-29T13:16:35.123Z {}",
        "my-server-0  | {}",
    ],
)
def test_colours_and_what_containers_put_in_front_do_no_harm(frame: str) -> None:
    assert only_engine(frame.format(said("GPU KV cache size: 1,000 tokens"))).kv_tokens == 1000


def test_a_line_without_a_process_is_read() -> None:
    assert only_engine("INFO 11-29 13:16:35 [kv_cache_utils.py:1] GPU KV cache size: 1,000 tokens").kv_tokens == 1000


def test_what_a_request_says_is_not_what_vllm_says() -> None:
    lines = [
        said("GPU KV cache size: 1,000 tokens"),
        said("Received request cmpl-1: prompt: 'GPU KV cache size: 9 tokens', params: ...", "APIServer pid=2"),
        said(f"Received request cmpl-2: prompt: '{said('GPU KV cache size: 9 tokens')}'", "APIServer pid=2"),
        "GPU KV cache size: 9 tokens",
    ]

    assert only_engine(*lines).kv_tokens == 1000


def test_the_last_start_counts_and_keeps_nothing_of_those_before() -> None:
    two = (LOGS / "0.32-cpu-fitted-to-memory.log").read_text() + (LOGS / "0.32-cpu-starts-and-stops.log").read_text()

    summary = summary_of_log(two.splitlines(), "log")

    assert summary.notes == ("the log has 2 starts of the server; this is the last one",)
    assert summary.engines == read_cache_log(LOGS / "0.32-cpu-starts-and-stops.log").engines


def test_workers_that_repeat_the_group_sizes_when_asked_change_nothing() -> None:
    lines = [said("kv cache group sizes (16, 64)"), said("kv cache group sizes (16, 64)", "Worker pid=9")]

    assert only_engine(*lines).group_block_tokens == (16, 64)


@pytest.mark.parametrize("log", ["0.32-cpu-unknown-argument", "0.32-cpu-max-model-len-too-long"])
def test_a_server_that_died_too_early_leaves_nothing_to_say(log: str) -> None:
    with pytest.raises(CannotSay, match="no line"):
        read_cache_log(LOGS / f"{log}.log")


@pytest.mark.parametrize(
    "content", [b"", b"\n" * 1000, b"\xff\xfe" * 1000, b'{"message": "GPU KV cache size: 9 tokens"}']
)
def test_what_is_no_vllm_log_leaves_nothing_to_say(content: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)

    with pytest.raises(CannotSay):
        read_cache_log(log)


@pytest.mark.parametrize("name", ["missing", "", "/dev/zero", "a\0b"])
def test_what_is_no_file_is_bad_input(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read_cache_log(tmp_path / name)


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(BadInput, match="no regular file"):
        read_cache_log(pipe)


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        file.write(said("GPU KV cache size: 1,000 tokens\n"))
        file.write("x" * (LONGEST_LINE * 200) + "\n")
        for number in range(50_000):
            file.write(said(f"Add {number} padding layers, may waste at most 1.00% KV cache memory\n"))

    tracemalloc.start()
    summary = read_cache_log(log)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert summary.engines[0].kv_tokens == 1000
    assert log.stat().st_size > 15_000_000
    assert peak < 3_000_000


def test_a_line_cut_into_pieces_is_not_several_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    quoted = said("GPU KV cache size: 9 tokens")
    log.write_text(said("GPU KV cache size: 1,000 tokens") + "\n" + "x" * LONGEST_LINE + quoted + "\n")

    assert read_cache_log(log).engines[0].kv_tokens == 1000


@given(st.lists(st.text(max_size=200) | st.sampled_from([
    said(text) for text in (
        "GPU KV cache size: , tokens", "GPU KV cache size: ,,,1 tokens", "kv cache group sizes (, ,)",
        "Maximum concurrency for 0 tokens per request: 0.00x", "Available KV cache memory: -0.00 GiB",
        "Initializing a V1 LLM engine (v1) with config: max_seq_len=999999999999999999, ",
        "non-default args: {}",
    )
])))  # fmt: skip
def test_any_text_is_a_log(lines: list[str]) -> None:
    try:
        summary = summary_of_log(lines, "log")
    except CannotSay:
        return
    assert summary.engines
