"""Where programs come from before anything trains, by name, other than from a draw.

A registry, so that only trials that start so depend on the code behind it.
"""

from collections.abc import Callable
from typing import Any

from fut.backbones.base import Backbone
from fut.config import TrialConfig
from fut.starts import compiled
from fut.transformer import Transformer

STARTS: dict[str, Callable[[TrialConfig, Backbone, Transformer], dict[str, Any]]] = {"compiled": compiled.start}
