"""A process that outlives the tool just long enough to end a server with it.

A kill -9 leaves no chance to clean up, so this waits at the other end of a pipe: its last line names the server, and
its end says that the tool is gone.
"""

import sys
import time

from dspark_cli.serving.session import UNKNOWN_LEADER, ServerSession

STARTS_WITHIN_S = 1.0
"""A server that was being started when the tool was killed may carry its mark only a moment later."""


def main() -> None:
    named = [line.split() for line in sys.stdin.read().splitlines()]
    if not named or len(named[-1]) != 2:
        return
    leader, mark = int(named[-1][0]), named[-1][1]
    if leader == UNKNOWN_LEADER:
        time.sleep(STARTS_WITHIN_S)
    ServerSession(leader, mark).end()


if __name__ == "__main__":
    main()
