"""A model checkpoint as far as config.json tells it: which method a drafter is for and how many tokens it drafts."""

import json
import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dspark_cli.errors import BadInput

HUB_TIMEOUT_S = 10.0
LARGEST_CONFIG = 16 << 20
LARGEST_NUMBER = 1 << 48
"""No size of a model comes near; what is larger would only be too long to print, or to calculate with."""
LONGEST_BLOCK = 4096
"""No drafter comes near, and counts up to it can be listed."""


class Method(StrEnum):
    """vLLM's names of the two speculative methods whose drafters keep context KV."""

    DFLASH = "dflash"
    DSPARK = "dspark"


SERVED_AS_DFLASH = frozenset({"Qwen3XPressModel", "LiLiCorrDraftModel", "MuseGlimmerAssistantModel"})
"""Heads on a DFlash drafter whose names do not say so (vLLM 0.33 spec_decode/__init__.py, config/speculative.py)."""


@dataclass(frozen=True)
class Checkpoint:
    """`name` is what vLLM is given (a folder or a hub name), `config` the parsed config.json."""

    name: str
    config: dict[str, Any]

    @property
    def architectures(self) -> list[str]:
        names = self.config.get("architectures")
        return [str(name) for name in names] if isinstance(names, list) else []


def read_checkpoint(name: str) -> Checkpoint:
    """The checkpoint in folder `name`, or that model of the Hugging Face hub (config.json alone is fetched).

    Raises:
        BadInput: no such folder or model, no config.json in it, or not a JSON object.
    """
    try:
        folder, is_folder, exists = Path(name), Path(name).is_dir(), Path(name).exists()
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be looked at: {_reason(error)}", "check the path and its permissions") from None
    if is_folder:
        return Checkpoint(name, _read_config(folder / "config.json"))
    if exists:
        raise BadInput(f"{name} is a file, not a model folder", "give the folder that holds config.json")
    if not looks_like_hub_name(name):
        raise BadInput(f"no model folder {name}", "check the path")
    return Checkpoint(name, _read_config(_config_from_hub(name)))


def check_target(name: str) -> None:
    """Find a wrong path at once; a target that is not on this disk is left to vLLM, which takes more than hub names.

    Raises:
        BadInput: `name` is a path, and there is no checkpoint.
    """
    is_path = name.startswith((".", "/", "~")) or (name.count("/") > 1 and "://" not in name)
    if is_path or os.path.lexists(name):
        read_checkpoint(name)


def looks_like_hub_name(name: str) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) is not None


def drafter_method(drafter: Checkpoint) -> Method:
    """DFlash or DSpark, by the architecture in config.json or the `speculators` format's model type.

    Raises:
        BadInput: neither, so the caller has to say.
    """
    kinds = [*drafter.architectures, str(drafter.config.get("speculators_model_type", ""))]
    for kind in kinds:
        for method in Method:
            if method in kind.lower():
                return method
    if "dspark_block_size" in drafter.config:
        return Method.DSPARK  # DeepSeek-V4 ships the drafter's weights and settings in the target's checkpoint
    if SERVED_AS_DFLASH.intersection(drafter.architectures):
        return Method.DFLASH
    raise BadInput(
        f"{drafter.name} is no DFlash or DSpark drafter by its config.json (architectures: {drafter.architectures})",
        "is this the target? give the drafter's folder; if it is a drafter, say --method dflash or --method dspark",
    )


def trained_draft_tokens(drafter: Checkpoint, method: Method) -> int:
    """How many tokens a draft step yields as trained.

    A block that starts with the token that is already known (the anchor) yields one token less than it is long, unless
    it was trained to sample from the anchor too.

    Raises:
        BadInput: config.json gives no usable block size.
    """
    settings = _draft_settings(drafter)
    block = settings.get("block_size", settings.get("dspark_block_size"))
    from_anchor = samples_from_anchor(drafter, method)
    shortest = 1 if from_anchor else 2
    if not isinstance(block, int) or isinstance(block, bool) or not shortest <= block <= LONGEST_BLOCK:
        raise BadInput(
            f"{drafter.name}/config.json has no usable block_size ({_short(block)}), so the trained draft length is"
            " unknown",
            "give it: --tokens N",
        )
    return block if from_anchor else block - 1


def samples_from_anchor(drafter: Checkpoint, method: Method) -> bool:
    """Whether the first place of a block, which holds the token that is already known, drafts a token too.

    A DSpark drafter does as a rule, except in the `speculators` format; a DFlash drafter only where it says so.
    """
    as_a_rule = method is Method.DSPARK and "speculators_model_type" not in drafter.config
    return bool(_draft_settings(drafter).get("sample_from_anchor", as_a_rule))


def _draft_settings(drafter: Checkpoint) -> dict[str, Any]:
    nested = drafter.config.get("dflash_config")
    return {**drafter.config, **(nested if isinstance(nested, dict) else {})}


def positive_int(value: Any) -> int | None:
    """`value` where it is one that can be meant; a field of config.json may hold anything."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value < LARGEST_NUMBER else None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_CONFIG:
            raise BadInput(f"{path} is no file of at most {LARGEST_CONFIG >> 20} MiB", "download the checkpoint again")
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path.parent} has no config.json", "give the folder of a model checkpoint") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {_reason(error)}", "check its permissions") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}", "download the checkpoint again") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path} holds a JSON {type(config).__name__}, not an object", "download the checkpoint again")
    return config


def _config_from_hub(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise BadInput(f"no model folder {name}", "give a folder, or install vLLM to use names of the hub") from None
    try:
        return Path(hf_hub_download(name, "config.json", etag_timeout=HUB_TIMEOUT_S))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadInput(
            f"no model folder {name}, and the hub's {name}/config.json cannot be had: {reason}",
            f"check the name, or download it first: hf download {name}",
        ) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
