"""The numbers of a buffer's state: one block of 64-bit words, on the buffer's device.

A kernel gets everything that varies from here, so nothing is frozen when a step is captured, and
saving the block saves the random state. Words from FLOATS on are float64, the others int64; both
are views of the same memory.

    N capacity   E lanes (environments)   n steps folded into one row   s exponent of the mass scale
"""

# Where things are (addresses mean something on the CPU only and are not saved).
ROWS, PENDING, LANES, LEAVES, SUMS, MINS, MAXS, USES, AGE_COUNTS, REUSE_COUNTS = range(10)
GAMMAS, COLUMNS, ERRORS = range(10, 13)

# What was chosen at construction.
CAPACITY = 13
ROW_BYTES = 14
NEXT_OFFSET = 15
NEXT_BYTES = 16
NUM_COLUMNS = 17  # gathered into a batch
NUM_LANES = 18
N_STEP = 19
AUTORESET = 20
WEIGHTING = 21  # UNIFORM, PROPORTIONAL or RANKED
STRATIFIED = 22
NORMALIZE = 23
NEW_PRIORITY = 24
BAD_PRIORITY = 25
NUM_LEAVES = 26  # of the tree, padded
NUM_LEVELS = 27
LEVEL_0 = 28  # first node of each level, and behind them the number of nodes
TRACK_REUSE = 40
REWARD_OFFSET = 41
DISCOUNT_OFFSET = 42
TERMINATED_OFFSET = 43
TRUNCATED_OFFSET = 44
UNIFORM_SHARE = 45  # of 2^63: draws that are uniform although there are priorities
RESORT_EVERY = 46  # updates from one sort by rank to the next
WINDOW = 47  # ALL_ROWS, LAST_ROWS or ERE
WINDOW_ROWS = 48  # rows of LAST_ROWS, fewest of ERE
SWEEP_LENGTH = 49  # K, training samples of a sweep of ERE
WINDOW_OF_CAPACITY = 50  # whether ERE shrinks from the capacity, not from the rows present
DEMO_MODE = 51  # ONE_POOL or TWO_PARTS
MIXTURE_WEIGHTS = 52

# Where frames are that are kept once; 0 in a buffer that keeps none.
FRAMES, FRAME_WORDS, STACKS = 53, 54, 55

# What changes.
NEXT_ID = 56  # id of the next row written
BASE_ID = 57  # id whose slot is the first of the ring; moves when the buffer is cleared
SEED = 58
DRAWS = 59  # random numbers used by training samples
EVAL_DRAWS = 60  # and by all others
PROGRESS = 61  # training samples so far, or what set_progress said
TOTAL = 62  # sum of all leaf masses
SCALE = 63  # s: mass = leaf * 2^s, truncated
RING_START = 64  # slots in front of the ring, for demonstrations
RING_CAPACITY = 65
DEMO_FIRST_ID = 66
DEMO_COUNT = 67  # rows pinned at once: slots 0..DEMO_COUNT - 1
DEMO_ADDED = 68  # rows pinned one by one later, in the slots behind
SWEEP = 69  # training samples since the sweep of ERE began
UPDATES = 70  # calls of update since the last sort by rank
ADDED_FIRST_ID = 71  # id of the first of DEMO_ADDED; moves when the buffer is cleared

# Counters of what was repaired, skipped or dropped.
SAMPLES = 72
SAMPLED_ROWS = 73
UPDATED_ROWS = 74
BAD_PRIORITIES = 75
STALE_UPDATES = 76
CLAMPED_PRIORITIES = 77
CLIPPED_WEIGHTS = 78
RESET_ROWS = 79
RESCALES = 80
OUT_OF_RANGE = 81
SORTS = 82
RANGE_ROWS_GONE = 83
EMPTY_SAMPLES = 84  # on CUDA, where a batch of nothing is not refused
EVICTED_ROWS = 85  # dropped before others took their slots: frames of theirs were overwritten

