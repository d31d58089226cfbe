"""vLLM's own scheduler at work without a model: what it counts of drafts, and what `acceptance_by_restored` does.

Run in a child that knows its vLLM: `python -m tests.counted_scheduler`. Prints, for each scheduler class, both counts.
The requests repeat a few prompts in a pool so small that some are preempted; what is drafted and accepted is random.
"""

import json
import random
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from tests.paths import DFLASH, TARGET

BLOCK, BLOCKS, SPECULATED, SEED = 16, 64, 7, 20261129


def main() -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    from dspark_cli.draft_context.acceptance_by_restored import count_acceptance

    refusals = [count_acceptance(), count_acceptance()]
    sys.stderr.write(f"seed {SEED}\n")
    stories = {
        "sync": Story(made(Scheduler)),
        "async": Story(made(AsyncScheduler), in_flight=2),
        "runner V2": Story(made(AsyncScheduler, runner_v2=True), in_flight=2),
        "silent": Story(made(Scheduler, log_stats=False)),
    }
    told = {name: story.told() for name, story in stories.items()}
    sys.stdout.write(json.dumps({"refusals": refusals, **told}) + "\n")


class Story:
    """One scheduler, `in_flight` steps of which are scheduled before the first one's result is there."""

    def __init__(self, scheduler: Any, in_flight: int = 1) -> None:
        self.scheduler = scheduler
        self.in_flight = in_flight
        self.dice = random.Random(SEED)
        self.flying: deque[tuple[Any, dict[str, bool]]] = deque()
        self.vllms: Counter[str] = Counter()
        self.admitted: list[tuple[str, int]] = []

    def told(self) -> dict[str, Any]:
        from vllm.v1.request import RequestStatus

        from dspark_cli.draft_context.acceptance_by_restored import counts_of, describe_acceptance

        for number, request in enumerate(requests(self.dice)):
            if request.request_id in self.scheduler.requests:
                self.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
                while self.flying:  # an id that is taken anew before its last result came would confuse vLLM itself
                    self.compute(*self.flying.popleft())
            self.scheduler.add_request(request)
            for _ in range(2 if number % 8 else 40):
                self.step()
            if number % 7 == 3:
                self.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        while self.scheduler.has_requests() or self.flying:
            self.step()
        self.scheduler.schedule()
        return {
            "vllm": dict(self.vllms),
            "ours": describe_acceptance(SimpleNamespace(scheduler=self.scheduler)),
            "kept": counts_of(self.scheduler).requests,
            "admitted": len(self.admitted),
            "requests": len({request_id for request_id, _ in self.admitted}),
            "hits": sum(tokens > 0 for _, tokens in self.admitted),
        }

    def step(self) -> None:
        """Schedule, and give the model's part of the oldest step that is under way."""
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            cached = output.scheduled_cached_reqs
            computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            self.admitted += [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]
            self.admitted += [(each, computed[each]) for each in cached.resumed_req_ids]
            ids = output.num_scheduled_tokens
            self.flying.append((output, {each: not self.scheduler.requests[each].is_prefill_chunk for each in ids}))
        if len(self.flying) >= self.in_flight or (self.flying and not self.scheduler.has_requests()):
            self.compute(*self.flying.popleft())

    def compute(self, output: Any, samples: dict[str, bool]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        drafted, invalid = output.scheduled_spec_decode_tokens, {}
        if drafted and self.dice.random() < 0.2:  # a grammar refuses some of the drafts
            one = self.dice.choice(sorted(drafted))
            invalid = output.num_invalid_spec_tokens = {one: self.dice.randint(1, len(drafted[one]))}
        sampled = []
        for request_id, samples_here in samples.items():
            accepted = self.dice.randint(0, max(0, len(drafted.get(request_id, ())) - invalid.get(request_id, 0)))
            sampled.append([11] * (1 + accepted) if samples_here else [])
        made_of = ModelRunnerOutput(list(samples), {each: at for at, each in enumerate(samples)}, sampled)
        outputs = self.scheduler.update_from_output(output, made_of)
        if self.in_flight == 1:
            self.draft()
        for each in outputs.values():
            if each.scheduler_stats is not None and each.scheduler_stats.spec_decoding_stats is not None:
                self.vllms.update(flat(asdict(each.scheduler_stats.spec_decoding_stats)))

    def draft(self) -> None:
        from vllm.v1.outputs import DraftTokenIds

        running = [request.request_id for request in self.scheduler.running if not request.is_prefill_chunk]
        depth = self.dice.randint(0, SPECULATED)
        self.scheduler.update_draft_token_ids(DraftTokenIds(running, [[11] * depth for _ in running]))


def flat(stats: dict[str, Any]) -> dict[str, int]:
    totals = {name: stats[name] for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")}
    return totals | {f"position {at}": count for at, count in enumerate(stats["num_accepted_tokens_per_pos"])}


def requests(dice: random.Random) -> Iterator[Any]:
    """Prompts of up to 600 tokens, many of which begin as another does. One id comes twice."""
    from vllm import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    hashed = get_hash_fn_by_name("sha256")
    init_none_hash(hashed)
    stems = [[dice.randint(10, 200) for _ in range(length)] for length in (40, 180, 400)]
    for number in range(40):
        prompt = [*dice.choice(stems), *(dice.randint(10, 200) for _ in range(dice.randint(1, 120)))]
        sampling = SamplingParams(max_tokens=dice.randint(8, 90), ignore_eos=True)
        sampling.update_from_generation_config({}, 1)
        yield Request(
            request_id=str(number if number != 21 else 20),
            prompt_token_ids=prompt,
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK, hashed),
        )


def made(scheduler_class: Any, log_stats: bool = True, runner_v2: bool = False) -> Any:
    """A scheduler of BLOCKS blocks. Those for Runner V2 give resumed requests as new ones."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = EngineArgs(
        model=str(TARGET),
        max_model_len=1024,
        block_size=BLOCK,
        max_num_batched_tokens=256,
        max_num_seqs=8,
        enable_prefix_caching=True,
        async_scheduling=scheduler_class.__name__ == "AsyncScheduler",
        speculative_config={"method": "dflash", "model": str(DFLASH), "num_speculative_tokens": SPECULATED},
    ).create_engine_config()
    config.cache_config.block_size = BLOCK
    config.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=16, dtype=torch.float32)
    plan = KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec(["layer"], spec)])
    scheduler = scheduler_class(
        vllm_config=config,
        kv_cache_config=plan,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=log_stats,
    )
    scheduler.use_v2_model_runner = runner_v2
    return scheduler


if __name__ == "__main__":
    main()
