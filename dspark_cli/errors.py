"""What ends a command early: one line that says what is wrong, one that says what to do, and an exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command; the README has the same list."""

    FINE = 0
    FINDINGS = 1
    BAD_INPUT = 2
    NOT_FIT = 3
    CANNOT_SAY = 4
    OUR_BUG = 70


class ToolError(Exception):
    """Shown to the user as `error: <what>` and `next: <next_step>`; never as a traceback."""

    exit_code: ExitCode

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class BadInput(ToolError):
    """The command line, a path or a file is not what the command takes."""

    exit_code = ExitCode.BAD_INPUT


class NotFit(ToolError):
    """The input is fine, but this environment or that server cannot serve the command."""

    exit_code = ExitCode.NOT_FIT


class CannotSay(ToolError):
    """There is too little data for an answer."""

    exit_code = ExitCode.CANNOT_SAY


class OurBug(ToolError):
    """Something that should not have happened, shown like the others; a variable brings its traceback."""

    exit_code = ExitCode.OUR_BUG
