"""How long rows are remembered: longer where a connector may bring them back."""

from types import SimpleNamespace

import pytest

from dspark_cli.draft_context.remembering import BEHIND_A_CONNECTOR, IN_THE_CACHE, VARIABLE, remembered_cachefuls

ALONE, CONNECTED = SimpleNamespace(kv_transfer_config=None), SimpleNamespace(kv_transfer_config=object())


@pytest.mark.parametrize(
    ("config", "asked", "cachefuls"),
    [
        (ALONE, None, IN_THE_CACHE),
        (CONNECTED, None, BEHIND_A_CONNECTOR),
        (ALONE, "40", 40),
        (CONNECTED, " 3 ", 3),
        (ALONE, "255", 255),
        (ALONE, "", IN_THE_CACHE),
        (CONNECTED, "0", BEHIND_A_CONNECTOR),
        (CONNECTED, "256", BEHIND_A_CONNECTOR),
        (CONNECTED, "-1", BEHIND_A_CONNECTOR),
        (CONNECTED, "many", BEHIND_A_CONNECTOR),
        (CONNECTED, "9" * 5000, BEHIND_A_CONNECTOR),
        (CONNECTED, "10000", BEHIND_A_CONNECTOR),
        (CONNECTED, "0010000", BEHIND_A_CONNECTOR),
        (SimpleNamespace(), None, IN_THE_CACHE),
    ],
)
def test_cachefuls(monkeypatch: pytest.MonkeyPatch, config: SimpleNamespace, asked: str | None, cachefuls: int) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if asked is not None:
        monkeypatch.setenv(VARIABLE, asked)

    assert remembered_cachefuls(config) == cachefuls
