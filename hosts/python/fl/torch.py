"""Networks of PyTorch as trainers: give the network, and every protocol can use it.

    import fl, fl.torch
    from typing import Annotated
    from torch import nn

    @fl.trainer("paper-cnn")
    class PaperCnn(fl.torch.Trainer):
        "The network of the paper."
        width: Annotated[int, "Channels of the first layer.", fl.between(ge=1)] = 32

        def net(self):
            c, h, w = self.task.input
            body = nn.Conv2d(c, self.width, 5), nn.ReLU(), nn.Flatten()
            return nn.Sequential(*body, nn.LazyLinear(self.task.outputs))

On a processor the same spec and seed give the same bits, on any number of clients' threads: PyTorch
itself uses one thread while it is called from here, and where a network draws at random while it
trains (dropout), one client trains at a time, for all threads of a process draw from one generator.
On a GPU nothing of that is promised: PyTorch's own kernels may add in another order. While a
trainer computes, TF32 is off and PyTorch's default type is `torch.float32`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
import types
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ._data import tensors as _tensors
from ._data.tensors import _BESIDE
from ._parts import reachable, state as _state, copies as _twin
from ._parts.arguments import Lacks, Pass, Shape, Stream
from ._parts.classes import settings_by_keyword
from ._parts.range import between
from ._torch import nets as _nets
from ._torch.arrays import _as_tensors, _numpy, _plain
from ._torch.devices import _CARDS, _ONE, _drawing, _repeatable, _size
from ._torch.joint_steps import _TOGETHER, _called, _scores
from ._torch.single_slopes import _dense, _single_slopes

_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
_COMPUTE = ("fit", "predict", "features", "gradient", "clipped_gradients", "descend", "vjp")
_GUARDED = ("setup", *_COMPUTE, "params", "set_params")


def _guarded(method):
    """A method of a subclass on one thread, as those of `Trainer` are; `setup` and `fit` draw what
    the run's seed says."""

    @functools.wraps(method)
    def on_one_thread(self, *args, **kwargs):
        stream = next((one for one in (*args, *kwargs.values()) if isinstance(one, Stream)), None)
        draws = stream is not None and (method.__name__ == "setup" or self.draws is not False)
        on_card = method.__name__ in _COMPUTE
        with _ONE, _CARDS.use(self) if on_card else nullcontext(), _drawing(stream.child("draws").seed, self.device) if draws else nullcontext():
            return method(self, *args, **kwargs)

    on_one_thread.guards = True
    return on_one_thread


class Task(Protocol):
    """What is to be learnt."""

    input: tuple[int, ...]
    """The shape of a sample."""
    outputs: int
    """Scores of a sample."""
    multi_label: bool
    numbers: bool
    """Are they numbers to predict?"""
    pixels: int
    """How many pixels of a sample have a class each; 0 in other tasks. The scores of a sample are
    then those of its pixels for the first class, for the second, and so on."""
    loss: str


