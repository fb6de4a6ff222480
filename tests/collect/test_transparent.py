"""A wrapped command against the same command unwrapped: codes, signals, streams, arguments."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GPUDIAG = [sys.executable, "-m", "gpudiag", "run", "-q", "--"]
# Writes each signal that it gets as a line, and ends with 42 when told to by a line "end".
RECORDER = """
import os, signal, sys, time
log = open(sys.argv[1], "a", buffering=1)
for number in (1, 2, 3, 10, 12, 15, 18):
    signal.signal(number, lambda n, _: log.write(f"{n}\\n"))
log.write("ready\\n")
until = time.monotonic() + 60
while not os.path.exists(sys.argv[1] + ".end") and time.monotonic() < until:
    time.sleep(0.02)
sys.exit(42)
"""
LAUNCHERS = {
    "plain": ["{python}", "{script}"],
    "bash": ["bash", "-c", "exec {python} {script}"],
    "bash-child": ["bash", "-c", "{python} {script}; exit $?"],
    "env": ["env", "{python}", "{script}"],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


def wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen in time")


class Recorded:
    """A wrapped recorder of signals in a process group of its own."""

    def __init__(self, tmp_path, before=()):
        self.log, script = tmp_path / "signals", tmp_path / "recorder.py"
        script.write_text(RECORDER)
        command = [*before, *GPUDIAG, sys.executable, str(script), str(self.log)]
        self.process = subprocess.Popen(command, start_new_session=True)
        wait_for(lambda: self.log.exists() and "ready" in self.log.read_text())

    def seen(self):
        """Return the numbers of the signals so far."""
        return [int(line) for line in self.log.read_text().split() if line != "ready"]

    def settled(self):
        """What was seen once nothing more can be on its way."""
        time.sleep(0.5)
        return self.seen()

    def end(self):
        """Let the command end; return gpudiag's code."""
        Path(f"{self.log}.end").touch()
        return self.process.wait(20)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    "ending",
    [
        "import sys; sys.exit(0)",
        "import sys; sys.exit(7)",
        "raise ValueError('x')",
        "import os; os._exit(9)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.abort()",
        "import os, signal; signal.signal(11, 0); os.kill(os.getpid(), 11)",
        "import os, signal; signal.signal(15, 0); os.kill(os.getpid(), 15)",
        "import os, signal; signal.signal(2, 0); os.kill(os.getpid(), 2)",
    ],
)
def test_the_end_of_a_command_is_its_own(tmp_path, launcher, ending):
    """Exit codes and deaths by signal, through plain python and shells."""
    script = tmp_path / "ending.py"
    script.write_text(ending)
    command = [part.format(python=sys.executable, script=script) for part in LAUNCHERS[launcher]]
    bare = subprocess.run(command, check=False, capture_output=True)
    wrapped = subprocess.run([*GPUDIAG, *command], check=False, capture_output=True)
    assert wrapped.returncode == bare.returncode
    assert wrapped.stdout == bare.stdout


def test_arguments_and_streams_arrive_to_the_byte(tmp_path):
    """Options after CMD, empty and odd arguments, bytes on stdin; nothing of ours on stdout."""
    script = tmp_path / "echo.py"
    script.write_text(
        "import os, sys; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])) + "
        "sys.stdin.buffer.read())"
    )
    arguments = ["--force", "-o", "", "a b", "*", "--", "-h", "ä", b"\xff"]
    done = subprocess.run(
        [*GPUDIAG, sys.executable, str(script), *arguments],
        input=b"\x00in", capture_output=True, check=True,
    )  # fmt: skip
    expected = [os.fsencode(one) if isinstance(one, str) else one for one in arguments]
    assert done.stdout == b"|".join(expected) + b"\x00in"
    assert done.stderr == b""
    (record,) = Path("gpudiag-runs").glob("*/run.json")
    assert record.stat().st_mode & 0o077 == 0
    assert json.loads(record.read_text())["exit_code"] == 0


@pytest.mark.parametrize(
    ("command", "code"), [("nosuch-command", 127), ("./nosuch", 127), ("./plain", 126), (".", 127)]
)
def test_what_cannot_be_started_has_the_shells_code(tmp_path, command, code):
    """127 not found, 126 not executable; in three lines at most, and no run is kept."""
    (tmp_path / "plain").write_text("text")
    done = subprocess.run([*GPUDIAG, command], check=False, capture_output=True, text=True)
    assert done.returncode == code
    assert 1 <= len(done.stderr.splitlines()) <= 3
    assert not Path("gpudiag-runs").exists()


