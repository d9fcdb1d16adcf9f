"""A stocktaking of five shops, of which one does not exist."""

from __future__ import annotations

from uuid import uuid4

from examples.fanout.app import STOCK, weft


def main() -> None:
    stocktaking = weft.start("stocktaking", f"stocktaking-{uuid4().hex[:6]}", {"shops": [*STOCK, "atlantis"]})
    print(f"{stocktaking.id}: {stocktaking.result(timeout=60)}")
    for child in weft.list(type="count"):
        if child.id.startswith(stocktaking.id):
            print(f"  {child.id}: {child.status}, {child.result or (child.error or {}).get('message')}")


if __name__ == "__main__":
    main()
