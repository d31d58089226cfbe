"""One question on behalf of many who ask."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class AskedOnce(Generic[Answer]):
    """`put` is called for the first who asks; all others share its answer, or its failure while it is under way.

    A good answer stays for `keep_s` seconds: with infinity for good, with 0 it is only shared by those who asked
    before it came.
    """

    def __init__(self, put: Callable[[], Awaitable[Answer]], keep_s: float) -> None:
        self._put = put
        self._keep_s = keep_s
        self._answered_at = 0.0
        self._asked: asyncio.Task[Answer] | None = None

    async def answer(self, timeout_s: float) -> Answer:
        """Raises TimeoutError, after which the question is still under way, and what `put` raises."""
        if self._asked is None or not self._stands(self._asked):
            self._asked = asyncio.create_task(self._ask())
            self._asked.add_done_callback(_take_note)
        return await asyncio.wait_for(asyncio.shield(self._asked), timeout_s)

    def _stands(self, asked: "asyncio.Task[Answer]") -> bool:
        if not asked.done():
            return True
        if asked.cancelled() or asked.exception() is not None:
            return False
        return time.monotonic() - self._answered_at < self._keep_s

    async def _ask(self) -> Answer:
        answer = await self._put()
        self._answered_at = time.monotonic()
        return answer


def _take_note(asked: "asyncio.Task[Answer]") -> None:
    """asyncio complains of an exception that nobody awaited, as when all who asked have timed out."""
    if not asked.cancelled():
        asked.exception()
