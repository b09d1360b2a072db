"""Federated learning and federated distillation, composed from plugins in a YAML file.

    import fl
    results = fl.run("spec.yaml", {"protocol.rounds": 20, "seed": 3})
    results.metrics, results.digest, results.epsilon
    results.frame(), results.plot(), results.model("final")

`fl.run`, `fl.check`, `fl.inspect`, `fl.parts`, `fl.schema`, `fl.study`, `fl.account`, `fl.audit`
and `fl.open` are the program in Python; `fl.aggregator`, `fl.attack`, `fl.selector`, `fl.privacy`,
`fl.trainer` and `fl.protocol` make parts of classes, `fl.metric` a measure of a function. `fl.make`
gives one part for a loop of one's own. `fl.torch` and `fl.sklearn` have trainers. `fl.sinks` has
where events go while a run goes on. `fl.flower` runs a spec on Flower, `fl.remote` on an engine of
one's own.
"""

from . import _isolated, roles, sinks
from ._fl import __version__
from ._errors import Error, Mistake, RunError, SpecError
from ._parts.arguments import Inbox, Lacks, Mail, Message, Pass, Pool, Refused, Round, Shape, Stream, Unpriced
from ._protocol.borrowed import Examples, Generator, Model, Public, Samples
from ._make import MadePart, make
from ._parts.metric import metric
from ._model import KeptModel
from ._parts.classes import aggregator, attack, message, privacy, protocol, selector, trainer
from ._protocol.declarations import Arrays, Exchange, Rate, RateByRound, RateCosine, RateStep, Release, RoundTraining, Slot, Steps, Training, difference, exchange, part, slot, steps
from ._parts.range import between
from ._results import Results, open
from ._run import STOP, run
from ._protocol.server_and_client import Answers, Client, Cohort, Server
from ._tools import Study, account, audit, check, inspect, parts, schema, study

_isolated.begin()


def __getattr__(name: str):
    """`fl.testing` is imported where it is first used: few programs need it."""
    if name == "testing":
        import importlib

        return importlib.import_module("fl.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "__version__", "Answers", "Arrays", "Client", "Cohort", "Error", "Examples", "Exchange", "Generator", "Inbox", "KeptModel", "Lacks", "MadePart", "Mail", "Message", "Mistake", "Model", "Pass", "Pool",
    "Public", "Rate", "RateByRound", "RateCosine", "RateStep", "Refused", "Release", "Results", "Round", "RoundTraining", "RunError", "STOP", "Samples", "Server", "Shape", "Slot", "SpecError", "Steps", "Stream", "Study", "Training", "Unpriced", "account",
    "aggregator", "attack", "audit", "between", "check", "difference", "exchange", "inspect", "make", "message", "metric", "open", "part", "parts", "privacy", "protocol", "roles", "run",
    "schema", "selector", "sinks", "slot", "steps", "study", "trainer",
]
