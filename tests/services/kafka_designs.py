"""The two designs that are not exactly once, which a notebook shows, too."""

from __future__ import annotations

from services.kafka import designs

__all__ = ["Died", "acknowledged", "beside"]

Died, acknowledged, beside = designs.Died, designs.acknowledged, designs.beside
