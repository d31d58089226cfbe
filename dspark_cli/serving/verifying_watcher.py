"""Watches a server start, and has it verified once it is ready."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

from dspark_cli.facts.start_verification import Verification
from dspark_cli.serving.server import Watcher
from dspark_cli.serving.verification import Question, judged, verify
from dspark_cli.sources.own_server import OwnServer
from dspark_cli.sources.startup_log import StartupLog
from dspark_cli.sources.vllm_log import Stage, address_in, stage_of

LAST_ANSWER_WITHIN_S = 2.0


class VerifyingWatcher:
    """Passes everything on to `watcher`. When the server is ready, it is asked from a thread of its own, for its output
    must go on being read; `on_verified` hears the result.

    `no_api` says why this process will answer no HTTP, where that is so. Then `on_verified` hears of what its log shows
    to be missing, when it does.
    """

    def __init__(
        self,
        watcher: Watcher,
        question: Question,
        certificate: Path | None,
        no_api: str | None,
        on_verified: Callable[[Verification], None],
    ) -> None:
        self._watcher = watcher
        self._question = question
        self._certificate = certificate
        self._no_api = no_api
        self._on_verified = on_verified
        self._log = StartupLog()
        self._address: str | None = None
        self._asking: Thread | None = None
        self._result: Verification | None = None

    def on_line(self, line: str) -> None:
        self._watcher.on_line(line)
        if self._asking is not None:
            return
        learned = self._log.read(line)
        self._address = self._address or address_in(line)
        if self._no_api is not None:
            if learned:
                self._judge_by_log(self._no_api)
        elif stage_of(line) is Stage.READY:
            self._asking = Thread(target=self._ask, daemon=True)
            self._asking.start()

    def on_signal(self, number: int) -> None:
        self._watcher.on_signal(number)

    def result(self) -> Verification | None:
        """None where the server never got ready, or ended before it could be asked."""
        if self._asking is not None:
            self._asking.join(LAST_ANSWER_WITHIN_S)
        return self._result

    def _ask(self) -> None:
        if self._address is None:
            self._tell(judged(self._question, self._log, [], None, "its log does not say where it listens"))
        else:
            self._tell(verify(self._question, OwnServer(self._address, self._certificate), self._log))

    def _judge_by_log(self, why: str) -> None:
        before = self._result.differing if self._result else ()
        self._result = judged(self._question, self._log, [], None, why)
        if new := tuple(each for each in self._result.differing if each not in before):
            self._on_verified(replace(self._result, settings=new))

    def _tell(self, verification: Verification) -> None:
        self._result = verification
        self._on_verified(verification)
