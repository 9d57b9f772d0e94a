"""How long and how a trial trains, as `params.yaml` states it."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Training(BaseModel):
    """How a trial is trained: AdamW with linear warm-up and a cosine to 5 % of the learning rate."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    steps: int = Field(2_000, ge=1, description="most optimiser steps")
    batch_size: int = Field(64, ge=1, description="sequences a step")
    steps_per_epoch: int = Field(100, ge=1, description="steps between two evaluations: one epoch")
    warmup_steps: int = Field(100, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    solved_at: float | None = Field(
        None,
        ge=0,
        description="early stop when validation is this good twice running; None: the task's own bound",
    )

    @model_validator(mode="after")
    def _whole_epochs(self) -> Self:
        if self.steps % self.steps_per_epoch:
            raise ValueError(f"steps: {self.steps} is not a multiple of steps_per_epoch, {self.steps_per_epoch}")
        if self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps: {self.warmup_steps} is more than steps, {self.steps}")
        return self
