"""What happens around the steps of the host's trainer: progress, throughput, dropout, the best weights.

The host tells neither a batch sampler nor a loss which trainer they work for: `calling_trainer` finds it.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from typing import Any

from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pairtune.progress import LOG_EVERY_SECONDS, QUIET_SECONDS, describe_time, say
from pairtune.runs.record import dev_scores, read_history
from pairtune.sbert.checkpoints import checkpoint_folder

CLOCK = "clock.json"
TRIAL_STEPS = 10  # how long the rest takes is told from these
LONG_SECONDS = 3600.0


class Clock(TrainerCallback):
    """Seconds and pairs of the epochs, carried over a resume: evaluation and saving do not count, data loading does."""

    def __init__(self, pairs_per_epoch: int) -> None:
        self.pairs_per_epoch = pairs_per_epoch
        self.seconds = 0.0
        self.pairs = 0.0
        self._mark = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take up the numbers of the checkpoint that training goes on from."""
        saved = checkpoint_folder(args, state) / CLOCK
        if state.global_step and saved.is_file():
            values = json.loads(saved.read_text())
            self.seconds, self.pairs = values["seconds"], values["pairs"]

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The clock runs from here."""
        self._mark = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Another step, with all that it waited for."""
        now = time.perf_counter()
        self.seconds, self._mark = self.seconds + now - self._mark, now
        self.pairs += self.pairs_per_epoch * args.num_train_epochs / state.max_steps

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep the numbers with the checkpoint."""
        if state.is_world_process_zero:
            folder = checkpoint_folder(args, state)
            (folder / CLOCK).write_text(json.dumps({"seconds": self.seconds, "pairs": self.pairs}))

    def leave_out(self, seconds: float) -> None:
        """Time since the last step that was not training."""
        self._mark += seconds

    @property
    def pairs_per_second(self) -> float:
        """The throughput of the steps so far."""
        return self.pairs / self.seconds if self.seconds else 0.0


class Progress(TrainerCallback):
    """Epoch, loss, pairs/s and time left: a live bar in a terminal, a line now and then in a log."""

    def __init__(self, clock: Clock, title: str = "training") -> None:
        self.clock, self.title = clock, title
        self.loss: float | None = None
        self._bar: Any = None
        self._next_line = 0.0
        self._first_step = 0
        self._first_second = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Show the bar."""
        self._first_step, self._first_second = state.global_step, self.clock.seconds
        self._next_line = time.monotonic() + QUIET_SECONDS
        if state.is_world_process_zero and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self.title, total=state.max_steps)
            self._bar.start()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The newest loss; after an evaluation, the newest scores as a line that stays."""
        logs = logs or {}
        self.loss = logs.get("loss", self.loss)
        scores = dev_scores(logs)
        if scores and state.is_world_process_zero:
            values = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
            shown = _show_loss(read_history(state.log_history, 1)[-1].loss)  # of the whole epoch, as in the record
            self._say(f"{self.title}: epoch {state.epoch:.0f} of {args.num_train_epochs:.0f}  {shown}  dev {values}")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Where we are."""
        if not state.is_world_process_zero:
            return
        if state.global_step == self._first_step + TRIAL_STEPS:
            self._warn(args, state)
        line = self._describe(args, state)
        if self._bar is not None:
            self._bar.update(self._task, completed=state.global_step, description=line)
        elif time.monotonic() >= self._next_line:
            say(f"{line}  ({state.global_step} of {state.max_steps} steps)")
            self._next_line = time.monotonic() + LOG_EVERY_SECONDS

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take the bar away."""
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was, also after Ctrl-C."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _seconds_left(self, state: TrainerState) -> float:
        steps = state.global_step - self._first_step
        return (self.clock.seconds - self._first_second) / max(steps, 1) * (state.max_steps - state.global_step)

    def _warn(self, args: TrainingArguments, state: TrainerState) -> None:
        """Say at once what will take long, without its evaluations: the user may have meant less."""
        if (left := self._seconds_left(state)) >= LONG_SECONDS:
            self._say(
                f"{self.title}: {args.num_train_epochs:,.0f} epochs, {state.max_steps:,} steps, will take about "
                f"{describe_time(left)}: Ctrl-C stops it and --resume goes on; fewer train.epochs take less"
            )

    def _describe(self, args: TrainingArguments, state: TrainerState) -> str:
        epoch = min(int(state.epoch or 0) + 1, int(args.num_train_epochs))
        return (
            f"{self.title}: epoch {epoch}/{args.num_train_epochs:.0f}  {_show_loss(self.loss)}  "
            f"{self.clock.pairs_per_second:.0f} pairs/s  {describe_time(self._seconds_left(state))} left"
        )

    def _say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        else:
            say(line)


def _show_loss(loss: float | None) -> str:
    return "loss –" if loss is None else f"loss {loss:.4f}"


class LogEpochs(TrainerCallback):
    """Logs at the end of each epoch: no logged loss is of two epochs, and that of an epoch is the same after a resume."""

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Have the host log what it has not logged yet."""
        control.should_log = True


class StopDropout(TrainerCallback):
    """Dropout in the first epoch only; afterwards the model has it again."""

    def __init__(self) -> None:
        self.before: list[tuple[nn.Dropout, float]] = []

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Turn it off once an epoch is over."""
        if state.epoch and state.epoch >= 1 and not self.before:
            self.before = [(module, module.p) for module in kwargs["model"].modules() if isinstance(module, nn.Dropout)]
            for module, _ in self.before:
                module.p = 0.0

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave the model as it was."""
        self.undo()

    def undo(self) -> None:
        """Give the model its dropout back."""
        for module, share in self.before:
            module.p = share
        self.before = []


class KeepBest(TrainerCallback):
    """Holds the weights of the best epoch on dev in memory, for a training that writes no checkpoints, and ends with them."""

    def __init__(self, metric: str) -> None:
        self.metric, self.score = metric, -math.inf
        self.weights: dict[str, Tensor] = {}

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Keep these if no earlier epoch was as good."""
        score = kwargs["metrics"][self.metric]
        if score > self.score:
            self.score = score
            self.weights = {name: tensor.clone() for name, tensor in kwargs["model"].state_dict().items()}

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Give the model the weights that were kept."""
        if self.weights:
            kwargs["model"].load_state_dict(self.weights)


def calling_trainer() -> Trainer | None:
    """The trainer in one of whose methods we are, the innermost, or None.

    The host calls a sampler's factory with a dataset and a loss with a batch; both may need to follow the training
    (its epochs, its checkpoints), which only a callback of the trainer can. Asking the call stack is the one way to it
    that touches nothing private of the host, and spares users a second object to pass.
    """
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Trainer):
            return owner
        frame = frame.f_back
    return None
