"""Task data: what a task is, its rows and labels from anywhere, and batches of token ids.

    tasks      definitions of the tasks: text columns, label names, metrics
    files      rows from csv, tsv, jsonl and parquet files
    loading    one task's splits from the mini data, the hub or a folder, every row checked
    batching   token ids, batches of similar length, padding

Notebooks 00 and 02 build and use it. Models, and anything that needs a loss, do not belong here.
"""

from mmlkit.data.batching import Batch, Encoded, collate, encode, plan, plan_examples
from mmlkit.data.files import find_files, read_rows
from mmlkit.data.loading import Split, TaskData, load_task, make_split
from mmlkit.data.tasks import Task, get_task, list_tasks, ranking_task

__all__ = ["Task", "get_task", "list_tasks", "ranking_task", "find_files", "read_rows", "Split",
           "TaskData", "load_task", "make_split", "Encoded", "Batch", "encode", "plan",
           "plan_examples", "collate"]
