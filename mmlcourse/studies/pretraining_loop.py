"""The loop of pre-training: one step per batch of masked rows, with checkpoints as `fit` has them.

The objectives are in `pretraining`. Notebook 08 runs it.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from torch import nn

from mmlcourse.studies.pretraining import (
    PretrainingHeads,
    next_sentence_pairs,
    pretraining_batch,
    pretraining_loss,
)
from mmlkit.data.batching import plan
from mmlkit.runtime import (
    autocast,
    delayed_interrupt,
    place,
    random_state,
    seeded,
    set_random_state,
)
from mmlkit.training.arguments import check_settings
from mmlkit.training.checkpoints import CheckpointWriter, load_latest, plain_values, same_run
from mmlkit.training.fast import fast_matmul
from mmlkit.training.optimizers import learning_rate, make_optimizer

__all__ = ["pretrain"]


def pretrain(
    encoder,
    heads,
    texts,
    *,
    tokenizer=None,
    epochs=3,
    lr=1e-4,
    head_lr=None,
    batch_size=16,
    max_length=128,
    warmup=0.1,
    next_sentence=True,
    precision="auto",
    seed=0,
    checkpoint_dir=None,
    save_steps=None,
    save_minutes=5,
    resume=False,
    device=None,
):
    """Train encoder and heads on plain texts and leave both in eval mode.

    Masks, replaced sentences, order and dropout are drawn anew in each epoch.

    Args:
        encoder: a BertModel. It is moved to `device`, with the heads.
        heads: PretrainingHeads.
        texts: strings of several sentences, or any strings with next_sentence=False.
        tokenizer: the encoder's own by default.
        epochs: passes over the texts.
        lr: peak learning rate of the encoder.
        head_lr: peak learning rate of the heads; lr by default.
        batch_size: rows per batch.
        max_length: tokens to which a row is cut.
        warmup: the share of all steps in which the learning rate rises.
        next_sentence: whether the second objective is trained too.
        precision: see `runtime.autocast`; "auto" is fp32 where only fp16 is fast.
        seed: of all draws.
        checkpoint_dir: the folder for the last two checkpoints. One is written at the end, and
            where Ctrl-C ends the run.
        save_steps: also write a checkpoint after every so many updates.
        save_minutes: also write a checkpoint when so many minutes have passed, where `save_steps`
            is None.
        resume: True continues from checkpoint_dir if it holds a state; "auto" as in `fit`. A
            resumed run equals an uninterrupted one bit for bit on a CPU.
        device: see `runtime.place`.

    Returns:
        A DataFrame with a row per step: epoch, step, loss, words, next_sentence.

    Raises:
        ValueError: a setting is out of range, precision is "fp16", a text is empty, the heads do
            not fit, no tokenizer is known, or the checkpoint belongs to another run (some from
            private functions).
        KeyboardInterrupt: Ctrl-C, after a checkpoint.
        FloatingPointError: the loss or a gradient is not finite (raised while a step is made).

    Example::

        (encoder, tokenizer), heads = load_pretrained("minilm"), load_pretraining_heads("minilm")
        pretrain(encoder, heads, [text for (text,) in load_task("cfimdb").train.texts])
        fill_mask(encoder, heads, tokenizer, "The film was [MASK].")
    """
    import pandas as pd

    check_settings(locals())
    tokenizer, texts = _checked(encoder, heads, tokenizer or encoder.tokenizer, texts)
    both = place(nn.ModuleDict({"encoder": encoder, "heads": heads}), device).train()
    device, chosen = next(both.parameters()).device, precision
    max_length = min(max_length, encoder.config.max_position_embeddings)
    if autocast(precision, device)[1]:
        if precision != "auto":
            raise ValueError("precision 'fp16' needs a scaler, which pretrain lacks: use 'auto'.")
        precision = "fp32"
    folder = None if checkpoint_dir is None else Path(checkpoint_dir).expanduser()
    path = folder and folder / "last.safetensors"
    settings = dict(epochs=epochs, lr=lr, head_lr=head_lr, batch_size=batch_size, warmup=warmup)
    settings |= dict(max_length=max_length, next_sentence=next_sentence, precision=chosen)
    settings |= dict(seed=seed, encoder=str(encoder.config), texts=_hash(texts))
    optimizer = make_optimizer(both, lr=lr, head_lr=head_lr)
    run = _Run(both, optimizer, plain_values(settings), path)
    files = CheckpointWriter(path, save_steps, save_minutes)
    with seeded(seed, device), fast_matmul(device), delayed_interrupt() as interrupted:
        state = load_latest(path) if resume and path else None
        if state and same_run(path, state["settings"], run.settings, resume):
            run.load(state)
        for epoch in range(1, epochs + 1):
            rows = next_sentence_pairs(texts, seed=[seed, epoch]) if next_sentence else texts
            lengths = [len(row[0] + row[1] if next_sentence else row) for row in rows]
            batches = plan(lengths, batch_size, seed=seed, epoch=epoch)
            total = epochs * len(batches)
            for step, numbers in enumerate(batches, start=(epoch - 1) * len(batches)):
                if step < len(run.history):  # of the checkpoint
                    continue
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(
                        step, peak=group["peak"], warmup=int(warmup * total), total=total
                    )
                drawn = int(np.random.default_rng([seed, step]).integers(2**31))
                chosen = [rows[i] for i in numbers]
                batch = pretraining_batch(tokenizer, chosen, seed=drawn, max_length=max_length)
                loss = _update(encoder, heads, batch.to(device), optimizer, precision)
                values = (np.nan if part is None else part.item() for part in loss)
                run.history.append((epoch, step + 1, *values))
                ended = interrupted.is_set()  # read once: it may be set at any moment
                if ended or files.due(step + 1):
                    files.write(run.state)
                if ended:
                    kept = f" {path} holds its state; resume=True continues." if path else ""
                    raise KeyboardInterrupt(f"Pre-training ended after step {step + 1}.{kept}")
        files.write(run.state)
    both.eval()
    return pd.DataFrame(run.history, columns=["epoch", "step", "loss", "words", "next_sentence"])


def _hash(texts):
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _checked(encoder, heads, tokenizer, texts):
    """Return the tokenizer and the texts as a list, or raise."""
    if tokenizer is None:
        raise ValueError("no tokenizer is known for this encoder: pass tokenizer=.")
    if isinstance(texts, str) or not hasattr(texts, "__iter__"):
        raise ValueError(f"texts is {texts!r:.80}, expected a list of texts.")
    texts = list(texts)
    wrong = [text for text in texts if not (isinstance(text, str) and text.strip())]
    if wrong or not texts:
        found = f"{wrong[0]!r:.80} is among them" if wrong else "there is none"
        raise ValueError(f"texts must be texts with words in them; {found}. Remove or correct it.")
    width = encoder.config.hidden_size
    if not isinstance(heads, PretrainingHeads) or heads.seq_relationship.in_features != width:
        raise ValueError(
            f"heads is {heads!r:.80}, expected PretrainingHeads(encoder.config), for a "
            f"hidden_size of {width}."
        )
    return tokenizer, texts


class _Run:
    """The changing state of a run, which a checkpoint holds."""

    def __init__(self, model, optimizer, settings, path):
        self.model, self.optimizer, self.settings, self.path = model, optimizer, settings, path
        self.history = []

    def state(self):
        return {
            "settings": self.settings,
            "history": self.history,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": random_state(next(self.model.parameters()).device),
        }

    def load(self, state):
        self.history = [tuple(row) for row in state["history"]]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        set_random_state(state["random"], next(self.model.parameters()).device)


def _update(encoder, heads, batch, optimizer, precision):
    optimizer.zero_grad()
    with autocast(precision, batch.input_ids.device)[0]:
        loss = pretraining_loss(encoder, heads, batch)
    loss.total.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    if not (loss.total.isfinite() and norm.isfinite()):
        raise FloatingPointError(
            f"the loss is {loss.total.item()}, its gradient {norm.item()}; the weights are those "
            "before this step. Try a smaller lr."
        )
    optimizer.step()
    return loss
