"""Tables: what is written is what is loaded, whatever the values; what does not fit is refused."""

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import analysis
from analysis import dictionary, schema
from analysis.schema import TableError

FAILURE = {
    "study": "width",
    "cell": "c",
    "trial": "t",
    "reason": "failed",
    "error": "None",
    "traceback": None,
    "when": None,
    "config": None,
}


def test_text_labels_survive_and_types_follow_the_schema(trial, tmp_path: Path) -> None:
    labels = ["None", "null", "NA", "nan", "", "0012"]
    rows = [trial(cell=label, host=label, control=label) for label in labels]
    schema.write(schema.to_table("trials", rows), tmp_path)
    frame = analysis.load("trials", tmp_path)
    assert frame["cell"].tolist() == frame["control"].tolist() == labels
    assert frame["hops"].dtype == "Int64" and frame["target_dim"].isna().all()  # a column of nulls keeps its type
    kinds = {name: str(frame[name].dtype) for name in ("width", "tied", "test_accuracy")}
    assert kinds == {"width": "int64", "tied": "bool", "test_accuracy": "float64"}
    assert frame["schema_version"].eq(schema.SCHEMA_VERSION).all()
    assert [str(frame[name].dtype) for name in ("study", "layout")] == ["str", "str"]


def test_an_empty_table_has_the_same_types(trial, tmp_path: Path) -> None:
    schema.write(schema.to_table("trials", []), tmp_path)
    full = schema.to_frame(schema.to_table("trials", [trial()]))
    assert analysis.load("trials", tmp_path).dtypes.to_dict() == full.dtypes.to_dict()


def test_csv_beside_parquet_holds_the_same_values(trial, tmp_path: Path) -> None:
    schema.write(schema.to_table("trials", [trial(seed=3, test_accuracy=0.1 + 0.2, cell="NA")]), tmp_path)
    frame = pd.read_csv(tmp_path / "trials.csv", keep_default_na=False)
    assert frame.loc[0, ["seed", "cell", "target_dim"]].tolist() == [3, "NA", ""]
    assert frame.loc[0, "test_accuracy"] == 0.1 + 0.2  # no digit lost
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trials.csv", "trials.parquet"]  # nothing half-written


def test_frame_to_rows_and_back(trial) -> None:
    table = schema.to_table("trials", [trial(), trial(task="dyck", hops=None, test_accuracy=None, val_nmse=math.inf)])
    rows = schema.to_rows(schema.to_frame(table).drop(columns="schema_version"))
    assert rows[1]["hops"] is None and rows[1]["test_accuracy"] is None
    assert schema.to_table("trials", rows).equals(table)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"extra": 1}, "extra"),
        ({"error": None}, "error"),
        ({"trial": 3}, "trial"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, named: str) -> None:
    with pytest.raises(TableError, match=named):
        schema.to_table("failures", [FAILURE | change])


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(TableError, match="reason"):
        schema.to_table("failures", [{name: value for name, value in FAILURE.items() if name != "reason"}])


def test_a_fraction_is_no_whole_number(trial) -> None:
    with pytest.raises(TableError, match="width"):
        schema.to_table("trials", [trial(width=16.5)])


def test_a_missing_table_names_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="dvc repro tables"):
        analysis.load("trials", tmp_path)
    with pytest.raises(TableError, match="trials, epochs, curves, failures"):
        analysis.load("trails", tmp_path)


def test_another_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    table = schema.to_table("failures", [FAILURE])
    pq.write_table(table.replace_schema_metadata({"schema_version": "0"}), tmp_path / "failures.parquet")
    with pytest.raises(TableError, match=r"version 0.*dvc repro --force tables"):
        analysis.load("failures", tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "failures.parquet")
    with pytest.raises(TableError, match="version none"):
        analysis.load("failures", tmp_path)
    pq.write_table(table.drop(["error"]), tmp_path / "failures.parquet")
    with pytest.raises(TableError, match="other columns"):
        analysis.load("failures", tmp_path)
    (tmp_path / "failures.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(TableError, match="cannot be read"):
        analysis.load("failures", tmp_path)


def test_every_field_is_described() -> None:
    for name, table in schema.TABLES.items():
        for field in table:
            assert field.metadata[b"description"], f"{name}.{field.name}"
            assert b"unit" in field.metadata, f"{name}.{field.name}"
        assert len(set(table.names)) == len(table.names)


def test_parquet_carries_the_descriptions(tmp_path: Path) -> None:
    schema.write(schema.to_table("failures", [FAILURE]), tmp_path)
    field = pq.read_schema(tmp_path / "failures.parquet").field("reason")
    assert field.metadata[b"description"].startswith(b"failed: ")


def test_the_data_dictionary_is_up_to_date() -> None:
    assert dictionary.PATH.read_text(encoding="utf-8") == dictionary.text(), "run python -m analysis.dictionary"
