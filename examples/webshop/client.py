"""A customer of the web shop: orders three mugs, pays twice by accident, and cannot have a fourth."""

from __future__ import annotations

import os
from typing import Any

import httpx

from examples.webshop.app import weft

URL = os.environ.get("WEBSHOP_URL", "http://127.0.0.1:8000")


def main() -> None:
    with httpx.Client(base_url=URL, timeout=60) as shop:
        placed = _shown(shop.post("/orders", json={"sku": "mug", "quantity": 3}))
        order = f"/orders/{placed['id']}"
        _shown(shop.get(f"{order}/result"))
        started = len(weft.list(type="webshop.order"))
        _shown(shop.post("/orders", json={"sku": "mug", "quantity": 1}))
        _shown(shop.post("/orders", json={"sku": "unicorn", "quantity": 1}))
        print(f"workflows that the refused orders left: {len(weft.list(type='webshop.order')) - started}")
        _shown(shop.get(order))
        _shown(shop.post(f"{order}/payments", json={"reference": f"payment-{placed['id']}"}))
        _shown(shop.post(f"{order}/payments", json={"reference": f"payment-{placed['id']}"}))
        _shown(shop.get(f"{order}/result", params={"wait_s": 30}))


def _shown(response: httpx.Response) -> Any:
    asked = response.request
    print(f"{asked.method} {asked.url.raw_path.decode()} -> {response.status_code} {response.text}", flush=True)
    return response.json()


if __name__ == "__main__":
    main()
