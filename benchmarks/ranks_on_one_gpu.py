"""Serve with several ranks that share one GPU, to look at what ranks do where there is but one.

    python -m benchmarks.ranks_on_one_gpu TARGET DRAFT --nccl LIBNCCL [--ranks 2] [--port 8406] [-- VLLM_ARGS]

Each rank is a node of vLLM of its own (--nnodes), on this host. NCCL lets ranks share a GPU from 2.30 on; its library
(pip install --target DIR nvidia-nccl-cu13==2.31.2) is preloaded, for torch, and named to vLLM. The ranks take turns on
the GPU, and a sum over them takes milliseconds: it shows what is computed, not how fast. Without --nccl nothing is
preloaded. Ends with the first node that ends, or with Ctrl-C.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

ON_THIS_HOST = {
    "VLLM_HOST_IP": "127.0.0.1",
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
}
"""The last two are ways of vLLM's to sum that take a GPU for each rank, as its custom all-reduce does."""
LOOK_AGAIN_S = 1.0
STOPS_WITHIN_S = 60.0


def main() -> int:
    own, vllm_args = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=8406, help="of the first node, and others follow it")
    parser.add_argument("--nccl", type=Path, help="libnccl.so.2")
    given = parser.parse_args(own)
    nodes = [_node(given, rank, vllm_args) for rank in range(given.ranks)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _watch(nodes, f"http://127.0.0.1:{given.port}")
    except KeyboardInterrupt:
        pass
    finally:
        _stop(nodes)
    return max(node.returncode or 0 for node in nodes)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:at]), list(arguments[at + 1 :])


def _node(given: argparse.Namespace, rank: int, vllm_args: Sequence[str]) -> subprocess.Popen[bytes]:
    where = f"--host 127.0.0.1 --port {given.port + rank} --served-model-name tiny --disable-custom-all-reduce".split()
    where += f"--tensor-parallel-size {given.ranks} --nnodes {given.ranks} --node-rank {rank}".split()
    where += f"--master-addr 127.0.0.1 --master-port {given.port + 1000}".split()
    where += ["--headless"] if rank else []
    loaded = {"LD_PRELOAD": str(given.nccl), "VLLM_NCCL_SO_PATH": str(given.nccl)} if given.nccl else {}
    serve = [sys.executable, "-m", "dspark_cli", "serve", given.target, "--draft", given.draft, "--status"]
    return subprocess.Popen(
        [*serve, "--", *where, *vllm_args],
        env={**os.environ, **ON_THIS_HOST, **loaded},
        start_new_session=True,  # so that Ctrl-C comes once, from here
    )


def _watch(nodes: Sequence[subprocess.Popen[bytes]], url: str) -> None:
    """Until one of the nodes ends; says when the server answers."""
    answers = False
    while all(node.poll() is None for node in nodes):
        if not answers and _is_up(url):
            answers = True
            print(f"ready at {url}, {len(nodes)} ranks", flush=True)
        time.sleep(LOOK_AGAIN_S)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def _stop(nodes: Sequence[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        if node.poll() is None:
            node.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOPS_WITHIN_S
    for node in nodes:
        try:
            node.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            node.kill()  # its watchdog ends what it has started
            node.wait()


if __name__ == "__main__":
    sys.exit(main())
