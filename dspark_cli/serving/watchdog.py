"""A process that outlives `dspark-tool serve` just long enough to end the server with it.

A kill -9 leaves no chance to clean up, so this waits at the other end of a pipe: its first line names the server, and
its end says that the tool is gone.
"""

import sys

from dspark_cli.serving.session import ServerSession


def main() -> None:
    named = sys.stdin.readline().split()
    sys.stdin.read()
    if len(named) == 2:
        ServerSession(int(named[0]), named[1]).end()


if __name__ == "__main__":
    main()
