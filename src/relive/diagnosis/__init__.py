"""What this machine offers, whether the buffer works on it, and how fast it is.

`relive doctor` shows it. Needs what the buffer needs: torch, numpy and numba.
"""

from relive.diagnosis.findings import Findings, diagnose

__all__ = ["Findings", "diagnose"]
