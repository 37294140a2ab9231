"""Files and model folders: each is written as a whole or not at all, and what is read is checked.

Notebook 02 saves its first model this way. Nothing here imports torch before it is needed, so the
command line can tell at once that a folder holds no model, and a batch waits for no torch.
"""

import contextlib
import errno
import glob
import json
import os
import re
import secrets
import shutil
import time
import warnings
from pathlib import Path

from mmlkit.messages import file_error

__all__ = [
    "atomic_write",
    "check_model_folder",
    "complete_folder",
    "is_encoder_file",
    "read_json_object",
    "read_tensors",
    "replace_folder",
    "tensor_mismatches",
    "write_file",
]

_STREAMS = ("/dev/stdout", "/dev/stderr")
COPY_AGAIN = "Copy or download it again."
_ENCODER_FILE = re.compile(
    r"(pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?|"
    r"config\.json|vocab\.(txt|json)|merges\.txt|tokenizer(_config)?\.json|added_tokens\.json|"
    r"special_tokens_map\.json|chat_template\.jinja"
)


@contextlib.contextmanager
def atomic_write(path):
    """Write a file as a whole or not at all.

    Args:
        path: the file. Its folder is made where it is missing. A link is replaced, not followed.

    Yields:
        The path of a temporary file beside it, which is renamed to `path` on success. A pipe or a
        device such as /dev/null is written directly.

    Raises:
        OSError: the file cannot be written; the message names `path` and what to do.
        IsADirectoryError: `path` is a folder.
        ValueError: `path` is the standard output or error.

    Example::

        with atomic_write("results/one.json") as temporary:
            temporary.write_text(text)
    """
    path = Path(path)
    if str(path) in _STREAMS:  # these are links, which a rename would replace for everybody
        raise ValueError(f"{path} is a stream, expected a file. Leave --out away to see the text.")
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    named = {None, *map(str, (temporary, path, *path.parents))}  # a full disk names no file
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.is_fifo() or path.is_char_device():
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None and error.filename in named:
            clear = file_error(path, error, "written")
            raise clear from error
        raise
    finally:
        with contextlib.suppress(OSError):  # where the folder is none, for example
            temporary.unlink(missing_ok=True)


def write_file(path, content):
    """Write a file as a whole or not at all, see `atomic_write`.

    Args:
        path: the file.
        content: a text, which is written in UTF-8, or bytes.
    """
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def _as_path(folder):
    if not isinstance(folder, (str, os.PathLike)) or not str(folder):
        raise ValueError(f"folder is {folder!r:.80}, expected the name of a folder.")
    return Path(folder).expanduser()


def _check_file(path):
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist. Copy or save the whole folder again.")


