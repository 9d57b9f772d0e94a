"""The tasks, by name.  A new task is one file beside these and one entry here."""

from typing import Annotated

from pydantic import Field

from fut.tasks.base import Task
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.tasks.simulate import Simulate

TASKS: dict[str, type[Task]] = {"dyck": Dyck, "khop": Khop, "simulate": Simulate}
AnyTask = Annotated[Dyck | Khop | Simulate, Field(discriminator="name")]
