"""A laboratory for tests: a params.yaml in a folder of its own, and the pipeline's commands as real processes."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fut.config import TrialConfig
from pipeline.estimate import effort
from pipeline.store import Store
from pipeline.workspace import Workspace

VARY = {"train_seconds", "started", "seconds", "checksum"}  # times, and the record's digest with them
LIMIT = 300  # seconds that a sweep may take on the slowest machine before a test gives up on it
GONE_WITHIN = 30  # seconds
CPUS = len(os.sched_getaffinity(0))  # a trial that asks for all of them leaves no room for another beside it
SABOTAGE = Path(__file__).parent / "sabotage"
PARAMS = """
run: [first]
store: kept/store
cpus_per_trial: {cpus}
stalled_after: {stalled_after}
wandb: {{project: fut-tests, mode: {wandb}}}
studies:
  first: &first
    seeds: {seeds}
    base:
      task: {{name: khop, length: 8, train_size: 200, val_size: 50, test_size: 50}}
      backbone: {{kind: random, value_gain: 0.5}}
      components: residual+layernorm
      heads: 1
      layers: 1
      training: {{steps: 20, batch_size: 16, steps_per_epoch: 10, warmup_steps: 5}}
    grid: [{{width: {widths}}}, {more}]
  second:
    <<: *first
    grid: {{width: [8]}}