def read_json_object(path):
    """Return the JSON object in a file.

    Args:
        path: a pathlib.Path.

    Returns:
        A dict.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds anything else.
    """
    _check_file(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # wrong UTF-8, wrong JSON, a 5,000-digit number
        raise ValueError(f"{path} is not valid JSON: {error}. {COPY_AGAIN}") from error
    if not isinstance(values, dict):
        found = type(values).__name__
        raise ValueError(f"{path} holds a {found}, expected an object {{...}}. {COPY_AGAIN}")
    return values


def read_tensors(path):
    """Return the tensors in a safetensors file.

    Args:
        path: a pathlib.Path.

    Returns:
        A dict from names to tensors on the CPU, of any shapes [...].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_file(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} cannot be read as safetensors ({error}): it is truncated or damaged. "
            f"{COPY_AGAIN}"
        ) from error


def tensor_mismatches(expected, tensors, source, place=" in the file"):
    """Return a text for every tensor that does not fit: its name, shape, dtype or values.

    Args:
        expected: the state dict of the module.
        tensors: the state dict of a file, or the one to be saved.
        source: what describes the module, such as a file.
        place: where the tensors are.

    Returns:
        A list of texts, empty when everything fits.
    """
    found = []
    for key, value in expected.items():
        tensor = tensors.get(key)
        if tensor is None:
            found.append(f"{key} is missing")
            continue
        floating = tensor.is_floating_point() and value.is_floating_point()
        if tensor.shape != value.shape:
            wanted = f"{list(value.shape)} by {source}"
            found.append(f"{key}: {list(tensor.shape)}{place}, {wanted}")
        elif tensor.dtype != value.dtype and not floating:
            found.append(f"{key}: {tensor.dtype}{place}, expected {value.dtype}")
        elif not tensor.isfinite().all():
            found.append(f"{key}: some numbers are not finite (damaged, or training diverged)")
    unknown = tensors.keys() - expected.keys()
    return found + [f"{key} is not expected by {source}" for key in sorted(unknown)]


def check_model_folder(folder, hint=""):
    """Return the folder that holds a trained model.

    Args:
        folder: a folder that save_model wrote.
        hint: a sentence for the message on how to get one.

    Returns:
        A pathlib.Path, see `complete_folder`.

    Raises:
        FileNotFoundError: the folder holds no trained model.
    """
    found = complete_folder(folder)
    if not (found / "mmlkit.json").is_file():
        missing = "mmlkit.json" if found.exists() else "the folder"
        raise FileNotFoundError(
            f"{folder} holds no trained model: {missing} is missing. "
            f"Expected a folder written by save_model.{hint and f' {hint}'}"
        )
    return found


def complete_folder(folder):
    """Return the folder itself, or its previous version when a save was killed between two moves.

    Args:
        folder: a folder's name.

    Returns:
        A pathlib.Path. A warning names the previous version.
    """
    folder = _as_path(folder)
    old = _previous(Path(os.path.realpath(folder)))  # resolve() fails at a link to itself
    if folder.exists() or not old.is_dir():
        return folder
    warnings.warn(
        f"{folder} is missing: a save was killed in its last step. The model before it is loaded "
        f"from {old}. Rename that folder, or save again.",
        stacklevel=3,
    )
    return old


def is_encoder_file(name):
    """Return whether a file belongs to the encoder or tokenizer of a model folder.

    Args:
        name: a file name.

    Returns:
        True or False.
    """
    return _ENCODER_FILE.fullmatch(name) is not None


@contextlib.contextmanager
def replace_folder(folder, is_replaced, model_file="config.json"):
    """Give a temporary folder to write into; on success it becomes `folder`, as a whole.

    A previous folder with a model is moved aside, the new one takes its place, and the previous one
    is removed. `complete_folder` finds it when the process is killed between the moves. A folder
    without a model receives the new files one by one, `model_file` last.

    Args:
        folder: where the files are in the end.
        is_replaced: a function of a file name; True for files that belong to the previous model.
            All other files stay: they are hard-linked into the new folder before the move.
        model_file: the file that every complete model has.

    Yields:
        The temporary folder, a pathlib.Path.

    Raises:
        OSError: something could not be written. The previous model is unchanged.
        NotADirectoryError: `folder` is a file.
    """
    from safetensors import SafetensorError

    folder = _as_path(folder)
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file, expected a folder. Name another path.")
    folder = Path(os.path.realpath(folder))
    # In containers the ids of processes repeat, hence the random part.
    unique = f"{os.getpid()}.{secrets.token_hex(4)}"
    old, new = _previous(folder), folder.with_name(f".{folder.name}.{unique}.new")
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.new"):  # of killed saves
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if old.is_dir() and not folder.exists():
            os.rename(old, folder)
        new.mkdir()
        yield new
        if (folder / model_file).is_file():
            _swap(folder, new, old, is_replaced)
        elif folder.is_dir():
            for path in sorted(new.iterdir(), key=lambda path: path.name == model_file):
                os.replace(path, folder / path.name)
        else:
            os.rename(new, folder)
    except (OSError, SafetensorError) as error:  # the second: save_file where the disk is full
        reason = getattr(error, "strerror", None) or error
        raise OSError(
            f"{folder} could not be written ({reason}). A model that was there before is "
            "unchanged. Free some space, or save into another folder."
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _previous(folder):
    return folder.with_name(f".{folder.name}.old")


def _link(source, target):
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)


def _swap(folder, new, old, is_replaced):
    def ignored(place, names):
        top = Path(place) == folder
        return [name for name in names if top and (is_replaced(name) or (new / name).exists())]

    shutil.rmtree(old, ignore_errors=True)  # of a save that was killed after its moves
    shutil.copytree(
        folder, new, symlinks=True, ignore=ignored, copy_function=_link, dirs_exist_ok=True
    )
    here = Path.cwd()
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except BaseException:
        os.rename(old, folder)
        raise
    if here.is_relative_to(folder):  # the process runs in the previous folder
        os.chdir(here)
    shutil.rmtree(old, ignore_errors=True)
