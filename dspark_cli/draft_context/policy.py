"""How a server treats restored draft context, and the variable that tells all of its processes."""

import os
from enum import StrEnum

VARIABLE = "VLLM_DSPARK_DRAFT_CONTEXT"
"""vLLM hands variables that begin with VLLM_ to its workers, under Ray too."""
WITHOUT = "VLLM_DSPARK_WITHOUT"
"""Names of patches that the user left out, with commas; ALL for every one."""
ALL = "all"


class Policy(StrEnum):
    VALIDITY = "validity"
    """Hide the shortest prefix of whole blocks after which every restored row is one that the drafter wrote."""
    RESTORED = "restored"
    """Hide every restored whole block."""
    OFF = "off"
    """Hide nothing, as vLLM by itself. Other patches stay."""


def asked_policy() -> Policy:
    """What the environment asks for; off where it does not say, or says what this version does not know."""
    try:
        return Policy(os.environ.get(VARIABLE, Policy.OFF))
    except ValueError:
        return Policy.OFF


def left_out() -> frozenset[str]:
    """Names of the patches that must not be applied; `ALL` may be among them."""
    return frozenset(name.strip() for name in os.environ.get(WITHOUT, "").split(",") if name.strip())


def is_left_out(patch: str) -> bool:
    return not left_out().isdisjoint((patch, ALL))
