"""Prefix hits that vLLM's own cache managers find, without a model.

Reads a JSON list of cases on stdin and prints a JSON list of hits in tokens. A case names its groups, whether blocks
are dropped, and two prompts: a prefix that they share, and a suffix that each has of its own.
"""

import itertools
import json
import math
import sys
from typing import Any

REQUESTS = itertools.count()


def hit(case: dict[str, Any]) -> int:
    """Tokens of the second prompt that are found cached after the first was computed."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher

    specs = [_spec(**group) for group in case["groups"]]
    ranks = case["ranks"]
    spans = [spec.block_size * (ranks if spec.dcp_sharded else 1) for spec in specs]
    hasher = get_request_block_hasher(math.gcd(*spans), sha256)
    manager = _manager(specs, [group["flag"] for group in case["groups"]], spans, case)
    shared = [token % 1000 for token in range(case["prefix"])]
    first, second = ([*shared, *[own] * case["suffix"]] for own in (5000, 6000))
    # States are cached where a step ends, so the scheduler ends steps at multiples of their block.
    step = math.lcm(*spans)
    _compute(manager, first, hasher, step)
    return _compute(manager, second, hasher, step)


def _spec(kind: str, block: int, flag: bool) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    heads: dict[str, Any] = {"num_kv_heads": 1, "head_size": 64, "dtype": torch.bfloat16}
    match kind:
        case "full":
            return FullAttentionSpec(block_size=block, **heads)
        case "window":
            return SlidingWindowSpec(block_size=block, sliding_window=512, **heads)
        case "state":
            shapes = ((64 * block,),)
            return MambaSpec(block_size=block, shapes=shapes, dtypes=(torch.bfloat16,), mamba_cache_mode="align")
    raise ValueError(kind)


def _manager(specs: list[Any], flags: list[bool], spans: list[int], case: dict[str, Any]) -> Any:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    groups = [
        KVCacheGroupSpec([f"layer.{at}"], spec, is_eagle_group=flag)
        for at, (spec, flag) in enumerate(zip(specs, flags, strict=True))
    ]
    return KVCacheManager(
        KVCacheConfig(num_blocks=10_000, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1 << 16,
        scheduler_block_size=math.lcm(*spans),
        hash_block_size=math.gcd(*spans),
        use_eagle=case["drop"],
        dcp_world_size=case["ranks"],
    )


def _compute(manager: Any, tokens: list[int], hasher: Any, step: int) -> int:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    request = Request(str(next(REQUESTS)), tokens, SamplingParams(max_tokens=1), None, block_hasher=hasher)
    blocks, found, _ = manager.get_computed_blocks(request)
    computed, cached = found, (found, blocks)
    while computed < request.num_tokens:
        manager.new_step_starts()
        count = min(step - computed % step, request.num_tokens - computed)
        assert manager.allocate_slots(request, count, *cached) is not None
        computed += count
        request.num_computed_tokens = computed
        cached = (0, None)
    manager.free(request)
    return int(found)


if __name__ == "__main__":
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256)
    sys.stdout.write(json.dumps([hit(case) for case in json.load(sys.stdin)]) + "\n")
