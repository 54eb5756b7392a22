"""Operations on a buffer's state, as pure functions on arrays.

One folder an operation; in each, `reference.py` is the definition (plain torch, slow, obvious, any
device) and `cpu.py` the same in Numba. Both work on the one `State` of `state.py`, whose numbers
are laid out in `words.py`; `dispatch.py` says which is used where. Equal inputs give equal bits.
"""
