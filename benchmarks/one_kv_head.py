"""A target with one KV head, made of another: each layer's head is the mean of the heads that it had.

    python -m benchmarks.one_kv_head OUT [--target tests/models/target]

With one KV head, tensor-parallel ranks hold copies of it, and decode context parallelism deals its tokens out to them.
It speaks no language any more, so acceptance means little; what it says is the same wherever its KV lies.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from tests.paths import TARGET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", type=Path, default=TARGET)
    given = parser.parse_args()
    shutil.copytree(given.target, given.out, dirs_exist_ok=True)
    config = json.loads((given.target / "config.json").read_text())
    weights = load_file(given.target / "model.safetensors")
    for name in weights:
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            heads = weights[name].view(-1, config["head_dim"], weights[name].shape[1])
            weights[name] = heads.float().mean(0).to(weights[name].dtype).contiguous()
    (given.out / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 1}, indent=2) + "\n")
    save_file(weights, given.out / "model.safetensors", metadata={"format": "pt"})
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
