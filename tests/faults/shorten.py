"""Keep of a probe's JSON what its verdict is made from, without the server's address, as a fixture.

python -m tests.faults.shorten probe.json tests/fixtures/probes/0.32-cpu-dflash-stale-noise.json
"""

import json
import sys
from pathlib import Path
from typing import Any

WHERE = "http://recorded"


def main() -> None:
    probe, fixture = (Path(argument) for argument in sys.argv[1:])
    result: dict[str, Any] = json.loads(probe.read_text())["result"]
    result["server"]["url"] = WHERE
    for phase in result["phases"]:
        phase["recording"]["where"] = [WHERE]
        for part in phase["recording"]["parts"]:
            part["where"] = WHERE
        for request in phase["requests"]:
            request["ttft_s"], request["seconds"] = round(request["ttft_s"], 4), round(request["seconds"], 4)
    fixture.write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
