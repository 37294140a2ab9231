"""mmlkit: the fine-tuning methods that stand on BERT, in a library thin enough to read beside its notebooks."""

from mmlkit.bert import BertConfig, BertModel
from mmlkit.data import load_task
from mmlkit.evaluation import evaluate, predict
from mmlkit.heads import LinearHead
from mmlkit.multitask import MultitaskModel, load_model, save_model
from mmlkit.optimizers import AdamW
from mmlkit.pretrained import load_pretrained, save_pretrained
from mmlkit.profiles import get_profile
from mmlkit.sampling import TaskSampler
from mmlkit.tasks import get_task, list_tasks
from mmlkit.training import fit, train_step

__version__ = "0.1.0"

__all__ = ["AdamW", "BertConfig", "BertModel", "LinearHead", "MultitaskModel", "TaskSampler", "evaluate", "fit", "get_profile",
           "get_task", "list_tasks", "load_model", "load_pretrained", "load_task", "predict", "save_model", "save_pretrained",
           "train_step"]
