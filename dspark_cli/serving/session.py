"""All processes of one server: those of its session, and those that left it but carry its mark."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

MARK = "DSPARK_TOOL_SERVER"
TERMINATE_MAY_TAKE_S = 8.0
KILL_MAY_TAKE_S = 2.0
UNKNOWN_LEADER = -1
"""No process's session: then the mark alone tells the members."""


@dataclass(frozen=True)
class ServerSession:
    """`leader` is the server's process id, which is its session's too. `mark` stands in its environment and in that of
    every descendant; a process that gave itself a title may have lost it, and one that called setsid the session."""

    leader: int
    mark: str

    def members(self) -> list[psutil.Process]:
        return list(self._members())

    def end(self) -> None:
        """Terminate every member, and kill what is left after eight seconds."""
        for end, patience in ((psutil.Process.terminate, TERMINATE_MAY_TAKE_S), (psutil.Process.kill, KILL_MAY_TAKE_S)):
            members = self.members()
            for process in members:
                with contextlib.suppress(psutil.Error):
                    end(process)
            psutil.wait_procs(members, timeout=patience)

    def _members(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and (os.getsid(process.pid) == self.leader or process.environ().get(MARK) == self.mark):
                    yield process
