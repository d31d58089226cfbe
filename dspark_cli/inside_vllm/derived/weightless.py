"""Objects of vLLM's layer classes without weights, kernels or a place in a model."""

from typing import Any

import torch
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase


def weightless(layer_class: type[AttentionLayerBase], **attributes: Any) -> AttentionLayerBase:
    """An object of `layer_class` with these attributes alone; asked for any other, it raises AttributeError.

    Its class is vLLM's, so it is found by the same isinstance checks and computes its spec by the same code.
    """
    layer: Any = layer_class.__new__(layer_class)  # type: ignore[call-overload]
    torch.nn.Module.__init__(layer)
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer
