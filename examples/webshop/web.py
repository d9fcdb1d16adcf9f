"""The web side of the shop. Each request is one transaction, over the shop's tables and the workflows at once.

uvicorn examples.webshop.web:web
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel, PositiveInt
from sqlalchemy import create_engine, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import sessionmaker

from examples.webshop.app import weft
from examples.webshop.tables import Base, Item, Order, Payment
from weft_tasks import ResultTimeout, WorkflowEnded, WorkflowNotCompleted

engine = create_engine(weft.settings.database_url)
Session = sessionmaker(engine)
STOCK = {"mug": 3, "pen": 50}


@asynccontextmanager
async def lifespan(_web: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    with Session.begin() as session:
        for sku, in_stock in STOCK.items():
            session.merge(Item(sku=sku, in_stock=in_stock))
    yield
    engine.dispose()


web = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    sku: str
    quantity: PositiveInt


class NewPayment(BaseModel):
    reference: str


# The endpoints are `def`, not `async def`: FastAPI gives each a thread, where it may wait for the database.
@web.post("/orders", status_code=201)
def place_order(new: NewOrder) -> dict[str, int]:
    """The order, its workflow and the stock: all three, or none of them."""
    try:
        with Session.begin() as session:
            order = Order(sku=new.sku, quantity=new.quantity)
            session.add(order)
            session.flush()  # Now it has an id.
            weft.start("webshop.order", order.workflow_id, new.model_dump(), session=session)
            taken = update(Item).where(Item.sku == new.sku).values(in_stock=Item.in_stock - new.quantity)
            if session.scalar(taken.returning(Item.sku)) is None:
                raise HTTPException(404, "no such item")
            return {"id": order.id}
    except IntegrityError:
        # The database refused the last step. Any error rolls back the whole transaction, the workflow included.
        raise HTTPException(409, "not in stock") from None


@web.post("/orders/{order_id}/payments", status_code=202)
def pay(order_id: int, new: NewPayment) -> dict[str, bool]:
    """The payment and the signal of it. A repeat of the request is recognised by its reference and changes nothing."""
    with Session.begin() as session:
        order = _order(session.get(Order, order_id))
        session.merge(Payment(reference=new.reference, order_id=order_id))
        session.flush()
        try:
            receipt = weft.signal(order.workflow_id, "paid", new.reference, key=new.reference, session=session)
        except WorkflowEnded as ended:
            raise HTTPException(409, str(ended)) from None
        return {"is_duplicate": receipt.is_duplicate}


@web.get("/orders/{order_id}")
def show_order(order_id: int) -> dict[str, Any]:
    """The shop's row and the state of its workflow."""
    with Session() as session:
        order = _order(session.get(Order, order_id))
        info = weft.describe(order.workflow_id)
        return {"sku": order.sku, "quantity": order.quantity, "status": info.status, "state": info.state}


@web.get("/orders/{order_id}/result")
def order_result(order_id: int, response: Response, wait_s: float = 0) -> Any:
    """What became of it; 202 while nothing has. No transaction is open while it waits."""
    with Session() as session:
        workflow_id = _order(session.get(Order, order_id)).workflow_id
    try:
        return weft.handle(workflow_id).result(timeout=min(wait_s, 30))
    except ResultTimeout:
        response.status_code = 202
        return {"status": "running"}
    except WorkflowNotCompleted as ending:
        raise HTTPException(409, ending.status) from None


def _order(found: Order | None) -> Order:
    if found is None:
        raise HTTPException(404, "no such order")
    return found
