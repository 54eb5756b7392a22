"""A run from settings to a run directory.

config.json          the settings
metrics.jsonl        every record, one a line
policy.safetensors   the weights of the policy
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import ConfigError
from relive.training.checkpoint import POLICY, save_policy
from relive.training.loop import Trainer
from relive.training.parts import build
from relive.training.records import Evaluated, RunEnded
from relive.training.sinks import JsonLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from relive.training.config import TrainConfig
    from relive.training.sinks import Sink

CONFIG = "config.json"
METRICS = "metrics.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run went.

    Attributes:
        out: The run directory.
        evaluated: The last evaluation; None if there was none.
        ended: The last record.
    """

    out: Path
    evaluated: Evaluated | None
    ended: RunEnded


def with_run_directory(config: TrainConfig) -> TrainConfig:
    """The settings with `out` filled in and made, a directory that nothing has been written to.

    Raises:
        ConfigError: The directory asked for has a run in it.
    """
    out = config.out
    if out is None:
        env = config.env.replace("/", "-")
        name = f"{config.algorithm}-{env}-{config.replay.sampler}-s{config.seed}"
        names = itertools.chain([name], (f"{name}-{k}" for k in itertools.count(2)))
        out = next(path for path in (Path("runs", name) for name in names) if not path.exists())
    elif (out / METRICS).exists():
        raise ConfigError(f"out {out} has a run in it; name another directory, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    return dataclasses.replace(config, out=out)


def run(config: TrainConfig, sinks: Sequence[Sink] = ()) -> RunResult:
    """Trains, and leaves a run directory.

    The first Ctrl-C (or SIGTERM, which schedulers send) ends the run in good order after the step
    it is in, a second one at once; whatever stops it, the weights and the records so far are kept.

    Args:
        config: Settings; `out` is chosen if it is None.
        sinks: Are told every record, besides the files; closed at the end.

    Raises:
        ConfigError: Settings that cannot work; nothing has been written then.
    """
    parts = build(config)
    config = with_run_directory(config)
    out = config.out
    assert out is not None  # filled in
    settings = json.dumps(config.to_json(), indent=2)
    (out / CONFIG).write_text(settings + "\n", encoding="utf-8")
    trainer = Trainer(config, parts)
    evaluated, ended = None, None
    with ExitStack() as stack:
        listeners: list[Sink] = [JsonLines(out / METRICS), *sinks]
        for sink in listeners:
            stack.callback(sink.close)
        stack.callback(lambda: save_policy(parts.agent, out / POLICY))
        stop = stack.enter_context(_stop_on_interrupt())
        for record in trainer.records(stop):
            for sink in listeners:
                sink.record(record)
            match record:
                case Evaluated():
                    evaluated = record
                case RunEnded():
                    ended = record
                case _:
                    pass
    assert ended is not None  # the last record
    return RunResult(out=out, evaluated=evaluated, ended=ended)


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into an answer to a question; the next one is obeyed."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals reach the main thread only
        return
    stopped = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        restore()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield lambda: stopped
    finally:
        restore()
