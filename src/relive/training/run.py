"""A run from settings to a run directory.

config.json          the settings
metrics.jsonl        every record, one a line
policy.safetensors   the weights of the policy
best.safetensors     those of the best evaluation, if there are several
checkpoint/          the last save, to go on from
lock                 held by the process that trains
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relive.agents.policy import BEST, POLICY, require_safetensors, save_policy
from relive.errors import ConfigError, InputError
from relive.gpu.failures import keep, loses_the_device, reason
from relive.runs import CHECKPOINT, is_saved, resume_command
from relive.storage.files import folder_at, write_whole
from relive.storage.writer_lock import Lock, is_held
from relive.training import failures
from relive.training.checkpoint import (
    Checkpoints,
    NeverSavedError,
    going_on,
    load_checkpoint,
    require_same,
)
from relive.training.choices import settled
from relive.training.config import TrainConfig, require_settings
from relive.training.loop import Trainer
from relive.training.parts import Parts, build
from relive.training.records import DeviceFailed, Evaluated, RunEnded, SaveDue, StepsMade
from relive.training.sinks import FollowsSteps, JsonLines
from relive.training.updates import require_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from relive.training.records import Moment, Record
    from relive.training.sinks import Sink

CONFIG = "config.json"
METRICS = "metrics.jsonl"
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


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
    """The settings with `out` filled in and made, a directory without a run that has made steps.

    Raises:
        ConfigError: The directory asked for has a run in it.
    """
    out = config.out
    if out is None:
        words = config.name or config.algorithm, config.env, config.replay.sampler
        name = "-".join(re.sub(r"[^-.\w]+", "-", word).strip("-.") for word in words)
        name += f"-s{config.seed}"
        names = itertools.chain([name], (f"{name}-{k}" for k in itertools.count(2)))
        runs = Path("runs")
        runs.mkdir(exist_ok=True)
        out = next(path for path in (runs / name for name in names) if _is_new(path))
    elif out == Path():  # also what an empty word is
        raise ConfigError("out is the working directory; name one for the run")
    elif out.exists() and not out.is_dir():
        raise ConfigError(f"out {out} is a file; name a directory")
    elif (out / CHECKPOINT).exists() or _has_begun(out / METRICS):
        raise ConfigError(f"out {out} has a run in it; name another directory, or {_or_else(out)}")
    out.mkdir(parents=True, exist_ok=True)
    return dataclasses.replace(config, out=out)


def _has_begun(metrics: Path) -> bool:
    """Whether records tell of more than a beginning: without one, nothing of a run is lost."""
    lines = metrics.read_bytes().splitlines() if metrics.exists() else []
    try:
        return any(json.loads(line).get("step", 0) for line in lines)
    except (ValueError, AttributeError):
        return True  # whatever that is


def _or_else(out: Path) -> str:
    """What else can be done where a run is."""
    if is_held(out):
        return "wait for its end"
    if is_saved(out):
        return f"go on with that run: {resume_command(out)}"
    return "delete this one: nothing was saved to go on from"


def _is_new(folder: Path) -> bool:
    """Makes a folder; False if there is something, which another process may have made just now."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def run(
    config: TrainConfig,
    sinks: Sequence[Sink] = (),
    *,
    remarks: Mapping[str, str] | None = None,
) -> RunResult:
    """Trains, and leaves a run directory.

    The first Ctrl-C (or SIGTERM, which schedulers send, or SIGHUP, of a terminal that is closed)
    ends the run in good order after the step it is in, a second one at once; whatever stops it, the
    weights and the records so far are kept, and `resume` goes on from the last save. Where a GPU
    fails for good, the run does so by itself, on the CPU (unless `replay.on_failure` is "raise"),
    and sinks are told its first record again.

    Args:
        config: Settings; `out` is chosen if it is None.
        sinks: Are told every record, besides the files; closed at the end.
        remarks: What else the first record says was chosen, name to words.

    Raises:
        ConfigError: Settings that cannot work; nothing has been written then.
        InputError: They are no settings.
        MissingExtraError: A package is not installed that it would end with.
    """
    require_safetensors()
    config, chosen = settled(config)
    parts = build(config)
    require_capture(config, parts)
    if not config.planned_updates:
        chosen["updates"] = (
            f"none: they are made every {config.train_every:,} steps after step "
            f"{config.updates_start:,}, and the run has {config.total_steps:,} (--train-every, "
            "--learning-starts, --total-steps)"
        )
    chosen |= remarks or {}
    config = with_run_directory(config)
    assert config.out is not None  # filled in
    with _alone(config.out):
        _keep_settings(config)
        trainer = Trainer(config, parts, chosen)
        return _whatever_fails(trainer, parts, JsonLines(config.out / METRICS), sinks)


