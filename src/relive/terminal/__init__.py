"""What a run looks like in a terminal: sentences, a bar, curves made of characters.

Knows numbers and rich, neither torch nor files: training shows itself with it, and `relive watch`
shows the training of another process.
"""
