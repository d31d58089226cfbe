"""In which dtype a layer keeps its keys and values."""

from dspark_cli.inside_vllm.derived.place import Place


def kv_cache_dtype(place: Place, name: str, has_window: bool) -> str:
    """vLLM's word for it (auto, fp8, ...) in one layer: the checkpoint may ask for fp8, the user may exempt layers."""
    from vllm.model_executor.models.utils import extract_layer_index

    cache = place.config.cache_config
    if cache.cache_dtype == "auto" and getattr(place.quantization, "kv_cache_scheme", None) is not None:
        cache.cache_dtype = "fp8"
    exempt = cache.kv_cache_dtype_skip_layers
    if exempt and ((has_window and "sliding_window" in exempt) or str(extract_layer_index(name)) in exempt):
        return "auto"
    return str(cache.cache_dtype)
