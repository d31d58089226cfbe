"""Where a derived layer stands: in which model, under which configuration, on which rank."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vllm.config import ModelConfig, VllmConfig
from vllm.distributed import get_pp_group, get_tensor_model_parallel_world_size
from vllm.distributed.utils import get_pp_indices
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from dspark_cli.inside_vllm.derived.unknown import UnknownLayerKind

NamedLayer = tuple[str, AttentionLayerBase]
NamedLayers = Iterable[NamedLayer]


@dataclass(frozen=True)
class Place:
    """A model to derive: `config` is what its layers would be built under, `prefix` is put before their names."""

    config: VllmConfig
    model: ModelConfig
    architecture: str
    prefix: str = ""

    @property
    def text(self) -> Any:
        """The part of the model's config.json that describes its language model, as Transformers reads it."""
        return self.model.hf_text_config

    @property
    def is_drafter(self) -> bool:
        return self.model is not self.config.model_config

    @property
    def layers_before(self) -> int:
        """How many layers the target has: drafters continue its numbering."""
        return int(self.config.model_config.get_total_num_hidden_layers())

    @cached_property
    def quantization(self) -> Any:
        from vllm.model_executor.models.utils import get_draft_quant_config

        return get_draft_quant_config(self.config) if self.is_drafter else self.config.quant_config

    def stage(self, total: int) -> range:
        """Which of `total` layers this pipeline stage holds."""
        pipeline = get_pp_group()
        return range(*get_pp_indices(total, pipeline.rank_in_group, pipeline.world_size))

    def unknown(self, what: str) -> UnknownLayerKind:
        return UnknownLayerKind(f"the KV cache of {self.architecture} cannot be derived: {what}")


def tensor_parallel() -> int:
    return int(get_tensor_model_parallel_world_size())
