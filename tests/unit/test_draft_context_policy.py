"""What the environment asks of the patched runtime; what it does not understand changes nothing of vLLM."""

import pytest

from dspark_cli.draft_context.policy import VARIABLE, WITHOUT, Policy, asked_policy, is_left_out, left_out


@pytest.mark.parametrize("policy", Policy)
def test_a_policy_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    monkeypatch.setenv(VARIABLE, str(policy))

    assert asked_policy() is policy


@pytest.mark.parametrize(
    "value", ["", " ", "VALIDITY", "Policy.VALIDITY", "validity ", "1", "true", "validity,off", "é"]
)
def test_what_is_no_policy_is_stock_vllm(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)

    assert asked_policy() is Policy.OFF


def test_who_says_nothing_gets_stock_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(WITHOUT, raising=False)

    assert asked_policy() is Policy.OFF
    assert left_out() == frozenset()


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", []),
        (",", []),
        ("skipped_drafter", ["skipped_drafter"]),
        (",skipped_drafter,,draft_context_v1,skipped_drafter,", ["skipped_drafter", "draft_context_v1"]),
        ("of_another_version", ["of_another_version"]),
    ],
)
def test_patches_are_left_out_by_their_names(monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]) -> None:
    monkeypatch.setenv(WITHOUT, value)

    assert left_out() == set(names)


@pytest.mark.parametrize(("value", "out"), [("skipped_drafter", True), ("all", True), ("draft_context_v1", False)])
def test_all_leaves_every_patch_out(monkeypatch: pytest.MonkeyPatch, value: str, out: bool) -> None:
    monkeypatch.setenv(WITHOUT, value)

    assert is_left_out("skipped_drafter") is out
