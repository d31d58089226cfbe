"""Streamed completions: draft steps counted as vLLM streams them, and every way in which a server can fail."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_cli.sources.completions import ONE_ENGINE_HEADER, Answers, CompletionsServer, Prompt, complete_all
from tests.local_server import answer, begin_stream, body_of, server_that

Request = http.server.BaseHTTPRequestHandler
KEY = "sk-very-secret-0123456789"
DONE = b"data: [DONE]\n\n"
STEPS = (1, 3, 1, 8)
"""Tokens of each chunk: the prefill's, then three draft steps."""


def chunk(tokens: int, text: str = "def", finish: str | None = None, prompt_tokens: int = 5) -> bytes:
    """One chunk with continuous usage, in the words and the order of vLLM 0.32.0."""
    choice = {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": None,
    }
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + tokens, "completion_tokens": tokens}
    return event({**HEAD, "choices": [choice], "usage": usage})


HEAD = {"id": "cmpl-8f1c", "object": "text_completion", "created": 1796000000, "model": "tiny"}


def last_usage(tokens: int, **more: Any) -> bytes:
    """The chunk without choices that ends an answer."""
    usage = {"prompt_tokens": 5, "total_tokens": 5 + tokens, "completion_tokens": tokens, **more}
    return event({**HEAD, "choices": [], "usage": usage})


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def error_event(message: str) -> bytes:
    return b"data: " + json.dumps({"error": error(message, "InternalServerError", 500)}).encode() + b"\n\n"


