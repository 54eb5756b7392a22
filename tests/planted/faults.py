"""Faults to be planted one at a time, and where the suite should notice each.

A fault is an exact piece of a source and what takes its place. Each is of a kind that users of
replay buffers have reported. A piece that is not there exactly once fails at once, so that a fault
cannot stop being planted unseen.
"""

from __future__ import annotations

from typing import NamedTuple

PROPERTIES = "tests/properties/test_random_calls.py"
COMPILED = f"{PROPERTIES}::test_a_buffer_does_what_its_twin_does"
REFERENCE = f"{PROPERTIES}::test_the_reference_does_what_the_twin_does"
FRAMES = "tests/properties/test_frames.py"
HINDSIGHT = "tests/properties/test_hindsight.py"
SAVING = "tests/unit/storage/test_saving.py"
PINNED = "tests/unit/storage/test_demonstrations.py"
PRIORITIES = "tests/faults/test_F05_F26_F27_F28_F33_F37_F38_priorities.py"
N_STEP = "tests/faults/test_F01_F02_F07_F11_F15_F22_n_step.py"
ZERO_LEAVES = "tests/statistics/test_zero_leaves.py"
TREE = "tests/faults/test_F17_F18_F19_F20_F21_F23_F24_tree.py"
POLICIES = "tests/faults/test_F13_F14_F32_policies.py"
AUTORESET = "tests/unit/writing/test_autoreset.py"
GPU = "tests/triton/interpreted"
NO_WAITS = f"{GPU}/test_table.py::test_where_the_table_says_no_the_host_does_not_wait"
VALUES = "tests/faults/test_F03_F04_F08_F10_stored_values.py"


