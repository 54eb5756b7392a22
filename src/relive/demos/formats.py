"""Which format a path has, and the episodes in it: one table, from a name to a reader.

A reader is a module with `episodes(path, options)`. A format is told by what is in a file, not by
its name.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from relive.demos import hdf5, minari
from relive.demos.demonstration import DoneMeans, LastStep, Options, reading
from relive.errors import ConfigError, InputError, UnsupportedError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from minari import MinariDataset

    from relive.demos.demonstration import Demonstration

FormatName = Literal["minari", "d4rl", "robomimic", "lerobot"]


class Format(NamedTuple):
    """A format.

    Attributes:
        what: In words.
        leaves_open: What of `read` it needs to be told.
    """

    what: str
    leaves_open: frozenset[str]


FORMATS: dict[FormatName, Format] = {
    "minari": Format("Minari: HDF5, Arrow or Parquet", frozenset()),
    "d4rl": Format("flat HDF5 as in D4RL", frozenset({"last_step"})),
    "robomimic": Format("robomimic HDF5", frozenset({"last_step", "done_means"})),
    "lerobot": Format("LeRobot v3.0", frozenset({"last_step", "done_means"})),
}
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".npy", ".npz", ".joblib")
MAGIC_OF_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x93NUMPY", b"PK\x03\x04")


def read(
    path: str | Path | MinariDataset,
    *,
    format: FormatName | None = None,
    keys: Collection[str] | None = None,
    last_step: LastStep | None = None,
    done_means: DoneMeans | None = None,
) -> Iterator[Demonstration]:
    """The episodes of a file or folder, one after the other.

    Nothing in it can run code: of Python objects, pickles among them, nothing is ever read.

    Args:
        path: Of a Minari or LeRobot dataset (a folder), or of an HDF5 file. Or a name that
            `minari.load_dataset` takes, of a dataset that is in Minari's folder; or what it
            returns.
        format: Its format; None finds out.
        keys: Of dict observations, the dotted names of those to read; None for all.
        last_step: What to do with the last step of an episode of which the file does not say what
            was observed after it: "drop" or "repeat" its own observation. One that terminated is
            kept either way.
        done_means: What flags mean that do not tell termination from truncation.

    Returns:
        An iterator that reads an episode when it is asked for it. It raises `CorruptError` for a
        file that is damaged or not whole, `InputError` where an option is missing, and
        `UnsupportedError` for what is not read; each names file and episode.

    Raises:
        InputError: Nothing is there, or nothing that is known.
        UnsupportedError: A pickle, or a file of another kind that may hold one.
        ConfigError: A word that is no choice, or an option that the format does not leave open.
    """
    place = located(path)
    options = Options(
        keys=None if keys is None else frozenset(keys), last_step=last_step, done_means=done_means
    )
    name = found(place, format)
    for option in ("last_step", "done_means"):
        if getattr(options, option) is not None and option not in FORMATS[name].leaves_open:
            raise ConfigError(
                f"{option} {getattr(options, option)!r} does nothing with {place}: "
                f"{FORMATS[name].what} leaves nothing of it open"
            )
    return _read(place, import_module(f"relive.demos.{name}").episodes, options)


def _read(
    path: Path, episodes: Callable[[Path, Options], Iterator[Demonstration]], options: Options
) -> Iterator[Demonstration]:
    with reading(str(path)):
        yield from episodes(path, options)


def located(path: Any) -> Path:
    """Where the file or folder is; what is not there by that name may be in Minari's folder.

    Raises:
        InputError: Nothing is there, no path, or a part of a dataset.
    """
    if is_minari(path):
        if len(path) != path.storage.total_episodes:
            raise InputError(
                f"{path.storage.data_path} is read whole, and only {len(path)} of its episodes are "
                "given; choose some by where and limit of load"
            )
        path = path.storage.data_path
    try:
        place = Path(path)
    except TypeError:
        raise InputError(f"path is the name of a file or folder; given {shown(path)}") from None
    if place.exists():
        return place
    if (named := minari.datasets_folder() / place).exists():
        return named
    known = "" if named == place else f", nor a dataset {named} of Minari"
    raise InputError(f"there is no file or folder {place} to read demonstrations from{known}")


def is_minari(given: Any) -> bool:
    """Whether something is a `MinariDataset`; the package is not needed to see it."""
    return hasattr(getattr(given, "storage", None), "data_path")


def found(path: Path, given: FormatName | None = None) -> FormatName:
    """The format of a path, which is `given` if that is not None.

    Raises:
        ConfigError: There is no format of that name.
        InputError: It is nothing that is known.
        UnsupportedError: A file that may hold a pickle.
    """
    if given is not None and given not in get_args(FormatName):
        raise ConfigError(f"format is {', '.join(FORMATS)}, or None to find out; given {given!r}")
    if path.is_dir():
        there = _of_folder(path)
    else:
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty: 0 bytes")
        _refuse_pickle(path)
        there = _of_file(path)
    if there is None or given not in (None, there):
        known = "; ".join(f"{name}: {form.what}" for name, form in FORMATS.items())
        seen = f"is {there}" if there else "is none of the known formats"
        raise InputError(f"{path} {seen}{f', not {given}' if given else ''} ({known})")
    return there


def _of_folder(path: Path) -> FormatName | None:
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    return None if minari.folder_of(path) is None else "minari"


def _refuse_pickle(path: Path) -> None:
    with path.open("rb") as file:
        first = file.read(8)
    if path.suffix.lower() in PICKLES or first.startswith(MAGIC_OF_PICKLES):
        raise UnsupportedError(
            f"{path} is a pickle, or may hold one: reading it would run the code in it, so it is "
            "never read; where you trust it, load it yourself and give its arrays to "
            "ReplayBuffer.extend, or write them as HDF5"
        )


def _of_file(path: Path) -> FormatName | None:
    """The format of an HDF5 file, by the names in it."""
    with path.open("rb") as file:
        if file.read(len(HDF5_MAGIC)) != HDF5_MAGIC:
            return None
    with reading(str(path)), hdf5.opened(path) as file:
        names = set(file)
        if "data" in names and hdf5.is_group(data := hdf5.member(file, "data")):
            demonstrations = any(name.startswith("demo_") for name in data)
            if demonstrations or (not len(data) and "env_args" in data.attrs):  # none recorded
                return "robomimic"
        if "observations" in names and "actions" in names:
            return "d4rl"
        return "minari" if "episode_0" in names else None
