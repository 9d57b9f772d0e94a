"""The tables: their fixed schemas, how rows become a table, and how a table is loaded.

Every field says what it holds and in which unit; `docs/tables.md` is written from these schemas.  Parquet is the source
of truth, the CSV files beside it are copies for reading.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA_VERSION = 2
FOLDER = "results/tables"

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


class TableError(ValueError):
    """A table that is missing, unreadable, of another version, or rows that do not fit the schema."""


def _required(name: str, kind: pa.DataType, unit: str, description: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"description": description, "unit": unit})


def _optional(name: str, kind: pa.DataType, unit: str, description: str) -> pa.Field:
    return pa.field(name, kind, nullable=True, metadata={"description": description, "unit": unit})


_VERSION = _required("schema_version", _INT, "", "version of this schema")
_STUDY = _required("study", _TEXT, "", "name of the study in params.yaml")
_CELL = _required("cell", _TEXT, "", "name of the cell: one grid point without its seeds and learning rates")
_CURVE = _required("curve", _TEXT, "", "name of the curve: the cells whose configurations differ only in width")

_TASK = [
    _required("task", _TEXT, "", "name of the task"),
    _optional("hops", _INT, "hops", "khop: hops k from a position to its answer"),
    _optional("alphabet", _INT, "tokens", "khop: number of different tokens"),
    _optional("length", _INT, "positions", "khop: tokens in a sequence; simulate: vectors in a sequence"),
    _optional("min_length", _INT, "characters", "dyck: shortest string"),
    _optional("max_length", _INT, "characters", "dyck: longest string"),
    _optional("target_dim", _INT, "dimensions", "simulate: embedding dimension d of the target"),
    _optional("target_qk_dim", _INT, "dimensions", "simulate: columns k of the target's W_Q and W_K"),
    _optional("target_qk_gain", _REAL, "1", "simulate: factor on the target's W_Q and W_K"),
    _required("out_dim", _INT, "dimensions", "columns p of the unembedding: classes, or coordinates of the output"),
    _required("task_parameters", _TEXT, "JSON", "all parameters of the task, with sizes of splits and data seed"),
]
_BACKBONE = [
    _required("method", _TEXT, "", "how the program was found: learned or compiled"),
    _required(
        "backbone", _TEXT, "", "kind of backbone: sparse, random, control, pretrained, or trained (nothing frozen)"
    ),
    _optional("control", _TEXT, "", "control: what keeps it from being universal"),
    _optional("source_task", _TEXT, "", "pretrained backbones: task that their frozen weights were trained for"),
    _optional(
        "source", _TEXT, "JSON", "pretrained backbones: what the trial that their weights come from has of its own"
    ),
    _optional("distribution", _TEXT, "", "drawn backbones: distribution of the entries"),
    _optional("layout", _TEXT, "", "sparse backbones: layout of the path tree: attention, residual or tied"),
    _optional("values", _TEXT, "", "drawn backbones: value matrices of a head: standard (rank m / H) or full (m × m)"),
    _required("heads", _INT, "heads", "heads H of a layer, shared by backbone and target"),
    _required("layers", _INT, "layers", "layers L, shared by backbone and target"),
    _required("width", _INT, "dimensions", "embedding dimension m of the backbone"),
    _required("qk_dim", _INT, "dimensions", "columns of W_Q and W_K of one head of the backbone"),
    _optional("leaf_dim", _INT, "dimensions", "sparse backbones: output slots of a leaf of the path tree"),
    _required("components", _TEXT, "", "components switched on: attention (none), or some joined by +"),
    _required("residual", _FLAG, "", "whether residual connections are on"),
    _required("layernorm", _FLAG, "", "whether LayerNorm (without affine parameters) is on"),
    _required("mlp", _FLAG, "", "whether the blocks have an MLP"),
    _required("tied", _FLAG, "", "whether all layers share one set of backbone weights"),
    _optional("qk_gain", _REAL, "1", "drawn backbones: factor on the draws of W_Q and W_K"),
    _optional("value_gain", _REAL, "1", "drawn backbones: factor on the draws of the values' output projection"),
    _optional("mlp_gain", _REAL, "1", "factor on the draws of the MLP's second matrix"),
    _required(
        "trainable", _TEXT, "", "what is trained, or compiled: program (E and U), embedding, unembedding, or all"
    ),
    _optional("init", _TEXT, "", "what training started from: random or compiled; null: nothing was trained"),
    _optional(
        "init_noise",
        _REAL,
        "1",
        "compiled starts: sd of the noise on each matrix of the program, over the matrix's root mean square",
    ),
]
_TRAINING = [
    _optional("training_steps", _INT, "steps", "most optimiser steps; like the next four, null: nothing was trained"),
    _optional("batch_size", _INT, "sequences", "sequences a step"),
    _optional("steps_per_epoch", _INT, "steps", "steps between two evaluations: one epoch"),
    _optional("warmup_steps", _INT, "steps", "steps of linear warm-up"),
    _optional("weight_decay", _REAL, "1", "weight decay of AdamW"),
    _optional("solved_at", _REAL, "1", "validation metric of the early stop; null: the task's own bound"),
]
_WIDTHS = [
    _optional(
        "sufficient_width",
        _INT,
        "dimensions",
        "simulate: N, enough for every target when the unembedding is fixed; sufficient, not necessary",
    ),
    _optional(
        "sufficient_width_compiled",
        _INT,
        "dimensions",
        "simulate: N_EU, enough for every target when the unembedding is compiled too; not necessary",
    ),
]
_CRITERION = [
    _required("criterion_metric", _TEXT, "", "metric of the criterion: test_accuracy (at least) or nmse (at most)"),
    _required("criterion_value", _REAL, "1", "value of the criterion"),
]
_REFERENCES = [
    _optional("reference_majority", _REAL, "share", "test accuracy of the most frequent answer"),
    _optional("reference_counting", _REAL, "share", "dyck: test accuracy of the best rule that only counts"),
    _optional("reference_one_token", _REAL, "share", "khop: test accuracy of the best rule given the last token"),
    _optional("reference_two_tokens", _REAL, "share", "khop: test accuracy of the best rule given the last 2 tokens"),
    _optional("reference_three_tokens", _REAL, "share", "khop: test accuracy of the best rule given the last 3 tokens"),
    _required("references", _TEXT, "JSON", "all reference accuracies of the task, by name"),
]
_PARAMETERS = [
    _required("trainable_parameters", _INT, "numbers", "trained numbers"),
    _required("frozen_parameters", _INT, "numbers", "frozen numbers of the backbone"),
]

# What makes a cell: the columns that its trials share, apart from the study's criterion.
CELL_FIELDS = [_STUDY, _CELL, _CURVE, *_TASK, *_BACKBONE, *_TRAINING]

TRIALS = pa.schema(
    [
        _VERSION,
        _required("trial", _TEXT, "SHA-256", "name of the trial: digest of its configuration, recipes and code"),
        *CELL_FIELDS,
        _optional("learning_rate", _REAL, "1", "highest learning rate of the schedule; null: nothing was trained"),
        _required("seed", _INT, "", "seed of the backbone draw, the program's initial values, the batches, the target"),
        *_WIDTHS,
        *_CRITERION,
        _optional("val_accuracy", _REAL, "share", "accuracy on validation; null: another metric, or diverged"),
        _optional("test_accuracy", _REAL, "share", "accuracy on test; null: another metric, or diverged"),
        _optional("val_nmse", _REAL, "1", "mean squared error over the targets' variance, on validation"),
        _optional("nmse", _REAL, "1", "mean squared error over the targets' variance, on test"),
        _optional(
            "agreement", _REAL, "share", "simulate: share of test outputs with the target's argmax; null for p = 1"
        ),
        *_REFERENCES,
        _required("steps", _INT, "steps", "optimiser steps taken"),
        _required("epochs", _INT, "epochs", "evaluations made"),
        _required(
            "stop_reason", _TEXT, "", "why training ended: budget, solved or diverged; compiled: nothing was trained"
        ),
        _required("stop_detail", _TEXT, "", "the reason in words"),
        _required("train_seconds", _REAL, "s", "wall time of training or compiling, evaluations included"),
        _optional("margin", _REAL, "1", "compiled programs and starts: universality margin of the backbone; 0: none"),
        _optional("condition_number", _REAL, "1", "compiled programs and starts: of the linear system; null: infinite"),
        _optional(
            "relative_error",
            _REAL,
            "1",
            "compiled programs and starts: of the outputs on fresh inputs, before any noise, in float64",
        ),
        *_PARAMETERS,
        _required("dataset_id", _TEXT, "", "name of the dataset: digest of its recipe and code"),
        _required("backbone_id", _TEXT, "", "name of the backbone: digest of its recipe"),
        _optional("source_trial", _TEXT, "SHA-256", "pretrained backbones: the trial that their weights come from"),
        _required("data_digest", _TEXT, "SHA-256", "digest of the dataset's arrays"),
        _required("backbone_digest", _TEXT, "SHA-256", "digest of the backbone's tensors"),
        _required("code_digest", _TEXT, "SHA-256", "digest of the code that determines the trial"),
        _optional("program_digest", _TEXT, "SHA-256", "digest of the saved program; null: none was saved"),
        _required("python_version", _TEXT, "", "version of Python"),
        _required("torch_version", _TEXT, "", "version of torch"),
        _required("lightning_version", _TEXT, "", "version of pytorch-lightning"),
        _required("numpy_version", _TEXT, "", "version of NumPy"),
        _required("fut_version", _TEXT, "", "version of fut"),
        _required("host", _TEXT, "", "name of the machine"),
        _required("platform", _TEXT, "", "operating system and processor"),
        _required("threads", _INT, "threads", "threads of torch"),
        _required("accelerator", _TEXT, "", "what trained: cpu, or the kind of accelerator"),
        _required("started", _TEXT, "ISO 8601, UTC", "when the trial started"),
    ]
)

EPOCHS = pa.schema(
    [
        _VERSION,
        _required("trial", _TEXT, "SHA-256", "name of the trial; a trial that serves several studies stands here once"),
        _required("epoch", _INT, "epochs", "number of the evaluation, from 1"),
        _required("step", _INT, "steps", "optimiser steps taken until then"),
        _optional("learning_rate", _REAL, "1", "learning rate at that step"),
        _optional("train_loss", _REAL, "nat or squared error", "mean training loss over the epoch; null: not finite"),
        _optional("val_loss", _REAL, "nat or squared error", "loss on validation; null: not finite"),
        _optional("val_accuracy", _REAL, "share", "accuracy on validation"),
        _optional("val_nmse", _REAL, "1", "mean squared error over the targets' variance, on validation"),
        _optional("seconds", _REAL, "s", "wall time since training began"),
    ]
)

CURVES = pa.schema(
    [
        _VERSION,
        *CELL_FIELDS,
        *_WIDTHS,
        *_CRITERION,
        _optional(
            "learning_rate",
            _REAL,
            "1",
            "the learning rate chosen: best mean validation metric over seeds; null: nothing was trained",
        ),
        _required("learning_rates", _TEXT, "", "the learning rates tried, smallest first, separated by spaces"),
        _optional("val_mean", _REAL, "share or 1", "mean validation metric over seeds at the chosen learning rate"),
        _required("n", _INT, "seeds", "seeds with a test metric at the chosen learning rate, of mean and interval"),
        _required("seeds", _TEXT, "", "those seeds, separated by spaces"),
        _optional("mean", _REAL, "share or 1", "mean test metric (criterion_metric) over those seeds; null: n = 0"),
        _optional("sd", _REAL, "share or 1", "sample standard deviation over those seeds; null: n < 2"),
        _optional("lower", _REAL, "share or 1", "lower bound of the interval of the mean; null: n < 3"),
        _optional("upper", _REAL, "share or 1", "upper bound of the interval of the mean; null: n < 3"),
        _required("interval", _TEXT, "", "name of the interval: over seeds (backbone draw and descent), not over data"),
        _required("n_diverged", _INT, "trials", "trials of the chosen learning rate that diverged"),
        _required("n_missing", _INT, "trials", "expected trials of the cell without a record, at any learning rate"),
        _required(
            "meets_criterion", _FLAG, "", "whether the mean meets the criterion and no trial lacks a test metric"
        ),
        _optional("agreement", _REAL, "share", "simulate: mean agreement over the same seeds"),
        *_REFERENCES,
        _optional("steps", _REAL, "steps", "mean optimiser steps at the chosen learning rate"),
        _required("n_trials", _INT, "trials", "trials of the cell, at all learning rates"),
        _required("train_seconds", _REAL, "s", "wall time of training or compiling, all trials of the cell together"),
        *_PARAMETERS,
    ]
)

FAILURES = pa.schema(
    [
        _VERSION,
        _STUDY,
        _CELL,
        _required("trial", _TEXT, "SHA-256", "name of the trial"),
        _required("reason", _TEXT, "", "failed: it ran and raised an error; missing: there is no record, and no error"),
        _required("error", _TEXT, "", "what went wrong, in a line"),
        _optional("traceback", _TEXT, "", "where it went wrong"),
        _optional("when", _TEXT, "ISO 8601, UTC", "when it failed"),
        _optional("config", _TEXT, "JSON", "the trial's configuration, where known"),
    ]
)

TRANSFER = pa.schema(
    [
        _VERSION,
        _required("task", _TEXT, "", "name of the task that the target was trained for"),
        _required("task_parameters", _TEXT, "JSON", "all parameters of the task, with sizes of splits and data seed"),
        _required("backbone", _TEXT, "", "kind of the backbone compiled into: sparse, random or control"),
        _optional("control", _TEXT, "", "control: what keeps it from being universal"),
        _optional("layout", _TEXT, "", "sparse backbones: layout of the path tree"),
        _optional("seed", _INT, "", "seed of the backbone; null: nothing is drawn. A task has one target"),
        _required("heads", _INT, "heads", "heads H of a layer, shared by backbone and target"),
        _required("layers", _INT, "layers", "layers L, shared by backbone and target"),
        _required("target_dim", _INT, "dimensions", "embedding dimension d of the target"),
        _required("qk_dim", _INT, "dimensions", "columns k of W_Q and W_K of one head, shared by both"),
        _required("out_dim", _INT, "dimensions", "columns p of the unembedding: the task's answers"),
        _required("residual", _FLAG, "", "whether residual connections are on, in both"),
        _required("width", _INT, "dimensions", "embedding dimension m of the backbone"),
        _required("sufficient_width", _INT, "dimensions", "N, the unembedding fixed; sufficient, not necessary"),
        _required("target_accuracy", _REAL, "share", "accuracy of the target on test"),
        _required("compiled_accuracy", _REAL, "share", "accuracy of the compiled program on test, in float64"),
        _required("agreement", _REAL, "share", "share of test answers that are the target's, in float64"),
        _required("constant_agreement", _REAL, "share", "agreement of the target's most frequent answer, always given"),
        _required("margin", _REAL, "1", "universality margin: smallest singular value of the conditions; 0: dependent"),
        _optional("condition_number", _REAL, "1", "largest singular value over the smallest; null: infinite"),
        _required("relative_error", _REAL, "1", "error of the outputs on fresh inputs, over the target's outputs"),
        _required("exact", _FLAG, "", "whether the outputs agree but for rounding: relative error at most 1e-8"),
        _required("target_digest", _TEXT, "SHA-256", "digest of the target's weights"),
        _required("backbone_digest", _TEXT, "SHA-256", "digest of the backbone's tensors"),
    ]
)

TABLES: dict[str, pa.Schema] = {
    name: schema.with_metadata({"schema_version": str(SCHEMA_VERSION), "table": name})
    for name, schema in {
        "trials": TRIALS,
        "epochs": EPOCHS,
        "curves": CURVES,
        "failures": FAILURES,
        "transfer": TRANSFER,
    }.items()
}
ABOUT = {
    "trials": "A row per study and trial: one training run. A trial that serves two studies has a row in each.",
    "epochs": "A row per trial and evaluation.",
    "curves": "A row per study and cell: the learning rate chosen on validation, and the test metric of that choice.",
    "failures": "A row per trial that failed, or that a study expects and the store does not hold.",
    "transfer": "A row per task, width, kind of backbone and seed: a trained target, compiled into a frozen backbone.",
}


def to_table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of the fixed schema; `schema_version` is filled in.

    Raises:
        TableError: a row with unknown or missing columns, a value of another type, or a null where none may stand.
    """
    schema = TABLES[name]
    filled = [{**row, "schema_version": SCHEMA_VERSION} for row in rows]
    for row in filled:
        if odd := row.keys() ^ set(schema.names):
            raise TableError(f"table {name}: columns {', '.join(sorted(odd))} are unknown or missing in a row")
    columns = []
    for field in schema:
        values = [row[field.name] for row in filled]
        # Arrow would cut the fraction off.
        if field.type == _INT and (wrong := [value for value in values if isinstance(value, float)]):
            raise TableError(f"table {name}, column {field.name}: {wrong[0]} is no whole number")
        try:
            column = pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(f"table {name}, column {field.name}: {error}") from error
        if column.null_count and not field.nullable:
            raise TableError(f"table {name}, column {field.name}: {column.null_count} values are missing")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a typed pandas frame, with types that depend on the schema alone.

    Text is `str`, real numbers are `float64` (null: NaN), whole numbers and flags are `int64` and `bool`, or `Int64`
    and `boolean` where the schema allows null.
    """
    frame: dict[str, Any] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.nullable and field.type in (_INT, _FLAG):
            kind = "Int64" if field.type == _INT else "boolean"
            frame[field.name] = pd.array(column.to_pylist(), dtype=kind)
        else:
            kind = {_TEXT: "str", _INT: "int64", _REAL: "float64", _FLAG: "bool"}[field.type]
            frame[field.name] = pd.Series(column.to_pylist(), dtype=kind)
    return pd.DataFrame(frame)


def to_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain Python values: null, NaN and NA become None."""
    columns = {name: [None if pd.isna(value) else value for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write(table: pa.Table, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a table as `<name>.parquet` and `<name>.csv` into a folder; each appears only when whole."""
    name = table.schema.metadata[b"table"].decode()
    paths = [Path(folder) / f"{name}.parquet", Path(folder) / f"{name}.csv"]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        part = path.with_name(f".{path.name}.part")
        if path.suffix == ".parquet":
            pq.write_table(table, part)
        else:
            to_frame(table).to_csv(part, index=False)
        os.replace(part, path)
    return paths


def load(name: str, folder: str | os.PathLike[str] = FOLDER) -> pd.DataFrame:
    """A table of results as a typed pandas frame (types: `to_frame`).

    Args:
        name: trials, epochs, curves, failures or transfer.
        folder: where the tables lie; by default, those of the current working directory.

    Raises:
        TableError: no such table, or one of another schema version; the message says what to run.
    """
    if name not in TABLES:
        raise TableError(f"no table {name!r}: choose one of {', '.join(TABLES)}")
    path = Path(folder) / f"{name}.parquet"
    if not path.is_file():
        raise TableError(f"{path} does not exist: run `dvc repro tables` to make it")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path} cannot be read ({error}): run `dvc repro --force tables` to make it again") from error
    version = (table.schema.metadata or {}).get(b"schema_version", b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise TableError(
            f"{path} has schema version {version}, this code reads version {SCHEMA_VERSION}: "
            "run `dvc repro --force tables` to make it again"
        )
    if table.schema != TABLES[name]:
        raise TableError(
            f"{path} has other columns than version {SCHEMA_VERSION} of its schema: "
            "run `dvc repro --force tables` to make it again"
        )
    return to_frame(table)
