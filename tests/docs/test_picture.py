"""The picture of the architecture is that of the code."""

from __future__ import annotations

import runpy

from checkout import ROOT


def test_the_picture_is_the_one_that_make_picture_draws_now() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "architecture_picture.py"))
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["draw"](), "stale: make picture"
