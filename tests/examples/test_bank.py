"""The order's payment provider does once what it is asked twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.order import bank


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    return tmp_path


def test_a_charge_that_is_repeated_has_one_receipt(folder: Path) -> None:
    assert bank.charge("k1", 20, "good") == bank.charge("k1", 20, "good")
    assert len(list((folder / "payments").iterdir())) == 1


def test_a_charge_that_comes_after_its_refund_is_refused() -> None:
    bank.refund("k1")
    with pytest.raises(bank.PaymentRefused, match="refunded"):
        bank.charge("k1", 20, "good")