OLDEST_ID = 86  # rows of the ring with smaller ids are gone, see EVICTED_ROWS

# float64
FLOATS = 88
ALPHA = 88
EPS = 89
BETA_START = 90
BETA_END = 91
BETA_STEPS = 92
WEIGHT_CLIP = 93
MAX_LEAF = 94  # largest leaf that any update has set; 0 before the first
DEMO_BONUS = 95
ETA_START = 96
ETA_END = 97
ETA_STEPS = 98
DEMO_SHARE_START = 99
DEMO_SHARE_END = 100
DEMO_SHARE_STEPS = 101
DEMO_CARRY = 102  # of a demonstration that the batches so far owe

NUM_WORDS = 104
FIRST_SAVED = NEXT_ID
MAX_LEVELS = 11

# Values of the choices above.
UNIFORM, PROPORTIONAL, RANKED = 0, 1, 2
ALL_ROWS, LAST_ROWS, ERE = 0, 1, 2
ONE_POOL, TWO_PARTS = 0, 1
NO_NORMALIZER, BATCH_NORMALIZER, BUFFER_NORMALIZER = 0, 1, 2
MAX_SEEN, MAX_CURRENT = 0, 1
KEEP_BAD, MAX_BAD, RAISE_BAD = 0, 1, 2
AUTORESET_DISABLED, AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP = 0, 1, 2

FIRST_ADDED_ID = 1 << 62  # ids of demonstrations that were pinned one by one

# Words of one gathered column: where it lies in a row, bytes there, bytes in a batch, conversion.
# Of a column of stacked frames a row has their ids, at that place; the bytes are those of all.
COLUMN_OFFSET, COLUMN_BYTES, COLUMN_BATCH_BYTES, COLUMN_CONVERSION, COLUMN_STACK = range(5)
COLUMN_WORDS = 5

# Words of one lane: steps waiting for their window to fill, the first of them, the lane's last row
# in this episode (-1: none), and whether the next step is the fake one of a next-step autoreset.
LANE_COUNT, LANE_START, LANE_LAST, LANE_RESET, LANE_WORDS = 0, 1, 2, 3, 4

# Words of the frames: how many there is room for, bytes of one and from one to the next, how many a
# stack has, where a packed step has its stacks and a row their ids, and how far a row may be behind
# older ones whose frames are younger: in rows, and in frames (see `ops.frames`).
NUM_FRAMES, FRAME_SIZE, FRAME_BYTES, STACK, STEP_OBS, STEP_NEXT, ROW_OBS, ROW_NEXT = range(8)
ROWS_BEHIND, FRAMES_BEHIND = 8, 9
# Those that change: the id of the next frame; the id whose slot is the first of the ring of frames,
# and the slots in front of that, for frames of demonstrations, with the id of the first of them.
NEXT_FRAME, FRAME_BASE, FRAME_START, DEMO_FIRST_FRAME = range(10, 14)
# What a row takes over of a step besides: how many runs of bytes, and for each the first byte in
# the step, that in the row, and how many.
NUM_MOVES, FIRST_MOVE, MOVE_WORDS = 14, 15, 3

# Streams of random numbers, the third word of the Philox counter.
TRAIN_STREAM, EVAL_STREAM = 0, 1

# Outcomes of a call that refuses before it changes anything.
OK, NOTHING_TO_DRAW, UNKNOWN_ID, NOT_A_PRIORITY = 0, 1, 2, 3

# The tree: float32 leaves, 16 a node of the lowest level, then 8 nodes a node. A leaf is 0 or in
# [2^-40, 2^40].
LEAF_BITS, NODE_BITS = 4, 3
SMALLEST_LEAF, LARGEST_LEAF = 2.0**-40, 2.0**40
HIGHEST_TOTAL = 61  # the total stays below 2^62, so that sums of masses fit 63 bits

HISTOGRAM_BINS = 64  # bin 0 counts the value 0, bin k values in [2^(k-1), 2^k)
