"""Targets and drafters of other cache geometry than the trained small models: their configurations, changed."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.paths import DFLASH, DSPARK, TARGET

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
ALTERNATING = ["sliding_attention", "full_attention"] * 2
SLIDING = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 512, "use_sliding_window": True}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 512, "use_sliding_window": True}

GEOMETRIES: dict[str, tuple[Path, dict[str, Any]]] = {
    "target": (TARGET, {}),
    "target-one-head": (TARGET, {"num_key_value_heads": 1}),
    "target-alternating": (TARGET, {**LLAMA, "layer_types": ALTERNATING, "sliding_window": 1024}),
    "target-mostly-sliding": (
        TARGET,
        {**LLAMA, "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 1024},
    ),
    "dflash": (DFLASH, {}),
    "dflash-sliding": (DFLASH, SLIDING),
    "dflash-mixed": (DFLASH, MIXED),
    "dflash-wide": (DFLASH, {"num_key_value_heads": 4}),
    "dflash-odd": (DFLASH, {"head_dim": 96}),
    "dspark": (DSPARK, {}),
    "dspark-mixed": (DSPARK, MIXED),
}


def write_geometry(name: str, folder: Path) -> Path:
    """The checkpoint `name` without weights, in a folder of its own under `folder`."""
    source, changes = GEOMETRIES[name]
    written = folder / name
    if not written.exists():
        shutil.copytree(source, written, ignore=shutil.ignore_patterns("*.safetensors"))
        config = json.loads((written / "config.json").read_text())
        (written / "config.json").write_text(json.dumps({**config, **changes}))
    return written
