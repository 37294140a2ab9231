"""Training: one encoder with a head per task, one update, the loop around it, and its evaluation.

    model         MultitaskModel: the encoder and its heads
    saving        models in folders
    sampling      which task each step trains
    optimizers    AdamW, Adamax, and the learning rate's schedule
    step          one update
    graphs        CUDA graphs of whole updates
    loop          `fit`: epochs and hooks
    distributed   several processes that train together
    evaluation    predictions and metrics of a whole split
    features      the features of a frozen encoder, computed once
    metrics       corpus metrics
    resume        where a run continues after a kill
    checkpoints   its file
    fast          the path of a matrix product, and shortcuts of a training step on a CPU

Notebooks 02, 07 and 10 build and use it. One paper's protocol or tables do not belong here.
"""

from mmlkit.training import metrics
from mmlkit.training.evaluation import (
    evaluate,
    predict,
    predict_proba,
    predict_scores,
    probabilities,
    score_encoded,
)
from mmlkit.training.graphs import StepGraphs
from mmlkit.training.loop import Hook, StepEvent, fit
from mmlkit.training.model import Head, MultitaskModel
from mmlkit.training.optimizers import Adamax, AdamW, learning_rate, make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step