class Fault(NamedTuple):
    """One edit of one file below `src/relive`, and the tests that are to fail by it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    # The compiled kernels.
    Fault(
        "the search of the tree is closed: it can draw a leaf of zero, and misses the last",
        "ops/nodes/vectors.py",
        'passed = builder.icmp_signed("<=", prefix',
        'passed = builder.icmp_signed("<", prefix',
        (f"{TREE}::test_F18_the_last_unit_of_mass_belongs_to_the_last_live_row",),
    ),
    Fault(
        "of several errors for a row the first decides",
        "ops/decide/cpu.py",
        "for i in range(slots.shape[0] - 1, -1, -1):\n        slot = slots[i]",
        "for i in range(slots.shape[0]):\n        slot = slots[i]",
        (f"{PRIORITIES}::test_F38_the_last_of_several_errors_for_a_row_decides",),
    ),
    Fault(
        "a late priority lands on the row that took the place",
        "ops/decide/cpu.py",
        "if is_cleared or (ids[i] < oldest and not is_pinned):",
        "if is_cleared:",
        (f"{PRIORITIES}::test_F05_a_late_priority_for_an_overwritten_row_is_skipped_and_counted",),
    ),
    Fault(
        "eps is added after the exponent",
        "ops/decide/cpu.py",
        "            magnitude = abs(np.float64(values[i])) + eps\n"
        "            magnitude += bonus if slots[i] < start else 0.0\n"
        "            usable = (magnitude > 0.0) & (magnitude < np.inf)\n"
        "            bases[i] = magnitude if usable else 0.0\n"
        "        powers(bases, alpha, new)\n"
        "        for i in range(values.shape[0]):\n"
        "            leaf = max(new[i], np.float32(0.5) * SMALLEST)",
        "            magnitude = abs(np.float64(values[i]))\n"
        "            magnitude += bonus if slots[i] < start else 0.0\n"
        "            usable = (magnitude > 0.0) & (magnitude < np.inf)\n"
        "            bases[i] = magnitude if usable else 0.0\n"
        "        powers(bases, alpha, new)\n"
        "        for i in range(values.shape[0]):\n"
        "            leaf = max(new[i], np.float32(0.5) * SMALLEST) + np.float32(eps)",
        (f"{COMPILED}[proportional]",),
    ),
    Fault(
        "a bad number gets into the sums",
        "ops/decide/cpu.py",
        "asked[i] = held if good else bad_leaf",
        "asked[i] = held if good else leaf",
        (f"{PRIORITIES}::test_F37_a_bad_error_keeps_the_leaf_and_is_counted",),
    ),
    Fault(
        "the bonus of demonstrations is for all rows",
        "ops/decide/cpu.py",
        "magnitude += bonus if slots[i] < start else 0.0",
        "magnitude += bonus",
        (f"{PINNED}::test_the_bonus_of_demonstrations_is_added_before_the_exponent",),
    ),
    Fault(
        "n-step windows run over the end of an episode",
        "ops/lanes/cpu.py",
        "    if ended:\n        emit_all(words, lane, lane_words, waiting)\n",
        "    if ended and lane_words[w.LANE_COUNT] == 1:\n"
        "        emit_all(words, lane, lane_words, waiting)\n",
        (f"{N_STEP}::test_F02_no_reward_from_after_the_terminal_step_is_in_a_return",),
    ),
    Fault(
        "the last rows of an episode are lost",
        "ops/lanes/cpu.py",
        "for left in range(lane_words[w.LANE_COUNT], 0, -1):",
        "for left in range(lane_words[w.LANE_COUNT], 1, -1):",
        (f"{N_STEP}::test_F11_the_end_of_an_episode_gives_each_start_once_and_no_more",),
    ),
    Fault(
        "a time limit masks the bootstrap of a window",
        "ops/rows/cpu.py",
        "np.float32(0) if terminated else np.float32(gammas[count])",
        "np.float32(0) if terminated | truncated else np.float32(gammas[count])",
        (f"{N_STEP}::test_F02_a_truncated_window_is_as_short_and_still_bootstraps",),
    ),
    Fault(
        "a time limit masks the bootstrap of a single step",
        "ops/rows/cpu.py",
        "    terminated = flag_at(row + words[w.TERMINATED_OFFSET])[0]\n"
        "    discount = np.float32(0) if terminated",
        "    terminated = flag_at(row + words[w.TRUNCATED_OFFSET])[0]\n"
        "    discount = np.float32(0) if terminated",
        (f"{VALUES}::test_F04_truncation_bootstraps_and_termination_does_not",),
    ),
    Fault(
        "a row links to the next episode of its lane",
        "ops/lanes/cpu.py",
        "        if has_ended(words, row):\n            lane_words[w.LANE_LAST] = -1\n",
        "        if has_ended(words, row):\n",
        (f"{COMPILED}[uniform, one step]",),
    ),
    Fault(
        "the oldest row of a full ring is left out",
        "ops/window/cpu.py",
        "return max(first, words[w.NEXT_ID] - words[w.RING_CAPACITY])",
        "return max(first, words[w.NEXT_ID] - words[w.RING_CAPACITY] + 1)",
        (f"{N_STEP}::test_F22_the_first_and_last_row_of_a_full_uniform_ring_are_drawn",),
    ),
    Fault(
        "a row that overwrites the one before it links to itself",
        "ops/rows/cpu.py",
        "if distance > 0 and distance < words[w.RING_CAPACITY]",
        "if distance > 0 and distance <= words[w.RING_CAPACITY]",
        (f"{COMPILED}[proportional, alpha 0, one row]",),
    ),
    Fault(
        "the fake step of a next-step autoreset is stored",
        "ops/lanes/cpu.py",
        "        if every_lane[lane, w.LANE_RESET]:",
        "        if every_lane[lane, w.LANE_RESET] > 1:",
        (f"{AUTORESET}::test_fake_reset_steps_are_dropped_and_counted",),
    ),
    Fault(
        "a new row keeps the use count of the one before it",
        "ops/rows/cpu.py",
        "    uses[slot] = 0\n",
        "",
        (f"{COMPILED}[uniform, one step]",),
    ),
    Fault(
        "weights are not divided by the largest",
        "ops/weights/cpu.py",
        "ratios[i] = np.float64(leaves[i]) / np.float64(smallest)",
        "ratios[i] = np.float64(leaves[i])",
        (f"{COMPILED}[proportional]",),
    ),
    Fault(
        "beta enters twice",
        "ops/weights/cpu.py",
        "powers(ratios, -beta, weights)",
        "powers(ratios, -beta * beta, weights)",
        (f"{COMPILED}[proportional]",),
    ),
    Fault(
        "the last numbers of a batch are raised to no power",
        "ops/power/cpu.py",
        "for i in range(whole, count):",
        "for i in range(count, count):",
        ("tests/equivalence/test_numbers.py::test_powers_of_any_number_of_bases_are_the_same",),
    ),
    Fault(
        "a walk along a level takes the first unit of a node's mass for the node before",
        "ops/descent/cpu.py",
        "while i < targets.shape[0] and targets[i] < end:",
        "while i < targets.shape[0] and targets[i] <= end:",
        (f"{ZERO_LEAVES}::test_the_first_and_last_unit_of_mass_of_every_row_are_its_own",),
    ),
    Fault(
        "a slice of a batch holds neighbouring strata",
        "ops/draw/cpu.py",
        "mirrored = np.int64(reverse_bits(j) >> np.uint64(64 - k))",
        "mirrored = j & ((1 << k) - 1)",
        (f"{COMPILED}[proportional]",),
    ),
    Fault(
        "what a batch owes to demonstrations is dropped",
        "ops/parts/cpu.py",
        "return 2, wanted - np.float64(count)",
        "return 2, 0.0",
        (f"{PINNED}::test_what_a_batch_owes_the_next_one_pays",),
    ),
    Fault(
        "the window of ERE shrinks with the updates, not with a thousandth of the sweep",
        "ops/window/cpu.py",
        "exponent = number * 1000.0 / np.float64(words[w.SWEEP_LENGTH])",
        "exponent = number",
        ("tests/unit/sampling/test_windows.py::test_a_window_shrinks_over_a_sweep",),
    ),
    Fault(
        "the newest row is never drawn",
        "ops/draw/cpu.py",
        "    rows = np.uint64(part[ROWS])\n    if part[RUNS] == 1",
        "    rows = np.uint64(max(1, part[ROWS] - 1))\n    if part[RUNS] == 1",
        (f"{N_STEP}::test_F22_the_first_and_last_row_of_a_full_uniform_ring_are_drawn",),
    ),
    Fault(
        "ranks are given to rising errors",
        "ops/rank/reference.py",
        "torch.sort(state.errors[slots], descending=True",
        "torch.sort(state.errors[slots], descending=False",
        (f"{POLICIES}::test_F32_probabilities_follow_the_ranks",),
    ),
    # The definitions.
    Fault(
        "the uniform share is left out of the weights",
        "ops/weights/reference.py",
        "a, b = (1.0 - uniform) * 2.0",
        "a, b = 2.0",
        (f"{REFERENCE}[proportional, shrinking window, four environments]",),
    ),
    Fault(
        "the return of a window is summed with the discount of its length",
        "ops/write/reference.py",
        "gamma, reward = float(state.gammas[1]), 0.0",
        "gamma, reward = float(state.gammas[count]), 0.0",
        (f"{REFERENCE}[uniform, three steps]",),
    ),
    # Writing and sampling, in Python.
    Fault(
        "at an episode's end the first observation of the next is stored",
        "writing/autoreset.py",
        "        return dense[lanes]\n",
        "        return dense[[0] * len(lanes)]\n",
        (AUTORESET,),
    ),
    Fault(
        "a final observation that is missing is not missed",
        "writing/step.py",
        'return self._packer.pack_lanes("next_obs", value, lanes)',
        "return 0",
        (AUTORESET,),
    ),
    Fault(
        "hindsight takes goals of steps that were before",
        "writing/relabelling.py",
        'torch.arange(count)[:, None] if strategy == "future" else torch.tensor(0)',
        "torch.tensor(0)",
        (HINDSIGHT,),
    ),
    Fault(
        "a window goes on behind its end under another goal",
        "writing/relabelling.py",
        "    there &= np.cumsum(ends, 1) - ends == 0  # no step before is terminal\n",
        "",
        (HINDSIGHT,),
    ),
    Fault(
        "the next observation keeps the goal it was after",
        "writing/relabelling.py",
        'for field in ("obs", "next_obs")',
        'for field in ("obs",)',
        (HINDSIGHT,),
    ),
    Fault(
        "the fake step of an autoreset is one of hindsight's episode",
        "hindsight.py",
        "if not is_fake]",
        "if True]",
        (HINDSIGHT,),
    ),
    Fault(
        "a batch that somebody holds is written into",
        "storage/lending.py",
        "            references(batch) != BATCH_ALONE\n            or",
        "            False\n            or",
        ("tests/unit/storage/test_lending.py",),
    ),
    Fault(
        "a batch has what was made an attribute of a tensor of the one before",
        "storage/lending.py",
        "                or view.__dict__\n",
        "",
        ("tests/unit/storage/test_lending.py",),
    ),
    Fault(
        "reseeding goes on from the middle of the stream",
        "buffer.py",
        "            self._state.put(w.DRAWS, 0)\n",
        "",
        (f"{COMPILED}[uniform, one step]",),
    ),
    Fault(
        "clear keeps the largest priority",
        "storage/ring.py",
        "    state.put(w.MAX_LEAF, 0.0)\n",
        "",
        (PRIORITIES,),
    ),
    Fault(
        "rows that are pinned are overwritten",
        "storage/demonstrations.py",
        "    state.words[w.RING_START] = count + reserve\n",
        "    state.words[w.RING_START] = reserve\n",
        (PINNED,),
    ),
    Fault(
        "a copy among the demonstrations has the priority of a new row",
        "storage/demonstrations.py",
        "operations.set_leaves(state, slots, state.leaves[source])",
        "operations.set_leaves(state, slots, torch.ones(len(ids)))",
        (PINNED,),
    ),
    Fault(
        "rows of a range that were overwritten are not counted",
        "ops/window/cpu.py",
        "    return written - held\n",
        "    return 0\n",
        ("tests/unit/sampling/test_ranges.py",),
    ),
    Fault(
        "ids of a mixture go to the first buffer",
        "mixture.py",
        "return torch.where(ids < 0, ids, rest + (number << SOURCE_BITS))",
        "return rest",
        ("tests/unit/test_mixture.py",),
    ),
    # On the way to a GPU and back.
    Fault(
        "pinned memory is used again while its copy is under way",
        "gpu/pinned.py",
        "            if slot.is_free():\n",
        "            if True:\n",
        ("tests/unit/gpu/test_pinned.py",),
    ),
    Fault(
        "the host reads before its numbers have arrived",
        "gpu/readback.py",
        "                slot.wait()\n",
        "                pass\n",
        ("tests/unit/gpu/test_readback.py",),
    ),
    Fault(
        "a batch is used before its copy has arrived",
        "sampling/prefetch.py",
        "            stream.wait_event(drawn.event)\n",
        "",
        ("tests/unit/gpu/test_from_ram.py",),
    ),
    Fault(
        "batches drawn ahead are forgotten on resuming",
        "training/loop.py",
        '            self._batches.load_state_dict(state["batches"])\n',
        "            pass\n",
        ("tests/unit/training/test_resume.py",),
    ),
    # A buffer on a GPU.
    Fault(
        "the host looks at the ids of an update",
        "buffer.py",
        '        wanted = vector("ids", ids, torch.int64, self._home.device)\n',
        '        wanted = vector("ids", ids, torch.int64, self._home.device)\n'
        "        if len(wanted) and wanted.min().item() < -1:\n"
        '            raise InputError("an id is negative")\n',
        (f"{NO_WAITS}[proportional]",),
    ),
    Fault(
        "final observations are put in place by a mask",
        "writing/device_intake.py",
        "columns[name] = torch.where(where, value, given)",
        "columns[name] = given.masked_scatter(where, value[over])",
        (f"{NO_WAITS}[same step]",),
    ),
    Fault(
        "a word is set by a copy from the host",
        "buffer.py",
        "            self._state.put(w.PROGRESS, t)\n",
        "            self._state.words[w.PROGRESS] = t\n",
        (f"{NO_WAITS}[uniform]",),
    ),
    Fault(
        "how many rows there are goes to a kernel by value",
        "home.py",
        "            total=len(batch),\n",
        "            total=max(len(batch), self.intake.rows),\n",
        (f"{GPU}/test_public_launches.py::test_whatever_varies_a_call_launches_the_same",),
    ),
    Fault(
        "a step that is on its way to the GPU is packed over",
        "writing/device_intake.py",
        "        self._slots.sent(slot, torch.cuda.current_stream(self._device))\n",
        "        self._slots._sent.append(slot)\n",
        (f"{GPU}/test_refusals.py::test_arrays_of_the_host_may_be_overwritten_at_once",),
    ),
    Fault(
        "a call does not wait for that of another stream",
        "gpu/turns.py",
        "        stream.wait_event(self._last)\n",
        "        pass\n",
        (f"{GPU}/test_turns.py::test_streams_take_turns_without_a_wait_of_the_host",),
    ),
    Fault(
        "a batch for the CPU is captured, and then cannot be sent",
        "buffer.py",
        '        if target.type == "cpu":\n',
        "        if False:\n",
        (f"{GPU}/test_table.py::test_what_is_refused_in_a_capture_has_changed_nothing[uniform]",),
    ),
    Fault(
        "a step keeps memory of the GPU when it has been written",
        "writing/device_intake.py",
        "        self._out_of_range = 0  # its memory is let go of\n",
        "",
        (f"{GPU}/test_public_launches.py::test_no_call_takes_memory_that_stays",),
    ),
    # Saving.
    Fault(
        "the largest priority is forgotten on loading",
        "storage/loading.py",
        "    state.words[CHANGING] = words[CHANGING]",
        "    words[w.MAX_LEAF] = 0\n    state.words[CHANGING] = words[CHANGING]",
        (SAVING,),
    ),
    Fault(
        "random streams begin anew on loading",
        "storage/loading.py",
        "    state.words[CHANGING] = words[CHANGING]",
        "    words[w.DRAWS] = 0\n    state.words[CHANGING] = words[CHANGING]",
        (SAVING,),
    ),
    Fault(
        "steps that wait for their windows are lost on loading",
        "storage/loading.py",
        'for name in ("lanes", "age_counts", "reuse_counts"):',
        'for name in ("age_counts", "reuse_counts"):',
        (SAVING,),
    ),
    Fault(
        "a later save forgets the rows that have changed since",
        "storage/snapshot.py",
        '            candidates |= {row for row in (*before["last"], *before["changed"])'
        " if row < rows.start}\n",
        "            pass\n",
        (SAVING,),
    ),
    Fault(
        "a row is overwritten while it waits to be saved",
        "storage/snapshot.py",
        "        while self._next < stop:",
        "        while False:",
        ("tests/unit/storage/test_background.py",),
    ),
    Fault(
        "a frame is taken for the one that it should be, whatever it is",
        "ops/frames/cpu.py",
        "            if differ(frame, other, nbytes) != 0:\n                known = np.int64(-1)\n",
        "            known += 0 * other\n",
        (f"{FRAMES}::test_batches_are_those_of_whole_stacks_and_rows_go_with_their_frames",),
    ),
    Fault(
        "rows stay although others have taken the slots of their frames",
        "ops/frames/cpu.py",
        "    oldest = row_id = first\n",
        "    oldest = row_id = first\n    gone = frames[w.FRAME_BASE]\n",
        (f"{FRAMES}::test_rows_are_dropped_before_their_time_where_episodes_are_short",),
    ),
    Fault(
        "of the oldest rows one is asked for its frames",
        "ops/frames/cpu.py",
        "oldest + frames[w.ROWS_BEHIND]):",
        "oldest + 1):",
        (f"{FRAMES}::test_rows_are_dropped_before_their_time_where_episodes_are_short",),
    ),
    Fault(
        "rows that were dropped are drawn",
        "ops/frames/cpu.py",
        "        fill(words, slot, oldest - first, np.float32(0))\n",
        "        pass\n",
        (f"{FRAMES}::test_rows_are_dropped_before_their_time_where_episodes_are_short",),
    ),
    Fault(
        "steps wait for ever, and others take the slots of their frames",
        "writing/intake.py",
        "            self._part(lanes, ready_made=ready_made)\n",
        "",
        (f"{FRAMES}::test_batches_are_those_of_whole_stacks_and_rows_go_with_their_frames",),
    ),
    Fault(
        "too few frames are copied before others take their slots",
        "storage/saving.py",
        "        new = most_frames(state.frame_word(w.STACK), steps)\n",
        "        new = 0\n",
        ("tests/unit/storage/test_frames.py",),
    ),
    Fault(
        "a ring of frames of another size begins where the old one did",
        "storage/loading.py",
        "        state.frame_words[w.FRAME_BASE] = _oldest_saved(state, saved)\n",
        "        pass\n",
        ("tests/unit/storage/test_frames.py",),
    ),
    Fault(
        "a checksum is not looked at",
        "storage/files.py",
        "    if crc != stored.crc32:",
        "    if False:",
        (SAVING,),
    ),
    Fault(
        "a manifest may name files outside of its folder",
        "storage/manifest.py",
        'known = OURS.fullmatch(entry["file"]) is not None',
        "known = True",
        ("tests/unit/storage/test_manifest.py",),
    ),
    Fault(
        "growing loses the priorities",
        "storage/ring.py",
        "operations.set_leaves(larger, target, state.leaves[source])",
        "operations.set_leaves(larger, target, torch.ones(len(ids)))",
        ("tests/unit/storage/test_grown.py",),
    ),
    # Learning.
    Fault(
        "priorities come from the weighted error",
        "agents/dqn.py",
        "        return Loss(mean, (q,), (slope,)), delta, q\n",
        "        return Loss(mean, (q,), (slope,)), batch.weights * delta, q\n",
        ("tests/unit/agents",),
    ),
    Fault(
        "the target network is never copied",
        "agents/dqn.py",
        "return update % self.config.target_period == 0",
        "return update % self.config.target_period == self.config.target_period",
        ("tests/unit/agents",),
    ),
    Fault(
        "a large error has a slope that is not clipped",
        "losses/td.py",
        'slope = delta.clamp(-1.0, 1.0) if kind == "huber" else delta',
        "slope = delta",
        ("tests/unit/losses",),
    ),
    Fault(
        "what goes backwards passes a ReLU that was off",
        "nn/products.py",
        "    relu_backward(slope, x, 0, grad_input=slope)\n",
        "",
        ("tests/unit/nn",),
    ),
    Fault(
        "a step of an environment that failed is not taken back",
        "training/rollout.py",
        "return all(copy.take_back(*standing) for copy, standing in pairs)",
        "return False",
        ("tests/unit/training",),
    ),
    Fault(
        "the actions of a step that failed are chosen again",
        "training/rollout.py",
        '            "action": self._action,\n',
        "",
        ("tests/unit/training",),
    ),
    Fault(
        "the weight enters the square",
        "losses/td.py",
        "return weighted_mean(loss(delta), weights)",
        "return loss(weights * delta).mean()",
        ("tests/unit/losses", "tests/unit/agents"),
    ),
    Fault(
        "double DQN takes the best action of the target network",
        "agents/dqn.py",
        "best = self.online(next_obs).argmax(1, keepdim=True)",
        "best = self.target(next_obs).argmax(1, keepdim=True)",
        ("tests/unit/agents",),
    ),
    Fault(
        "a terminal row is bootstrapped from itself",
        "losses/td.py",
        "torch.where(discount == 0, reward,",
        "torch.where(discount < 0, reward,",
        ("tests/unit/losses",),
    ),
)
