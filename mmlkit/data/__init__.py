"""Task data: task definitions, rows and labels from files or the hub, and batches of token ids.

    tasks      task definitions: text columns, label names, metrics
    files      the files of a folder; tables from csv, tsv, jsonl and parquet files
    labels     where a row of a table gets its label, by name
    loading    the splits of a task from the mini data, the hub, a folder or memory
    batching   token ids, batches of similar length, padding

Notebooks 00 and 02 build and use it. Models and losses do not belong here.
"""

from mmlkit.data.batching import Batch, Encoded, collate, encode, plan, plan_examples
from mmlkit.data.files import find_files, read_rows
from mmlkit.data.loading import Split, TaskData, load_task, make_split, task_data
from mmlkit.data.tasks import Task, get_task, list_tasks, ranking_task
