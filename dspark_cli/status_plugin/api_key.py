"""vLLM's API key rule for a route that vLLM's own middleware does not guard: it knows /v1 and a few more."""

import hashlib
import hmac
import os
from argparse import Namespace
from collections.abc import Iterable


class ApiKeyRule:
    """Where the server has API keys, a request must bring one of them as its Bearer token."""

    def __init__(self, keys: Iterable[str | None]) -> None:
        self._digests = [_digest(key) for key in keys if key]

    def admits(self, authorization: str | None) -> bool:
        """Whether a request with this Authorization header may pass; compares in constant time."""
        if not self._digests:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        offered = _digest(token)
        # All are compared, whichever matches: the time taken says nothing.
        return sum(hmac.compare_digest(offered, digest) for digest in self._digests) > 0


def rule_of_server(args: Namespace) -> ApiKeyRule:
    """The rule of a server with these arguments; --api-key wins over VLLM_API_KEY, as in vLLM."""
    return ApiKeyRule(getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY")])


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
