"""Federated learning and federated distillation, composed from plugins in a YAML file.

    import fl
    results = fl.run("spec.yaml", {"protocol.rounds": 20, "seed": 3})
    results.metrics, results.digest, results.epsilon
    results.frame(), results.plot()

`fl.run`, `fl.check`, `fl.inspect`, `fl.parts`, `fl.schema`, `fl.study`, `fl.account`, `fl.audit` and `fl.open` are the program in Python;
`fl.aggregator`, `fl.attack`, `fl.selector`, `fl.privacy`, `fl.trainer` and `fl.protocol` make parts of classes. `fl.torch` and `fl.sklearn` have trainers.
`fl.flower` runs a spec on Flower, `fl.remote` on an engine of one's own.
"""

from ._errors import Error, Mistake, RunError, SpecError
from ._given import Inbox, Lacks, Mail, Message, Pass, Pool, Refused, Round, Shape, Stream, Unpriced
from ._parts import aggregator, attack, between, message, privacy, protocol, selector, trainer
from ._protocol import Answers, Arrays, Client, Cohort, Examples, Exchange, Generator, Model, Public, Samples, Server, Slot, difference, exchange, part, slot
from ._results import Results, open
from ._run import STOP, run
from ._tools import Study, account, audit, check, inspect, parts, schema, study

__all__ = [
    "Answers", "Arrays", "Client", "Cohort", "Error", "Examples", "Exchange", "Generator", "Inbox", "Lacks", "Mail", "Message", "Mistake", "Model", "Pass", "Pool",
    "Public", "Refused", "Results", "Round", "RunError", "STOP", "Samples", "Server", "Shape", "Slot", "SpecError", "Stream", "Study", "Unpriced", "account",
    "aggregator", "attack", "audit", "between", "check", "difference", "exchange", "inspect", "message", "open", "part", "parts", "privacy", "protocol", "run",
    "schema", "selector", "slot", "study", "trainer",
]