def test_an_interpreter_that_is_not_there_is_said(tmp_path):
    """As the shell: 127."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    assert subprocess.run([*GPUDIAG, str(script)], check=False).returncode == 127


@pytest.mark.parametrize("number", [1, 2, 3, 10, 12, 15, 18])
def test_a_signal_to_gpudiag_alone_reaches_the_command_once(tmp_path, number):
    """A plain kill PID: handed on, and the command decides what becomes of it."""
    recorded = Recorded(tmp_path)
    os.kill(recorded.process.pid, number)
    wait_for(recorded.seen)
    assert recorded.settled() == [number]
    assert recorded.end() == 42


@pytest.mark.parametrize("number", [1, 2, 15, 10])
def test_a_signal_to_the_group_reaches_the_command_once(tmp_path, number):
    """A kill -- -PGID, as schedulers do."""
    recorded = Recorded(tmp_path)
    os.killpg(recorded.process.pid, number)
    wait_for(recorded.seen)
    assert recorded.settled() == [number]
    assert recorded.end() == 42


def test_a_repeated_signal_is_handed_on_again(tmp_path):
    """Impatience is the user's right; nothing is made worse than what they sent."""
    recorded = Recorded(tmp_path)
    for count in (1, 2, 3):
        os.kill(recorded.process.pid, signal.SIGINT)
        wait_for(lambda count=count: len(recorded.seen()) == count)
        time.sleep(0.15)
    assert recorded.settled() == [2, 2, 2]
    assert recorded.end() == 42


def test_timeout_is_not_doubled(tmp_path):
    """timeout(1) signals its child, then the whole group, then wakes both by SIGCONT."""
    recorded = Recorded(tmp_path, before=("timeout", "-s", "TERM", "3"))
    wait_for(recorded.seen)
    assert recorded.settled().count(15) == 1
    recorded.end()


def test_ctrl_c_in_a_terminal_reaches_the_command_once(tmp_path):
    """And the command's own handling of it decides the code."""
    log, script = tmp_path / "signals", tmp_path / "recorder.py"
    script.write_text(RECORDER)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*GPUDIAG, sys.executable, str(script), str(log)])  # noqa: S606 - the point
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    os.write(terminal, b"\x03")
    wait_for(lambda: "2" in log.read_text().split())
    time.sleep(0.5)
    assert log.read_text().split() == ["ready", "2"]
    Path(f"{log}.end").touch()
    with contextlib.suppress(OSError):  # Linux: the other end of the terminal is closed
        while os.read(terminal, 1024):
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def test_a_stopped_command_stops_the_job_and_goes_on_with_it(tmp_path):
    """SIGSTOP to the command alone: the shell sees a stopped job; SIGCONT wakes both."""
    recorded = Recorded(tmp_path)
    (record,) = Path("gpudiag-runs").glob("*/run.json")
    wait_for(lambda: json.loads(record.read_text())["child_pid"])
    child = json.loads(record.read_text())["child_pid"]
    os.kill(child, signal.SIGSTOP)
    wait_for(lambda: state(recorded.process.pid) == "T")
    os.kill(recorded.process.pid, signal.SIGCONT)
    wait_for(lambda: state(child) == "S")
    assert recorded.end() == 42


def test_killing_gpudiag_leaves_the_training_and_nothing_of_ours(tmp_path):
    """SIGKILL: the command goes on, the witness ends by itself."""
    recorded = Recorded(tmp_path)
    (record,) = Path("gpudiag-runs").glob("*/run.json")
    wait_for(lambda: json.loads(record.read_text())["child_pid"])
    child = json.loads(record.read_text())["child_pid"]
    group = members(recorded.process.pid)
    recorded.process.kill()
    recorded.process.wait()
    wait_for(lambda: set(members(recorded.process.pid)) == {child})
    assert len(group) == 3
    Path(f"{recorded.log}.end").touch()
    wait_for(lambda: state(child) in (None, "Z"))
    assert json.loads(record.read_text())["ended_wall_ns"] is None


def members(group):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def state(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return None
