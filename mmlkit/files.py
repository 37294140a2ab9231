"""Files and model folders: each is written as a whole or not at all, and what is read is checked.

Notebook 02 saves its first model this way. Nothing here imports torch before it is needed, so the
command line can tell at once that a folder holds no model, and a batch waits for no torch.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import warnings
from pathlib import Path

__all__ = [
    "atomic_write",
    "check_model_folder",
    "complete_folder",
    "read_json_object",
    "read_tensors",
    "replace_folder",
    "savable",
    "tensor_mismatches",
    "write_file",
]

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
        OSError: the file cannot be written. The error names `path`.

    Example::

        with atomic_write("results/one.json") as temporary:
            temporary.write_text(text)
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():  # a rename would replace /dev/null for everybody
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk names no file
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):  # where the folder is a file, for example
            temporary.unlink(missing_ok=True)


def write_file(path, content):
    """Write a file as a whole or not at all, see `atomic_write`.

    Args:
        path: the file.
        content: a text, which is written in UTF-8, or bytes.
    """
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def read_json_object(path):
    """Return the JSON object in a file.

    Args:
        path: a pathlib.Path.

    Returns:
        A dict.

    Raises:
        ValueError: the file holds anything else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"it holds a {type(values).__name__}, expected an object {{...}}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}. {COPY_AGAIN}") from error
    return values


def read_tensors(path):
    """Return the tensors in a safetensors file.

    Args:
        path: a pathlib.Path.

    Returns:
        A dict from names to tensors on the CPU, of any shapes [...].

    Raises:
        ValueError: the file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        hint = COPY_AGAIN
        if path.read_bytes()[:20] == b"version https://git-":
            hint = "It is a pointer of Git LFS: run git lfs pull in its repository."
        raise ValueError(f"{path} cannot be read as safetensors ({error}). {hint}") from error


def tensor_mismatches(expected, tensors, source):
    """Return a text for every tensor that does not fit: its name, shape or values.

    Args:
        expected: the state dict of the module.
        tensors: the state dict of a file.
        source: what describes the module, such as a file.

    Returns:
        A list of texts, empty when everything fits.
    """
    found = [f"{key} is missing" for key in expected.keys() - tensors.keys()]
    found += [f"{key} is not expected by {source}" for key in tensors.keys() - expected.keys()]
    for key in expected.keys() & tensors.keys():
        own, wanted = list(tensors[key].shape), list(expected[key].shape)
        if own != wanted:
            found.append(f"{key}: {own} in the file, {wanted} by {source}")
        elif not tensors[key].isfinite().all():
            found.append(f"{key}: some numbers are not finite (damaged, or training diverged)")
    return sorted(found)


def savable(state, expected=None):
    """Return the tensors of a state dict as safetensors writes them, if they can be opened again.

    Args:
        state: a state dict.
        expected: the state dict into which they will be loaded, if it is another one.

    Returns:
        A dict from names to contiguous tensors on the CPU, of any shapes [...].

    Raises:
        ValueError: some numbers are not finite, or names or shapes are not those expected.
    """
    tensors = {key: value.detach().contiguous().cpu() for key, value in state.items()}
    if found := tensor_mismatches(expected or tensors, tensors, "its configuration"):
        peft = expected and expected.keys() != tensors.keys()
        hint = " Adapters of PEFT: use what merge_and_unload() returns." if peft else ""
        raise ValueError(f"This model could not be opened again: {'; '.join(found[:5])}.{hint}")
    return tensors


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
        raise FileNotFoundError(
            f"{folder} holds no trained model: mmlkit.json is missing. Expected a folder written "
            f"by save_model. {hint}".strip()
        )
    return found


def complete_folder(folder):
    """Return the folder itself, or its previous version when a save was killed between two moves.

    Args:
        folder: a folder's name.

    Returns:
        A pathlib.Path. A warning names the previous version.
    """
    folder = Path(folder).expanduser()
    old = _previous(Path(os.path.realpath(folder)))  # resolve() fails at a link to itself
    if folder.exists() or not old.is_dir():
        return folder
    warnings.warn(
        f"{folder} is missing: a save was killed in its last step. The model before it is {old}.",
        stacklevel=3,
    )
    return old


@contextlib.contextmanager
def replace_folder(folder, own=()):
    """Give a temporary folder to write into; on success it becomes `folder`, as a whole.

    A previous folder with a model is moved aside, the new one takes its place, and the previous one
    is removed. `complete_folder` finds it when the process is killed between the moves. A folder
    without a model receives the new files one by one, config.json last.

    Args:
        folder: where the files are in the end.
        own: names of files that belong to a model beside the encoder's and the tokenizer's. Those
            of the previous model are removed. All other files stay.

    Yields:
        The temporary folder, a pathlib.Path.

    Raises:
        OSError: something could not be written. The previous model is unchanged.
    """
    folder = Path(os.path.realpath(Path(folder).expanduser()))
    old, new = _previous(folder), folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
    if old.is_dir() and not folder.exists():  # of a save that was killed between its moves
        os.rename(old, folder)
    try:
        new.mkdir(parents=True)
        yield new
        if (folder / "config.json").is_file():
            _swap(folder, new, old, own)
        elif folder.is_dir():
            for path in sorted(new.iterdir(), key=lambda path: path.name == "config.json"):
                os.replace(path, folder / path.name)
        else:
            os.rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _previous(folder):
    return folder.with_name(f".{folder.name}.old")


def _swap(folder, new, old, own):
    if old.is_dir():  # of a save that was killed after its moves
        _take_others(old, folder, own)
    inside = Path.cwd() == folder
    os.rename(folder, old)
    os.rename(new, folder)
    _take_others(old, folder, own)
    if inside:  # the process runs in the previous folder
        os.chdir(folder)


def _take_others(old, folder, own):
    """Move the files that belong to no model back from the previous folder, and remove it."""
    for path in old.iterdir():
        is_model = _ENCODER_FILE.fullmatch(path.name) or path.name in own
        if not is_model and not (folder / path.name).exists():
            os.rename(path, folder / path.name)
    shutil.rmtree(old)