@settings_by_keyword
class Trainer:
    """A network and an optimiser: override `net`, and `optimiser` and `schedule` if need be.
    `self.task` has `input`, the shape of a sample, `outputs`, how many scores it gets, and
    `multi_label`.

    What a subclass sets on itself is the client's memory. It is kept in every way of running, and
    also where a protocol makes models anew for each question (`fresh: true` in rounds), which
    forgets weights, moments and schedule only.
    """

    remembers = True
    draws: ClassVar[bool | None] = None
    """Does `fit` draw from generators of the process, as dropout does? Then one client trains at a
    time. `None`: where the network or the first steps of a copy draw, and wherever a subclass has a
    `fit` or a `loss` of its own; such a class may say `False`. `True`: also where only later steps
    draw."""
    schedule_by: ClassVar[str] = "epoch"
    """When the schedule takes its step: after each `epoch` (one that has begun counts when `fit`
    ends), or each `batch`."""
    together: ClassVar[int] = 1
    """So many clients that train at the same time (`fl.run(threads=..)`) and have equal networks
    take their steps together, by `torch.func.vmap`. Sums are then made in another order, so digests
    differ from those of one by one in last bits, and may differ with `threads`. It pays for small
    networks and on cards. Networks that draw, that normalise batches, or whose first step writes
    into a buffer or an attribute, train one by one."""
    device_memory: ClassVar[float] = 0.5
    """The share of a card's memory that networks and samples may take while they wait: of more than
    fit, those that were used last stay there. What a network computes comes on top."""
    integers: ClassVar[bool | None] = None
    """Does the network take whole numbers, as one that begins with an embedding? `None`: try."""
    # save_state() holds these, or setup() makes them
    _holds = (
        "_model", "_training", "_steps", "_schedule", "_last", "_words", "_kind", "_out", "_brought",
    )  # fmt: skip

    if TYPE_CHECKING:  # otherwise it would be a setting
        task: ClassVar[Task]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in _GUARDED:
            method = inspect.getattr_static(cls, name)  # of a class beside `Trainer` too
            ours = method is vars(Trainer)[name] or hasattr(method, "guards")
            if isinstance(method, types.FunctionType) and not ours:
                setattr(cls, name, _guarded(method))

    lr: Annotated[float, "Learning rate.", between(gt=0)] = 0.01
    momentum: Annotated[float, "Momentum of SGD.", between(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, "L2 penalty on every parameter.", between(ge=0)] = 0.0
    device: Annotated[str, "Where it trains: `cpu`, `cuda`, `cuda:1` or `mps`. Only `cpu` gives the same bits every time."] = "cpu"

    def net(self) -> nn.Module:
        """The network: samples in, `samples x outputs` scores (logits) out, alone, first in a
        tuple, or as `.logits`. Parameters that do not require a gradient are frozen."""
        raise NotImplementedError(f"{type(self).__name__} has no net()")

    def optimiser(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser; SGD by default."""
        return torch.optim.SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)

    def schedule(self, optimiser: torch.optim.Optimizer) -> Any:
        """A learning-rate schedule of this optimiser (`torch.optim.lr_scheduler`), or none. It goes
        on where it was, after a stop too, unless the pass is `fresh`."""
        return None

    def travels(self, name: str) -> bool:
        """Does this parameter, or running statistic, go to the server and come back? By default all
        do. The others stay at home, as the client's memory: a head of its own, normalisation
        (`"norm" not in name`). Every client gets the same frozen body that stays at home: what
        `net` draws for it follows from a seed that no run changes."""
        return True

    def augment(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A mini-batch as the network sees it while it trains, such as turned images; as it is by
        default."""
        return inputs

    def collate(self, inputs: torch.Tensor) -> Any:
        """What the network gets of a mini-batch: a tensor; a tuple, one argument each; or a
        mapping, by the names of arguments. By default the rows as they are. A network of several
        inputs finds them side by side in a row: `ids, mask = inputs.split(12, 1)`."""
        return inputs

    # ---- what the program calls

    def setup(self, stream: Stream):
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be `cpu`, `cuda`, `cuda:1` or `mps`, got {self.device!r}")
        if self.device.startswith("cuda"):
            _repeatable(self.device)
        torch.empty(1, device=self.device)  # a device that is not there is found now
        bare = copy.copy(self)  # before net() may set attributes
        with _ONE:
            two, scores = self._make(stream.seed)
            if tuple(scores.shape) != (2, self.task.outputs):
                raise Shape(f"net() gives scores of shape {list(scores.shape)} for 2 samples, and the task needs {[2, self.task.outputs]}")
            self._out, self._brought = scores.dtype, {}
            _nets.check_state(self)
            self._training = _nets.check_drawn(self, bare, stream.seed, two)
            if self._frozen_at_home():
                bare._make(0)  # as every party draws it
                alike, own = bare._model.state_dict(), self._state()
                with torch.no_grad():
                    for name in self._frozen_at_home():
                        own[name].copy_(alike[name])
            if self._partly() and not any(self.travels(name) for name in self._floats()):
                raise ValueError(f"travels() of {type(self).__name__} lets no parameter travel; there are {', '.join([*self._floats()][:5])}, ..")
            self._begin()
            _nets.warn_of_frozen(self)
            _nets.warn_of_compiled(self)
            self._last = self._last_linear(two)
            self._round()

    def _make(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Makes the network with draws from this seed, those of Python and numpy too; gives two
        samples and their scores."""
        with _drawing(seed, whole=True):
            self._model = self.net()
            return self._first_scores(self._model)

    def _first_scores(self, model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        """Two samples and their scores, with which lazy layers find their sizes; finds out whether
        the network takes whole numbers."""
        failed = None
        for integers in (False, True) if self.integers is None else (self.integers,):
            dtype = torch.int64 if integers else next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.float32)
            two = torch.zeros(2, *self.task.input, dtype=dtype)
            try:
                with torch.no_grad():
                    scores = _scores(_called(model.eval(), self.collate(two)), self.task)
            except (RuntimeError, TypeError, IndexError) as error:
                failed = failed or error
                continue
            embedding = next((m for m in model.modules() if isinstance(m, nn.Embedding)), None)
            self._kind, self._words = dtype, embedding.num_embeddings if integers and embedding is not None else None
            return two, scores
        raise failed

    def _last_linear(self, samples) -> list[nn.Linear]:
        """The linear layer that computes last."""
        seen: list[nn.Linear] = []
        hooks = [m.register_forward_hook(lambda module, *_: seen.append(module)) for m in self._model.modules() if isinstance(m, nn.Linear)]
        try:
            with torch.no_grad():
                _called(self._model.eval(), self.collate(samples))
        finally:
            for hook in hooks:
                hook.remove()
        return seen[-1:]

    def _round(self):
        """Parameters travel as floats, so doubles that travel are rounded to them: the sender has
        what it sent."""
        with torch.no_grad():
            for value in self._travelling().values():
                if value.dtype == torch.float64:
                    value.copy_(value.float())

    def _partly(self) -> bool:
        return type(self).travels is not Trainer.travels

    def _names(self) -> dict[str, str]:
        """Each name of the network's state, with the first name of the same tensor: layers may
        share one."""
        first: dict[int, str] = {}
        held = self._model.state_dict(keep_vars=True)
        return {name: first.setdefault(id(value), name) if isinstance(value, torch.Tensor) else name for name, value in held.items()}

    def _state(self) -> dict[str, Any]:
        """The network's state, each tensor by its first name."""
        own: dict[str, Any] = {}
        seen: set[int] = set()
        for name, value in self._model.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                own[name] = value
            elif id(value) not in seen:
                seen.add(id(value))
                own[name] = value.detach()
        return own

    def _floats(self) -> dict[str, torch.Tensor]:
        """What is a float of the network's state; what is none (how many batches there were) stays
        at home."""
        return {name: value for name, value in self._state().items() if isinstance(value, torch.Tensor) and value.is_floating_point()}

    def _travelling(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self._floats().items() if self.travels(name)}

    def _frozen_at_home(self) -> list[str]:
        if not self._partly():
            return []
        return [name for name, p in self._model.named_parameters() if not p.requires_grad and not self.travels(name)]

    @property
    def _exact(self) -> bool:
        """Does every call give the same bits? `torch.compile` chooses code by what the process has
        compiled before, and cards may add in another order."""
        compiled = (m for m in self._model.modules() if "_orig_mod" in m._modules or m._compiled_call_impl is not None)
        return self.device == "cpu" and next(compiled, None) is None

    def _keep_home(self):
        """What stays at home becomes the client's memory: all of it that can change."""
        if self._partly():
            travelling, frozen = self._travelling(), {*self._frozen_at_home()}
            self._home = {name: _plain(value) for name, value in self._state().items() if name not in travelling and name not in frozen}

    def _bytes(self) -> int:
        """What the network takes with its gradients and its optimiser."""
        state = [value for held in self._steps.state.values() for value in held.values()]
        return _size(self._model.state_dict().values()) + _size(p for p in self._model.parameters() if p.requires_grad) + _size(state)

    def _move(self, device: str):
        """Takes the network and its optimiser there; parameters stay the same objects."""
        if all(value.device.type == "cpu" for value in self._state().values() if isinstance(value, torch.Tensor)) and device == "cpu":
            return
        self._model.to(device)
        for p, held in self._steps.state.items():
            for name, value in held.items():
                # `step` of some optimisers stays on the processor
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    held[name] = value.to(p.device)

    def _begin(self):
        """A new optimiser, and its schedule."""
        if self.schedule_by not in ("epoch", "batch"):
            raise ValueError(f"schedule_by must be `epoch` or `batch`, got {self.schedule_by!r}")
        trained = [p for p in self._model.parameters() if p.requires_grad]
        if not trained:
            raise ValueError(f"net() of {type(self).__name__} has no parameter that requires a gradient: there is nothing to learn")
        steps, of = self.optimiser(trained), f"optimiser() of {type(self).__name__} gives"
        if steps is vars(self).get("_steps") and steps.state:
            raise ValueError(f"{of} the same object again, with moments of a training before; make a new one in each call")
        if not {id(p) for group in steps.param_groups for p in group["params"]} & {id(p) for p in trained}:
            raise ValueError(f"{of} one that has no parameter of this network; make it of the parameters that it is given")
        self._steps = steps
        closure = inspect.signature(type(self._steps).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise Lacks(
                f"{of} {type(self._steps).__name__}, whose step needs a closure that computes the loss again; "
                "give an optimiser that steps along a gradient, or write `fit`"
            )
        self._schedule = self.schedule(self._steps)

    @property
    def scales_rate(self) -> bool:
        """The optimiser has a learning rate that each step reads, and `fit` is this class's."""
        read = not isinstance(self._steps, torch.optim.Rprop) and all("lr" in group for group in self._steps.param_groups)
        return read and type(self).fit is Trainer.fit

    @property
    def takes_gradient_terms(self) -> bool:
        """`fit` is this class's, which adds a proximal term and an offset, and clips."""
        return type(self).fit is Trainer.fit

    @property
    def schedules_epoch(self) -> bool:
        """The schedule takes a step after each epoch, and at the end of a training."""
        return self._schedule is not None and self.schedule_by == "epoch"

    @property
    def step_momentum(self) -> float | None:
        """The momentum, if each step is that of plain gradient descent with it and one rate."""
        groups = self._steps.param_groups
        plain = type(self._steps) is torch.optim.SGD and self._schedule is None and type(self).fit is Trainer.fit
        if not plain or len({(g["lr"], g["momentum"]) for g in groups}) != 1:
            return None
        more = any(g["nesterov"] or g["dampening"] or g["maximize"] for g in groups)
        return None if more else float(groups[0]["momentum"])

    @property
    def beside_gradient(self) -> list[str]:
        """What training does and `gradient` leaves out."""
        shares = [getattr(m, "p" if isinstance(m, nn.modules.dropout._DropoutNd) else "dropout", 0) for m in self._model.modules()]
        drops = any(isinstance(share, (int, float)) and share > 0 for share in shares)
        norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._model.modules())
        beside = {"augment": type(self).augment is not Trainer.augment, "dropout": drops, "batch normalisation": norms}
        return [name for name, does in beside.items() if does]

    @property
    def decays_weights(self) -> bool:
        """The optimiser has weight decay."""
        return any(group.get("weight_decay") for group in self._steps.param_groups)

    def _step(self, rate: float):
        """A step of the optimiser at `rate` times its learning rate."""
        groups = self._steps.param_groups if rate != 1 else []
        own = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * rate
        self._steps.step()
        for group, lr in zip(groups, own, strict=True):
            group["lr"] = lr

    def _next_rate(self, losses: list[float]):
        """The schedule takes a step after these batches."""
        if self._schedule is None or not losses:
            return
        if isinstance(self._schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self._schedule.step(sum(losses) / len(losses))
        else:
            self._schedule.step()

    def fit(self, x: np.ndarray, target: np.ndarray, how: Pass, stream: Stream) -> tuple[int, float]:
        # what a loss of the author's does is not known
        draws = self._training.draws or type(self).loss is not Trainer.loss if self.draws is None else self.draws
        with _ONE, _CARDS.use(self), _drawing(stream.child("draws").seed, self.device) if draws else nullcontext():
            if self._joins(how, draws):
                done = _TOGETHER.fit(self, self._learn(x, target, how, stream), how)
            else:
                done = self._fit(x, target, how, stream)
            self._round()
            self._keep_home()
            return done

    def _joins(self, how: Pass, draws: bool) -> bool:
        """Can it train together with others? Not what draws, has statistics of a batch, writes into
        what it holds, for steps together write into copies, or looks at single numbers."""
        made = vars(self).get("_fl_made")
        if made is not None and made.alone:
            return False
        alone = draws or self._training.writes or self._has_batch_norm()
        return self.together > 1 and not alone and how.feature_loss is None and how.target != "multi-label"

    def _fit(self, x, target, how, stream):
        learning = self._learn(x, target, how, stream)
        try:
            batch = next(learning)
            while True:
                batch = learning.send(self._slopes(*batch, how))
        except StopIteration as end:
            return end.value

    def _slopes(self, batch, wanted, about, how) -> float:
        """The loss of a mini-batch, and its gradients in the parameters. `about` is what a loss on
        features is told beside them."""
        scores, features = self._with_features(batch) if how.feature_loss else (self._scores(batch), None)
        loss = self.loss(scores, wanted, how)
        value = loss.item()
        if how.feature_loss:
            more, slope = how.feature_loss(_numpy(features), *about)
            # the reported loss is without it
            value = value if math.isfinite(more) else more
            loss = loss + (features * torch.from_numpy(slope).to(features)).sum()
        if math.isfinite(value):
            self._steps.zero_grad()
            loss.backward()
        return value

    def _learn(self, x, target, how, stream):
        """Gives each mini-batch, its targets as tensors, and what a loss on features is told of it;
        is sent the loss when the gradients are there."""
        if len(x) == 0:
            return 0, 0.0
        inputs, wanted = self._inputs(x), self._target(target, how)
        if type(self).loss is Trainer.loss:  # one of the author's may count its calls
            # what does not go together changes nothing
            self.loss(self._zeros(wanted[:1]), wanted[:1], how)
        proximal = how.proximal and (how.proximal[0], self._like(how.proximal[1], "the anchor"))
        gradient_offset = how.gradient_offset and self._like(how.gradient_offset, "the gradient offset")
        if how.fresh:
            self._begin()
            if self._schedule is not None:
                warnings.warn(
                    f"schedule() of {type(self).__name__} begins anew in each round, for the protocol trains with `fresh: true`; "
                    "if the rate is to change over rounds, give `protocol.local.rate`, or set `protocol.fresh: false`",
                    stacklevel=2,
                )
        self._model.train()
        named, losses, counted = dict(self._model.named_parameters()), [], 0
        generator = stream.child("augment").torch() if type(self).augment is not Trainer.augment else None
        each = 1 if self.schedule_by == "batch" else math.ceil(len(x) / how.batch)
        for positions in how.batches(len(x), stream):
            at = torch.from_numpy(positions).to(self.device)
            # statistics of one sample are none
            alone = len(at) == 1 and self._has_batch_norm()
            self._model.train(not alone)
            batch = inputs[at] if generator is None else self.augment(inputs[at], generator)
            about = how.feature_loss and (target[positions], positions, stream.child("feature-loss", len(losses)))
            value = yield batch, wanted[at], about
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value}; a smaller learning rate, or clipping, may help")
            losses.append(value)
            # addends and norms are of all rows of an embedding
            if how.clip is not None or proximal or gradient_offset:
                for p in named.values():
                    p.grad = _dense(p.grad)
            if how.clip is not None:
                nn.utils.clip_grad_norm_(named.values(), how.clip)
            for name, p in named.items():
                if p.grad is None:
                    continue
                if proximal and name in proximal[1]:
                    p.grad.add_(p.detach() - proximal[1][name].to(p.dtype), alpha=proximal[0])
                if gradient_offset and name in gradient_offset:
                    p.grad.add_(gradient_offset[name].to(p.dtype))
            self._step(how.rate)
            if len(losses) - counted == each:
                self._next_rate(losses[counted:])
                counted = len(losses)
        self._next_rate(losses[counted:])
        self._steps.zero_grad()
        epoch = losses[-math.ceil(len(x) / how.batch) :]
        return len(losses), sum(epoch) / max(len(epoch), 1)

    def loss(self, scores: torch.Tensor, target: torch.Tensor, how: Pass) -> torch.Tensor:
        """The mean over the batch of the minimised loss; of each pixel, where pixels have
        classes."""
        if self.task.pixels and how.loss in ("cross-entropy", "kl", "norm"):
            scores = self._by_pixel(scores)
            target = target.flatten() if how.target == "pixels" else self._by_pixel(target)
        if how.loss == "cross-entropy":
            if how.target == "multi-label":
                known = target >= 0
                return F.binary_cross_entropy_with_logits(scores[known], target[known]) if known.any() else scores.sum() * 0
            if how.target == "scores":
                raise Shape("cross-entropy is about classes or probabilities, and the target is scores")
            return F.cross_entropy(scores, target)
        if how.target in ("classes", "multi-label", "pixels"):
            raise Shape(f"the loss {how.loss} is about scores or probabilities, and the target is {how.target}")
        match how.loss:
            case "mae":
                return (scores - target).abs().mean()
            case "mse":
                return F.mse_loss(scores, target)
            case "huber":
                return F.huber_loss(scores, target, delta=how.delta)
            case "norm":
                return (scores - target).norm(dim=1).mean()
            case "kl":
                soft = F.softmax(target / how.tau, 1)
                return F.kl_div(F.log_softmax(scores / how.tau, 1), soft, reduction="batchmean") * how.tau**2
        raise Lacks(f"there is no loss called {how.loss} here")

    def _by_pixel(self, scores: torch.Tensor) -> torch.Tensor:
        """A row of scores for each pixel."""
        return scores.unflatten(1, (-1, self.task.pixels)).movedim(1, 2).flatten(0, 1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        with _ONE, _CARDS.use(self), torch.no_grad():
            self._model.eval()
            return self._in_turn(x, self.task.outputs, self._scores)

    def features(self, x: np.ndarray) -> np.ndarray | None:
        """What goes into the last linear layer."""
        if not self._last:
            return None
        with _ONE, _CARDS.use(self), torch.no_grad():
            self._model.eval()
            return self._in_turn(x, self._last[0].in_features, lambda samples: self._with_features(samples)[1])

    def _with_features(self, samples) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores, and what goes into the last linear layer."""
        seen = []
        with self._last[0].register_forward_pre_hook(lambda _, given: seen.append(given[0])):
            return self._scores(samples), seen.pop().flatten(1)

    @property
    def takes_feature_loss(self) -> bool:
        """There are parameters before the last linear layer, and `fit` is this class's."""
        if not self._last or type(self).fit is not Trainer.fit:
            return False
        last = {id(p) for p in self._last[0].parameters()}
        return any(id(p) not in last and p.requires_grad for p in self._model.parameters())

    def _in_turn(self, x, columns: int, f) -> np.ndarray:
        inputs, kept = self._inputs(x), _CARDS.keeps(self, x)
        batches = (inputs[at : at + 256] for at in range(0, len(x), 256))
        # a network may write into what it is given
        parts = [f(batch.clone() if kept else batch).float().cpu() for batch in batches]
        return torch.cat(parts).numpy() if parts else np.zeros((0, columns), np.float32)

    def gradient(self, x: np.ndarray, target: np.ndarray, how: Pass) -> dict[str, np.ndarray]:
        with _ONE, _CARDS.use(self):
            wanted = self._target(target, how)
            self._model.eval()
            loss = self.loss(self._scores(self._inputs(x)), wanted, how)
            named = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
            slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            found = {name: slope for name, slope in zip(named, slopes) if slope is not None}
            return {n: _numpy(found[n]) if n in found else np.zeros_like(v) for n, v in self.params().items()}

    def clipped_gradients(self, x: np.ndarray, target: np.ndarray, how: Pass, clip: float) -> dict[str, np.ndarray] | None:
        """The sum of the gradients of single samples, each shortened to the norm `clip`, for
        DP-SGD. A sample's addend does not depend on the others, not even in its last bits."""
        if type(self).gradient is not Trainer.gradient:
            return None
        with _ONE, _CARDS.use(self):
            inputs, wanted = self._inputs(x), self._target(target, how)
            self._model.eval()
            sums = {name: torch.zeros(value.shape, dtype=torch.float64, device=value.device) for name, value in self._travelling().items()}
            for slopes in _single_slopes(self, inputs, wanted, how):
                found = {name: slope.double() for name, slope in slopes.items() if name in sums}
                norm = math.sqrt(sum(slope.square().sum().item() for slope in found.values()))
                if not math.isfinite(norm):
                    continue
                for name, slope in found.items():
                    # slightly shorter, so that rounding cannot exceed the bound
                    sums[name] += slope * (clip / norm * (1 - 1e-6)) if norm > clip else slope
            return {name: _numpy(value) for name, value in sums.items()}

    def descend(self, gradient: Mapping[str, np.ndarray], at: int, of: int, rate: float = 1.0):
        """Takes one step of the optimiser along a gradient, as after batch `at` of `of`; its rate
        is `rate` times the optimiser's."""
        if isinstance(self._schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise Lacks("ReduceLROnPlateau follows the loss, and where gradients are given (DP-SGD) there is none")
        with _ONE, _CARDS.use(self):
            slopes = self._like(gradient, "the gradient")
            self._steps.zero_grad()
            for name, p in self._model.named_parameters():
                if p.requires_grad and name in slopes:
                    p.grad = slopes[name].to(p.dtype)
            self._step(rate)
            self._steps.zero_grad()
            if self._schedule is not None and (self.schedule_by == "batch" or at + 1 == of):
                self._schedule.step()
            self._round()
            self._keep_home()

    @property
    def differentiable(self) -> bool:
        """Do scores have slopes by the inputs? Not if these are whole numbers."""
        return self._kind != torch.int64

    def vjp(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        with _ONE, _CARDS.use(self):
            inputs = self._inputs(x).requires_grad_()
            if len(x) == 0:
                return np.zeros((0, inputs[:1].numel() or math.prod(self.task.input)), np.float32)
            self._model.eval()
            scores = self._scores(inputs)
            (back,) = torch.autograd.grad(scores, inputs, torch.tensor(slope, dtype=scores.dtype, device=self.device))
            return _numpy(back.flatten(1))

    def step_size(self) -> float | None:
        """The learning rate, if each step is that times the gradient and nothing else; otherwise
        `None`."""
        groups = self._steps.param_groups
        plain = type(self._steps) is torch.optim.SGD and self._schedule is None and len({g["lr"] for g in groups}) == 1
        more = any(g["momentum"] or g["weight_decay"] or g["maximize"] for g in groups) if plain else True
        return None if more else float(groups[0]["lr"])

    def params(self) -> dict[str, np.ndarray]:
        return {name: _numpy(value) for name, value in self._travelling().items()}

    @property
    def buffers(self) -> frozenset[str]:
        """The network's buffers that travel, such as running variances: they are averaged, and no
        server optimiser takes a step with them. Buffers of whole numbers (`num_batches_tracked`)
        stay at home."""
        travelling = self._travelling()
        return frozenset(name for name, _ in self._model.named_buffers() if name in travelling)

    def set_params(self, params):
        with _ONE, torch.no_grad():
            new = self._like(params, "the message sent")
            for name in self._variances():
                if name in new:  # noise may have taken it below 0
                    new[name].clamp_(min=0)
            home = {name: torch.as_tensor(value) for name, value in getattr(self, "_home", {}).items()}
            for name, value in self._state().items():
                if name in new or name in home:
                    value.copy_(new[name] if name in new else home[name])

    def save(self) -> bytes:
        held = self._state()
        # a file that other tools read, unless the network keeps something else than tensors
        plain = all(isinstance(value, torch.Tensor) for value in held.values())
        beside = {path: value for path, value in self._beside().items() if path[0] == "net"}
        if plain:
            return _tensors.pack(held, beside)
        return _state.save(_plain(held) | ({_BESIDE: beside} if beside else {}))

    def load(self, state: bytes):
        held = _tensors.unpack_tensors(state)
        if held is None:
            held = _state.load(state)
            beside = held.pop(_BESIDE, {})
        else:
            beside = _tensors.unpack_beside(state)
        self._take(held)
        self._bring(beside)
        self._keep_home()

    def save_state(self) -> bytes:
        held = {"model": _plain(self._state()), "steps": _plain(self._steps.state_dict())}
        if self._schedule is not None:
            held["schedule"] = self._schedule.state_dict()
        if beside := self._beside():
            held["beside"] = beside
        return _state.save(held)

    def load_state(self, state: bytes):
        with _ONE:
            held = _state.load(state)
            self._take(held["model"])
            self._begin()
            if ("schedule" in held) != (self._schedule is not None):
                raise Shape("this is the state of a trainer with another schedule")
            own = [*self._steps.param_groups]
            self._steps.load_state_dict(_as_tensors(held["steps"]))
            # a schedule or a hook may know the groups themselves
            for group, loaded in zip(own, self._steps.param_groups):
                group.clear()
                group.update(loaded)
            self._steps.param_groups[:] = own
            if self._schedule is not None:
                self._schedule.load_state_dict(held["schedule"])
            self._bring(held.get("beside", {}))

    def _bring(self, beside: dict[reachable.Path, Any]):
        self._brought = beside
        if beside:
            self._reached().write(beside)

    def _reached(self) -> reachable.Graph:
        """What the network, the optimiser with its hooks, and the schedule hold beside what their
        own states have."""
        return _nets.held_by(self, {"net": self._model, "optimiser": self._steps, "schedule": self._schedule})

    def _beside(self) -> dict[reachable.Path, Any]:
        """Values that training has changed, such as the steps that a module counts, or a schedule
        that only a hook knows."""
        found = _twin.found(self)
        if found is None or found.before is None:
            return self._brought
        # an optimiser that is made anew may hold copies of parameters that have learnt
        before = {path: value for path, value in found.before.items() if path[0] == "net" or not isinstance(value, torch.Tensor)}
        return reachable.written(self._reached().changed(before))

    # ---- between numpy and PyTorch

    def _scores(self, inputs: torch.Tensor) -> torch.Tensor:
        return _scores(_called(self._model, self.collate(inputs)), self.task)

    @property
    def vocabulary(self) -> int | None:
        """Words from 0 that the network takes; `None`: it takes other numbers."""
        return self._words

    def _inputs(self, x: np.ndarray) -> torch.Tensor:
        """These samples on the device."""
        return _CARDS.inputs(self, x, lambda: self._copied(x))

    def _copied(self, x: np.ndarray) -> torch.Tensor:
        if tuple(x.shape[1:]) != self.task.input:
            raise Shape(f"samples of shape {list(x.shape[1:])}, and the network takes {list(self.task.input)}")
        if self._kind == torch.int64:
            least, most = -math.inf if self._words is None else 0, math.inf if self._words is None else self._words - 1
            bad = np.argwhere((np.floor(x) != x) | (x < least) | (x > most))
            if len(bad):
                row, *at = bad[0].tolist()
                wanted = "a whole number" if self._words is None else f"a whole number from 0 to {most}, for its embedding has {self._words} rows"
                raise Shape(f"number {at} of sample {row} is {x[tuple(bad[0])]:g}; the network takes {wanted}")
        # a copy: what is lent ends with the call
        return torch.tensor(x, dtype=self._kind, device=self.device)

    def _target(self, target: np.ndarray, how: Pass) -> torch.Tensor:
        classes, pixels = how.target in ("classes", "pixels"), self.task.pixels
        width = (pixels,) if how.target == "pixels" else () if classes else (self.task.outputs,)
        if target.shape[1:] != width or how.target == "classes" and pixels:
            raise Shape(f"a target of shape {list(target.shape)}, and the network has {self.task.outputs} outputs")
        known = self.task.outputs // (pixels or 1)
        if classes and target.size and target.max() >= known:
            raise Shape(f"class {target.max()}, and the network has scores of {known} classes")
        return torch.tensor(target, dtype=torch.int64 if classes else self._out, device=self.device)

    def _zeros(self, like: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(like), self.task.outputs, dtype=self._out, device=self.device)

    def _has_batch_norm(self) -> bool:
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._model.modules())

    def _variances(self) -> list[str]:
        norms = [name for name, m in self._model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        return [f"{name}.running_var".lstrip(".") for name in norms]

    def _like(self, params, what: str) -> dict[str, torch.Tensor]:
        """Arrays by name as tensors, if they fit what travels."""
        own = self._travelling()
        if set(own) != set(params):
            odd = sorted(set(own) ^ set(params))
            raise Shape(f"{what} has other names than the network: {', '.join(odd[:5])}")
        for name, value in own.items():
            if tuple(params[name].shape) != tuple(value.shape):
                raise Shape(f"{what}: `{name}` is {list(params[name].shape)}, and that of the network {list(value.shape)}")
        return {name: torch.tensor(params[name], device=self.device) for name in own}

    def _take(self, held: dict):
        own, new, names = self._state(), _as_tensors(held), self._names()
        wrong = Shape("this is the model of another network")
        if not isinstance(new, dict) or not set(new) <= set(names):
            raise wrong
        taken: dict[str, Any] = {}
        for name, value in new.items():  # a file may have a shared tensor under any of its names
            first = names[name]
            if first in taken and not reachable.same(taken[first], value):
                raise Shape(f"`{name}` and `{first}` are one tensor of this network, and here they differ")
            taken[first] = value
        if set(taken) != set(own) or any(isinstance(own[n], torch.Tensor) and own[n].shape != taken[n].shape for n in own):
            raise wrong
        self._model.load_state_dict({name: taken[first] for name, first in names.items()})
