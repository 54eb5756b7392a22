"""The numbers of a buffer's state: one block of 64-bit words, on the buffer's device.

A kernel gets everything that varies from here, so nothing is frozen when a step is captured, and
saving the block saves the random state. Words from FLOATS on are float64, the others int64; both
are views of the same memory.

    N capacity   E lanes (environments)   n steps folded into one row   s exponent of the mass scale
"""

# Where things are (addresses mean something on the CPU only and are not saved).
ROWS, PENDING, LANES, LEAVES, SUMS, MINS, MAXS, USES, AGE_COUNTS, REUSE_COUNTS, GAMMAS, COLUMNS = (
    range(12)
)

# What was chosen at construction.
CAPACITY = 12
ROW_BYTES = 13
NEXT_OFFSET = 14
NEXT_BYTES = 15
NUM_COLUMNS = 16  # gathered into a batch
NUM_LANES = 17
N_STEP = 18
AUTORESET = 19
WEIGHTING = 20  # UNIFORM or PROPORTIONAL
STRATIFIED = 21
NORMALIZE = 22
NEW_PRIORITY = 23
BAD_PRIORITY = 24
NUM_LEAVES = 25  # of the tree, padded
NUM_LEVELS = 26
LEVEL_0 = 27  # first node of each level, and behind them the number of nodes
TRACK_REUSE = 39
REWARD_OFFSET = 40
DISCOUNT_OFFSET = 41
TERMINATED_OFFSET = 42
TRUNCATED_OFFSET = 43

# What changes.
NEXT_ID = 48  # id of the next row written
BASE_ID = 49  # id whose slot is the first of the ring; moves when the buffer is cleared
SEED = 50
DRAWS = 51  # random numbers used by training samples
EVAL_DRAWS = 52  # and by sample(train=False)
PROGRESS = 53  # training samples so far, or what set_progress said
TOTAL = 54  # sum of all leaf masses
SCALE = 55  # s: mass = leaf * 2^s, truncated

# Counters of what was repaired, skipped or dropped.
SAMPLES = 56
SAMPLED_ROWS = 57
UPDATED_ROWS = 58
BAD_PRIORITIES = 59
STALE_UPDATES = 60
CLAMPED_PRIORITIES = 61
CLIPPED_WEIGHTS = 62
RESET_ROWS = 63
RESCALES = 64
OUT_OF_RANGE = 65

# float64
FLOATS = 72
ALPHA = 72
EPS = 73
BETA_START = 74
BETA_END = 75
BETA_STEPS = 76
WEIGHT_CLIP = 77
MAX_LEAF = 78  # largest leaf that any update has set; 0 before the first

NUM_WORDS = 80
FIRST_SAVED = NEXT_ID
MAX_LEVELS = 11

# Values of the choices above.
UNIFORM, PROPORTIONAL = 0, 1
NO_NORMALIZER, BATCH_NORMALIZER, BUFFER_NORMALIZER = 0, 1, 2
MAX_SEEN, MAX_CURRENT = 0, 1
KEEP_BAD, MAX_BAD, RAISE_BAD = 0, 1, 2
AUTORESET_DISABLED, AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP = 0, 1, 2

# Words of one gathered column: where it lies in a row, bytes there, bytes in a batch, conversion.
COLUMN_OFFSET, COLUMN_BYTES, COLUMN_BATCH_BYTES, COLUMN_CONVERSION, COLUMN_WORDS = 0, 1, 2, 3, 4

# Words of one lane: steps waiting for their window to fill, the first of them, the lane's last row
# in this episode (-1: none), and whether the next step is the fake one of a next-step autoreset.
LANE_COUNT, LANE_START, LANE_LAST, LANE_RESET, LANE_WORDS = 0, 1, 2, 3, 4

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
