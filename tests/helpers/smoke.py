"""The smoke size of a notebook: its profile fast, with an encoder that is drawn and tiny.

All cells run, and all assertions but those on effects (`size.effects`): `make walkthrough` runs the
notebooks on the profile fast itself.
"""

import dataclasses

# Without this cell, a notebook runs on MiniLM.
CELL = """
import dataclasses
from mmlcourse.lessons import profiles

_profile_named = profiles.get_profile
profiles.get_profile = lambda name: dataclasses.replace(
    _profile_named(name), model={folder!r}, effects=False, long_runs={long_runs}
)
"""


def smoke_cell(folder, *, long_runs=False):
    """Return code that a notebook runs first, with the encoder in a folder."""
    return CELL.format(folder=str(folder), long_runs=long_runs).strip()


def write_small_encoder(folder):
    """Write MiniLM's tokenizer, and an encoder of 2 layers, 12 heads and 48 dimensions."""
    from mmlkit.bert import BertModel, load_pretrained, save_pretrained
    from mmlkit.runtime import seeded

    minilm, tokenizer = load_pretrained("minilm", num_layers=1, device="cpu")
    sizes = dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96)
    with seeded(0):
        encoder = BertModel(dataclasses.replace(minilm.config, **sizes))
    save_pretrained(encoder, tokenizer, folder)
    return folder
