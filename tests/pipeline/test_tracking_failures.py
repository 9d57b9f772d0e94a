"""W&B away, refusing, dying or out of disk: the trial goes on, and says what happened in one line."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import wandb

import pipeline.tracking
from fut.config import TrialConfig
from pipeline.params import load_params
from pipeline.tracking import TrackedRun, Tracking, tracked

KEY = "k" * 40
RECORD = {"result": {"test_accuracy": 0.75}, "references": {"reference_majority": 0.25}}
BUCKET = {"id": "b", "name": "r", "project": {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}}
WELL, SILENT, AWAY = 200, 0, -1  # beside HTTP's own, what a server answers with


class Server(ThreadingHTTPServer):
    """A server of W&B on loopback, as small as can be."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.status, self.bodies = WELL, b""
        self.over = threading.Event()

    def handle_error(self, *request: Any) -> None: ...  # of a client that did not wait

    def answer_with(self, status: int) -> None:
        """Answer so from here on."""
        self.status = status
        if status == AWAY:
            self.shutdown()
            self.server_close()


class Answer(BaseHTTPRequestHandler):
    """Answers one request of W&B."""

    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.bodies += body
        if self.server.status == SILENT:
            self.server.over.wait()
        data: dict[str, Any] = {}
        if b"mutation UpsertBucket" in body:
            data = {"upsertBucket": {"bucket": BUCKET, "inserted": True}}
        if b"mutation CreateRunFiles" in body:
            names = json.loads(body)["variables"]["files"]
            files = [{"name": name, "uploadUrl": f"{self.server.address}/{name}"} for name in names]
            data = {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        well = self.server.status == WELL
        answer = json.dumps({"data": data} if well else {"errors": [{"message": "not you"}]}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers as it should until a test changes its status."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def afresh(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not met W&B yet, with a key for the server, and nothing of the machine's owner."""
    wandb.teardown()  # first: it takes WANDB_SERVICE away for good, where `monkeypatch` would bring it back
    for name in os.environ:
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    for name, value in {
        "WANDB_BASE_URL": server.address, "WANDB_API_KEY": KEY, "WANDB_ERROR_REPORTING": "false",
        "HOME": str(tmp_path / "home"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(TrackedRun, "fallen", None)
    yield
    wandb.teardown()


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes in which runs were started, in order."""
    modes, init = [], wandb.init

    def spy(**options: Any) -> wandb.Run:
        modes.append(options["mode"])
        return init(**options)

    monkeypatch.setattr(wandb, "init", spy)
    return modes


@pytest.fixture
def trial(tiny: Path) -> TrialConfig:
    """A small trial."""
    return load_params(tiny).cells("tiny")[0].trials[0]


@pytest.fixture
def online(tmp_path: Path) -> Tracking:
    """Online, in a folder that is not there yet."""
    return Tracking("laboratory", "online", tmp_path / "runs")


def row(number: int) -> dict[str, Any]:
    """A row of an epoch, with a loss that is found again in a file."""
    return {
        "epoch": number, "step": 10 * number, "learning_rate": 0.01, "train_loss": number + 0.12345, "val_loss": 1.5,
        "val_accuracy": 0.5, "val_nmse": None, "seconds": 0.1,
    }  # fmt: skip


def log_a_trial(trial: TrialConfig, tracking: Tracking) -> str | None:
    """What a worker does, and the problem that is left of it."""
    with tracked(trial, "tiny", tracking) as run:
        run.log_epoch(row(1))
        run.log_epoch(row(2))
        run.summarise(RECORD)
    return run.problem


def logged(tracking: Tracking, pattern: str) -> list[bool]:
    """Whether the runs of a folder hold both epochs, run by run."""
    wandb.teardown()  # closes the files
    files = [path.read_bytes() for path in sorted(tracking.folder.glob(f"wandb/{pattern}/*.wandb"))]
    return [b"1.12345" in data and b"2.12345" in data for data in files]


def cores(process: int | None = None) -> list[psutil.Process]:
    """W&B's own processes below a process."""
    return [child for child in psutil.Process(process).children(recursive=True) if child.name() == "wandb-core"]


def test_an_online_run_that_works_has_no_problem(trial: TrialConfig, online: Tracking, server: Server) -> None:
    assert log_a_trial(trial, online) is None
    assert b"1.12345" in server.bodies and b"2.12345" in server.bodies and b"reference_majority" in server.bodies


@pytest.mark.parametrize(
    ("status", "seconds", "reason"),
    [(SILENT, 1, "deadline exceeded"), (500, 3, "HTTP 500"), (401, 20, "not you"), (AWAY, 1, "connection refused")],
    ids=["never answers", "fails", "refuses the key", "is away"],
)
def test_a_trial_goes_offline_with_its_process_if_the_server(
    status: int, seconds: float, reason: str, trial: TrialConfig, online: Tracking, server: Server,
    modes: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(pipeline.tracking, "START_SECONDS", seconds)
    server.answer_with(status)
    problem = log_a_trial(trial, online)
    assert problem and problem.startswith("W&B: CommError: ") and "\n" not in problem
    for part in (reason, "key", "address", "network", "WANDB_MODE=offline", "wandb sync", str(online.folder), "store"):
        assert part in problem
    asked = server.bodies
    assert log_a_trial(trial, online) == problem
    assert modes == ["online", "offline", "offline"] and server.bodies == asked
    assert logged(online, "offline-run-*") == [True, True]


def test_a_key_that_cannot_be_one_takes_the_trial_offline_unasked(
    trial: TrialConfig, online: Tracking, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "short")
    problem = log_a_trial(trial, online)
    assert problem and "WANDB_API_KEY invalid" in problem and "short" not in problem
    assert logged(online, "offline-run-*") == [True] and not server.bodies


@pytest.mark.parametrize(
    ("status", "seconds", "reason"),
    [(SILENT, 1, "Timed out finishing run"), (401, 20, "Fatal error while uploading")],
    ids=["silent", "refusing"],
)
def test_a_server_that_is_lost_in_mid_trial_costs_no_row(
    status: int, seconds: float, reason: str, trial: TrialConfig, online: Tracking, server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(pipeline.tracking, "FINISH_SECONDS", seconds)
    with tracked(trial, "tiny", online) as run:
        run.log_epoch(row(1))
        server.answer_with(status)
        run.log_epoch(row(2))
        run.summarise(RECORD)
    assert run.problem and reason in run.problem and "wandb sync" in run.problem
    assert bool(TrackedRun.fallen) is (status == SILENT)  # which would cost every trial a wait; a refusal costs none
    assert logged(online, "run-*") == [True]


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_a_trial_outlives_the_process_of_wandb_and_the_next_one_has_a_new_one(
    mode: str, trial: TrialConfig, tmp_path: Path, modes: list[str]
) -> None:
    tracking = Tracking("laboratory", mode, tmp_path / "runs")
    with tracked(trial, "tiny", tracking) as run:
        run.log_epoch(row(1))
        (core,) = cores()
        core.kill()
        core.wait()
        for number in range(2, 9):
            run.log_epoch(row(number))
        run.summarise(RECORD)
    assert run.problem and run.problem.startswith("W&B: ") and "store" in run.problem
    log_a_trial(trial, tracking)
    assert modes == [mode, "offline"] and sorted(logged(tracking, "offline-run-*"))[-1]


def test_a_folder_that_cannot_be_made_means_no_run_anywhere(
    trial: TrialConfig, tmp_path: Path, modes: list[str]
) -> None:
    (tmp_path / "file").touch()
    problem = log_a_trial(trial, Tracking("laboratory", "online", tmp_path / "file" / "runs"))
    assert problem and "NotADirectoryError" in problem and "not logged" in problem and "writable" in problem
    assert modes == [] and TrackedRun.fallen is None  # not elsewhere, and the server is not to blame


def test_a_disabled_run_leaves_no_trace(trial: TrialConfig, tmp_path: Path, modes: list[str]) -> None:
    assert log_a_trial(trial, Tracking("laboratory", "disabled", tmp_path / "runs")) is None
    assert modes == [] and not (tmp_path / "runs").exists() and not cores()


def test_a_home_without_room_for_wandb_does_not_matter(
    trial: TrialConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/dev/null/nobody")
    tracking = Tracking("laboratory", "offline", tmp_path / "runs")
    assert log_a_trial(trial, tracking) is None
    assert logged(tracking, "offline-run-*") == [True]


class BrokenRun:
    """In the place of a run of W&B: raises where it is told to."""

    def __init__(self, broken: str, error: type[BaseException]) -> None:
        self.broken, self.error, self.calls = broken, error, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            self.calls.append(name)
            if name == self.broken:
                raise self.error("away")

        return SimpleNamespace(update=lambda values: call()) if name == "summary" else call


@pytest.fixture
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BrokenRun:
    """A run that raises in a call, instead of W&B's; its process ends badly too."""
    run = BrokenRun(*request.param)

    def leave(**options: Any) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(wandb, "setup", lambda settings: SimpleNamespace(settings=settings))
    monkeypatch.setattr(wandb, "init", lambda **options: run)
    monkeypatch.setattr(wandb, "teardown", leave)
    yield run
    monkeypatch.undo()


CALLS = ["define_metric", "log", "summary", "finish"]


@pytest.mark.parametrize("own", [None, ZeroDivisionError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("broken", [(call, RuntimeError) for call in CALLS], ids=CALLS, indirect=True)
def test_only_the_trials_own_exceptions_get_through(
    broken: BrokenRun, own: type[BaseException] | None, trial: TrialConfig, tmp_path: Path
) -> None:
    caught: type[BaseException] | None = None
    try:
        with tracked(trial, "tiny", Tracking("laboratory", "offline", tmp_path)) as run:
            run.log_epoch(row(1))
            run.summarise(RECORD)
            if own:
                raise own
    except BaseException as error:
        caught = type(error)
    assert caught is own
    assert run.problem and run.problem.startswith("W&B: RuntimeError: away; this trial is not logged there")
    assert broken.calls[-1] == broken.broken  # and nothing is asked of it any more


@pytest.mark.parametrize("broken", [(call, KeyboardInterrupt) for call in CALLS], ids=CALLS, indirect=True)
def test_ctrl_c_gets_through_from_inside_wandb(broken: BrokenRun, trial: TrialConfig, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        log_a_trial(trial, Tracking("laboratory", "offline", tmp_path))


def test_a_key_is_never_asked_for_even_on_a_terminal(
    trial: TrialConfig, online: Tracking, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(wandb.errors.term, f"_sys_{stream}_isatty", lambda: True)  # made to be patched
    problem = log_a_trial(trial, online)  # asking would fail, in other words, on the standard input of a test
    assert problem and "UsageError: No API key configured" in problem
    assert logged(online, "offline-run-*") == [True] and not server.bodies


WORKER = """
import logging, os, subprocess, sys
from pathlib import Path
from types import SimpleNamespace

sys.modules["fut.config"] = SimpleNamespace(TrialConfig=object)  # PyTorch takes seconds, and logging needs none of it
sys.modules["fut.training"] = SimpleNamespace(Epoch=dict)
import wandb
import pipeline.tracking
from pipeline.tracking import TrackedRun, Tracking

pipeline.tracking.FINISH_SECONDS = 1
"""


def worker(script: str, *before: str) -> "subprocess.Popen[str]":
    """A worker in a process of its own, started by the words `before`."""
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen([*before, sys.executable, "-c", WORKER + script], text=True, **pipes)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit()"])
def test_no_process_of_wandb_outlives_a_worker_even_if_the_server_hangs(
    end: str, online: Tracking, server: Server
) -> None:
    script = f"""
run = TrackedRun(Tracking("laboratory", "online", Path("{online.folder}")))
print(run.problem, flush=True)
input()
run.log_epoch({{"epoch": 1}})
{end}
"""
    with worker(script) as process:
        assert process.stdout and process.stdout.readline() == "None\n"
        left = cores(process.pid)
        server.answer_with(SILENT)
        process.communicate("\n", timeout=60)
    assert left and not psutil.wait_procs(left, timeout=30)[1]


FULL = """
folder = Path(os.getcwd())

def start():
    return TrackedRun(Tracking("laboratory", "offline", folder))

def end(run):
    for number in range(300):
        run.log_epoch({"epoch": number, "train_loss": 1.5})
    run.finish(0)
    print(run.problem)

run = start()
with (folder / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
logging.getLogger("wandb").info("its diary, " * 1000)
end(run)
end(start())
(folder / "filler").unlink()
end(start())
wandb.teardown()  # closes the files
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
end(start())
"""


def test_a_full_disk_and_a_read_only_one_are_said_quietly(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=3m tmpfs {tmp_path} && cd {tmp_path} && exec "$@"'
    inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    said, noise = worker(FULL, *inside).communicate(timeout=60)
    assert noise == ""
    full, still_full, room, read_only = said.splitlines()
    for line in (full, still_full):
        assert "No space left on device" in line and "not logged there" in line and "with room on its disk" in line
    assert room == "None"
    assert "Read-only file system" in read_only
