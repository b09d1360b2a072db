"""A module with a ServerApp `server` and a ClientApp `client` as an app of Flower, run by
`flwr run` on nodes that Flower simulates.

Flower looks for both names without running the module: each has an assignment of its own."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "hosts/python/tests"))

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "measured"
version = "0.1.0"
description = "A measurement"
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fl"

[tool.flwr.app.components]
serverapp = "measured:server"
clientapp = "measured:client"

[tool.flwr.app.config]
"""


@contextmanager
def simulated(folder: Path, module: str, nodes: int, processors: int | None = None, **env):
    """The running app and its SuperLink. Its processes find this folder's modules and have `env`;
    at most so many `processors` simulate nodes."""
    from cluster import Cluster

    app = folder / "app"
    app.mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "measured.py").write_text(module)
    cluster = Cluster(folder / "flower", simulated=nodes, processors=processors)
    cluster.env |= {"PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"} | {key: str(value) for key, value in env.items()}
    with cluster:
        run = cluster.run(app)
        yield run, cluster.running["superlink"].pid
        run.process.stdout.read()
        assert run.process.wait() == 0, "".join(run.lines)