def error(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": None, "code": code}


def usual(steps: Iterable[int] = STEPS, text: str = "def") -> list[bytes]:
    """The chunks of a whole answer."""
    chunks, tokens = [], 0
    for step in steps:
        tokens += step
        chunks.append(chunk(tokens, text))
    return [*chunks, last_usage(tokens), DONE]


def streams(*chunks: bytes) -> AbstractContextManager[str]:
    """A server that answers every request with `chunks`."""

    def respond(request: Request) -> None:
        send = begin_stream(request)
        for each in chain(chunks, [b""]):
            send(each)

    return server_that(respond)


def refuses(status: int, body: bytes) -> AbstractContextManager[str]:
    return server_that(lambda request: answer(request, status, body))


def ask(url: str, *, prompts: int = 1, timeout_s: float = 5.0, concurrency: int = 1, key: str | None = KEY) -> Answers:
    server = CompletionsServer(f"{url}/v1/completions", "tiny", key, timeout_s, concurrency)
    return complete_all(server, [Prompt(number, "import os", 13) for number in range(prompts)], lambda: None)


def failure(answers: Answers) -> str:
    """The one failure of one request."""
    assert answers.requests == ()
    assert len(answers.failed) == 1
    return answers.failed[0]


def test_each_chunk_after_the_first_is_a_draft_step() -> None:
    with streams(*usual()) as url:
        found = ask(url)

    (request,) = found.requests
    assert (request.prompt_tokens, request.output_tokens) == (5, 13)
    assert (request.draft_steps, request.accepted) == (3, 13 - 1 - 3)
    assert 0 < request.ttft_s <= request.seconds <= found.seconds
    assert (request.cached_tokens, request.told, found.failed) == (None, False, ())


def test_chunks_without_a_new_token_are_no_draft_steps() -> None:
    """Text that is held back, for a character that is not whole yet, comes in chunks without a token or with none."""
    with streams(chunk(1), chunk(1, ""), chunk(3), chunk(3, "x"), chunk(3, "", finish="length"), DONE) as url:
        (request,) = ask(url).requests

    assert (request.draft_steps, request.output_tokens) == (1, 3)


def test_cached_tokens_are_read_where_the_server_tells_them() -> None:
    told = last_usage(13, prompt_tokens_details={"cached_tokens": 4})

    with streams(*usual()[:-2], told, DONE) as url:
        (request,) = ask(url).requests

    assert request.cached_tokens == 4


def test_draft_steps_are_the_servers_own_where_it_tells_them() -> None:
    told = {"speculative_decoding": {"num_spec_steps": 4, "num_accepted_draft_tokens": 8}}
    usage = {"prompt_tokens": 5, "total_tokens": 18, "completion_tokens": 13}

    with streams(*usual()[:-2], event({**HEAD, "choices": [], "usage": usage, "metrics": told}), DONE) as url:
        (request,) = ask(url).requests

    assert (request.draft_steps, request.accepted, request.told) == (4, 8, True)


def test_what_is_sent_is_greedy_salted_and_pinned() -> None:
    sent: list[tuple[dict[str, Any], str | None, str | None]] = []

    def respond(request: Request) -> None:
        sent.append(
            (json.loads(body_of(request)), request.headers[ONE_ENGINE_HEADER], request.headers["Authorization"])
        )
        request.headers.replace_header("Content-Length", "0")
        send = begin_stream(request)
        for each in [*usual(), b""]:
            send(each)

    with server_that(respond) as url:
        server = CompletionsServer(f"{url}/v1/completions", "tiny", KEY, 5.0, 1)
        complete_all(server, [Prompt(0, "a", 13, salt="s", engine=1), Prompt(1, "b", 7)], lambda: None)

    (first, engine, key), (second, no_engine, _) = sent
    assert (first["prompt"], first["max_tokens"], first["temperature"], first["ignore_eos"]) == ("a", 13, 0, True)
    assert (first["cache_salt"], engine, key) == ("s", "1", f"Bearer {KEY}")
    assert ("cache_salt" in second, no_engine) == (False, None)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c"])
def test_a_line_separator_in_the_text_ends_no_line(separator: str) -> None:
    """JSON may hold U+2028 and its like as they are, and vLLM writes them so."""
    with streams(*usual(text=f"a{separator}b")) as url:
        found = ask(url)

    assert (len(found.requests), found.failed) == (1, ())


def test_chunks_may_be_cut_anywhere() -> None:
    whole = b"".join(usual(text="\u00fc\u2028"))

    with streams(*(whole[at : at + 7] for at in range(0, len(whole), 7))) as url:
        (request,) = ask(url).requests

    assert request.draft_steps == 3


def test_comments_and_other_fields_of_the_protocol_are_passed_over() -> None:
    with streams(b": ping\r\n\r\nevent: message\r\nid: 1\r\n", *usual()) as url:
        assert len(ask(url).requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            400,
            json.dumps({"error": error("max_tokens is too large", "BadRequestError", 400)}),
            "max_tokens is too large",
        ),
        (401, '{"error":"Unauthorized"}', "Unauthorized"),
        (404, json.dumps({"error": error("The model `x` does not exist.", "NotFoundError", 404)}), "does not exist"),
        (404, '{"detail":"Not Found"}', "Not Found"),
        (500, "Internal Server Error", "Internal Server Error"),
        (503, "", "HTTP 503"),
        (400, "[" * 3000, "[["),
        (400, '{"error":null}', "HTTP 400"),
        (400, "[1]", "[1]"),
        (302, "", "HTTP 302"),
        (204, "", "HTTP 204"),
    ],
)
def test_a_refusal_is_named_with_the_servers_words(status: int, body: str, said: str) -> None:
    with refuses(status, body.encode()) as url:
        message = failure(ask(url))

    assert message.startswith(f"HTTP {status}: ")
    assert said in message


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([chunk(1), error_event("EngineCore encountered an issue"), DONE], "EngineCore encountered an issue"),
        ([event({"error": "out of memory"}), DONE], "out of memory"),
        ([DONE], "holds no token"),
        ([last_usage(0), DONE], "holds no token"),
        ([chunk(0, ""), DONE], "holds no token"),
        ([event({**HEAD, "choices": [{"text": "x"}]}), DONE], "do not say how many tokens"),
        ([event({**HEAD, "choices": [{"text": "x"}], "usage": {"completion_tokens": True}}), DONE], "do not say"),
        ([chunk(1, prompt_tokens=0), DONE], "how many tokens the prompt has"),
        ([b"data: [1, 2]\n\n"], "not its protocol"),
        ([b"data: {oops\n\n"], "not its protocol"),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], "not its protocol"),
        ([b'data: {"usage": ' + b"1" * 10_000 + b"}\n\n"], "not its protocol"),
        ([b"data: \xff\xfe\n\n"], "not its protocol"),
        ([b"data: x" * 200_000], "not its protocol"),
        ([b"<html>hello</html>"], "ends before its end"),
        ([chunk(1), chunk(3)], "ends before its end"),
        ([], "ends before its end"),
    ],
)
def test_a_stream_that_is_no_answer_is_a_failure(chunks: list[bytes], said: str) -> None:
    with streams(*chunks) as url:
        message = failure(ask(url))

    assert said in message
    assert len(message) <= 200


def test_a_connection_that_is_broken_off_is_a_failure() -> None:
    def respond(request: Request) -> None:
        begin_stream(request)(chunk(1))  # and no last chunk

    with server_that(respond) as url:
        assert "peer closed connection" in failure(ask(url))


def test_an_answer_without_length_that_is_broken_off_is_a_failure() -> None:
    """Nothing but the missing [DONE] tells it."""

    def respond(request: Request) -> None:
        body_of(request)
        request.send_response(200)
        request.end_headers()
        request.wfile.write(chunk(1) + chunk(3))

    with server_that(respond) as url:
        assert "ends before its end" in failure(ask(url))


def test_a_compressed_answer_is_not_unpacked() -> None:
    def respond(request: Request) -> None:
        body_of(request)
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.end_headers()

    with server_that(respond) as url:
        assert "compresses" in failure(ask(url))


