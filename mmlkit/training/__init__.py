"""One encoder with a head per task, one update, the loop around it, and the measurement of what it learned.

    model         MultitaskModel: the encoder and its heads; saving and loading
    sampling      which task each step trains
    optimizers    AdamW, Adamax, and the learning rate's schedule
    step          one update
    loop          `fit`: epochs, hooks, checkpoints
    evaluation    predictions and metrics of a whole split
    metrics       corpus metrics
    checkpoints   the file that a run resumes from
    pretraining   BERT's two pre-training objectives
    fast          CPU shortcuts, which act inside `train_step` alone

Notebooks 02, 06 and 08 build and use it. One paper's protocol or tables do not belong here.
"""

from mmlkit.training import metrics
from mmlkit.training.evaluation import answers, evaluate, predict, predict_encoded, probabilities, unless_out_of_memory
from mmlkit.training.loop import Hook, StepEvent, fit
from mmlkit.training.model import Head, MultitaskModel, load_model, save_model
from mmlkit.training.optimizers import Adamax, AdamW, learning_rate, make_optimizer
from mmlkit.training.pretraining import (
    PretrainingBatch,
    PretrainingHeads,
    PretrainingLoss,
    fill_mask,
    load_pretraining_heads,
    mask_tokens,
    next_sentence_pairs,
    pretrain,
    pretraining_batch,
    pretraining_loss,
    split_sentences,
)
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import train_step

__all__ = ["Head", "MultitaskModel", "load_model", "save_model", "TaskSampler", "AdamW", "Adamax",
           "learning_rate", "make_optimizer", "Hook", "StepEvent", "fit",
           "train_step", "answers", "predict", "predict_encoded", "evaluate", "probabilities",
           "unless_out_of_memory", "metrics", "PretrainingBatch", "PretrainingHeads",
           "PretrainingLoss", "fill_mask", "load_pretraining_heads", "mask_tokens",
           "next_sentence_pairs", "pretrain", "pretraining_batch", "pretraining_loss",
           "split_sentences"]
