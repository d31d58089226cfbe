"""A KV connector for vLLM whose restored prompts lack the drafter's KV, or have it, as one likes.

It keeps whole blocks of prompts in files, named by the tokens up to their end, and restores them for later requests,
also in another server's life. With "layers": "target" it neither keeps nor restores the drafter's layers, as a store
filled by a node without the drafter would not: the drafter then finds in the restored blocks whatever lay there before.

    --kv-transfer-config '{"kv_connector": "TargetOnlyConnector", "kv_connector_module_path": "target_only_connector",
        "kv_role": "kv_both", "kv_connector_extra_config": {"shared_storage_path": "FOLDER", "layers": "target"}}'

with this folder on PYTHONPATH. A file FOLDER/layers that says `target` or `all` overrules "layers" for the requests
that are admitted from then on. Both model runners; one worker; attention layers in KV cache groups of one block size.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

NULL_BLOCK = 0
"""What vLLM's tables have where a block is out of a sliding window."""


class Part(StrEnum):
    """A block is kept in two files, for the target's layers and for the drafter's."""

    TARGET = "target"
    DRAFT = "draft"


PARTS = {"target": (Part.TARGET,), "all": (Part.TARGET, Part.DRAFT)}


@dataclass(frozen=True)
class BlockCopy:
    """One block of a prompt. block_ids: where it lies, by KV cache group."""

    key: str
    block_ids: tuple[int, ...]
    parts: tuple[Part, ...]


@dataclass
class Copies(KVConnectorMetadata):  # type: ignore[misc]
    """Of one step: `restore` before the target runs, `save` after the drafter ran."""

    restore: list[BlockCopy] = field(default_factory=list)
    save: list[BlockCopy] = field(default_factory=list)


@dataclass
class Prompt:
    """An admitted request's. keys: of all its whole blocks. saved: blocks that need not be looked at any more."""

    keys: Sequence[str]
    parts: tuple[Part, ...]
    restored_tokens: int
    block_ids: tuple[list[int], ...] = ()
    saved: int = 0

    def copies(self, begin: int, end: int) -> Iterator[BlockCopy]:
        for block in range(begin, end):
            yield BlockCopy(self.keys[block], tuple(ids[block] for ids in self.block_ids), self.parts)


@dataclass(frozen=True)
class Layer:
    """blocks: the layer's cache, the manager's blocks foremost. group: its KV cache group."""

    name: str
    group: int
    blocks: torch.Tensor


class TargetOnlyConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        if vllm_config.parallel_config.world_size > 1:
            raise ValueError("TargetOnlyConnector is for one worker")
        (self._block_size,) = {group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups}
        self._folder = Path(self._kv_transfer_config.get_from_extra_config("shared_storage_path", ""))
        self._layers = self._kv_transfer_config.get_from_extra_config("layers", "target")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._first_key = _digest(b"", [*_identity(vllm_config), str(self._block_size)])
        self._prompts: dict[str, Prompt] = {}
        self._layers_of: dict[Part, list[Layer]] = {part: [] for part in Part}

    # In the scheduler.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Of the blocks behind the local hit, those that are kept without a gap. One token is left to compute."""
        prompt = Prompt(self._keys(request), self._parts(), restored_tokens=0)
        begin = num_computed_tokens // self._block_size
        most = min(len(prompt.keys), (request.num_tokens - 1) // self._block_size)
        end = next((block for block in range(begin, most) if not self._kept(prompt.keys[block], prompt.parts)), most)
        self._prompts[request.request_id] = prompt
        return max(0, end - begin) * self._block_size, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        prompt = self._prompts.setdefault(request.request_id, Prompt(self._keys(request), self._parts(), 0))
        prompt.restored_tokens = num_external_tokens

    def build_connector_meta(self, scheduler_output: Any) -> Copies:
        copies = Copies()
        computed: dict[str, int] = {}
        for new in scheduler_output.scheduled_new_reqs:  # Runner V2's resumed requests are among these
            computed[new.req_id] = new.num_computed_tokens
            copies.restore += self._admit(new.req_id, new.block_ids, new.num_computed_tokens)
        cached = scheduler_output.scheduled_cached_reqs
        for request, ids, tokens in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            computed[request] = tokens
            if request in cached.resumed_req_ids:
                copies.restore += self._admit(request, ids, tokens)
            elif ids is not None:
                for known, more in zip(self._prompts[request].block_ids, ids, strict=True):
                    known.extend(more)
        for request, scheduled in scheduler_output.num_scheduled_tokens.items():
            copies.save += self._newly_filled(self._prompts[request], computed[request] + scheduled)
        return copies

    def _admit(self, request: str, block_ids: tuple[list[int], ...], computed_tokens: int) -> list[BlockCopy]:
        """What is to be restored. What a request did not compute itself is never saved for it."""
        prompt = self._prompts[request]
        prompt.block_ids = tuple(list(ids) for ids in block_ids)
        prompt.saved = -(-computed_tokens // self._block_size)
        begin = (computed_tokens - prompt.restored_tokens) // self._block_size
        end = begin + prompt.restored_tokens // self._block_size
        prompt.restored_tokens = 0
        return list(prompt.copies(begin, end))

    def _newly_filled(self, prompt: Prompt, computed_tokens: int) -> list[BlockCopy]:
        """The prompt's blocks that this step makes whole and that are not kept yet."""
        begin, end = prompt.saved, min(computed_tokens // self._block_size, len(prompt.keys))
        prompt.saved = max(begin, end)
        return [copy for copy in prompt.copies(begin, end) if not self._kept(copy.key, copy.parts)]

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        self._prompts.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        return self.request_finished(request, block_ids[0])

    def _parts(self) -> tuple[Part, ...]:
        said = self._folder / "layers"
        return PARTS[said.read_text().strip() if said.exists() else self._layers]

    def _keys(self, request: Any) -> list[str]:
        """One for each whole block of the prompt; none where its KV does not follow from its tokens alone."""
        tokens = request.prompt_token_ids
        if tokens is None or request.mm_features or request.lora_request or request.cache_salt:
            return []
        keys = [self._first_key]
        for end in range(self._block_size, len(tokens) + 1, self._block_size):
            keys.append(_digest(keys[-1].encode(), tokens[end - self._block_size : end]))
        return keys[1:]

    def _kept(self, key: str, parts: tuple[Part, ...]) -> bool:
        return all(self._file(key, part).exists() for part in parts if not self._is_nothing(part))

    def _is_nothing(self, part: Part) -> bool:
        """Whether the server has no layer of that part, as one without a drafter."""
        return part is Part.DRAFT and self._vllm_config.speculative_config is None

    def _file(self, key: str, part: Part) -> Path:
        return self._folder / f"{key}.{part}.safetensors"

    # In the worker.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        first_draft = self._vllm_config.model_config.hf_text_config.num_hidden_layers
        num_blocks = self._kv_cache_config.num_blocks
        for group, cache_group in enumerate(self._kv_cache_config.kv_cache_groups):
            for name in cache_group.layer_names:
                found = re.search(r"layers\.(\d+)", name)
                part = Part.DRAFT if found and int(found[1]) >= first_draft else Part.TARGET
                self._layers_of[part].append(Layer(name, group, _by_block(kv_caches[name], num_blocks)))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for copy in self._get_connector_metadata().restore:
            for part in copy.parts:
                if not self._is_nothing(part):
                    self._restore(part, copy)

    def wait_for_save(self) -> None:
        """The runner calls it when the drafter has run, so the drafter's KV of the step is there too."""
        for copy in self._get_connector_metadata().save:
            for part in copy.parts:
                if not self._is_nothing(part):
                    self._save(part, copy)

    def _restore(self, part: Part, copy: BlockCopy) -> None:
        kept = load_file(self._file(copy.key, part))
        for layer in self._layers_of[part]:
            block = copy.block_ids[layer.group]
            if block != NULL_BLOCK:
                layer.blocks[block].copy_(kept[layer.name])

    def _save(self, part: Part, copy: BlockCopy) -> None:
        tensors = {
            layer.name: layer.blocks[copy.block_ids[layer.group]].clone(memory_format=torch.contiguous_format).cpu()
            for layer in self._layers_of[part]
        }
        file = self._file(copy.key, part)
        unfinished = file.with_suffix(f".{os.getpid()}")
        save_file(tensors, unfinished)
        unfinished.replace(file)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Everything is there before the target runs."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """The drafter's layers are written outside of attention, so all is saved at the step's end."""


def _by_block(cache: torch.Tensor, num_blocks: int) -> torch.Tensor:
    """A view of a layer's cache, any layout, that has the manager's blocks as its first dimension; each of them may be
    several of the kernel's."""
    at = next(dim for dim in (0, 1) if cache.shape[dim] % num_blocks == 0 and cache.shape[dim] > 2)
    return torch.unflatten(cache, at, (num_blocks, -1)).movedim(at, 0)


def _identity(vllm_config: Any) -> list[str]:
    """What KV depends on beside the tokens. A folder may outlive a model, so files of another are never found."""
    speculative = vllm_config.speculative_config
    drafter = getattr(speculative, "draft_model_config", None)
    return [vllm_config.model_config.model, drafter.model if drafter else "", str(vllm_config.model_config.dtype)]


def _digest(before: bytes, content: Sequence[object]) -> str:
    return hashlib.sha256(before + "\n".join(map(str, content)).encode()).hexdigest()