def test_nobody_there_is_a_failure() -> None:
    assert "connection attempts failed" in failure(ask("http://127.0.0.1:1"))


def drips(piece: bytes) -> Callable[[Request], None]:
    def respond(request: Request) -> None:
        send = begin_stream(request)
        for _ in range(100):
            send(piece)
            time.sleep(0.1)

    return respond


@pytest.mark.parametrize("piece", [b": still there\n\n", chunk(1), b"x"])
def test_an_endless_drip_ends_with_the_timeout(piece: bytes) -> None:
    with server_that(drips(piece)) as url:
        found = ask(url, timeout_s=0.5)

    assert failure(found) == "no whole answer within 0.5 s"


def test_a_server_that_says_nothing_ends_with_the_timeout() -> None:
    with server_that(lambda request: time.sleep(3)) as url:
        assert failure(ask(url, timeout_s=0.3)) == "no whole answer within 0.3 s"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_after_three_failures_no_more_is_sent(concurrency: int) -> None:
    asked: list[str] = []

    def respond(request: Request) -> None:
        asked.append(request.path)
        answer(request, 500, b"no")

    ticks: list[None] = []
    with server_that(respond) as url:
        server = CompletionsServer(f"{url}/v1/completions", "tiny", None, 5.0, concurrency)
        prompts = [Prompt(number, "import os", 4) for number in range(20)]
        found = complete_all(server, prompts, lambda: ticks.append(None))

    assert 3 <= len(found.failed) <= 3 + concurrency - 1
    assert len(asked) == len(found.failed)
    assert len(ticks) == 20, "the progress ends all the same"


def test_one_failure_costs_one_request() -> None:
    def respond(request: Request) -> None:
        prompt = json.loads(body_of(request))["prompt"]
        request.headers.replace_header("Content-Length", "0")
        if prompt == "1":
            answer(request, 500, b"no")
            return
        send = begin_stream(request)
        for each in [*usual(), b""]:
            send(each)

    with server_that(respond) as url:
        server = CompletionsServer(f"{url}/v1/completions", "tiny", None, 5.0, 2)
        found = complete_all(server, [Prompt(number, str(number), 4) for number in range(5)], lambda: None)

    assert [request.prompt for request in found.requests] == [0, 2, 3, 4]
    assert found.failed == ("HTTP 500: no",)


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(
            lambda request: answer(request, 401, json.dumps({"error": error(f"Wrong key: {KEY}", "x", 401)}).encode()),
            id="in JSON",
        ),
        pytest.param(lambda request: answer(request, 401, f"Wrong key: {KEY}".encode()), id="in text"),
        pytest.param(
            lambda request: answer(request, 401, b"x" * 150 + request.headers["Authorization"].encode()),
            id="where the message is cut",
        ),
        pytest.param(lambda request: begin_stream(request)(error_event(f"for {KEY}")), id="in the stream"),
    ],
)
def test_a_key_that_the_server_repeats_is_not_shown(respond: Callable[[Request], None]) -> None:
    with server_that(respond) as url:
        message = failure(ask(url))

    assert KEY[:12] not in message
    assert "***" in message or len(message) == 200


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with streams(*usual()) as url:
        message = failure(ask(url, key=f"{KEY} "))

    assert KEY not in message


def test_more_requests_at_a_time_than_a_pool_usually_has() -> None:
    """None waits for a connection, for that would count as time to its first token."""
    all_there = threading.Barrier(120, timeout=20)

    def respond(request: Request) -> None:
        all_there.wait()
        send = begin_stream(request)
        for each in [*usual(), b""]:
            send(each)

    with server_that(respond) as url:
        found = ask(url, prompts=120, concurrency=120, timeout_s=20)

    assert (len(found.requests), found.failed) == (120, ())


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=200), max_size=6), st.booleans())
def test_any_stream_is_an_answer_or_a_failure(pieces: list[bytes], as_events: bool) -> None:
    chunks = [b"data: " + piece + b"\n\n" for piece in pieces] if as_events else pieces

    with streams(*(piece for piece in chunks if piece), DONE) as url:
        found = ask(url)

    assert len(found.requests) + len(found.failed) == 1


@settings(max_examples=40)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_usage_is_an_answer_or_a_failure(odd: object) -> None:
    usage = {"prompt_tokens": odd, "completion_tokens": odd, "prompt_tokens_details": {"cached_tokens": odd}}
    odd_events = [
        event({"choices": odd, "usage": usage, "metrics": odd}),
        event({"choices": [{}], "usage": odd, "metrics": {"speculative_decoding": odd}}),
        event({"choices": [{}], "usage": usage}),
    ]

    with streams(*odd_events, *usual()) as url:
        found = ask(url)

    assert len(found.requests) + len(found.failed) == 1
