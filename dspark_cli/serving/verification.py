"""Ask a server that has just started whether it runs as it was asked to."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dspark_cli.errors import ToolError
from dspark_cli.facts import start_verification as names
from dspark_cli.facts.asked import Asked
from dspark_cli.facts.start_verification import Said, Source, Verification, verified
from dspark_cli.serving.evidence import said_by_log, said_by_metrics, said_by_status
from dspark_cli.sources.own_server import OwnServer
from dspark_cli.sources.server_metrics import scrape
from dspark_cli.sources.server_status import NoPlugin, ServerStatus, read_status
from dspark_cli.sources.startup_log import StartupLog

ONE_ANSWER_MAY_TAKE_S = 10.0
STATUS_WITHIN_S = 45.0
"""On a busy CPU the first answer of the engine comes late; the next question then has it at once."""
ASK_AGAIN_S = 1.0


@dataclass(frozen=True)
class Question:
    """What a server was asked for, and how it may be asked in turn. `key` goes to that server and nowhere else."""

    asked: Asked
    with_status: bool
    key: str | None


def verify(question: Question, server: OwnServer, log: StartupLog) -> Verification:
    """Ask the server, and judge by its most exact answers; `log` is what its log has said until now. Never raises."""
    said: list[Said] = []
    reasons: list[str] = []
    for source in (_status, _metrics):
        if said:
            break  # the status says all that the metrics do
        try:
            said += source(question, server)
        except ToolError as error:
            reasons.append(error.what)
        except Exception as error:  # a defect of this check must not disturb the server's log
            reasons.append(f"{type(error).__name__} while asking")
    if log.no_prefix_caching:  # vLLM's own front end may not have heard of it
        said = [each for each in said if (each.setting, each.source) != (names.PREFIX_CACHING, Source.METRICS)]
    return judged(question, log, said, server.address, "; ".join(reasons) or None)


def judged(
    question: Question, log: StartupLog, said: list[Said], where: str | None, unasked: str | None
) -> Verification:
    """The verdict by what was `said`, and by the log."""
    how = "this server does not say" if question.with_status else names.ASK_PLUGIN
    evidence = [*said, *said_by_log(log, question.asked)]
    return Verification(where, tuple(verified(question.asked.everything, evidence, how)), unasked)


def _status(question: Question, server: OwnServer) -> Iterator[Said]:
    if question.with_status:
        yield from said_by_status(_patiently_read(question, server), question.asked)


def _metrics(question: Question, server: OwnServer) -> Iterator[Said]:
    yield from said_by_metrics(scrape(server.url, ONE_ANSWER_MAY_TAKE_S, server))


def _patiently_read(question: Question, server: OwnServer) -> ServerStatus:
    deadline = time.monotonic() + STATUS_WITHIN_S
    while True:
        try:
            return read_status(server.url, ONE_ANSWER_MAY_TAKE_S, question.key, server)
        except NoPlugin:
            raise
        except ToolError:
            if time.monotonic() > deadline:
                raise
        time.sleep(ASK_AGAIN_S)
