"""Operations on a buffer's state, as pure functions on arrays.

One folder an operation, or a step of some; in each, `reference.py` is the definition (plain torch,
slow, obvious, any device), `cpu.py` the same in Numba and `cuda.py` in Triton. Where a step has no
definition of its own, that of the operation says what it does.

    sample    parts of a batch in a window -> draw (descent of the tree) -> weights -> gather
    update    decide which leaves change -> the tree, and its nodes
    write     pack -> lanes -> rows -> enter their leaves into the tree

All work on the one `State` of `state.py`, whose numbers are laid out in `words.py`; `dispatch.py`
says which is used where. Equal inputs give equal bits.
"""
