"""The shop's own tables, in the database that also has the workflows."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "shop_items"
    __table_args__ = (CheckConstraint("in_stock >= 0", name="nothing_sold_twice"),)

    sku: Mapped[str] = mapped_column(primary_key=True)
    in_stock: Mapped[int]


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str]
    quantity: Mapped[int]

    @property
    def workflow_id(self) -> str:
        return f"webshop-{self.id}"


class Payment(Base):
    __tablename__ = "shop_payments"

    reference: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("shop_orders.id"))
