"""Processes of clients that share what they import.

A process that imports PyTorch needs seconds and hundreds of megabytes. So a server imports it once,
and each process of clients is a fork of it. The program begins a process as ever (`python -m fl
client-process ..`); that one, which has imported no more than fl, hands its files to the server,
waits for the fork, and ends as it ends. If it is killed, so is the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ._program import program

VARIABLE = "FL_FORK_SERVER"
#: What is worth a server, and what of fl goes with it.
HEAVY = {"torch": "fl.torch", "sklearn": "fl.sklearn", "transformers": None, "pandas": None}
_LENGTH = struct.Struct("<Q")
_STATUS = struct.Struct("<i")


# ---- the run


class _Server:
    """The server of this process, as long as runs need it."""

    def __init__(self) -> None:
        self.lock, self.runs = threading.Lock(), 0
        self.process: subprocess.Popen[bytes] | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> None:
        with self.lock:
            self.runs += 1
            if self.runs > 1:
                return
            modules = [name for name in HEAVY if name in sys.modules]
            self.folder = tempfile.TemporaryDirectory(prefix="fl-")
            path = os.path.join(self.folder.name, "socket")
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen(64)
            begin = "import sys; from fl import _forks; _forks.serve(int(sys.argv[1]), sys.argv[2:])"
            args = [sys.executable, "-c", begin, str(listening.fileno()), *modules]
            # its input ends with this process
            self.process = subprocess.Popen(args, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], start_new_session=True)
            listening.close()
            os.environ[VARIABLE] = path

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.runs -= 1
            if self.runs or self.process is None or self.folder is None:
                return
            os.environ.pop(VARIABLE, None)
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()
            self.folder.cleanup()
            self.process = self.folder = None


_SERVER = _Server()


@contextmanager
def shared(plugins: bool) -> Iterator[None]:
    """While a run has processes: a server for them, if they import parts in Python and something
    heavy is imported here."""
    worth = plugins and sys.platform == "linux" and any(name in sys.modules for name in HEAVY)
    if not worth:
        yield
        return
    with _SERVER:
        yield


# ---- the process that the program begins


def elsewhere() -> int | None:
    """Lets the server do what this process was begun for; its exit code, or `None` if there is no
    server."""
    path = os.environ.pop(VARIABLE, None)
    if path is None:
        return None
    about = {"argv": sys.argv, "path": sys.path, "environ": dict(os.environ), "cwd": os.getcwd()}
    text = json.dumps(about).encode("utf-8", "surrogatepass")
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [_LENGTH.pack(len(text))], [0, 1, 2])
            server.sendall(text)
        except OSError:
            return None
        # the fork alone holds its socket now
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        status = b""
        while len(status) < _STATUS.size:
            if not (more := server.recv(_STATUS.size - len(status))):
                return 1  # the server was ended
            status += more
    code = os.waitstatus_to_exitcode(_STATUS.unpack(status)[0])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return abs(code)


# ---- the server


def _receive(asking: socket.socket) -> tuple[list[int], dict[str, object]]:
    header, files, _, _ = socket.recv_fds(asking, _LENGTH.size, 3)
    left, text = _LENGTH.unpack(header)[0], bytearray()
    while left:
        more = asking.recv(min(left, 1 << 16))
        if not more:
            raise OSError("it was cut short")
        text += more
        left -= len(more)
    return files, json.loads(text)


def _be(asking: socket.socket, files: list[int], about: dict[str, object]) -> NoReturn:
    """In the fork: becomes what was asked for, and ends as soon as whoever asked has ended."""
    code = 1
    try:
        os.setpgid(0, 0)
        for at, file in enumerate(files):
            os.dup2(file, at)
        for file in files:
            os.close(file)
        os.environ.clear()
        os.environ.update(about["environ"])  # type: ignore[call-overload]
        os.chdir(str(about["cwd"]))
        sys.argv[:], sys.path[:] = about["argv"], about["path"]  # type: ignore[call-overload]
        importlib.invalidate_caches()

        def watch() -> None:
            asking.recv(1)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
        program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(file: int, modules: list[str]) -> None:
    """Forks for whoever asks at this socket, until the standard input ends."""
    listening = socket.socket(fileno=file)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in modules:
        for one in (name, HEAVY.get(name)):
            try:
                if one is not None:
                    importlib.import_module(one)
            except Exception:  # whoever needs it says why
                pass
    gc.collect()
    gc.freeze()  # what is shared is not written to
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    asked: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([0, listening, woken], [], [])
        if woken in ready:
            try:
                woken.recv(4096)
            except BlockingIOError:
                pass
        while asked:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            with asked.pop(pid) as asking:
                try:
                    asking.sendall(_STATUS.pack(status))
                except OSError:
                    pass  # it has ended
        if 0 in ready and not os.read(0, 1):
            signal.set_wakeup_fd(before)
            return
        if listening not in ready:
            continue
        asking, _ = listening.accept()
        try:
            asking.settimeout(10)
            files, about = _receive(asking)
            asking.settimeout(None)
        except (OSError, ValueError, struct.error):
            asking.close()
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (listening, woken, waker, *asked.values()):
                one.close()
            _be(asking, files, about)
        for file in files:
            os.close(file)
        asked[pid] = asking

