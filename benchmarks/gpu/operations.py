"""What an update, and a step with one, is made of: operations of torch, counted on the CPU.

Each is one launch on a GPU, or a few; views and what only looks at shapes are none.

    PYTHONPATH=src python -m benchmarks.gpu.operations
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.gpu.budget import H200
from relive.agents.kinds import CONFIGS
from relive.gpu.means import MetricMeans
from relive.training import ReplayConfig, TrainConfig, build
from relive.training.rollout import rollout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.agents.kinds import Algorithm

H200_FLOPS = 67e12  # float32, a second, without tensor cores: the data sheet
DISCRETE = ("dqn", "c51")
INTO = {"out", "grad_input"}  # where a result is put
NO_LAUNCH = {"aten::_unsafe_view", "aten::lift_fresh", "aten::empty", "aten::detach"}


@dataclass(slots=True)
class Work:
    """Of some operations.

    Attributes:
        operations: How many.
        bytes: That they read and write, each for itself.
        flops: Of their products and sums of products.
        microseconds: That they take at least on an H200, one after the other: of each its bytes or
            its products, whatever is longer, and nothing for its launch.
    """

    operations: int = 0
    bytes: int = 0
    flops: int = 0
    microseconds: float = 0.0

    def add(self, nbytes: int, flops: int) -> None:
        """One more."""
        self.operations += 1
        self.bytes += nbytes
        self.flops += flops
        self.microseconds += 1e6 * max(nbytes / H200, flops / H200_FLOPS)


class Counted(TorchDispatchMode):  # type: ignore[misc]  # torch gives no type
    """Counts operations that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        schema = func._schema
        is_view = any(
            result.alias_info is not None and not result.alias_info.is_write
            for result in schema.returns
        )
        if not is_view and schema.name not in NO_LAUNCH:
            flops = flop_registry.get(func._overloadpacket)
            given = {name: value for name, value in kwargs.items() if name not in INTO}
            self.work.add(
                moved((args, given)) + moved(results),
                flops(*args, **kwargs, out_val=results) if flops else 0,
            )
        return results


def moved(values: Any) -> int:
    """Bytes of all tensors; of an expanded one those that it has."""
    tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
    return sum(min(tensor.nbytes, tensor.untyped_storage().nbytes()) for tensor in tensors)


def counted(call: Callable[[], object]) -> Work:
    """What a call does; what the buffer does is left out, and counted by itself."""
    with Counted() as mode:
        call()
    return mode.work


def operations(algorithm: Algorithm) -> dict[str, Work]:
    """Of an agent with the settings it has by default.

    Returns:
        A step of the environments without the buffer, an update in which nothing is due, and one in
        which something is.
    """
    env = "torch/CartPole-v1" if algorithm in DISCRETE else "torch/Pendulum-v1"
    config = TrainConfig(
        env=env,
        num_envs=64,
        device="cpu",
        replay=ReplayConfig(capacity=1000),
        agent=CONFIGS[algorithm](),
    )
    parts = build(config)
    rollout, buffer, means = rollout_of(parts), parts.buffer, MetricMeans()
    rollout.begin()
    rollout.step()
    batch = buffer.sample(64)
    add = buffer.add

    def unseen(**step: Any) -> None:
        with _disable_current_modes():
            add(**step)

    def update(due: bool) -> Callable[[], None]:
        return lambda: means.add(parts.agent.learn([batch], due).metrics)

    update(True)()  # the first one makes the sums of metrics
    buffer.add = unseen  # type: ignore[method-assign]
    return {
        "step": counted(rollout.step),
        "update": counted(update(False)),
        "update that does more": counted(update(True)),
    }


def table() -> str:
    """Three rows an agent."""
    rows = (
        f"| {agent} | {name} | {work.operations} | {work.bytes:,} | {work.flops / 1e6:.1f} "
        f"| {work.microseconds:.1f} |"
        for agent in CONFIGS
        for name, work in operations(agent).items()
    )
    return "\n".join(
        [
            "| agent | work | operations | bytes | MFLOP | µs at least |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
            *rows,
        ]
    )


if __name__ == "__main__":
    print(table())
