"""The recommended configuration file, read by vLLM's own parser."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_cli.sources.vllm_install import find_vllm
from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, TARGET

pytestmark = pytest.mark.timeout(300)

PROGRAM = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
args = parser.parse_args(["serve", "--config", sys.argv[1]])
names = ("model_tag", "model", "max_model_len", "enforce_eager", "enable_prefix_caching", "speculative_config")
print(json.dumps({name: getattr(args, name, None) for name in names}))
"""


def test_vllm_reads_what_was_recommended(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    wanted = ["--max-model-len", "4k", "--enforce-eager", "--no-enable-prefix-caching"]
    command = [TOOL, "recommend", str(TARGET), "--draft", str(DFLASH), "--config", str(file), "--json", "--", *wanted]
    recommended = json.loads(
        subprocess.run(command, capture_output=True, text=True, timeout=60, env=offline_environment()).stdout
    )

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        capture_output=True,
        text=True,
        timeout=200,
        env=offline_environment() | find_vllm().added_environment(),
    )

    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert str(TARGET) in (read["model_tag"], read["model"])
    assert (read["max_model_len"], read["enforce_eager"], read["enable_prefix_caching"]) == (4000, True, False)
    assert read["speculative_config"] == recommended["speculative_config"]
