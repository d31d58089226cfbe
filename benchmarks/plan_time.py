"""How long a plan takes once vLLM is imported, for every public deployment, beside that import.

    python -m benchmarks.plan_time [--out FILE]

One planning process, as `dspark-tool inspect-cache --what-if` has it. Every deployment is planned twice, and the second
time counts: the first one also pays for the parts of vLLM that are imported when a model first needs them. The figures
of one run are comparable with each other, not with those of another machine.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.public_plans import GPU, scenarios
from dspark_cli.sources.cache_planner import PlannedScenario, StandIn, plan_scenarios
from dspark_cli.sources.vllm_install import find_vllm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    out = parser.parse_args().out
    result = measure()
    slowest = sorted(result["seconds"].items(), key=lambda item: -item[1])[:5]
    print(
        f"vLLM {result['vllm']}: {len(result['seconds'])} plans; start of the process and imports"
        f" {result['import_s']:.1f} s"
    )
    print(f"a plan takes {result['median_s']:.2f} s (median), {result['median_of_import']:.1%} of the import; slowest:")
    for name, seconds in slowest:
        print(f"  {name}: {seconds:.2f} s")
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def measure() -> dict[str, Any]:
    install = find_vllm()
    started = time.perf_counter()
    planned = plan_scenarios([*scenarios(), *scenarios()], install, StandIn("cuda", GPU))
    wall = time.perf_counter() - started
    imported = wall - sum(_seconds(one) for one in planned if one.plan)
    again = planned[len(planned) // 2 :]
    seconds = {one.scenario.name: _seconds(one) for one in again if one.plan}
    median = statistics.median(seconds.values())
    return {
        "vllm": install.version,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "import_s": imported,
        "median_s": median,
        "median_of_import": median / imported,
        "slowest_s": max(seconds.values()),
        "seconds": seconds,
    }


def _seconds(planned: PlannedScenario) -> float:
    assert planned.plan is not None
    return planned.plan.planned_in_s or 0.0


if __name__ == "__main__":
    sys.exit(main())
