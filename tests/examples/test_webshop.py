"""The web shop's requests, over its tables and the workflows in one database, without a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import HTTPException, Response
from sqlalchemy import func, select

from examples.webshop import web
from examples.webshop.app import weft
from examples.webshop.tables import Base, Item, Order, Payment
from examples.webshop.web import NewOrder, NewPayment
from weft_tasks.testing import WorkflowBed
from weft_tasks.testing.plugin import NewBed

REFERENCE = NewPayment(reference="p-1")


@pytest.fixture
def bed(workflow_bed: NewBed) -> Iterator[WorkflowBed]:
    """The shop's tables are in the bed's database, and its Weft works on the bed."""
    bed = workflow_bed(weft)
    engine = bed.weft.store.database.engine
    Base.metadata.create_all(engine)
    web.Session.configure(bind=engine)
    with bed.installed():
        with web.Session.begin() as session:
            session.add(Item(sku="mug", in_stock=3))
        yield bed
    web.Session.configure(bind=web.engine)
    Base.metadata.drop_all(engine)


def order_mugs(quantity: int) -> int:
    return web.place_order(NewOrder(sku="mug", quantity=quantity))["id"]


def test_an_order_is_delivered_once_it_is_paid(bed: WorkflowBed) -> None:
    order_id = order_mugs(3)
    bed.run_due()
    assert web.pay(order_id, REFERENCE) == {"is_duplicate": False}
    bed.run_due()
    assert web.show_order(order_id)["state"] == {"paid_by": "p-1"}
    bed.reply(bed.calls[-1], "3 mugs")
    bed.run_due()
    assert web.order_result(order_id, Response()) == {"delivery": "3 mugs", "paid_by": "p-1"}


def test_an_order_over_the_stock_leaves_neither_a_row_nor_a_workflow(bed: WorkflowBed) -> None:
    with pytest.raises(HTTPException, match="not in stock"):
        order_mugs(4)
    with pytest.raises(HTTPException, match="no such item"):
        web.place_order(NewOrder(sku="unicorn", quantity=1))
    assert bed.weft.list() == ()
    bed.run_due()
    assert bed.turns == ()
    with web.Session() as session:
        assert session.scalar(select(func.count()).select_from(Order)) == 0
        assert session.scalar(select(Item.in_stock)) == 3


def test_a_payment_that_is_sent_twice_counts_once(bed: WorkflowBed) -> None:
    order_id = order_mugs(1)
    bed.run_due()
    web.pay(order_id, REFERENCE)
    assert web.pay(order_id, REFERENCE) == {"is_duplicate": True}
    bed.run_due()
    assert len(bed.calls) == 1


def test_a_payment_of_an_order_that_is_over_is_refused_and_not_noted(bed: WorkflowBed) -> None:
    order_id = order_mugs(1)
    bed.advance(days=8)
    assert bed.result(f"webshop-{order_id}") == {"cancelled": "not paid"}
    with pytest.raises(HTTPException, match="has ended"):
        web.pay(order_id, REFERENCE)
    with web.Session() as session:
        assert session.scalar(select(func.count()).select_from(Payment)) == 0


def test_a_result_that_is_not_there_yet_is_accepted_only(bed: WorkflowBed) -> None:
    response = Response()
    assert web.order_result(order_mugs(1), response) == {"status": "running"}
    assert response.status_code == 202


def test_an_order_that_nobody_placed_is_not_found(bed: WorkflowBed) -> None:
    with pytest.raises(HTTPException, match="no such order"):
        web.show_order(4711)