"""

Files = dict[str, tuple[int, bytes]]  # time of the last change, contents; by name


class Ended(NamedTuple):
    """A sweep that has ended, and what it left."""

    status: int
    output: str
    errors: str
    store: Store
    completion: dict[str, Any]  # empty where no sweep has written any yet
    files: Files  # of the store

    def records(self) -> set[str]:
        """The trials with a record when the sweep had ended."""
        return {Path(name).stem for name in self.files if name.startswith("trials/")}

    def kept(self, trials: set[str] | None = None) -> Files:
        """Record, program and card of some trials; None: of all that have a record."""
        wanted = self.records() if trials is None else trials
        return {
            name: file
            for name, file in self.files.items()
            if name.startswith(("trials/", "programs/")) and Path(name).stem in wanted
        }

    def missing(self) -> dict[str, str]:
        """The trials that the completion file calls missing, and why."""
        return {entry["trial"]: entry["reason"] for entry in self.completion["missing"]}


class Run:
    """A command that has been started; what it says is in files, or on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path, terminal: int | None) -> None:
        self.process, self.said, self.terminal = process, said, terminal

    @property
    def output(self) -> str:
        """What it has written to standard output so far."""
        return self.said.with_suffix(".out").read_text()

    @property
    def errors(self) -> str:
        """What it has written to standard error so far."""
        return self.said.with_suffix(".err").read_text()

    def send(self, number: signal.Signals, group: bool = False) -> None:
        """Send it a signal; `group`: also to the processes that it has started, as a terminal does."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, while it runs, for something to happen."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.output}\n{self.errors}"
            assert time.monotonic() < end, f"waited in vain for {what}:\n{self.output}\n{self.errors}"
            if self.terminal is not None and select.select([self.terminal], [], [], 0)[0]:
                os.read(self.terminal, 2**16)  # or it would wait for somebody to read
            time.sleep(0.05)

    def close_terminal(self) -> None:
        """Close the terminal that it was started on."""
        assert self.terminal is not None
        os.close(self.terminal)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        try:
            return self.process.wait(LIMIT)
        finally:
            if self.process.poll() is None:
                self.process.kill()


class Lab:
    """A params.yaml in a folder of its own, and commands that are started in another one."""

    def __init__(self, root: Path) -> None:
        self.root, self.params, self.elsewhere = root, root / "project" / "params.yaml", root / "elsewhere"
        self.sabotage = root / "sabotage"
        for folder in (self.params.parent, self.elsewhere, self.sabotage, root / "said"):
            folder.mkdir(parents=True)
        self.mark = uuid.uuid4().hex
        self.environment = {"OMP_NUM_THREADS": "1", "FUT_TEST_MARK": self.mark, "FUT_TESTS": str(os.getpid())}
        self.runs: list[Run] = []
        self.store_from_here: Store | None = None  # where the commands see a disk that this process does not

    def write(self, widths: list[int], **values: Any) -> None:
        """Write params.yaml."""
        usual = {"seeds": [0, 1, 2], "more": "", "cpus": CPUS, "stalled_after": 1_800, "wandb": "offline"}
        self.params.write_text(PARAMS.format(widths=widths, **(usual | values)))

    @property
    def workspace(self) -> Workspace:
        """What the sweeps work on."""
        return Workspace.open(self.params)

    @property
    def store(self) -> Store:
        """The trial store."""
        return self.store_from_here or self.workspace.store

    def trials(self, study: str = "first") -> list[TrialConfig]:
        """The trials of a study in the order in which a sweep starts them."""
        found = [trial for cell in self.workspace.params.cells(study) for trial in cell.trials]
        return sorted(found, key=lambda trial: (-effort(trial), trial.id))

    def spoil(self, plan: Mapping[str, str]) -> None:
        """Say what becomes of trials from now on, by id, in the words of sabotage/sitecustomize.py."""
        (self.sabotage / "plan.json").write_text(json.dumps(plan))
        for path in (*self.sabotage.glob("*.held"), self.sabotage / "go"):
            path.unlink(missing_ok=True)
        path = os.pathsep.join(filter(None, [str(SABOTAGE), os.environ.get("PYTHONPATH")]))
        self.environment |= {"PYTHONPATH": path, "FUT_SABOTAGE": str(self.sabotage)}

    def held(self) -> set[str]:
        """The trials that are being held in the middle of their training."""
        return {path.stem for path in self.sabotage.glob("*.held")}

    def release(self) -> None:
        """Let the held trials go on."""
        (self.sabotage / "go").touch()

    def started(self) -> list[tuple[str, str]]:
        """Process and trial of every start of a trial since `spoil` was first called, in order."""
        path = self.sabotage / "started"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(process, trial) for process, trial in map(str.split, lines)]

    def starts(self) -> Counter[str]:
        """How often each trial has been started since then."""
        return Counter(trial for _, trial in self.started())

    def command(self, module: str, *arguments: str) -> list[str]:
        """The command line of a module of the pipeline."""
        return [sys.executable, "-m", module, *arguments, "--params", str(self.params)]

    def start(self, *command: str, folder: Path | None = None, terminal: bool = False, **environment: str) -> Run:
        """Start a command in a session of its own, in another folder than the project's.

        Args:
            command: program and arguments.
            folder: start it there instead.
            terminal: whether it gets a terminal, which is then its own.
            environment: variables that it finds beside the usual ones.
        """
        others = ("WANDB", "RAY", "TUNE", "DVC", "FUT")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        said = self.root / "said" / str(len(self.runs))
        master, end = pty.openpty() if terminal else (None, None)
        with said.with_suffix(".out").open("w") as output, said.with_suffix(".err").open("w") as errors:
            process = subprocess.Popen(
                ["setsid", "--ctty", *command] if terminal else command,
                cwd=folder or self.elsewhere,
                env={**inherited, **self.environment, **environment},
                start_new_session=not terminal,  # setsid makes one
                stdin=subprocess.DEVNULL if end is None else end,
                stdout=output if end is None else end,
                stderr=errors if end is None else end,
            )
        if end is not None:
            os.close(end)
        self.runs.append(Run(process, said, master))
        return self.runs[-1]

    def sweep(
        self,
        study: str = "first",
        meanwhile: Callable[[Run], None] = lambda run: None,
        before: tuple[str, ...] = (),
        **how: Any,
    ) -> Ended:
        """Run a sweep to its end, and look at what it left.

        Args:
            study: what to sweep.
            meanwhile: called as soon as it has been started.
            before: words that come before the command.
            how: see `start`.
        """
        run = self.start(*before, *self.command("pipeline.sweep", study), **how)
        try:
            meanwhile(run)
        except BaseException:
            run.process.kill()
            raise
        run.wait()
        return self.ended(run, study)

    def ended(self, run: Run, study: str = "first") -> Ended:
        """What a sweep left that has ended."""
        return self.look(run.process.returncode, run.output, run.errors, study)

    def look(self, status: int, output: str, errors: str, study: str = "first") -> Ended:
        """What there is now."""
        path = self.workspace.sweep(study)
        completion = json.loads(path.read_text()) if path.exists() else {}
        return Ended(status, output, errors, self.store, completion, files_of(self.store.path))

    def processes(self) -> dict[int, str]:
        """The processes that are left of all commands so far, with their command lines.

        All inherit the mark; some of Ray's overwrite their environment with their name, but stay in the session.
        """
        sessions, found = {run.process.pid for run in self.runs}, dict[int, str]()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                marked = f"FUT_TEST_MARK={self.mark}".encode() in (folder / "environ").read_bytes()
                state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state not in "ZX" and (marked or int(session) in sessions):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
        return found

    def left_over(self) -> list[str]:
        """The processes that are still left some time after a command's end."""
        end = time.monotonic() + GONE_WITHIN
        while found := list(self.processes().values()):
            if time.monotonic() > end:
                break
            time.sleep(0.2)
        return found

    def close(self) -> None:
        """End what is left of all commands, such as the trials that a failed test still holds."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def files_of(folder: Path) -> Files:
    """All files in and below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def steady(value: Any) -> Any:
    """A record without what may differ between two runs of a trial."""
    if isinstance(value, dict):
        return {name: steady(inner) for name, inner in value.items() if name not in VARY}
    return [steady(inner) for inner in value] if isinstance(value, list) else value
