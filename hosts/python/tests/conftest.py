"""What the tests share. None of them looks at the clock."""

import signal
import sys
from pathlib import Path

import fl
import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job in the background is begun with Ctrl-C ignored, and some tests press it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# the method of the book, and other programs' methods as runs of fl
PORTS = Path(__file__).parents[1] / "examples" / "ports"
sys.path.append(str(PORTS))
SPECS = Path(__file__).parents[3] / "specs"
QUICK = SPECS / "quick"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, tmp_path_factory, monkeypatch):
    """Run folders go where nobody sees them, and so does what fl keeps for a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "user"))


@pytest.fixture
def identity():
    """Messages of Flower can be made in this process."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


@pytest.fixture
def fedavg():
    """A small run as a mapping, which tests change."""
    return fl.check(QUICK / "fedavg.yaml")


def with_part(slot, use, **settings):
    """The quick FedAvg with another part."""
    return {f"parts.{slot}": {"use": use, **settings}}


class Here:
    """A courier to nodes in this process."""

    def __init__(self, *nodes):
        self.nodes, self.sent = {client: node for node in nodes for client in node.clients}, []

    def send(self, *request):
        self.sent.append(request)

    def receive(self):
        client, head, body = self.sent.pop()
        return client, self.nodes[client].answer(head, body), ""

    def end(self, keep):
        pass
