"""Losses: what one observed entry costs, one class per file, found by name."""

from momentous.lowrank.losses.base import LOSSES, Loss, find_loss, register_loss, restore_loss
from momentous.lowrank.losses.implicit import Implicit
from momentous.lowrank.losses.logistic import Logistic
from momentous.lowrank.losses.squared import Squared

__all__ = [
    "LOSSES", "Implicit", "Logistic", "Loss", "Squared", "find_loss", "register_loss",
    "restore_loss",
]  # fmt: skip

for _loss in (Squared, Logistic, Implicit):
    register_loss(_loss)
