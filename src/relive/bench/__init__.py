"""Speed of the buffer beside that of other libraries, measured in one run.

`compare` runs it; `relive bench` and `make bench` are its commands, `benchmarks/README.md` says how
it is measured.
"""

from relive.bench.comparison import Plan, compare
from relive.bench.environments import PEERS, find_peers
from relive.bench.targets import judge
from relive.bench.workloads import WORKLOADS

__all__ = ["PEERS", "WORKLOADS", "Plan", "compare", "find_peers", "judge"]
