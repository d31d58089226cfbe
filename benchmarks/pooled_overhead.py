"""All pairs that several runs of benchmarks.overhead measured, taken together.

    python -m benchmarks.pooled_overhead FILE...

Of each measurement the mean of the pairs' ratios (of their logarithms, so that a pair and its mirror image cancel) and
the median, with 95% intervals. Two servers that stay slower or faster than one another for the whole run are one draw
each, however many pairs there are: the intervals of measurements between servers do not know that.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.overhead import SEED
from dspark_cli.facts.bootstrap import bootstrap_interval


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    ratios: dict[str, list[float]] = defaultdict(list)
    for name in sys.argv[1:]:
        for measured in json.loads(Path(name).read_text())["measured"]:
            if "tokens_a_second" in measured:
                base, other = (np.array(rates) for rates in measured["tokens_a_second"])
                ratios[measured["what"]].extend(np.log(other / base))
    for what, logarithms in ratios.items():
        print(f"{what}: {_said(logarithms, np.mean)}, median {_said(logarithms, np.median)}, {len(logarithms)} pairs")
    return 0


def _said(logarithms: Sequence[float], middle: Callable[..., Any]) -> str:
    interval = bootstrap_interval([(each,) for each in logarithms], middle, SEED)
    ends = " ({:.3f} to {:.3f})".format(*np.exp(interval)) if interval else ""
    return f"{np.exp(middle(logarithms)):.3f}{ends}"


if __name__ == "__main__":
    sys.exit(main())