def resume(
    out: Path | str, sinks: Sequence[Sink] = (), *, config: TrainConfig | None = None
) -> RunResult:
    """Goes on with a run that was stopped or killed, from its last save.

    On a CPU the run ends as it would have without a break, number for number: rows, priorities,
    random states, schedules, half-finished n-step windows and episodes go on (an episode is played
    again from its seed and actions). Records after the save are taken back and come anew.

    Args:
        out: The run directory.
        sinks: As in `run`.
        config: Settings; None for those of the run. Devices may differ, and `total_steps` may be
            more, also of a run that has ended: shares of random actions and step sizes that move
            are then those of the longer run, what was told at its end is taken back.

    Raises:
        InputError: No run is there, it has ended, or it was never saved; `config` is none.
        ConfigError: A setting differs; says which.
        CorruptError: The save is damaged.
        UnsupportedError: The environment cannot be brought back to where it was, or another
            process is at it.
        MissingExtraError: As `run`.
    """
    require_safetensors()
    out = folder_at(out)
    saved = run_settings(out)
    config = saved if config is None else config
    require_settings(config)
    require_same(saved, config)
    config = going_on(saved, config)
    if not (out / METRICS).is_file():
        raise InputError(f"the run in {out} cannot go on: it has no {METRICS}")
    with _alone(out):
        if config.total_steps == saved.total_steps and _has_ended(out / METRICS):
            raise InputError(
                f"the run in {out} has come to its end: nothing is left to do, unless it is given "
                f"more total_steps than {saved.total_steps:,}"
            )
        buffer, note = load_checkpoint(out / CHECKPOINT, config)
        parts = build(config, buffer)
        trainer = Trainer(config, parts)
        trainer.load_state_dict(note["trainer"], buffer_kept=buffer is not None)
        metrics = JsonLines(out / METRICS, keep=note["metrics_bytes"])
        if config.total_steps != saved.total_steps:
            _keep_settings(dataclasses.replace(saved, total_steps=config.total_steps))
        return _whatever_fails(trainer, parts, metrics, sinks)


