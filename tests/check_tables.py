"""Check the tables and pictures of the tiny grid: `python tests/check_tables.py results/tables`.

The grid is that of tests/params/tiny.yaml.  Prints one line, or says what is wrong and ends with status 1.
"""

import sys
from pathlib import Path

import pandas as pd

import analysis
from fut.transfer import Transfer
from pipeline.params import load_params

GRID = Path(__file__).parent / "params" / "tiny.yaml"
KEYS = {
    "trials": ["trial", "study", "cell", "task", "backbone", "width", "seed", "method", "criterion_value",
               "data_digest", "backbone_digest", "code_digest", "program_digest", "stop_reason"],
    "epochs": ["trial", "epoch", "step", "val_loss"],
    "curves": ["study", "cell", "width", "n", "mean", "lower", "upper", "val_mean"],
    "failures": [],
    "transfer": ["task", "backbone", "width", "sufficient_width", "agreement", "margin", "target_digest"],
}  # fmt: skip


def expect(condition: bool, otherwise: str) -> None:
    """End the program unless a condition holds."""
    if not condition:
        raise SystemExit(f"check_tables: {otherwise}")


def check(folder: Path) -> str:
    """Compare the tables of a folder with the grid; returns what was found, in a line."""
    params = load_params(GRID)
    cells = {(study, cell.id): cell for study in params.run for cell in params.cells(study)}
    wanted = {(study, trial.id): trial for (study, _), cell in cells.items() for trial in cell.trials}
    tables = {name: analysis.load(name, folder) for name in KEYS}
    for name, keys in KEYS.items():
        table, copy = tables[name], pd.read_csv(folder / f"{name}.csv")
        expect(
            len(copy) == len(table) and list(copy.columns) == list(table.columns),
            f"{name}.csv is no copy of {name}.parquet: {copy.shape}, {table.shape} rows and columns",
        )
        for key in keys:
            expect(bool(table[key].notna().all()), f"{name}.{key} has empty fields")
            expect(bool(copy[key].notna().all()), f"{name}.csv: {key} has empty fields")
    trials, epochs, curves = tables["trials"], tables["epochs"], tables["curves"]
    expect(tables["failures"].empty, f"{len(tables['failures'])} failures: {list(tables['failures']['error'])[:3]}")

    found = list(zip(trials["study"], trials["trial"], strict=True))
    expect(
        len(found) == len(wanted) and set(found) == wanted.keys(),
        f"trials has {len(found)} rows, {len(set(found) & wanted.keys())} of them in the grid, which has {len(wanted)}",
    )
    for row in trials.itertuples():
        trial = wanted[row.study, row.trial]
        rate = None if pd.isna(row.learning_rate) else row.learning_rate
        same = (row.width, row.seed, row.heads, row.layers, row.method, rate) == (
            trial.width, trial.seed, trial.heads, trial.layers, trial.method, trial.learning_rate)  # fmt: skip
        expect(same, f"the row of trial {row.trial} shows another configuration")
        metric = getattr(row, row.criterion_metric)
        expect(pd.notna(metric) or row.stop_reason == "diverged", f"trial {row.trial} has no {row.criterion_metric}")

    points = list(zip(curves["study"], curves["cell"], strict=True))
    expect(
        len(points) == len(cells) and set(points) == cells.keys(),
        f"curves has {len(points)} rows, and the grid {len(cells)} cells",
    )
    expect(bool((curves["n"] == 3).all()), "a curve's point is not the mean of 3 seeds")
    distinct = trials.drop_duplicates("trial")
    expect(
        len(epochs) == distinct["epochs"].sum()
        and set(epochs["trial"]) == set(distinct["trial"][distinct["method"] == "learned"]),
        f"epochs has {len(epochs)} rows, and the trials have {distinct['epochs'].sum()} epochs",
    )
    check_compiled(trials)
    check_transfer(tables["transfer"], params.transfer)
    for study in [*params.run, "transfer"]:
        picture = folder.parent / "figures" / f"{study}.png"
        expect(picture.is_file() and picture.read_bytes()[:4] == b"\x89PNG", f"{picture} is no picture")
    return f"tables: {len(trials)} trials, {len(epochs)} epochs, {len(curves)} cells, no failures, as the grid says"


def check_compiled(trials: pd.DataFrame) -> None:
    """Compare compiled programs with theory, and see that every learned cell of the study has one beside it."""
    compiled = trials[trials["method"] == "compiled"]
    enough = compiled["width"] >= compiled["sufficient_width_compiled"]
    expect(bool(((compiled["nmse"] < 1e-12) == enough).all()), "programs are exact elsewhere than theory says")
    scratch = trials[(trials["task"] == "simulate") & (trials["init"] == "random")]
    places = [set(zip(rows["heads"], rows["width"], rows["seed"], strict=True)) for rows in (compiled, scratch)]
    expect(places[0] == places[1] != set(), "learned and compiled cells are not the same")
    sources = trials.loc[trials["backbone"] == "pretrained", "source_trial"]
    expect(len(sources) > 0 and set(sources) <= set(trials["trial"]), "a pretrained backbone has no source here")


def check_transfer(rows: pd.DataFrame, config: Transfer) -> None:
    """Compare the rows of the transfer with its configuration, and with theory."""
    points = len(config.tasks) * len(config.times_sufficient)
    expect(len(rows) == points * (1 + 3 * len(config.seeds)), f"transfer has {len(rows)} rows")
    universal = (rows["backbone"] != "control") & (rows["width"] >= rows["sufficient_width"])
    expect(bool((rows["exact"] == universal).all()), "transfer is exact elsewhere than theory says")
    expect(bool((rows.loc[universal, "agreement"] == 1).all()), "an exact program answers otherwise than its target")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python tests/check_tables.py FOLDER")
    try:
        print(check(Path(sys.argv[1])))
    except (analysis.TableError, OSError) as error:
        raise SystemExit(f"check_tables: {error}") from error
