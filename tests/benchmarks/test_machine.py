"""What makes a kind of machine."""

import pytest

from benchmarks.machine import kind, machine

HERE = {"processor": "A Processor (family 1, model 2)", "cores": 2, "system": "Linux x86_64", "memory_gb": 25}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"processor": "A Processor (family 1, model 3)"}, False),
        ({"cores": 4}, False),
        ({"system": "Linux aarch64"}, False),
        ({"memory_gb": 50}, True),
    ],
)
def test_processor_cores_and_system_make_a_kind_and_memory_does_not(changed: dict[str, str | int], same: bool) -> None:
    assert (kind(HERE | changed) == kind(HERE)) == same


def test_the_kind_of_this_machine_names_a_file() -> None:
    assert set(kind(machine())) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
