"""Which servers may be measured: numbers of draft tokens, and values of one more setting."""

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_cli.errors import BadInput
from dspark_cli.facts.tuning import Candidate
from dspark_cli.serving.secrets import SECRET_KEY, is_secret_option

MOST_TOKENS = 64
MOST_VALUES = 8
MOST_CONCURRENCY = 4096
NO_SPECULATION = 0
SET_BY_TUNE = {"num_speculative_tokens", "num_speculative_tokens_per_batch_size", "model", "method"}


@dataclass(frozen=True)
class Also:
    """One more setting: a key of the speculative configuration, or an option of vLLM with its dashes."""

    key: str
    values: tuple[str, ...]

    @property
    def is_option(self) -> bool:
        return self.key.startswith("--")

    def vllm_args(self, value: str) -> list[str]:
        return [self.key, value] if self.is_option else []

    def speculative_config(self, value: str) -> dict[str, Any]:
        return {} if self.is_option else {self.key: _scalar(value)}


def parse_counts(text: str, option: str, most: int) -> tuple[int, ...]:
    """Numbers such as `1-7` or `1,2,4,7`, in rising order, each once.

    Raises:
        BadInput: something else, or a number that is not from 1 to `most`.
    """
    counts: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?", part, re.ASCII)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last <= most:
            raise BadInput(
                f"{option} {text[:60]!r} are no numbers from 1 to {most}", f"give some, such as {option} 1,2,4 or 1-4"
            )
        counts.update(range(first, last + 1))
    return tuple(sorted(counts))


def parse_also(text: str | None) -> Also | None:
    """`KEY=V1,V2` or `--vllm-option=V1,V2`.

    Raises:
        BadInput: something else, or a key that the tune sets itself.
    """
    if text is None:
        return None
    key, equals, values = text.partition("=")
    key = key.strip()
    given = tuple(dict.fromkeys(value.strip() for value in values.split(",") if value.strip()))
    if not equals or not re.fullmatch(r"(--)?[A-Za-z][\w.-]*", key, re.ASCII) or not 1 <= len(given) <= MOST_VALUES:
        raise BadInput(
            f"--also {text[:60]!r} is no setting with up to {MOST_VALUES} values",
            "give one like --also attention_backend=FLASH_ATTN,FLASHINFER or --also --max-num-batched-tokens=2048,8192",
        )
    if key.replace("_", "-").startswith("--speculative-config"):
        raise BadInput(f"--also {key} would be a whole configuration", "name the key in it: --also KEY=V1,V2")
    if key in SET_BY_TUNE or key.startswith(("--spec", "--config")):
        raise BadInput(f"{key} is what tune sets itself", "use TARGET, --draft, --method and --tokens")
    if is_secret_option(key) or SECRET_KEY.search(key):
        raise BadInput(f"{key} is secret, and no setting to compare", f"leave {key} out")
    return Also(key, given)


def all_candidates(tokens: Sequence[int], also: Also | None) -> tuple[Candidate, ...]:
    """No speculation first, then every number of tokens with every value of the one more setting. A key of the
    speculative configuration does not change a server that does not speculate."""
    values: tuple[str | None, ...] = also.values if also else (None,)
    plain = values if also is None or also.is_option else (None,)
    return (
        *(Candidate(NO_SPECULATION, value) for value in plain),
        *(Candidate(count, value) for value in values for count in sorted(tokens)),
    )


def groups(candidates: Iterable[Candidate]) -> dict[str | None, tuple[Candidate, ...]]:
    """The candidates that speculate, by the value of the one more setting, each in rising order of tokens."""
    found: dict[str | None, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.speculates:
            found.setdefault(candidate.also, []).append(candidate)
    return {also: tuple(sorted(each, key=lambda candidate: candidate.tokens)) for also, each in found.items()}


def used_to_predict(group: Sequence[Candidate], failed: Container[Candidate] = ()) -> tuple[Candidate, ...]:
    """Those from which the others of `group` are predicted: the largest, the smallest, and the one nearest to the
    middle, of those that did not fail."""
    left = [candidate for candidate in group if candidate not in failed]
    if not left:
        return ()
    middle = group[len(group) // 2].tokens
    return tuple(dict.fromkeys((left[-1], left[0], min(left, key=lambda each: abs(each.tokens - middle)))))


def _scalar(text: str) -> Any:
    """A number, true, false or null as JSON has them; else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value
