"""What each call has to launch, read and write on a GPU, and the time that its memory takes.

    N rows   B drawn   R bytes of a packed row   b bytes of a row in a batch
    L levels of nodes above N leaves: 16 leaves a node, then 8 nodes a node

Memory moves in sectors of 32 bytes; a node (8 sums of 8 bytes, or 16 leaves of 4) is two of them.
Nodes of a level that several draws share are counted once: of a level with n nodes at most
min(B, n).

`depth` is the number of reads of which each waits for the one before. It bounds small calls, for
which the bytes cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from relive import Field
from relive.batch import BatchLayout
from relive.fields import Fields, RowLayout
from relive.ops.tree.shape import level_sizes
from relive.storage.memory import ROW_ALIGNMENT

H200 = 4.3e12  # bytes a second that a copy reads and writes, of 4.8 in the data sheet
SECTOR, NODE = 32, 64
FEW = 16  # steps that one program writes
MOST_TOGETHER = 4096  # rows of an update that one program takes in
W1: Fields = {"obs": Field((17,)), "action": Field((6,))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of one call.

    Attributes:
        launches: A test counts them.
        bytes: That have to be read and written.
        depth: Reads one after another.
    """

    name: str
    launches: int
    bytes: int
    depth: int

    def microseconds(self, bandwidth: float = H200) -> float:
        """That the memory alone takes, at so many bytes a second."""
        return self.bytes / bandwidth * 1e6


def row_bytes(fields: Fields) -> int:
    """R: of a packed row on a GPU."""
    return RowLayout(fields, ROW_ALIGNMENT["cuda"]).row_bytes


def batch_bytes(fields: Fields) -> int:
    """b: of one row of a batch, its id and weight with it."""
    layout = BatchLayout(RowLayout(fields, ROW_ALIGNMENT["cuda"]))
    return sum(field.nbytes for field in layout.columns.values())


def nodes_touched(capacity: int, rows: int) -> int:
    """Nodes and groups of leaves that the paths of so many rows can lead through.

    >>> nodes_touched(1_000_000, 1), nodes_touched(1_000_000, 256)
    (7, 1042)
    """
    below_a_node = [max(1, size // 8) for size in level_sizes(capacity)]
    return rows + sum(min(rows, count) for count in below_a_node)


def step_bytes(fields: Fields) -> int:
    """Of one step as it is given: fields, reward and flags, with nothing between them."""
    columns = RowLayout(fields).columns.values()
    links = ("lane", "prev", "next", "discount")
    return sum(column.nbytes for column in columns if column.name not in links)


def add(
    fields: Fields, capacity: int, rows: int, *, prioritized: bool, on_device: bool = False
) -> Budget:
    """One step of `rows` environments, without n-step returns.

    The step is read where it was put down: packed, from the host, or as tensors on the device; the
    row is written once; new leaves and their sums are read and written.
    """
    moved = rows * ((step_bytes if on_device else row_bytes)(fields) + row_bytes(fields))
    if prioritized:
        moved += 2 * SECTOR * nodes_touched(capacity, rows)
    return Budget(
        name=f"add {rows}{' from tensors' * on_device}, "
        f"{'prioritized' if prioritized else 'uniform'}",
        launches=1 if rows <= FEW else 2,
        bytes=moved,
        depth=2,
    )


def sample(fields: Fields, capacity: int, rows: int, *, prioritized: bool) -> Budget:
    """A batch with its weights, gathered: nodes on the way down, the rows, the fields written."""
    moved = rows * (row_bytes(fields) + batch_bytes(fields))
    depth = 2  # the words, then the row
    if prioritized:
        moved += NODE * nodes_touched(capacity, rows)
        depth += len(level_sizes(capacity)) + 1
    return Budget(
        name=f"sample {rows}, {'prioritized' if prioritized else 'uniform'}",
        launches=2,
        bytes=moved,
        depth=depth,
    )


def update(capacity: int, rows: int) -> Budget:
    """New priorities: ids and errors, a leaf and a mark of each row, the sums above them."""
    moved = rows * (8 + 4 + 2 * SECTOR) + 2 * SECTOR * nodes_touched(capacity, rows)
    return Budget(
        name=f"update {rows}",
        launches=1 if rows <= MOST_TOGETHER else 5,
        bytes=moved,
        depth=3,
    )


def budgets(fields: Fields = W1, capacity: int = 1_000_000) -> list[Budget]:
    """The calls of the table in docs/cuda.md."""
    return [
        add(fields, capacity, 1, prioritized=False),
        add(fields, capacity, 1, prioritized=True),
        add(fields, capacity, 64, prioritized=True),
        add(fields, capacity, 1, prioritized=False, on_device=True),
        add(fields, capacity, 1, prioritized=True, on_device=True),
        add(fields, capacity, 64, prioritized=True, on_device=True),
        sample(fields, capacity, 256, prioritized=False),
        sample(fields, capacity, 256, prioritized=True),
        sample(fields, capacity, 4096, prioritized=True),
        sample(fields, capacity, 1_000_000, prioritized=False),
        update(capacity, 256),
        update(capacity, 4096),
        update(capacity, 65_536),
    ]


def table(entries: list[Budget], bandwidth: float = H200) -> str:
    """In Markdown."""
    lines = [
        "| call | launches | bytes | memory alone, µs | reads in a row |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {e.name} | {e.launches} | {e.bytes:,} | {e.microseconds(bandwidth):.4f} | {e.depth} |"
        for e in entries
    ]
    return "\n".join(lines)
