"""The real program with tiny settings: `relive train`, as a user starts it."""

import json
import signal
import subprocess
import sys

import pytest

PROGRAM = [sys.executable, "-c", "from relive.cli.main import main; raise SystemExit(main())"]
TINY = [
    *("train", "dqn", "--env", "CartPole-v1", "--device", "cpu", "--log-every", "100"),
    *("--learning-starts", "100", "--eval-episodes", "2", "--replay.capacity", "300"),
    *("--train-every", "4", "--updates-per-train", "1", "--agent.hidden", "16"),
]


def start(tmp_path, *options):
    return subprocess.Popen(
        [*PROGRAM, *TINY, "--out", str(tmp_path / "run"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def records(tmp_path):
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


WINDOW = {
    "uniform": ["--replay.window", "ere", "--replay.window-rows", "100", "--replay.sweep", "50"],
    "proportional": [],
    "rank": ["--replay.window", "recent", "--replay.window-rows", "200"],
}


@pytest.mark.parametrize("sampler", ["uniform", "proportional", "rank"])
def test_training_from_the_command_line_leaves_a_whole_run(tmp_path, sampler):
    program = start(tmp_path, "--total-steps", "500", "--replay.sampler", sampler, *WINDOW[sampler])
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, errors
    assert "greedy return over 2 episodes" in output
    assert {"config.json", "metrics.jsonl", "policy.safetensors"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert records(tmp_path)[-1]["record"] == "run_ended"
    assert records(tmp_path)[-1]["updates"] == 100


def test_a_run_begins_without_the_compiler_of_torch(tmp_path):
    # nobody asked for it, and it takes seconds to import
    words = [*TINY, "--total-steps", "200", "--threads", "auto", "--out", str(tmp_path / "run")]
    check = (
        "import sys; from relive.cli.main import main; main(sys.argv[1:]); "
        "print(*{'torch._dynamo', 'sympy'} & {*sys.modules}, file=sys.stderr)"
    )
    program = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", check, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert program.stderr.split() == []


def test_training_goes_on_when_nobody_reads_its_output_any_more(tmp_path):
    program = start(tmp_path, "--total-steps", "600")
    for line in program.stdout:
        if line.startswith("step"):
            break
    program.stdout.close()  # as `| head` does
    with program.stderr:
        errors = program.stderr.read()
    assert program.wait(timeout=120) == 0, errors
    assert records(tmp_path)[-1]["record"] == "run_ended"
    assert not records(tmp_path)[-1]["interrupted"]
    assert (tmp_path / "run" / "report.html").is_file()


def test_ctrl_c_ends_the_program_cleanly_and_keeps_the_run(tmp_path):
    program = start(tmp_path, "--total-steps", "100_000_000")
    for line in program.stdout:  # the first line of progress: training goes on
        if line.startswith("step"):
            break
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=120)
    assert "stopped:" in output, errors
    assert "Traceback" not in errors
    assert records(tmp_path)[-1]["interrupted"]
    assert (tmp_path / "run" / "policy.safetensors").is_file()
