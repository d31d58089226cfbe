"""Faults to plant in a running vLLM, so that a tool which looks for them can be tried on the real thing.

A worker extension (`--worker-extension-cls draft_faults.DraftFaults`, with this folder on PYTHONPATH), called through
/collective_rpc, for which the server needs VLLM_SERVER_DEV_MODE=1. Both model runners. Weights and caches change in
place, so that CUDA graphs see it; what is wrapped (length-limit, aux-layers) is passed over by the steps that a graph
replays.
"""

import hashlib
import re
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Any, cast

import torch

from dspark_cli.draft_context.wrapping import MARK

SEED = 20261129
PREPARING = "vllm.v1.worker.gpu.spec_decode.dflash.speculator"
"""The module through whose name the patched runtime hears of model runner V2's draft steps."""


def _digest(values: torch.Tensor) -> str:
    return hashlib.sha256(values.detach().cpu().long().numpy().tobytes()).hexdigest()[:16]


def _unwrapped(function: Any) -> Any:
    while hasattr(function, MARK):
        function = function.__wrapped__
    return function


class DraftFaults:
    """Mixed into the worker. Every method gives a short text, for the answer of /collective_rpc is JSON."""

    model_runner: Any
    vllm_config: Any

    def plant(self, fault: str, amount: float = 0.0) -> str:
        """`fault` is one of stale-noise and dirty-pool (`amount` is the spread), stale-zero, skipped-drafter,
        length-limit (`amount` is a position), other-weights (`amount` is a share of their spread), aux-layers,
        no-markov."""
        self.heal()
        getattr(self, "_plant_" + fault.replace("-", "_"))(amount)
        return fault

    def heal(self) -> str:
        """Take every fault back. Blocks that were overwritten stay so: reset the prefix cache."""
        for undo in getattr(self, "_undo", []):
            undo()
        self._undo: list[Any] = []
        return "healed"

    def slow_down(self, seconds: float) -> str:
        """Let every engine step take `seconds` longer; 0 takes it back. Beside planted faults; heal ends it too."""
        if not hasattr(self, "_undo"):
            self.heal()
        if not hasattr(self, "_slower_by"):
            stock = self.model_runner.execute_model

            def execute_model(*args: Any, **kwargs: Any) -> Any:
                time.sleep(self._slower_by)
                return stock(*args, **kwargs)

            self.model_runner.execute_model = execute_model
            self._undo += [
                lambda: setattr(self.model_runner, "execute_model", stock),
                lambda: delattr(self, "_slower_by"),
            ]
        self._slower_by = seconds
        return f"every step {seconds:g} s longer"

    def treat_restored(self, policy: str) -> str:
        """Change the policy of the patched runtime (validity, restored, off), which the server must run."""
        from dspark_cli.draft_context.installed import HERE
        from dspark_cli.draft_context.policy import Policy

        assert HERE.context is not None, HERE.inactive
        HERE.context.policy = Policy(policy)
        return policy

    def turn_filter_over(self) -> str:
        """What a few cachefuls of other rows do to the patched runtime's filter: it knows no row any more."""
        from dspark_cli.draft_context.installed import HERE

        assert HERE.context is not None, HERE.inactive
        with torch.inference_mode():
            for _ in range(2):
                HERE.context.store.written.start_generation()
        return "turned over"

    def record_steps(self, noise: float = 0.0) -> str:
        """From now on keep what every draft step drafts and hides, until `recorded_steps`; with `noise`, beside
        stale-noise of that spread. Both model runners."""
        self.plant("stale-noise", noise) if noise else self.heal()
        drafter = getattr(self.model_runner, "speculator", None) or self.model_runner.drafter
        stock = drafter.propose
        self._steps: list[list[str]] = []

        def propose(*args: Any, **kwargs: Any) -> Any:
            drafts = stock(*args, **kwargs)
            if not kwargs.get("dummy_run"):
                self._steps.append([_digest(drafts), self._hidden()])
            return drafts

        drafter.propose = propose
        self._undo.append(lambda: delattr(drafter, "propose"))
        return "recording"

    def recorded_steps(self) -> dict[str, Any]:
        """Of every draft step, a digest of its drafts and one of the hidden lengths; this rank's own. Ends it."""
        self.heal()
        return {"steps": self._steps}

    def _hidden(self) -> str:
        from dspark_cli.draft_context.installed import HERE

        return _digest(HERE.context.hidden_tokens) if HERE.context is not None else "none"

    def leave_runtime_out(self, out: bool) -> str:
        """Let draft steps of model runner V2 go past the patched runtime, or through it again. Who is admitted past it
        is not judged later. Recording is in captured graphs, and goes on."""
        from dspark_cli.draft_context.runner_v2 import KEPT

        module: Any = sys.modules[PREPARING]
        if not hasattr(self, "_prepared_by"):
            self._prepared_by = module.prepare_dflash_inputs
        module.prepare_dflash_inputs = _unwrapped(self._prepared_by) if out else self._prepared_by
        drafting = getattr(self.model_runner.speculator, KEPT, None)
        if drafting is not None:
            drafting.admitted.clear()
        return "past the runtime" if out else "through the runtime"

    def time_draft_steps(self, requests: int, turn: int) -> str:
        """Time the steps of model runner V2 that draft for exactly `requests` requests, `turn` of them through the
        patched runtime and `turn` past it, in turns, until asked for them.

        Past it the hooks are left out; what recording adds to the captured graph is in both. Turns go on from one
        request to the next, so that the slower steps after a prefill fall to both.
        """
        self.heal()
        speculator, module = self.model_runner.speculator, cast(Any, sys.modules[PREPARING])
        propose_step, patched = speculator.propose, module.prepare_dflash_inputs
        stock = _unwrapped(patched)
        self._timed: list[tuple[int, bool, float, float, Any, Any]] = []
        self._turn = turn
        count = step = 0

        def propose(batch: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal count, step
            step += 1
            if batch.num_reqs != requests or batch.num_tokens > requests * (speculator.num_speculative_steps + 1):
                module.prepare_dflash_inputs = patched
                return propose_step(batch, *args, **kwargs)
            through_patch = (count // turn) % 2 == 0
            module.prepare_dflash_inputs = patched if through_patch else stock
            begin, end = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
            begin.record()
            started = time.perf_counter()
            drafts = propose_step(batch, *args, **kwargs)
            host = time.perf_counter() - started
            end.record()
            if count % turn:  # the first of a turn follows a step of the other kind
                self._timed.append((step, through_patch, started, host, begin, end))
            count += 1
            return drafts

        speculator.propose = propose
        self._undo += [
            lambda: delattr(speculator, "propose"),
            lambda: setattr(module, "prepare_dflash_inputs", patched),
        ]
        return "timing"

    def draft_step_times(self) -> dict[str, Any]:
        """Of both kinds: how many steps, and medians in microseconds of the draft step on the device and on the host,
        and of the whole engine step (from one draft step's begin to the next one's). `turns`: of every whole turn, in
        order, whether it went through the runtime, and the engine steps' mean. Ends the timing."""
        torch.cuda.synchronize()
        self.heal()
        follow = [
            (step[1], (later[2] - step[2]) * 1e6)
            for step, later in pairwise(self._timed)
            if later[0] == step[0] + 1 and later[1] is step[1]
        ]
        times: dict[str, Any] = {"turns": list(self._whole_turns())}
        for name, kind in (("patched", True), ("past it", False)):
            steps = [step for step in self._timed if step[1] is kind]
            times[name] = {
                "steps": len(steps),
                "device_us": statistics.median(begin.elapsed_time(end) * 1e3 for *_, begin, end in steps),
                "host_us": statistics.median(step[3] * 1e6 for step in steps),
                "engine_step_us": statistics.median(took for through, took in follow if through is kind),
            }
        return times

    def _whole_turns(self) -> Iterator[tuple[bool, float]]:
        """Without the first step of each, and without those that another step has interrupted."""
        size = self._turn - 1
        for through_patch, group in groupby(self._timed, key=lambda step: step[1]):
            turn = list(group)
            if len(turn) == size and turn[-1][0] - turn[0][0] == size - 1:
                yield through_patch, (turn[-1][2] - turn[0][2]) * 1e6 / (size - 1)

    # What restored prefixes look like to a drafter whose context was never written for them.

    # A spread of 1 does nothing to the small models' drafters, whose own keys are as large; 3 drowns them.
    def _plant_stale_noise(self, spread: float) -> None:
        same = torch.Generator().manual_seed(SEED)  # on every rank, for ranks may hold copies of the draft KV
        noise = partial(torch.randn, dtype=torch.float32, generator=same)
        self._overwrite_restored(lambda kept: kept.copy_(spread * noise(kept.shape)))

    def _plant_stale_zero(self, _: float) -> None:
        self._overwrite_restored(lambda kept: kept.zero_())

    def _plant_dirty_pool(self, spread: float) -> None:
        """Noise in the draft layers' whole cache, once: what a block holds until its new owner has written it."""
        for layer in self._draft_layers().values():
            cache = layer.kv_cache[0] if isinstance(layer.kv_cache, list | tuple) else layer.kv_cache
            cache.copy_(spread * torch.randn(cache.shape, dtype=torch.float32))

    def _overwrite_restored(self, damage: Any) -> None:
        stock = self.model_runner.execute_model

        def execute_model(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
            for request in scheduled.scheduled_new_reqs:
                if request.num_computed_tokens:
                    self._damage(request.block_ids, request.num_computed_tokens, damage)
            return stock(scheduled, *args, **kwargs)

        self.model_runner.execute_model = execute_model
        self._undo.append(lambda: setattr(self.model_runner, "execute_model", stock))

    def _damage(self, block_ids: Any, restored_tokens: int, damage: Any) -> None:
        config = self.model_runner.kv_cache_config
        layers = self._draft_layers()
        for group, ids in zip(config.kv_cache_groups, block_ids, strict=True):
            restored = ids[: restored_tokens // group.kv_cache_spec.block_size]
            for name in layers.keys() & set(group.layer_names):
                cache = layers[name].kv_cache
                cache = cache[0] if isinstance(cache, list | tuple) else cache
                at = next(dim for dim in (0, 1) if cache.shape[dim] % config.num_blocks == 0 and cache.shape[dim] > 2)
                per_block = cache.shape[at] // config.num_blocks  # a block of the manager is several of the kernel's
                for block in restored:
                    damage(cache.narrow(at, block * per_block, per_block))

    def _draft_layers(self) -> dict[str, Any]:
        """Attention layers of the drafter: their numbers go on after the target's."""
        first = self.vllm_config.model_config.hf_config.num_hidden_layers
        context = self.vllm_config.compilation_config.static_forward_context
        numbers = {name: re.search(r"layers\.(\d+)", name) for name in context}
        return {name: context[name] for name, found in numbers.items() if found and int(found[1]) >= first}

    # What a drafter with a table that is too short, or trained on short contexts, looks like.

    def _plant_length_limit(self, position: float) -> None:
        model = self._draft_model()
        stock = model.precompute_and_store_context_kv

        def limited(states: torch.Tensor, positions: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return stock(states, positions.clamp(max=int(position)), *args, **kwargs)

        model.precompute_and_store_context_kv = limited
        self._undo.append(lambda: delattr(model, "precompute_and_store_context_kv"))

    def _plant_skipped_drafter(self, _: float) -> None:
        """Take back the fix of the same name: a step that is too long for the drafter writes nobody's context."""
        runner = self.model_runner
        runner._input_fits_in_drafter = type(runner)._input_fits_in_drafter.__wrapped__.__get__(runner)
        self._undo.append(lambda: delattr(runner, "_input_fits_in_drafter"))

    # What a drafter that does not belong to the target looks like.

    def _plant_other_weights(self, share: float) -> None:
        """`share` of every weight's size as noise added to it: another checkpoint, a lossy quantisation."""
        noise = torch.Generator().manual_seed(SEED)
        for weight in self._draft_model().model.layers.parameters():
            self._change(weight, weight.float().std().item() * share * torch.randn(weight.shape, generator=noise))

    def _plant_aux_layers(self, _: float) -> None:
        model, size = self._draft_model(), self.vllm_config.model_config.get_hidden_size()
        stock = model.combine_hidden_states
        model.combine_hidden_states = lambda states: stock(states.roll(size, dims=-1))
        self._undo.append(lambda: delattr(model, "combine_hidden_states"))

    # What a drafter whose later positions do not know the earlier ones looks like.

    def _plant_no_markov(self, _: float) -> None:
        head = next(m for name, m in self._draft_model().named_modules() if name.endswith("markov_w2"))
        self._change(head.weight, -head.weight.float().cpu())

    def _draft_model(self) -> Any:
        runner = self.model_runner
        return (getattr(runner, "speculator", None) or runner.drafter).model

    def _change(self, weight: torch.Tensor, step: torch.Tensor) -> None:
        kept = weight.data.clone()
        weight.data.add_(step.to(weight.device, weight.dtype))
        self._undo.append(lambda: weight.data.copy_(kept))