def _keep_settings(config: TrainConfig) -> None:
    assert config.out is not None  # filled in
    settings = json.dumps(config.to_json(), indent=2)
    write_whole(config.out / CONFIG, settings + "\n")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keeps other processes from writing the same run; the lock ends with the process."""
    lock = Lock(out, "wait for its end, or name another run directory")
    try:
        yield
    finally:
        lock.release()


def run_settings(out: Path) -> TrainConfig:
    """The settings of the run in a directory, which may have been moved.

    Raises:
        InputError: None is there, or it is of another version.
    """
    try:
        plain = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{out} is not a run directory: it has no {CONFIG}") from None
    except ValueError as error:
        raise InputError(f"{out / CONFIG} is no JSON: {error}") from None
    return dataclasses.replace(TrainConfig.from_json(plain), out=out)


def _has_ended(metrics: Path) -> bool:
    """Whether the last record says that all has been done."""
    lines = metrics.read_bytes().splitlines() if metrics.exists() else []
    try:
        last = json.loads(lines[-1])
        return bool(last["record"] == "run_ended" and not last["interrupted"])
    except (IndexError, ValueError, KeyError, TypeError):
        return False  # killed


def _whatever_fails(
    trainer: Trainer, parts: Parts, metrics: JsonLines, sinks: Sequence[Sink]
) -> RunResult:
    """To the end: where a GPU fails, on the CPU from the last save, or from the beginning."""
    with ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)
        try:
            return _to_the_end(trainer, parts, metrics, sinks)
        except Exception as error:  # Triton's are no RuntimeError, nor is a batch without memory
            if not failures.can_go_on(trainer.config, parts, error):
                raise
            keep(error, trainer, parts)
            why = reason(error)
        trainer, parts, metrics, failed = _on_the_cpu(trainer, why)
        return _to_the_end(trainer, parts, metrics, sinks, failed)


def _on_the_cpu(before: Trainer, why: str) -> tuple[Trainer, Parts, JsonLines, DeviceFailed]:
    """The run from its last save, or from its beginning, and what there is to say of it."""
    config = failures.without_gpu(before.config)
    assert config.out is not None  # filled in
    note = None
    with suppress(NeverSavedError):
        buffer, note = load_checkpoint(config.out / CHECKPOINT, config)
    if note is None:
        parts = build(config)
        trainer = Trainer(config, parts, before.chosen)
        metrics = JsonLines(config.out / METRICS)
        outcome = "there was no save yet, so the run starts over"
    else:
        parts = build(config, buffer)
        trainer = Trainer(config, parts)
        trainer.load_state_dict(note["trainer"], buffer_kept=buffer is not None)
        metrics = JsonLines(config.out / METRICS, keep=note["metrics_bytes"])
        outcome = f"the run goes on from its save at step {trainer.step:,}"
    failed = DeviceFailed(step=trainer.step, part="run", reason=why, outcome=outcome)
    return trainer, parts, metrics, failed


def _to_the_end(
    trainer: Trainer,
    parts: Parts,
    metrics: JsonLines,
    sinks: Sequence[Sink],
    failed: DeviceFailed | None = None,
) -> RunResult:
    """Trains and tells; `failed` is told behind the first record."""
    config = trainer.config
    out = config.out
    assert out is not None  # filled in
    evaluated, ended = None, None
    best = _best_mean(out / METRICS) if config.eval_every else -math.inf
    with ExitStack() as stack:
        listeners: list[Sink] = [metrics, *sinks]
        stack.callback(metrics.close)
        stack.push(lambda _, error, __: _keep_policy(parts, out, error))
        stack.push(lambda _, error, __: _say_how_to_go_on(out, error))
        checkpoints = Checkpoints(out / CHECKPOINT, parts.buffer if config.save_buffer else None)
        stack.callback(checkpoints.finish)
        stop = stack.enter_context(_stop_on_interrupt())
        for record in _with(failed, trainer.records(stop)):
            if isinstance(record, SaveDue):
                save_policy(parts.agent, out / POLICY)
                checkpoints.save(trainer, metrics.size())
                continue
            if isinstance(record, StepsMade):
                _tell_steps(sinks, record.step)
                continue
            if isinstance(record, RunEnded):
                checkpoints.finish()  # a run that says it has ended is saved as it ended
            for sink in listeners:
                sink.record(record)
            match record:
                case Evaluated():
                    evaluated = record
                    if config.eval_every and record.mean > best:
                        best = record.mean
                        save_policy(parts.agent, out / BEST)
                case RunEnded():
                    ended = record
                case _:
                    pass
    assert ended is not None  # the last record
    return RunResult(out=out, evaluated=evaluated, ended=ended)


def _tell_steps(sinks: Sequence[Sink], step: int) -> None:
    """How far a run is, to the sinks that want to know."""
    for sink in sinks:
        if isinstance(sink, FollowsSteps):
            sink.steps_made(step)


def _best_mean(metrics: Path) -> float:
    """Of the evaluations so far, if there are any."""
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    records = (json.loads(line) for line in lines if '"evaluated"' in line)
    means = (record["mean"] for record in records if record["record"] == "evaluated")
    return max((mean for mean in means if mean is not None), default=-math.inf)


def _with(
    failed: DeviceFailed | None, records: Iterator[Record | Moment]
) -> Iterator[Record | Moment]:
    """The records, with one more behind the first."""
    yield next(records)
    if failed is not None:
        yield failed
    yield from records


def _keep_policy(parts: Parts, out: Path, error: BaseException | None) -> None:
    """The weights, whatever ended the run; not those on a GPU that can't be read any more."""
    if error is None or not loses_the_device(error):
        save_policy(parts.agent, out / POLICY)


def _say_how_to_go_on(out: Path, error: BaseException | None) -> None:
    """Below what the environments have said of an error of theirs."""
    if getattr(error, "__notes__", None) and is_saved(out):
        assert error is not None  # it has notes
        error.add_note(f"The run goes on from its last save with: {resume_command(out)}")


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first of `SIGNALS` into an answer to a question; the next one is obeyed."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals reach the main thread only
        return
    stopped = False
    before = {number: signal.getsignal(number) for number in SIGNALS}
    # ignored as under nohup; None if not Python has set it, and Python could not set it again
    before = {n: how for n, how in before.items() if how not in (signal.SIG_IGN, None)}

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
